//! What can be typed.

use std::fmt::Display;
use std::path::PathBuf;

use burn::tensor::{DType, Device};
use clap::{Args, Parser, Subcommand, ValueEnum};
use sightdraft_core::device::{DeviceChoice, pick};
use sightdraft_core::{Error, Result};

use crate::commands;

/// Train, verify and measure image-aware draft models for lossless speculative decoding.
#[derive(Debug, Parser)]
#[command(name = "sightdraft", version, max_term_width = 100)]
pub struct Arguments {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// The whole story on the built-in target: train two drafts, measure them, show one at work. Nothing is downloaded.
    Demo(commands::demo::Arguments),
    /// List the devices that this build can use.
    Devices(commands::devices::Arguments),
    /// Answer a prompt, with a draft or without.
    Generate(commands::generate::Arguments),
    /// Train a draft by a recipe.
    Train(commands::train::Arguments),
    /// Train variants of a recipe from one start with equal compute, and compare them over seeds.
    Grid(commands::grid::Arguments),
    /// Let the target answer its own training prompts.
    Regenerate(commands::regenerate::Arguments),
    /// Measure drafts against plain decoding on benchmarks.
    Eval(commands::eval::Arguments),
    /// Say what verifying many rows costs beside one, and how far this machine is from its memory's limit.
    Bench(commands::bench::Arguments),
    /// Put the reports of several shards together.
    Merge(commands::merge::Arguments),
    /// Write a draft in the layout that SGLang, vLLM or speculators reads.
    Export(commands::export::Arguments),
    /// Say what a checkpoint is, what it needs, whether a draft fits a target, and which servers load it.
    Inspect(commands::inspect::Arguments),
}

/// Where to compute.
#[derive(Debug, Args)]
pub struct DeviceArguments {
    /// auto, cpu, cuda[:i], vulkan[:i], metal, wgpu[:i] or rocm[:i].
    #[arg(long, default_value = "auto")]
    device: String,
    /// Precision of the target's weights; on the CPU f16 is kept as bf16.
    #[arg(long, value_enum, default_value_t = Precision::F32)]
    dtype: Precision,
}

/// What a weight is kept as.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum Precision {
    F32,
    F16,
    Bf16,
}

impl DeviceArguments {
    /// The device, and the sentence that says what was taken.
    pub fn pick(&self) -> Result<(Device, String)> {
        pick(&DeviceChoice(self.device.clone()))
    }

    /// The precision of the target's weights.
    pub fn dtype(&self) -> DType {
        self.dtype.into()
    }
}

impl From<Precision> for DType {
    fn from(precision: Precision) -> Self {
        match precision {
            Precision::F32 => Self::F32,
            Precision::F16 => Self::F16,
            Precision::Bf16 => Self::BF16,
        }
    }
}

/// How to sample.
#[derive(Debug, Args)]
pub struct SamplingArguments {
    /// Nucleus: keep the most likely tokens up to this mass.
    #[arg(long, default_value_t = 1.0, value_parser = positive_share)]
    pub top_p: f32,
    /// Keep this many most likely tokens; 0 keeps all.
    #[arg(long, default_value_t = 0)]
    pub top_k: usize,
    /// Seed of everything random.
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
}

/// A temperature: finite and not negative.
pub fn temperature(text: &str) -> std::result::Result<f32, String> {
    match text.parse::<f32>() {
        Ok(value) if value.is_finite() && value >= 0.0 => Ok(value),
        _ => Err("expected a number of at least 0".into()),
    }
}

/// A count that may not be 0.
pub fn at_least_one(text: &str) -> std::result::Result<usize, String> {
    match text.parse::<usize>() {
        Ok(value) if value >= 1 => Ok(value),
        _ => Err("expected a whole number of at least 1".into()),
    }
}

fn positive_share(text: &str) -> std::result::Result<f32, String> {
    match text.parse::<f32>() {
        Ok(value) if value > 0.0 && value <= 1.0 => Ok(value),
        _ => Err("expected a number above 0 and up to 1".into()),
    }
}

/// Refuses a value of `option` that stands twice in `values`: the rows of a report are told apart by it.
pub fn each_once<T: PartialEq + Display>(option: &str, values: &[T], mend: &str) -> Result<()> {
    match values.iter().enumerate().find(|(i, value)| values[..*i].contains(value)) {
        None => Ok(()),
        Some((_, value)) => Err(Error::invalid(option, "another for each row", format!("{value} twice"), mend)),
    }
}

/// Where a report goes.
#[derive(Debug, Args)]
pub struct ReportArguments {
    /// Folder for report.json, report.txt and report.html.
    #[arg(long, default_value = "sightdraft-report")]
    pub out: PathBuf,
    /// Print one JSON object on stdout instead of the table.
    #[arg(long)]
    pub json: bool,
}

impl ReportArguments {
    /// Makes the folder before anything is measured: hours of work must not end at a path that cannot be written.
    pub fn prepare(&self) -> Result<()> {
        std::fs::create_dir_all(&self.out).map_err(|e| Error::io("create", &self.out, e))
    }
}
