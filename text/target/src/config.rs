//! The text model's geometry: the Hugging Face JSON, and the total struct it resolves to.

use std::path::Path;

use serde::{Deserialize, Serialize};
use sightdraft_core::Result;

/// A LLaMA-family decoder, fully resolved.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LlamaConfig {
    /// Width of the residual stream, H.
    pub hidden_size: usize,
    /// Width of the MLP, I.
    pub intermediate_size: usize,
    /// Decoder layers, N.
    pub num_hidden_layers: usize,
    /// Query heads.
    pub num_attention_heads: usize,
    /// Key/value heads.
    pub num_key_value_heads: usize,
    /// Width of one head.
    pub head_dim: usize,
    /// Vocabulary, V.
    pub vocab_size: usize,
    /// Longest context.
    pub max_position_embeddings: usize,
    /// Epsilon of every RMS norm.
    pub rms_norm_eps: f64,
    /// Rotary embedding.
    pub rope: RopeConfig,
    /// Whether the head shares the embedding's weights.
    pub tie_word_embeddings: bool,
}

/// Rotary position embedding.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RopeConfig {
    /// Base of the inverse frequencies.
    pub theta: f64,
    /// Frequency scaling, if any.
    pub scaling: Option<RopeScaling>,
}

/// Frequency scaling.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "rope_type", rename_all = "lowercase")]
pub enum RopeScaling {
    /// LLaMA-3.1's.
    Llama3 {
        /// Division of the low frequencies.
        factor: f64,
        /// Below this the frequency is low.
        low_freq_factor: f64,
        /// Above this it is high.
        high_freq_factor: f64,
        /// Context of the original training.
        original_max_position_embeddings: usize,
    },
    /// Positions divided by a factor.
    Linear {
        /// The divisor.
        factor: f64,
    },
}

impl LlamaConfig {
    /// Reads `config.json` of `dir` (a LLaMA, or the text_config of a LLaVA).
    pub fn open(_dir: &Path) -> Result<Self> {
        todo!()
    }
}
