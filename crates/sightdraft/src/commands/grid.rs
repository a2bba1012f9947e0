//! `sightdraft grid`: variants of a recipe from one start with equal compute, in one table.

use std::path::{Path, PathBuf};

use burn::tensor::Device;
use clap::Args;
use serde::Serialize;
use sightdraft_core::files::{read_json, write_atomically};
use sightdraft_core::{Error, Result};
use sightdraft_target::ServedTarget;
use sightdraft_train::{Setup, Trainer, checkpoint, trainer};

use super::train::{Conversations, Examples, first_draft};
use crate::arguments::DeviceArguments;
use crate::builtin;
use crate::grid::table::{Line, lines, render};
use crate::grid::{Cell, Grid, Outcome};
use crate::output::{print_json, say};
use crate::recipe::features;

#[derive(Debug, Args)]
pub struct Arguments {
    /// The grid file: base recipe, start, seeds, variants.
    #[arg(long)]
    config: PathBuf,
    /// Print one JSON object on stdout instead of the table.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    device: DeviceArguments,
}

/// What `--json` prints.
#[derive(Debug, Serialize)]
struct Comparison {
    seeds: Vec<u64>,
    variants: Vec<Line>,
}

pub fn run(arguments: &Arguments) -> Result<()> {
    let grid = Grid::open(&arguments.config)?;
    let cells = grid.cells()?;
    let mut outcomes = cells.iter().map(finished).collect::<Result<Vec<_>>>()?;
    let done = outcomes.iter().flatten().count();
    eprintln!("{} runs, {done} of them finished before", cells.len());
    if done < cells.len() {
        let (device, taken) = arguments.device.pick()?;
        eprintln!("{taken}");
        let school = School::open(&grid, &cells[0], arguments, device)?;
        for (cell, outcome) in cells.iter().zip(&mut outcomes).filter(|(_, outcome)| outcome.is_none()) {
            let run = school.train(cell)?;
            let accepted = run.best.held_out.accepted;
            eprintln!("{}, seed {}: {accepted:.3} accepted", cell.variant, cell.recipe.train.seed);
            *outcome = Some(run);
        }
    }
    let outcomes: Vec<Outcome> = outcomes.into_iter().flatten().collect();
    let lines = lines(&grid, &outcomes);
    if arguments.json {
        return print_json(&Comparison { seeds: grid.seeds, variants: lines });
    }
    say(&render(&lines))
}

/// Where a finished run leaves its figures.
fn result_path(cell: &Cell) -> PathBuf {
    cell.recipe.models.out.join("result.json")
}

/// The figures of a run that was finished before.
fn finished(cell: &Cell) -> Result<Option<Outcome>> {
    let path = result_path(cell);
    if !path.exists() {
        return Ok(None);
    }
    let outcome: Outcome = read_json(&path)?;
    if outcome.cell != *cell {
        let mend = "name another `out`, or remove that run's directory";
        return Err(Error::file(path, "a run of this variant's recipe", "one of another recipe", mend));
    }
    Ok(Some(outcome))
}

/// What all runs share.
struct School {
    target: ServedTarget,
    target_name: String,
    features: PathBuf,
    examples: Examples,
    device: Device,
}

impl School {
    fn open(grid: &Grid, first: &Cell, arguments: &Arguments, device: Device) -> Result<Self> {
        let recipe = &first.recipe;
        let conversations = Conversations::read(recipe)?;
        let dir = builtin::resolve(&recipe.models.target)?;
        let target = ServedTarget::open(&dir, arguments.device.dtype(), &device)?;
        let examples = conversations.encode(recipe, &target)?;
        if examples.held_out.is_empty() {
            let mend = "name conversations to measure on, or raise max_length";
            return Err(Error::file(&recipe.models.held_out, "at least one conversation", "none", mend));
        }
        let target_name = format!("{} as {:?}", recipe.models.target, arguments.device.dtype());
        let features = features(&grid.out, &dir)?;
        Ok(Self { target, target_name, features, examples, device })
    }

    /// Does one run, or the rest of it, and files its figures.
    fn train(&self, cell: &Cell) -> Result<Outcome> {
        let out = cell.recipe.models.out.clone();
        let setup = Setup {
            config: cell.recipe.train.clone(),
            target: self.target.model.as_ref(),
            target_name: self.target_name.clone(),
            eos: self.target.eos.clone(),
            examples: self.examples.training.clone(),
            held_out: self.examples.held_out.clone(),
            features: self.features.clone(),
            out: out.clone(),
        };
        let mut trainer = if checkpoint::exists(&out) {
            Trainer::resume(setup)?
        } else {
            let llama = self.target.model.llama();
            let draft = first_draft(&cell.recipe, &self.examples.training, llama, &self.device)?;
            Trainer::start(setup, draft)?
        };
        trainer.run(&mut |_| {})?;
        let outcome = outcome(cell, &trainer, &out)?;
        let text = serde_json::to_vec_pretty(&outcome).expect("plain structs serialise");
        write_atomically(&result_path(cell), &text)?;
        Ok(outcome)
    }
}

/// A finished run's figures, earlier sittings included.
fn outcome(cell: &Cell, trainer: &Trainer<'_>, out: &Path) -> Result<Outcome> {
    let steps = trainer::read_metrics(out)?;
    let last = steps.iter().rev().find_map(|step| step.held_out.clone());
    match (trainer.best(), last) {
        (Some(best), Some(last)) => Ok(Outcome {
            cell: cell.clone(),
            best: best.clone(),
            last,
            tokens: steps.iter().map(|step| step.tokens).sum(),
            seconds: steps.iter().map(|step| step.seconds).sum(),
        }),
        _ => {
            let mend = "remove that run's directory and run the grid again";
            Err(Error::file(out.join("metrics.jsonl"), "a held-out measurement behind the last step", "none", mend))
        }
    }
}
