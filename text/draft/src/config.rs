//! `config.json` of a draft directory.

use serde::{Deserialize, Serialize};
use sightdraft_target::LlamaConfig;

/// A draft, fully resolved.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DraftConfig {
    /// Geometry of the draft's one decoder layer; `vocab_size` is the target's V.
    pub layer: LlamaConfig,
    /// Draft vocabulary D.
    pub draft_vocab_size: usize,
    /// Indices into the target's HF hidden_states that are the features, low to high.
    pub taps: Vec<usize>,
}
