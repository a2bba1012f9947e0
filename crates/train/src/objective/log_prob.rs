//! Log-space pieces that every objective uses.

use burn::prelude::*;
pub use sightdraft_kernels::log_sum_exp;

/// `log(1 - exp(x))` for x < 0, in the branch that keeps precision: above -ln 2 through tanh (1 - e^x = -2t / (1 - t) with
/// t = tanh(x/2), which does not cancel), below by `log1p(-exp(x))`. x is held below -1e-6, so a token of probability one
/// gives a large finite value and no gradient.
pub fn log_1m_exp<const D: usize>(x: Tensor<D>) -> Tensor<D> {
    let x = x.clamp_max(-1e-6);
    let near = x.clone().greater_elem(-std::f32::consts::LN_2);
    // Each branch is fed values from its own side only, so that the one not taken has finite gradients too.
    let small = x.clone().mask_fill(near.clone().bool_not(), -0.5);
    let large = x.mask_fill(near.clone(), -1.0);
    let t = (small * 0.5).tanh();
    let by_tanh = (-t.clone()).log() - (-t).log1p() + std::f32::consts::LN_2;
    let by_log1p = (-large.exp()).log1p();
    by_log1p.mask_where(near, by_tanh)
}

/// Log-probabilities of chosen tokens: `logits` `[M, D]`, `ids` M x n row-major -> `[M, n]`.
pub(crate) fn token_log_probs(logits: &Tensor<2>, ids: Vec<u32>, n: usize) -> Tensor<2> {
    let [m, _] = logits.dims();
    let ids: Vec<i64> = ids.into_iter().map(i64::from).collect();
    let index = Tensor::<2, Int>::from_data(TensorData::new(ids, [m, n]), &logits.device());
    logits.clone().gather(1, index) - log_sum_exp(logits.clone()).unsqueeze_dim::<2>(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_1m_exp_keeps_precision_on_both_sides() {
        let device = Device::flex();
        let x = [-1e-5_f32, -1e-3, -0.3, -0.693, -0.7, -2.0, -20.0];
        let got = log_1m_exp(Tensor::<1>::from_floats(x, &device)).into_data().try_to_vec::<f32>().unwrap();
        for (x, got) in x.iter().zip(got) {
            let want = (-(*x as f64).exp_m1()).ln();
            assert!((got as f64 - want).abs() <= 2e-6 * want.abs().max(1e-3), "x {x}: {got} against {want}");
        }
    }

    #[test]
    fn log_1m_exp_has_finite_gradients_at_certainty() {
        let x = Tensor::<1>::from_floats([0.0, -0.1, -50.0], &Device::flex().autodiff()).require_grad();
        let grads = log_1m_exp(x.clone()).sum().backward();
        let grad = x.grad(&grads).unwrap().into_data().try_to_vec::<f32>().unwrap();
        assert!(grad.iter().all(|g| g.is_finite()), "{grad:?}");
        let want = -1.0 / (0.1f64.exp() - 1.0);
        assert!((grad[1] as f64 - want).abs() < 1e-4, "{grad:?} against {want}");
    }
}
