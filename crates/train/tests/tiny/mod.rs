//! A tiny random target, and a draft's path along given tokens, row by row as decoding does it.

use burn::prelude::*;
use sightdraft_draft::{Draft, DraftModel, FeatureRows};
use sightdraft_target::{Llama, LlamaConfig, Mask, RopeConfig};
use sightdraft_train::features::Sequence;

pub const WIDTH: usize = 16;
pub const VOCABULARY: usize = 40;

pub fn target() -> Llama {
    let config = LlamaConfig {
        hidden_size: WIDTH,
        intermediate_size: 24,
        num_hidden_layers: 3,
        num_attention_heads: 4,
        num_key_value_heads: 2,
        head_dim: 4,
        vocab_size: VOCABULARY,
        max_position_embeddings: 64,
        rms_norm_eps: 1e-5,
        rope: RopeConfig { theta: 10_000.0, scaling: None },
        tie_word_embeddings: false,
    };
    let device = Device::flex();
    device.seed(3);
    Llama::init(&config, &device)
}

/// The logits `[1, D]` before each of `tokens`, which the path from anchor `t` follows.
pub fn path_logits(
    target: &Llama,
    draft: &DraftModel,
    sequence: &Sequence,
    t: usize,
    tokens: &[u32],
) -> Vec<Tensor<2>> {
    let first = FeatureRows {
        features: sequence.features.clone().narrow(0, 0, t + 1).unsqueeze(),
        embeds: sequence.embeds.clone().narrow(0, 1, t + 1).unsqueeze(),
        positions: &[(0..t + 1).collect()],
        mask: &Mask::Causal,
        image: &[sequence.image[1..t + 2].to_vec()],
    };
    let mut state = draft.start();
    let pass = draft.extend(&mut state, first);
    let (mut hidden, mut predict) = (pass.hidden.narrow(1, t, 1), pass.predict.narrow(1, t, 1));
    let mut said = vec![];
    for (level, &token) in tokens.iter().enumerate() {
        said.push(draft.logits(predict).squeeze_dim::<2>(0));
        let embeds = target.embed_ids(&[token]);
        let pass = draft.step(&mut state, hidden, embeds, &[vec![t + 1 + level]], &Mask::Causal);
        (hidden, predict) = (pass.hidden, pass.predict);
    }
    said
}
