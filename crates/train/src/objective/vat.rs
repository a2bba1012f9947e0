//! `vat`: verification-aware weights. Steps up to the first rejection count in full, those behind it less and less, for
//! verification never looks at them.

use burn::tensor::Tensor;
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};

use super::divergence::cross_entropy;
use super::{Loss, Objective, Unrolled, constant};
use crate::features::ids_of;
use crate::ranges::Range;

/// `sum_m w_m sum_i c_mi trains_mi CE(p_mi || q_mi)` with `c_i = 1` up to the first rejection k* and `decay^(i - k*)` behind it.
/// The weights are found; that they weigh the soft cross-entropy is derived. A step is rejected where the draft's argmax is
/// not the target's greedy token.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Vat {
    /// Weight of a step behind the first rejection, to the power of how far behind; default 0.8.
    pub decay: f32,
}

impl Default for Vat {
    fn default() -> Self {
        Self { decay: 0.8 }
    }
}

impl Vat {
    /// Weight of step `j` where the first rejection is step `rejected` (both from 0), or none.
    pub fn weight(&self, j: usize, rejected: Option<usize>) -> f32 {
        rejected.map_or(1.0, |k| self.decay.powi(j.saturating_sub(k) as i32))
    }
}

impl Objective for Vat {
    fn name(&self) -> String {
        "vat".into()
    }

    fn ranges(&self) -> Vec<Range> {
        vec![Range::decay("decay", self.decay)]
    }

    fn loss(&self, unrolled: &Unrolled, _rng: &mut ChaCha8Rng) -> Loss {
        let anchors = unrolled.anchors();
        let mut rejected: Vec<Option<usize>> = vec![None; anchors];
        let mut value = Tensor::zeros([1], &unrolled.device());
        for (j, step) in unrolled.steps.iter().enumerate() {
            let guesses = ids_of(step.logits.clone().detach().argmax(1).reshape([anchors]));
            for m in 0..anchors {
                if step.greedy[m] != Some(guesses[m]) {
                    rejected[m].get_or_insert(j);
                }
            }
            let weight =
                |m: usize| if step.trains[m] { unrolled.weights[m] * self.weight(j, rejected[m]) } else { 0.0 };
            let weights = constant((0..anchors).map(weight).collect(), &unrolled.device());
            value = value + (cross_entropy(step) * weights).sum();
        }
        Loss { value, logged: vec![] }
    }
}
