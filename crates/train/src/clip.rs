//! Clipping by the gradient's global norm (Burn's own clips every parameter by itself).

use burn::module::{ModuleVisitor, Param};
use burn::optim::GradientsParams;
use burn::prelude::*;

/// Scales `grads` so that their joint norm is at most `limit`; returns the scaled gradients and the norm before.
pub fn clip_by_global_norm<M: Module>(module: &M, grads: GradientsParams, limit: f64) -> (GradientsParams, f64) {
    let mut norm = SquaredNorm { grads: &grads, sum: 0.0 };
    module.visit(&mut norm);
    let norm = norm.sum.sqrt();
    // A norm that is not a number must stay visible: it is not scaled away.
    if norm <= limit || !norm.is_finite() {
        return (grads, norm);
    }
    let mut scale = Scale { grads, factor: limit / norm, scaled: GradientsParams::new() };
    module.visit(&mut scale);
    (scale.scaled, norm)
}

struct SquaredNorm<'a> {
    grads: &'a GradientsParams,
    sum: f64,
}

impl ModuleVisitor for SquaredNorm<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        if let Some(grad) = self.grads.get::<D>(param.id) {
            self.sum += f64::from(grad.square().sum().into_scalar::<f32>());
        }
    }
}

struct Scale {
    grads: GradientsParams,
    factor: f64,
    scaled: GradientsParams,
}

impl ModuleVisitor for Scale {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        if let Some(grad) = self.grads.remove::<D>(param.id) {
            self.scaled.register(param.id, grad * self.factor);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::nn::LinearConfig;

    #[test]
    fn the_joint_norm_of_all_parameters_is_clipped() {
        let device = Device::flex().autodiff();
        let layer = LinearConfig::new(2, 2).init(&device);
        let input = Tensor::<2>::from_floats([[3.0, 4.0]], &device);
        let grads = || GradientsParams::from_grads(layer.forward(input.clone()).sum().backward(), &layer);
        // Weight gradient [[3,3],[4,4]], bias [1,1]: norm sqrt(52).
        let (clipped, norm) = clip_by_global_norm(&layer, grads(), 0.5);
        assert!((norm - 52f64.sqrt()).abs() < 1e-5);
        let (_, after) = clip_by_global_norm(&layer, clipped, 10.0);
        assert!((after - 0.5).abs() < 1e-6);
        let (same, _) = clip_by_global_norm(&layer, grads(), 10.0);
        assert_eq!(
            same.get::<2>(layer.weight.id).unwrap().into_data().try_to_vec::<f32>().unwrap(),
            [3.0, 3.0, 4.0, 4.0]
        );
    }
}
