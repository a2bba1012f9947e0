//! Which weights were measured.

use std::fmt::Write;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};
use sightdraft_core::{Error, Result};

/// SHA-256 over the weight files of `dir` in the order of their names, in hexadecimal.
pub fn fingerprint(dir: &Path) -> Result<String> {
    let entries = std::fs::read_dir(dir).map_err(|e| Error::io("read", dir, e))?;
    let mut files: Vec<PathBuf> = entries
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .filter(|path| path.extension().is_some_and(|kind| kind == "safetensors" || kind == "bin"))
        .collect();
    files.sort();
    let mut hash = Sha256::new();
    let mut buffer = vec![0; 1 << 20];
    for path in files {
        let mut file = File::open(&path).map_err(|e| Error::io("read", &path, e))?;
        loop {
            let read = file.read(&mut buffer).map_err(|e| Error::io("read", &path, e))?;
            if read == 0 {
                break;
            }
            hash.update(&buffer[..read]);
        }
    }
    Ok(hash.finalize().iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    }))
}

#[cfg(test)]
mod tests {
    use super::fingerprint;

    #[test]
    fn weights_are_hashed_in_order_and_other_files_are_not() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).unwrap();
        write("b.safetensors", "c");
        write("a.safetensors", "ab");
        write("config.json", "{}");
        // The well-known digest of "abc".
        let abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(fingerprint(dir.path()).unwrap(), abc);
    }
}
