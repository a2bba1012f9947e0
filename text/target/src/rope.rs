//! Rotary position embedding with explicit position ids, half-split as Hugging Face stores it.

use burn::tensor::{Device, Tensor};

use crate::RopeConfig;

/// Inverse frequencies of one head width.
#[derive(Debug, Clone)]
pub struct Rope {
    /// f64 inverse frequencies after scaling, `head_dim / 2` of them.
    pub inv_freq: Vec<f64>,
}

impl Rope {
    /// The frequencies of `config` for heads of width `head_dim`.
    pub fn new(_config: &RopeConfig, _head_dim: usize) -> Self {
        todo!()
    }

    /// cos and sin of `positions` `[B, n]`, each `[B, 1, n, head_dim]`, computed in f64 on the host and sent once; share them
    /// between the layers of a pass.
    pub fn angles(&self, _positions: &[Vec<usize>], _device: &Device) -> (Tensor<4>, Tensor<4>) {
        todo!()
    }

    /// Rotates `x` `[B, heads, n, head_dim]`.
    pub fn apply(_x: Tensor<4>, _angles: &(Tensor<4>, Tensor<4>)) -> Tensor<4> {
        todo!()
    }
}
