//! `tv`: the total variation distance, one minus the acceptance rate of speculative sampling.

use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};

use super::divergence::total_variation;
use super::{Loss, Objective, Unrolled, cells};
use crate::ranges::Range;

/// `sum_j decay^j sum_m w_m trains_mj TV(p_mj, q_mj)`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Tv {
    /// Weight of step j is `decay^j`; default 0.8.
    pub decay: f32,
}

impl Default for Tv {
    fn default() -> Self {
        Self { decay: 0.8 }
    }
}

impl Objective for Tv {
    fn name(&self) -> String {
        "tv".into()
    }

    fn ranges(&self) -> Vec<Range> {
        vec![Range::decay("decay", self.decay)]
    }

    fn vocabulary_rows(&self) -> u64 {
        3
    }

    fn loss(&self, unrolled: &Unrolled, _rng: &mut ChaCha8Rng) -> Loss {
        Loss { value: cells::decayed(unrolled, self.decay, total_variation), logged: vec![] }
    }
}
