//! `sightdraft regenerate`: training answers by the target itself.

use std::ops::Range;
use std::path::{Path, PathBuf};

use clap::Args;
use sightdraft_core::{Error, Result};
use sightdraft_datasets::{Conversation, chartqa, charts, gsm8k, sharegpt, training};
use sightdraft_decode::Sampling;
use sightdraft_target::ServedTarget;
use sightdraft_train::regenerate::{RegenerateConfig, regenerate};

use crate::arguments::{DeviceArguments, SamplingArguments, at_least_one, temperature};
use crate::builtin;
use crate::output::say_line;

/// All are drawn before the first is answered.
const MOST_CHARTS: u64 = 100_000;

#[derive(Debug, Args)]
pub struct Arguments {
    /// Target: a directory, a hub name, or `builtin`.
    #[arg(long)]
    target: String,
    /// Prompts as PATH (our own training lines), chartqa=PATH, gsm8k=PATH, sharegpt=PATH, or charts=A..B for the built-in training
    /// charts of those numbers; may be given several times. A last assistant turn is dropped and answered anew.
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
        Some(("chartqa", path)) => chartqa::lessons(Path::new(path)),
        Some(("gsm8k", path)) => gsm8k::read(Path::new(path)),
        Some(("sharegpt", path)) => sharegpt::read(Path::new(path)),
        Some(("charts", numbers)) => Ok(charts::lessons(range(numbers)?).collect()),
        _ => training::read(Path::new(spec)),
    }
}

/// Numbers of charts, `A..B`. The most of them are what a file of their answers could sensibly hold.
fn range(text: &str) -> Result<Range<u64>> {
    let ends = text.split_once("..").and_then(|(from, to)| Some(from.parse().ok()?..to.parse().ok()?));
    ends.filter(|range: &Range<u64>| !range.is_empty() && range.end <= MOST_CHARTS).ok_or_else(|| {
        let expected = format!("numbers of charts, A..B with A < B <= {MOST_CHARTS}");
        Error::invalid("--data charts", expected, text, "write for example --data charts=0..512")
    })
}

#[cfg(test)]
mod tests {
    use super::range;

    #[test]
    fn charts_are_counted_off() {
        assert_eq!(range("512..544").unwrap(), 512..544);
        for bad in ["", "512", "..", "5..5", "7..3", "-1..3", "0..99999999999"] {
            let message = range(bad).unwrap_err().to_string();
            assert!(message.contains("charts=0..512"), "{message}");
        }
    }
}
