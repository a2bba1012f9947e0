//! Matrix products with gradients, for training on the CPU.

use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, binary};
use burn::backend::flex::{FlexTensor, Layout};
use burn::backend::{Bytes, Flex};
use burn::tensor::{DType, Tensor};

use crate::operation::{of_two, slice};
use crate::product::{Matrix, multiply};
use crate::tensor::contiguous;

/// `x w`, or `x w^T` if `flip`, for each of the matrices in the last two axes, differentiable in both: the products of the forward
/// and of the backward pass run on this crate's kernel where both are `f32` tensors of the `flex` device, under autodiff or not;
/// anything else is Burn's own product.
///
/// # Shapes
/// - x: `[.., rows, inputs]`; w: `[.., inputs, outputs]`, or `[.., outputs, inputs]` if `flip`
/// - output: `[.., rows, outputs]`
pub fn matmul<const D: usize>(x: Tensor<D>, w: Tensor<D>, flip: bool) -> Tensor<D> {
    let burns = |x: Tensor<D>, w: Tensor<D>| x.matmul(if flip { w.swap_dims(D - 2, D - 1) } else { w });
    if x.dims()[..D - 2] != w.dims()[..D - 2] {
        return burns(x, w);
    }
    let forward = |x: &FlexTensor, w: &FlexTensor| products(x, false, w, flip);
    of_two(&x, &w, forward, Product { flip }).unwrap_or_else(|| burns(x, w))
}

/// y = x w: dx = dy w^T, dw = x^T dy. y = x w^T: dx = dy w, dw = dy^T x.
#[derive(Debug)]
struct Product {
    flip: bool,
}

impl Backward<Flex, 2> for Product {
    type State = (FlexTensor, FlexTensor);

    fn backward(self, ops: Ops<Self::State, 2>, grads: &mut Gradients, _: &mut Checkpointer) {
        let (x, w) = ops.state;
        let left = |grad| products(&contiguous(grad), false, &w, !self.flip);
        let right = |grad| match self.flip {
            false => products(&x, true, &contiguous(grad), false),
            true => products(&contiguous(grad), true, &x, false),
        };
        binary::<Flex, _, _>(ops.parents, ops.node, grads, left, right);
    }
}

/// `a b` for each of their matrices, each transposed first if it says so.
fn products(a: &FlexTensor, flip_a: bool, b: &FlexTensor, flip_b: bool) -> FlexTensor {
    let (left, right) = (matrices(a, flip_a), matrices(b, flip_b));
    let mut dims = a.layout().shape().clone();
    let rank = dims.num_dims();
    (dims[rank - 2], dims[rank - 1]) = match (left.first(), right.first()) {
        (Some(a), Some(b)) => (a.rows(), b.columns()),
        _ => (0, 0),
    };
    let each = dims[rank - 2] * dims[rank - 1];
    let mut y = Box::new_uninit_slice(left.len() * each);
    for ((a, b), y) in left.into_iter().zip(right).zip(y.chunks_exact_mut(each.max(1))) {
        multiply(a, b, y);
    }
    // SAFETY: there are as many products as pieces of `each` values, and a product writes every place of its piece.
    let y = unsafe { y.assume_init() }.into_vec();
    FlexTensor::new(Bytes::from_elems(y), Layout::contiguous(dims), DType::F32)
}

/// The matrices of a contiguous `f32` tensor, each transposed if `flip`.
fn matrices(tensor: &FlexTensor, flip: bool) -> Vec<Matrix<'_>> {
    let dims = tensor.layout().shape();
    let (rows, columns) = (dims[dims.num_dims() - 2], dims[dims.num_dims() - 1]);
    let values = slice(tensor);
    let count: usize = (0..dims.num_dims() - 2).map(|axis| dims[axis]).product();
    let each = |i: usize| {
        let matrix = Matrix::new(&values[i * rows * columns..(i + 1) * rows * columns], rows, columns);
        if flip { matrix.transpose() } else { matrix }
    };
    (0..count).map(each).collect()
}

#[cfg(test)]
mod tests {
    use burn::tensor::{Device, Distribution};

    use super::*;

    /// The product and its two gradients under some loss, by `matmul`.
    fn run<const D: usize>(
        x: &Tensor<D>,
        w: &Tensor<D>,
        matmul: impl Fn(Tensor<D>, Tensor<D>) -> Tensor<D>,
    ) -> [Tensor<D>; 3] {
        let (x, w) = (x.clone().require_grad(), w.clone().require_grad());
        let y = matmul(x.clone(), w.clone());
        let grads = (y.clone() * y.clone().sin()).sum().backward();
        [y.inner(), x.grad(&grads).unwrap(), w.grad(&grads).unwrap()]
    }

    fn check<const D: usize>(x: &Tensor<D>, w: &Tensor<D>, flip: bool) {
        let theirs = run(x, w, |x, w| x.matmul(if flip { w.swap_dims(D - 2, D - 1) } else { w }));
        for (ours, theirs) in run(x, w, |x, w| matmul(x, w, flip)).into_iter().zip(theirs) {
            assert_eq!(ours.dims(), theirs.dims());
            let worst = (ours - theirs).abs().max().into_scalar::<f32>();
            assert!(worst < 1e-5, "{worst}");
        }
    }

    #[test]
    fn values_and_gradients_are_burns_own() {
        let device = Device::flex().autodiff();
        device.seed(5);
        let random = |dims: [usize; 2]| Tensor::<2>::random(dims, Distribution::Normal(0.0, 0.3), &device);
        for (x, w) in [([40, 33], [33, 50]), ([1, 33], [33, 50]), ([5, 9], [9, 70])] {
            check(&random(x), &random(w), false);
            check(&random([x[1], x[0]]).transpose(), &random([w[1], w[0]]).transpose(), false);
            check(&random(x), &random([w[1], w[0]]), true);
        }
    }

    #[test]
    fn rows_outside_autodiff_leave_the_weights_gradient_as_it_is() {
        let (plain, device) = (Device::flex(), Device::flex().autodiff());
        let x = Tensor::<2>::random([40, 33], Distribution::Normal(0.0, 0.3), &plain);
        let w = Tensor::<2>::random([33, 50], Distribution::Normal(0.0, 0.3), &device).require_grad();
        let [mixed, whole] = [x.clone(), Tensor::from_inner(x)].map(|x| {
            let y = matmul(x, w.clone(), false);
            w.grad(&(y.clone() * y.sin()).sum().backward()).unwrap().into_data()
        });
        mixed.assert_eq(&whole, true);
    }

    #[test]
    fn each_matrix_of_a_batch_has_its_own_product() {
        let device = Device::flex().autodiff();
        let random = |dims: [usize; 4]| Tensor::<4>::random(dims, Distribution::Normal(0.0, 0.3), &device);
        check(&random([2, 3, 10, 8]), &random([2, 3, 8, 20]), false);
        check(&random([2, 3, 10, 8]), &random([2, 3, 20, 8]), true);
        check(&random([2, 10, 3, 8]).swap_dims(1, 2), &random([2, 20, 3, 8]).swap_dims(1, 2), true);
    }
}
