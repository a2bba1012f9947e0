//! The key/value cache: preallocated, grows in steps, gathered and truncated after verification.

use burn::tensor::Tensor;

/// Keys and values of every layer, `[B, kv_heads, capacity, head_dim]` each, of which the first `len` rows are alive.
#[derive(Debug, Clone)]
pub struct KvCache {}

impl KvCache {
    /// An empty cache of `layers` layers. Storage is made at the first append, in steps of 256 rows.
    pub fn new(_layers: usize) -> Self {
        todo!()
    }

    /// Rows alive.
    pub fn len(&self) -> usize {
        todo!()
    }

    /// No rows alive.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Writes the new rows of `layer` `[B, kv_heads, n, head_dim]` behind the alive ones and returns all keys and values
    /// `[B, kv_heads, len + n, head_dim]`. `len` moves on once per pass, by [`KvCache::advance`].
    pub fn append(&mut self, _layer: usize, _k: Tensor<4>, _v: Tensor<4>) -> (Tensor<4>, Tensor<4>) {
        todo!()
    }

    /// Makes the `n` rows appended in this pass alive.
    pub fn advance(&mut self, _n: usize) {
        todo!()
    }

    /// Forgets every row from `len` on.
    pub fn truncate(&mut self, _len: usize) {
        todo!()
    }

    /// Keeps rows `0..from`, then `from + rows[i]` in the order given: compaction after verification. `rows` ascending.
    pub fn gather(&mut self, _from: usize, _rows: &[usize]) {
        todo!()
    }
}
