//! `sightdraft eval`: target x drafts x benchmarks x temperatures.

use std::collections::BTreeMap;
use std::path::Path;

use burn::tensor::Device;
use clap::Args;
use sightdraft_core::{Result, hub};
use sightdraft_datasets::prompts::Preset;
use sightdraft_decode::Acceptance;
use sightdraft_draft::DraftModel;
use sightdraft_eval::scoring::Python;
use sightdraft_eval::{Benchmark, Entrant, Plan, Shard, benchmarks, fingerprint, run as measure};
use sightdraft_target::ServedTarget;

use super::merge::finish;
use crate::arguments::{DeviceArguments, ReportArguments, SamplingArguments, at_least_one, each_once, temperature};
use crate::builtin;
use crate::costs::tuner;
use crate::tree::TreeArguments;

#[derive(Debug, Args)]
pub struct Arguments {
    /// Target: a directory, a hub name, or `builtin`.
    #[arg(long)]
    target: String,
    /// A draft as DIR or NAME=DIR, hub names included; may be given several times.
    #[arg(long, value_name = "[NAME=]DIR")]
    draft: Vec<String>,
    /// A benchmark as NAME or NAME=PATH to its official files; may be given several times.
    #[arg(long, value_name = "NAME[=PATH]", default_value = "charts")]
    benchmark: Vec<String>,
    /// Instruction around visual questions: `official` asks for the short answer that is scored; `msd` and `vispec` ask for the
    /// long one that speed is measured on.
    #[arg(long, default_value = "official")]
    prompts: Preset,
    /// Temperatures, separated by commas.
    #[arg(long, value_delimiter = ',', default_value = "0", value_parser = temperature)]
    temperature: Vec<f32>,
    #[command(flatten)]
    sampling: SamplingArguments,
    #[command(flatten)]
    tree: TreeArguments,
    #[command(flatten)]
    device: DeviceArguments,
    /// Most tokens of an answer, in place of the benchmark's own.
    #[arg(long, value_parser = at_least_one)]
    max_new_tokens: Option<usize>,
    /// Prompts per benchmark, spread over it by the seed.
    #[arg(long, value_parser = at_least_one)]
    limit: Option<usize>,
    /// Score HumanEval by running the programs that the model writes, with python3 as you: 10 seconds and 1 GiB each, but no
    /// sandbox around them.
    #[arg(long)]
    execute: bool,
    /// Do part i of n.
    #[arg(long, default_value = "1/1", value_name = "I/N")]
    shard: Shard,
    /// Also run every draft with the image withheld from it.
    #[arg(long)]
    blind: bool,
    /// Prompts decoded by every run before the clock starts.
    #[arg(long, default_value_t = 1)]
    warm_up: usize,
    #[command(flatten)]
    report: ReportArguments,
}

impl Arguments {
    /// Refuses what would give rows that nothing tells apart, before any file is read.
    fn check(&self) -> Result<()> {
        let benchmarks: Vec<&str> = self.benchmark.iter().map(|spec| spec.split('=').next().unwrap_or(spec)).collect();
        each_once("--benchmark", &benchmarks, "measure each by itself, with an --out of its own")?;
        each_once("--temperature", &self.temperature, "leave one of them out")?;
        let drafts = self.draft.iter().map(|spec| named(spec).0);
        let names: Vec<String> = ["plain".into(), last_part(&self.target)].into_iter().chain(drafts).collect();
        each_once("--draft", &names, "name the drafts: --draft a=DIR --draft b=DIR")
    }
}

pub fn run(arguments: &Arguments) -> Result<()> {
    arguments.check()?;
    let python = if arguments.execute { python() } else { None };
    let benchmarks = arguments
        .benchmark
        .iter()
        .map(|spec| benchmarks::open(spec, arguments.prompts, python.as_ref()))
        .collect::<Result<Vec<Box<dyn Benchmark>>>>()?;
    let (device, taken) = arguments.device.pick()?;
    eprintln!("{taken}");
    let dir = builtin::resolve(&arguments.target)?;
    let target = ServedTarget::open(&dir, arguments.device.dtype(), &device)?;
    let name = last_part(&arguments.target);
    let mut checkpoints = BTreeMap::from([(name.clone(), fingerprint(&dir)?)]);
    let mut entrants = Vec::new();
    for spec in &arguments.draft {
        let (entrant, dir) = entrant(spec, &target, &device, arguments.tree.is_adaptive().then_some(taken.as_str()))?;
        checkpoints.insert(entrant.name.clone(), fingerprint(&dir)?);
        entrants.push(entrant);
    }
    let plan = Plan {
        target: name,
        device: taken,
        temperatures: arguments.temperature.clone(),
        top_p: arguments.sampling.top_p,
        top_k: arguments.sampling.top_k,
        tree: arguments.tree.shape(&device),
        acceptance: Acceptance::PointMass,
        max_new_tokens: arguments.max_new_tokens,
        limit: arguments.limit,
        shard: arguments.shard,
        seed: arguments.sampling.seed,
        blind: arguments.blind,
        warm_up: arguments.warm_up,
        checkpoints,
    };
    arguments.report.prepare()?;
    let benchmarks: Vec<&dyn Benchmark> = benchmarks.iter().map(|benchmark| benchmark.as_ref()).collect();
    finish(&measure(&target, &entrants, &benchmarks, &plan)?, &arguments.report)
}

/// The interpreter for `--execute`; without one the run goes on and code stays unscored.
fn python() -> Option<Python> {
    Python::find().inspect_err(|error| eprintln!("HumanEval is not scored: {error}")).ok()
}

/// `[NAME=]DIR`, opened, and its directory. With trees that follow their cost where `adaptive` names the device.
fn entrant(
    spec: &str,
    target: &ServedTarget,
    device: &Device,
    adaptive: Option<&str>,
) -> Result<(Entrant, std::path::PathBuf)> {
    let (name, source) = named(spec);
    let dir = hub::resolve(source)?;
    let draft = DraftModel::open(&dir, target.model.llama(), device)?.for_inference();
    let tuner = adaptive.map(|device| tuner(target, &draft, device)).transpose()?;
    Ok((Entrant { name, source: source.into(), draft: Box::new(draft), tuner }, dir))
}

/// Name and source in `[NAME=]DIR`.
fn named(spec: &str) -> (String, &str) {
    match spec.split_once('=') {
        Some((name, source)) => (name.to_string(), source),
        None => (last_part(spec), spec),
    }
}

/// The last part of a path or hub name.
fn last_part(name: &str) -> String {
    Path::new(name).file_name().map_or_else(|| name.to_string(), |part| part.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::last_part;

    #[test]
    fn models_are_named_by_the_end_of_their_path() {
        assert_eq!(last_part("runs/soft_ce/"), "soft_ce");
        assert_eq!(last_part("owner/model"), "model");
        assert_eq!(last_part("."), ".");
    }
}
