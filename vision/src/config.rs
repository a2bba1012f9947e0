//! Geometry of the vision tower and of preprocessing.

use serde::{Deserialize, Serialize};

/// A CLIP vision transformer and its projector.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct VisionConfig {
    /// Width.
    pub hidden_size: usize,
    /// MLP width.
    pub intermediate_size: usize,
    /// Layers.
    pub num_hidden_layers: usize,
    /// Heads.
    pub num_attention_heads: usize,
    /// Side of the square image.
    pub image_size: usize,
    /// Side of a patch.
    pub patch_size: usize,
    /// LayerNorm epsilon.
    pub layer_norm_eps: f64,
    /// `quick_gelu` or `gelu`.
    pub hidden_act: String,
    /// Which hidden state is used (negative counts from the end).
    pub feature_layer: i64,
    /// Drop the CLS row (strategy `default`) or keep it (`full`).
    pub drop_cls: bool,
    /// Width of the language model that the projector feeds.
    pub text_hidden_size: usize,
}

/// Preprocessing numbers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PreprocessConfig {
    /// Side of the square result.
    pub size: usize,
    /// Expand to a square first (original LLaVA) instead of cropping.
    pub pad: bool,
    /// Per-channel mean.
    pub mean: [f32; 3],
    /// Per-channel deviation.
    pub std: [f32; 3],
}
