//! What every other crate stands on: errors, device choice, Hugging Face files, weights, tokenizer, chat templates and
//! progress. It knows no model.

pub mod chat;
pub mod checkpoint;
pub mod device;
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

#[cfg(test)]
pub(crate) mod test_support {
    use std::path::PathBuf;

    /// A folder of the golden fixtures: under `$SIGHTDRAFT_FIXTURES`, else the repository's own.
    pub(crate) fn fixtures(name: &str) -> PathBuf {
        let own = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures");
        std::env::var_os("SIGHTDRAFT_FIXTURES").map_or_else(|| own.into(), PathBuf::from).join(name)
    }
}
