//! Two drafts of equal compute from the same start.

use std::path::Path;

use burn::tensor::Device;
use sightdraft_core::{Error, Result};
use sightdraft_draft::DraftModel;
use sightdraft_target::ServedTarget;
use sightdraft_train::objective::{SoftCe, Vsd};
use sightdraft_train::trainer::best_dir;
use sightdraft_train::{Example, ObjectiveConfig, OptimConfig, Setup, TrainConfig, Trainer};

/// How much is done.
#[derive(Debug, Clone, Copy)]
pub struct Effort {
    /// Charts to train on.
    pub lessons: usize,
    /// Charts to choose checkpoints by.
    pub held_out: usize,
    /// Optimiser steps of the common start, with `soft_ce`.
    pub start_steps: usize,
    /// Optimiser steps of each continuation.
    pub steps: usize,
    /// Charts that are measured.
    pub measured: usize,
}

/// What training works on.
pub struct School<'a> {
    /// The target.
    pub target: &'a ServedTarget,
    /// Lessons.
    pub lessons: Vec<Example>,
    /// What checkpoints are chosen by.
    pub held_out: Vec<Example>,
    /// Where runs leave their checkpoints.
    pub out: &'a Path,
    /// Seed of order and samples.
    pub seed: u64,
}

impl School<'_> {
    /// Trains `draft` for `steps` with `objective` and gives back the checkpoint that was best on held-out charts.
    pub fn train(
        &self,
        name: &str,
        draft: DraftModel,
        objective: ObjectiveConfig,
        steps: usize,
        device: &Device,
    ) -> Result<DraftModel> {
        let out = self.out.join(name);
        if out.exists() {
            std::fs::remove_dir_all(&out).map_err(|e| Error::io("replace", &out, e))?;
        }
        let setup = Setup {
            config: config(objective, steps, self.seed),
            target: self.target.model.as_ref(),
            target_name: "builtin".into(),
            eos: self.target.eos.clone(),
            examples: self.lessons.clone(),
            held_out: self.held_out.clone(),
            features: out.join("features"),
            out: out.clone(),
        };
        Trainer::start(setup, draft)?.run(&mut |_| {})?;
        DraftModel::open(&best_dir(&out), self.target.model.llama(), device)
    }
}

/// The baseline.
pub fn soft_ce() -> ObjectiveConfig {
    ObjectiveConfig::SoftCe(SoftCe::default())
}

/// VSD at temperature 0.
pub fn vsd() -> ObjectiveConfig {
    ObjectiveConfig::Vsd(Vsd::default())
}

/// One recipe for all, but for the objective.
fn config(objective: ObjectiveConfig, steps: usize, seed: u64) -> TrainConfig {
    TrainConfig {
        seed,
        unroll: 4,
        objective,
        optim: OptimConfig { lr: 3e-3, ..OptimConfig::default() },
        // The number of steps ends the run, not the number of epochs.
        epochs: 1000,
        max_steps: Some(steps),
        batch_tokens: 1024,
        checkpoint_every: steps,
        evaluate_every: (steps / 4).max(1),
        ..TrainConfig::default()
    }
}
