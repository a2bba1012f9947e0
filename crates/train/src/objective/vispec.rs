//! `vispec`: the published losses of ViSpec (Kang et al. 2025), one per stage of its training.

use burn::prelude::*;
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};

use super::divergence::{cross_entropy, total_variation};
use super::regression::smooth_l1;
use super::top_k::rank;
use super::{Loss, Objective, Step, Unrolled, cells};
use crate::ranges::Range;

/// The mean over the steps of `sum_m w_m trains_m r_m`. Stage 1 (text): `r = SmoothL1 + 0.1 (CE + 0.1 rank)`. Stage 2 (long
/// answers about images): `r = 10 sum_v |q - p| + 0.1 rank`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct VispecLoss {
    /// 1 or 2; default 2.
    pub stage: usize,
}

impl Default for VispecLoss {
    fn default() -> Self {
        Self { stage: 2 }
    }
}

impl VispecLoss {
    fn rows(&self, step: &Step) -> Tensor<1> {
        match self.stage {
            1 => smooth_l1(step) + cross_entropy(step) * 0.1 + rank(step) * 0.01,
            // The sum of |q - p| is twice the total variation.
            _ => total_variation(step) * 20.0 + rank(step) * 0.1,
        }
    }
}

impl Objective for VispecLoss {
    fn name(&self) -> String {
        format!("vispec (stage {})", self.stage)
    }

    fn ranges(&self) -> Vec<Range> {
        vec![Range::count("stage", self.stage, 2)]
    }

    fn regresses(&self) -> bool {
        self.stage == 1
    }

    fn vocabulary_rows(&self) -> u64 {
        3
    }

    fn loss(&self, unrolled: &Unrolled, _rng: &mut ChaCha8Rng) -> Loss {
        let sum = cells::decayed(unrolled, 1.0, |step| self.rows(step));
        Loss { value: sum / unrolled.steps.len() as f32, logged: vec![] }
    }
}
