//! What every other crate stands on: errors, device choice, Hugging Face files, weights, tokenizer, chat templates and
//! progress. It knows no model.

pub mod chat;
pub mod checkpoint;
pub mod device;
pub mod digits;
pub mod error;
pub mod files;
pub mod generation_config;
pub mod hub;
pub mod progress;
pub mod tokenizer;

pub use chat::{ChatTemplate, Message, Role};
pub use checkpoint::{Checkpoint, save_safetensors};
pub use error::{Error, Result};
pub use tokenizer::{TokenStream, Tokenizer};
