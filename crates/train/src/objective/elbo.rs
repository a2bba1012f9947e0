//! VSD `elbo`: the score-function form of the bound of Zou et al. 2026 (found there: `E_q[log kappa] - KL(q || p)`); the
//! estimator with a leave-one-out baseline is derived.

use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};

use super::{Loss, MOST_SAMPLES, Objective, RolloutRequest, SoftCe, Unrolled, leave_one_out_advantage};
use crate::ranges::Range;

/// `-sum_a w_a mean_s (R_s - b_s) log q(z_s) + anchor * soft_ce`, `R = log kappa + log p - log q` detached.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Elbo {
    /// Paths per anchor, S; default 8.
    pub samples: usize,
    /// Anchors per sequence that get paths; default 16.
    pub anchors: usize,
    /// Weight mu of the cross-entropy anchor; default 0.3.
    pub anchor: f32,
    /// The anchor's form.
    pub soft_ce: SoftCe,
}

impl Default for Elbo {
    fn default() -> Self {
        Self { samples: 8, anchors: 16, anchor: 0.3, soft_ce: SoftCe::default() }
    }
}

impl Objective for Elbo {
    fn name(&self) -> String {
        "vsd (elbo)".into()
    }

    fn ranges(&self) -> Vec<Range> {
        vec![
            Range::count("samples", self.samples, MOST_SAMPLES),
            Range::count("anchors", self.anchors, usize::MAX),
            Range::weight("anchor", self.anchor),
            Range::decay("soft_ce.decay", self.soft_ce.decay),
        ]
    }

    fn rollout(&self) -> Option<RolloutRequest> {
        Some(RolloutRequest { samples: self.samples, corrected: false, anchors: self.anchors })
    }

    fn loss(&self, unrolled: &Unrolled, _rng: &mut ChaCha8Rng) -> Loss {
        // No sequence of the batch had an anchor for paths.
        let Some(paths) = &unrolled.paths else {
            return Loss { value: self.soft_ce.total(unrolled) * self.anchor, logged: vec![] };
        };
        let rewards: Vec<f32> = paths.fates.iter().map(|f| f.reward).collect();
        let advantages: Vec<f32> = rewards.chunks(paths.samples()).flat_map(leave_one_out_advantage).collect();
        let log_q = paths.sampled.clone().sum_dim(2).squeeze_dim::<2>(2);
        let mut value = -paths.weighted(log_q, &advantages);
        if self.anchor > 0.0 {
            value = value + self.soft_ce.total(unrolled) * self.anchor;
        }
        let bound = rewards.iter().sum::<f32>() / rewards.len().max(1) as f32;
        Loss { value, logged: vec![("elbo".into(), bound), ("survived".into(), paths.mean_survived())] }
    }
}
