//! Grouped-query attention with RoPE, a cache and explicit masks; shared by targets and drafts.

use burn::prelude::*;
use sightdraft_core::{Checkpoint, Result};

use crate::{KvCache, Projection};

/// Multi-head attention of the LLaMA family. The input width may differ from H (EAGLE-3 feeds 2H).
#[derive(Module, Debug)]
pub struct Attention {
    /// Queries.
    pub q_proj: Projection,
    /// Keys.
    pub k_proj: Projection,
    /// Values.
    pub v_proj: Projection,
    /// Output.
    pub o_proj: Projection,
    /// Query heads.
    pub heads: usize,
    /// Key/value heads.
    pub kv_heads: usize,
    /// Width of one head.
    pub head_dim: usize,
}

impl Attention {
    /// Reads `{prefix}.{q,k,v,o}_proj`; `input` is the width of what is attended from (H, or 2H in EAGLE-3).
    pub fn load(
        _checkpoint: &Checkpoint,
        _prefix: &str,
        _input: usize,
        _config: &crate::LlamaConfig,
        _device: &Device,
    ) -> Result<Self> {
        todo!()
    }

    /// Post-RoPE queries `[B, heads, n, d]`, keys and values `[B, kv_heads, n, d]` of `x` `[B, n, input]`.
    pub fn project(&self, _x: Tensor<3>, _angles: &(Tensor<4>, Tensor<4>)) -> (Tensor<4>, Tensor<4>, Tensor<4>) {
        todo!()
    }

    /// softmax(q k^T / sqrt(d)) v with true = blocked, then the output projection: `[B, n, H]`. Keys and values are not
    /// repeated: the query heads of a group become rows. A fully blocked row gives zeros, never NaN. Queries are handled in
    /// chunks, so memory grows with n * chunk, when autodiff is off.
    pub fn attend(&self, _q: Tensor<4>, _k: Tensor<4>, _v: Tensor<4>, _blocked: Option<Tensor<4, Bool>>) -> Tensor<3> {
        todo!()
    }

    /// project, append to the cache's `layer`, attend.
    pub fn forward(
        &self,
        _x: Tensor<3>,
        _angles: &(Tensor<4>, Tensor<4>),
        _blocked: Option<Tensor<4, Bool>>,
        _cache: &mut KvCache,
        _layer: usize,
    ) -> Tensor<3> {
        todo!()
    }
}
