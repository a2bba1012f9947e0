//! How the steps of a training unroll are numbered.

use burn::prelude::*;

/// Which token a row of a later step is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnrollRows {
    /// Row t of step j guesses x_{t+2+j}: a row is the anchor that its path began at, and features stay in their row (EAGLE-3's
    /// training-time test). Embeddings and positions move on by one per step.
    Anchor,
    /// Row r of step j guesses x_{r+2}: its path began at r - j, and features move down by one row per step (HASS, GRIFFIN).
    /// Embeddings and positions stay. Rows below j belong to no path.
    Row,
}

impl UnrollRows {
    /// The row of step `step` that belongs to the path begun at `anchor`.
    pub fn row(self, anchor: usize, step: usize) -> usize {
        match self {
            Self::Anchor => anchor,
            Self::Row => anchor + step,
        }
    }

    /// By how many rows the embeddings of step `step` are shifted left.
    pub fn shift(self, step: usize) -> usize {
        match self {
            Self::Anchor => step,
            Self::Row => 0,
        }
    }

    /// The features that the next step reads, from step 0's and the last step's, `[B, n, H]` each. Where they move down no
    /// gradient flows back (as HASS publishes it).
    pub(crate) fn next_features(self, first: &Tensor<3>, last: &Tensor<3>) -> Tensor<3> {
        match self {
            Self::Anchor => last.clone(),
            Self::Row => moved_down(first, last.clone().detach()),
        }
    }
}

/// `last` one row further down; the first row keeps the target's feature, `first`'s (as HASS and ViSpec publish it).
pub(crate) fn moved_down(first: &Tensor<3>, last: Tensor<3>) -> Tensor<3> {
    match last.dims()[1] {
        1 => first.clone(),
        n => Tensor::cat(vec![first.clone().narrow(1, 0, 1), last.narrow(1, 0, n - 1)], 1),
    }
}

/// The rows `[B, n, width]` from `from` on.
pub(crate) fn rows_from(rows: Tensor<3>, from: usize) -> Tensor<3> {
    let n = rows.dims()[1];
    if from == 0 { rows } else { rows.narrow(1, from, n - from) }
}
