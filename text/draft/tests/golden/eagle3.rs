//! The unroll (hidden states, logits, losses, gradients) and cached inference.

use std::path::Path;

use burn::prelude::*;
use burn::tensor::activation::{log_softmax, softmax};
use sightdraft_core::Checkpoint;
use sightdraft_draft::{Draft, DraftConfig, Eagle3, FeatureRows};
use sightdraft_fixtures::{Fixture, TOLERANCE, files, recordings, root};
use sightdraft_target::{LlamaConfig, Mask, Projection};

use crate::mask;

/// The draft in `dir`, for the recorded target.
fn open(dir: &Path, device: &Device) -> Eagle3 {
    let target = LlamaConfig::open(&root().join("hf_llama_gqa")).unwrap();
    let config = DraftConfig::open(dir, &target).unwrap();
    // The recordings' own: inputs of layers 2, N/2 and N-3.
    let layers = target.num_hidden_layers;
    assert_eq!(config.taps, [2, layers / 2, layers - 3]);
    Eagle3::load(&Checkpoint::open_file(&dir.join("model.safetensors")).unwrap(), config, device).unwrap()
}

/// Rows shifted left by one, zeros at the end.
fn shift<const D: usize>(x: Tensor<D>) -> Tensor<D> {
    let n = x.dims()[1];
    let tail = x.clone().narrow(1, 0, 1).zeros_like();
    Tensor::cat(vec![x.narrow(1, 1, n - 1), tail], 1)
}

/// Embeddings shifted left by one; the id that comes in is 0, as in the last row already.
fn shift_ids(x: Tensor<3>) -> Tensor<3> {
    let n = x.dims()[1];
    Tensor::cat(vec![x.clone().narrow(1, 1, n - 1), x.narrow(1, n - 1, 1)], 1)
}

fn check_unroll(draft: &Eagle3, fixture: &Fixture, case: &str, device: &Device) {
    let name = |tail: &str| format!("{case}.{tail}");
    let features = fixture.tensor::<3>(&name("taps_concat"), device);
    let [batch, n, _] = features.dims();
    let steps = (0..).take_while(|step| fixture.has(&name(&format!("step{step}.logits")))).count();
    let mut embeds = vec![fixture.tensor::<3>(&name("step0.input_emb"), device)];
    (1..steps).for_each(|step| embeds.push(shift_ids(embeds[step - 1].clone())));
    let mask = mask(&fixture.i64(&name("attention_mask")), n);
    let positions = [(0..n).collect()];
    let image = vec![vec![None; n]; batch];
    fixture.check(&name("step0.hidden_in"), draft.fc.forward(features.clone()));
    let rows = FeatureRows { features, embeds: embeds[0].clone(), positions: &positions, mask: &mask, image: &image };
    let passes = draft.unroll(rows, 0, &embeds[1..]);
    assert_eq!(passes.len(), steps);
    let loss = published_loss(draft, fixture, case, &passes, device);
    for (step, pass) in passes.iter().enumerate() {
        fixture.check(&name(&format!("step{step}.hidden_out")), pass.hidden.clone());
        fixture.check(&name(&format!("step{step}.logits")), draft.logits(pass.predict.clone()));
    }
    check_gradients(draft, fixture, case, loss);
}

/// sum over steps of 0.8^step times the mean over all rows of the masked soft cross-entropy.
fn published_loss(
    draft: &Eagle3,
    fixture: &Fixture,
    case: &str,
    passes: &[sightdraft_draft::DraftPass],
    device: &Device,
) -> Tensor<1> {
    let known: Vec<i32> = draft.vocab.targets().iter().map(|&id| id as i32).collect();
    let mut target = fixture.tensor::<3>(&format!("{case}.target_logits_shifted"), device);
    let [batch, n, _] = target.dims();
    let loss_mask: Vec<f32> = fixture.i64(&format!("{case}.loss_mask")).iter().map(|&on| on as f32).collect();
    let mut loss_mask = Tensor::<3>::from_data(TensorData::new(loss_mask, [batch, n, 1]), device);
    let flags: Vec<f32> = draft.vocab.known().iter().map(|&on| f32::from(on)).collect();
    let flags = Tensor::<1>::from_floats(flags.as_slice(), device);
    let mut total = Tensor::<1>::zeros([1], device);
    for (step, pass) in passes.iter().enumerate() {
        let sayable = flags.clone().select(0, target.clone().argmax(2).reshape([batch * n])).reshape([batch, n, 1]);
        let p = softmax(target.clone().select(2, Tensor::from_ints(known.as_slice(), device)), 2);
        let log_q = log_softmax(draft.logits(pass.predict.clone()), 2);
        let loss = (p * log_q * (sayable * loss_mask.clone())).sum() / -((batch * n) as f64);
        let expected = fixture.f32(&format!("{case}.step{step}.ploss"))[0];
        let found: f32 = loss.clone().into_scalar();
        assert!((found - expected).abs() <= TOLERANCE, "{case} step {step}: loss {found} instead of {expected}");
        total = total + loss * 0.8f64.powi(step as i32);
        target = shift(target);
        loss_mask = shift(loss_mask);
    }
    total
}

