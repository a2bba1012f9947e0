//! EAGLE-1, HASS and GRIFFIN: unrolls, the target's head over them, published losses and their gradients.

use burn::prelude::*;
use burn::tensor::activation::{log_softmax, softmax};
use sightdraft_draft::layer::UnnormedLayer;
use sightdraft_draft::{Draft, DraftModel, DraftPass, FeatureRows, Method};
use sightdraft_fixtures::{self as fixtures, Fixture, TOLERANCE, recordings, root};
use sightdraft_target::{Llama, Mask, Projection};

use crate::{mask, target};

/// One recorded unroll over the rows of a file.
struct Recording {
    fixture: Fixture,
    device: Device,
    target: Llama,
    draft: DraftModel,
}

impl Recording {
    fn open(recording: fixtures::Recording, packed: bool) -> Self {
        println!("{}", recording.name);
        let (target, device) = (target(packed), Device::flex().autodiff());
        let draft = DraftModel::open(recording.draft_dir().path(), &target, &device).unwrap();
        Self { fixture: recording.fixture, device, target, draft }
    }

    fn unroll(&self, steps: usize) -> Vec<DraftPass> {
        let features = self.fixture.tensor::<3>("hidden_states", &self.device);
        let [batch, n, _] = features.dims();
        let ids: Vec<i32> = self.fixture.i64("input_ids_shifted").iter().map(|&id| id as i32).collect();
        let ids = Tensor::<1, Int>::from_ints(ids.as_slice(), &Device::flex()).reshape([batch, n]);
        let embeds = self.target.embed(ids);
        let rows = FeatureRows {
            features,
            embeds: embeds.clone(),
            positions: &[(0..n).collect()],
            mask: &mask(&self.fixture.i64("attention_mask"), n),
            image: &vec![vec![None; n]; batch],
        };
        self.draft.unroll(rows, 0, &vec![embeds; steps - 1])
    }

    /// `[B, n, 1]`.
    fn mask(&self, name: &str) -> Tensor<3> {
        let values: Vec<f32> = self.fixture.i64(name).iter().map(|&on| on as f32).collect();
        let [batch, n]: [usize; 2] = self.fixture.shape(name).try_into().unwrap();
        Tensor::from_data(TensorData::new(values, [batch, n, 1]), &self.device)
    }

    fn teacher(&self) -> Tensor<3> {
        self.fixture.tensor("target", &self.device)
    }

    /// What the target says of its own features.
    fn teacher_says(&self) -> Tensor<3> {
        softmax(self.target.logits(self.fixture.tensor("target", &Device::flex())), 2)
    }

    fn check_scalar(&self, name: &str, found: Tensor<1>) {
        let (found, expected): (f32, f32) = (found.into_scalar(), self.fixture.f32(name)[0]);
        println!("{name}: |diff| {:.2e}", (found - expected).abs());
        assert!((found - expected).abs() <= TOLERANCE, "{name}: {found} instead of {expected}");
    }

    fn check_gradients(&self, prefix: &str, loss: Tensor<1>) {
        let gradients = loss.backward();
        let fixture = &self.fixture;
        let matrix = |name: &str, layer: &Projection| {
            let Projection::Plain(layer) = layer else { panic!("{name} is packed") };
            let gradient = layer.weight.val().grad(&gradients).unwrap();
            fixture.check(&format!("{prefix}grad.{name}.weight"), gradient.transpose());
            if let Some(bias) = &layer.bias {
                fixture.check(&format!("{prefix}grad.{name}.bias"), bias.val().grad(&gradients).unwrap());
            }
        };
        let norm = |name: &str, gamma: Tensor<1>| {
            fixture.check(&format!("{prefix}grad.{name}.weight"), gamma.grad(&gradients).unwrap());
        };
        match &self.draft {
            DraftModel::Eagle1(draft) => {
                matrix("fc", &draft.fc);
                check_layer(&draft.layer, &matrix, &norm);
            }
            DraftModel::Griffin(draft) => {
                matrix("fc.fc", &draft.fc.fc);
                matrix("fc.mlp.up_proj", &draft.fc.up_proj);
                matrix("fc.mlp.down_proj", &draft.fc.down_proj);
                norm("fc.mlp.input_layernorm", draft.fc.input_layernorm.gamma.val());
                norm("fc.post_attention_layernorm", draft.fc.post_attention_layernorm.gamma.val());
                check_layer(&draft.layer, &matrix, &norm);
            }
            _ => panic!("another draft"),
        }
    }
}

