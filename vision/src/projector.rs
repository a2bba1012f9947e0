//! The two-layer projector, and tower + projector as one.

use burn::nn::Linear;
use burn::prelude::*;

use crate::{ClipVision, Pixels};

/// Linear, GELU (exact), Linear.
#[derive(Module, Debug)]
pub struct Projector {
    /// First layer.
    pub linear_1: Linear,
    /// Second layer.
    pub linear_2: Linear,
}

/// From pixels to rows of the language model.
#[derive(Module, Debug)]
pub struct VisionModel {
    /// The tower.
    pub tower: ClipVision,
    /// The projector.
    pub projector: Projector,
    /// Geometry.
    #[module(skip)]
    pub config: crate::VisionConfig,
}

impl VisionModel {
    /// Rows per image.
    pub fn rows_per_image(&self) -> usize {
        todo!()
    }

    /// Projected features of each image: `[images, rows, text hidden]`.
    pub fn forward(&self, _images: &[Pixels]) -> Tensor<3> {
        todo!()
    }
}
