//! `dpace`: D-PACE, cross-entropy on the target's greedy path, each step weighted by what it is worth to the accepted length.

use burn::prelude::*;
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};

use super::{Loss, Objective, Unrolled, constant, token_log_probs};
use crate::estep::host;
use crate::ranges::Range;

/// `-sum_m w_m sum_j c_mj log q_mj(g_j)` with `c_j = sum_{m>=j} prod_{i<=m} q~_i`, `q~ = (1 - a) q + a`, detached. At a = 0 its
/// gradient is that of VSD `survival` with one proposal.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Dpace {
    /// Smoothing a: 1 weighs all steps as if the draft were perfect; default 0.5.
    pub smoothing: f32,
}

impl Default for Dpace {
    fn default() -> Self {
        Self { smoothing: 0.5 }
    }
}

impl Dpace {
    /// The weights of one path whose greedy tokens have these probabilities.
    pub fn weights(&self, q: &[f32]) -> Vec<f32> {
        let mut reached = 1.0;
        let mut weights: Vec<f32> = q
            .iter()
            .map(|q| {
                reached *= (1.0 - self.smoothing) * q + self.smoothing;
                reached
            })
            .collect();
        for j in (1..weights.len()).rev() {
            weights[j - 1] += weights[j];
        }
        weights
    }
}

impl Objective for Dpace {
    fn name(&self) -> String {
        "dpace".into()
    }

    fn ranges(&self) -> Vec<Range> {
        vec![Range::share("smoothing", self.smoothing)]
    }

    fn loss(&self, unrolled: &Unrolled, _rng: &mut ChaCha8Rng) -> Loss {
        let (device, steps) = (unrolled.device(), unrolled.steps.len());
        let log_q = unrolled.steps.iter().map(|step| {
            let ids = step.greedy.iter().map(|g| g.unwrap_or(0)).collect();
            token_log_probs(&step.logits, ids, 1)
        });
        let log_q = Tensor::cat(log_q.collect(), 1);
        let values = host(log_q.clone().detach());
        let mut coefficients = vec![0.0; values.len()];
        for (m, horizon) in unrolled.horizons().into_iter().enumerate() {
            let q: Vec<f32> = values[m * steps..m * steps + horizon].iter().map(|l| l.exp()).collect();
            for (j, weight) in self.weights(&q).into_iter().enumerate() {
                coefficients[m * steps + j] = weight * unrolled.weights[m];
            }
        }
        let coefficients = constant(coefficients, &device).reshape(log_q.dims());
        Loss { value: -(log_q * coefficients).sum(), logged: vec![] }
    }
}
