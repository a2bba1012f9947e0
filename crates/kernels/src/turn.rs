//! Rotary positions with gradients.

use burn::backend::Flex;
use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, unary};
use burn::backend::flex::FlexTensor;
use burn::tensor::Tensor;

use crate::operation::{of_one, slice};
use crate::rowwise::rotate;
use crate::tensor::{Values, contiguous, like};

/// Rotates dimension `i` together with `i + dim / 2` (Su et al. 2021), differentiable in `x`: [`rotate`] on `f32` tensors of the
/// `flex` device, under autodiff or not; Burn's own operators on anything else.
///
/// # Shapes
/// - x: `[batch, heads, rows, dim]`
/// - cos, sin: `[batch or 1, 1, rows, dim]`
pub fn turn(x: Tensor<4>, angles: &(Tensor<4>, Tensor<4>)) -> Tensor<4> {
    let [cos, sin] = [&angles.0, &angles.1].map(|angles| Values::of(angles.clone()).as_slice().to_vec());
    let turn = Turn { sequences: angles.0.dims()[0], cos, sin };
    let forward = |x: &FlexTensor| turn.by(x, &turn.sin);
    let backward =
        Turn { sequences: turn.sequences, cos: turn.cos.clone(), sin: turn.sin.iter().map(|x| -x).collect() };
    of_one(&x, forward, backward, |_, _| ()).unwrap_or_else(|| by_operations(x, angles))
}

fn by_operations(x: Tensor<4>, angles: &(Tensor<4>, Tensor<4>)) -> Tensor<4> {
    let half = x.dims()[3] / 2;
    let dtype = x.dtype();
    let turned = Tensor::cat(vec![x.clone().narrow(3, half, half).neg(), x.clone().narrow(3, 0, half)], 3);
    x * angles.0.clone().cast(dtype) + turned * angles.1.clone().cast(dtype)
}

/// A rotation by some angles; its gradient is turned back by as much.
#[derive(Debug)]
struct Turn {
    sequences: usize,
    cos: Vec<f32>,
    sin: Vec<f32>,
}

impl Turn {
    fn by(&self, x: &FlexTensor, sin: &[f32]) -> FlexTensor {
        let shape = x.layout().shape();
        let (dim, angles) = (shape[3], self.cos.len() / self.sequences);
        let mut out = slice(x).to_vec();
        let sequence = out.len() / self.sequences;
        let of_sequence = self.cos.chunks_exact(angles).zip(sin.chunks_exact(angles));
        for (x, (cos, sin)) in out.chunks_exact_mut(sequence).zip(of_sequence) {
            rotate(x, 1, dim, cos, sin);
        }
        like(x, out)
    }
}

impl Backward<Flex, 1> for Turn {
    type State = ();

    fn backward(self, ops: Ops<Self::State, 1>, grads: &mut Gradients, _: &mut Checkpointer) {
        unary::<Flex, _>(ops.parents, ops.node, grads, |grad| self.by(&contiguous(grad), &self.sin));
    }
}

#[cfg(test)]
mod tests {
    use burn::tensor::{Device, Distribution};

    use super::*;

    #[test]
    fn values_and_gradients_are_burns_own() {
        let device = Device::flex().autodiff();
        let random = |dims: [usize; 4]| Tensor::<4>::random(dims, Distribution::Normal(0.0, 1.0), &device);
        let x = random([2, 3, 5, 8]);
        for sequences in [1, 2] {
            // The two halves turn by the same angles.
            let twice = |x: Tensor<4>| Tensor::cat(vec![x.clone(), x], 3);
            let angle = random([sequences, 1, 5, 4]);
            let angles = (twice(angle.clone().cos()), twice(angle.sin()));
            let run = |turn: fn(Tensor<4>, &(Tensor<4>, Tensor<4>)) -> Tensor<4>| {
                let x = x.clone().require_grad();
                let y = turn(x.clone(), &angles);
                let grads = (y.clone() * y.clone().sin()).sum().backward();
                (y.inner(), x.grad(&grads).unwrap())
            };
            let (ours, theirs) = (run(turn), run(by_operations));
            assert!((ours.0 - theirs.0).abs().max().into_scalar::<f32>() < 1e-6);
            assert!((ours.1 - theirs.1).abs().max().into_scalar::<f32>() < 1e-6);
        }
    }
}
