//! `hass`: the published loss of HASS (Zhang et al. 2024): EAGLE-1's, and the cross-entropy once more on the target's most
//! likely tokens; every step of the unroll counts the same.

use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};

use super::divergence::cross_entropy;
use super::regression::smooth_l1;
use super::top_k::top_cross_entropy;
use super::{Loss, Objective, Step, Unrolled, cells};
use crate::ranges::Range;

/// `sum_j sum_m w_m trains_mj (regression SmoothL1 + ce CE + top_k CE_top10)`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HassLoss {
    /// Weight of the feature's SmoothL1; published 1.
    pub regression: f32,
    /// Weight of the soft cross-entropy; published 0.1.
    pub ce: f32,
    /// Weight of the cross-entropy on the target's ten most likely tokens; published 1.
    pub top_k: f32,
}

impl Default for HassLoss {
    fn default() -> Self {
        Self { regression: 1.0, ce: 0.1, top_k: 1.0 }
    }
}

impl HassLoss {
    /// One step's rows, `[M]`.
    pub(crate) fn rows(&self, step: &Step) -> burn::tensor::Tensor<1> {
        smooth_l1(step) * self.regression + cross_entropy(step) * self.ce + top_cross_entropy(step) * self.top_k
    }

    pub(crate) fn own_ranges(&self) -> Vec<Range> {
        vec![
            Range::weight("regression", self.regression),
            Range::weight("ce", self.ce),
            Range::weight("top_k", self.top_k),
        ]
    }
}

impl Objective for HassLoss {
    fn name(&self) -> String {
        "hass".into()
    }

    fn ranges(&self) -> Vec<Range> {
        self.own_ranges()
    }

    fn regresses(&self) -> bool {
        true
    }

    fn vocabulary_rows(&self) -> u64 {
        3
    }

    fn loss(&self, unrolled: &Unrolled, _rng: &mut ChaCha8Rng) -> Loss {
        Loss { value: cells::decayed(unrolled, 1.0, |step| self.rows(step)), logged: vec![] }
    }
}
