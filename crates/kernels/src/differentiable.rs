//! The product of rows and weights with gradients, for training on the CPU.

use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::NoCheckpointing;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind, binary};
use burn::backend::flex::FlexTensor;
use burn::backend::{Autodiff, Flex};
use burn::tensor::{DType, Tensor};

use crate::product::{Matrix, multiply};
use crate::tensor::{contiguous, of_values};

/// `x w`, differentiable in both: the products of the forward and of the backward pass run on this crate's kernel where both
/// are `f32` tensors of the `flex` device, under autodiff or not; anything else is Burn's own product.
///
/// # Shapes
/// - x: `[rows, inputs]`; w: `[inputs, outputs]`
/// - output: `[rows, outputs]`
pub fn matmul(x: Tensor<2>, w: Tensor<2>) -> Tensor<2> {
    if let (Ok(x), Ok(w)) = (x.clone().try_into_primitive::<Flex>(), w.clone().try_into_primitive::<Flex>())
        && x.dtype() == DType::F32
        && w.dtype() == DType::F32
    {
        return Tensor::from_primitive::<Flex>(product(&contiguous(x), false, &contiguous(w), false));
    }
    let parts = (x.clone().try_into_primitive::<Autodiff<Flex>>(), w.clone().try_into_primitive::<Autodiff<Flex>>());
    let (Ok(left), Ok(right)) = parts else { return x.matmul(w) };
    let (left, left_node) = left.into_parts();
    let (right, right_node) = right.into_parts();
    if left.dtype() != DType::F32 || right.dtype() != DType::F32 {
        return x.matmul(w);
    }
    let (left, right) = (contiguous(left), contiguous(right));
    let y = product(&left, false, &right, false);
    let prepared = Product.prepare::<NoCheckpointing>([left_node, right_node]);
    Tensor::from_primitive::<Autodiff<Flex>>(match prepared.compute_bound().stateful() {
        OpsKind::Tracked(prep) => prep.finish((left, right), y),
        OpsKind::UnTracked(prep) => prep.finish(y),
    })
}

/// y = x w: dx = dy w^T, dw = x^T dy.
#[derive(Debug)]
struct Product;

impl Backward<Flex, 2> for Product {
    type State = (FlexTensor, FlexTensor);

    fn backward(self, ops: Ops<Self::State, 2>, grads: &mut Gradients, _: &mut Checkpointer) {
        let (x, w) = ops.state;
        let left = |grad| product(&contiguous(grad), false, &w, true);
        let right = |grad| product(&x, true, &contiguous(grad), false);
        binary::<Flex, _, _>(ops.parents, ops.node, grads, left, right);
    }
}

/// `a b`, each transposed first if it says so.
fn product(a: &FlexTensor, flip_a: bool, b: &FlexTensor, flip_b: bool) -> FlexTensor {
    let (a, b) = (matrix(a, flip_a), matrix(b, flip_b));
    let mut y = vec![0.0; a.rows() * b.columns()];
    multiply(a, b, &mut y);
    of_values(y, [a.rows(), b.columns()])
}

/// A contiguous `f32` tensor as a matrix, transposed if `flip`.
fn matrix(tensor: &FlexTensor, flip: bool) -> Matrix<'_> {
    let dims = tensor.layout().shape();
    let matrix = Matrix::new(tensor.as_slice().expect("`f32` and contiguous"), dims[0], dims[1]);
    if flip { matrix.transpose() } else { matrix }
}

#[cfg(test)]
mod tests {
    use burn::tensor::{Device, Distribution};

    use super::*;

    /// The product and its two gradients under some loss, by `matmul`.
    fn run(x: &Tensor<2>, w: &Tensor<2>, matmul: fn(Tensor<2>, Tensor<2>) -> Tensor<2>) -> [Tensor<2>; 3] {
        let (x, w) = (x.clone().require_grad(), w.clone().require_grad());
        let y = matmul(x.clone(), w.clone());
        let grads = (y.clone() * y.clone().sin()).sum().backward();
        [y.inner(), x.grad(&grads).unwrap(), w.grad(&grads).unwrap()]
    }

    #[test]
    fn values_and_gradients_are_burns_own() {
        let device = Device::flex().autodiff();
        device.seed(5);
        let random = |dims: [usize; 2]| Tensor::<2>::random(dims, Distribution::Normal(0.0, 0.3), &device);
        let wide = random([33, 50]);
        for (x, w) in [
            (random([40, 33]), wide.clone()),
            (random([1, 33]), wide.clone()),
            (random([33, 7]).transpose(), wide),
            (random([5, 9]), random([70, 9]).transpose()),
        ] {
            for (ours, theirs) in run(&x, &w, matmul).into_iter().zip(run(&x, &w, Tensor::matmul)) {
                assert_eq!(ours.dims(), theirs.dims());
                let worst = (ours - theirs).abs().max().into_scalar::<f32>();
                assert!(worst < 1e-5, "{worst}");
            }
        }
    }
}
