//! A target with everything it is served with: tokenizer, template, stop ids, image preprocessing.

use std::path::{Path, PathBuf};

use burn::tensor::{DType, Device};
use sightdraft_core::generation_config::eos_ids;
use sightdraft_core::{ChatTemplate, Error, Message, Result, Tokenizer};
use sightdraft_vision::{Image, Preprocessor};

use crate::load::{load, model_type};
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
    /// Loads a directory, weights as `dtype` (F32, F16 or BF16; on the CPU the half precisions are kept as bf16).
    ///
    /// # Errors
    /// A file of it that is missing, damaged or does not fit.
    pub fn open(dir: &Path, dtype: DType, device: &Device) -> Result<Self> {
        let preprocessor = match model_type(dir)?.as_str() {
            "llava" => Some(Preprocessor::open(dir)?),
            _ => None,
        };
        Ok(Self {
            tokenizer: Tokenizer::open(dir)?,
            chat: ChatTemplate::open(dir)?,
            eos: eos_ids(dir)?,
            model: load(dir, dtype, device)?,
            preprocessor,
            dir: dir.to_owned(),
        })
    }

    /// Renders and encodes `messages`, preprocesses `images` (one per `<image>` in the messages, in order).
    ///
    /// # Errors
    /// An image for a text-only target, another number of images than of `<image>`, a template that refuses the
    /// messages.
    pub fn prompt(&self, messages: &[Message], images: &[Image]) -> Result<Prompt> {
        let ids = self.prompt_ids(messages, images.len())?;
        let pixels = |preprocessor: &Preprocessor| images.iter().map(|image| preprocessor.apply(image)).collect();
        Ok(Prompt { ids, images: self.preprocessor.as_ref().map(pixels).unwrap_or_default() })
    }

    /// The ids of [`ServedTarget::prompt`] alone, for `images` images that need not be at hand.
    ///
    /// # Errors
    /// As [`ServedTarget::prompt`].
    pub fn prompt_ids(&self, messages: &[Message], images: usize) -> Result<Vec<u32>> {
        self.check_images(messages, images)?;
        self.tokenizer.encode_prompt(&self.chat.prompt(messages)?)
    }

    /// Whether the target can be asked `messages` with `images` images.
    ///
    /// # Errors
    /// An image for a text-only target, another number of images than of `<image>`.
    pub fn check_images(&self, messages: &[Message], images: usize) -> Result<()> {
        match &self.preprocessor {
            Some(_) => check_placeholders(messages, images),
            None if images == 0 => Ok(()),
            None => {
                let (what, found) = (self.dir.display().to_string(), format!("{images} image(s)"));
                let expected = "text alone, the target reads no images";
                Err(Error::invalid(what, expected, found, "leave the image out"))
            }
        }
    }
}

/// Where an image stands in a message.
const PLACEHOLDER: &str = "<image>";

/// Whether the messages hold one placeholder per image. The model checks the ids once more; here the sender's words
/// can be named.
fn check_placeholders(messages: &[Message], images: usize) -> Result<()> {
    let found: usize = messages.iter().map(|message| message.content.matches(PLACEHOLDER).count()).sum();
    if found == images {
        return Ok(());
    }
    Err(Error::invalid(
        "messages",
        format!("{images} times {PLACEHOLDER}, once for each image"),
        format!("{found}"),
        if found < images { "write it where the image belongs" } else { "give the missing images, or leave it out" },
    ))
}

#[cfg(test)]
mod tests {
    use sightdraft_core::Role;

    use super::*;

    #[test]
    fn placeholders_and_images_must_agree() {
        let says = |content: &str| Message { role: Role::User, content: content.into() };
        let two = [says("<image>\nWhat is it?"), says("And <image>?")];
        assert!(check_placeholders(&two, 2).is_ok());
        assert!(check_placeholders(&two, 1).unwrap_err().to_string().contains("found 2; give the missing images"));
        assert!(check_placeholders(&two, 3).unwrap_err().to_string().contains("found 2; write it"));
    }
}
