//! The recorded LLaVA, and drafts for it.

use burn::prelude::*;
use burn::tensor::Gradients;
use sightdraft_core::Checkpoint;
use sightdraft_draft::{Draft, DraftModel, DraftState, Eagle1, FeatureRows};
use sightdraft_fixtures::{Fixture, Recording, root};
use sightdraft_target::load::load_llama;
use sightdraft_target::{Llama, LlavaConfig, Mask, Projection};

use crate::family::check_layer;

/// The language model of `hf_llava`.
pub fn target(device: &Device) -> Llama {
    let dir = root().join("hf_llava");
    let checkpoint = Checkpoint::open_file(&dir.join("model.safetensors")).unwrap();
    let config = LlavaConfig::open(&dir).unwrap().text;
    load_llama(&checkpoint, &config, "language_model.model.", "language_model.lm_head", device).unwrap()
}

/// The draft that was recorded.
pub fn open(recording: &Recording, target: &Llama, device: &Device) -> DraftModel {
    println!("{}", recording.name);
    DraftModel::open(recording.draft_dir().path(), target, device).unwrap()
}

/// Which image the row after each row belongs to, where one image's rows are marked.
pub fn next_is_image(mask: &[u8]) -> Vec<Option<usize>> {
    mask[1..].iter().chain([&0]).map(|&image| (image != 0).then_some(0)).collect()
}

/// The call after the first tree, on the rows that were accepted.
pub fn check_continuation(model: &DraftModel, state: &mut DraftState, target: &Llama, fixture: &Fixture) {
    let before = fixture.i64("input_ids").len();
    let next: Vec<u32> = fixture.i64("cont.input_ids")[before..].iter().map(|&id| id as u32).collect();
    let positions = fixture.i64("cont.prefill_position_ids").iter().map(|&position| position as usize).collect();
    let rows = FeatureRows {
        features: fixture.tensor("cont.hidden_states", &Device::flex()),
        embeds: target.embed_ids(&next),
        positions: &[positions],
        mask: &Mask::Causal,
        image: &[vec![None; next.len()]],
    };
    let pass = model.extend(state, rows);
    fixture.check("cont.step0.logits", model.logits(pass.predict.narrow(1, next.len() - 1, 1)).squeeze_dim::<2>(0));
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
