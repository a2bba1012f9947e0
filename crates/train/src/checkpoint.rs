//! Checkpoints: a directory is written whole beside its place, then takes it by renaming. Whenever the process dies, either the
//! new one or the one before is there.
//!
//! `last/` and `best/` are drafts in the published layout; `last/` also holds what resuming needs.

use std::fs;
use std::path::{Path, PathBuf};

use burn::optim::ModuleOptimizer;
use burn::tensor::Device;
use serde::{Deserialize, Serialize};
use sightdraft_core::files::{read_json, write_atomically};
use sightdraft_core::{Error, Result};
use sightdraft_draft::DraftModel;
use sightdraft_target::Llama;

use crate::config::TrainConfig;
use crate::held_out::HeldOut;
use crate::trainable::{param_ids, trainable};

const STATE: &str = "trainer.json";
const OPTIMIZER: &str = "optimizer.bpk";

/// The best measurement so far.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Best {
    /// Optimiser steps done then.
    pub step: usize,
    /// What was measured.
    pub held_out: HeldOut,
}

/// Everything about a run but its weights and moments. Order of the data and random streams follow from seed and step, so the
/// step is both the data position and the random state.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct State {
    /// Optimiser steps done.
    pub step: usize,
    /// The best measurement.
    pub best: Option<Best>,
    /// The recipe; resuming under another one is refused.
    pub config: TrainConfig,
    /// Name and precision of the target.
    pub target: String,
    /// Fingerprint of the training and held-out data.
    pub data: String,
    /// Parameter ids in visiting order: the optimiser's moments are filed under them.
    param_ids: Vec<u64>,
}

impl State {
    /// A run that has not begun.
    pub fn new(config: TrainConfig, target: String, data: String) -> Self {
        Self { step: 0, best: None, config, target, data, param_ids: vec![] }
    }
}

/// Writes `last/` in `out`.
///
/// # Errors
/// What the disk refuses; the checkpoint before is then still there.
pub fn save_last(out: &Path, draft: &DraftModel, optimizer: &ModuleOptimizer, state: &State) -> Result<()> {
    replace(&out.join("last"), |dir| {
        draft.save(dir)?;
        let path = dir.join(OPTIMIZER);
        let saved = optimizer.to_record().save(&path);
        saved.map_err(|e| Error::file(&path, "room for the optimiser's moments", e.to_string(), "check the disk"))?;
        let state = State { param_ids: param_ids(draft), ..state.clone() };
        write_json(&dir.join(STATE), &state)
    })
}

/// Writes `best/` in `out`: the draft and what it was chosen by.
///
/// # Errors
/// What the disk refuses; the best before is then still there.
pub fn save_best(out: &Path, draft: &DraftModel, best: &Best) -> Result<()> {
    replace(&out.join("best"), |dir| {
        draft.save(dir)?;
        write_json(&dir.join("held_out.json"), best)
    })
}

/// Whether `out` has a checkpoint to resume from.
pub fn exists(out: &Path) -> bool {
    out.join("last").exists() || aside(&out.join("last")).exists()
}

/// Reads `last/`, ready to train on.
///
/// # Errors
/// No checkpoint, or one that is not whole.
pub fn load_last(
    out: &Path,
    target: &Llama,
    optimizer: ModuleOptimizer,
    device: &Device,
) -> Result<(DraftModel, ModuleOptimizer, State)> {
    let dir = out.join("last");
    recover(&dir)?;
    let state: State = read_json(&dir.join(STATE))?;
    let draft = trainable(DraftModel::open(&dir, target, device)?, Some(&state.param_ids));
    let path = dir.join(OPTIMIZER);
    let optimizer = optimizer.load(&path).map_err(|e| {
        Error::file(&path, "a whole optimiser record", e.to_string(), "train afresh in another directory")
    })?;
    Ok((draft, optimizer, state))
}

fn write_json(path: &Path, value: &impl Serialize) -> Result<()> {
    let text = serde_json::to_vec_pretty(value).expect("plain structs serialise");
    write_atomically(path, &text)
}

/// Fills a directory beside `place` and swaps it in.
fn replace(place: &Path, fill: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    recover(place)?;
    let (staged, old) = (beside(place, "new"), aside(place));
    remove(&staged)?;
    fs::create_dir_all(&staged).map_err(|e| Error::io("create", &staged, e))?;
    fill(&staged)?;
    // A directory cannot be renamed over another: between the two renames only the old one exists, under the name that
    // `recover` looks for.
    if place.exists() {
        fs::rename(place, &old).map_err(|e| Error::io("rename", place, e))?;
    }
    fs::rename(&staged, place).map_err(|e| Error::io("rename", &staged, e))?;
    remove(&old)
}

/// Undoes or finishes a swap that was cut short.
fn recover(place: &Path) -> Result<()> {
    let old = aside(place);
    match (place.exists(), old.exists()) {
        (false, true) => fs::rename(&old, place).map_err(|e| Error::io("rename", &old, e)),
        _ => remove(&old),
    }
}

fn remove(dir: &Path) -> Result<()> {
    match fs::remove_dir_all(dir) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(Error::io("remove", dir, e)),
        _ => Ok(()),
    }
}

fn aside(place: &Path) -> PathBuf {
    beside(place, "old")
}

fn beside(place: &Path, what: &str) -> PathBuf {
    place.with_extension(what)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fill(text: &'static str) -> impl FnOnce(&Path) -> Result<()> {
        move |dir| write_atomically(&dir.join("a"), text.as_bytes())
    }

    #[test]
    fn a_swap_cut_short_anywhere_leaves_one_whole_checkpoint() {
        let out = tempfile::tempdir().unwrap();
        let place = out.path().join("last");
        let read = || {
            recover(&place).unwrap();
            fs::read_to_string(place.join("a")).unwrap()
        };
        replace(&place, fill("one")).unwrap();
        // Killed while filling.
        fs::create_dir(beside(&place, "new")).unwrap();
        fs::write(beside(&place, "new").join("a"), "par").unwrap();
        assert_eq!(read(), "one");
        // Killed between the renames.
        fs::rename(&place, aside(&place)).unwrap();
        assert_eq!(read(), "one");
        replace(&place, fill("two")).unwrap();
        assert_eq!(read(), "two");
        // Killed before the old one was removed.
        fs::create_dir(aside(&place)).unwrap();
        fs::write(aside(&place).join("a"), "one").unwrap();
        assert_eq!(read(), "two");
        assert!(!aside(&place).exists());
        // A full disk while filling.
        let failure = replace(&place, |_| Err(Error::invalid("disk", "room", "none", "free some")));
        assert!(failure.is_err());
        assert_eq!(read(), "two");
    }
}
