//! Losses on the target's most likely tokens.

use burn::prelude::*;
use sightdraft_kernels::top_rows;

use super::{Step, log_sum_exp};

/// How many of the target's tokens HASS, GRIFFIN and ViSpec look at.
pub(crate) const TOP: usize = 10;

/// HASS's top-K distillation: `-sum over the target's top K of p log q`, `[M]`.
pub(crate) fn top_cross_entropy(step: &Step) -> Tensor<1> {
    let ids = top_ids(&step.target);
    let p = step.target.clone().gather(1, ids.clone());
    let log_q = step.logits.clone().gather(1, ids) - log_sum_exp(step.logits.clone()).unsqueeze_dim::<2>(1);
    -(p * log_q).sum_dim(1).squeeze_dim::<1>(1)
}

/// ViSpec's rank loss: the negative Plackett-Luce log-likelihood of the target's order of its top K under the draft's logits,
/// `[M]`. Each place is a softmax over the tokens that are left of the K.
pub(crate) fn rank(step: &Step) -> Tensor<1> {
    let [rows, _] = step.logits.dims();
    let scores = step.logits.clone().gather(1, top_ids(&step.target));
    let k = scores.dims()[1];
    let places = (0..k).map(|place| log_sum_exp(scores.clone().slice([0..rows, place..k])));
    let left = places.reduce(|a, b| a + b).expect("the top of a vocabulary has at least one token");
    left - scores.sum_dim(1).squeeze_dim::<1>(1)
}

/// Ids of the K most likely tokens, most likely first, `[M, K]` (all of a smaller vocabulary).
fn top_ids(p: &Tensor<2>) -> Tensor<2, Int> {
    top_rows(p, TOP.min(p.dims()[1]))
}
