//! `eagle1`: the published loss of EAGLE-1 and EAGLE-2 (Li et al. 2024), and of MSD (Lin et al. 2025): the draft guesses the
//! next feature, and the target's head on it guesses the token.

use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};

use super::divergence::cross_entropy;
use super::regression::smooth_l1;
use super::{Loss, Objective, Unrolled, cells};
use crate::ranges::Range;

/// `sum_j sum_m w_m trains_mj (regression SmoothL1 + ce CE)`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Eagle1Loss {
    /// Weight of the feature's SmoothL1; published 1.
    pub regression: f32,
    /// Weight of the soft cross-entropy; published 0.1.
    pub ce: f32,
}

impl Default for Eagle1Loss {
    fn default() -> Self {
        Self { regression: 1.0, ce: 0.1 }
    }
}

impl Objective for Eagle1Loss {
    fn name(&self) -> String {
        "eagle1".into()
    }

    fn ranges(&self) -> Vec<Range> {
        vec![Range::weight("regression", self.regression), Range::weight("ce", self.ce)]
    }

    fn regresses(&self) -> bool {
        true
    }

    fn loss(&self, unrolled: &Unrolled, _rng: &mut ChaCha8Rng) -> Loss {
        let rows = |step: &super::Step| smooth_l1(step) * self.regression + cross_entropy(step) * self.ce;
        Loss { value: cells::decayed(unrolled, 1.0, rows), logged: vec![] }
    }
}
