//! On-policy data: the target's own answers to the prompts of a training file.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sightdraft_core::{Error, Result, Role, progress};
use sightdraft_decode::{Sampling, generate_batch};
use sightdraft_target::ServedTarget;
use sightdraft_vision::Image;

use crate::example::{Conversation, read_conversations};

/// How answers are made.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RegenerateConfig {
    /// Longest answer in tokens; default 512.
    pub max_new_tokens: usize,
    /// Prompts answered at once; default 8.
    pub batch: usize,
    /// How the target samples; default greedy, which is what T=0 serving will ask of the draft.
    pub sampling: Sampling,
}

impl Default for RegenerateConfig {
    fn default() -> Self {
        Self { max_new_tokens: 512, batch: 8, sampling: Sampling::GREEDY }
    }
}

/// Answers every conversation of `input` that `output` does not answer yet, and appends `answer_ids` lines to `output` as
/// answers end. The last assistant turn, if there is one, is dropped first. Returns how many answers were added. Images are
/// found relative to `input`; they are written with absolute paths.
///
/// # Errors
/// A damaged line, an image that cannot be read, a prompt that does not fit the context, a full disk.
pub fn regenerate(target: &ServedTarget, input: &Path, output: &Path, config: &RegenerateConfig) -> Result<usize> {
    let done = answered(output)?;
    let mut waiting = read_conversations(input)?;
    waiting.retain(|conversation| !done.contains(&conversation.id));
    // Prompts of like length share a batch, so that padding stays small.
    waiting.sort_by_key(|conversation| conversation.messages.iter().map(|m| m.content.len()).sum::<usize>());
    let mut file =
        fs::OpenOptions::new().create(true).append(true).open(output).map_err(|e| Error::io("open", output, e))?;
    let bar = progress::bar(waiting.len() as u64, "answering");
    let root = input.parent().unwrap_or(Path::new("."));
    for batch in waiting.chunks(config.batch.max(1)) {
        let batch: Vec<Conversation> = batch.iter().map(|c| question(c, root)).collect();
        let prompts = batch.iter().map(|c| rows(target, c)).collect::<Result<Vec<_>>>()?;
        let mut write = |index: usize, ids: Vec<u32>, _stop| {
            let line = Conversation { answer_ids: Some(ids), ..batch[index].clone() };
            let mut line = serde_json::to_vec(&line).expect("plain structs serialise");
            line.push(b'\n');
            bar.inc(1);
            file.write_all(&line).map_err(|e| Error::io("write", output, e))
        };
        let (limit, sampling) = (config.max_new_tokens, config.sampling);
        generate_batch(target.model.as_ref(), &prompts, limit, &target.eos, sampling, &mut write)?;
    }
    bar.finish();
    Ok(waiting.len())
}

/// Ids that `output` has whole lines for. A last line that a kill cut short is removed, so that appending is safe.
fn answered(output: &Path) -> Result<BTreeSet<String>> {
    let bytes = match fs::read(output) {
        Ok(bytes) => bytes,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(BTreeSet::new()),
        Err(e) => return Err(Error::io("read", output, e)),
    };
    let whole = bytes.iter().rposition(|b| *b == b'\n').map_or(0, |end| end + 1);
    if whole < bytes.len() {
        sightdraft_core::files::write_atomically(output, &bytes[..whole])?;
    }
    Ok(read_conversations(output)?.into_iter().map(|conversation| conversation.id).collect())
}

/// The conversation up to the answer, images by absolute path.
fn question(conversation: &Conversation, root: &Path) -> Conversation {
    let mut question = Conversation { answer_ids: None, ..conversation.clone() };
    while question.messages.last().is_some_and(|m| m.role == Role::Assistant) {
        question.messages.pop();
    }
    let absolute = |path: &PathBuf| std::path::absolute(root.join(path)).unwrap_or_else(|_| root.join(path));
    question.images = question.images.iter().map(absolute).collect();
    question
}

fn rows(target: &ServedTarget, conversation: &Conversation) -> Result<sightdraft_target::PromptRows> {
    let images = conversation.images.iter().map(|path| Image::open(path)).collect::<Result<Vec<_>>>()?;
    target.model.rows(&target.prompt(&conversation.messages, &images)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use sightdraft_core::Message;

    #[test]
    fn a_line_cut_short_is_answered_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("answers.jsonl");
        assert!(answered(&path).unwrap().is_empty());
        let line = r#"{"id":"a","messages":[],"answer_ids":[1]}"#;
        fs::write(&path, format!("{line}\n{{\"id\":\"b\",\"mess")).unwrap();
        assert_eq!(answered(&path).unwrap(), BTreeSet::from(["a".to_owned()]));
        assert_eq!(fs::read_to_string(&path).unwrap(), format!("{line}\n"));
    }

    #[test]
    fn the_question_ends_before_the_answer_and_finds_its_images() {
        let say = |role, content: &str| Message { role, content: content.into() };
        let conversation = Conversation {
            id: "a".into(),
            messages: vec![say(Role::User, "<image> what?"), say(Role::Assistant, "a chart")],
            images: vec!["x.png".into()],
            answer_ids: Some(vec![3]),
        };
        let question = question(&conversation, Path::new("/data"));
        assert_eq!(question.messages, conversation.messages[..1]);
        assert_eq!((question.images, question.answer_ids), (vec![PathBuf::from("/data/x.png")], None));
    }
}
