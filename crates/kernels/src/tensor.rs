//! The kernels on Burn tensors.

use std::ops::Range;

use burn::backend::flex::{FlexTensor, Layout};
use burn::backend::{Bytes, Flex};
use burn::tensor::{Bool, BoolStore, DType, Device, Shape, Tensor, TensorData};

use crate::rowwise::{argmax, rotate};
use crate::{PackedKv, PackedLinear, Queries, Storage};

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
        let [y] = Self::forward_all([self], x);
        y
    }

    /// [`forward`](Self::forward) of several layers that read the same rows.
    ///
    /// # Panics
    /// If `x`'s last axis does not fit, or as [`PackedLinear::matmul_all`].
    pub fn forward_all<const D: usize, const N: usize>(layers: [&Self; N], x: Tensor<D>) -> [Tensor<D>; N] {
        let dims = x.dims();
        let device = x.device();
        for layer in layers {
            assert_eq!(dims[D - 1], layer.inputs(), "x: expected rows of {} values", layer.inputs());
        }
        let rows = dims[..D - 1].iter().product();
        let x = Values::of(x);
        // Not cleared: that takes as long as writing the results.
        let mut ys = layers.map(|layer| Box::new_uninit_slice(rows * layer.outputs()));
        Self::write_all(layers, x.as_slice(), rows, ys.each_mut().map(|y| &mut **y));
        let mut layers = layers.iter();
        ys.map(|y| {
            let mut dims = dims;
            dims[D - 1] = layers.next().map_or(0, |layer| layer.outputs());
            // SAFETY: `write_all` has written every value.
            x.answer(unsafe { y.assume_init() }.into_vec(), dims, &device)
        })
    }
}

/// What an attention layer's projections give for new rows.
#[derive(Clone, Debug)]
pub struct Projected {
    /// `[batch, rows, heads * dim]`.
    pub q: Tensor<3>,
    /// `[batch, rows, kv_heads * dim]`.
    pub k: Tensor<3>,
    /// `[batch, rows, kv_heads * dim]`.
    pub v: Tensor<3>,
}

/// Rotates new rows, writes them to the places of `kv` from `at` on, and lets them attend, see [`PackedKv::attend`]:
/// batch-invariant, and blocked keys leave no trace. Scores are scaled by `1 / sqrt(dim)`.
///
/// On the `flex` device nothing is copied but the rows; tensors of another device are brought to this machine's memory.
///
/// # Shapes
/// - angles: cos and sin, `[batch or 1, 1, rows, dim]`
/// - blocked: `[batch or 1, 1, rows, at + rows]`, true where a row must not look
/// - output: `[batch, rows, heads * dim]`, `f32`
///
/// # Panics
/// If the shapes do not fit each other.
pub fn attend(
    kv: &mut PackedKv,
    at: usize,
    new: Projected,
    angles: &(Tensor<4>, Tensor<4>),
    blocked: Option<Tensor<4, Bool>>,
) -> Tensor<3> {
    let dims @ [_, rows, width] = new.q.dims();
    let device = new.q.device();
    let (dim, kv_heads) = (kv.dim, kv.kv_heads);
    let [cos, sin] = [&angles.0, &angles.1].map(|angle| Values::of(angle.clone()));
    let [mut q, mut k, v] = [new.q, new.k, new.v].map(Values::of);
    rotate(k.as_mut_slice(), kv_heads, dim, cos.as_slice(), sin.as_slice());
    kv.write(at, rows, k.as_slice(), v.as_slice());
    rotate(q.as_mut_slice(), width / dim, dim, cos.as_slice(), sin.as_slice());
    let blocked = blocked.map(Flags::of);
    let mut out = vec![0.0; q.as_slice().len()];
    let queries = Queries {
        q: q.as_slice(),
        rows,
        heads: width / dim,
        alive: at + rows,
        blocked: blocked.as_ref().map(Flags::as_slice),
        scale: (dim as f32).sqrt().recip(),
    };
    kv.attend(queries, &mut out);
    q.answer(out, dims, &device)
}

/// Rows `places` of `table`, copied out of this machine's memory; `None` where `table` does not lie there in `f32` without
/// gradients. A lookup on the device costs as much as a small layer.
///
/// # Shapes
/// - table: `[rows, width]`
/// - output: `[places, width]`
///
/// # Panics
/// If a place lies beyond the table.
pub fn rows_of(table: Tensor<2>, places: &[u32]) -> Option<Tensor<2>> {
    let [_, width] = table.dims();
    let table = table.try_into_primitive::<Flex>().ok().filter(|table| table.dtype() == DType::F32)?;
    let all: &[f32] = table.as_slice()?;
    let mut values = Vec::with_capacity(places.len() * width);
    places.iter().for_each(|&place| values.extend_from_slice(&all[place as usize * width..][..width]));
    Some(Tensor::from_primitive::<Flex>(of_values(values, [places.len(), width])))
}

/// The place of each row's largest value, the first of equals: [`argmax`](crate::argmax) on the `flex` device, Burn's own on
/// others, so that one number per row is brought to the host.
///
/// # Shapes
/// - rows: `[rows, width]`
pub fn argmax_rows(rows: Tensor<2>) -> Vec<usize> {
    let [count, width] = rows.dims();
    match rows.clone().try_into_primitive::<Flex>() {
        Ok(_) if count * width > 0 => argmax(Values::of(rows).as_slice(), width),
        _ => rows.argmax(1).into_data().iter::<i64>().map(|place| place as usize).collect(),
    }
}

/// A tensor's flags in this machine's memory, a byte each.
pub(crate) enum Flags {
    /// A contiguous tensor of the `flex` device, read in place.
    Here(FlexTensor, Range<usize>),
    /// Any other tensor's.
    Copied(Vec<u8>),
}

impl Flags {
    pub(crate) fn of<const D: usize>(tensor: Tensor<D, Bool>) -> Self {
        if let Ok(here) = tensor.clone().try_into_primitive::<Flex>()
            && let Some((start, end)) = here.layout().contiguous_offsets()
            && here.bytes().len() >= end
            && matches!(here.dtype(), DType::Bool(BoolStore::Native | BoolStore::U8))
        {
            return Self::Here(here, start..end);
        }
        Self::Copied(tensor.into_data().iter::<bool>().map(u8::from).collect())
    }

    pub(crate) fn as_slice(&self) -> &[u8] {
        match self {
            Self::Here(tensor, span) => &tensor.bytes()[span.clone()],
            Self::Copied(flags) => flags,
        }
    }
}

/// A tensor's `f32` values in this machine's memory.
pub(crate) enum Values {
    /// A contiguous `f32` tensor of the `flex` device, read in place.
    Here(FlexTensor),
    /// Any other tensor's.
    Copied(Vec<f32>),
}

impl Values {
    pub(crate) fn of<const D: usize>(tensor: Tensor<D>) -> Self {
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

    /// To change in place; copied first if another tensor shares them.
    fn as_mut_slice(&mut self) -> &mut [f32] {
        match self {
            Self::Here(tensor) => {
                let (start, end) = tensor.layout().contiguous_offsets().expect("made contiguous when it was taken");
                &mut tensor.storage_mut()[start..end]
            }
            Self::Copied(values) => values,
        }
    }

    pub(crate) fn as_slice(&self) -> &[f32] {
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

/// An `f32` tensor of `values` in the shape of `tensor`.
pub(crate) fn like(tensor: &FlexTensor, values: Vec<f32>) -> FlexTensor {
    FlexTensor::new(Bytes::from_elems(values), Layout::contiguous(tensor.layout().shape().clone()), DType::F32)
}
