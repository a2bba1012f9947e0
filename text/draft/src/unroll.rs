//! Attention of the training unroll: at step j a row sees the step-0 keys that its path allows and the keys that steps 1..j of
//! the same path left, in one softmax.
//!
//! Where rows are anchors (EAGLE-3's training-time test) a path stays in its row. Where rows are numbered by what they guess
//! (HASS), a path moves down by one row per step: row r of step j sees what row r - j of step 0 saw, and the step-i key of row
//! r - (j - i).

use burn::prelude::*;
use burn::tensor::DType;
use burn::tensor::activation::softmax;
use sightdraft_target::attention::Attention;

use crate::UnrollRows;

/// Small enough that its exponential is 0 beside any score.
const BLOCKED: f32 = -1e30;

/// Keys and values of the steps so far.
pub(crate) struct Unrolled {
    form: UnrollRows,
    /// `[B, kv_heads, d, n]` of step 0.
    keys: Tensor<4>,
    /// `[B, kv_heads, n, d]` of step 0.
    values: Tensor<4>,
    /// Added to the scores of step 0's keys, `[B or 1, 1, n, n]`.
    bias: Option<Tensor<4>>,
    later: Vec<Later>,
}

/// What a later step left, in the rows that see it.
struct Later {
    /// `[B, kv_heads, n, d]`.
    keys: Tensor<4>,
    /// `[B, kv_heads, n, d]`.
    values: Tensor<4>,
    /// Added to the scores, `[1, 1, n, 1]`; None while every row sees its key.
    bias: Option<Tensor<4>>,
}

impl Unrolled {
    /// From step 0's keys, values and mask (true = blocked).
    pub(crate) fn new(form: UnrollRows, k: Tensor<4>, v: Tensor<4>, blocked: Option<Tensor<4, Bool>>) -> Self {
        let bias = blocked.map(|blocked| blocked.float().cast(DType::F32) * BLOCKED);
        Self { form, keys: k.swap_dims(2, 3), values: v, bias, later: Vec::new() }
    }

    /// Paths move down by one row; the rows that come in see nothing of what was.
    fn move_down(&mut self) {
        let n = self.values.dims()[2];
        let hide = |bias: Option<Tensor<4>>, columns: usize, device: &Device| {
            let bias = bias.unwrap_or_else(|| Tensor::zeros([1, 1, n, columns], device));
            move_down(bias, BLOCKED)
        };
        self.bias = Some(hide(self.bias.take(), n, &self.values.device()));
        for later in &mut self.later {
            later.keys = move_down(later.keys.clone(), 0.0);
            later.values = move_down(later.values.clone(), 0.0);
            later.bias = Some(hide(later.bias.take(), 1, &self.values.device()));
        }
    }

    /// One later step: its queries `[B, heads, n, d]` over everything so far and its own keys. `[B, n, H]`.
    ///
    /// Scores are `[B, heads, n, n + j]`: a later step costs one column, not n.
    pub(crate) fn attend(&mut self, attention: &Attention, q: Tensor<4>, k: Tensor<4>, v: Tensor<4>) -> Tensor<3> {
        let [batch, heads, n, width] = q.dims();
        if self.form == UnrollRows::Row {
            self.move_down();
        }
        self.later.push(Later { keys: k, values: v, bias: None });
        let q = q * (width as f64).powf(-0.5);
        let dtype = q.dtype();
        let mut columns = vec![self.first_scores(q.clone())];
        columns.extend(self.later.iter().map(|later| later.scores(q.clone())));
        let weights = softmax(Tensor::cat(columns, 3), 3).cast(dtype);
        let mut mixed = self.first_values(weights.clone().narrow(3, 0, n));
        for (step, later) in self.later.iter().enumerate() {
            mixed = mixed + row_values(weights.clone().narrow(3, n + step, 1), later.values.clone());
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

impl Later {
    /// `[B, heads, n, 1]`.
    fn scores(&self, q: Tensor<4>) -> Tensor<4> {
        let scores = row_scores(q, self.keys.clone()).cast(DType::F32);
        match &self.bias {
            Some(bias) => scores + bias.clone(),
            None => scores,
        }
    }
}

/// Rows `[.., n, width]` moved down by one, `value` coming in above.
fn move_down(rows: Tensor<4>, value: f32) -> Tensor<4> {
    let [batch, heads, n, width] = rows.dims();
    let above = Tensor::full([batch, heads, 1, width], value, (&rows.device(), rows.dtype()));
    if n == 1 {
        return above;
    }
    Tensor::cat(vec![above, rows.narrow(2, 0, n - 1)], 2)
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
