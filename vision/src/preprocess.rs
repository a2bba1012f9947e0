//! From an image to normalised pixels: `crop` (Hugging Face: shortest edge, then centre crop) or `pad` (original LLaVA:
//! expand to a square of the mean colour first).

use std::path::Path;

use sightdraft_core::Result;

use crate::{Image, PreprocessConfig};

/// Normalised pixels, `[3][size][size]`.
#[derive(Debug, Clone, PartialEq)]
pub struct Pixels {
    /// Side length.
    pub size: usize,
    /// Channel-first values.
    pub values: Vec<f32>,
}

/// A preprocessing convention with its numbers.
#[derive(Debug, Clone, PartialEq)]
pub struct Preprocessor {
    /// Sizes, mean and deviation.
    pub config: PreprocessConfig,
}

impl Preprocessor {
    /// Reads `preprocessor_config.json` (or `processor_config.json`).
    pub fn open(_dir: &Path) -> Result<Self> {
        todo!()
    }

    /// Resizes (PIL's bicubic), crops or pads, rescales, normalises.
    pub fn apply(&self, _image: &Image) -> Pixels {
        todo!()
    }
}
