//! VSD `em`: maximum likelihood of the E-step's accepted or corrected paths (the M-step of Zou et al. 2026, found in words),
//! with rejected paths pushed down. ARW and CAR are theirs; the formulas here are derived.

use burn::prelude::*;
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};

use super::{
    Loss, MOST_SAMPLES, Objective, PathBatch, RolloutRequest, SoftCe, Unrolled, car_weights, leave_one_out_acceptance,
    log_1m_exp,
};
use crate::estep;
use crate::ranges::Range;

/// Form of the term on rejected paths.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Negative {
    /// `-lambda beta c log(1 - q(first rejected token))`: cannot diverge. Rejected paths only.
    Bounded,
    /// `beta c log q(path up to the first rejected token)`: an exact control variate (accepted paths keep 1 - beta), which can
    /// diverge.
    Unbounded,
}

/// Who judges the sampled paths.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Oracle {
    /// T=0: equal to the target's greedy path, judged at every anchor on the teacher-forced rows.
    Greedy,
    /// T>0: min(1, p/q) token by token, one packed target pass per sequence.
    Ratio,
}

/// The objective's switches.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Em {
    /// Paths per anchor, S; default 8.
    pub samples: usize,
    /// Who judges; default greedy.
    pub oracle: Oracle,
    /// Anchors per sequence under the ratio oracle; default 16.
    pub anchors: usize,
    /// Adaptive rejection weighting; off = no term on rejected paths; default on.
    pub arw: bool,
    /// Confidence-aware weights among the rejected; off = all 1; default on.
    pub car: bool,
    /// CAR's inverse temperature; default 1.
    pub gamma: f32,
    /// Form of the term on rejected paths; default bounded.
    pub negative: Negative,
    /// Weight of the bounded term; default 1.
    pub lambda: f32,
    /// Weight mu of the cross-entropy anchor; default 0.3.
    pub anchor: f32,
    /// The anchor's form.
    pub soft_ce: SoftCe,
}

impl Default for Em {
    fn default() -> Self {
        Self {
            samples: 8,
            oracle: Oracle::Greedy,
            anchors: 16,
            arw: true,
            car: true,
            gamma: 1.0,
            negative: Negative::Bounded,
            lambda: 1.0,
            anchor: 0.3,
            soft_ce: SoftCe::default(),
        }
    }
}

/// ARW's ceiling: an anchor whose samples are all accepted keeps a tenth of its weight.
const CEILING: f32 = 0.9;

impl Em {
    /// The loss of given paths: `sum_a w_a mean_s (pos + neg)`, `[1]`.
    pub fn m_step(&self, paths: &PathBatch) -> Tensor<1> {
        let [anchors, samples, _] = paths.sampled.dims();
        let imitate = paths.corrected.clone().sum_dim(2).squeeze_dim::<2>(2);
        let positive = -paths.weighted(imitate, &vec![1.0; anchors * samples]);
        match self.push_down(paths) {
            Some(negative) => positive + negative,
            None => positive,
        }
    }

    /// The term on rejected paths, `sum_a w_a mean_s neg`, `[1]`; None where nothing is pushed.
    pub(super) fn push_down(&self, paths: &PathBatch) -> Option<Tensor<1>> {
        let pushes = if self.arw { self.pushes(paths) } else { vec![] };
        if pushes.iter().all(|p| *p == 0.0) {
            return None;
        }
        Some(match self.negative {
            Negative::Unbounded => paths.weighted(paths.sampled.clone().sum_dim(2).squeeze_dim::<2>(2), &pushes),
            Negative::Bounded => {
                let log_q = first_rejected(paths);
                let scaled: Vec<f32> = pushes.iter().map(|p| -self.lambda * p).collect();
                paths.weighted(log_1m_exp(log_q), &scaled)
            }
        })
    }

    /// `beta_s c_s` of every path, A x S.
    fn pushes(&self, paths: &PathBatch) -> Vec<f32> {
        paths
            .fates
            .chunks(paths.samples())
            .flat_map(|fates| {
                let accepted: Vec<bool> = fates.iter().map(|f| f.accepted).collect();
                let confidence: Vec<f32> = fates.iter().map(|f| f.confidence).collect();
                let beta = leave_one_out_acceptance(&accepted, CEILING);
                let car =
                    if self.car { car_weights(&confidence, &accepted, self.gamma) } else { vec![1.0; beta.len()] };
                let judged = |i: usize| match self.negative {
                    Negative::Bounded => fates[i].horizon > 0 && !accepted[i],
                    Negative::Unbounded => fates[i].horizon > 0,
                };
                (0..beta.len()).map(|i| if judged(i) { beta[i] * car[i] } else { 0.0 }).collect::<Vec<_>>()
            })
            .collect()
    }
}

/// log q of the first rejected token of every path `[A, S]`; -1 where nothing was rejected (its coefficient is 0).
fn first_rejected(paths: &PathBatch) -> Tensor<2> {
    let [anchors, samples, steps] = paths.sampled.dims();
    let mut pick = vec![0.0f32; anchors * samples * steps];
    let mut fill = vec![-1.0f32; anchors * samples];
    for (i, fate) in paths.fates.iter().enumerate() {
        if !fate.accepted && fate.survived < fate.horizon {
            pick[i * steps + fate.survived] = 1.0;
            fill[i] = 0.0;
        }
    }
    let device = paths.sampled.device();
    let pick = super::constant(pick, &device).reshape([anchors, samples, steps]);
    let fill = super::constant(fill, &device).reshape([anchors, samples]);
    (paths.sampled.clone() * pick).sum_dim(2).squeeze_dim::<2>(2) + fill
}

impl Objective for Em {
    fn name(&self) -> String {
        "vsd (em)".into()
    }

    fn ranges(&self) -> Vec<Range> {
        vec![
            Range::count("samples", self.samples, MOST_SAMPLES),
            Range::count("anchors", self.anchors, usize::MAX),
            Range::weight("gamma", self.gamma),
            Range::weight("lambda", self.lambda),
            Range::weight("anchor", self.anchor),
            Range::decay("soft_ce.decay", self.soft_ce.decay),
        ]
    }

    fn rollout(&self) -> Option<RolloutRequest> {
        let request = RolloutRequest { samples: self.samples, corrected: true, anchors: self.anchors };
        (self.oracle == Oracle::Ratio).then_some(request)
    }

    fn loss(&self, unrolled: &Unrolled, rng: &mut ChaCha8Rng) -> Loss {
        let greedy;
        let paths = match &unrolled.paths {
            Some(paths) => paths,
            // No sequence of the batch had an anchor for paths.
            None if self.oracle == Oracle::Ratio => {
                return Loss { value: self.soft_ce.total(unrolled) * self.anchor, logged: vec![] };
            }
            None => {
                greedy = estep::greedy_paths(unrolled, self.samples, rng);
                &greedy
            }
        };
        let mut value = self.m_step(paths);
        if self.anchor > 0.0 {
            value = value + self.soft_ce.total(unrolled) * self.anchor;
        }
        let logged = vec![
            ("path_acceptance".into(), paths.acceptance()),
            ("survived".into(), paths.mean_survived()),
            ("corrections_out_of_vocabulary".into(), paths.out_of_vocabulary as f32),
        ];
        Loss { value, logged }
    }
}
