//! `soft_ce`: EAGLE-3's training loss (Li et al. 2025), cross-entropy against the target's whole distribution at every
//! unrolled step, the step weighted by a power of its index.

use burn::prelude::*;
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};

use super::divergence::cross_entropy;
use super::{Loss, Objective, Unrolled, cells};
use crate::ranges::Range;

/// `sum_j decay^j sum_m w_m trains_mj CE(p_mj || q_mj)`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SoftCe {
    /// Weight of step j is `decay^j`; EAGLE-3 uses 0.8.
    pub decay: f32,
}

impl Default for SoftCe {
    fn default() -> Self {
        Self { decay: 0.8 }
    }
}

impl SoftCe {
    /// The weighted cross-entropy of one step, `[1]`.
    pub fn step(unrolled: &Unrolled, j: usize) -> Tensor<1> {
        let step = &unrolled.steps[j];
        cells::weighted(cross_entropy(step), &unrolled.weights, &step.trains)
    }

    /// The decayed sum over all steps, `[1]`.
    pub fn total(&self, unrolled: &Unrolled) -> Tensor<1> {
        cells::decayed(unrolled, self.decay, cross_entropy)
    }
}

impl Objective for SoftCe {
    fn name(&self) -> String {
        "soft_ce".into()
    }

    fn ranges(&self) -> Vec<Range> {
        vec![Range::decay("decay", self.decay)]
    }

    fn loss(&self, unrolled: &Unrolled, _rng: &mut ChaCha8Rng) -> Loss {
        Loss { value: self.total(unrolled), logged: vec![] }
    }
}