pub fn check_layer(layer: &UnnormedLayer, matrix: &dyn Fn(&str, &Projection), norm: &dyn Fn(&str, Tensor<1>)) {
    matrix("layers.0.mlp.gate_proj", &layer.mlp.gate_proj);
    matrix("layers.0.mlp.up_proj", &layer.mlp.up_proj);
    matrix("layers.0.mlp.down_proj", &layer.mlp.down_proj);
    matrix("layers.0.self_attn.q_proj", &layer.self_attn.q_proj);
    matrix("layers.0.self_attn.k_proj", &layer.self_attn.k_proj);
    matrix("layers.0.self_attn.v_proj", &layer.self_attn.v_proj);
    matrix("layers.0.self_attn.o_proj", &layer.self_attn.o_proj);
    norm("layers.0.post_attention_layernorm", layer.post_attention_layernorm.gamma.val());
}

/// Sum of `cells` `[B, n, 1]` per row that the mask keeps, as all three methods divide.
fn per_row(cells: Tensor<3>, mask: &Tensor<3>) -> Tensor<1> {
    (cells * mask.clone()).sum() / (mask.clone().sum() + 1e-5)
}

pub fn smooth_l1(found: &Tensor<3>, target: Tensor<3>, mask: &Tensor<3>) -> Tensor<1> {
    let distance = (found.clone() - target).abs();
    let near = distance.clone().powi_scalar(2) * 0.5;
    let far = distance.clone() - 0.5;
    per_row(far.mask_where(distance.lower_elem(1.0), near).mean_dim(2), mask)
}

pub fn cross_entropy(logits: Tensor<3>, teacher: Tensor<3>, mask: &Tensor<3>) -> Tensor<1> {
    per_row((teacher * log_softmax(logits, 2)).sum_dim(2).neg(), mask)
}

fn top_ten(logits: Tensor<3>, teacher: Tensor<3>, mask: &Tensor<3>) -> Tensor<1> {
    let (p, ids) = teacher.topk_with_indices(10, 2);
    per_row((p * log_softmax(logits, 2).gather(2, ids)).sum_dim(2).neg(), mask)
}

#[test]
fn fixture_eagle1_training_steps_are_the_same() {
    let both = |packed| recordings("eagle1", "out_logits").into_iter().map(move |one| Recording::open(one, packed));
    for recording in both(false).chain(both(true)) {
        assert_eq!(recording.draft.taps(), [8]);
        let pass = &recording.unroll(1)[0];
        let (fixture, mask) = (&recording.fixture, recording.mask("loss_mask"));
        fixture.check("predict", pass.predict.clone());
        let logits = recording.draft.logits(pass.predict.clone());
        fixture.check("out_logits", logits.clone());
        let vloss = smooth_l1(&pass.hidden, recording.teacher(), &mask);
        let ploss = cross_entropy(logits, recording.teacher_says(), &mask);
        recording.check_scalar("vloss", vloss.clone());
        recording.check_scalar("ploss", ploss.clone());
        let loss = vloss + ploss * 0.1;
        recording.check_scalar("loss", loss.clone());
        recording.check_gradients("", loss);
    }
}

/// The three steps of HASS or GRIFFIN with `weight` on the distillation: every figure, and the gradient of their sum.
fn check_three_steps(recording: &Recording, weight: f64) {
    let fixture = &recording.fixture;
    let mut total = Tensor::<1>::zeros([1], &recording.device);
    for (step, pass) in recording.unroll(3).into_iter().enumerate() {
        let name = |tail: &str| format!("corrected3.step{step}.{tail}");
        fixture.check(&name("predict"), pass.predict.clone());
        if fixture.has(&name("regress")) {
            fixture.check(&name("regress"), pass.hidden.clone());
        }
        let logits = recording.draft.logits(pass.predict);
        fixture.check(&name("logits"), logits.clone());
        let own = name("loss_mask");
        let mask = recording.mask(if fixture.has(&own) { &own } else { "loss_mask" });
        let vloss = smooth_l1(&pass.hidden, recording.teacher(), &mask);
        let ploss = cross_entropy(logits.clone(), recording.teacher_says(), &mask);
        let topk = top_ten(logits, recording.teacher_says(), &mask);
        recording.check_scalar(&name("vloss"), vloss.clone());
        recording.check_scalar(&name("ploss"), ploss.clone());
        recording.check_scalar(&name("topk_loss"), topk.clone());
        let loss = vloss + ploss * 0.1 + topk * weight;
        recording.check_scalar(&name("total"), loss.clone());
        total = total + loss;
    }
    recording.check_gradients("corrected3.", total);
}

