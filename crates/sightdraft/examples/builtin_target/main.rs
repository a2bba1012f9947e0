//! Trains the built-in target from nothing: `cargo run --release --example builtin_target -- --out DIR`.
//!
//! DIR becomes a Hugging Face directory (config, tokenizer, preprocessing, weights in f16). A run that was stopped goes on from
//! `DIR/training`.

mod batch;
#[path = "../shared/checkpoint.rs"]
mod checkpoint;
mod model;
mod save;
mod score;
mod tokenizer;
mod train;

use std::path::PathBuf;

use burn::module::Module;
use burn::tensor::Device;
use clap::Parser;
use sightdraft_core::{Error, Result, Tokenizer};
use sightdraft_vision::Preprocessor;

/// Trains the built-in target on charts that it draws itself.
#[derive(Parser)]
struct Arguments {
    /// Where the model goes.
    #[arg(long)]
    out: PathBuf,
    /// Optimizer steps.
    #[arg(long, default_value_t = 5400)]
    steps: u64,
    /// Charts in a step.
    #[arg(long, default_value_t = 16)]
    batch: usize,
    /// Highest learning rate.
    #[arg(long, default_value_t = 2e-3)]
    learning_rate: f64,
    /// Fixes charts and weights.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Steps between checkpoints.
    #[arg(long, default_value_t = 250)]
    every: u64,
    /// Held-out charts of the last score.
    #[arg(long, default_value_t = 300)]
    score: u64,
}

fn main() {
    if let Err(error) = run(&Arguments::parse()) {
        eprintln!("{error}");
        std::process::exit(2);
    }
}

fn run(arguments: &Arguments) -> Result<()> {
    let dir = &arguments.out;
    std::fs::create_dir_all(dir).map_err(|e| Error::io("create", dir, e))?;
    tokenizer::train(arguments.seed, dir)?;
    let preprocessor = Preprocessor { config: model::preprocessing() };
    let encoder = batch::Encoder { tokenizer: Tokenizer::open(dir)?, preprocessor };
    let device = Device::flex().autodiff();
    device.seed(arguments.seed);
    let fresh = model::init(encoder.tokenizer.vocab_size(), &device);
    println!("{} tokens, {} parameters", encoder.tokenizer.vocab_size(), fresh.num_params());
    let plan = train::Plan {
        seed: arguments.seed,
        steps: arguments.steps,
        batch: arguments.batch,
        learning_rate: arguments.learning_rate,
        every: arguments.every,
    };
    let trained = train::run(fresh, &encoder, &plan, dir, &device)?.valid();
    save::model(&trained, &encoder.preprocessor, dir)?;
    println!("held-out {:?}", score::run(&trained, &encoder, arguments.seed, arguments.score)?);
    Ok(())
}
