//! `lk` and `lk_hybrid`: losses on the acceptance rate `alpha = sum_v min(p, q)` itself.

use burn::prelude::*;
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};

use super::divergence::{forward_kl, log_overlap, total_variation};
use super::{Loss, Objective, Step, Unrolled, cells};
use crate::ranges::Range;

/// `-sum_j decay^j sum_m w_m trains_mj log alpha_mj`: total variation's gradient, scaled up where little is accepted.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Lk {
    /// Weight of step j is `decay^j`; default 0.8.
    pub decay: f32,
}

impl Default for Lk {
    fn default() -> Self {
        Self { decay: 0.8 }
    }
}

impl Objective for Lk {
    fn name(&self) -> String {
        "lk".into()
    }

    fn ranges(&self) -> Vec<Range> {
        vec![Range::decay("decay", self.decay)]
    }

    fn vocabulary_rows(&self) -> u64 {
        5
    }

    fn loss(&self, unrolled: &Unrolled, _rng: &mut ChaCha8Rng) -> Loss {
        Loss { value: -cells::decayed(unrolled, self.decay, log_overlap), logged: vec![] }
    }
}

/// `sum_j decay^j sum_m w_m trains_mj (lambda KL(p || q) + (1 - lambda) TV(p, q))` with `lambda = exp(-eta alpha)` of the same
/// cell, detached: cross-entropy while the draft is far off, total variation once it is near.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LkHybrid {
    /// How fast lambda falls with acceptance; default 3.
    pub eta: f32,
    /// Weight of step j is `decay^j`; default 0.8.
    pub decay: f32,
}

impl Default for LkHybrid {
    fn default() -> Self {
        Self { eta: 3.0, decay: 0.8 }
    }
}

impl LkHybrid {
    fn rows(&self, step: &Step) -> Tensor<1> {
        let tv = total_variation(step);
        let alpha = -tv.clone().detach() + 1.0;
        let lambda = (alpha * -self.eta).exp();
        let rest = -lambda.clone() + 1.0;
        forward_kl(step) * lambda + tv * rest
    }
}

impl Objective for LkHybrid {
    fn name(&self) -> String {
        "lk_hybrid".into()
    }

    fn ranges(&self) -> Vec<Range> {
        vec![Range::weight("eta", self.eta), Range::decay("decay", self.decay)]
    }

    fn vocabulary_rows(&self) -> u64 {
        4
    }

    fn loss(&self, unrolled: &Unrolled, _rng: &mut ChaCha8Rng) -> Loss {
        Loss { value: cells::decayed(unrolled, self.decay, |step| self.rows(step)), logged: vec![] }
    }
}
