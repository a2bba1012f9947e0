//! The training loop.

use std::fs;
use std::hash::Hash;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Instant;

use burn::module::Module;
use burn::optim::{AdamWConfig, GradientsAccumulator, GradientsParams, ModuleOptimizer};
use burn::prelude::*;
use serde::{Deserialize, Serialize};
use sightdraft_core::digits::digits;
use sightdraft_core::{Error, Result, progress};
use sightdraft_draft::{Draft, DraftModel};
use sightdraft_target::{KvCache, Target};

use crate::batches;
use crate::cache::{CacheKey, FeatureCache, Missing};
use crate::checkpoint::{self, Best, State};
use crate::clip::clip_by_global_norm;
use crate::config::{Features, TrainConfig};
use crate::example::Example;
use crate::features::{Batch, Sequence, restricted_head};
use crate::held_out::{HeldOut, Tally};
use crate::objective::{Objective, PathBatch};
use crate::plan::{self, Size};
use crate::rollout::rollout;
use crate::trainable::trainable;

/// One line per step, in the run's directory.
const METRICS: &str = "metrics.jsonl";

/// What a run works on.
pub struct Setup<'a> {
    /// The recipe.
    pub config: TrainConfig,
    /// The target that will serve the draft: same weights, same precision.
    pub target: &'a dyn Target,
    /// The target's name and precision: features of one target are not taken for another's.
    pub target_name: String,
    /// Ids that end an answer.
    pub eos: Vec<u32>,
    /// Conversations to train on. Those longer than `max_length` must be left out before.
    pub examples: Vec<Example>,
    /// Conversations to choose checkpoints by; may be empty.
    pub held_out: Vec<Example>,
    /// A folder of feature caches, where features are on disk: runs of one target, data and taps share one.
    pub features: PathBuf,
    /// Directory of the run.
    pub out: PathBuf,
}

/// One line of metrics.jsonl.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct StepReport {
    /// Optimiser steps done, this one included.
    pub step: usize,
    /// The objective, mean over the step's sequences.
    pub loss: f32,
    /// Learning rate of this step.
    pub lr: f64,
    /// Global gradient norm before clipping.
    pub grad_norm: f64,
    /// Sequence rows in the step, without padding.
    pub tokens: usize,
    /// Share of the target's choices that the draft vocabulary lacks.
    pub out_of_vocabulary: f32,
    /// Seconds, target passes included.
    pub seconds: f64,
    /// What the objective logs.
    pub objective: std::collections::BTreeMap<String, f32>,
    /// Held-out acceptance, on the steps where it is measured.
    pub held_out: Option<HeldOut>,
}

/// A run in progress.
pub struct Trainer<'a> {
    setup: Setup<'a>,
    draft: DraftModel,
    optimizer: ModuleOptimizer,
    head: Tensor<2>,
    schedule: Vec<Vec<Vec<usize>>>,
    cache: Option<FeatureCache>,
    state: State,
}

impl<'a> Trainer<'a> {
    /// Begins a run with `draft`.
    ///
    /// # Errors
    /// A recipe that does not fit, no data, a directory that already holds a run.
    pub fn start(setup: Setup<'a>, draft: DraftModel) -> Result<Self> {
        if checkpoint::exists(&setup.out) {
            let mend = "resume it, or name another directory";
            return Err(Error::file(&setup.out, "a directory without a run", "a checkpoint", mend));
        }
        fs::create_dir_all(&setup.out).map_err(|e| Error::io("create", &setup.out, e))?;
        let state = State::new(setup.config.clone(), setup.target_name.clone(), fingerprint(&setup));
        let optimizer = new_optimizer(&setup.config);
        let trainer = Self::assemble(setup, trainable(draft, None), optimizer, state)?;
        trainer.forget_metrics_after(0)?;
        Ok(trainer)
    }

    /// Goes on from `last/` of the run's directory.
    ///
    /// # Errors
    /// No checkpoint there, or one of another recipe or other data.
    pub fn resume(setup: Setup<'a>) -> Result<Self> {
        if !checkpoint::exists(&setup.out) {
            return Err(Error::file(setup.out.join("last"), "a checkpoint", "none", "start the run without resuming"));
        }
        let llama = setup.target.llama();
        let device = llama.embed_tokens.weight.val().device();
        let (draft, optimizer, state) =
            checkpoint::load_last(&setup.out, llama, new_optimizer(&setup.config), &device)?;
        let refuse = |what: &str| {
            let mend = "resume with the same recipe, target and data, or start in another directory";
            Err(Error::file(setup.out.join("last"), format!("a checkpoint of this {what}"), "one of another", mend))
        };
        if state.config != setup.config {
            return refuse("recipe");
        }
        if state.target != setup.target_name {
            return refuse("target");
        }
        if state.data != fingerprint(&setup) {
            return refuse("data");
        }
        let trainer = Self::assemble(setup, draft, optimizer, state)?;
        trainer.forget_metrics_after(trainer.state.step)?;
        Ok(trainer)
    }

