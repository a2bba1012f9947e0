//! The target as speculative decoding sees it.

use std::ops::Range;

use burn::prelude::*;
use sightdraft_core::{Error, Result};
use sightdraft_vision::Pixels;

use crate::Llama;

/// Ids with one image token per image (or already one per image row), and the images in order.
#[derive(Debug, Clone, Default)]
pub struct Prompt {
    /// Token ids.
    pub ids: Vec<u32>,
    /// Preprocessed images.
    pub images: Vec<Pixels>,
}

/// A prompt as rows for the language model.
#[derive(Debug, Clone)]
pub struct PromptRows {
    /// Ids, each image token repeated once per image row.
    pub ids: Vec<u32>,
    /// Input embeddings `[1, n, H]`; image rows are projected image features.
    pub embeds: Tensor<3>,
    /// Where the images are.
    pub image_rows: Vec<Range<usize>>,
}

/// A model that verifies: a language model, and a way to turn a prompt into its rows.
pub trait Target {
    /// The language model.
    fn llama(&self) -> &Llama;

    /// `ids` with each image token repeated once per image row, and where the `images` lie. Nothing is computed: a training set
    /// is measured this way without a pass of the vision tower. Text-only targets take no images.
    ///
    /// # Errors
    /// As [`Target::rows`], the length of the prompt apart.
    fn expand(&self, ids: &[u32], images: usize) -> Result<(Vec<u32>, Vec<Range<usize>>)> {
        match images {
            0 => Ok((ids.to_vec(), Vec::new())),
            _ => {
                let found = format!("{images} image(s)");
                Err(Error::invalid("prompt", "text alone for a text-only target", found, "leave the image out"))
            }
        }
    }

    /// Expands image tokens and embeds. Errors: an image without a token, a token without an image, a prompt cut inside an
    /// image block, an image given to a text-only target, a prompt longer than the context.
    fn rows(&self, prompt: &Prompt) -> Result<PromptRows>;
}
