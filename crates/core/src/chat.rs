//! Chat templates (minijinja) and the character spans of the assistant's words.

use std::ops::Range;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::Result;

/// Who speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Instructions.
    System,
    /// The person.
    User,
    /// The model.
    Assistant,
}

/// One turn. An image stands in `content` as `<image>`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    /// Who speaks.
    pub role: Role,
    /// What is said.
    pub content: String,
}

/// A chat template: the directory's own, or one of the built-in prompts (`vicuna_v1.1`, `llava_v1`) where a model has none.
pub struct ChatTemplate {}

/// A rendered conversation.
pub struct Rendered {
    /// The text; encode it without adding special tokens.
    pub text: String,
    /// Byte spans of each assistant turn, its end-of-turn token included: what training predicts.
    pub assistant: Vec<Range<usize>>,
}

impl ChatTemplate {
    /// From tokenizer_config.json (or chat_template.jinja / chat_template.json) of `dir`. A directory without one whose
    /// config is LLaVA or Vicuna gets the built-in prompt; else an error that says how to name one.
    pub fn open(_dir: &Path) -> Result<Self> {
        todo!()
    }

    /// A built-in prompt by name.
    pub fn builtin(_name: &str) -> Result<Self> {
        todo!()
    }

    /// The prompt text that asks for the next assistant turn.
    pub fn prompt(&self, _messages: &[Message]) -> Result<String> {
        todo!()
    }

    /// A whole conversation with the spans of the assistant turns. A template in which the assistant's words cannot be
    /// found is an error (never a mask of all ones).
    pub fn conversation(&self, _messages: &[Message]) -> Result<Rendered> {
        todo!()
    }
}
