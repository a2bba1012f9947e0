//! The recorded LLaVA, and drafts for it.

use std::path::Path;

use burn::prelude::*;
use burn::tensor::Gradients;
use sightdraft_core::Checkpoint;
use sightdraft_draft::{DraftModel, Eagle1};
use sightdraft_fixtures::{Fixture, root};
use sightdraft_target::load::load_llama;
use sightdraft_target::{Llama, LlavaConfig, Projection};

use crate::family::check_layer;

/// The language model of `hf_llava`.
pub fn target(device: &Device) -> Llama {
    let dir = root().join("hf_llava");
    let checkpoint = Checkpoint::open_file(&dir.join("model.safetensors")).unwrap();
    let config = LlavaConfig::open(&dir).unwrap().text;
    load_llama(&checkpoint, &config, "language_model.model.", "language_model.lm_head", device).unwrap()
}

/// The draft of `folder` whose weights are in `weights`.
pub fn open(folder: &str, weights: &str, target: &Llama, device: &Device) -> DraftModel {
    let (from, dir) = (root().join(folder), tempfile::tempdir().unwrap());
    let copy = |from: &Path, name: &str| std::fs::copy(from, dir.path().join(name)).unwrap();
    copy(&from.join("config.json"), "config.json");
    copy(&from.join(weights), "model.safetensors");
    DraftModel::open(dir.path(), target, device).unwrap()
}

/// Which image the row after each row belongs to, where one image's rows are marked.
pub fn next_is_image(mask: &[u8]) -> Vec<Option<usize>> {
    mask[1..].iter().chain([&0]).map(|&image| (image != 0).then_some(0)).collect()
}

/// Gradients of the named matrices and of fusion and layer against the recorded ones.
pub fn check_gradients(fixture: &Fixture, gradients: &Gradients, eagle: &Eagle1, more: &[(&str, &Projection)]) {
    let matrix = |name: &str, layer: &Projection| {
        let layer = layer.plain();
        fixture.check(&format!("grad.{name}.weight"), layer.weight.val().grad(gradients).unwrap().transpose());
        if let Some(bias) = &layer.bias {
            fixture.check(&format!("grad.{name}.bias"), bias.val().grad(gradients).unwrap());
        }
    };
    let norm = |name: &str, gamma: Tensor<1>| {
        fixture.check(&format!("grad.{name}.weight"), gamma.grad(gradients).unwrap());
    };
    matrix("fc", &eagle.fc);
    check_layer(&eagle.layer, &matrix, &norm);
    more.iter().for_each(|(name, layer)| matrix(name, layer));
}
