//! The decoder layer of EAGLE-1 and its descendants: nothing is normed before attention, and no norm comes last.

use burn::nn::RmsNorm;
use burn::prelude::*;
use sightdraft_core::{Checkpoint, Result};
use sightdraft_target::LlamaConfig;
use sightdraft_target::attention::Attention;
use sightdraft_target::layer::{GatedMlp, init_norm, load_norm, normed};
use sightdraft_target::save::Named;

use crate::INIT_STD;

/// Prefix of the layer's tensors.
const PREFIX: &str = "layers.0";

/// Attention, norm, MLP.
#[derive(Module, Debug)]
pub struct UnnormedLayer {
    /// Attention from H.
    pub self_attn: Attention,
    /// Before the MLP.
    pub post_attention_layernorm: RmsNorm,
    /// MLP, to H or a multiple of it.
    pub mlp: GatedMlp,
}

impl UnnormedLayer {
    /// A fresh layer whose MLP ends in `outputs` features of width H.
    pub fn init(outputs: usize, config: &LlamaConfig, device: &Device) -> Self {
        Self {
            self_attn: Attention::init(config.hidden_size, config, INIT_STD, device),
            post_attention_layernorm: init_norm(config, device),
            mlp: GatedMlp::init(outputs * config.hidden_size, config, INIT_STD, device),
        }
    }

    /// Reads `layers.0.*`; `outputs` as in [`UnnormedLayer::init`].
    ///
    /// # Errors
    /// A missing tensor or another shape.
    pub fn load(checkpoint: &Checkpoint, outputs: usize, config: &LlamaConfig, device: &Device) -> Result<Self> {
        let (width, eps) = (config.hidden_size, config.rms_norm_eps);
        let norm = format!("{PREFIX}.post_attention_layernorm");
        Ok(Self {
            self_attn: Attention::load(checkpoint, &format!("{PREFIX}.self_attn"), width, config, device)?,
            post_attention_layernorm: load_norm(checkpoint, &norm, width, eps, device)?,
            mlp: GatedMlp::load(checkpoint, &format!("{PREFIX}.mlp"), outputs * width, config, device)?,
        })
    }

    /// The form for inference, see [`Projection::for_inference`](sightdraft_target::Projection::for_inference).
    pub fn for_inference(self) -> Self {
        Self { self_attn: self.self_attn.for_inference(), mlp: self.mlp.for_inference(), ..self }
    }

    /// The rest of the layer behind attention over `x`: `[B, n, outputs * H]`. Every output has the same residual.
    pub(crate) fn finish(&self, x: Tensor<3>, attended: Tensor<3>) -> Tensor<3> {
        let x = x + attended;
        let y = self.mlp.forward(normed(&self.post_attention_layernorm, x.clone()));
        let outputs = y.dims()[2] / x.dims()[2];
        x.repeat_dim(2, outputs) + y
    }

    /// The tensors under their published names.
    pub(crate) fn name(&self, out: &mut Named) {
        out.attention(&format!("{PREFIX}.self_attn"), &self.self_attn);
        out.norm(format!("{PREFIX}.post_attention_layernorm"), &self.post_attention_layernorm);
        out.mlp(&format!("{PREFIX}.mlp"), &self.mlp);
    }
}
