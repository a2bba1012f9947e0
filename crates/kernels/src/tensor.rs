//! The kernels on Burn tensors.

use burn::backend::flex::{FlexTensor, Layout};
use burn::backend::{Bytes, Flex};
use burn::tensor::{Bool, DType, Device, Shape, Tensor, TensorData};

use crate::{Attention, PackedLinear, Storage};

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
        x.answer(y, dims, &device)
    }
}

/// Attention of few query rows over a KV cache, see [`Attention::attend`]: batch-invariant, and blocked keys leave no trace.
///
/// On the `flex` device the cache is read in place if it is contiguous: pass the whole of it, not the part in use. Tensors of
/// another device are copied to this machine's memory.
///
/// # Shapes
/// - q: `[heads, rows, dim]`
/// - k, v: `[kv_heads, capacity, dim]`, of which the first `alive` places are in use
/// - blocked: `[rows, alive]`, true where a row must not look
/// - output: `[heads, rows, dim]`, `f32`
///
/// # Panics
/// If the shapes do not fit each other.
pub fn attend(
    q: Tensor<3>,
    k: Tensor<3>,
    v: Tensor<3>,
    alive: usize,
    blocked: Option<Tensor<2, Bool>>,
    scale: f32,
) -> Tensor<3> {
    let dims @ [heads, rows, dim] = q.dims();
    let [kv_heads, capacity, _] = k.dims();
    let device = q.device();
    let [q, k, v] = [q, k, v].map(Values::of);
    let blocked: Option<Vec<bool>> = blocked.map(|b| b.into_data().iter::<bool>().collect());
    let mut out = vec![0.0; heads * rows * dim];
    let shape = Attention { heads, kv_heads, dim, capacity, alive, rows, scale };
    shape.attend(q.as_slice(), k.as_slice(), v.as_slice(), blocked.as_deref(), &mut out);
    q.answer(out, dims, &device)
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
            Ok(here) if here.dtype() == DType::F32 => Self::Here(contiguous(here)),
            _ => Self::Copied(tensor.into_data().iter::<f32>().collect()),
        }
    }

    /// A result as a tensor, where this input was.
    fn answer<const D: usize>(&self, values: Vec<f32>, dims: [usize; D], device: &Device) -> Tensor<D> {
        match self {
            Self::Here(_) => Tensor::from_primitive::<Flex>(of_values(values, dims)),
            Self::Copied(_) => Tensor::from_data(TensorData::new(values, dims), (device, DType::F32)),
        }
    }

    fn as_slice(&self) -> &[f32] {
        match self {
            Self::Here(tensor) => tensor.as_slice().expect("made contiguous and `f32` when it was taken"),
            Self::Copied(values) => values,
        }
    }
}

/// `tensor` itself where its values lie in their order, else a copy.
pub(crate) fn contiguous(tensor: FlexTensor) -> FlexTensor {
    if tensor.layout().contiguous_offsets().is_some() { tensor } else { tensor.to_contiguous() }
}

/// An `f32` tensor of `values`, row-major.
pub(crate) fn of_values<const D: usize>(values: Vec<f32>, dims: [usize; D]) -> FlexTensor {
    FlexTensor::new(Bytes::from_elems(values), Layout::contiguous(Shape::from(dims)), DType::F32)
}
