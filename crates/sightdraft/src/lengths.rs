//! How many rows conversations take, from tokenizer and config alone.

use std::path::Path;

use sightdraft_core::chat::assistant_mask;
use sightdraft_core::{ChatTemplate, Result, Tokenizer};
use sightdraft_datasets::{Conversation, training};
use sightdraft_target::llava::LlavaConfig;
use sightdraft_train::Size;
use sightdraft_train::example::question;

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
        let (text, answer) = match &c.answer_ids {
            Some(answer) => (tokenizer.encode_prompt(&chat.prompt(question(&c.messages))?)?.len(), answer.len()),
            None => {
                let (ids, assistant) = assistant_mask(&tokenizer, &chat.conversation(&c.messages)?)?;
                let answer = assistant.iter().filter(|a| **a).count();
                (ids.len() - answer, answer)
            }
        };
        let rows = text + answer + c.images.len() * more_per_image;
        Ok(Size { rows, answer, image: !c.images.is_empty() })
    };
    conversations.iter().map(size).collect()
}
