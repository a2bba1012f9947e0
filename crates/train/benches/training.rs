//! Tokens per second and peak memory of training, for every draft on the shapes of the built-in target and of SmolLM2-135M, and
//! how far the plan was off: `cargo bench -p sightdraft-train --bench training`.
//!
//! Weights are random: the cost does not depend on them. Four sequences of 230 tokens, 200 of them the answer; each draft with
//! its published loss and with VSD, in a process of its own, whose peak is counted from the first step on.

use std::path::Path;
use std::process::Command;

use burn::tensor::Device;
use sightdraft_draft::{DraftConfig, DraftModel, Method, VocabMap};
use sightdraft_target::{Llama, LlamaConfig, Target};
use sightdraft_train::objective::{Eagle1Loss, GriffinLoss, HassLoss, SoftCe, VispecLoss, Vsd};
use sightdraft_train::peak::peak_memory;
use sightdraft_train::plan::gib;
use sightdraft_train::{Example, ObjectiveConfig, Setup, Size, TrainConfig, Trainer, plan};

/// As the program trains.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const ROWS: usize = 230;
const SEQUENCES: usize = 4;
const TARGETS: [&str; 2] = ["builtin", "smollm2"];

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with("--")).collect();
    match &arguments[..] {
        [target, method, objective] => measure(target, method.parse().expect("a method"), objective == "vsd"),
        _ => {
            println!(
                "{:<9} {:<8} {:<18} {:>9} {:>9} {:>9} {:>6}",
                "target", "draft", "objective", "tokens/s", "peak", "planned", "off"
            );
            for target in TARGETS {
                for method in Method::ALL {
                    for objective in ["published", "vsd"] {
                        alone([target, method.name(), objective]);
                    }
                }
            }
        }
    }
}

/// Measures one draft in a process of its own.
fn alone(arguments: [&str; 3]) {
    let program = std::env::current_exe().expect("this program");
    // As the program keeps freed memory.
    let status = Command::new(program).args(arguments).env("MIMALLOC_PURGE_DELAY", "-1").status().expect("a process");
    assert!(status.success(), "{arguments:?}");
}

fn measure(name: &str, method: Method, vsd: bool) {
    let device = Device::flex();
    device.seed(1);
    let config = shape(name);
    let target = Llama::init(&config, &device).for_inference();
    let size = if method.shares_head() { config.vocab_size } else { config.vocab_size.min(8192) };
    let draft_config = DraftConfig::for_target(method, &config, size).expect("a draft for it");
    let vocab = VocabMap::new((0..size as u32).collect(), config.vocab_size);
    let draft = DraftModel::init(draft_config.clone(), vocab, target.llama(), &device);
    let train = recipe(method, vsd);
    let examples = examples(&config, size);
    let sizes: Vec<Size> = examples.iter().map(Example::size).collect();
    let planned = plan(&train, &config, &draft_config, &sizes, 4).memory;
    let objective = train.objective.objective().name();
    let out = tempfile::tempdir().expect("a temporary directory");
    let setup = Setup {
        config: train,
        target: &target,
        target_name: "bench".into(),
        eos: vec![],
        examples,
        held_out: vec![],
        features: out.path().join("features"),
        out: out.path().join("run"),
    };
    let mut trainer = Trainer::start(setup, draft).expect("a run");
    // What making the weights took at most is not training's. Where the system cannot forget it, it counts.
    let _ = std::fs::write("/proc/self/clear_refs", "5");
    let mut best = 0.0f64;
    while let Some(report) = trainer.step().expect("a step") {
        best = best.max(report.tokens as f64 / report.seconds);
    }
    let peak = peak_memory().unwrap_or(0);
    let off = 100.0 * (planned as f64 / peak.max(1) as f64 - 1.0);
    let (peak, planned) = (gib(peak), gib(planned));
    let method = method.name();
    println!("{name:<9} {method:<8} {objective:<18} {best:>9.0} {peak:>8.2}G {planned:>8.2}G {off:>+5.0}%");
}

/// Three optimiser steps of one batch, as the method is published or with VSD on five steps.
fn recipe(method: Method, vsd: bool) -> TrainConfig {
    let (objective, unroll) = match method {
        _ if vsd => (ObjectiveConfig::Vsd(Vsd::default()), 5),
        Method::Eagle1 | Method::Msd => (ObjectiveConfig::Eagle1(Eagle1Loss::default()), 1),
        Method::Hass => (ObjectiveConfig::Hass(HassLoss::default()), 3),
        Method::Griffin => (ObjectiveConfig::Griffin(GriffinLoss::default()), 3),
        Method::Vispec => (ObjectiveConfig::Vispec(VispecLoss::default()), 2),
        Method::Eagle3 => (ObjectiveConfig::SoftCe(SoftCe::default()), 5),
    };
    let batch_tokens = SEQUENCES * ROWS;
    TrainConfig { objective, unroll, epochs: 3, batch_tokens, ..TrainConfig::default() }
}

fn examples(config: &LlamaConfig, size: usize) -> Vec<Example> {
    let id = |n: usize, i: usize| ((n * 977 + i * 131) % size.min(config.vocab_size)) as u32;
    (0..SEQUENCES)
        .map(|n| Example {
            id: n.to_string(),
            ids: (0..ROWS).map(|i| id(n, i)).collect(),
            assistant: (0..ROWS).map(|i| i >= 30).collect(),
            images: vec![],
        })
        .collect()
}

/// The geometry of a target's language model.
fn shape(name: &str) -> LlamaConfig {
    let dir = match name {
        "builtin" => Path::new(env!("CARGO_MANIFEST_DIR")).join("../sightdraft/assets/builtin"),
        _ => sightdraft_fixtures::root().join("configs/smollm2-135m"),
    };
    LlamaConfig::open(&dir).expect("the target's config")
}
