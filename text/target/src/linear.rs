//! A linear layer in Hugging Face's terms. One place, so that a faster kernel for few rows can stand in its stead.

use burn::module::Param;
use burn::nn::{Initializer, Linear, LinearConfig};
use burn::prelude::*;
use sightdraft_core::{Checkpoint, Result};

/// `y = x W^T (+ b)`; the weight is stored as `[in, out]`.
#[derive(Module, Debug)]
pub struct Projection {
    /// Burn's layer.
    pub inner: Linear,
}

impl Projection {
    /// Reads `{name}.weight` `[out, in]` and, with `bias`, `{name}.bias` `[out]`, in the checkpoint's
    /// [`dtype`](Checkpoint::dtype). The weight is transposed while it is copied, so that the matrix product reads it row
    /// by row and no second copy is ever held.
    ///
    /// # Errors
    /// A missing tensor or another shape.
    pub fn load(
        checkpoint: &Checkpoint,
        name: &str,
        input: usize,
        output: usize,
        bias: bool,
        device: &Device,
    ) -> Result<Self> {
        let dtype = checkpoint.dtype();
        let weight = checkpoint.transposed(&format!("{name}.weight"), [output, input], dtype, device)?;
        let bias = match bias {
            true => Some(checkpoint.tensor(&format!("{name}.bias"), [output], dtype, device)?),
            false => None,
        };
        Ok(Self { inner: Linear { weight: Param::from_tensor(weight), bias: bias.map(Param::from_tensor) } })
    }

    /// A fresh layer, normal with standard deviation `std`, no bias unless asked for (zeros).
    pub fn init(input: usize, output: usize, bias: bool, std: f64, device: &Device) -> Self {
        let initializer = Initializer::Normal { mean: 0.0, std };
        let mut inner = LinearConfig::new(input, output).with_bias(false).with_initializer(initializer).init(device);
        inner.bias = bias.then(|| Initializer::Zeros.init([output], device));
        Self { inner }
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
