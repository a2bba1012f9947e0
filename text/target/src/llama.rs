//! The LLaMA decoder.

use burn::nn::{Embedding, RmsNorm};
use burn::prelude::*;

use crate::layer::DecoderLayer;
use crate::{KvCache, LlamaConfig, Mask, Projection, Rope};

/// A LLaMA-family language model.
#[derive(Module, Debug)]
pub struct Llama {
    /// Token embeddings `[V, H]`.
    pub embed_tokens: Embedding,
    /// Decoder layers.
    pub layers: Vec<DecoderLayer>,
    /// Final norm.
    pub norm: RmsNorm,
    /// The head; None when tied to the embedding.
    pub lm_head: Option<Projection>,
    /// Geometry.
    #[module(skip)]
    pub config: LlamaConfig,
    /// Rotary frequencies.
    #[module(skip)]
    pub rope: Rope,
}

/// What one forward pass leaves.
#[derive(Debug, Clone)]
pub struct Pass {
    /// HF `hidden_states[-1]`: after the final norm, `[B, n, H]`.
    pub hidden: Tensor<3>,
    /// The tapped hidden states, concatenated in the order asked for: `[B, n, taps * H]`. None if no taps were asked for.
    pub taps: Option<Tensor<3>>,
}

impl Llama {
    /// A random model (training from scratch, tests).
    pub fn init(_config: &LlamaConfig, _device: &Device) -> Self {
        todo!()
    }

    /// Embeddings of `ids` `[B, n]` -> `[B, n, H]`.
    pub fn embed(&self, _ids: Tensor<2, Int>) -> Tensor<3> {
        todo!()
    }

    /// Runs `embeds` `[B, n, H]` behind the cache. `positions` is `[B or 1][n]`; `taps` are indices into HF
    /// `hidden_states`: 0 = embeddings, k = output of layer k-1 (= input of layer k), N = after the final norm.
    pub fn forward(
        &self,
        _embeds: Tensor<3>,
        _positions: &[Vec<usize>],
        _mask: &Mask,
        _cache: &mut KvCache,
        _taps: &[usize],
    ) -> Pass {
        todo!()
    }

    /// Vocabulary logits `[B, n, V]` of final hidden states; pass only the rows that are needed.
    pub fn logits(&self, _hidden: Tensor<3>) -> Tensor<3> {
        todo!()
    }

    /// An empty cache of this model's shape.
    pub fn new_cache(&self) -> KvCache {
        KvCache::new(self.config.num_hidden_layers)
    }
}
