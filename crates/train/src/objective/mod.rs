//! Training objectives behind one trait.
//!
//! An objective sees an [`Unrolled`] draft: for M anchor rows and L steps the draft's logits, the target's distribution of
//! the same token, and the target's greedy token. It never sees a model. Rows that train nothing are not in it.

mod ce;
mod cells;
mod divergence;
mod dpace;
mod eagle1;
mod elbo;
mod em;
mod griffin;
mod hass;
mod lk;
mod log_prob;
mod paths;
mod regression;
mod reweight;
mod soft_ce;
mod sum;
mod survival;
mod top_k;
mod tv;
mod vat;
mod vispec;
mod vsd;

#[cfg(test)]
mod tests;

use burn::prelude::*;
use rand_chacha::ChaCha8Rng;

pub use ce::Ce;
pub use dpace::Dpace;
pub use eagle1::Eagle1Loss;
pub use elbo::Elbo;
pub use em::{Em, Negative, Oracle};
pub use griffin::GriffinLoss;
pub use hass::HassLoss;
pub use lk::{Lk, LkHybrid};
pub(crate) use log_prob::token_log_probs;
pub use log_prob::{log_1m_exp, log_sum_exp};
pub use paths::{PathBatch, PathFate};
pub use reweight::{car_weights, leave_one_out_acceptance, leave_one_out_advantage};
pub use soft_ce::SoftCe;
pub use sum::{Sum, Term};
pub use survival::Survival;
pub use tv::Tv;
pub use vat::Vat;
pub use vispec::VispecLoss;
pub use vsd::Vsd;

use crate::ranges::Range;

/// One unrolled step at the M anchor rows. Step j at the anchor of position t is about token x_{t+2+j}.
#[derive(Debug, Clone)]
pub struct Step {
    /// Draft logits `[M, D]`; gradients flow.
    pub logits: Tensor<2>,
    /// The target's probabilities of the same token, restricted to the draft vocabulary and renormalised, `[M, D]`. No
    /// gradient.
    pub target: Tensor<2>,
    /// Cells that cross-entropy trains: x_{t+2+j} is an assistant token and the draft can say the target's argmax. `[M]`.
    pub trains: Vec<bool>,
    /// The target's argmax as a draft id where the target's greedy path from this anchor reaches the step (every earlier
    /// token of the data equals the argmax, the draft can say them all, x_{t+2+j} is an assistant token); None beyond. `[M]`.
    pub greedy: Vec<Option<u32>>,
    /// x_{t+2+j} itself as a draft id where it is an assistant token that the draft can say. `[M]`.
    pub tokens: Vec<Option<u32>>,
    /// The features, where the draft guesses the one that the target's head reads.
    pub features: Option<FeaturePair>,
}

/// The feature of position t+1+j as the draft guessed it and as it is.
#[derive(Debug, Clone)]
pub struct FeaturePair {
    /// The draft's, `[M, H]`; gradients flow.
    pub draft: Tensor<2>,
    /// The target's, `[M, H]`. No gradient.
    pub target: Tensor<2>,
}

/// What an unroll leaves for an objective.
#[derive(Debug, Clone)]
pub struct Unrolled {
    /// The steps, L of them.
    pub steps: Vec<Step>,
    /// Weight of each anchor `[M]`. Per-sequence normalisation is done here: an anchor of a sequence with n answer tokens
    /// weighs 1 / (n * sequences in the step), so long answers do not drown short ones.
    pub weights: Vec<f32>,
    /// The anchor one position later in the same sequence, `[M]`: its step j guesses the token of this one's step j+1.
    pub following: Vec<Option<usize>>,
    /// Sampled paths with the target's verdict, where the objective asked for them by [`Objective::rollout`].
    pub paths: Option<PathBatch>,
}

impl Unrolled {
    /// Anchor rows, M.
    pub fn anchors(&self) -> usize {
        self.weights.len()
    }

    /// The device of the logits.
    pub fn device(&self) -> Device {
        self.steps[0].logits.device()
    }

    /// How many steps the target's greedy path is known for at each anchor: 0..=L.
    pub fn horizons(&self) -> Vec<usize> {
        (0..self.anchors()).map(|m| self.steps.iter().take_while(|s| s.greedy[m].is_some()).count()).collect()
    }
}

/// A loss and what it wants logged.
#[derive(Debug, Clone)]
pub struct Loss {
    /// The scalar to descend, `[1]`.
    pub value: Tensor<1>,
    /// Named quantities for metrics.jsonl.
    pub logged: Vec<(String, f32)>,
}

/// How many paths of which kind the trainer must sample before [`Objective::loss`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RolloutRequest {
    /// Paths per anchor, S.
    pub samples: usize,
    /// Whether rejected paths get a corrective sample of the target.
    pub corrected: bool,
    /// Anchors per sequence, drawn at random; every path costs target rows.
    pub anchors: usize,
}

/// Paths per anchor, at most: every one is a row of a target pass.
pub(crate) const MOST_SAMPLES: usize = 64;

/// A training objective.
pub trait Objective {
    /// Its name for people and metrics.
    fn name(&self) -> String;

    /// Its numbers and whether they fit.
    fn ranges(&self) -> Vec<Range>;

    /// Whether it compares features: the draft then has to guess the one that the target's head reads.
    fn regresses(&self) -> bool {
        false
    }

    /// The rollouts it needs; None where the teacher-forced unroll is enough.
    fn rollout(&self) -> Option<RolloutRequest> {
        None
    }

    /// How many rows of the draft vocabulary each anchor keeps on the tape per step, for the plan of memory: the logits and the
    /// target's probabilities, and what the loss makes of them.
    fn vocabulary_rows(&self) -> u64 {
        2
    }

    /// The loss. Whatever is sampled here comes from `rng`.
    fn loss(&self, unrolled: &Unrolled, rng: &mut ChaCha8Rng) -> Loss;
}

/// A host vector as a tensor without gradient.
pub(crate) fn constant(values: Vec<f32>, device: &Device) -> Tensor<1> {
    let n = values.len();
    Tensor::from_data(TensorData::new(values, [n]), device)
}
