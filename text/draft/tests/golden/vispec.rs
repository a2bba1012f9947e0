//! ViSpec: the two training passes with their gradients, text alone, and cached inference over a compressed image.

use burn::prelude::*;
use burn::tensor::activation::softmax;
use sightdraft_draft::{Draft, DraftModel, FeatureRows, ViSpec};
use sightdraft_fixtures::{Fixture, Recording, TOLERANCE, recordings};
use sightdraft_target::Mask;

use crate::llava::{check_continuation, check_gradients, next_is_image, open, target};

fn vispec(model: &DraftModel) -> &ViSpec {
    match model {
        DraftModel::ViSpec(draft) => draft,
        _ => panic!("an adaptor makes a ViSpec draft"),
    }
}

fn near(name: &str, found: &Tensor<1>, fixture: &Fixture) {
    let (found, expected) = (found.clone().into_scalar::<f32>(), fixture.f32(name)[0]);
    println!("{name}: |diff| {:.2e}", (found - expected).abs());
    assert!((found - expected).abs() <= TOLERANCE, "{name}: {found} instead of {expected}");
}

/// -log of the Plackett-Luce likelihood of the order in which `logits` `[m, k]` stand, `[m]` summed.
fn plackett_luce(logits: Tensor<2>) -> Tensor<1> {
    let k = logits.dims()[1];
    let later = (0..k).map(|i| logits.clone().narrow(1, i, k - i).exp().sum_dim(1).log());
    (Tensor::cat(later.collect(), 1) - logits).sum()
}

/// Ten times the L1 distance of the distributions and a tenth of the ranking loss over the teacher's best ten, as published;
/// both means over the trained rows of all steps.
fn loss(draft: &ViSpec, fixture: &Fixture, predicts: Vec<Tensor<3>>, device: &Device) -> Tensor<1> {
    let on = fixture.u8("loss_mask_shifted");
    let rows: Vec<i32> = (0..on.len()).filter(|&row| on[row] != 0).map(|row| row as i32).collect();
    let rows = Tensor::<1, Int>::from_ints(rows.as_slice(), device);
    let head = |hidden: Tensor<3>| draft.logits(hidden.select(1, rows.clone())).squeeze_dim::<2>(0);
    let teacher = softmax(head(fixture.tensor("target", device)), 1);
    let (_, best) = teacher.clone().topk_with_indices(10, 1);
    let count = (predicts.len() * rows.dims()[0]) as f64;
    let (mut l1, mut rank) = (Tensor::<1>::zeros([1], device), Tensor::<1>::zeros([1], device));
    for predict in predicts {
        let logits = head(predict);
        l1 = l1 + (softmax(logits.clone(), 1) - teacher.clone()).abs().sum() / count;
        rank = rank + plackett_luce(logits.gather(1, best.clone())) / count;
    }
    near("l1", &l1, fixture);
    near("rank", &rank, fixture);
    l1 * 10.0 + rank * 0.1
}

#[test]
fn fixture_training_passes_are_the_same() {
    for recording in recordings("vispec", "adapted_image_tokens") {
        check_training(&recording);
    }
}

fn check_training(recording: &Recording) {
    let device = Device::flex().autodiff();
    let model = open(recording, &target(&device), &device);
    let (draft, fixture) = (vispec(&model), &recording.fixture);
    assert_eq!(draft.eagle.config.num_q, fixture.shape("adapted_image_tokens")[1]);
    let embeds = fixture.tensor::<3>("inputs_embeds_shifted", &device);
    let n = embeds.dims()[1];
    let image = next_is_image(&fixture.u8("image_mask"));
    let first = image.iter().position(Option::is_some).unwrap();
    let own = embeds.clone().narrow(1, first, image.iter().flatten().count()).squeeze_dim::<2>(0);
    fixture.check("adapted_image_tokens", draft.imadpt.forward(own).unsqueeze::<3>());
    let rows = FeatureRows {
        features: fixture.tensor("hidden_states", &device),
        embeds: embeds.clone(),
        positions: &[(0..n).collect()],
        mask: &Mask::Causal,
        image: &[image],
    };
    let passes = model.unroll(rows, 0, &[embeds]);
    fixture.check("predict", passes[0].predict.clone());
    fixture.check("mtp_predict", passes[1].predict.clone());
    let predicts: Vec<Tensor<3>> = passes.into_iter().map(|pass| pass.predict).collect();
    fixture.check("logits", model.logits(Tensor::cat(predicts.clone(), 0)));
    let loss = loss(draft, fixture, predicts, &device);
    near("loss", &loss, fixture);
    let gradients = loss.backward();
    let adaptor = &draft.imadpt;
    let matrices = [
        ("img_fc", &draft.img_fc),
        ("imadpt.k_proj", &adaptor.k_proj),
        ("imadpt.v_proj", &adaptor.v_proj),
        ("imadpt.o_proj", &adaptor.o_proj),
    ];
    check_gradients(fixture, &gradients, &draft.eagle, &matrices);
    fixture.check("grad.imadpt.q", adaptor.q.val().grad(&gradients).unwrap());
}

#[test]
fn fixture_text_alone_is_the_same() {
    let device = Device::flex();
    let target = target(&device);
    for recording in recordings("vispec", "input_ids_shifted") {
        let (model, fixture) = (open(&recording, &target, &device), &recording.fixture);
        let ids: Vec<u32> = fixture.i64("input_ids_shifted").iter().map(|&id| id as u32).collect();
        let rows = FeatureRows {
            features: fixture.tensor("hidden_states", &device),
            embeds: target.embed_ids(&ids),
            positions: &[(0..ids.len()).collect()],
            mask: &Mask::Causal,
            image: &[vec![None; ids.len()]],
        };
        fixture.check("predict", model.extend(&mut model.start(), rows).predict);
    }
}

#[test]
fn fixture_inference_with_a_compressed_cache_is_the_same() {
    let device = Device::flex();
    let target = target(&device);
    for recording in recordings("vispec", "draft_tokens") {
        let (model, fixture) = (open(&recording, &target, &device), &recording.fixture);
        let ids = fixture.i64("input_ids");
        let prompt = fixture.tensor::<3>("inputs_embeds", &device);
        let n = prompt.dims()[1];
        let embeds = Tensor::cat(vec![prompt.narrow(1, 1, n - 1), target.embed_ids(&[ids[n] as u32])], 1);
        let image = next_is_image(&fixture.u8("image_mask"));
        let kept: Vec<i64> = model.keyed_rows(&image).iter().map(|&row| row as i64).collect();
        assert_eq!(kept, fixture.i64("prefill_position_ids"));
        let rows = FeatureRows {
            features: fixture.tensor("hidden_states", &device),
            embeds,
            positions: &[(0..n).collect()],
            mask: &Mask::Causal,
            image: &[image],
        };
        let mut state = model.start();
        let pass = model.extend(&mut state, rows);
        assert_eq!(state.cache.len() as i64, fixture.i64("stable_k_len")[0]);
        fixture.check("stable_k", state.cache.layer(0).unwrap().0);
        fixture.check("step0.logits", model.logits(pass.predict.narrow(1, n - 1, 1)).squeeze_dim::<2>(0));
        check_continuation(&model, &mut state, &target, fixture);
    }
}
