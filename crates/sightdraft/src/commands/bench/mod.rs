//! `sightdraft bench`: what verification costs on this machine, as ratios of figures from one run.

mod measure;

use std::collections::BTreeMap;

use clap::Args;
use serde::Serialize;
use sightdraft_core::{Result, hub};
use sightdraft_draft::{Draft, DraftModel};
use sightdraft_target::ServedTarget;

use crate::arguments::{DeviceArguments, at_least_one};
use crate::builtin;
use crate::output::{print_json, say};

#[derive(Debug, Args)]
pub struct Arguments {
    /// Target: a directory, a hub name, or `builtin`.
    #[arg(long)]
    target: String,
    /// Draft: a directory or a hub name; its step is measured beside the target's.
    #[arg(long)]
    draft: Option<String>,
    #[command(flatten)]
    device: DeviceArguments,
    /// Times that everything is measured; the fastest counts, of plain decoding the median.
    #[arg(long, default_value_t = 7, value_parser = at_least_one)]
    turns: usize,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

/// What `--json` prints.
#[derive(Debug, Serialize)]
struct Bench {
    target: String,
    device: String,
    /// Megabytes of weights that a pass reads.
    weights_mb: f64,
    /// Seconds of a whole pass of m rows over those of one row, behind a cache of 256 tokens.
    cost_ratio: BTreeMap<usize, f64>,
    /// The same of single layers, by name, over all layers of that name.
    layer_cost_ratio: BTreeMap<String, BTreeMap<usize, f64>>,
    plain: Plain,
    /// Seconds of a draft's step of one row over those of a target's pass of one row.
    draft_step_ratio: Option<f64>,
    /// Share of a pass of one row that is not in the linear layers.
    outside_matmul_share: f64,
    /// How fast memory was read meanwhile; none off the CPU.
    read_gb_per_s: Option<f64>,
}

/// Plain decoding.
#[derive(Debug, Serialize)]
struct Plain {
    tokens_per_second: f64,
    /// Of the speed at which reading the weights would be all there is; none off the CPU.
    memory_limit_fraction: Option<f64>,
}

pub fn run(arguments: &Arguments) -> Result<()> {
    let (device, taken) = arguments.device.pick()?;
    eprintln!("{taken}");
    let target = ServedTarget::open(&builtin::resolve(&arguments.target)?, arguments.device.dtype(), &device)?;
    let llama = target.model.llama();
    let draft = match &arguments.draft {
        Some(name) => Some(DraftModel::open(&hub::resolve(name)?, llama, &device)?.for_inference()),
        None => None,
    };
    let draft = draft.as_ref().map(|draft| draft as &dyn Draft);
    let found = measure::measure(target.model.as_ref(), draft, arguments.turns)?;
    let bench = Bench {
        target: arguments.target.clone(),
        device: taken,
        weights_mb: found.weight_bytes as f64 / 1e6,
        cost_ratio: ratios(&found.pass),
        layer_cost_ratio: found.layers.iter().map(|(name, seconds)| (name.to_string(), ratios(seconds))).collect(),
        plain: Plain { tokens_per_second: found.plain, memory_limit_fraction: found.memory.map(|(_, share)| share) },
        draft_step_ratio: found.draft_step.map(|step| step / found.pass[&1]),
        outside_matmul_share: (1.0 - found.products() / found.pass[&1]).max(0.0),
        read_gb_per_s: found.memory.map(|(read, _)| read / 1e9),
    };
    if arguments.json { print_json(&bench) } else { say(&table(&bench, found.pass[&1])) }
}

/// Seconds by rows, relative to one row, which is left out.
fn ratios(seconds: &BTreeMap<usize, f64>) -> BTreeMap<usize, f64> {
    let one = seconds.get(&1).copied().unwrap_or(f64::NAN);
    seconds.iter().filter(|(rows, _)| **rows > 1).map(|(rows, seconds)| (*rows, seconds / one)).collect()
}

fn table(bench: &Bench, pass: f64) -> String {
    let percent = |share: f64| format!("{:.0}%", 100.0 * share);
    let mut text = format!("{:<12}", "rows");
    bench.cost_ratio.keys().for_each(|rows| text.push_str(&format!("{rows:>8}")));
    let mut line = |name: &str, ratios: &BTreeMap<usize, f64>| {
        text.push_str(&format!("\n{name:<12}"));
        ratios.values().for_each(|ratio| text.push_str(&format!("{ratio:>7.2}x")));
    };
    line("whole pass", &bench.cost_ratio);
    bench.layer_cost_ratio.iter().for_each(|(name, ratios)| line(name, ratios));
    text.push_str(&format!(
        "\n\none row takes {:.2} ms, {} of it outside the linear layers; ",
        1e3 * pass,
        percent(bench.outside_matmul_share)
    ));
    text.push_str(&format!("plain decoding: {:.1} tokens/s", bench.plain.tokens_per_second));
    if let (Some(fraction), Some(rate)) = (bench.plain.memory_limit_fraction, bench.read_gb_per_s) {
        text.push_str(&format!(
            ",\n{} of what reading {:.0} MB of weights at {rate:.1} GB/s would allow",
            percent(fraction),
            bench.weights_mb
        ));
    }
    if let Some(ratio) = bench.draft_step_ratio {
        text.push_str(&format!("\na step of the draft costs {} of a pass of the target", percent(ratio)));
    }
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_to_one_row() {
        let ratios = ratios(&[(1, 0.5), (8, 0.75)].into());
        assert_eq!(ratios, [(8, 1.5)].into());
    }
}
