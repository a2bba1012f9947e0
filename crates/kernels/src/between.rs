//! What lies between a decoder's products, with gradients: in training each is one operation with one pass over memory forward
//! and one backward, where Burn's own operators would keep and walk over half a dozen intermediate tensors.

use burn::backend::Flex;
use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, binary};
use burn::backend::flex::FlexTensor;
use burn::tensor::Tensor;
use burn::tensor::activation::silu;

use crate::isa::Isa;
use crate::operation::{of_two, slice};
use crate::rowwise::{GateGrad, RmsNormGrad, in_blocks, rms_norm, swiglu};
use crate::tensor::{contiguous, like};

/// RMS norm along the last axis (Zhang and Sennrich 2019), differentiable in both: [`rms_norm`] on `f32` tensors of the `flex`
/// device, under autodiff or not; Burn's own operators on anything else.
///
/// # Shapes
/// - x: `[.., width]`; gamma: `[width]`
/// - output: as x
pub fn norm<const D: usize>(x: Tensor<D>, gamma: Tensor<1>, epsilon: f64) -> Tensor<D> {
    let fused = |x: &FlexTensor, gamma: &FlexTensor| {
        let mut out = vec![0.0; slice(x).len()];
        rms_norm(slice(x), slice(gamma), epsilon as f32, &mut out);
        like(x, out)
    };
    of_two(&x, &gamma, fused, Norm { epsilon: epsilon as f32 }).unwrap_or_else(|| {
        let scale = (x.clone().square().mean_dim(D - 1) + epsilon).sqrt();
        x / scale * gamma.unsqueeze()
    })
}

/// `silu(gate) * up` of tensors of one shape, differentiable in both: [`swiglu`] where [`norm`] is `rms_norm`.
///
/// # Panics
/// If the shapes differ.
pub fn gated<const D: usize>(gate: Tensor<D>, up: Tensor<D>) -> Tensor<D> {
    assert_eq!(gate.dims(), up.dims(), "up: expected the shape of gate");
    let fused = |gate: &FlexTensor, up: &FlexTensor| {
        let mut out = slice(gate).to_vec();
        swiglu(&mut out, slice(up));
        like(gate, out)
    };
    of_two(&gate, &up, fused, Gate).unwrap_or_else(|| silu(gate) * up)
}

/// With `r = 1 / sqrt(mean(x^2) + epsilon)`: `dx = r (dy gamma - x r^2 mean(dy gamma x))`, `dgamma = sum over rows of dy x r`.
#[derive(Debug)]
struct Norm {
    epsilon: f32,
}

impl Backward<Flex, 2> for Norm {
    type State = (FlexTensor, FlexTensor);

    fn backward(self, ops: Ops<Self::State, 2>, grads: &mut Gradients, _: &mut Checkpointer) {
        let (x, gamma) = ops.state;
        let (isa, width) = (Isa::detect(), slice(&gamma).len());
        let of_x = |grad| {
            let grad = contiguous(grad);
            let mut dx = vec![0.0; slice(&x).len()];
            in_blocks(&mut dx, width, &|first, dx| {
                let [x, dy] = [&x, &grad].map(|tensor| &slice(tensor)[first..][..dx.len()]);
                isa.dispatch(RmsNormGrad { x, gamma: slice(&gamma), dy, epsilon: self.epsilon, dx });
            });
            like(&x, dx)
        };
        let of_gamma = |grad| {
            let grad = contiguous(grad);
            let ones = vec![1.0; width];
            let mut normed = vec![0.0; slice(&x).len()];
            rms_norm(slice(&x), &ones, self.epsilon, &mut normed);
            let mut sums = vec![0.0; width];
            for (normed, dy) in normed.chunks_exact(width).zip(slice(&grad).chunks_exact(width)) {
                sums.iter_mut().zip(normed).zip(dy).for_each(|((sum, x), dy)| *sum += x * dy);
            }
            like(&gamma, sums)
        };
        binary::<Flex, _, _>(ops.parents, ops.node, grads, of_x, of_gamma);
    }
}

