//! Where a training run can go on: weights, optimizer and step, written beside and renamed.

use std::fs;
use std::path::{Path, PathBuf};

use burn::module::Module;
use burn::optim::{ModuleOptimizer, OptimizerRecord};
use burn::store::ModuleRecord;
use sightdraft_core::{Error, Result, files};

fn folder(dir: &Path) -> PathBuf {
    dir.join("training")
}

/// The step that the checkpoint in `dir` has reached; None without one.
///
/// # Errors
/// A file that holds no number.
pub fn step(dir: &Path) -> Result<Option<u64>> {
    let path = folder(dir).join("step.json");
    if path.exists() { files::read_json(&path).map(Some) } else { Ok(None) }
}

/// Writes a whole new folder, then puts it in the place of the old one.
///
/// # Errors
/// What the disk refuses.
pub fn save<M: Module>(dir: &Path, step: u64, model: &M, optimizer: &ModuleOptimizer) -> Result<()> {
    let (folder, fresh) = (folder(dir), dir.join("training.new"));
    let io = |e| Error::io("write", &fresh, e);
    let _ = fs::remove_dir_all(&fresh);
    fs::create_dir_all(&fresh).map_err(io)?;
    let record = |e: burn::store::RecordError| {
        Error::file(&fresh, "a checkpoint to be written", e.to_string(), "check the disk and run again")
    };
    model.clone().into_record().save(fresh.join("model")).map_err(record)?;
    optimizer.to_record().save(fresh.join("optimizer")).map_err(record)?;
    files::write_atomically(&fresh.join("step.json"), step.to_string().as_bytes())?;
    let _ = fs::remove_dir_all(&folder);
    fs::rename(&fresh, &folder).map_err(io)
}

/// Loads weights and optimizer into a model and an optimizer of the same shape.
///
/// # Errors
/// Records that are damaged or do not fit.
pub fn load<M: Module>(dir: &Path, model: M, optimizer: ModuleOptimizer) -> Result<(M, ModuleOptimizer)> {
    let folder = folder(dir);
    let fault = |e: burn::store::RecordError| {
        Error::file(&folder, "a checkpoint of this model", e.to_string(), "remove the folder to start over")
    };
    let weights = ModuleRecord::load(folder.join("model")).map_err(fault)?;
    let model = model.try_load_record(weights).map_err(fault)?;
    let state = OptimizerRecord::load(folder.join("optimizer")).map_err(fault)?;
    Ok((model, optimizer.load_record(state)))
}
