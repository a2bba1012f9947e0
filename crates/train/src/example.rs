//! From a conversation to ids with the exact loss mask.

use std::hash::{Hash, Hasher};

use sightdraft_core::chat::assistant_mask;
use sightdraft_core::{ChatTemplate, Error, Message, Result, Role, Tokenizer};
use sightdraft_datasets::{Conversation, ImageSource};
use sightdraft_target::{ServedTarget, Target};
use sightdraft_vision::{Image, Pixels, Preprocessor};

use crate::plan::Size;

/// An image of an example. It is opened and preprocessed for each target pass: the pixels of all examples together would not
/// fit into memory.
#[derive(Debug, Clone, PartialEq)]
pub struct Picture {
    source: ImageSource,
    preprocessor: Preprocessor,
}

impl Picture {
    /// An image that `target` will see.
    ///
    /// # Errors
    /// A text-only target.
    pub fn new(source: ImageSource, target: &ServedTarget) -> Result<Self> {
        match &target.preprocessor {
            Some(preprocessor) => Ok(Self { source, preprocessor: preprocessor.clone() }),
            None => {
                let (expected, found) = ("a target with a vision tower", "a text-only one, but images in the data");
                let mend = "train on a LLaVA target, or leave the images out";
                Err(Error::file(&target.dir, expected, found, mend))
            }
        }
    }

    /// Its normalised pixels.
    ///
    /// # Errors
    /// A file that is no longer there or cannot be read.
    pub fn pixels(&self) -> Result<Pixels> {
        Ok(self.preprocessor.apply(&open_image(&self.source)?))
    }
}

impl Hash for Picture {
    /// By path, or by what was drawn.
    fn hash<H: Hasher>(&self, state: &mut H) {
        match &self.source {
            ImageSource::File(path) => path.hash(state),
            ImageSource::Drawn(drawn) => drawn.as_raw().hash(state),
        }
    }
}

/// A conversation ready for the target.
#[derive(Debug, Clone)]
pub struct Example {
    /// Its name.
    pub id: String,
    /// Token ids, one image token per image row.
    pub ids: Vec<u32>,
    /// Whether each id is the assistant's.
    pub assistant: Vec<bool>,
    /// Its images, in the order of their tokens.
    pub images: Vec<Picture>,
}

impl Example {
    /// Renders, encodes and masks a conversation (see [`rendered`]); image tokens are expanded to one per row.
    ///
    /// # Errors
    /// A template in which the assistant's words cannot be found, no assistant token at all, images that do not fit.
    pub fn encode(conversation: &Conversation, target: &ServedTarget) -> Result<Self> {
        // Opened once now: a damaged file is to be found before the training, not in the middle of it.
        conversation.images.iter().try_for_each(|source| open_image(source).map(drop))?;
        let pictures = conversation.images.iter().map(|source| Picture::new(source.clone(), target));
        let images = pictures.collect::<Result<Vec<_>>>()?;
        target.check_images(question(&conversation.messages), images.len())?;
        let (ids, assistant) = rendered(conversation, &target.tokenizer, &target.chat)?;
        let (ids, assistant) = expand(target.model.as_ref(), &ids, &assistant, images.len())?;
        if !assistant.contains(&true) {
            let what = format!("conversation {:?}", conversation.id);
            return Err(Error::invalid(what, "an assistant turn", "none", "leave it out or add the answer"));
        }
        Ok(Self { id: conversation.id.clone(), ids, assistant, images })
    }

    /// What the schedule and the plan of memory go by.
    pub fn size(&self) -> Size {
        Size::of(&self.assistant, !self.images.is_empty())
    }

    /// Answer tokens that some draft row predicts.
    pub fn answer_tokens(&self) -> usize {
        self.assistant.iter().skip(2).filter(|a| **a).count()
    }
}

/// The turns that ask: all but the assistant's at the end.
pub fn question(messages: &[Message]) -> &[Message] {
    let end = messages.iter().rposition(|m| m.role != Role::Assistant).map_or(0, |last| last + 1);
    &messages[..end]
}

/// A conversation's images.
///
/// # Errors
/// A file that cannot be read.
pub fn open_images(conversation: &Conversation) -> Result<Vec<Image>> {
    conversation.images.iter().map(open_image).collect()
}

fn open_image(source: &ImageSource) -> Result<Image> {
    match source {
        ImageSource::File(path) => Image::open(path),
        ImageSource::Drawn(drawn) => {
            Image::from_rgb(drawn.width() as usize, drawn.height() as usize, drawn.as_raw().clone())
        }
    }
}

/// A conversation's ids, one image token per image, and which of them are the assistant's. With `answer_ids` the answer is those
/// ids, exactly as the target gave them, behind the prompt that the turns before it make.
///
/// # Errors
/// A template that refuses the messages, or in which the assistant's words cannot be found.
pub fn rendered(
    conversation: &Conversation,
    tokenizer: &Tokenizer,
    chat: &ChatTemplate,
) -> Result<(Vec<u32>, Vec<bool>)> {
    let Some(answer) = &conversation.answer_ids else {
        return assistant_mask(tokenizer, &chat.conversation(&conversation.messages)?);
    };
    let mut ids = tokenizer.encode_prompt(&chat.prompt(question(&conversation.messages))?)?;
    let mut assistant = vec![false; ids.len()];
    ids.extend(answer);
    assistant.resize(ids.len(), true);
    Ok((ids, assistant))
}

/// Ids and mask with one entry per row of the language model.
fn expand(target: &dyn Target, ids: &[u32], assistant: &[bool], images: usize) -> Result<(Vec<u32>, Vec<bool>)> {
    let (rows, blocks) = target.expand(ids, images)?;
    let mut source = assistant.iter();
    let already = rows.len() == assistant.len();
    let mask = (0..rows.len())
        .map(|row| match blocks.iter().find(|range| range.contains(&row)) {
            // An image token stands for a whole block and belongs to nobody's answer.
            Some(range) if already || row == range.start => source.next().map(|_| false),
            Some(_) => Some(false),
            None => source.next().copied(),
        })
        .map(|flag| flag.unwrap_or(false))
        .collect();
    Ok((rows, mask))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_question_ends_before_the_answer() {
        let say = |role, content: &str| Message { role, content: content.into() };
        let turns = [say(Role::User, "a"), say(Role::Assistant, "b"), say(Role::User, "c"), say(Role::Assistant, "d")];
        assert_eq!(question(&turns), &turns[..3]);
        assert_eq!(question(&turns[..3]), &turns[..3]);
        assert_eq!(question(&turns[1..2]), &[]);
    }
}
