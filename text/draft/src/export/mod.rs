//! Drafts in the layouts that servers read. One file per format; what a format cannot say is refused with the reason.
//!
//! Layer ids (taps) are written in both conventions wherever a layout has a place for both, see [`crate::config`].

mod eagle1;
mod eagle3;
mod obstacles;
mod servers;
mod speculators;
mod target;

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use burn::tensor::{DType, TensorData};
use serde::Serialize;
use serde_json::Value;
use sightdraft_core::{Checkpoint, Error, Result, save_safetensors};

pub use servers::{Verdict, servers};
pub use target::TargetFiles;

use crate::config::Stated;
use crate::{DraftConfig, Method};

/// A reader of drafts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// SGLang, SpecForge and EAGLE itself.
    Sglang,
    /// vLLM.
    Vllm,
    /// The library speculators, whose directories vLLM reads too.
    Speculators,
}

impl Format {
    /// Every format.
    pub const ALL: [Self; 3] = [Self::Sglang, Self::Vllm, Self::Speculators];

    /// The name that options take.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sglang => "sglang",
            Self::Vllm => "vllm",
            Self::Speculators => "speculators",
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Sglang => "SGLang",
            Self::Vllm => "vLLM",
            Self::Speculators => "speculators",
        })
    }
}

impl FromStr for Format {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|format| format.name() == text).ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            Error::invalid("format", format!("one of {names}"), format!("{text:?}"), "correct the name")
        })
    }
}

/// What a directory will hold.
struct Layout {
    config: Value,
    tensors: Vec<(String, TensorData)>,
}

/// Writes the draft in `draft` for `format` into `out`, a new directory, floats as `dtype`. The directory appears when it is
/// complete. Weights of the target are not loaded; of its files, config.json and (where the layout carries them) the
/// embeddings are read.
///
/// # Errors
/// A draft that does not fit the target, or that the format cannot express; an `out` that holds something; a full disk.
pub fn export(draft: &Path, target: &TargetFiles, format: Format, dtype: DType, out: &Path) -> Result<()> {
    let config = DraftConfig::open(draft, &target.config)?;
    let obstacles = obstacles::of(&Stated::read(draft)?, format, Some(target.config.num_hidden_layers));
    if let Some(obstacle) = obstacles.first() {
        let expected = format!("a draft that {format} can load");
        let mend = "choose another format; `inspect` tells which";
        return Err(Error::file(draft, expected, format!("another: {obstacle}"), mend));
    }
    let stage = Stage::open(out)?;
    let checkpoint = Checkpoint::open(draft)?;
    let mut layout = match (config.method, format) {
        (Method::Eagle3, Format::Speculators) => speculators::layout(&checkpoint, config, target)?,
        (Method::Eagle3, _) => eagle3::layout(&checkpoint, config, format, target)?,
        _ => eagle1::layout(&checkpoint, &config, target)?,
    };
    for (_, data) in layout.tensors.iter_mut().filter(|(_, data)| data.dtype() == DType::F32) {
        *data = data.clone().convert_dtype(dtype);
    }
    let key = if format == Format::Speculators { "dtype" } else { "torch_dtype" };
    layout.config[key] = sightdraft_target::save::torch_name(dtype).into();
    stage.write(&layout)
}

/// A directory in the making, under a name of its own beside the final one.
struct Stage<'a> {
    out: &'a Path,
    dir: PathBuf,
}

impl<'a> Stage<'a> {
    /// # Errors
    /// An `out` that is there and not an empty directory.
    fn open(out: &'a Path) -> Result<Self> {
        let empty = || fs::read_dir(out).is_ok_and(|mut entries| entries.next().is_none());
        if fs::symlink_metadata(out).is_ok() && !empty() {
            let mend = "name a directory that is not there yet, or remove this one";
            return Err(Error::file(out, "an empty place for the export", "something else", mend));
        }
        // A name that ends in `..` or `/` has no last part of its own.
        let name = out.file_name().ok_or_else(|| Error::file(out, "the name of a directory", "none", "name one"))?;
        let name = format!(".{}.{}.tmp", name.to_string_lossy(), std::process::id());
        Ok(Self { out, dir: out.with_file_name(name) })
    }

    /// Writes both files, then gives the directory its name.
    fn write(&self, layout: &Layout) -> Result<()> {
        let fail = |source| Error::io("write", self.out, source);
        fs::create_dir_all(&self.dir).map_err(fail)?;
        save_safetensors(&self.dir.join("model.safetensors"), &layout.tensors, &[("format", "pt")])
            .map_err(|error| self.name_out(error))?;
        fs::write(self.dir.join("config.json"), format!("{:#}\n", layout.config)).map_err(fail)?;
        fs::rename(&self.dir, self.out).map_err(fail)
    }

    /// The error under the name that the user gave.
    fn name_out(&self, error: Error) -> Error {
        match error {
            Error::Io { action, source, .. } => Error::io(action, self.out, source),
            other => other,
        }
    }
}

impl Drop for Stage<'_> {
    /// After a failure nothing stays; after a success there is nothing under this name any more.
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.dir);
    }
}
