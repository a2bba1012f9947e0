//! A draft as it lies in a directory: `config.json` and `model.safetensors` in the published layout.

use std::fs;
use std::path::Path;

use burn::prelude::*;
use sightdraft_core::checkpoint::save_safetensors;
use sightdraft_core::{Error, Result};
use sightdraft_target::save::Named;

use crate::DraftConfig;
use crate::shared::Shared;

/// A draft that can be written.
pub trait Published {
    /// Geometry.
    fn config(&self) -> &DraftConfig;

    /// The tensors under their published names.
    fn tensors(&self) -> Vec<(String, TensorData)>;
}

/// Writes `draft` into `dir`. Both files are complete before either takes its name; other files in `dir` stay.
///
/// # Errors
/// What the disk refuses.
pub(crate) fn save(draft: &dyn Published, dir: &Path) -> Result<()> {
    let stage = dir.join(format!(".draft.{}.tmp", std::process::id()));
    fs::create_dir_all(&stage).map_err(|source| Error::io("create", &stage, source))?;
    let written = write_layout(draft, &stage).and_then(|()| {
        ["model.safetensors", "config.json"].iter().try_for_each(|name| {
            let path = dir.join(name);
            fs::rename(stage.join(name), &path).map_err(|source| Error::io("write", path, source))
        })
    });
    // Left behind only if the disk refuses this too; the first failure is the one to report.
    let _ = fs::remove_dir_all(&stage);
    written
}

fn write_layout(draft: &dyn Published, dir: &Path) -> Result<()> {
    let tensors = draft.tensors();
    save_safetensors(&dir.join("model.safetensors"), &tensors, &[("format", "pt")])?;
    let mut config = draft.config().to_json();
    if draft.config().method.shares_head() {
        // What EAGLE's own loader asks before it builds the fusion.
        config["bias"] = tensors.iter().any(|(name, _)| name == "fc.bias" || name == "fc.fc.bias").into();
    }
    let path = dir.join("config.json");
    fs::write(&path, format!("{config:#}\n")).map_err(|source| Error::io("write", path, source))
}

/// The copy of the target's embeddings that published drafts of EAGLE-1's family carry.
pub(crate) fn save_table(out: &mut Named, shared: &Shared) {
    out.push("embed_tokens.weight", shared.table());
}
