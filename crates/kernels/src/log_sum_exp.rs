//! `log sum exp` of wide rows, with gradients: what every likelihood over a vocabulary is made of.

use burn::backend::Flex;
use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, unary};
use burn::backend::flex::FlexTensor;
use burn::tensor::Tensor;

use crate::isa::Isa;
use crate::operation::{of_one, slice};
use crate::pool;
use crate::rowwise;
use crate::tensor::{contiguous, of_values};

/// `log sum_j exp(x_ij)`, differentiable. On the `flex` device one pass over the rows makes the values and one
/// the gradients; elsewhere it is written in Burn's operations.
///
/// # Shapes
/// - x: `[rows, width]`, finite
/// - output: `[rows]`
pub fn log_sum_exp(x: Tensor<2>) -> Tensor<1> {
    let forward = |x: &FlexTensor| {
        let [rows, width] = [x.layout().shape()[0], x.layout().shape()[1]];
        let mut values = vec![0.0; rows];
        let isa = Isa::detect();
        pool::share_out(values.iter_mut().zip(slice(x).chunks_exact(width)), |(value, x)| {
            *value = isa.dispatch(rowwise::LogSumExp(x));
        });
        of_values(values, [rows])
    };
    of_one(&x, forward, LogSumExp, |x, values| (x, values.clone())).unwrap_or_else(|| by_operations(x))
}

/// The shift by the maximum carries no gradient.
fn by_operations(x: Tensor<2>) -> Tensor<1> {
    let top = x.clone().detach().max_dim(1);
    let sum = (x - top.clone()).exp().sum_dim(1).log() + top;
    sum.squeeze_dim::<1>(1)
}

/// dx = softmax(x) dy.
#[derive(Debug)]
struct LogSumExp;

impl Backward<Flex, 1> for LogSumExp {
    type State = (FlexTensor, FlexTensor);

    fn backward(self, ops: Ops<Self::State, 1>, grads: &mut Gradients, _: &mut Checkpointer) {
        let (x, values) = ops.state;
        unary::<Flex, _>(ops.parents, ops.node, grads, |grad| {
            let (grad, dims) = (contiguous(grad), x.layout().shape().clone());
            let width = dims[1];
            let mut dx = vec![0.0; dims[0] * width];
            let isa = Isa::detect();
            let rows = slice(&x).chunks_exact(width).zip(slice(&values)).zip(slice(&grad));
            pool::share_out(dx.chunks_exact_mut(width).zip(rows), |(out, ((x, value), scale))| {
                isa.dispatch(rowwise::ShareLess { x, value: *value, scale: *scale, out });
            });
            of_values(dx, [dims[0], width])
        });
    }
}

#[cfg(test)]
mod tests {
    use burn::tensor::{Device, Distribution};

    use super::*;

    #[test]
    fn values_and_gradients_are_those_of_the_operations() {
        let device = Device::flex().autodiff();
        device.seed(7);
        for dims in [[1, 1], [3, 15], [40, 100], [5, 1024]] {
            let x = Tensor::<2>::random(dims, Distribution::Normal(0.0, 4.0), &device).require_grad();
            let run = |of: fn(Tensor<2>) -> Tensor<1>| {
                let y = of(x.clone());
                let grads = y.clone().sin().sum().backward();
                (y.inner(), x.grad(&grads).unwrap())
            };
            let ((y, dx), (y_wanted, dx_wanted)) = (run(log_sum_exp), run(by_operations));
            let worst = (y - y_wanted).abs().max().into_scalar::<f32>();
            let worst_gradient = (dx - dx_wanted).abs().max().into_scalar::<f32>();
            assert!(worst < 1e-5 && worst_gradient < 1e-5, "{dims:?}: {worst}, {worst_gradient}");
        }
    }
}
