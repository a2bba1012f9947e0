//! One decoder layer, and the gated MLP that drafts share.

use burn::module::Param;
use burn::nn::{RmsNorm, RmsNormConfig};
use burn::prelude::*;
use burn::tensor::DType;
use sightdraft_core::{Checkpoint, Result};
use sightdraft_kernels::gated;

use crate::attention::Attention;
use crate::linear::on_plain_cpu;
use crate::{KvCache, LlamaConfig, Projection};

/// down(silu(gate(x)) * up(x)) (Shazeer 2020).
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
    /// Reads `{prefix}.{gate,up,down}_proj`; `output` is the width of what comes out (H, or 2H in GRIFFIN). Biases are
    /// taken where the checkpoint has them.
    ///
    /// # Errors
    /// A missing tensor or another shape.
    pub fn load(
        checkpoint: &Checkpoint,
        prefix: &str,
        output: usize,
        config: &LlamaConfig,
        device: &Device,
    ) -> Result<Self> {
        let read = |name: &str, input: usize, output: usize| {
            let name = format!("{prefix}.{name}");
            let bias = checkpoint.has(&format!("{name}.bias"));
            Projection::load(checkpoint, &name, input, output, bias, device)
        };
        Ok(Self {
            gate_proj: read("gate_proj", config.hidden_size, config.intermediate_size)?,
            up_proj: read("up_proj", config.hidden_size, config.intermediate_size)?,
            down_proj: read("down_proj", config.intermediate_size, output)?,
        })
    }

    /// A fresh MLP without biases, normal with standard deviation `std`; `output` as in [`GatedMlp::load`].
    pub fn init(output: usize, config: &LlamaConfig, std: f64, device: &Device) -> Self {
        let fresh = |input, output| Projection::init(input, output, false, std, device);
        Self {
            gate_proj: fresh(config.hidden_size, config.intermediate_size),
            up_proj: fresh(config.hidden_size, config.intermediate_size),
            down_proj: fresh(config.intermediate_size, output),
        }
    }

    /// The form for inference, see [`Projection::for_inference`].
    pub fn for_inference(self) -> Self {
        Self {
            gate_proj: self.gate_proj.for_inference(),
            up_proj: self.up_proj.for_inference(),
            down_proj: self.down_proj.for_inference(),
        }
    }

    /// `[.., H] -> [.., output]`.
    pub fn forward<const D: usize>(&self, x: Tensor<D>) -> Tensor<D> {
        let [gate, up] = Projection::forward_all([&self.gate_proj, &self.up_proj], x);
        self.down_proj.forward(gated(gate, up))
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

impl DecoderLayer {
    /// Reads the layer whose tensors start with `prefix` (`model.layers.3`).
    ///
    /// # Errors
    /// A missing tensor or another shape.
    pub fn load(checkpoint: &Checkpoint, prefix: &str, config: &LlamaConfig, device: &Device) -> Result<Self> {
        let width = config.hidden_size;
        let norm = |name: &str| load_norm(checkpoint, &format!("{prefix}.{name}"), width, config.rms_norm_eps, device);
        Ok(Self {
            input_layernorm: norm("input_layernorm")?,
            self_attn: Attention::load(checkpoint, &format!("{prefix}.self_attn"), width, config, device)?,
            post_attention_layernorm: norm("post_attention_layernorm")?,
            mlp: GatedMlp::load(checkpoint, &format!("{prefix}.mlp"), width, config, device)?,
        })
    }

    /// A fresh layer, normal with standard deviation `std`, norms at one.
    pub fn init(config: &LlamaConfig, std: f64, device: &Device) -> Self {
        Self {
            input_layernorm: init_norm(config, device),
            self_attn: Attention::init(config.hidden_size, config, std, device),
            post_attention_layernorm: init_norm(config, device),
            mlp: GatedMlp::init(config.hidden_size, config, std, device),
        }
    }

    /// The form for inference, see [`Projection::for_inference`].
    pub fn for_inference(self) -> Self {
        Self {
            input_layernorm: norm_for_inference(self.input_layernorm),
            self_attn: self.self_attn.for_inference(),
            post_attention_layernorm: norm_for_inference(self.post_attention_layernorm),
            mlp: self.mlp.for_inference(),
        }
    }

    /// `[B, n, H] -> [B, n, H]`; keys and values go to the cache's `layer`.
    pub fn forward(
        &self,
        x: Tensor<3>,
        angles: &(Tensor<4>, Tensor<4>),
        blocked: Option<Tensor<4, Bool>>,
        cache: &mut KvCache,
        layer: usize,
    ) -> Tensor<3> {
        let attended = self.self_attn.forward(normed(&self.input_layernorm, x.clone()), angles, blocked, cache, layer);
        let x = x + attended;
        x.clone() + self.mlp.forward(normed(&self.post_attention_layernorm, x))
    }
}

/// `norm` of `x` `[.., H]`: in one go on the CPU in f32, with gradients or without; by Burn elsewhere.
pub fn normed<const D: usize>(norm: &RmsNorm, x: Tensor<D>) -> Tensor<D> {
    match norm.gamma.val().dtype() == DType::F32 && x.dtype() == DType::F32 {
        true => sightdraft_kernels::norm(x, norm.gamma.val(), norm.epsilon),
        false => norm.forward(x),
    }
}

/// A norm for rows in f32, which is what packed layers give, on the CPU; unchanged on other devices.
pub fn norm_for_inference(norm: RmsNorm) -> RmsNorm {
    match on_plain_cpu(&norm.gamma.device()) {
        true => RmsNorm { gamma: Param::from_tensor(norm.gamma.val().cast(DType::F32)), epsilon: norm.epsilon },
        false => norm,
    }
}

/// Reads an RMS norm `{name}.weight` `[width]`.
///
/// # Errors
/// A missing tensor or another shape.
pub fn load_norm(checkpoint: &Checkpoint, name: &str, width: usize, eps: f64, device: &Device) -> Result<RmsNorm> {
    let gamma = checkpoint.tensor(&format!("{name}.weight"), [width], checkpoint.dtype(), device)?;
    Ok(RmsNorm { gamma: Param::from_tensor(gamma), epsilon: eps })
}

/// A fresh RMS norm of width H, all ones.
pub fn init_norm(config: &LlamaConfig, device: &Device) -> RmsNorm {
    RmsNormConfig::new(config.hidden_size).with_epsilon(config.rms_norm_eps).init(device)
}
