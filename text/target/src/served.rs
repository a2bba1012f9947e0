//! A target with everything it is served with: tokenizer, template, stop ids, image preprocessing.

use std::path::{Path, PathBuf};

use burn::tensor::Device;
use sightdraft_core::{ChatTemplate, Message, Result, Tokenizer};
use sightdraft_vision::{Image, Preprocessor};

use crate::{Prompt, Target};

/// A target ready for prompts.
pub struct ServedTarget {
    /// The model.
    pub model: Box<dyn Target>,
    /// Its tokenizer.
    pub tokenizer: Tokenizer,
    /// Its chat template.
    pub chat: ChatTemplate,
    /// Ids that end an answer.
    pub eos: Vec<u32>,
    /// Image preprocessing; None for text-only targets.
    pub preprocessor: Option<Preprocessor>,
    /// Where it came from.
    pub dir: PathBuf,
}

impl ServedTarget {
    /// Loads a directory.
    pub fn open(_dir: &Path, _device: &Device) -> Result<Self> {
        todo!()
    }

    /// Renders and encodes `messages`, preprocesses `images` (one per `<image>` in the messages, in order).
    pub fn prompt(&self, _messages: &[Message], _images: &[Image]) -> Result<Prompt> {
        todo!()
    }
}
