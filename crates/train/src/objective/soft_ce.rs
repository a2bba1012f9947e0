//! `soft_ce`: EAGLE-3's training loss (Li et al. 2025), cross-entropy against the target's whole distribution at every
//! unrolled step, the step weighted by a power of its index.

use burn::prelude::*;
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};

use super::{Loss, Objective, Unrolled, constant, log_sum_exp};

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
        // Cells that do not train have weight 0; the gather of anchor rows already dropped most of them.
        let weights = unrolled.weights.iter().zip(&step.trains).map(|(w, t)| if *t { *w } else { 0.0 }).collect();
        let weights = constant(weights, &unrolled.device());
        // p sums to one, so -sum p log q = logsumexp(logits) - sum p logits: no [M, D] log-softmax on the tape.
        let expected = (step.target.clone() * step.logits.clone()).sum_dim(1).squeeze_dim::<1>(1);
        ((log_sum_exp(step.logits.clone()) - expected) * weights).sum()
    }

    /// The decayed sum over all steps, `[1]`.
    pub fn total(&self, unrolled: &Unrolled) -> Tensor<1> {
        (0..unrolled.steps.len())
            .map(|j| Self::step(unrolled, j) * self.decay.powi(j as i32))
            .reduce(|a, b| a + b)
            .expect("an unroll has at least one step")
    }
}

impl Objective for SoftCe {
    fn name(&self) -> &'static str {
        "soft_ce"
    }

    fn loss(&self, unrolled: &Unrolled, _rng: &mut ChaCha8Rng) -> Loss {
        Loss { value: self.total(unrolled), logged: vec![] }
    }
}
