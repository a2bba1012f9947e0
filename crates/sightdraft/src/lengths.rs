//! How many rows conversations take, from tokenizer and config alone.

use std::path::Path;

use sightdraft_core::{ChatTemplate, Message, Result, Role, Tokenizer};
use sightdraft_datasets::{Conversation, training};
use sightdraft_target::llava::LlavaConfig;
use sightdraft_train::Size;

/// The size of each conversation of `data` in the language model of the target in `dir`, whose weights are not read.
pub fn sizes(data: &Path, dir: &Path) -> Result<Vec<Size>> {
    let conversations = training::read(data)?;
    let tokenizer = Tokenizer::open(dir)?;
    let chat = ChatTemplate::open(dir)?;
    // One image token is in the text already; a text-only config is asked only if there are images.
    let more_per_image = match conversations.iter().any(|c| !c.images.is_empty()) {
        true => LlavaConfig::open(dir)?.vision.rows_per_image() - 1,
        false => 0,
    };
    let size = |c: &Conversation| -> Result<Size> {
        let text = match &c.answer_ids {
            Some(_) => chat.prompt(asking(&c.messages))?,
            None => chat.conversation(&c.messages)?.text,
        };
        let answer = c.answer_ids.as_ref().map_or(0, Vec::len);
        let rows = tokenizer.encode_prompt(&text)?.len() + answer + c.images.len() * more_per_image;
        Ok(Size { rows, image: !c.images.is_empty() })
    };
    conversations.iter().map(size).collect()
}

/// The turns before the answer that `answer_ids` stands for.
fn asking(messages: &[Message]) -> &[Message] {
    match messages.last() {
        Some(last) if last.role == Role::Assistant => &messages[..messages.len() - 1],
        _ => messages,
    }
}
