//! The fusion of EAGLE-1 and its descendants: fc([embed, feature]) with a bias.

use burn::module::Param;
use burn::nn::Linear;
use burn::prelude::*;
use burn::tensor::Distribution;
use sightdraft_core::{Checkpoint, Result};
use sightdraft_target::Projection;

use crate::INIT_STD;

/// A fresh fusion `2 * width -> width` that passes the feature through, with noise, and a bias of zeros.
pub(crate) fn init(width: usize, device: &Device) -> Projection {
    let noise = Tensor::random([2 * width, width], Distribution::Normal(0.0, INIT_STD), device);
    let through = Tensor::cat(vec![Tensor::zeros([width, width], device), Tensor::eye(width, device)], 0);
    with_bias(noise + through)
}

/// A fresh fusion of `weight` `[inputs, outputs]` with a bias of zeros.
pub(crate) fn with_bias(weight: Tensor<2>) -> Projection {
    let bias = Tensor::zeros([weight.dims()[1]], &weight.device());
    Projection::Plain(Linear { weight: Param::from_tensor(weight), bias: Some(Param::from_tensor(bias)) })
}

/// Reads `{name}.weight` `[width, 2 * width]`, and `{name}.bias` where the checkpoint has it.
///
/// # Errors
/// A missing tensor or another shape.
pub(crate) fn load(checkpoint: &Checkpoint, name: &str, width: usize, device: &Device) -> Result<Projection> {
    let bias = checkpoint.has(&format!("{name}.bias"));
    Projection::load(checkpoint, name, 2 * width, width, bias, device)
}
