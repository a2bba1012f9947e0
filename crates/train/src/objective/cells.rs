//! Sums over cells: one cell is one anchor at one unrolled step.

use burn::prelude::*;

use super::{Step, Unrolled, constant};

/// `sum_m w_m trains_m values_m` of one step, `[1]`; `values` is `[M]`.
pub(crate) fn weighted(values: Tensor<1>, weights: &[f32], trains: &[bool]) -> Tensor<1> {
    // Cells that do not train have weight 0; the gather of anchor rows already dropped most of them.
    let weights = weights.iter().zip(trains).map(|(w, t)| if *t { *w } else { 0.0 }).collect();
    let weights = constant(weights, &values.device());
    (values * weights).sum()
}

/// `sum_j decay^j sum_m w_m trains_mj value_mj`, `[1]`; `value` gives the M rows of a step.
pub(crate) fn decayed(unrolled: &Unrolled, decay: f32, value: impl Fn(&Step) -> Tensor<1>) -> Tensor<1> {
    let step =
        |(j, step): (usize, &Step)| weighted(value(step), &unrolled.weights, &step.trains) * decay.powi(j as i32);
    unrolled.steps.iter().enumerate().map(step).reduce(|a, b| a + b).expect("an unroll has at least one step")
}
