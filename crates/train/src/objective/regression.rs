//! Regression of features, row by row.

use burn::prelude::*;

use super::Step;

/// SmoothL1 between the draft's feature and the target's, mean over H: `[M]`.
pub(crate) fn smooth_l1(step: &Step) -> Tensor<1> {
    let pair = step.features.as_ref().expect("a run is refused where the objective regresses and the draft does not");
    let distance = (pair.draft.clone() - pair.target.clone()).abs();
    // d^2 / 2 below 1, d - 1/2 above: both are m^2 / 2 + d - m with m = min(d, 1).
    let near = distance.clone().clamp_max(1.0);
    let values = near.clone().square() * 0.5 + distance - near;
    values.mean_dim(1).squeeze_dim::<1>(1)
}
