//! `sightdraft regenerate`: training answers by the target itself.

use std::path::{Path, PathBuf};

use clap::Args;
use sightdraft_core::Result;
use sightdraft_datasets::{Conversation, gsm8k, sharegpt, training};
use sightdraft_decode::Sampling;
use sightdraft_target::ServedTarget;
use sightdraft_train::regenerate::{RegenerateConfig, regenerate};

use crate::arguments::{DeviceArguments, SamplingArguments, at_least_one, temperature};
use crate::builtin;
use crate::output::say_line;

#[derive(Debug, Args)]
pub struct Arguments {
    /// Target: a directory, a hub name, or `builtin`.
    #[arg(long)]
    target: String,
    /// Prompts as PATH (our own training lines) or gsm8k=PATH or sharegpt=PATH; may be given several times. A last assistant
    /// turn is dropped and answered anew.
    #[arg(long, value_name = "[NAME=]PATH", required = true)]
    data: Vec<String>,
    /// Where the answers go, appended; conversations answered there already are skipped.
    #[arg(long)]
    out: PathBuf,
    /// Most tokens of an answer.
    #[arg(long, default_value_t = 512, value_parser = at_least_one)]
    max_new_tokens: usize,
    /// Prompts answered at once.
    #[arg(long, default_value_t = 8, value_parser = at_least_one)]
    batch: usize,
    /// 0 is greedy: what serving at temperature 0 will ask of the draft.
    #[arg(long, default_value_t = 0.0, value_parser = temperature)]
    temperature: f32,
    #[command(flatten)]
    sampling: SamplingArguments,
    #[command(flatten)]
    device: DeviceArguments,
}

pub fn run(arguments: &Arguments) -> Result<()> {
    let mut prompts = Vec::new();
    for spec in &arguments.data {
        prompts.extend(read(spec)?);
    }
    let (device, taken) = arguments.device.pick()?;
    eprintln!("{taken}");
    let target = ServedTarget::open(&builtin::resolve(&arguments.target)?, arguments.device.dtype(), &device)?;
    let sampling = Sampling {
        temperature: arguments.temperature,
        top_p: arguments.sampling.top_p,
        top_k: arguments.sampling.top_k,
        seed: arguments.sampling.seed,
    };
    let config = RegenerateConfig { max_new_tokens: arguments.max_new_tokens, batch: arguments.batch, sampling };
    let done = regenerate(&target, &prompts, &arguments.out, &config)?;
    if done.too_long > 0 {
        eprintln!("{} prompts leave no room in the target's context and were left out", done.too_long);
    }
    say_line(&format!("{} answers added to {}", done.answers, arguments.out.display()))
}

/// The conversations of `[NAME=]PATH`.
fn read(spec: &str) -> Result<Vec<Conversation>> {
    match spec.split_once('=') {
        Some(("gsm8k", path)) => gsm8k::read(Path::new(path)),
        Some(("sharegpt", path)) => sharegpt::read(Path::new(path)),
        _ => training::read(Path::new(spec)),
    }
}
