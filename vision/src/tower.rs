//! The vision transformer in the two forms that are read: CLIP's (Radford et al. 2021, "Learning Transferable Visual Models From
//! Natural Language Supervision") and DINOv2's (Oquab et al. 2023, "DINOv2: Learning Robust Visual Features without Supervision").
//!
//! CLIP has a norm before its layers; DINOv2 a bias of the patch embedding and a factor for each channel that a branch adds.

use burn::module::Param;
use burn::nn::{Initializer, LayerNorm, LayerNormConfig, Linear};
use burn::prelude::*;
use burn::tensor::activation::{gelu, sigmoid, softmax};

use crate::linear::init_linear;
use crate::{Family, VisionConfig};

/// The activation between the layers of an MLP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Activation {
    /// x * sigmoid(1.702 x), of the original CLIP.
    QuickGelu,
    /// The exact one (error function).
    Gelu,
}

impl Activation {
    /// Of `hidden_act`; anything but `gelu` is CLIP's own `quick_gelu`.
    pub fn of(config: &VisionConfig) -> Self {
        if config.hidden_act == "gelu" { Self::Gelu } else { Self::QuickGelu }
    }

    fn apply(self, x: Tensor<3>) -> Tensor<3> {
        match self {
            Self::QuickGelu => x.clone() * sigmoid(x * 1.702),
            Self::Gelu => gelu(x),
        }
    }
}

/// Self-attention over all rows, with biases.
#[derive(Module, Debug)]
pub struct VisionAttention {
    /// Queries.
    pub q_proj: Linear,
    /// Keys.
    pub k_proj: Linear,
    /// Values.
    pub v_proj: Linear,
    /// Output.
    pub out_proj: Linear,
    /// Heads.
    pub heads: usize,
}

impl VisionAttention {
    /// `[B, n, hidden] -> [B, n, hidden]`.
    pub fn forward(&self, x: Tensor<3>) -> Tensor<3> {
        let [batch, rows, hidden] = x.dims();
        let split = |x: Tensor<3>| x.reshape([batch, rows, self.heads, hidden / self.heads]).swap_dims(1, 2);
        let q = split(self.q_proj.forward(x.clone())) * ((hidden / self.heads) as f64).powf(-0.5);
        let k = split(self.k_proj.forward(x.clone()));
        let v = split(self.v_proj.forward(x));
        let weights = softmax(q.matmul(k.transpose()), 3);
        self.out_proj.forward(weights.matmul(v).swap_dims(1, 2).reshape([batch, rows, hidden]))
    }
}

/// A pre-norm encoder layer.
#[derive(Module, Debug)]
pub struct VisionLayer {
    /// Before attention.
    pub layer_norm1: LayerNorm,
    /// Attention.
    pub self_attn: VisionAttention,
    /// What attention adds is multiplied by this `[hidden]` (DINOv2's LayerScale; none in CLIP).
    pub scale1: Option<Param<Tensor<1>>>,
    /// Before the MLP.
    pub layer_norm2: LayerNorm,
    /// MLP, into its width.
    pub fc1: Linear,
    /// MLP, back.
    pub fc2: Linear,
    /// Between them.
    #[module(skip)]
    pub activation: Activation,
    /// As `scale1`, for what the MLP adds.
    pub scale2: Option<Param<Tensor<1>>>,
}

impl VisionLayer {
    /// `[B, n, hidden] -> [B, n, hidden]`.
    pub fn forward(&self, x: Tensor<3>) -> Tensor<3> {
        let x = x.clone() + scaled(self.self_attn.forward(self.layer_norm1.forward(x)), &self.scale1);
        let wide = self.activation.apply(self.fc1.forward(self.layer_norm2.forward(x.clone())));
        x + scaled(self.fc2.forward(wide), &self.scale2)
    }
}

fn scaled(x: Tensor<3>, scale: &Option<Param<Tensor<1>>>) -> Tensor<3> {
    match scale {
        Some(scale) => x * scale.val().unsqueeze(),
        None => x,
    }
}

/// A ViT; build and load it from [`crate::VisionConfig`].
#[derive(Module, Debug)]
pub struct VisionTower {
    /// Class embedding `[1, 1, hidden]`.
    pub class_embedding: Param<Tensor<3>>,
    /// The patch convolution as a matrix `[3 * patch * patch, hidden]`: its stride is its size, so patches do not
    /// overlap.
    pub patch_embedding: Linear,
    /// Position embeddings `[1, 1 + patches, hidden]`, the class first.
    pub position_embedding: Param<Tensor<3>>,
    /// Before the first layer (none in DINOv2).
    pub pre_layernorm: Option<LayerNorm>,
    /// Encoder layers.
    pub layers: Vec<VisionLayer>,
    /// For the pooled class row, which LLaVA does not use; kept so that a checkpoint is saved whole.
    pub post_layernorm: LayerNorm,
    /// Side of a patch.
    pub patch_size: usize,
    /// Whose form it has.
    #[module(skip)]
    pub family: Family,
}

