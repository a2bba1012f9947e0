//! One decoder layer, and the gated MLP that drafts share.

use burn::nn::RmsNorm;
use burn::prelude::*;
use sightdraft_core::{Checkpoint, Result};

use crate::attention::Attention;
use crate::{LlamaConfig, Projection};

/// down(silu(gate(x)) * up(x)).
#[derive(Module, Debug)]
pub struct GatedMlp {
    /// Gate.
    pub gate_proj: Projection,
    /// Up.
    pub up_proj: Projection,
    /// Down.
    pub down_proj: Projection,
}

impl GatedMlp {
    /// Reads `{prefix}.{gate,up,down}_proj`.
    pub fn load(_checkpoint: &Checkpoint, _prefix: &str, _config: &LlamaConfig, _device: &Device) -> Result<Self> {
        todo!()
    }

    /// `[.., H] -> [.., H]`.
    pub fn forward<const D: usize>(&self, _x: Tensor<D>) -> Tensor<D> {
        todo!()
    }
}

/// A pre-norm decoder layer.
#[derive(Module, Debug)]
pub struct DecoderLayer {
    /// Before attention.
    pub input_layernorm: RmsNorm,
    /// Attention.
    pub self_attn: Attention,
    /// Before the MLP.
    pub post_attention_layernorm: RmsNorm,
    /// MLP.
    pub mlp: GatedMlp,
}

/// Reads an RMS norm `{name}.weight` `[width]`.
pub fn load_norm(_checkpoint: &Checkpoint, _name: &str, _width: usize, _eps: f64, _device: &Device) -> Result<RmsNorm> {
    todo!()
}
