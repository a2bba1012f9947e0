//! MSD: a padded batch of a visual and a textual sample, and cached inference behind a 576-row image.

use burn::prelude::*;
use burn::tensor::activation::{log_softmax, softmax};
use sightdraft_draft::{Draft, DraftModel, Eagle1, FeatureRows, Method};
use sightdraft_fixtures::{Fixture, TOLERANCE, root};
use sightdraft_target::Mask;

use crate::llava::{check_eagle, open, target};

fn eagle(model: &DraftModel) -> &Eagle1 {
    match model {
        DraftModel::Eagle1(eagle) => eagle,
        _ => panic!("MSD has EAGLE-1's tensors"),
    }
}

/// Masked mean of the smooth L1 distance of features plus a tenth of the soft cross-entropy, as published.
fn loss(draft: &Eagle1, fixture: &Fixture, predict: Tensor<3>, device: &Device) -> Tensor<1> {
    let [batch, n, width] = predict.dims();
    let on: Vec<f32> = fixture.i64("loss_mask").iter().map(|&on| on as f32).collect();
    let on = Tensor::<3>::from_data(TensorData::new(on, [batch, n, 1]), device);
    let count = on.clone().sum() + 1e-5;
    let target = fixture.tensor::<3>("target", device);
    let p = softmax(draft.shared.logits(target.clone()), 2);
    let log_q = log_softmax(draft.shared.logits(predict.clone()), 2);
    let ploss = (p * log_q * on.clone()).sum() / count.clone() * -1.0;
    let far = (predict - target).abs();
    let smooth = far.clone().powf_scalar(2.0) * 0.5;
    let smooth = (far.clone() - 0.5).mask_where(far.lower_elem(1.0), smooth);
    let vloss = (smooth * on).sum() / width as f64 / count;
    for (name, found) in [("ploss", &ploss), ("vloss", &vloss)] {
        let (found, expected) = (found.clone().into_scalar::<f32>(), fixture.f32(name)[0]);
        assert!((found - expected).abs() <= TOLERANCE, "{name}: {found} instead of {expected}");
    }
    vloss + ploss * 0.1
}

#[test]
fn fixture_training_step_is_the_same() {
    let device = Device::flex().autodiff();
    let target = target(&device);
    let model = open("msd", "model.safetensors", &target, &device);
    let draft = eagle(&model);
    assert_eq!(draft.config.method, Method::Msd);
    let fixture = Fixture::open(&root().join("msd/train_step.safetensors"));
    let attention = fixture.i64("attention_mask");
    let n = fixture.shape("attention_mask")[1];
    let row = |real: &[i64], query: usize| (0..n).map(|key| key <= query && real[key] == 1).collect();
    let mask = Mask::Full(attention.chunks(n).map(|real| (0..n).map(|query| row(real, query)).collect()).collect());
    // The image stands at rows 5 to 8 of the sequence, which the draft meets one row earlier.
    let visual = (0..n).map(|row| (4..8).contains(&row).then_some(0)).collect();
    let rows = FeatureRows {
        features: fixture.tensor("hidden_states", &device),
        embeds: fixture.tensor("inputs_embeds_shifted", &device),
        positions: &[(0..n).collect()],
        mask: &mask,
        image: &[visual, vec![None; n]],
    };
    let mut passes = model.unroll(rows, &[]);
    assert_eq!(passes.len(), 1);
    let predict = passes.remove(0).predict;
    fixture.check("predict", predict.clone());
    fixture.check("logits", model.logits(predict.clone()));
    let loss = loss(draft, &fixture, predict, &device);
    let expected = fixture.f32("loss")[0];
    assert!((loss.clone().into_scalar::<f32>() - expected).abs() <= TOLERANCE);
    check_eagle(&fixture, &loss.backward(), draft);
}

#[test]
fn fixture_inference_behind_a_large_image_is_the_same() {
    let device = Device::flex();
    let target = target(&device);
    let model = open("msd", "model.safetensors", &target, &device);
    let fixture = Fixture::open(&root().join("msd/tree_576.safetensors"));
    let ids = fixture.i64("input_ids");
    let start = ids.iter().position(|&id| id == -200).unwrap();
    let prompt = fixture.tensor::<3>("inputs_embeds", &device);
    let n = prompt.dims()[1];
    let image_rows = n - (ids.len() - 2);
    assert_eq!(image_rows, 576);
    let root_token = *ids.last().unwrap() as u32;
    let embeds = Tensor::cat(vec![prompt.narrow(1, 1, n - 1), target.embed_ids(&[root_token])], 1);
    let image = (0..n).map(|row| (start..start + image_rows).contains(&(row + 1)).then_some(0)).collect();
    let rows = FeatureRows {
        features: fixture.tensor("hidden_states", &device),
        embeds,
        positions: &[(0..n).collect()],
        mask: &Mask::Causal,
        image: &[image],
    };
    let mut state = model.start();
    let pass = model.extend(&mut state, rows);
    fixture.check("step0.logits", model.logits(pass.predict.narrow(1, n - 1, 1)).squeeze_dim::<2>(0));
    let more = fixture.i64("cont.input_ids");
    let next: Vec<u32> = more[ids.len()..].iter().map(|&id| id as u32).collect();
    let positions = fixture.i64("cont.prefill_position_ids").iter().map(|&position| position as usize).collect();
    let rows = FeatureRows {
        features: fixture.tensor("cont.hidden_states", &device),
        embeds: target.embed_ids(&next),
        positions: &[positions],
        mask: &Mask::Causal,
        image: &[vec![None; next.len()]],
    };
    let pass = model.extend(&mut state, rows);
    fixture.check("cont.step0.logits", model.logits(pass.predict.narrow(1, next.len() - 1, 1)).squeeze_dim::<2>(0));
}