    fn assemble(setup: Setup<'a>, draft: DraftModel, optimizer: ModuleOptimizer, state: State) -> Result<Self> {
        setup.config.validate()?;
        let sizes: Vec<Size> = setup.examples.iter().map(Example::size).collect();
        let schedule = plan::schedule(&setup.config, &sizes);
        if schedule.is_empty() {
            return Err(Error::invalid("training data", "at least one conversation", "none", "check the file"));
        }
        if setup.config.visual_ramp && sizes.iter().all(|size| size.image == sizes[0].image) {
            let (expected, found) = ("conversations with images and without", "one kind alone");
            return Err(Error::invalid("visual_ramp", expected, found, "add the other kind, or turn the ramp off"));
        }
        if setup.config.objective.objective().regresses() && draft.taps().len() != 1 {
            let (expected, found) = ("a draft that guesses the target's last feature", "one that reads several taps");
            let mend = "take soft_ce or another objective on tokens, or a draft of EAGLE-1's family";
            return Err(Error::invalid("objective", expected, found, mend));
        }
        let head = restricted_head(setup.target.llama(), draft.vocab());
        let cache = match setup.config.features {
            Features::Online => None,
            Features::Disk => {
                let key = CacheKey {
                    data: state.data.clone(),
                    taps: draft.taps().to_vec(),
                    target: setup.target_name.clone(),
                };
                Some(FeatureCache::open(&setup.features, &key, &head.device())?)
            }
        };
        Ok(Self { setup, draft, optimizer, head, schedule, cache, state })
    }

    fn objective(&self) -> &dyn Objective {
        self.setup.config.objective.objective()
    }

    /// Optimiser steps of the whole run.
    pub fn total_steps(&self) -> usize {
        self.schedule.len()
    }

    /// Optimiser steps done.
    pub fn steps_done(&self) -> usize {
        self.state.step
    }

    /// The draft as it is now, for inference.
    pub fn draft(&self) -> DraftModel {
        self.draft.valid()
    }

    /// The best measurement so far.
    pub fn best(&self) -> Option<&Best> {
        self.state.best.as_ref()
    }

    /// One optimiser step; None when the run is complete.
    ///
    /// # Errors
    /// What the target finds wrong with a conversation; a loss that is not a number.
    pub fn step(&mut self) -> Result<Option<StepReport>> {
        let Some(micro_batches) = self.schedule.get(self.state.step).cloned() else { return Ok(None) };
        let begin = Instant::now();
        let mut report = StepReport {
            step: self.state.step + 1,
            lr: self.setup.config.optim.learning_rate(self.state.step, self.total_steps()),
            ..StepReport::default()
        };
        let sequences = micro_batches.iter().map(Vec::len).sum();
        let mut rng = batches::step_stream(self.setup.config.seed, self.state.step);
        let mut gradients = GradientsAccumulator::new();
        for batch in &micro_batches {
            if let Some(grads) = self.micro_batch(batch, sequences, &mut rng, &mut report)? {
                gradients.accumulate(&self.draft, grads);
            }
        }
        report.objective.values_mut().for_each(|v| *v /= micro_batches.len() as f32);
        report.out_of_vocabulary /= micro_batches.len() as f32;
        if !report.loss.is_finite() {
            let mend = "resume from the last checkpoint with a lower learning rate";
            return Err(Error::invalid(
                format!("loss at step {}", report.step),
                "a number",
                report.loss.to_string(),
                mend,
            ));
        }
        let (grads, norm) = clip_by_global_norm(&self.draft, gradients.grads(), self.setup.config.optim.clip);
        report.grad_norm = norm;
        // The optimiser consumes the module and hands the new one back; a clone shares its tensors.
        self.draft = self.optimizer.step(report.lr, self.draft.clone(), grads);
        self.state.step += 1;
        report.seconds = begin.elapsed().as_secs_f64();
        Ok(Some(report))
    }

