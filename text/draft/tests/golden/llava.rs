//! The recorded LLaVA, and drafts for it.

use std::path::Path;

use burn::module::Param;
use burn::prelude::*;
use burn::tensor::Gradients;
use sightdraft_core::Checkpoint;
use sightdraft_draft::{DraftModel, Eagle1};
use sightdraft_fixtures::{Fixture, root};
use sightdraft_target::load::load_llama;
use sightdraft_target::{Llama, LlavaConfig, Projection};

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

/// Gradients of matrices and biases against the recorded ones.
pub fn check_matrices(fixture: &Fixture, gradients: &Gradients, matrices: &[(&str, &Projection)]) {
    for (name, matrix) in matrices {
        let plain = matrix.plain();
        fixture.check(&format!("grad.{name}.weight"), plain.weight.val().grad(gradients).unwrap().transpose());
        if let Some(bias) = &plain.bias {
            check_parameter(fixture, gradients, &format!("{name}.bias"), bias);
        }
    }
}

/// A parameter's gradient against the recorded one.
pub fn check_parameter<const D: usize>(
    fixture: &Fixture,
    gradients: &Gradients,
    name: &str,
    parameter: &Param<Tensor<D>>,
) {
    fixture.check(&format!("grad.{name}"), parameter.val().grad(gradients).unwrap());
}

/// Gradients of fusion and layer.
pub fn check_eagle(fixture: &Fixture, gradients: &Gradients, eagle: &Eagle1) {
    let (attention, mlp) = (&eagle.layer.self_attn, &eagle.layer.mlp);
    let matrices = [
        ("fc", &eagle.fc),
        ("layers.0.self_attn.q_proj", &attention.q_proj),
        ("layers.0.self_attn.k_proj", &attention.k_proj),
        ("layers.0.self_attn.v_proj", &attention.v_proj),
        ("layers.0.self_attn.o_proj", &attention.o_proj),
        ("layers.0.mlp.gate_proj", &mlp.gate_proj),
        ("layers.0.mlp.up_proj", &mlp.up_proj),
        ("layers.0.mlp.down_proj", &mlp.down_proj),
    ];
    check_matrices(fixture, gradients, &matrices);
    let norm = &eagle.layer.post_attention_layernorm.gamma;
    check_parameter(fixture, gradients, "layers.0.post_attention_layernorm.weight", norm);
}
