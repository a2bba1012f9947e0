//! The training loop: next-token loss on the answers, AdamW, warm-up and cosine.

use std::path::Path;
use std::time::Instant;

use burn::grad_clipping::GradientClippingConfig;
use burn::optim::{AdamWConfig, GradientsParams, ModuleOptimizer};
use burn::prelude::*;
use burn::tensor::activation::log_softmax;
use sightdraft_core::Result;
use sightdraft_target::{Llava, Mask};

use crate::batch::{Batch, Encoder, Feed, collate};
use crate::{checkpoint, score};

/// What a run is.
pub struct Plan {
    /// Of charts and weights.
    pub seed: u64,
    /// Optimizer steps.
    pub steps: u64,
    /// Charts in a step.
    pub batch: usize,
    /// Highest learning rate.
    pub learning_rate: f64,
    /// Steps between checkpoints (and scores).
    pub every: u64,
}

/// Steps over which the learning rate rises.
const WARM_UP: u64 = 100;
/// Up to this step answers are cut after [`SHORT`] tokens: reading the title and the first items is learnt from half the
/// work.
const SHORT_STEPS: u64 = 1000;
/// Tokens of a short answer.
const SHORT: usize = 32;

impl Plan {
    /// Warm-up, then constant, then a cosine to 1/50 over the last third: so that a run of more steps starts the same.
    fn rate(&self, step: u64) -> f64 {
        let warm = ((step + 1) as f64 / WARM_UP as f64).min(1.0);
        let third = self.steps as f64 / 3.0;
        let done = ((step as f64 - 2.0 * third) / third).clamp(0.0, 1.0);
        self.learning_rate * warm * (0.02 + 0.98 * 0.5 * (1.0 + (std::f64::consts::PI * done).cos()))
    }

    fn limit(&self, step: u64) -> usize {
        if step < SHORT_STEPS { SHORT } else { usize::MAX }
    }
}

/// Trains `model`, from the checkpoint in `dir` if there is one.
///
/// # Errors
/// A checkpoint that does not fit, or what the disk refuses.
pub fn run(mut model: Llava, encoder: &Encoder, plan: &Plan, dir: &Path, device: &Device) -> Result<Llava> {
    let mut optimizer: ModuleOptimizer = AdamWConfig::new()
        .with_beta_2(0.98)
        .with_epsilon(1e-8)
        .with_weight_decay(0.02)
        .with_grad_clipping(Some(GradientClippingConfig::Norm(1.0)))
        .init();
    let mut start = 0;
    if let Some(step) = checkpoint::step(dir)? {
        (model, optimizer) = checkpoint::load(dir, model, optimizer)?;
        start = step;
        println!("resumed at step {start}");
    }
    let image_rows = model.vision.rows_per_image();
    let mut feed = Feed::new(encoder, plan.seed, plan.batch);
    let (clock, mut recent) = (Instant::now(), Vec::new());
    for step in start..plan.steps {
        let batch = collate(feed.samples(step, plan.limit(step))?, image_rows, device);
        let loss = loss(&model, &batch);
        recent.push(loss.clone().into_scalar::<f32>());
        let gradients = GradientsParams::from_grads(loss.backward(), &model);
        model = optimizer.step(plan.rate(step), model, gradients);
        let done = step + 1;
        if done.is_multiple_of(20) {
            let mean = recent.iter().sum::<f32>() / recent.len() as f32;
            let pace = clock.elapsed().as_secs_f64() / (done - start) as f64;
            println!("step {done}/{} loss {mean:.4} {:.2} s a step", plan.steps, pace);
            recent.clear();
        }
        if done.is_multiple_of(plan.every) || done == plan.steps {
            checkpoint::save(dir, done, &model, &optimizer)?;
            println!("step {done} held-out {:?}", score::run(&model.valid(), encoder, plan.seed, 24)?);
        }
    }
    Ok(model)
}

/// Mean negative log-likelihood of the answer tokens; only their rows meet the vocabulary.
fn loss(model: &Llava, batch: &Batch) -> Tensor<1> {
    let before = model.llama.embed(batch.before.clone());
    let images = model.vision.forward(&batch.pixels);
    let after = model.llama.embed(batch.after.clone());
    let embeds = Tensor::cat(vec![before, images, after], 1);
    let [size, n, width] = embeds.dims();
    let positions = [(0..n).collect()];
    let pass = model.llama.forward(embeds, &positions, &Mask::Causal, &mut model.llama.new_cache(), &[]);
    let rows = pass.hidden.reshape([size * n, width]).select(0, batch.rows.clone());
    let logits: Tensor<2> = model.llama.logits(rows.unsqueeze()).squeeze_dim(0);
    -log_softmax(logits, 1).gather(1, batch.targets.clone()).mean()
}
