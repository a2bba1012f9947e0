//! On-policy data: the target's own answers to the prompts of a training file.

use std::path::Path;

use serde::{Deserialize, Serialize};
use sightdraft_core::{Message, Result, Role, progress};
use sightdraft_datasets::Conversation;
use sightdraft_datasets::training::Writer;
use sightdraft_decode::{Sampling, generate_batch};
use sightdraft_target::{PromptRows, ServedTarget};

use crate::example::{open_images, question};

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

/// Answers every conversation that `output` does not hold yet, and appends it there with the answer (text and `answer_ids`) as that ends, so
/// that a kill loses the answers in the making only. An assistant turn at the end is dropped first. Returns how many answers
/// were added.
///
/// # Errors
/// A damaged output, an image that cannot be read, a prompt that does not fit the context, a full disk.
pub fn regenerate(
    target: &ServedTarget,
    conversations: &[Conversation],
    output: &Path,
    config: &RegenerateConfig,
) -> Result<usize> {
    let mut writer = Writer::open(output)?;
    let mut waiting: Vec<&Conversation> = conversations.iter().filter(|c| !writer.has(&c.id)).collect();
    // Prompts of like length share a batch, so that padding stays small.
    waiting.sort_by_key(|conversation| conversation.messages.iter().map(|m| m.content.len()).sum::<usize>());
    let bar = progress::bar(waiting.len() as u64, "answering");
    for batch in waiting.chunks(config.batch.max(1)) {
        let prompts = batch.iter().map(|c| rows(target, c)).collect::<Result<Vec<_>>>()?;
        let mut write = |index: usize, ids: Vec<u32>, _stop| {
            let asked: &Conversation = batch[index];
            let mut messages = question(&asked.messages).to_vec();
            messages.push(Message { role: Role::Assistant, content: target.tokenizer.decode(&ids)? });
            bar.inc(1);
            writer.push(&Conversation { messages, answer_ids: Some(ids), ..asked.clone() })
        };
        let (limit, sampling) = (config.max_new_tokens, config.sampling);
        generate_batch(target.model.as_ref(), &prompts, limit, &target.eos, sampling, &mut write)?;
    }
    bar.finish();
    Ok(waiting.len())
}

fn rows(target: &ServedTarget, conversation: &Conversation) -> Result<PromptRows> {
    let images = open_images(conversation)?;
    target.model.rows(&target.prompt(question(&conversation.messages), &images)?)
}
