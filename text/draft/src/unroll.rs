//! Attention of the training unroll (EAGLE-3's training-time test): at step j row t sees the step-0 keys that its mask allows
//! and the keys that steps 1..j left at row t, in one softmax.

use burn::prelude::*;
use burn::tensor::DType;
use burn::tensor::activation::softmax;
use sightdraft_target::attention::Attention;

/// Small enough that its exponential is 0 beside any score.
const BLOCKED: f32 = -1e30;

/// Keys and values of the steps so far.
pub(crate) struct Unrolled {
    /// `[B, kv_heads, d, n]` of step 0.
    keys: Tensor<4>,
    /// `[B, kv_heads, n, d]` of step 0.
    values: Tensor<4>,
    /// Added to the scores of step 0's keys, `[B or 1, 1, n, n]`.
    bias: Option<Tensor<4>>,
    /// Keys and values `[B, kv_heads, n, d]` of the later steps.
    later: Vec<(Tensor<4>, Tensor<4>)>,
}

impl Unrolled {
    /// From step 0's keys, values and mask (true = blocked).
    pub(crate) fn new(k: Tensor<4>, v: Tensor<4>, blocked: Option<Tensor<4, Bool>>) -> Self {
        let bias = blocked.map(|blocked| blocked.float().cast(DType::F32) * BLOCKED);
        Self { keys: k.swap_dims(2, 3), values: v, bias, later: Vec::new() }
    }

    /// One later step: its queries `[B, heads, n, d]` over everything so far and its own keys. `[B, n, H]`.
    ///
    /// Scores are `[B, heads, n, n + j]`: a later step costs one column, not n.
    pub(crate) fn attend(&mut self, attention: &Attention, q: Tensor<4>, k: Tensor<4>, v: Tensor<4>) -> Tensor<3> {
        let [batch, heads, n, width] = q.dims();
        self.later.push((k, v));
        let q = q * (width as f64).powf(-0.5);
        let dtype = q.dtype();
        let mut columns = vec![self.first_scores(q.clone())];
        columns.extend(self.later.iter().map(|(k, _)| row_scores(q.clone(), k.clone()).cast(DType::F32)));
        let weights = softmax(Tensor::cat(columns, 3), 3).cast(dtype);
        let mut mixed = self.first_values(weights.clone().narrow(3, 0, n));
        for (step, (_, v)) in self.later.iter().enumerate() {
            mixed = mixed + row_values(weights.clone().narrow(3, n + step, 1), v.clone());
        }
        attention.o_proj.forward(mixed.swap_dims(1, 2).reshape([batch, n, heads * width]))
    }

    /// Scores over step 0's keys, `[B, heads, n, n]`. The query heads of a group become rows.
    fn first_scores(&self, q: Tensor<4>) -> Tensor<4> {
        let [batch, heads, n, width] = q.dims();
        let kv_heads = self.keys.dims()[1];
        let grouped = q.reshape([batch, kv_heads, heads / kv_heads * n, width]);
        let scores = grouped.matmul(self.keys.clone()).cast(DType::F32).reshape([batch, heads, n, n]);
        match &self.bias {
            Some(bias) => scores + bias.clone(),
            None => scores,
        }
    }

    /// Step 0's values under `weights` `[B, heads, n, n]`: `[B, heads, n, d]`.
    fn first_values(&self, weights: Tensor<4>) -> Tensor<4> {
        let [batch, heads, n, _] = weights.dims();
        let [_, kv_heads, _, width] = self.values.dims();
        let grouped = weights.reshape([batch, kv_heads, heads / kv_heads * n, n]);
        grouped.matmul(self.values.clone()).reshape([batch, heads, n, width])
    }
}

/// Each row's query with the same row's key: `[B, heads, n, 1]`.
fn row_scores(q: Tensor<4>, k: Tensor<4>) -> Tensor<4> {
    let [batch, heads, n, width] = q.dims();
    let kv_heads = k.dims()[1];
    let q = q.reshape([batch * kv_heads, heads / kv_heads, n, width]);
    let k = k.reshape([batch * kv_heads, 1, n, width]);
    (q * k).sum_dim(3).reshape([batch, heads, n, 1])
}

/// Each row's value under that row's weight `[B, heads, n, 1]`: `[B, heads, n, d]`.
fn row_values(weights: Tensor<4>, v: Tensor<4>) -> Tensor<4> {
    let [batch, heads, n, _] = weights.dims();
    let [_, kv_heads, _, width] = v.dims();
    let weights = weights.reshape([batch * kv_heads, heads / kv_heads, n, 1]);
    let v = v.reshape([batch * kv_heads, 1, n, width]);
    (weights * v).reshape([batch, heads, n, width])
}
