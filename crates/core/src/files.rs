//! Reading and writing files so that nothing is ever half-written.

use std::hash::Hash;
use std::io::Write;
use std::path::Path;

use serde::de::DeserializeOwned;

use crate::digits::digits;
use crate::{Error, Result};

/// Reads a whole file. A pipe will do; a device is refused, for some never end and would fill all memory.
///
/// # Errors
/// [`Error::Io`] if it cannot be read, [`Error::File`] if it is a device.
pub fn read(path: &Path) -> Result<Vec<u8>> {
    if std::fs::metadata(path).is_ok_and(|found| is_device(found.file_type())) {
        return Err(Error::file(path, "a file", "a device", "name a file"));
    }
    std::fs::read(path).map_err(|e| Error::io("read", path, e))
}

/// Reads a whole text file.
///
/// # Errors
/// As [`read`]; [`Error::File`] if it is not UTF-8.
pub fn read_text(path: &Path) -> Result<String> {
    let bytes = read(path)?;
    String::from_utf8(bytes).map_err(|e| {
        Error::file(
            path,
            "UTF-8 text",
            format!("an invalid byte at offset {}", e.utf8_error().valid_up_to()),
            "check that this is the right file and that it is whole",
        )
    })
}

/// Reads and parses a JSON file.
///
/// # Errors
/// As [`read`]; [`Error::File`] with line and column if it is not the JSON that `T` needs.
pub fn read_json<T: DeserializeOwned>(path: &Path) -> Result<T> {
    let bytes = read(path)?;
    serde_json::from_slice(&bytes).map_err(|e| {
        let expected = if e.is_data() { "JSON with the keys and types of this file" } else { "whole, valid JSON" };
        Error::file(path, expected, e.to_string(), "mend that place or fetch the file again")
    })
}

/// Writes `bytes` to a temporary name beside `path`, then renames: a reader sees the old file or the new one, never a
/// part. Missing parent directories are made.
///
/// # Errors
/// [`Error::Io`] if a step fails; the file that was there before is then untouched.
pub fn write_atomically(path: &Path, bytes: &[u8]) -> Result<()> {
    // A bare file name has the empty parent, which no system call accepts.
    let parent = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let write = || {
        std::fs::create_dir_all(parent)?;
        let mut file = tempfile::Builder::new().prefix(".writing-").tempfile_in(parent)?;
        file.write_all(bytes)?;
        // Without this a power cut can leave the new name on an empty file.
        file.as_file().sync_all()?;
        readable_by_all(file.as_file())?;
        file.persist(path).map_err(|e| e.error)?;
        Ok(())
    };
    write().map_err(|e| Error::io("write", path, e))
}

/// Tells the contents of a folder from others without reading them: names, sizes and last changes of its files, as sixteen digits.
///
/// # Errors
/// [`Error::Io`] if the folder or a file cannot be looked at.
pub fn stamp(dir: &Path) -> Result<String> {
    let look = || -> std::io::Result<String> {
        let mut files = vec![];
        for entry in std::fs::read_dir(dir)? {
            let path = entry?.path();
            // Through links, of which caches of hubs are made; one that leads nowhere is no file.
            if path.is_file() {
                let found = std::fs::metadata(&path)?;
                files.push((path.file_name().map(ToOwned::to_owned), found.len(), found.modified()?));
            }
        }
        files.sort();
        Ok(digits(|hasher| files.hash(hasher)))
    };
    look().map_err(|e| Error::io("read", dir, e))
}

#[cfg(unix)]
fn is_device(kind: std::fs::FileType) -> bool {
    use std::os::unix::fs::FileTypeExt;
    kind.is_char_device() || kind.is_block_device()
}

#[cfg(not(unix))]
fn is_device(_kind: std::fs::FileType) -> bool {
    false
}

/// Temporary files are private to their owner; results should be as readable as any other file.
#[cfg(unix)]
fn readable_by_all(file: &std::fs::File) -> std::io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    file.set_permissions(std::fs::Permissions::from_mode(0o644))
}

#[cfg(not(unix))]
fn readable_by_all(_file: &std::fs::File) -> std::io::Result<()> {
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_then_replaces() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("new/folder/a.json");
        write_atomically(&path, b"[1, 2]").unwrap();
        write_atomically(&path, b"[3]").unwrap();
        assert_eq!(read_json::<Vec<u32>>(&path).unwrap(), [3]);
        let left = std::fs::read_dir(path.parent().unwrap()).unwrap().count();
        assert_eq!(left, 1, "no temporary file may stay behind");
    }

    #[test]
    fn a_stamp_changes_with_any_file() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("a"), "12").unwrap();
        let first = stamp(dir.path()).unwrap();
        assert_eq!(stamp(dir.path()).unwrap(), first);
        std::fs::write(dir.path().join("a"), "123").unwrap();
        let longer = stamp(dir.path()).unwrap();
        std::fs::rename(dir.path().join("a"), dir.path().join("b")).unwrap();
        let renamed = stamp(dir.path()).unwrap();
        assert!(first != longer && longer != renamed && renamed != first);
        #[cfg(unix)]
        std::os::unix::fs::symlink("nowhere", dir.path().join("broken")).unwrap();
        assert_eq!(stamp(dir.path()).unwrap(), renamed, "a link that leads nowhere is no file");
        assert!(stamp(&dir.path().join("none")).unwrap_err().to_string().contains("none"));
    }

    #[test]
    fn errors_name_file_and_place() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("config.json");
        let missing = read_json::<Vec<u32>>(&path).unwrap_err().to_string();
        assert!(missing.contains("config.json") && missing.contains("check the path"), "{missing}");
        std::fs::write(&path, "[1,\n oops]").unwrap();
        let broken = read_json::<Vec<u32>>(&path).unwrap_err().to_string();
        assert!(broken.contains("config.json") && broken.contains("line 2"), "{broken}");
        std::fs::write(&path, [b'a', 0xff]).unwrap();
        assert!(read_text(&path).unwrap_err().to_string().contains("offset 1"));
    }

    #[cfg(unix)]
    #[test]
    fn a_device_without_end_is_refused() {
        let said = read(Path::new("/dev/zero")).unwrap_err().to_string();
        assert!(said.contains("/dev/zero") && said.contains("a device"), "{said}");
    }
}
