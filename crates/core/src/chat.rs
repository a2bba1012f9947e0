//! Chat templates (minijinja) and the character spans of the assistant's words.

mod mask;
mod source;
mod spans;
mod template;

use std::ops::Range;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::Result;
pub use mask::assistant_mask;
use template::Jinja;

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

impl Message {
    /// A system message.
    pub fn system(content: impl Into<String>) -> Self {
        Self { role: Role::System, content: content.into() }
    }

    /// A user's turn.
    pub fn user(content: impl Into<String>) -> Self {
        Self { role: Role::User, content: content.into() }
    }

    /// The model's turn.
    pub fn assistant(content: impl Into<String>) -> Self {
        Self { role: Role::Assistant, content: content.into() }
    }
}

/// A chat template: the directory's own, or one of the built-in prompts (`vicuna_v1.1`, `llava_v1`) where a model has none.
pub struct ChatTemplate {
    jinja: Jinja,
}

/// A rendered conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rendered {
    /// The text; encode it with [`crate::Tokenizer::encode_prompt`], or ids and mask at once with [`assistant_mask`].
    pub text: String,
    /// Byte spans of each assistant turn, its end-of-turn token included: what training predicts.
    pub assistant: Vec<Range<usize>>,
}

impl ChatTemplate {
    /// From chat_template.jinja, tokenizer_config.json or chat_template.json of `dir`. A directory without one whose
    /// config is LLaVA or Vicuna gets the built-in prompt.
    ///
    /// # Errors
    /// No template and no built-in one that fits (the message says how to name one), a file that does not parse, or a
    /// template that does not show the user's words.
    pub fn open(dir: &Path) -> Result<Self> {
        Ok(Self { jinja: Jinja::new(source::find(dir)?)? })
    }

    /// A built-in prompt by name: `vicuna_v1.1` (FastChat) or `llava_v1` (LLaVA-1.5).
    ///
    /// # Errors
    /// An unknown name.
    pub fn builtin(name: &str) -> Result<Self> {
        Ok(Self { jinja: Jinja::new(source::builtin(name)?)? })
    }

    /// A template given as text, with the special tokens that it may use.
    ///
    /// # Errors
    /// As for [`Self::open`].
    pub fn from_text(template: &str, bos: &str, eos: &str) -> Result<Self> {
        Ok(Self { jinja: Jinja::new(source::Source::text(template, bos, eos))? })
    }

    /// The prompt text that asks for the next assistant turn.
    ///
    /// # Errors
    /// The template's own refusal, in its words.
    pub fn prompt(&self, messages: &[Message]) -> Result<String> {
        self.jinja.render(messages, true)
    }

    /// A whole conversation with the spans of the assistant turns.
    ///
    /// A template that strips the thinking (`</think>`) from past turns, as DeepSeek-R1's does, renders a last turn in
    /// full, behind the prompt that asks for it, as the model itself wrote it; only that turn is then in the spans.
    ///
    /// # Errors
    /// No assistant turn, or a template in which the assistant's words cannot be found (never a mask of all ones).
    pub fn conversation(&self, messages: &[Message]) -> Result<Rendered> {
        spans::conversation(&self.jinja, messages)
    }
}

#[cfg(test)]
mod fixture_tests;
