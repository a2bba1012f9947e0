//! VSD `survival` (derived): the closed form of multi-proposal VSD at T=0.
//!
//! With g the target's greedy path and `Q_j = prod_{i<=j} q_i(g_i)`, the expected number of accepted drafts when S paths are
//! sampled and the best one counts is `E[L] = sum_j [1 - (1 - Q_j)^S]`; the loss is its negative. S=1 is D-PACE's objective
//! without smoothing. The rejected among S sampled paths can be pushed down beside it, as `em` does: the closed form knows
//! where the mass should go, not which wrong guesses are confident.

use burn::prelude::*;
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};

use super::{Em, Loss, MOST_SAMPLES, Objective, SoftCe, Unrolled, constant, log_1m_exp, token_log_probs};
use crate::estep;
use crate::ranges::Range;

/// `-sum_m w_m sum_j [1 - (1 - Q_mj)^S] + anchor * soft_ce`, and with `negatives` the bounded term of [`Em`].
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Survival {
    /// Proposals, S; default 4.
    pub samples: usize,
    /// Push rejected paths down with ARW and CAR; default off.
    pub negatives: bool,
    /// Weight mu of the cross-entropy anchor; default 0.3.
    pub anchor: f32,
    /// The anchor's form.
    pub soft_ce: SoftCe,
}

impl Default for Survival {
    fn default() -> Self {
        Self { samples: 4, negatives: false, anchor: 0.3, soft_ce: SoftCe::default() }
    }
}

impl Survival {
    /// `sum_m w_m E[L_m]` with gradients, `[1]`.
    pub fn expected_length(&self, unrolled: &Unrolled) -> Tensor<1> {
        let device = unrolled.device();
        let mut log_survival: Option<Tensor<1>> = None;
        let mut total = Tensor::<1>::zeros([1], &device);
        for step in &unrolled.steps {
            let ids = step.greedy.iter().map(|g| g.unwrap_or(0)).collect();
            let log_q = token_log_probs(&step.logits, ids, 1).squeeze_dim::<1>(1);
            let log_q = match log_survival {
                Some(before) => before + log_q,
                None => log_q,
            };
            let weights = unrolled.weights.iter().zip(&step.greedy).map(|(w, g)| if g.is_some() { *w } else { 0.0 });
            let weights = constant(weights.collect(), &device);
            // 1 - (1-Q)^S = -expm1(S log(1-Q)); at S=1 that is Q itself.
            let reached = match self.samples {
                1 => log_q.clone().exp(),
                s => -(log_1m_exp(log_q.clone()) * s as f32).exp() + 1.0,
            };
            total = total + (reached * weights).sum();
            log_survival = Some(log_q);
        }
        total
    }
}

impl Objective for Survival {
    fn name(&self) -> String {
        "vsd (survival)".into()
    }

    fn ranges(&self) -> Vec<Range> {
        vec![
            Range::count("samples", self.samples, MOST_SAMPLES),
            Range::weight("anchor", self.anchor),
            Range::decay("soft_ce.decay", self.soft_ce.decay),
        ]
    }

    fn loss(&self, unrolled: &Unrolled, rng: &mut ChaCha8Rng) -> Loss {
        let length = self.expected_length(unrolled);
        let logged = vec![("expected_length".into(), length.clone().detach().into_scalar::<f32>())];
        let mut value = -length;
        if self.negatives {
            let paths = estep::greedy_paths(unrolled, self.samples, rng);
            let pushed = Em { samples: self.samples, ..Em::default() }.push_down(&paths);
            value = pushed.into_iter().fold(value, |value, negative| value + negative);
        }
        if self.anchor > 0.0 {
            value = value + self.soft_ce.total(unrolled) * self.anchor;
        }
        Loss { value, logged }
    }
}
