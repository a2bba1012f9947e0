//! The softmax of attention scores, masked, with gradients.

use burn::backend::Flex;
use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, unary};
use burn::backend::flex::FlexTensor;
use burn::tensor::{Bool, Tensor, activation};
use pulp::{Simd, WithSimd};

use crate::exp::exp;
use crate::isa::Isa;
use crate::operation::{of_one, slice};
use crate::rowwise::{LogSumExp, dot, in_blocks};
use crate::tensor::{Flags, contiguous, like};

/// What a blocked score becomes where Burn makes the softmax: so low that its weight is exactly 0, yet finite, so that a row with
/// nothing to see gives no NaN.
const BLOCKED: f32 = -1e30;

/// Softmax along the last axis over what is not blocked (true = blocked), differentiable. A row with nothing to see is all zeros. In
/// one go on `f32` tensors of the `flex` device; by Burn's own operators on anything else.
///
/// # Shapes
/// - scores: `[batch, heads, group * rows, keys]`, row `r` of each of the `group` at `r`, `rows + r`, ..
/// - blocked: `[batch or 1, 1, rows, keys]`
pub fn masked_softmax(scores: Tensor<4>, blocked: Option<Tensor<4, Bool>>) -> Tensor<4> {
    let [batch, _, _, keys] = scores.dims();
    let forward = |scores: &FlexTensor| {
        // Brought to the host here, where the scores are known to be there: on a GPU that would be waited for.
        let flags = blocked.as_ref().map(|blocked| (Flags::of(blocked.clone()), blocked.dims()));
        let mut out = slice(scores).to_vec();
        let per_sequence = out.len() / (batch * keys).max(1);
        let isa = Isa::detect();
        in_blocks(&mut out, keys.max(1), &|first, block| {
            for (row, scores) in (first / keys.max(1)..).zip(block.chunks_exact_mut(keys.max(1))) {
                let blocked = flags.as_ref().map(|(flags, [sequences, _, rows, _])| {
                    let sequence = if *sequences == 1 { 0 } else { row / per_sequence };
                    &flags.as_slice()[(sequence * rows + row % rows) * keys..][..keys]
                });
                isa.dispatch(Softmax { scores, blocked });
            }
        });
        like(scores, out)
    };
    of_one(&scores, forward, MaskedSoftmax, |_, weights| weights.clone())
        .unwrap_or_else(|| by_operations(scores, blocked.clone()))
}

fn by_operations(scores: Tensor<4>, blocked: Option<Tensor<4, Bool>>) -> Tensor<4> {
    let Some(blocked) = blocked else { return activation::softmax(scores, 3) };
    let group = scores.dims()[2] / blocked.dims()[2];
    let blocked = blocked.repeat_dim(2, group);
    let dtype = scores.dtype();
    let awake = blocked.clone().all_dim(3).bool_not().float().cast(dtype);
    activation::softmax(scores + blocked.float().cast(dtype) * BLOCKED, 3) * awake
}

/// `dx = p (dp - sum_j p_j dp_j)`.
#[derive(Debug)]
struct MaskedSoftmax;

impl Backward<Flex, 1> for MaskedSoftmax {
    type State = FlexTensor;

    fn backward(self, ops: Ops<Self::State, 1>, grads: &mut Gradients, _: &mut Checkpointer) {
        let weights = ops.state;
        unary::<Flex, _>(ops.parents, ops.node, grads, |grad| {
            let mut out = slice(&contiguous(grad)).to_vec();
            let shape = weights.layout().shape();
            let keys = shape[3].max(1);
            let isa = Isa::detect();
            in_blocks(&mut out, keys, &|first, block| {
                let weights = slice(&weights)[first..].chunks_exact(keys);
                for (grad, weights) in block.chunks_exact_mut(keys).zip(weights) {
                    isa.dispatch(SoftmaxGrad { weights, grad });
                }
            });
            like(&weights, out)
        });
    }
}

/// Scores of a row to their weights.
struct Softmax<'a> {
    scores: &'a mut [f32],
    blocked: Option<&'a [u8]>,
}

impl WithSimd for Softmax<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { scores, blocked } = self;
        if let Some(blocked) = blocked {
            if blocked.iter().all(|blocked| *blocked != 0) {
                return scores.fill(0.0);
            }
            for (score, blocked) in scores.iter_mut().zip(blocked) {
                *score = if *blocked != 0 { BLOCKED } else { *score };
            }
        }
        let total = LogSumExp(scores).with_simd(simd);
        let (vectors, rest) = S::as_mut_simd_f32s(scores);
        for x in vectors {
            *x = exp(simd, simd.sub_f32s(*x, simd.splat_f32s(total)));
        }
        rest.iter_mut().for_each(|x| *x = (*x - total).exp());
        for (weight, blocked) in scores.iter_mut().zip(blocked.unwrap_or_default()) {
            *weight = if *blocked != 0 { 0.0 } else { *weight };
        }
    }
}

/// A row's gradient of weights to that of scores.
struct SoftmaxGrad<'a> {
    weights: &'a [f32],
    grad: &'a mut [f32],
}

impl WithSimd for SoftmaxGrad<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let along = dot(self.weights, self.grad);
        for (grad, weight) in self.grad.iter_mut().zip(self.weights) {
            *grad = weight * (*grad - along);
        }
    }
}

#[cfg(test)]
mod tests {
    use burn::tensor::{Device, Distribution, Int, TensorData};

    use super::*;

    #[test]
    fn values_and_gradients_are_burns_own() {
        let device = Device::flex().autodiff();
        let (batch, heads, group, rows, keys) = (2, 2, 3, 5, 37);
        let scores = Tensor::<4>::random([batch, heads, group * rows, keys], Distribution::Normal(0.0, 3.0), &device);
        for sequences in [1, batch] {
            // Row 3 sees nothing.
            let flags: Vec<i32> = (0..sequences * rows * keys)
                .map(|i| i32::from(i / keys % rows == 3 || (i * 7919 + i / 11) % 3 == 0))
                .collect();
            let flags = Tensor::<4, Int>::from_data(TensorData::new(flags, [sequences, 1, rows, keys]), &device);
            for blocked in [None, Some(flags.equal_elem(1))] {
                let run = |softmax: fn(Tensor<4>, Option<Tensor<4, Bool>>) -> Tensor<4>| {
                    let scores = scores.clone().require_grad();
                    let weights = softmax(scores.clone(), blocked.clone());
                    let grads = (weights.clone() * (weights.clone() * 5.0).cos()).sum().backward();
                    (weights.inner(), scores.grad(&grads).unwrap())
                };
                let (ours, theirs) = (run(masked_softmax), run(by_operations));
                let worst = |a: Tensor<4>, b: Tensor<4>| (a - b).abs().max().into_scalar::<f32>();
                assert!(worst(ours.0.clone(), theirs.0) < 1e-6);
                let slope = worst(ours.1, theirs.1);
                assert!(slope < 3e-6, "{slope}");
                if blocked.is_some() {
                    assert_eq!(ours.0.slice([0..1, 0..1, 3..4, 0..keys]).abs().sum().into_scalar::<f32>(), 0.0);
                }
            }
        }
    }
}
