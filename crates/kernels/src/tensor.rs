//! The kernels on Burn tensors.

use burn::backend::flex::{FlexTensor, Layout};
use burn::backend::{Bytes, Flex};
use burn::tensor::{DType, Shape, Tensor, TensorData};

use crate::{PackedLinear, Storage};

impl PackedLinear {
    /// Packs a layer in Burn's layout, which it takes from the caller.
    ///
    /// # Shapes
    /// - weight: `[inputs, outputs]`
    /// - bias: `[outputs]`
    ///
    /// # Panics
    /// If the bias has another length than the weight has outputs.
    pub fn from_tensors(weight: Tensor<2>, bias: Option<Tensor<1>>, storage: Storage) -> Self {
        let [inputs, outputs] = weight.dims();
        let weight = Values::of(weight);
        let bias = bias.map(Values::of);
        let weights = weight.as_slice();
        let fill = |output: usize, row: &mut [f32]| {
            for (value, weight) in row.iter_mut().zip(weights[output..].iter().step_by(outputs)) {
                *value = *weight;
            }
        };
        Self::pack_rows(outputs, inputs, bias.as_ref().map(Values::as_slice), storage, fill)
    }

    /// `y = x W^T + b` along the last axis.
    ///
    /// On the `flex` device nothing is copied unless `x` is not contiguous. A tensor of another device is brought to this
    /// machine's memory and the result sent back: right, but slow, and without gradients.
    ///
    /// # Shapes
    /// - x: `[.., inputs]`
    /// - output: `[.., outputs]`, `f32`
    ///
    /// # Panics
    /// If `x`'s last axis is not `inputs` long.
    pub fn forward<const D: usize>(&self, x: Tensor<D>) -> Tensor<D> {
        let mut dims = x.dims();
        assert_eq!(dims[D - 1], self.inputs(), "x: expected rows of {} values", self.inputs());
        dims[D - 1] = self.outputs();
        let rows = dims[..D - 1].iter().product();
        let device = x.device();
        let x = Values::of(x);
        let mut y = vec![0.0; rows * self.outputs()];
        self.matmul(x.as_slice(), rows, &mut y);
        match x {
            Values::Here(_) => {
                let layout = Layout::contiguous(Shape::from(dims));
                Tensor::from_primitive::<Flex>(FlexTensor::new(Bytes::from_elems(y), layout, DType::F32))
            }
            Values::Copied(_) => Tensor::from_data(TensorData::new(y, dims), (&device, DType::F32)),
        }
    }
}

/// A tensor's `f32` values in this machine's memory.
enum Values {
    /// A contiguous `f32` tensor of the `flex` device, read in place.
    Here(FlexTensor),
    /// Any other tensor's.
    Copied(Vec<f32>),
}

impl Values {
    fn of<const D: usize>(tensor: Tensor<D>) -> Self {
        match tensor.clone().try_into_primitive::<Flex>() {
            Ok(here) if here.as_slice::<f32>().is_some() => Self::Here(here),
            Ok(here) if here.dtype() == DType::F32 => Self::Here(here.to_contiguous()),
            _ => Self::Copied(tensor.into_data().iter::<f32>().collect()),
        }
    }

    fn as_slice(&self) -> &[f32] {
        match self {
            Self::Here(tensor) => tensor.as_slice().expect("made contiguous and `f32` when it was taken"),
            Self::Copied(values) => values,
        }
    }
}
