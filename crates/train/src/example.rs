//! From a conversation to ids with the exact loss mask.

use sightdraft_core::chat::assistant_mask;
use sightdraft_core::{Error, Message, Result, Role};
use sightdraft_datasets::{Conversation, ImageSource};
use sightdraft_target::{Prompt, ServedTarget, Target};
use sightdraft_vision::{Image, Pixels};

/// A conversation ready for the target.
#[derive(Debug, Clone)]
pub struct Example {
    /// Its name.
    pub id: String,
    /// Token ids, one image token per image row.
    pub ids: Vec<u32>,
    /// Whether each id is the assistant's.
    pub assistant: Vec<bool>,
    /// Preprocessed images.
    pub images: Vec<Pixels>,
}

impl Example {
    /// Renders, encodes and masks a conversation; image tokens are expanded to one per row. With `answer_ids` the answer is
    /// those ids, exactly as the target gave them, behind the prompt that the turns before it make.
    ///
    /// # Errors
    /// A template in which the assistant's words cannot be found, no assistant token at all, images that do not fit.
    pub fn encode(conversation: &Conversation, target: &ServedTarget) -> Result<Self> {
        let images = open_images(conversation)?;
        let (prompt, assistant) = match &conversation.answer_ids {
            Some(answer) => answered(conversation, answer, target, &images)?,
            None => rendered(conversation, target, &images)?,
        };
        let (ids, assistant) = expand(target.model.as_ref(), &prompt, &assistant)?;
        if !assistant.contains(&true) {
            let what = format!("conversation {:?}", conversation.id);
            return Err(Error::invalid(what, "an assistant turn", "none", "leave it out or add the answer"));
        }
        Ok(Self { id: conversation.id.clone(), ids, assistant, images: prompt.images })
    }

    /// Answer tokens that some draft row predicts.
    pub fn answer_tokens(&self) -> usize {
        self.assistant.iter().skip(2).filter(|a| **a).count()
    }
}

/// The turns that ask: all but the assistant's at the end.
pub(crate) fn question(messages: &[Message]) -> &[Message] {
    let end = messages.iter().rposition(|m| m.role != Role::Assistant).map_or(0, |last| last + 1);
    &messages[..end]
}

/// The pixels of a conversation's images.
pub(crate) fn open_images(conversation: &Conversation) -> Result<Vec<Image>> {
    let open = |source: &ImageSource| match source {
        ImageSource::File(path) => Image::open(path),
        ImageSource::Drawn(drawn) => {
            Image::from_rgb(drawn.width() as usize, drawn.height() as usize, drawn.as_raw().clone())
        }
    };
    conversation.images.iter().map(open).collect()
}

/// The prompt's ids followed by the target's own.
fn answered(
    conversation: &Conversation,
    answer: &[u32],
    target: &ServedTarget,
    images: &[Image],
) -> Result<(Prompt, Vec<bool>)> {
    let mut prompt = target.prompt(question(&conversation.messages), images)?;
    let mut assistant = vec![false; prompt.ids.len()];
    prompt.ids.extend(answer);
    assistant.resize(prompt.ids.len(), true);
    Ok((prompt, assistant))
}

/// The template's rendering with the exact mask.
fn rendered(conversation: &Conversation, target: &ServedTarget, images: &[Image]) -> Result<(Prompt, Vec<bool>)> {
    let rendered = target.chat.conversation(&conversation.messages)?;
    let (ids, assistant) = assistant_mask(&target.tokenizer, &rendered)?;
    Ok((Prompt { ids, images: preprocess(target, images)? }, assistant))
}

fn preprocess(target: &ServedTarget, images: &[Image]) -> Result<Vec<Pixels>> {
    match &target.preprocessor {
        _ if images.is_empty() => Ok(vec![]),
        Some(preprocessor) => Ok(images.iter().map(|image| preprocessor.apply(image)).collect()),
        None => {
            let mend = "train on a LLaVA target, or leave the images out";
            Err(Error::file(
                &target.dir,
                "a target with a vision tower",
                "a text-only one, but images in the data",
                mend,
            ))
        }
    }
}

/// Ids and mask with one entry per row of the language model.
fn expand(target: &dyn Target, prompt: &Prompt, assistant: &[bool]) -> Result<(Vec<u32>, Vec<bool>)> {
    if prompt.images.is_empty() {
        return Ok((prompt.ids.clone(), assistant.to_vec()));
    }
    let rows = target.rows(prompt)?;
    let mut source = assistant.iter();
    let already = rows.ids.len() == assistant.len();
    let mask = (0..rows.ids.len())
        .map(|row| match rows.image_rows.iter().find(|range| range.contains(&row)) {
            // An image token stands for a whole block and belongs to nobody's answer.
            Some(range) if already || row == range.start => source.next().map(|_| false),
            Some(_) => Some(false),
            None => source.next().copied(),
        })
        .map(|flag| flag.unwrap_or(false))
        .collect();
    Ok((rows.ids, mask))
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
