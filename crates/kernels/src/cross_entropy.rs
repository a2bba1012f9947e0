//! The cross-entropy of wide rows against whole distributions, with gradients.

use burn::backend::Flex;
use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, binary};
use burn::backend::flex::FlexTensor;
use burn::tensor::Tensor;
use pulp::{Simd, WithSimd};

use crate::isa::Isa;
use crate::log_sum_exp;
use crate::operation::{of_two, slice};
use crate::pool;
use crate::rowwise::{LogSumExp, ShareLess, dot};
use crate::tensor::{contiguous, like, of_values};

/// `-sum_j p_ij log q_ij` with `q = softmax(logits)`, where each row of `p` sums to one: `log sum_j exp(x_ij) - sum_j p_ij x_ij`, so
/// that no log-softmax is kept. Differentiable in both. On the `flex` device one pass over the rows makes the values and one the
/// gradients; elsewhere it is written in Burn's operations.
///
/// # Shapes
/// - logits, p: `[rows, width]`, finite
/// - output: `[rows]`
pub fn cross_entropy(logits: Tensor<2>, p: Tensor<2>) -> Tensor<1> {
    let forward = |logits: &FlexTensor, p: &FlexTensor| {
        let [rows, width] = [logits.layout().shape()[0], logits.layout().shape()[1]];
        let mut values = vec![0.0; rows];
        let isa = Isa::detect();
        let pairs = slice(logits).chunks_exact(width).zip(slice(p).chunks_exact(width));
        pool::share_out(values.iter_mut().zip(pairs), |(value, (x, p))| *value = isa.dispatch(Value { x, p }));
        of_values(values, [rows])
    };
    of_two(&logits, &p, forward, CrossEntropy).unwrap_or_else(|| by_operations(logits, p))
}

fn by_operations(logits: Tensor<2>, p: Tensor<2>) -> Tensor<1> {
    log_sum_exp(logits.clone()) - (p * logits).sum_dim(1).squeeze_dim::<1>(1)
}

/// `dx = (softmax(x) - p) dy`, `dp = -x dy`.
#[derive(Debug)]
struct CrossEntropy;

impl Backward<Flex, 2> for CrossEntropy {
    type State = (FlexTensor, FlexTensor);

    fn backward(self, ops: Ops<Self::State, 2>, grads: &mut Gradients, _: &mut Checkpointer) {
        let (x, p) = ops.state;
        let (isa, width) = (Isa::detect(), x.layout().shape()[1]);
        let of_logits = |grad| {
            let grad = contiguous(grad);
            let mut dx = slice(&p).to_vec();
            let rows = slice(&x).chunks_exact(width).zip(slice(&grad));
            pool::share_out(dx.chunks_exact_mut(width).zip(rows), |(dx, (x, scale))| {
                let value = isa.dispatch(LogSumExp(x));
                isa.dispatch(ShareLess { x, value, scale: *scale, out: dx });
            });
            like(&x, dx)
        };
        let of_p = |grad| {
            let grad = contiguous(grad);
            let rows = slice(&x).chunks_exact(width).zip(slice(&grad));
            like(&p, rows.flat_map(|(x, scale)| x.iter().map(move |x| -x * scale)).collect())
        };
        binary::<Flex, _, _>(ops.parents, ops.node, grads, of_logits, of_p);
    }
}

/// The value of one row.
struct Value<'a> {
    x: &'a [f32],
    p: &'a [f32],
}

impl WithSimd for Value<'_> {
    type Output = f32;

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> f32 {
        LogSumExp(self.x).with_simd(simd) - dot(self.x, self.p)
    }
}

#[cfg(test)]
mod tests {
    use burn::tensor::activation::softmax;
    use burn::tensor::{Device, Distribution};

    use super::*;

    #[test]
    fn values_and_gradients_are_burns_own() {
        let device = Device::flex().autodiff();
        let random = |dims: [usize; 2]| Tensor::<2>::random(dims, Distribution::Normal(0.0, 3.0), &device);
        for dims in [[1, 3], [5, 64], [40, 333]] {
            let (logits, p) = (random(dims), softmax(random(dims), 1));
            let run = |loss: fn(Tensor<2>, Tensor<2>) -> Tensor<1>| {
                let (logits, p) = (logits.clone().require_grad(), p.clone().require_grad());
                let y = loss(logits.clone(), p.clone());
                let grads = y.clone().square().sum().backward();
                (y.inner(), logits.grad(&grads).unwrap(), p.grad(&grads).unwrap())
            };
            let (ours, theirs) = (run(cross_entropy), run(by_operations));
            assert!((ours.0 - theirs.0).abs().max().into_scalar::<f32>() < 1e-5);
            assert!((ours.1 - theirs.1).abs().max().into_scalar::<f32>() < 1e-5);
            let scale = theirs.2.clone().abs().max().into_scalar::<f32>();
            assert!((ours.2 - theirs.2).abs().max().into_scalar::<f32>() < 1e-6 * (1.0 + scale));
        }
    }
}
