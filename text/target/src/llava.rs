//! LLaVA-1.5: CLIP vision tower, projector and LLaMA, image tokens expanded in place.

use burn::prelude::*;

use sightdraft_core::Result;

use crate::{Llama, Prompt, PromptRows, Target};

/// A LLaVA-shaped model.
#[derive(Module, Debug)]
pub struct Llava {
    /// Vision tower and projector.
    pub vision: sightdraft_vision::VisionModel,
    /// Language model.
    pub llama: Llama,
    /// The id that stands for an image in the prompt.
    #[module(skip)]
    pub image_token: u32,
}

impl Target for Llava {
    fn llama(&self) -> &Llama {
        &self.llama
    }

    fn rows(&self, _prompt: &Prompt) -> Result<PromptRows> {
        todo!()
    }
}
