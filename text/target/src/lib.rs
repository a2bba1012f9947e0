//! Target models: the LLaMA family and LLaVA, with a key/value cache, tree masks and taps. It knows no draft.

pub mod attention;
pub mod cache;
pub mod config;
pub mod head;
mod image_block;
pub mod layer;
pub mod linear;
pub mod llama;
pub mod llava;
pub mod load;
pub mod mask;
pub mod pass_rows;
pub mod rope;
pub mod save;
pub mod served;
pub mod target;
pub mod text;
#[cfg(test)]
mod tiny;

pub use cache::KvCache;
pub use config::{LlamaConfig, RopeConfig};
pub use head::Head;
pub use linear::{Projection, on_plain_cpu};
pub use llama::{Llama, Pass};
pub use llava::{Llava, LlavaConfig};
pub use mask::Mask;
pub use pass_rows::PassRows;
pub use rope::Rope;
pub use served::ServedTarget;
pub use target::{Prompt, PromptRows, Target};
