//! Where the seconds of a training step on a real target go: `cargo bench -p sightdraft-train --bench step -- TARGET_DIR`.
//!
//! Four sequences of 230 tokens, 200 of them the answer, five unrolled steps, D = 8192. Whole steps are the `training` benchmark's.

use std::path::PathBuf;
use std::time::Instant;

use burn::tensor::{DType, Device};
use sightdraft_draft::{Draft, DraftConfig, DraftModel, Eagle3, Method, VocabMap};
use sightdraft_target::Target;
use sightdraft_target::load::load_text;
use sightdraft_train::Example;
use sightdraft_train::features::{Batch, Sequence, restricted_head};
use sightdraft_train::objective::SoftCe;
use sightdraft_train::trainable::trainable;

fn main() {
    let Some(dir) = std::env::args().skip(1).find(|a| !a.starts_with("--")).map(PathBuf::from) else {
        println!("name the directory of a target to measure");
        return;
    };
    let device = Device::flex();
    let target = load_text(&dir, DType::F32, &device).expect("a text target").for_inference();
    let config = target.llama().config.clone();
    let draft_config = DraftConfig::for_target(Method::Eagle3, &config, 8192).expect("a draft for it");
    let vocab = VocabMap::new((0..8192).collect(), config.vocab_size);
    let draft = DraftModel::Eagle3(Eagle3::init(draft_config, vocab, target.llama(), &device));
    let examples: Vec<Example> = (0..4)
        .map(|n| Example {
            id: n.to_string(),
            ids: (0..230).map(|i| (n * 977 + i * 131) % 8192).collect(),
            assistant: (0..230).map(|i| i >= 30).collect(),
            images: vec![],
        })
        .collect();
    parts(&target, &draft, &examples);
}

/// Where a step's seconds go.
fn parts(target: &dyn Target, draft: &DraftModel, examples: &[Example]) {
    let timed = |what: &str, begin: Instant| println!("{what}: {:.3} s", begin.elapsed().as_secs_f64());
    for _ in 0..2 {
        let draft = trainable(draft.clone(), None);
        let begin = Instant::now();
        let run = |example| Sequence::run(target, draft.taps(), example).expect("a target pass").0;
        let sequences: Vec<Sequence> = examples.iter().map(run).collect();
        timed("target", begin);
        let head = restricted_head(target.llama(), draft.vocab());
        let begin = Instant::now();
        let unrolled = Batch::new(&sequences, 5).unroll(&draft, &head, 4);
        timed("unroll", begin);
        let begin = Instant::now();
        let loss = SoftCe::default().total(&unrolled);
        timed("loss", begin);
        let begin = Instant::now();
        loss.backward();
        timed("backward", begin);
    }
}
