//! The CLIP vision transformer.

use burn::prelude::*;

/// A CLIP ViT; build and load it from [`crate::VisionConfig`].
#[derive(Module, Debug)]
pub struct ClipVision {
    /// Class embedding `[1, 1, hidden]`.
    pub class_embedding: burn::module::Param<Tensor<3>>,
}
