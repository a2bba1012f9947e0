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
    let turn = |back| Turn { angles: angles.clone(), back };
    of_one(&x, |x| turn(false).by(x), turn(true), |_, _| ()).unwrap_or_else(|| by_operations(x, angles))
}

fn by_operations(x: Tensor<4>, angles: &(Tensor<4>, Tensor<4>)) -> Tensor<4> {
    let half = x.dims()[3] / 2;
    let dtype = x.dtype();
    let turned = Tensor::cat(vec![x.clone().narrow(3, half, half).neg(), x.clone().narrow(3, 0, half)], 3);
    x * angles.0.clone().cast(dtype) + turned * angles.1.clone().cast(dtype)
}

/// A rotation by some angles, or back by as much, which is its gradient.
#[derive(Debug)]
struct Turn {
    angles: (Tensor<4>, Tensor<4>),
    back: bool,
}

impl Turn {
    /// The angles are brought to the host here, where `x` is known to be there: on a GPU that would be waited for.
    fn by(&self, x: &FlexTensor) -> FlexTensor {
        let [sequences, _, rows, dim] = self.angles.0.dims();
        let [cos, sin] = [&self.angles.0, &self.angles.1].map(|angles| Values::of(angles.clone()));
        let mut sin = sin.as_slice().to_vec();
        if self.back {
            sin.iter_mut().for_each(|sin| *sin = -*sin);
        }
        let mut out = slice(x).to_vec();
        let (sequence, angles) = (out.len() / sequences, rows * dim);
        let of_sequence = cos.as_slice().chunks_exact(angles).zip(sin.chunks_exact(angles));
        for (x, (cos, sin)) in out.chunks_exact_mut(sequence).zip(of_sequence) {
            rotate(x, 1, dim, cos, sin);
        }
        like(x, out)
    }
}

impl Backward<Flex, 1> for Turn {
    type State = ();

    fn backward(self, ops: Ops<Self::State, 1>, grads: &mut Gradients, _: &mut Checkpointer) {
        unary::<Flex, _>(ops.parents, ops.node, grads, |grad| self.by(&contiguous(grad)));
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
