//! Every objective on every draft, on a tiny random target.

mod tiny;

use burn::prelude::*;
use sightdraft_draft::{Draft, DraftConfig, DraftModel, Method, VocabMap};
use sightdraft_target::{KvCache, Llama};
use sightdraft_train::features::{Batch, Sequence, restricted_head};
use sightdraft_train::{Example, Setup, TrainConfig, Trainer};
use tiny::{VOCABULARY, path_logits, target};

fn draft(method: Method, target: &Llama) -> DraftModel {
    let config = DraftConfig::for_target(method, &target.config, VOCABULARY).unwrap();
    let device = Device::flex();
    device.seed(4);
    DraftModel::init(config, VocabMap::identity(VOCABULARY), target, &device)
}

fn example(number: u32) -> Example {
    let ids: Vec<u32> = (0..12).map(|i| (number * 7 + i * 11) % VOCABULARY as u32).collect();
    Example { id: number.to_string(), assistant: (0..12).map(|i| i >= 4).collect(), ids, images: vec![] }
}

/// Step j of the unroll at anchor t is what the draft says after j tokens of the data behind t, whichever way rows are
/// numbered. (ViSpec's steps are published as whole passes over its own features: only its first is such a path.)
#[test]
fn the_unroll_at_an_anchor_is_the_path_that_begins_there() {
    let target = target();
    for method in Method::ALL {
        let draft = draft(method, &target);
        let (sequence, _): (Sequence, KvCache) = Sequence::run(&target, draft.taps(), &example(1)).unwrap();
        let steps = if method == Method::Vispec { 1 } else { 3 };
        let sequences = [sequence];
        let batch = Batch::new(&sequences, 3);
        let unrolled = batch.unroll(&draft, &restricted_head(&target, draft.vocab()), 1);
        for (m, anchor) in batch.anchors.iter().enumerate() {
            // A row beyond the last token stands for nothing.
            let known = steps.min(sequences[0].len() - 2 - anchor.position);
            let tokens = &sequences[0].ids[anchor.position + 2..][..known];
            let path = path_logits(&target, &draft, &sequences[0], anchor.position, tokens);
            for (step, want) in unrolled.steps.iter().zip(path) {
                let got = step.logits.clone().slice([m..m + 1, 0..VOCABULARY]);
                let diff: f32 = (got - want).abs().max().into_scalar();
                assert!(diff <= 1e-4, "{method} at {}: {diff}", anchor.position);
            }
        }
        assert!(unrolled.following.iter().filter(|f| f.is_none()).count() == 1, "one sequence has one last anchor");
    }
}

/// One optimiser step of `objective` on a fresh draft of `method`.
fn one_step(target: &Llama, method: Method, objective: &str) -> sightdraft_core::Result<f64> {
    let out = tempfile::tempdir().unwrap();
    let text = format!(r#"{{"objective": {objective}, "unroll": 2, "batch_tokens": 48, "feature_noise": 0.01}}"#);
    let setup = Setup {
        config: serde_json::from_str::<TrainConfig>(&text).unwrap(),
        target,
        target_name: "tiny".into(),
        eos: vec![0],
        examples: (0..2).map(example).collect(),
        held_out: vec![],
        features: out.path().join("features"),
        out: out.path().join("run"),
    };
    let report = Trainer::start(setup, draft(method, target))?.step()?.expect("a step");
    assert!(report.loss.is_finite(), "{method}, {objective}");
    Ok(report.grad_norm)
}

#[test]
fn every_objective_trains_every_draft() {
    let target = target();
    let names = ["soft_ce", "vsd", "ce", "tv", "lk", "lk_hybrid", "dpace", "vat", "vispec"];
    let mut objectives: Vec<String> = names.map(|name| format!(r#"{{"name": "{name}"}}"#)).into();
    objectives.extend(
        ["greedy", "ratio"].map(|oracle| {
            format!(r#"{{"name": "vsd", "mode": "em", "oracle": "{oracle}", "samples": 2, "anchors": 2}}"#)
        }),
    );
    objectives.push(r#"{"name": "vsd", "mode": "elbo", "samples": 2, "anchors": 2}"#.into());
    objectives
        .push(r#"{"name": "sum", "terms": [{"weight": 1, "name": "vsd"}, {"weight": 0.5, "name": "lk"}]}"#.into());
    for method in Method::ALL {
        for objective in &objectives {
            let norm = one_step(&target, method, objective).unwrap();
            assert!(norm.is_finite() && norm > 0.0, "{method}, {objective}: {norm}");
        }
    }
}

#[test]
fn features_are_regressed_by_drafts_that_guess_them_only() {
    let target = target();
    for objective in ["eagle1", "hass", "griffin"].map(|name| format!(r#"{{"name": "{name}"}}"#)) {
        for method in Method::ALL.into_iter().filter(|method| method.shares_head()) {
            let norm = one_step(&target, method, &objective).unwrap();
            assert!(norm.is_finite() && norm > 0.0, "{method}, {objective}: {norm}");
        }
        let message = one_step(&target, Method::Eagle3, &objective).unwrap_err().to_string();
        assert!(message.contains("several taps"), "{message}");
    }
}
