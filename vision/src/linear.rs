//! Burn's layers made from a fresh start or from Hugging Face tensors, and back.

use burn::module::Param;
use burn::nn::{Initializer, LayerNorm, LayerNormConfig, Linear};
use burn::prelude::*;
use sightdraft_core::{Checkpoint, Result};

/// A fresh layer: weights normal with standard deviation `std`, bias (if any) zero.
pub(crate) fn init_linear(input: usize, output: usize, bias: bool, std: f64, device: &Device) -> Linear {
    Linear {
        weight: Initializer::Normal { mean: 0.0, std }.init([input, output], device),
        bias: bias.then(|| Initializer::Zeros.init([output], device)),
    }
}

/// Where tensors come from and what they become.
pub(crate) struct Source<'a> {
    pub checkpoint: &'a Checkpoint,
    pub device: &'a Device,
}

impl Source<'_> {
    /// A float tensor in the checkpoint's [`dtype`](Checkpoint::dtype).
    pub fn tensor<const D: usize>(&self, name: &str, shape: [usize; D]) -> Result<Tensor<D>> {
        self.checkpoint.tensor(name, shape, self.checkpoint.dtype(), self.device)
    }

    /// `{name}.weight` `[out, in]`, transposed while it is copied, and `{name}.bias` `[out]`.
    pub fn linear(&self, name: &str, input: usize, output: usize) -> Result<Linear> {
        let dtype = self.checkpoint.dtype();
        let weight = self.checkpoint.transposed(&format!("{name}.weight"), [output, input], dtype, self.device)?;
        let bias = self.tensor(&format!("{name}.bias"), [output])?;
        Ok(Linear { weight: Param::from_tensor(weight), bias: Some(Param::from_tensor(bias)) })
    }

    /// `{name}.weight` and `{name}.bias`, both `[width]`.
    pub fn layer_norm(&self, name: &str, width: usize, eps: f64) -> Result<LayerNorm> {
        let mut norm = LayerNormConfig::new(width).with_epsilon(eps).init(self.device);
        norm.gamma = Param::from_tensor(self.tensor(&format!("{name}.weight"), [width])?);
        norm.beta = Some(Param::from_tensor(self.tensor(&format!("{name}.bias"), [width])?));
        Ok(norm)
    }
}

/// Tensors under their Hugging Face names.
#[derive(Default)]
pub(crate) struct Sink(pub Vec<(String, TensorData)>);

impl Sink {
    /// One tensor.
    pub fn tensor<const D: usize>(&mut self, name: String, tensor: Tensor<D>) {
        self.0.push((name, tensor.into_data()));
    }

    /// Weight `[out, in]` and bias, if there is one.
    pub fn linear(&mut self, name: &str, linear: &Linear) {
        self.tensor(format!("{name}.weight"), linear.weight.val().transpose());
        if let Some(bias) = &linear.bias {
            self.tensor(format!("{name}.bias"), bias.val());
        }
    }

    /// Weight and bias.
    pub fn layer_norm(&mut self, name: &str, norm: &LayerNorm) {
        self.tensor(format!("{name}.weight"), norm.gamma.val());
        if let Some(beta) = &norm.beta {
            self.tensor(format!("{name}.bias"), beta.val());
        }
    }
}
