//! How many rows conversations take, from tokenizer and config alone.

use std::path::Path;

use sightdraft_core::{ChatTemplate, Result, Tokenizer};
use sightdraft_datasets::{Conversation, training};
use sightdraft_target::llava::LlavaConfig;
use sightdraft_train::Size;
use sightdraft_train::example::rendered;

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
        let (_, assistant) = rendered(c, &tokenizer, &chat)?;
        let (text, images) = (Size::of(&assistant, !c.images.is_empty()), c.images.len() * more_per_image);
        // Images are asked about before anything is answered.
        Ok(Size { rows: text.rows + images, prompt: text.prompt + images, ..text })
    };
    conversations.iter().map(size).collect()
}
