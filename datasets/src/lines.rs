//! Files of one JSON object per line.

use std::path::Path;

use serde::de::DeserializeOwned;
use sightdraft_core::{Error, Result, files};

/// The objects of a JSON-lines file with their line numbers (from 1); empty lines are skipped.
pub(crate) fn read<T: DeserializeOwned>(path: &Path, what: &str) -> Result<Vec<(usize, T)>> {
    parse(path, &files::read_text(path)?, what)
}

/// As [`read`], for text that is already in memory; `path` is for messages.
pub(crate) fn parse<T: DeserializeOwned>(path: &Path, text: &str, what: &str) -> Result<Vec<(usize, T)>> {
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let objects: Vec<(usize, T)> = lines
        .map(|(at, line)| {
            let object = serde_json::from_str(line).map_err(|e| fault(path, at + 1, what, e.to_string()))?;
            Ok((at + 1, object))
        })
        .collect::<Result<_>>()?;
    if objects.is_empty() {
        return Err(Error::file(path, what, "an empty file", "fetch the file again"));
    }
    Ok(objects)
}

/// A line that is not what it should be.
pub(crate) fn fault(path: &Path, line: usize, what: &str, found: impl AsRef<str>) -> Error {
    // serde counts within the object, where every line is line 1; the file's own number is the useful one.
    let found = found.as_ref().replace(" at line 1 column ", " at column ");
    Error::file(path, what, format!("line {line}: {found}"), "mend or remove that line")
}