/// With `s = sigmoid(gate)`: `dgate = dy up s (1 + gate (1 - s))`, `dup = dy gate s`.
#[derive(Debug)]
struct Gate;

impl Backward<Flex, 2> for Gate {
    type State = (FlexTensor, FlexTensor);

    fn backward(self, ops: Ops<Self::State, 2>, grads: &mut Gradients, _: &mut Checkpointer) {
        let (gate, up) = ops.state;
        let isa = Isa::detect();
        let of_gate = |grad| {
            let grad = contiguous(grad);
            let mut out = vec![0.0; slice(&gate).len()];
            // A multiple of every vector's length, as `swiglu`.
            in_blocks(&mut out, 64, &|first, out| {
                let [gate, up, dy] = [&gate, &up, &grad].map(|tensor| &slice(tensor)[first..][..out.len()]);
                isa.dispatch(GateGrad { gate, up, dy, out });
            });
            like(&gate, out)
        };
        let of_up = |grad| {
            let mut out = slice(&gate).to_vec();
            swiglu(&mut out, slice(&contiguous(grad)));
            like(&up, out)
        };
        binary::<Flex, _, _>(ops.parents, ops.node, grads, of_gate, of_up);
    }
}

#[cfg(test)]
mod tests {
    use burn::tensor::{Device, Distribution};

    use super::*;

    /// The value and the two gradients under some loss.
    fn run<const E: usize>(
        a: &Tensor<3>,
        b: &Tensor<E>,
        operation: impl Fn(Tensor<3>, Tensor<E>) -> Tensor<3>,
    ) -> (Tensor<3>, Tensor<3>, Tensor<E>) {
        let (a, b) = (a.clone().require_grad(), b.clone().require_grad());
        let y = operation(a.clone(), b.clone());
        let grads = (y.clone() * (y.clone() * 0.3).sin()).sum().backward();
        (y.inner(), a.grad(&grads).unwrap(), b.grad(&grads).unwrap())
    }

    fn close<const D: usize>(ours: Tensor<D>, theirs: Tensor<D>) {
        let scale = theirs.clone().abs().max().into_scalar::<f32>();
        let worst = (ours - theirs).abs().max().into_scalar::<f32>();
        assert!(worst < 2e-6 * (1.0 + scale), "{worst} of {scale}");
    }

    fn check<const E: usize>(
        a: &Tensor<3>,
        b: &Tensor<E>,
        ours: impl Fn(Tensor<3>, Tensor<E>) -> Tensor<3>,
        theirs: impl Fn(Tensor<3>, Tensor<E>) -> Tensor<3>,
    ) {
        let (ours, theirs) = (run(a, b, ours), run(a, b, theirs));
        close(ours.0, theirs.0);
        close(ours.1, theirs.1);
        close(ours.2, theirs.2);
    }

    #[test]
    fn values_and_gradients_are_burns_own() {
        let device = Device::flex().autodiff();
        let random = |dims: [usize; 3]| Tensor::<3>::random(dims, Distribution::Normal(0.0, 2.0), &device);
        for dims in [[2, 3, 5], [1, 1, 64], [3, 70, 100]] {
            let (x, up) = (random(dims), random(dims));
            check(&x, &up, gated, |gate, up| silu(gate) * up);
            let gamma = random([1, 1, dims[2]]).squeeze_dims::<1>(&[0, 1]);
            check(
                &x,
                &gamma,
                |x, gamma| norm(x, gamma, 1e-5),
                |x, gamma| {
                    let scale = (x.clone().powi_scalar(2).mean_dim(2) + 1e-5).sqrt();
                    x / scale * gamma.unsqueeze()
                },
            );
        }
    }

    #[test]
    fn large_gates_give_finite_gradients() {
        let device = Device::flex().autodiff();
        let gate = Tensor::<3>::from_floats([[[-200.0, 200.0, -90.0, 0.0]]], &device);
        let (_, dgate, _) = run(&gate, &gate.clone().ones_like(), gated);
        assert!(dgate.is_finite().all().into_scalar::<bool>());
    }
}
