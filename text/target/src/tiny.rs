//! The geometry that the unit tests share.

use crate::{LlamaConfig, RopeConfig};

/// One layer of eight numbers a row, sixteen words, a context of twelve.
pub(crate) fn config() -> LlamaConfig {
    LlamaConfig {
        hidden_size: 8,
        intermediate_size: 8,
        num_hidden_layers: 1,
        num_attention_heads: 2,
        num_key_value_heads: 1,
        head_dim: 4,
        vocab_size: 16,
        max_position_embeddings: 12,
        rms_norm_eps: 1e-5,
        rope: RopeConfig { theta: 1e4, scaling: None },
        tie_word_embeddings: false,
    }
}
