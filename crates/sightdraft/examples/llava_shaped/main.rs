//! Makes a LLaVA-shaped target of pretrained parts: `cargo run --release -p sightdraft --example llava_shaped -- --vision DIR --text
//! DIR --data DIR --out DIR`.
//!
//! A vision transformer and a LLaMA stay as they are; between them a fresh projector learns to explain charts. `--out` becomes a
//! Hugging Face directory that opens as any LLaVA. A run that was stopped goes on from `training` in it.

#[path = "../shared/checkpoint.rs"]
mod checkpoint;
mod lessons;
mod parts;
#[cfg(test)]
mod tests;
mod train;
mod words;

use std::path::PathBuf;

use burn::module::Module;
use burn::tensor::{DType, Device};
use clap::Parser;
use sightdraft_core::{Error, Result};
use sightdraft_target::Llava;

use lessons::{Lesson, Reader};

/// As in the program itself: gradients come and go all the time.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Joins a vision transformer and a LLaMA by a projector that learns to explain charts.
#[derive(Parser)]
struct Arguments {
    /// A CLIP or DINOv2 vision transformer in a Hugging Face directory.
    #[arg(long)]
    vision: PathBuf,
    /// A LLaMA with tokenizer and chat template in a Hugging Face directory.
    #[arg(long)]
    text: PathBuf,
    /// A folder with train.jsonl and val.jsonl: lines of `image`, `question`, `answer`, `rationale`.
    #[arg(long)]
    data: PathBuf,
    /// Where the model goes.
    #[arg(long)]
    out: PathBuf,
    /// Side of the images that the tower sees.
    #[arg(long, default_value_t = 112)]
    image_size: usize,
    /// Layer of the tower whose output the projector reads, counted from 1.
    #[arg(long, default_value_t = 9)]
    feature_layer: i64,
    /// Optimizer steps.
    #[arg(long, default_value_t = 250)]
    steps: u64,
    /// Conversations in a step.
    #[arg(long, default_value_t = 4)]
    batch: u64,
    /// Highest learning rate.
    #[arg(long, default_value_t = 1e-3)]
    learning_rate: f64,
    /// Answers are cut after so many tokens.
    #[arg(long, default_value_t = 128)]
    answer_tokens: usize,
    /// Fixes the fresh projector.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Steps between checkpoints (and held-out losses).
    #[arg(long, default_value_t = 50)]
    every: u64,
    /// Held-out conversations of each loss.
    #[arg(long, default_value_t = 24)]
    held_out: usize,
}

fn main() {
    if let Err(error) = run(&Arguments::parse()).map(drop) {
        eprintln!("error: {error}");
        std::process::exit(2);
    }
}

fn run(arguments: &Arguments) -> Result<Llava> {
    let dir = &arguments.out;
    std::fs::create_dir_all(dir).map_err(|e| Error::io("create", dir, e))?;
    let image_token = words::prepare(&arguments.text, dir)?;
    let vision = parts::vision_config(arguments)?;
    let preprocessor = parts::preprocessing(&vision);
    preprocessor.save(dir)?;
    let reader = Reader::open(dir, preprocessor, arguments.answer_tokens)?;
    let lessons = reader.read(&arguments.data.join("train.jsonl"))?;
    let mut held_out = reader.read(&arguments.data.join("val.jsonl"))?;
    held_out.truncate(arguments.held_out);

    let device = Device::flex().autodiff();
    device.seed(arguments.seed);
    let fresh = parts::join(arguments, vision, image_token, &shown(&lessons, &reader)?, &device)?;
    println!(
        "{} conversations, {} rows an image, {} parameters are trained",
        lessons.len(),
        fresh.vision.rows_per_image(),
        fresh.vision.projector.num_params()
    );
    let plan = train::Plan {
        steps: arguments.steps,
        batch: arguments.batch,
        learning_rate: arguments.learning_rate,
        every: arguments.every,
    };
    let trained =
        train::run(fresh, &train::Lessons { reader: &reader, train: &lessons, held_out: &held_out }, &plan, dir)?;
    trained.save(dir, DType::F16)?;
    Ok(trained)
}

/// Images whose features tell what the projector will read.
const SHOWN: usize = 16;

fn shown(lessons: &[Lesson], reader: &Reader) -> Result<Vec<sightdraft_vision::Pixels>> {
    lessons.iter().take(SHOWN).map(|lesson| reader.pixels(lesson)).collect()
}
