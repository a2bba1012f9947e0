//! Which earlier rows a row may see.

use burn::tensor::{Bool, Device, Tensor};

/// Attention pattern of the `n` new rows of a pass over `past` cached rows.
#[derive(Debug, Clone)]
pub enum Mask {
    /// Every new row sees the cache and the new rows up to itself.
    Causal,
    /// Row i sees the whole cache and the new rows j with `sees[i][j]` (ancestors and itself): a packed tree.
    Tree(Vec<Vec<bool>>),
    /// Everything explicit: `[B][n][past + n]`, true = may see. Batches with padding, training unrolls.
    Full(Vec<Vec<Vec<bool>>>),
}

impl Mask {
    /// `[B or 1, 1, n, past + n]`, true = blocked (Burn's convention); None when nothing is blocked (one causal row).
    pub fn blocked(&self, _n: usize, _past: usize, _device: &Device) -> Option<Tensor<4, Bool>> {
        todo!()
    }
}
