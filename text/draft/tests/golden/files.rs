//! Reading the golden files.

use std::path::{Path, PathBuf};

use safetensors::SafeTensors;

/// Where the golden files are.
pub fn root() -> PathBuf {
    std::env::var_os("SIGHTDRAFT_FIXTURES")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures"), PathBuf::from)
}

/// The safetensors files of a folder.
pub fn files(folder: &str) -> Vec<PathBuf> {
    let dir = root().join(folder);
    let entries = std::fs::read_dir(&dir).unwrap_or_else(|error| panic!("{}: {error}", dir.display()));
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "safetensors"));
    files.sort();
    files
}

/// One file.
pub struct Fixture {
    bytes: Vec<u8>,
}

impl Fixture {
    pub fn open(path: &Path) -> Self {
        Self { bytes: std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display())) }
    }

    fn tensors(&self) -> SafeTensors<'_> {
        SafeTensors::deserialize(&self.bytes).unwrap()
    }

    pub fn has(&self, name: &str) -> bool {
        self.tensors().tensor(name).is_ok()
    }

    /// `x` of every tensor named `x{suffix}`.
    pub fn cases(&self, suffix: &str) -> Vec<String> {
        let tensors = self.tensors();
        let mut cases: Vec<String> =
            tensors.names().into_iter().filter_map(|name| name.strip_suffix(suffix)).map(String::from).collect();
        cases.sort();
        cases
    }

    pub fn shape(&self, name: &str) -> Vec<usize> {
        self.tensors().tensor(name).unwrap_or_else(|error| panic!("{name}: {error}")).shape().to_vec()
    }

    fn raw<const N: usize, T>(&self, name: &str, read: impl Fn([u8; N]) -> T) -> Vec<T> {
        let tensors = self.tensors();
        let view = tensors.tensor(name).unwrap_or_else(|error| panic!("{name}: {error}"));
        view.data().chunks_exact(N).map(|chunk| read(chunk.try_into().unwrap())).collect()
    }

    pub fn f32(&self, name: &str) -> Vec<f32> {
        self.raw(name, f32::from_le_bytes)
    }

    pub fn i64(&self, name: &str) -> Vec<i64> {
        self.raw(name, i64::from_le_bytes)
    }
}
