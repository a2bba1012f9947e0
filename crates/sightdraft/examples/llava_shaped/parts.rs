//! The parts: a tower and a language model that stay as they are, and a projector between them.

use std::path::Path;

use burn::module::{Module, Param};
use burn::prelude::*;
use burn::tensor::DType;
use serde_json::{Value, json};
use sightdraft_core::{Checkpoint, Result, files};
use sightdraft_target::load::load_text;
use sightdraft_target::{Llama, LlamaConfig, Llava, Projection};
use sightdraft_vision::{
    Family, Pixels, PreprocessConfig, Preprocessor, Projector, Resize, VisionConfig, VisionModel, VisionTower,
};

use crate::Arguments;

/// The tower's own geometry, but for the side of the image, and the layer that is read.
///
/// # Errors
/// A config that is missing or does not fit.
pub fn vision_config(arguments: &Arguments) -> Result<VisionConfig> {
    let path = arguments.vision.join("config.json");
    let mut tower: Value = files::read_json(&path)?;
    // CLIP's own directories hold both towers, or the vision side alone.
    if tower["vision_config"].is_object() {
        tower = tower["vision_config"].take();
    }
    tower["image_size"] = json!(arguments.image_size);
    let keys = json!({"vision_config": tower, "vision_feature_layer": arguments.feature_layer});
    VisionConfig::from_llava(&keys, LlamaConfig::open(&arguments.text)?.hidden_size, &path)
}

/// The whole image squeezed to a square: a crop would lose the ends of a chart, and padding would spend rows on nothing.
pub fn preprocessing(vision: &VisionConfig) -> Preprocessor {
    let side = vision.image_size;
    let mut config = PreprocessConfig::clip(side, false);
    config.resize = Resize::Exact { width: side, height: side };
    if vision.family == Family::Dinov2 {
        (config.mean, config.std) = (IMAGENET_MEAN, IMAGENET_STD);
    }
    Preprocessor { config }
}

/// The channel means that DINOv2 was trained with.
const IMAGENET_MEAN: [f32; 3] = [0.485, 0.456, 0.406];
/// The channel deviations.
const IMAGENET_STD: [f32; 3] = [0.229, 0.224, 0.225];

/// Both towers frozen, the projector fresh and fitted to what it reads and to whom it speaks; `shown` are some images.
///
/// # Errors
/// Weights that are missing, damaged or do not fit.
pub fn join(
    arguments: &Arguments,
    config: VisionConfig,
    image_token: u32,
    shown: &[Pixels],
    device: &Device,
) -> Result<Llava> {
    let llama = untied(load_text(&arguments.text, DType::F32, device)?).no_grad();
    let tower = load_tower(&arguments.vision, &config, device)?.no_grad();
    let mut vision = VisionModel { tower, projector: Projector::init(&config, device), config };
    let features = vision.features(Pixels::batch(shown, device));
    vision.projector = fitted(vision.projector, features, deviation(llama.embed_tokens.weight.val()));
    Ok(Llava { vision, llama, image_token })
}

fn load_tower(dir: &Path, config: &VisionConfig, device: &Device) -> Result<VisionTower> {
    let prefix = match config.family {
        Family::Clip => "vision_model.",
        Family::Dinov2 => "",
    };
    VisionTower::load(&Checkpoint::open(dir)?.with_dtype(DType::F32)?, prefix, config, device)
}

/// A tied head as a matrix of its own for the training: gradients pass through it row by row. It is not saved.
fn untied(mut llama: Llama) -> Llama {
    if llama.lm_head.is_none() {
        let table = llama.embed_tokens.weight.val();
        let weight = Tensor::from_data(table.clone().transpose().into_data(), &table.device());
        llama.lm_head = Some(Projection::from_weight(weight));
    }
    llama
}

/// The projector as if its first layer read `features` `[images, rows, width]` standardised channel by channel, and with rows that
/// deviate as much as `target`, as the embeddings of words do.
fn fitted(projector: Projector, features: Tensor<3>, target: f32) -> Projector {
    let [images, rows, width] = features.dims();
    let flat = features.clone().reshape([images * rows, width]);
    let mean = flat.clone().mean_dim(0);
    let std = ((flat - mean.clone()).square().mean_dim(0) + 1e-6).sqrt();
    let mut projector = projector;
    let weight = projector.linear_1.weight.val() / std.transpose();
    projector.linear_1.bias = Some(leaf(-mean.matmul(weight.clone()).squeeze_dim::<1>(0)));
    projector.linear_1.weight = leaf(weight);
    let scale = target / deviation(projector.forward(features).flatten(0, 1));
    projector.linear_2.weight = leaf(projector.linear_2.weight.val() * scale);
    projector
}

/// A parameter with no history.
fn leaf<const D: usize>(tensor: Tensor<D>) -> Param<Tensor<D>> {
    Param::from_tensor(tensor.detach())
}

/// Root of the mean square.
fn deviation(x: Tensor<2>) -> f32 {
    x.square().mean().into_scalar::<f32>().sqrt()
}
