//! The two-layer projector, and tower + projector as one.

use burn::nn::Linear;
use burn::prelude::*;
use burn::tensor::activation::gelu;

use crate::linear::init_linear;
use crate::{Pixels, VisionConfig, VisionTower};

/// Linear, GELU (exact), Linear.
#[derive(Module, Debug)]
pub struct Projector {
    /// First layer.
    pub linear_1: Linear,
    /// Second layer.
    pub linear_2: Linear,
}

impl Projector {
    /// A random projector.
    pub fn init(config: &VisionConfig, device: &Device) -> Self {
        let (vision, text) = (config.hidden_size, config.text_hidden_size);
        Self {
            linear_1: init_linear(vision, text, true, (vision as f64).powf(-0.5), device),
            linear_2: init_linear(text, text, true, (text as f64).powf(-0.5), device),
        }
    }

    /// `[B, n, vision hidden] -> [B, n, text hidden]`.
    pub fn forward(&self, x: Tensor<3>) -> Tensor<3> {
        self.linear_2.forward(gelu(self.linear_1.forward(x)))
    }
}

/// From pixels to rows of the language model.
#[derive(Module, Debug)]
pub struct VisionModel {
    /// The tower.
    pub tower: VisionTower,
    /// The projector.
    pub projector: Projector,
    /// Geometry.
    #[module(skip)]
    pub config: VisionConfig,
}

impl VisionModel {
    /// A random tower and projector, for training from scratch.
    pub fn init(config: &VisionConfig, device: &Device) -> Self {
        Self {
            tower: VisionTower::init(config, device),
            projector: Projector::init(config, device),
            config: config.clone(),
        }
    }

    /// Rows per image.
    pub fn rows_per_image(&self) -> usize {
        self.config.rows_per_image()
    }

    /// Projected features of each image: `[images, rows, text hidden]`.
    ///
    /// # Panics
    /// If there is no image, or one is not of the configured size.
    pub fn forward(&self, images: &[Pixels]) -> Tensor<3> {
        let like = self.tower.class_embedding.val();
        self.forward_pixels(Pixels::batch(images, &like.device()).cast(like.dtype()))
    }

    /// As [`VisionModel::forward`], of pixels `[images, 3, side, side]`.
    ///
    /// # Panics
    /// If the side is not the configured one.
    pub fn forward_pixels(&self, pixels: Tensor<4>) -> Tensor<3> {
        self.projector.forward(self.features(pixels))
    }

    /// The tower's features before projection: `[images, rows, vision hidden]`.
    pub fn features(&self, pixels: Tensor<4>) -> Tensor<3> {
        let state = self.tower.forward(pixels, self.config.feature_state());
        if !self.config.drop_cls {
            return state;
        }
        let rows = state.dims()[1] - 1;
        state.narrow(1, 1, rows)
    }
}

#[cfg(test)]
mod tests {
    use burn::optim::{AdamWConfig, GradientsParams};

    use super::*;
    use crate::Family;

    fn tiny(drop_cls: bool) -> VisionConfig {
        VisionConfig {
            family: Family::Clip,
            hidden_size: 16,
            intermediate_size: 32,
            num_hidden_layers: 2,
            num_attention_heads: 2,
            image_size: 28,
            patch_size: 14,
            layer_norm_eps: 1e-5,
            hidden_act: "quick_gelu".into(),
            feature_layer: -2,
            drop_cls,
            text_hidden_size: 8,
        }
    }

    fn images() -> Vec<Pixels> {
        let wave = |k: f32| (0..3 * 28 * 28).map(|i| (i as f32 * k).sin()).collect();
        vec![Pixels { size: 28, values: wave(0.1) }, Pixels { size: 28, values: wave(0.37) }]
    }

    /// 28 x 28 in patches of 14: exactly four rows, five with CLS.
    #[test]
    fn rows_of_a_small_image() {
        for (drop_cls, rows) in [(true, 4), (false, 5)] {
            let model = VisionModel::init(&tiny(drop_cls), &Device::flex());
            assert_eq!(model.forward(&images()).dims(), [2, rows, 8]);
            assert_eq!(model.rows_per_image(), rows);
        }
    }

    #[test]
    fn a_batch_equals_its_images() {
        let model = VisionModel::init(&tiny(true), &Device::flex());
        let both = model.forward(&images());
        let second = model.forward(&images()[1..]);
        let diff = (both.narrow(0, 1, 1) - second).abs().max().into_scalar::<f32>();
        assert!(diff < 1e-5, "{diff}");
    }

    #[test]
    fn it_learns_from_a_random_start() {
        let device = Device::flex().autodiff();
        device.seed(7);
        let mut model = VisionModel::init(&tiny(true), &device);
        let mut optimizer = AdamWConfig::new().init();
        let goal = Tensor::<3>::ones([2, 4, 8], &device);
        let mut losses = Vec::new();
        for _ in 0..30 {
            let loss = (model.forward(&images()) - goal.clone()).powf_scalar(2.0).mean();
            losses.push(loss.clone().into_scalar::<f32>());
            let gradients = GradientsParams::from_grads(loss.backward(), &model);
            model = optimizer.step(1e-2, model, gradients);
        }
        assert!(losses[29] < 0.2 * losses[0], "{losses:?}");
    }
}
