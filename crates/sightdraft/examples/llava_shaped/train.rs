//! The training loop: next-token loss on the answers, gradients through the frozen language model to the projector alone.

use std::path::Path;
use std::time::Instant;

use burn::grad_clipping::GradientClippingConfig;
use burn::optim::{AdamWConfig, GradientsAccumulator, GradientsParams, ModuleOptimizer};
use burn::prelude::*;
use sightdraft_core::Result;
use sightdraft_kernels::log_sum_exp;
use sightdraft_target::{Llava, Mask, Prompt, Target};
use sightdraft_vision::Pixels;

use crate::checkpoint;
use crate::lessons::{Lesson, Reader};

/// What a run is.
pub struct Plan {
    /// Optimizer steps.
    pub steps: u64,
    /// Conversations in a step.
    pub batch: u64,
    /// Highest learning rate.
    pub learning_rate: f64,
    /// Steps between checkpoints.
    pub every: u64,
}

/// What is learnt and what is asked.
pub struct Lessons<'a> {
    /// Opens the pictures.
    pub reader: &'a Reader,
    /// Trained on, in this order, again and again.
    pub train: &'a [Lesson],
    /// Only measured.
    pub held_out: &'a [Lesson],
}

/// Share of the steps over which the learning rate rises, as LLaVA trains its projector.
const WARM_UP: f64 = 0.03;

impl Plan {
    /// Warm-up, then a cosine to nothing.
    fn rate(&self, step: u64) -> f64 {
        let (done, warm) = ((step + 1) as f64 / self.steps as f64, WARM_UP.max(1.0 / self.steps as f64));
        let falling = 0.5 * (1.0 + (std::f64::consts::PI * (done - warm).max(0.0)).cos());
        self.learning_rate * (done / warm).min(1.0) * falling
    }
}

/// Trains the projector of `model`, from the checkpoint in `dir` if there is one.
///
/// # Errors
/// A picture that cannot be read, a checkpoint that does not fit, or what the disk refuses.
pub fn run(mut model: Llava, lessons: &Lessons, plan: &Plan, dir: &Path) -> Result<Llava> {
    let mut optimizer: ModuleOptimizer =
        AdamWConfig::new().with_weight_decay(0.0).with_grad_clipping(Some(GradientClippingConfig::Norm(1.0))).init();
    let mut start = 0;
    if let Some(step) = checkpoint::step(dir)? {
        (model.vision.projector, optimizer) = checkpoint::load(dir, model.vision.projector, optimizer)?;
        start = step;
        println!("resumed at step {start}");
    }
    println!("step {start}: {}", HeldOut::of(&model, lessons)?);
    let (clock, mut recent) = (Instant::now(), Vec::new());
    for step in start..plan.steps {
        let (gradients, loss) = gradients(&model, lessons, plan, step)?;
        recent.push(loss);
        model.vision.projector = optimizer.step(plan.rate(step), model.vision.projector, gradients);
        let done = step + 1;
        if done.is_multiple_of(REPORTED) {
            let pace = clock.elapsed().as_secs_f64() / (done - start) as f64;
            let mean = recent.iter().sum::<f32>() / recent.len() as f32;
            println!("step {done}/{}: loss {mean:.4}, {pace:.2} s a step", plan.steps);
            recent.clear();
        }
        if done.is_multiple_of(plan.every) || done == plan.steps {
            checkpoint::save(dir, done, &model.vision.projector, &optimizer)?;
            println!("step {done}: {}", HeldOut::of(&model, lessons)?);
        }
    }
    Ok(model)
}

/// Steps between printed losses.
const REPORTED: u64 = 5;

/// Gradients and mean loss of a step's conversations, one after the other: their graphs never stand in memory together.
fn gradients(model: &Llava, lessons: &Lessons, plan: &Plan, step: u64) -> Result<(GradientsParams, f32)> {
    let mut sum = GradientsAccumulator::new();
    let mut total = 0.0;
    for number in step * plan.batch..(step + 1) * plan.batch {
        let lesson = &lessons.train[(number % lessons.train.len() as u64) as usize];
        let loss = loss(model, lesson, lessons.reader.pixels(lesson)?)? / plan.batch as f64;
        total += loss.clone().into_scalar::<f32>();
        let projector = &model.vision.projector;
        sum.accumulate(projector, GradientsParams::from_grads(loss.backward(), projector));
    }
    Ok((sum.grads(), total))
}

/// Mean negative log-likelihood of the answer's tokens behind the picture `shown`; only their rows meet the vocabulary.
fn loss(model: &Llava, lesson: &Lesson, shown: Pixels) -> Result<Tensor<1>> {
    let prompt = model.rows(&Prompt { ids: lesson.ids.clone(), images: vec![shown] })?;
    let (n, answer) = (prompt.ids.len(), lesson.answer);
    let llama = &model.llama;
    let pass = llama.forward(prompt.embeds, &[(0..n).collect()], &Mask::Causal, &mut llama.new_cache(), &[]);
    let logits = llama.logits(pass.hidden.narrow(1, n - answer - 1, answer)).squeeze_dim::<2>(0);
    let ids: Vec<i64> = prompt.ids[n - answer..].iter().map(|id| i64::from(*id)).collect();
    let ids = Tensor::<2, Int>::from_data(TensorData::new(ids, [answer, 1]), &logits.device());
    let chosen = logits.clone().gather(1, ids).squeeze_dim::<1>(1);
    Ok((log_sum_exp(logits) - chosen).mean())
}

/// Mean loss of held-out answers behind their own pictures and behind each other's: the second is higher if pictures are used.
pub struct HeldOut {
    /// With the right picture.
    pub right: f32,
    /// With the next conversation's.
    pub swapped: f32,
}

impl HeldOut {
    /// Of `model`.
    ///
    /// # Errors
    /// A picture that cannot be read.
    pub fn of(model: &Llava, lessons: &Lessons) -> Result<Self> {
        // Without gradients: graphs that no backward pass takes apart would stay in memory.
        let model = &model.valid();
        let count = lessons.held_out.len();
        let mut found = Self { right: 0.0, swapped: 0.0 };
        for (at, lesson) in lessons.held_out.iter().enumerate() {
            let behind = |picture: &Lesson| -> Result<f32> {
                Ok(loss(model, lesson, lessons.reader.pixels(picture)?)?.into_scalar::<f32>() / count as f32)
            };
            found.right += behind(lesson)?;
            found.swapped += behind(&lessons.held_out[(at + 1) % count])?;
        }
        Ok(found)
    }
}

impl std::fmt::Display for HeldOut {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "held-out loss {:.4} with the right image, {:.4} with another's", self.right, self.swapped)
    }
}
