//! The built-in target, carried inside the binary.

use std::path::{Path, PathBuf};

use sightdraft_core::files::write_atomically;
use sightdraft_core::{Error, Result, hub};

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

/// What stands for the built-in target where a model is named.
const NAME: &str = "builtin";

/// A directory, a hub name, or `builtin`, as a directory. A directory called `builtin` goes first.
pub fn resolve(model: &str) -> Result<PathBuf> {
    unpacked(model).unwrap_or_else(|| hub::resolve(model))
}

/// As [`resolve`], without weights where they would have to be downloaded.
pub fn resolve_configs(model: &str) -> Result<PathBuf> {
    unpacked(model).unwrap_or_else(|| hub::resolve_configs(model))
}

/// The built-in target in the user's cache, if it is meant. Written anew every time: another version may have left its own.
fn unpacked(model: &str) -> Option<Result<PathBuf>> {
    (model == NAME && !Path::new(model).is_dir()).then(|| {
        let dir = cache().join("sightdraft").join(NAME);
        unpack(&dir).map(|()| dir)
    })
}

/// The user's cache folder.
pub fn cache() -> PathBuf {
    let folder = |key| std::env::var_os(key).filter(|value| !value.is_empty()).map(PathBuf::from);
    folder("XDG_CACHE_HOME").or_else(|| Some(folder("HOME")?.join(".cache"))).unwrap_or_else(std::env::temp_dir)
}
