//! Grouped-query attention with RoPE, a cache and explicit masks; shared by targets and drafts.

use burn::prelude::*;
use burn::tensor::DType;
use sightdraft_core::{Checkpoint, Result};
use sightdraft_kernels::{Projected, masked_softmax, matmul, turn};

use crate::{KvCache, LlamaConfig, Projection};

/// Query rows scored at once when autodiff is off, so that a long prompt's scores never stand in memory all together.
const CHUNK: usize = 512;

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
    /// Reads `{prefix}.{q,k,v,o}_proj`; `input` is the width of what is attended from (H, or 2H in EAGLE-3). Biases are
    /// taken where the checkpoint has them.
    ///
    /// # Errors
    /// A missing tensor or another shape.
    pub fn load(
        checkpoint: &Checkpoint,
        prefix: &str,
        input: usize,
        config: &LlamaConfig,
        device: &Device,
    ) -> Result<Self> {
        let read = |name: &str, input: usize, output: usize| {
            let name = format!("{prefix}.{name}");
            let bias = checkpoint.has(&format!("{name}.bias"));
            Projection::load(checkpoint, &name, input, output, bias, device)
        };
        let (queries, keys) = widths(config);
        Ok(Self {
            q_proj: read("q_proj", input, queries)?,
            k_proj: read("k_proj", input, keys)?,
            v_proj: read("v_proj", input, keys)?,
            o_proj: read("o_proj", queries, config.hidden_size)?,
            heads: config.num_attention_heads,
            kv_heads: config.num_key_value_heads,
            head_dim: config.head_dim,
        })
    }

    /// A fresh layer without biases, normal with standard deviation `std`; `input` as in [`Attention::load`].
    pub fn init(input: usize, config: &LlamaConfig, std: f64, device: &Device) -> Self {
        let fresh = |input, output| Projection::init(input, output, false, std, device);
        let (queries, keys) = widths(config);
        Self {
            q_proj: fresh(input, queries),
            k_proj: fresh(input, keys),
            v_proj: fresh(input, keys),
            o_proj: fresh(queries, config.hidden_size),
            heads: config.num_attention_heads,
            kv_heads: config.num_key_value_heads,
            head_dim: config.head_dim,
        }
    }

    /// The form for inference, see [`Projection::for_inference`].
    pub fn for_inference(self) -> Self {
        Self {
            q_proj: self.q_proj.for_inference(),
            k_proj: self.k_proj.for_inference(),
            v_proj: self.v_proj.for_inference(),
            o_proj: self.o_proj.for_inference(),
            ..self
        }
    }

    /// Post-RoPE queries of `x` `[B, n, input]`: `[B, heads, n, d]`.
    pub fn queries(&self, x: Tensor<3>, angles: &(Tensor<4>, Tensor<4>)) -> Tensor<4> {
        turn(self.split(self.q_proj.forward(x), self.heads), angles)
    }

    /// Post-RoPE keys and values of `x` `[B, n, input]`, each `[B, kv_heads, n, d]`.
    pub fn keys_and_values(&self, x: Tensor<3>, angles: &(Tensor<4>, Tensor<4>)) -> (Tensor<4>, Tensor<4>) {
        let [k, v] = Projection::forward_all([&self.k_proj, &self.v_proj], x);
        (turn(self.split(k, self.kv_heads), angles), self.split(v, self.kv_heads))
    }

    /// `[B, n, heads * d]` as `[B, heads, n, d]`.
    fn split(&self, rows: Tensor<3>, heads: usize) -> Tensor<4> {
        let [batch, n, _] = rows.dims();
        rows.reshape([batch, n, heads, self.head_dim]).swap_dims(1, 2)
    }

    /// softmax(q k^T / sqrt(d)) v with true = blocked, then the output projection: `[B, n, H]`. Keys and values are not
    /// repeated: the query heads of a group become rows. A fully blocked row gives zeros, never NaN. Queries are handled in
    /// chunks, so memory grows with n * chunk, when autodiff is off.
    ///
    /// # Shapes
    /// q `[B, heads, n, d]`, k and v `[B, kv_heads, t, d]`, blocked `[B or 1, 1, n, t]`.
    pub fn attend(&self, q: Tensor<4>, k: Tensor<4>, v: Tensor<4>, blocked: Option<Tensor<4, Bool>>) -> Tensor<3> {
        let [batch, heads, n, width] = q.dims();
        let q = q * (self.head_dim as f64).powf(-0.5);
        let mixed = if n <= CHUNK || q.device().is_autodiff() {
            mix(q, k, v, blocked)
        } else {
            let chunks = (0..n).step_by(CHUNK).map(|start| {
                let rows = CHUNK.min(n - start);
                let blocked = blocked.clone().map(|mask| mask.narrow(2, start, rows));
                mix(q.clone().narrow(2, start, rows), k.clone(), v.clone(), blocked)
            });
            Tensor::cat(chunks.collect(), 2)
        };
        self.o_proj.forward(mixed.swap_dims(1, 2).reshape([batch, n, heads * width]))
    }

    /// project, append to the cache's `layer`, attend. Packed layers do all between their products in one go, and a row's bits
    /// then depend on what it sees alone.
    pub fn forward(
        &self,
        x: Tensor<3>,
        angles: &(Tensor<4>, Tensor<4>),
        blocked: Option<Tensor<4, Bool>>,
        cache: &mut KvCache,
        layer: usize,
    ) -> Tensor<3> {
        if self.q_proj.is_packed() {
            let [q, k, v] = Projection::forward_all([&self.q_proj, &self.k_proj, &self.v_proj], x);
            let mixed = cache.attend(layer, self.kv_heads, Projected { q, k, v }, angles, blocked);
            return self.o_proj.forward(mixed);
        }
        let q = self.queries(x.clone(), angles);
        let (k, v) = self.keys_and_values(x, angles);
        let (keys, values) = cache.append(layer, k, v);
        self.attend(q, keys, values, blocked)
    }
}

/// Widths of all query heads and of all key heads.
fn widths(config: &LlamaConfig) -> (usize, usize) {
    (config.num_attention_heads * config.head_dim, config.num_key_value_heads * config.head_dim)
}

/// Scores, softmax and the weighted sum of values of some query rows: `[B, heads, rows, d]`.
fn mix(q: Tensor<4>, keys: Tensor<4>, values: Tensor<4>, blocked: Option<Tensor<4, Bool>>) -> Tensor<4> {
    let [batch, heads, rows, width] = q.dims();
    let kv_heads = keys.dims()[1];
    let group = heads / kv_heads;
    let q = q.reshape([batch, kv_heads, group * rows, width]);
    let dtype = q.dtype();
    let scores = matmul(q, keys, true).cast(DType::F32);
    matmul(masked_softmax(scores, blocked).cast(dtype), values, false).reshape([batch, heads, rows, width])
}
