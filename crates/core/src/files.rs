//! Reading and writing files so that nothing is ever half-written.

use std::path::Path;

use serde::de::DeserializeOwned;

use crate::Result;

/// Reads and parses a JSON file; an error names the file and the place.
pub fn read_json<T: DeserializeOwned>(_path: &Path) -> Result<T> {
    todo!()
}

/// Writes `bytes` to a temporary name beside `path`, then renames.
pub fn write_atomically(_path: &Path, _bytes: &[u8]) -> Result<()> {
    todo!()
}
