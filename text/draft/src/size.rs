//! How many numbers a draft trains, from its geometry alone.

use sightdraft_target::LlamaConfig;

use crate::{DraftConfig, Method};

impl DraftConfig {
    /// Numbers in all weights that are the draft's own.
    pub fn parameters(&self) -> u64 {
        parameters(self.method, &self.layer, self.draft_vocab_size, self.taps.len(), self.num_q)
    }
}

/// Numbers in the weights of a draft of `method` whose decoder layer is shaped like `layer`. What it shares with its target is not
/// counted; `draft_vocab` and `taps` count where the draft has a head and a fusion of several taps, `num_q` where it
/// has an image adaptor.
pub fn parameters(method: Method, layer: &LlamaConfig, draft_vocab: usize, taps: usize, num_q: usize) -> u64 {
    let (h, i) = (layer.hidden_size, layer.intermediate_size);
    let mlp = 3 * h * i;
    let fc = 2 * h * h + h;
    let numbers = match method {
        Method::Eagle3 => taps * h * h + attention(layer, 2 * h) + mlp + 4 * h + draft_vocab * h,
        Method::Eagle1 | Method::Hass | Method::Msd => fc + attention(layer, h) + mlp + h,
        // The fusion has an MLP too, and the layer's ends in 2H.
        Method::Griffin => fc + mlp + 2 * h + attention(layer, h) + mlp + h * i + h,
        Method::Vispec => {
            let adaptor = num_q * h + 3 * h * h;
            adaptor + fc + fc + attention(layer, h) + mlp + h
        }
    };
    numbers as u64
}

/// Attention from `input` numbers per row.
fn attention(layer: &LlamaConfig, input: usize) -> usize {
    let queries = layer.num_attention_heads * layer.head_dim;
    let keys = layer.num_key_value_heads * layer.head_dim;
    input * (queries + 2 * keys) + queries * layer.hidden_size
}
