//! A path or a hub name, resolved to a local directory.

use std::path::PathBuf;

use crate::Result;

/// `model` as a local directory if it exists, else as `owner/name` on the Hugging Face hub (HF_TOKEN, HF_ENDPOINT, HF_HOME and
/// HF_HUB_OFFLINE are honoured).
pub fn resolve(_model: &str) -> Result<PathBuf> {
    todo!()
}