impl VisionTower {
    /// A random tower with the standard deviations that Hugging Face's CLIP starts from.
    pub fn init(config: &VisionConfig, device: &Device) -> Self {
        let (hidden, clip) = (config.hidden_size, config.family == Family::Clip);
        let normal = |std: f64, rows: usize| Initializer::Normal { mean: 0.0, std }.init([1, rows, hidden], device);
        let norm = || LayerNormConfig::new(hidden).with_epsilon(config.layer_norm_eps).init(device);
        Self {
            class_embedding: normal((hidden as f64).powf(-0.5), 1),
            patch_embedding: init_linear(3 * config.patch_size * config.patch_size, hidden, !clip, 0.02, device),
            position_embedding: normal(0.02, config.grid() * config.grid() + 1),
            pre_layernorm: clip.then(norm),
            layers: (0..config.num_hidden_layers).map(|_| init_layer(config, device)).collect(),
            post_layernorm: norm(),
            patch_size: config.patch_size,
            family: config.family,
        }
    }

    /// Hidden states 0 (after the embeddings and their norm) to `last` (after layer `last`), each `[B, 1 + patches,
    /// hidden]`, of `pixels` `[B, 3, side, side]`. Layers behind `last` do not run.
    ///
    /// # Panics
    /// If `last` exceeds the number of layers, or the pixels are not of the configured size.
    pub fn hidden_states(&self, pixels: Tensor<4>, last: usize) -> Vec<Tensor<3>> {
        let mut states = vec![self.embed(pixels)];
        for layer in &self.layers[..last] {
            states.push(layer.forward(states[states.len() - 1].clone()));
        }
        states
    }

    /// Only hidden state `last` of [`VisionTower::hidden_states`].
    ///
    /// # Panics
    /// As there.
    pub fn forward(&self, pixels: Tensor<4>, last: usize) -> Tensor<3> {
        self.layers[..last].iter().fold(self.embed(pixels), |x, layer| layer.forward(x))
    }

    /// The pooled class row `[B, hidden]` of the last hidden state.
    pub fn pool(&self, last_state: Tensor<3>) -> Tensor<2> {
        self.post_layernorm.forward(last_state.narrow(1, 0, 1)).squeeze_dim(1)
    }

    fn embed(&self, pixels: Tensor<4>) -> Tensor<3> {
        let patches = self.patch_embedding.forward(patches(pixels, self.patch_size));
        let [batch, _, hidden] = patches.dims();
        let class = self.class_embedding.val().expand([batch, 1, hidden]);
        let rows = Tensor::cat(vec![class, patches], 1) + self.position_embedding.val();
        match &self.pre_layernorm {
            Some(norm) => norm.forward(rows),
            None => rows,
        }
    }
}

/// Cuts `[B, 3, side, side]` into rows `[B, patches, 3 * p * p]`, in the order of a convolution's weights.
fn patches(pixels: Tensor<4>, p: usize) -> Tensor<3> {
    let [batch, channels, height, width] = pixels.dims();
    let (down, across) = (height / p, width / p);
    pixels
        .narrow(2, 0, down * p)
        .narrow(3, 0, across * p)
        .reshape([batch, channels, down, p, across, p])
        .permute([0, 2, 4, 1, 3, 5])
        .reshape([batch, down * across, channels * p * p])
}

fn init_layer(config: &VisionConfig, device: &Device) -> VisionLayer {
    let (hidden, wide) = (config.hidden_size, config.intermediate_size);
    let out_std = (hidden as f64).powf(-0.5);
    let in_std = out_std * (2.0 * config.num_hidden_layers as f64).powf(-0.5);
    let norm = || LayerNormConfig::new(hidden).with_epsilon(config.layer_norm_eps).init(device);
    let square = |std| init_linear(hidden, hidden, true, std, device);
    let scale = || (config.family == Family::Dinov2).then(|| Initializer::Ones.init([hidden], device));
    VisionLayer {
        layer_norm1: norm(),
        self_attn: VisionAttention {
            q_proj: square(in_std),
            k_proj: square(in_std),
            v_proj: square(in_std),
            out_proj: square(out_std),
            heads: config.num_attention_heads,
        },
        scale1: scale(),
        layer_norm2: norm(),
        fc1: init_linear(hidden, wide, true, (2.0 * hidden as f64).powf(-0.5), device),
        fc2: init_linear(wide, hidden, true, in_std, device),
        activation: Activation::of(config),
        scale2: scale(),
    }
}
