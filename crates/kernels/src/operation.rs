//! What every operation with gradients shares: where it runs, and how it hangs in the graph.

use burn::backend::autodiff::checkpoint::strategy::NoCheckpointing;
use burn::backend::autodiff::ops::{Backward, OpsKind};
use burn::backend::flex::FlexTensor;
use burn::backend::{Autodiff, Flex};
use burn::tensor::{DType, Tensor};

use crate::tensor::contiguous;

/// `forward` of an `f32` tensor of the `flex` device, under autodiff `backward` tied to it, which gets what `keep` makes of input and
/// output; nothing for other tensors.
pub(crate) fn of_one<const D: usize, const E: usize, B: Backward<Flex, 1>>(
    x: &Tensor<D>,
    forward: impl Fn(&FlexTensor) -> FlexTensor,
    backward: B,
    keep: impl FnOnce(FlexTensor, &FlexTensor) -> B::State,
) -> Option<Tensor<E>> {
    if x.dtype() != DType::F32 {
        return None;
    }
    if let Ok(x) = x.clone().try_into_primitive::<Flex>() {
        return Some(Tensor::from_primitive::<Flex>(forward(&contiguous(x))));
    }
    let (x, node) = x.clone().try_into_primitive::<Autodiff<Flex>>().ok()?.into_parts();
    let x = contiguous(x);
    let y = forward(&x);
    let prepared = backward.prepare::<NoCheckpointing>([node]).compute_bound().stateful();
    Some(Tensor::from_primitive::<Autodiff<Flex>>(match prepared {
        OpsKind::Tracked(prep) => prep.finish(keep(x, &y), y),
        OpsKind::UnTracked(prep) => prep.finish(y),
    }))
}

/// As [`of_one`], of two tensors, which are the state of `backward`; one of them may be outside autodiff.
pub(crate) fn of_two<const D: usize, const E: usize, const F: usize>(
    a: &Tensor<D>,
    b: &Tensor<E>,
    forward: impl Fn(&FlexTensor, &FlexTensor) -> FlexTensor,
    backward: impl Backward<Flex, 2, State = (FlexTensor, FlexTensor)>,
) -> Option<Tensor<F>> {
    if a.dtype() != DType::F32 || b.dtype() != DType::F32 {
        return None;
    }
    let (a, b) = (a.clone(), b.clone());
    if let (Ok(a), Ok(b)) = (a.clone().try_into_primitive::<Flex>(), b.clone().try_into_primitive::<Flex>()) {
        return Some(Tensor::from_primitive::<Flex>(forward(&contiguous(a), &contiguous(b))));
    }
    let (a, b) = (tracked(a), tracked(b));
    let (a, b) = (a.try_into_primitive::<Autodiff<Flex>>().ok()?, b.try_into_primitive::<Autodiff<Flex>>().ok()?);
    let ((a, a_node), (b, b_node)) = (a.into_parts(), b.into_parts());
    let (a, b) = (contiguous(a), contiguous(b));
    let y = forward(&a, &b);
    let prepared = backward.prepare::<NoCheckpointing>([a_node, b_node]).compute_bound().stateful();
    Some(Tensor::from_primitive::<Autodiff<Flex>>(match prepared {
        OpsKind::Tracked(prep) => prep.finish((a, b), y),
        OpsKind::UnTracked(prep) => prep.finish(y),
    }))
}

/// The tensor under autodiff, where it needs no gradient if it was not there before.
fn tracked<const D: usize>(x: Tensor<D>) -> Tensor<D> {
    if x.device().is_autodiff() { x } else { Tensor::from_inner(x) }
}

/// The values of a contiguous `f32` tensor.
pub(crate) fn slice(tensor: &FlexTensor) -> &[f32] {
    tensor.as_slice().expect("`f32` and contiguous")
}
