//! The built-in target, carried inside the binary.

use std::path::Path;

use sightdraft_core::files::write_atomically;
use sightdraft_core::{Error, Result};

/// A file of `assets/builtin` with its bytes.
macro_rules! asset {
    ($name:literal) => {
        ($name, include_bytes!(concat!("../assets/builtin/", $name)))
    };
}

/// The directory as Hugging Face lays it out.
const FILES: [(&str, &[u8]); 6] = [
    asset!("config.json"),
    asset!("model.safetensors"),
    asset!("tokenizer.json"),
    asset!("tokenizer_config.json"),
    asset!("generation_config.json"),
    asset!("preprocessor_config.json"),
];

/// Writes the target into `dir`, which is made if need be.
pub fn unpack(dir: &Path) -> Result<()> {
    std::fs::create_dir_all(dir).map_err(|e| Error::io("create", dir, e))?;
    FILES.iter().try_for_each(|(name, bytes)| write_atomically(&dir.join(name), bytes))
}
