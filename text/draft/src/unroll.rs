//! Attention of the training unroll: at step j a row sees the step-0 keys that its path allows and the keys that steps 1..j of
//! the same path left, in one softmax.
//!
//! Where rows are anchors (EAGLE-3's training-time test) a path stays in its row. Where rows are numbered by what they guess
//! (HASS), a path moves down by one row per step: row r of step j sees what row r - j of step 0 saw, and the step-i key of row
//! r - (j - i).

use burn::prelude::*;
use burn::tensor::DType;
use burn::tensor::kind::Basic;
use sightdraft_kernels::{masked_softmax, matmul};
use sightdraft_target::attention::Attention;

use crate::UnrollRows;

/// Keys and values of the steps so far: n of step 0, and of each later step those of the m rows whose paths are asked for.
pub(crate) struct Unrolled {
    form: UnrollRows,
    /// `[B, kv_heads, n, d]` of step 0.
    keys: Tensor<4>,
    /// `[B, kv_heads, n, d]` of step 0.
    values: Tensor<4>,
    /// Which of step 0's keys a row must not look at, `[B or 1, 1, m, n]`.
    blocked: Tensor<4, Bool>,
    later: Vec<Later>,
}

/// What a later step left, in the rows that see it.
struct Later {
    /// `[B, kv_heads, m, d]`.
    keys: Tensor<4>,
    /// `[B, kv_heads, m, d]`.
    values: Tensor<4>,
    /// Whether a row must not look at its key, `[B or 1, 1, m, 1]`.
    blocked: Tensor<4, Bool>,
}

impl Unrolled {
    /// From step 0's keys, values and mask `[B or 1, 1, m, n]` (true = blocked; None for a single row).
    pub(crate) fn new(form: UnrollRows, k: Tensor<4>, v: Tensor<4>, blocked: Option<Tensor<4, Bool>>) -> Self {
        let blocked = blocked.unwrap_or_else(|| marks([1, 1, 1, 1], false, &k.device()));
        Self { form, keys: k, values: v, blocked, later: Vec::new() }
    }

    /// Paths move down by one row; the rows that come in see nothing of what was.
    fn move_down(&mut self) {
        let hide = |blocked: Tensor<4, Bool>| {
            let [batch, _, _, columns] = blocked.dims();
            let above = marks([batch, 1, 1, columns], true, &blocked.device());
            move_down(blocked, above)
        };
        self.blocked = hide(self.blocked.clone());
        for later in &mut self.later {
            let none = later.keys.clone().narrow(2, 0, 1).zeros_like();
            later.keys = move_down(later.keys.clone(), none.clone());
            later.values = move_down(later.values.clone(), none);
            later.blocked = hide(later.blocked.clone());
        }
    }

    /// One later step: its queries `[B, heads, m, d]` over everything so far and its own keys. `[B, m, H]`.
    ///
    /// Scores are `[B, heads, m, n + j]`: a later step costs one column, not m.
    pub(crate) fn attend(&mut self, attention: &Attention, q: Tensor<4>, k: Tensor<4>, v: Tensor<4>) -> Tensor<3> {
        let [batch, heads, rows, width] = q.dims();
        let n = self.keys.dims()[2];
        if self.form == UnrollRows::Row {
            self.move_down();
        }
        let seen = marks([self.blocked.dims()[0], 1, rows, 1], false, &k.device());
        self.later.push(Later { keys: k, values: v, blocked: seen });
        let q = q * (width as f64).powf(-0.5);
        let dtype = q.dtype();
        let mut columns = vec![self.first_scores(q.clone())];
        columns.extend(self.later.iter().map(|later| row_scores(q.clone(), later.keys.clone()).cast(DType::F32)));
        let blocked = [&self.blocked].into_iter().chain(self.later.iter().map(|later| &later.blocked));
        let blocked = Tensor::cat(blocked.cloned().collect(), 3);
        let weights = masked_softmax(Tensor::cat(columns, 3), Some(blocked)).cast(dtype);
        let mut mixed = self.first_values(weights.clone().narrow(3, 0, n));
        for (step, later) in self.later.iter().enumerate() {
            mixed = mixed + row_values(weights.clone().narrow(3, n + step, 1), later.values.clone());
        }
        attention.o_proj.forward(mixed.swap_dims(1, 2).reshape([batch, rows, heads * width]))
    }

    /// Scores over step 0's keys, `[B, heads, m, n]`. The query heads of a group become rows.
    fn first_scores(&self, q: Tensor<4>) -> Tensor<4> {
        let [batch, heads, rows, width] = q.dims();
        let [_, kv_heads, n, _] = self.keys.dims();
        let grouped = q.reshape([batch, kv_heads, heads / kv_heads * rows, width]);
        matmul(grouped, self.keys.clone(), true).cast(DType::F32).reshape([batch, heads, rows, n])
    }

    /// Step 0's values under `weights` `[B, heads, m, n]`: `[B, heads, m, d]`.
    fn first_values(&self, weights: Tensor<4>) -> Tensor<4> {
        let [batch, heads, rows, n] = weights.dims();
        let [_, kv_heads, _, width] = self.values.dims();
        let grouped = weights.reshape([batch, kv_heads, heads / kv_heads * rows, n]);
        matmul(grouped, self.values.clone(), false).reshape([batch, heads, rows, width])
    }
}

/// Rows `[.., n, width]` moved down by one, `above` `[.., 1, width]` coming in.
fn move_down<K: Basic>(rows: Tensor<4, K>, above: Tensor<4, K>) -> Tensor<4, K> {
    let n = rows.dims()[2];
    if n == 1 {
        return above;
    }
    Tensor::cat(vec![above, rows.narrow(2, 0, n - 1)], 2)
}

/// A mask that says one thing everywhere.
fn marks(shape: [usize; 4], blocked: bool, device: &Device) -> Tensor<4, Bool> {
    Tensor::full(shape, blocked, device)
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
