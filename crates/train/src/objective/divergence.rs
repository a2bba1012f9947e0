//! How far the draft's distribution q is from the target's p, row by row. `[M, D]` in, `[M]` out; p carries no gradient.

use burn::prelude::*;

use super::{Step, log_sum_exp};

/// Stands for log 0: far below every log-probability of an f32 softmax, and finite.
const FLOOR: f32 = 1e-30;

/// `-sum_v p log q`.
pub(crate) fn cross_entropy(step: &Step) -> Tensor<1> {
    sightdraft_kernels::cross_entropy(step.logits.clone(), step.target.clone())
}

/// `KL(p || q)`: the cross-entropy less the target's own entropy.
pub(crate) fn forward_kl(step: &Step) -> Tensor<1> {
    let entropy = -(step.target.clone() * log_target(step)).sum_dim(1).squeeze_dim::<1>(1);
    cross_entropy(step) - entropy
}

/// `TV(p, q) = 1/2 sum_v |p - q|`: the chance that speculative sampling rejects a token of q.
pub(crate) fn total_variation(step: &Step) -> Tensor<1> {
    let q = log_draft(step).exp();
    (q - step.target.clone()).abs().sum_dim(1).squeeze_dim::<1>(1) * 0.5
}

/// `log sum_v min(p, q)`: the log of the chance that speculative sampling accepts. In log space, so that a draft that misses
/// the target altogether still has a gradient.
pub(crate) fn log_overlap(step: &Step) -> Tensor<1> {
    let (log_q, log_p) = (log_draft(step), log_target(step));
    let above = log_q.clone().greater(log_p.clone());
    log_sum_exp(log_q.mask_where(above, log_p))
}

fn log_draft(step: &Step) -> Tensor<2> {
    step.logits.clone() - log_sum_exp(step.logits.clone()).unsqueeze_dim::<2>(1)
}

fn log_target(step: &Step) -> Tensor<2> {
    step.target.clone().clamp_min(FLOOR).log()
}