fn check_gradients(draft: &Eagle3, fixture: &Fixture, case: &str, loss: Tensor<1>) {
    let gradients = loss.backward();
    let matrix = |name: &str, layer: &Projection| {
        let name = format!("{case}.grad.{name}.weight");
        if fixture.has(&name) {
            fixture.check(&name, layer.plain().weight.val().grad(&gradients).unwrap().transpose());
        }
    };
    let layer = &draft.midlayer;
    matrix("fc", &draft.fc);
    matrix("lm_head", &draft.lm_head);
    matrix("midlayer.mlp.down_proj", &layer.mlp.down_proj);
    matrix("midlayer.self_attn.q_proj", &layer.self_attn.q_proj);
    matrix("midlayer.self_attn.k_proj", &layer.self_attn.k_proj);
    matrix("midlayer.self_attn.v_proj", &layer.self_attn.v_proj);
    matrix("midlayer.self_attn.o_proj", &layer.self_attn.o_proj);
    let norms = [
        ("norm", &draft.norm),
        ("midlayer.hidden_norm", &layer.hidden_norm),
        ("midlayer.input_layernorm", &layer.input_layernorm),
        ("midlayer.post_attention_layernorm", &layer.post_attention_layernorm),
    ];
    for (name, norm) in norms {
        let gradient = norm.gamma.val().grad(&gradients).unwrap();
        fixture.check(&format!("{case}.grad.{name}.weight"), gradient);
    }
}

#[test]
fn fixture_unroll_is_the_same() {
    let device = Device::flex().autodiff();
    let mut cases = 0;
    for folder in drafts() {
        let draft = open(&root().join(&folder), &device);
        for path in files(&folder) {
            let fixture = Fixture::open(&path);
            let unrolled = |case: &&String| fixture.has(&format!("{case}.step0.input_emb"));
            for case in fixture.cases(".taps_concat").iter().filter(unrolled) {
                check_unroll(&draft, &fixture, case, &device);
                cases += 1;
            }
        }
    }
    assert!(cases > 0, "no unroll cases found");
}

/// The folders of EAGLE-3 drafts: those whose config has a vocabulary of the draft.
fn drafts() -> Vec<String> {
    let folders = std::fs::read_dir(root()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let is_draft = |folder: &String| {
        let dir = root().join(folder);
        let config = std::fs::read_to_string(dir.join("config.json"));
        dir.join("model.safetensors").is_file() && config.is_ok_and(|text| text.contains("\"draft_vocab_size\""))
    };
    let mut found: Vec<String> = folders.filter(is_draft).collect();
    found.sort();
    found
}

/// The rows of `hf_llama_gqa`'s embedding for `ids`, `[1, n, H]`.
fn embed(ids: &[i64], device: &Device) -> Tensor<3> {
    let target = Fixture::open(&root().join("hf_llama_gqa/model.safetensors"));
    let table = target.tensor::<2>("model.embed_tokens.weight", device);
    let ids: Vec<i32> = ids.iter().map(|&id| id as i32).collect();
    table.select(0, Tensor::from_ints(ids.as_slice(), device)).unsqueeze()
}

fn check_keys(draft_keys: Option<(Tensor<4>, Tensor<4>)>, fixture: &Fixture, step: &str) {
    let (keys, values) = draft_keys.unwrap();
    fixture.check(&format!("{step}.k"), keys);
    if fixture.has(&format!("{step}.v")) {
        fixture.check(&format!("{step}.v"), values);
    }
}

#[test]
fn fixture_inference_is_the_same() {
    let device = Device::flex();
    for recording in recordings("eagle3", "prefill.hidden_out") {
        let draft = open(recording.draft_dir().path(), &device);
        check_inference(&draft, &recording.fixture, &device);
    }
}

fn check_inference(draft: &Eagle3, fixture: &Fixture, device: &Device) {
    let ids = fixture.i64("draft_input_ids");
    let n = ids.len();
    let rows = FeatureRows {
        features: fixture.tensor("taps_concat", device),
        embeds: embed(&ids, device),
        positions: &[(0..n).collect()],
        mask: &Mask::Causal,
        image: &[vec![None; n]],
    };
    let mut state = draft.start();
    let pass = draft.extend(&mut state, rows);
    let logits = draft.logits(pass.predict);
    fixture.check("prefill.hidden_out", pass.hidden.clone());
    fixture.check("prefill.draft_logits", logits.clone());
    check_keys(state.cache.layer(0), fixture, "prefill");
    let best: i64 = logits.narrow(1, n - 1, 1).argmax(2).into_scalar();
    let token = i64::from(draft.vocab.target(best as u32));
    assert_eq!(token, fixture.i64("step.token_target_id")[0]);
    let hidden = pass.hidden.narrow(1, n - 1, 1);
    let pass = draft.step(&mut state, hidden, embed(&[token], device), &[vec![n]], &Mask::Causal);
    fixture.check("step.hidden_out", pass.hidden.clone());
    fixture.check("step.draft_logits", draft.logits(pass.predict));
    check_keys(state.cache.layer(0), fixture, "step");
}
