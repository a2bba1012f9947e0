//! On-policy data: the target's own answers to the prompts of a training file.

use std::path::Path;

use serde::{Deserialize, Serialize};
use sightdraft_core::{Error, Message, Result, Role, progress};
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

/// What was done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Regenerated {
    /// Answers added.
    pub answers: usize,
    /// Prompts left out, for they leave no room in the context.
    pub too_long: usize,
}

/// Answers every conversation that `output` does not hold yet, and appends it there with the answer (text and `answer_ids`) as
/// that ends, so that a kill loses the answers in the making only. An assistant turn at the end is dropped first.
///
/// # Errors
/// A damaged output, an image that cannot be read, a full disk.
pub fn regenerate(
    target: &ServedTarget,
    conversations: &[Conversation],
    output: &Path,
    config: &RegenerateConfig,
) -> Result<Regenerated> {
    let mut writer = Writer::open(output)?;
    let mut waiting: Vec<&Conversation> = conversations.iter().filter(|c| !writer.has(&c.id)).collect();
    // Prompts of like length share a batch, so that padding stays small.
    waiting.sort_by_key(|conversation| conversation.messages.iter().map(|m| m.content.len()).sum::<usize>());
    let bar = progress::bar(waiting.len() as u64, "answering");
    let mut done = Regenerated::default();
    for batch in waiting.chunks(config.batch.max(1)) {
        let (mut asked, mut prompts) = (vec![], vec![]);
        for conversation in batch {
            if let Some(prompt) = rows(target, conversation)? {
                asked.push(*conversation);
                prompts.push(prompt);
            }
        }
        done.too_long += batch.len() - asked.len();
        bar.inc((batch.len() - asked.len()) as u64);
        // Batches must not share their random numbers.
        let seed = config.sampling.seed.wrapping_add(writer.len() as u64);
        let mut write = |index: usize, ids: Vec<u32>, _stop| {
            let mut messages = question(&asked[index].messages).to_vec();
            messages.push(Message { role: Role::Assistant, content: target.tokenizer.decode(&ids)? });
            bar.inc(1);
            done.answers += 1;
            writer.push(&Conversation { messages, answer_ids: Some(ids), ..asked[index].clone() })
        };
        let (limit, sampling) = (config.max_new_tokens, Sampling { seed, ..config.sampling });
        generate_batch(target.model.as_ref(), &prompts, limit, &target.eos, sampling, &mut write)?;
    }
    bar.finish();
    Ok(done)
}

/// The rows of the question; None if they leave no room for an answer.
fn rows(target: &ServedTarget, conversation: &Conversation) -> Result<Option<PromptRows>> {
    let asked = question(&conversation.messages);
    if asked.is_empty() {
        let (what, found) = (format!("conversation {}", conversation.id), "none");
        return Err(Error::invalid(what, "a turn to answer", found, "remove it from the prompts"));
    }
    let count = conversation.images.len();
    let (ids, _) = target.model.expand(&target.prompt_ids(asked, count)?, count)?;
    if ids.len() >= target.model.llama().config.max_position_embeddings {
        return Ok(None);
    }
    target.model.rows(&target.prompt(asked, &open_images(conversation)?)?).map(Some)
}
