//! A linear layer in Hugging Face's terms. One place, so that a faster kernel for few rows can stand in its stead.

use burn::nn::Linear;
use burn::prelude::*;
use sightdraft_core::{Checkpoint, Result};

/// `y = x W^T (+ b)`; the weight is stored as `[in, out]`.
#[derive(Module, Debug)]
pub struct Projection {
    /// Burn's layer.
    pub inner: Linear,
}

impl Projection {
    /// Reads `{name}.weight` `[out, in]` and, with `bias`, `{name}.bias` `[out]`.
    pub fn load(
        _checkpoint: &Checkpoint,
        _name: &str,
        _input: usize,
        _output: usize,
        _bias: bool,
        _device: &Device,
    ) -> Result<Self> {
        todo!()
    }

    /// A fresh layer, normal with standard deviation `std`, no bias unless asked for (zeros).
    pub fn init(_input: usize, _output: usize, _bias: bool, _std: f64, _device: &Device) -> Self {
        todo!()
    }

    /// Applies the layer to the last dimension.
    pub fn forward<const D: usize>(&self, x: Tensor<D>) -> Tensor<D> {
        self.inner.forward(x)
    }

    /// The weight as Hugging Face stores it, `[out, in]`, for saving.
    pub fn weight_out_in(&self) -> Tensor<2> {
        self.inner.weight.val().transpose()
    }
}