    /// Loss and gradients of one batch; None where no row trains.
    fn micro_batch(
        &self,
        batch: &[usize],
        step_sequences: usize,
        rng: &mut rand_chacha::ChaCha8Rng,
        report: &mut StepReport,
    ) -> Result<Option<GradientsParams>> {
        let (mut sequences, mut paths) = (vec![], vec![]);
        for &number in batch {
            let (sequence, cache) = self.sequence(number)?;
            if let (Some(request), Some(mut cache)) = (self.objective().rollout(), cache) {
                let llama = self.setup.target.llama();
                let steps = self.setup.config.unroll;
                let eos = &self.setup.eos;
                paths.extend(rollout(&self.draft, llama, &sequence, &mut cache, steps, request, eos, rng));
            }
            sequences.push(sequence);
        }
        report.tokens += sequences.iter().map(Sequence::len).sum::<usize>();
        let batch = Batch::new(&sequences, self.setup.config.unroll).with_noise(self.setup.config.feature_noise, rng);
        if batch.anchors.is_empty() {
            return Ok(None);
        }
        let mut unrolled = batch.unroll(&self.draft, &self.head, step_sequences);
        unrolled.paths = PathBatch::join(paths, step_sequences);
        let (lacking, all) = batch.out_of_vocabulary(self.draft.vocab());
        report.out_of_vocabulary += lacking as f32 / all.max(1) as f32;
        let loss = self.objective().loss(&unrolled, rng);
        for (name, value) in loss.logged {
            *report.objective.entry(name).or_default() += value;
        }
        report.loss += loss.value.clone().detach().into_scalar::<f32>();
        Ok(Some(GradientsParams::from_grads(loss.value.backward(), &self.draft)))
    }

    /// A training conversation after its target pass; with the target's cache if it was run just now for paths.
    fn sequence(&self, number: usize) -> Result<(Sequence, Option<KvCache>)> {
        let run = || Sequence::run(self.setup.target, self.draft.taps(), &self.setup.examples[number]);
        match &self.cache {
            Some(cache) => Ok((cache.get_or(number, || Ok(run()?.0))?, None)),
            None => run().map(|(sequence, cache)| (sequence, Some(cache))),
        }
    }

    /// What [`Trainer::fill_cache`] would make; None where features are made online or all are there.
    pub fn missing_features(&self) -> Option<Missing> {
        let width = self.setup.target.llama().config.hidden_size;
        let examples = self.setup.examples.iter().chain(&self.setup.held_out);
        let missing = self.cache.as_ref()?.missing(examples, self.draft.taps().len() * width, width);
        (!missing.numbers.is_empty()).then_some(missing)
    }

    /// Makes the features that the cache does not hold yet, with a bar. Cut short, it goes on where it stopped.
    ///
    /// # Errors
    /// What the target finds wrong with a conversation; a full disk.
    pub fn fill_cache(&self) -> Result<()> {
        let (Some(missing), Some(cache)) = (self.missing_features(), &self.cache) else { return Ok(()) };
        let bar = progress::bar(missing.numbers.len() as u64, "features");
        let examples: Vec<&Example> = self.setup.examples.iter().chain(&self.setup.held_out).collect();
        for number in missing.numbers {
            cache.get_or(number, || Ok(Sequence::run(self.setup.target, self.draft.taps(), examples[number])?.0))?;
            bar.inc(1);
        }
        bar.finish();
        Ok(())
    }

    /// Held-out acceptance of the draft as it is now.
    ///
    /// # Errors
    /// What the target finds wrong with a conversation.
    pub fn measure(&self) -> Result<HeldOut> {
        let draft = self.draft.valid();
        let mut tally = Tally::default();
        for (i, example) in self.setup.held_out.iter().enumerate() {
            let run = || Ok(Sequence::run(self.setup.target, draft.taps(), example)?.0);
            let sequence = match &self.cache {
                // Held-out conversations are filed behind the training ones.
                Some(cache) => cache.get_or(self.setup.examples.len() + i, run)?,
                None => run()?,
            };
            tally.add(&draft, std::slice::from_ref(&sequence), &self.head, self.setup.config.held_out_unroll());
        }
        Ok(tally.finish())
    }

    /// Measures, and keeps the draft in `best/` if nothing before was better.
    ///
    /// # Errors
    /// As [`Trainer::measure`], and what the disk refuses.
    pub fn measure_and_keep(&mut self) -> Result<HeldOut> {
        let held_out = self.measure()?;
        if self.state.best.as_ref().is_none_or(|best| held_out.accepted > best.held_out.accepted) {
            let best = Best { step: self.state.step, held_out: held_out.clone() };
            checkpoint::save_best(&self.setup.out, &self.draft.valid(), &best)?;
            self.state.best = Some(best);
        }
        Ok(held_out)
    }