#[test]
fn fixture_hass_unroll_is_the_same() {
    for recording in recordings("hass", "corrected3.step0.predict") {
        check_three_steps(&Recording::open(recording, true), 1.0);
    }
}

#[test]
fn fixture_griffin_unroll_is_the_same() {
    for recording in recordings("griffin", "corrected3.step0.predict") {
        check_three_steps(&Recording::open(recording, true), 0.5);
    }
}

/// Rows one by one over the cache, then two at once, are the rows all at once.
#[test]
fn fixture_continuation_with_the_stable_cache_is_the_same() {
    for (folder, predict) in
        [("eagle1", "predict"), ("hass", "inference_class.predict"), ("griffin", "inference_class.predict")]
    {
        for recording in recordings(folder, predict) {
            check_continuation(&recording, predict);
        }
    }
}

/// Packed as it serves, but not rounded.
fn packed(draft: DraftModel) -> DraftModel {
    match draft {
        DraftModel::Eagle1(draft) => DraftModel::Eagle1(draft.for_inference()),
        DraftModel::Griffin(draft) => DraftModel::Griffin(draft.for_inference()),
        DraftModel::ViSpec(draft) => DraftModel::ViSpec(draft.for_inference()),
        DraftModel::Eagle3(draft) => DraftModel::Eagle3(draft.for_inference()),
    }
}

fn check_continuation(recording: &fixtures::Recording, predict: &str) {
    let (device, target) = (Device::flex(), target(true));
    let draft = packed(DraftModel::open(recording.draft_dir().path(), &target, &device).unwrap());
    let fixture = &recording.fixture;
    let features = fixture.tensor::<3>("hidden_states", &device).narrow(0, 0, 1);
    let n = features.dims()[1];
    let ids: Vec<u32> = fixture.i64("input_ids_shifted")[..n].iter().map(|&id| id as u32).collect();
    let embeds = target.embed_ids(&ids);
    let mut state = draft.start();
    let mut parts = Vec::new();
    for rows in [0..1, 1..n - 2, n - 2..n] {
        let (start, count) = (rows.start, rows.len());
        let part = |x: &Tensor<3>| x.clone().narrow(1, start, count);
        // What a tree leaves in the cache is forgotten.
        let guess = part(&features).narrow(1, 0, 1);
        draft.step(&mut state, guess.clone(), guess, &[vec![start]], &Mask::Causal);
        state.cache.truncate(start);
        let rows = FeatureRows {
            features: part(&features),
            embeds: part(&embeds),
            positions: &[rows.collect()],
            mask: &Mask::Causal,
            image: &[vec![None; count]],
        };
        parts.push(draft.extend(&mut state, rows).predict);
    }
    let whole = fixture.tensor::<3>(predict, &device).narrow(0, 0, 1);
    let diff: f32 = (Tensor::cat(parts, 1) - whole).abs().max().into_scalar();
    println!("{}: max |diff| {diff:.2e}", recording.name);
    assert!(diff <= TOLERANCE, "{}: {diff}", recording.name);
}

#[test]
fn fixture_layouts_come_back_whole() {
    for (folder, method) in [("eagle1", Method::Eagle1), ("griffin", Method::Griffin)] {
        let (target, device) = (target(false), Device::flex());
        let draft = DraftModel::open(&root().join(folder), &target, &device).unwrap();
        assert_eq!(draft.published().config().method, method);
        let published = Fixture::open(&root().join(folder).join("model.safetensors"));
        let mut tensors = draft.published().tensors();
        tensors.sort_by(|a, b| a.0.cmp(&b.0));
        assert_eq!(tensors.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>(), published.names(), "{folder}");
        for (name, data) in tensors {
            assert_eq!(data.iter::<f32>().collect::<Vec<_>>(), published.f32(&name), "{folder}: {name}");
        }
    }
}
