//! From a conversation to ids with the exact loss mask.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sightdraft_core::chat::assistant_mask;
use sightdraft_core::{Error, Message, Result};
use sightdraft_target::{Prompt, ServedTarget, Target};
use sightdraft_vision::{Image, Pixels};

/// One line of a training file (JSON lines).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Conversation {
    /// Its name; unique in the file.
    pub id: String,
    /// The turns. With `answer_ids` they end before the answer.
    pub messages: Vec<Message>,
    /// Image files, one per `<image>`, relative to the training file.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub images: Vec<PathBuf>,
    /// The answer as the target's own ids, exactly as it gave them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer_ids: Option<Vec<u32>>,
}

/// Reads a training file.
///
/// # Errors
/// The file and line at fault; an id that comes twice.
pub fn read_conversations(path: &Path) -> Result<Vec<Conversation>> {
    let text = std::fs::read_to_string(path).map_err(|e| Error::io("read", path, e))?;
    let mut seen = BTreeMap::new();
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    lines
        .map(|(i, line)| {
            let fail = |found| Error::file(path, "one conversation per line", found, "mend that line");
            let conversation: Conversation =
                serde_json::from_str(line).map_err(|e| fail(format!("line {}: {e}", i + 1)))?;
            match seen.insert(conversation.id.clone(), i + 1) {
                Some(first) => Err(fail(format!("id {:?} on lines {first} and {}", conversation.id, i + 1))),
                None => Ok(conversation),
            }
        })
        .collect()
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
    /// Preprocessed images.
    pub images: Vec<Pixels>,
}

impl Example {
    /// Renders, encodes and masks a conversation; image tokens are expanded to one per row. `root` is where relative image
    /// paths start.
    ///
    /// # Errors
    /// A template in which the assistant's words cannot be found, no assistant token at all, images that do not fit.
    pub fn encode(conversation: &Conversation, target: &ServedTarget, root: &Path) -> Result<Self> {
        let images = conversation.images.iter().map(|p| Image::open(&root.join(p))).collect::<Result<Vec<_>>>()?;
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

/// The prompt's ids followed by the target's own.
fn answered(
    conversation: &Conversation,
    answer: &[u32],
    target: &ServedTarget,
    images: &[Image],
) -> Result<(Prompt, Vec<bool>)> {
    let mut prompt = target.prompt(&conversation.messages, images)?;
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
    fn a_training_file_names_the_line_at_fault() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("data.jsonl");
        let line = r#"{"id":"a","messages":[{"role":"user","content":"hi"}],"answer_ids":[1,2]}"#;
        std::fs::write(&path, format!("{line}\n\n")).unwrap();
        assert_eq!(read_conversations(&path).unwrap()[0].answer_ids, Some(vec![1, 2]));
        for (text, words) in [(format!("{line}\n{line}\n"), "lines 1 and 2"), (format!("{line}\n{{"), "line 2")] {
            std::fs::write(&path, text).unwrap();
            let message = read_conversations(&path).unwrap_err().to_string();
            assert!(message.contains(words) && message.contains("data.jsonl"), "{message}");
        }
    }
}