    /// Writes `last/`.
    ///
    /// # Errors
    /// What the disk refuses.
    pub fn save(&self) -> Result<()> {
        checkpoint::save_last(&self.setup.out, &self.draft, &self.optimizer, &self.state)
    }

    /// Trains to the end: fills the feature cache, measures, checkpoints, logs, draws the bar. `on_step` sees every report.
    ///
    /// # Errors
    /// As [`Trainer::step`], [`Trainer::measure`] and [`Trainer::save`].
    pub fn run(&mut self, on_step: &mut dyn FnMut(&StepReport)) -> Result<()> {
        self.fill_cache()?;
        let bar = progress::bar(self.total_steps() as u64, "training");
        bar.set_position(self.state.step as u64);
        let mut accepted = self.best().map(|best| best.held_out.accepted);
        while let Some(mut report) = self.step()? {
            let last = report.step == self.total_steps();
            let due = |every: usize| last || report.step.is_multiple_of(every);
            let (evaluate, save) = (due(self.setup.config.evaluate_every), due(self.setup.config.checkpoint_every));
            if evaluate && !self.setup.held_out.is_empty() {
                let held_out = self.measure_and_keep()?;
                accepted = Some(held_out.accepted);
                report.held_out = Some(held_out);
            }
            self.log(&report)?;
            if save {
                self.save()?;
            }
            let rate = report.tokens as f64 / report.seconds.max(1e-9);
            let acceptance = accepted.map_or(String::new(), |a| format!(", accepted {a:.3}"));
            bar.set_message(format!("{rate:.0} tokens/s, loss {:.4}{acceptance}", report.loss));
            bar.inc(1);
            on_step(&report);
        }
        bar.finish();
        Ok(())
    }

    /// Appends a line to metrics.jsonl.
    fn log(&self, report: &StepReport) -> Result<()> {
        let path = self.metrics_path();
        let mut line = serde_json::to_vec(report).expect("plain structs serialise");
        line.push(b'\n');
        let open = fs::OpenOptions::new().create(true).append(true).open(&path);
        open.and_then(|mut file| file.write_all(&line)).map_err(|e| Error::io("write", &path, e))
    }

    /// Drops lines of steps that were done after the checkpoint and will be done again.
    fn forget_metrics_after(&self, step: usize) -> Result<()> {
        let path = self.metrics_path();
        let Ok(text) = fs::read_to_string(&path) else { return Ok(()) };
        let kept = |line: &&str| serde_json::from_str::<StepReport>(line).is_ok_and(|report| report.step <= step);
        let lines: String = text.lines().filter(kept).flat_map(|line| [line, "\n"]).collect();
        sightdraft_core::files::write_atomically(&path, lines.as_bytes())
    }

    fn metrics_path(&self) -> PathBuf {
        self.setup.out.join(METRICS)
    }
}

/// The steps that a run in `out` has logged.
///
/// # Errors
/// No log, or a line in it that is none.
pub fn read_metrics(out: &Path) -> Result<Vec<StepReport>> {
    let path = out.join(METRICS);
    let text = fs::read_to_string(&path).map_err(|e| Error::io("read", &path, e))?;
    let step = |line: &str| {
        serde_json::from_str(line).map_err(|e| Error::file(&path, "a step per line", e.to_string(), "train again"))
    };
    text.lines().map(step).collect()
}

fn new_optimizer(config: &TrainConfig) -> ModuleOptimizer {
    let optim = &config.optim;
    AdamWConfig::new()
        .with_beta_1(optim.beta1)
        .with_beta_2(optim.beta2)
        .with_epsilon(optim.epsilon)
        .with_weight_decay(optim.weight_decay)
        .init()
}

/// Tells data apart: names, ids, masks and images of all conversations in order.
fn fingerprint(setup: &Setup<'_>) -> String {
    digits(|hasher| {
        for example in setup.examples.iter().chain(&setup.held_out) {
            (&example.id, &example.ids, &example.assistant, &example.images).hash(hasher);
        }
        setup.examples.len().hash(hasher);
    })
}

/// Where a run keeps the draft that was best on held-out data.
pub fn best_dir(out: &Path) -> PathBuf {
    out.join("best")
}
