//! Sampled paths as the M-step sees them.

use burn::prelude::*;

/// What the oracle decided about one sampled path; all host values, no gradient.
#[derive(Debug, Clone, PartialEq)]
pub struct PathFate {
    /// Draft ids as sampled; behind the first rejected one they may be arbitrary.
    pub tokens: Vec<u32>,
    /// Tokens that survived.
    pub survived: usize,
    /// Whether all tokens up to the horizon survived. A path of horizon 0 is neither accepted nor trained.
    pub accepted: bool,
    /// Tokens that the path was judged on, at most L.
    pub horizon: usize,
    /// Mean log q of the tokens up to and including the first rejected one: CAR's confidence.
    pub confidence: f32,
    /// `log kappa + log p - log q` of the whole path, the ELBO's reward.
    pub reward: f32,
}

/// S paths at each of A anchors.
#[derive(Debug, Clone)]
pub struct PathBatch {
    /// log q of the sampled tokens `[A, S, L]`, gradients flow. Zero past the path's last sampled token that counts: the
    /// first rejected one, or (where the whole path is wanted, as the ELBO does) the horizon.
    pub sampled: Tensor<3>,
    /// log q of the path to imitate `[A, S, L]`: the accepted path, or the accepted prefix with the target's correction. Zero
    /// past its end.
    pub corrected: Tensor<3>,
    /// Fates, A x S row-major.
    pub fates: Vec<PathFate>,
    /// Weight of each anchor, A.
    pub weights: Vec<f32>,
    /// Corrections that the draft vocabulary cannot express: those paths end there.
    pub out_of_vocabulary: usize,
}

impl PathBatch {
    /// The paths of several sequences as one batch; every sequence weighs `1 / step_sequences`. None of none.
    pub fn join(batches: Vec<Self>, step_sequences: usize) -> Option<Self> {
        if batches.is_empty() {
            return None;
        }
        let all = |of: fn(&Self) -> &Tensor<3>| Tensor::cat(batches.iter().map(|b| of(b).clone()).collect(), 0);
        Some(Self {
            sampled: all(|b| &b.sampled),
            corrected: all(|b| &b.corrected),
            fates: batches.iter().flat_map(|b| b.fates.clone()).collect(),
            weights: batches.iter().flat_map(|b| b.weights.iter().map(|w| w / step_sequences as f32)).collect(),
            out_of_vocabulary: batches.iter().map(|b| b.out_of_vocabulary).sum(),
        })
    }

    /// Paths per anchor, S.
    pub fn samples(&self) -> usize {
        self.sampled.dims()[1]
    }

    /// Share of paths with a horizon that were accepted whole.
    pub fn acceptance(&self) -> f32 {
        let judged = self.fates.iter().filter(|f| f.horizon > 0).count().max(1);
        self.fates.iter().filter(|f| f.accepted).count() as f32 / judged as f32
    }

    /// Mean tokens that survive.
    pub fn mean_survived(&self) -> f32 {
        let judged = self.fates.iter().filter(|f| f.horizon > 0).count().max(1);
        self.fates.iter().map(|f| f.survived).sum::<usize>() as f32 / judged as f32
    }

    /// `sum_a w_a mean_s c_as values_as`, where `coefficients` is A x S row-major and `values` is `[A, S]`: the weighted
    /// likelihood that every M-step is.
    pub fn weighted(&self, values: Tensor<2>, coefficients: &[f32]) -> Tensor<1> {
        let samples = self.samples();
        let scaled = coefficients.iter().enumerate().map(|(i, c)| c * self.weights[i / samples] / samples as f32);
        let scaled = super::constant(scaled.collect(), &values.device()).reshape(values.dims());
        (values * scaled).sum()
    }
}
