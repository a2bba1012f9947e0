//! Decoded images.

use std::path::Path;

use sightdraft_core::Result;

/// RGB bytes, `height * width * 3`, rows first; alpha is dropped as PIL's `convert("RGB")` does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    /// Pixels across.
    pub width: usize,
    /// Pixels down.
    pub height: usize,
    /// `[height][width][3]`.
    pub rgb: Vec<u8>,
}

impl Image {
    /// Decodes a PNG or JPEG file; a corrupt or empty file is a clear error.
    pub fn open(_path: &Path) -> Result<Self> {
        todo!()
    }
}
