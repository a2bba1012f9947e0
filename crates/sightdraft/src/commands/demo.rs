//! `sightdraft demo`: the whole story on the built-in target.

use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::time::Instant;

use burn::tensor::Device;
use clap::Args;
use serde::Serialize;
use sightdraft_core::{Message, Result};
use sightdraft_datasets::charts::ChartScore;
use sightdraft_decode::{Acceptance, Request, Sampling, TreeShape};
use sightdraft_draft::{DraftConfig, DraftModel, Method};
use sightdraft_eval::benchmarks::Charts;
use sightdraft_eval::benchmarks::charts::picture;
use sightdraft_eval::report::table;
use sightdraft_eval::{Benchmark, Entrant, Plan, Report, Run, Shard, fingerprint, run as measure};
use sightdraft_target::ServedTarget;

use super::generate::{footer, stream};
use super::train::fresh_draft;
use crate::arguments::DeviceArguments;
use crate::builtin;
use crate::costs::tuner;
use crate::demo::lessons;
use crate::demo::picture::characters;
use crate::demo::schooling::{Effort, School, soft_ce, vsd};
use crate::output::{print_json, say, say_line};

/// A few minutes on two cores.
const FULL: Effort = Effort { lessons: 512, held_out: 32, start_steps: 180, steps: 120, measured: 32 };

/// About a minute.
const QUICK: Effort = Effort { lessons: 128, held_out: 12, start_steps: 60, steps: 40, measured: 10 };

/// The fixed tree. Small: on a CPU every node costs.
const TREE: TreeShape = TreeShape { total: 6, depth: 3, top_k: 2 };

/// Seed of everything random in the demo.
const SEED: u64 = 42;

#[derive(Debug, Args)]
pub struct Arguments {
    /// Less training and fewer charts.
    #[arg(long)]
    quick: bool,
    /// Print one JSON object on stdout instead of the story.
    #[arg(long)]
    json: bool,
    /// Folder for the target, both drafts and the report.
    #[arg(long, default_value = "sightdraft-demo")]
    out: PathBuf,
    #[command(flatten)]
    device: DeviceArguments,
}

/// What `--json` prints.
#[derive(Debug, Serialize)]
struct Outcome {
    /// How well the target reads the measured charts.
    chart_score: ChartScore,
    runs: Vec<Run>,
}

pub fn run(arguments: &Arguments) -> Result<()> {
    let begin = Instant::now();
    let effort = if arguments.quick { QUICK } else { FULL };
    let tell = |words: &str| eprintln!("[{:>4.0} s] {words}", begin.elapsed().as_secs_f64());
    let (device, taken) = arguments.device.pick()?;
    tell(&taken);
    let place = |name: &str| arguments.out.join(name);
    builtin::unpack(&place("target"))?;
    let target = ServedTarget::open(&place("target"), arguments.device.dtype(), &device)?;
    tell(&format!("the target answers {} training charts itself", effort.lessons + effort.held_out));
    let school = School {
        target: &target,
        lessons: lessons::answered(&target, 0, effort.lessons)?,
        held_out: lessons::answered(&target, effort.lessons as u64, effort.held_out)?,
        out: &place("training"),
        seed: SEED,
    };
    let steps = effort.steps;
    tell(&format!("training a draft: {} steps of soft_ce as the common start", effort.start_steps));
    let llama = target.model.llama();
    let config = DraftConfig::for_target(Method::Eagle3, &llama.config, llama.config.vocab_size)?;
    let fresh = fresh_draft(config, &school.lessons, SEED, llama, &device);
    let start = school.train("start", fresh, soft_ce(), effort.start_steps, &device)?;
    tell(&format!("going on from it twice with equal compute: {steps} steps of soft_ce, {steps} of VSD"));
    for (name, objective) in [("soft_ce", soft_ce()), ("vsd", vsd())] {
        school.train(name, start.clone(), objective, steps, &device)?.save(&place(name))?;
    }
    let charts = Charts::new(effort.measured);
    tell(&format!("measuring both against plain decoding on {} held-out charts", effort.measured));
    let report = compare(&arguments.out, &target, &charts, &device, taken)?;
    report.write(&place("report"))?;
    let score = charts.read(&plain_answers(&report));
    if arguments.json {
        return print_json(&Outcome { chart_score: score, runs: report.without_samples().runs });
    }
    show(&arguments.out, &target, &charts, &device)?;
    say(&format!("\n{}", table::render(&report)))?;
    say(&reading(&score))?;
    say_line(&format!("drafts, target and report are in {}", arguments.out.display()))?;
    tell("done");
    Ok(())
}

/// The score in words.
fn reading(score: &ChartScore) -> String {
    let percent = |share: f64| format!("{:.0}%", 100.0 * share);
    format!(
        "target on {} held-out charts: largest item right in {} (chance {}), title in {} (chance {:.1}%)\n",
        score.of,
        percent(score.value),
        percent(score.chance),
        percent(score.title),
        100.0 * score.title_chance
    )
}

/// Plain decoding and both drafts, with a fixed tree and with what pays on this machine, as anyone who opens the folder would measure them.
fn compare(out: &Path, target: &ServedTarget, charts: &Charts, device: &Device, taken: String) -> Result<Report> {
    let mut checkpoints = BTreeMap::from([("builtin".to_string(), fingerprint(&out.join("target"))?)]);
    let mut entrants = Vec::new();
    for name in ["soft_ce", "vsd"] {
        let dir = out.join(name);
        checkpoints.insert(name.to_string(), fingerprint(&dir)?);
        let draft = DraftModel::open(&dir, target.model.llama(), device)?.for_inference();
        let tuner = Some(tuner(target, &draft, &taken)?);
        entrants.push(Entrant { name: name.into(), source: dir.display().to_string(), draft: Box::new(draft), tuner });
    }
    let plan = Plan {
        target: "builtin".into(),
        device: taken,
        temperatures: vec![0.0],
        top_p: 1.0,
        top_k: 0,
        tree: TREE,
        acceptance: Acceptance::PointMass,
        max_new_tokens: None,
        limit: None,
        shard: Shard::WHOLE,
        seed: SEED,
        blind: false,
        warm_up: 1,
        checkpoints,
    };
    measure(target, &entrants, &[charts as &dyn Benchmark], &plan)
}

fn plain_answers(report: &Report) -> Vec<String> {
    let plain = report.runs.iter().find(|run| run.draft.is_none());
    plain.map_or_else(Vec::new, |run| run.samples.iter().map(|sample| sample.answer.clone()).collect())
}

/// A held-out chart, its question, and the answer as it comes.
fn show(out: &Path, target: &ServedTarget, charts: &Charts, device: &Device) -> Result<()> {
    let Some(chart) = charts.charts().first() else { return Ok(()) };
    let image = picture(chart);
    if std::io::stdout().is_terminal() {
        say(&format!("\n{}\n", characters(chart, &image)))?;
    }
    say_line(&format!("> {}", chart.question))?;
    let message = Message::user(format!("<image>\n{}", chart.question));
    let request = Request {
        prompt: target.model.rows(&target.prompt(&[message], &[image])?)?,
        max_new_tokens: charts.max_new_tokens(),
        eos: target.eos.clone(),
        sampling: Sampling::GREEDY,
        tree: TREE.into(),
        acceptance: Acceptance::PointMass,
        blind_draft: false,
    };
    let draft = DraftModel::open(&out.join("vsd"), target.model.llama(), device)?.for_inference();
    let generation = stream(target, Some(&draft), &request)?;
    say_line(&format!("({})", footer(&generation)))
}
