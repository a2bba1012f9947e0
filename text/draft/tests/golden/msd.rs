//! MSD: a padded batch of a visual and a textual sample, and cached inference behind a 576-row image.

use burn::prelude::*;
use burn::tensor::activation::softmax;
use sightdraft_draft::{Draft, DraftModel, Eagle1, FeatureRows, Method};
use sightdraft_fixtures::{Fixture, TOLERANCE, recordings};
use sightdraft_target::Mask;

use crate::family::{cross_entropy, smooth_l1};
use crate::llava::{check_continuation, check_gradients, open, target};
use crate::mask;

fn eagle(model: &DraftModel) -> &Eagle1 {
    match model {
        DraftModel::Eagle1(eagle) => eagle,
        _ => panic!("MSD has EAGLE-1's tensors"),
    }
}

/// The published loss: the distance of features plus a tenth of the cross-entropy.
fn loss(draft: &Eagle1, fixture: &Fixture, predict: Tensor<3>, device: &Device) -> Tensor<1> {
    let [batch, n, _] = predict.dims();
    let on: Vec<f32> = fixture.i64("loss_mask").iter().map(|&on| on as f32).collect();
    let on = Tensor::<3>::from_data(TensorData::new(on, [batch, n, 1]), device);
    let target = fixture.tensor::<3>("target", device);
    let teacher = softmax(draft.shared.logits(target.clone()), 2);
    let ploss = cross_entropy(draft.shared.logits(predict.clone()), teacher, &on);
    let vloss = smooth_l1(&predict, target, &on);
    for (name, found) in [("ploss", &ploss), ("vloss", &vloss)] {
        let (found, expected) = (found.clone().into_scalar::<f32>(), fixture.f32(name)[0]);
        assert!((found - expected).abs() <= TOLERANCE, "{name}: {found} instead of {expected}");
    }
    vloss + ploss * 0.1
}

/// The rows at which the draft meets the image of a visual sample of `ids` that is expanded to `n` rows, one row before it stands
/// in the sequence.
fn image_rows(ids: &[i64], n: usize) -> std::ops::Range<usize> {
    let start = ids.iter().position(|&id| id == -200).unwrap() - 1;
    start..start + n - (ids.len() - 1)
}

#[test]
fn fixture_training_steps_are_the_same() {
    let device = Device::flex().autodiff();
    let target = target(&device);
    for recording in recordings("msd", "inputs_embeds_shifted") {
        let model = open(&recording, &target, &device);
        let draft = eagle(&model);
        assert_eq!(draft.config.method, Method::Msd);
        let fixture = &recording.fixture;
        let n = fixture.shape("attention_mask")[1];
        let mask = mask(&fixture.i64("attention_mask"), n);
        let visual = image_rows(&fixture.i64("raw_ids_visual"), n);
        let visual = (0..n).map(|row| visual.contains(&row).then_some(0)).collect();
        let rows = FeatureRows {
            features: fixture.tensor("hidden_states", &device),
            embeds: fixture.tensor("inputs_embeds_shifted", &device),
            positions: &[(0..n).collect()],
            mask: &mask,
            image: &[visual, vec![None; n]],
        };
        let mut passes = model.unroll(rows, 0, &[]);
        assert_eq!(passes.len(), 1);
        let predict = passes.remove(0).predict;
        fixture.check("predict", predict.clone());
        fixture.check("logits", model.logits(predict.clone()));
        let loss = loss(draft, fixture, predict, &device);
        let expected = fixture.f32("loss")[0];
        assert!((loss.clone().into_scalar::<f32>() - expected).abs() <= TOLERANCE);
        check_gradients(fixture, &loss.backward(), draft, &[]);
    }
}

#[test]
fn fixture_inference_behind_large_images_is_the_same() {
    let device = Device::flex();
    let target = target(&device);
    for recording in recordings("msd", "draft_tokens") {
        let model = open(&recording, &target, &device);
        let fixture = &recording.fixture;
        let ids = fixture.i64("input_ids");
        let prompt = fixture.tensor::<3>("inputs_embeds", &device);
        let n = prompt.dims()[1];
        let (root_token, asked) = ids.split_last().unwrap();
        let image = image_rows(asked, n);
        let embeds = Tensor::cat(vec![prompt.narrow(1, 1, n - 1), target.embed_ids(&[*root_token as u32])], 1);
        let rows = FeatureRows {
            features: fixture.tensor("hidden_states", &device),
            embeds,
            positions: &[(0..n).collect()],
            mask: &Mask::Causal,
            image: &[(0..n).map(|row| image.contains(&row).then_some(0)).collect()],
        };
        let mut state = model.start();
        let pass = model.extend(&mut state, rows);
        fixture.check("step0.logits", model.logits(pass.predict.narrow(1, n - 1, 1)).squeeze_dim::<2>(0));
        check_continuation(&model, &mut state, &target, fixture);
    }
}
