//! A linear layer in Hugging Face's terms, in the form that trains or in the form that verifies cheaply.

use std::sync::Arc;

use burn::module::Param;
use burn::nn::{Initializer, Linear, LinearConfig};
use burn::prelude::*;
use burn::tensor::DType;
use sightdraft_core::{Checkpoint, Result};
use sightdraft_kernels::{PackedLinear, Storage};

/// `y = x W^T (+ b)`.
#[derive(Module, Debug)]
pub enum Projection {
    /// Burn's layer, weight `[in, out]`: trains, and runs on any device.
    Plain(Linear),
    /// Packed in the order in which the CPU reads it; inference only.
    Packed(Packed),
}

/// A packed layer; clones share the weights.
#[derive(Module)]
pub struct Packed {
    #[module(skip)]
    layer: Arc<PackedLinear>,
    bias: Option<Param<Tensor<1>>>,
}

impl std::fmt::Debug for Packed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Packed({} -> {})", self.layer.inputs(), self.layer.outputs())
    }
}

impl Projection {
    /// Reads `{name}.weight` `[out, in]` and, with `bias`, `{name}.bias` `[out]`, in the checkpoint's
    /// [`dtype`](Checkpoint::dtype). The weight is transposed while it is copied, so that the matrix product reads it row
    /// by row and no second copy is ever held.
    ///
    /// # Errors
    /// A missing tensor or another shape.
    pub fn load(
        checkpoint: &Checkpoint,
        name: &str,
        input: usize,
        output: usize,
        bias: bool,
        device: &Device,
    ) -> Result<Self> {
        let dtype = checkpoint.dtype();
        let weight = checkpoint.transposed(&format!("{name}.weight"), [output, input], dtype, device)?;
        let bias = match bias {
            true => Some(checkpoint.tensor(&format!("{name}.bias"), [output], dtype, device)?),
            false => None,
        };
        Ok(Self::Plain(Linear { weight: Param::from_tensor(weight), bias: bias.map(Param::from_tensor) }))
    }

    /// A fresh layer, normal with standard deviation `std`, no bias unless asked for (zeros).
    pub fn init(input: usize, output: usize, bias: bool, std: f64, device: &Device) -> Self {
        let initializer = Initializer::Normal { mean: 0.0, std };
        let mut inner = LinearConfig::new(input, output).with_bias(false).with_initializer(initializer).init(device);
        inner.bias = bias.then(|| Initializer::Zeros.init([output], device));
        Self::Plain(inner)
    }

    /// From a weight in Burn's layout, `[in, out]`, without a bias.
    pub fn from_weight(weight: Tensor<2>) -> Self {
        Self::Plain(Linear { weight: Param::from_tensor(weight), bias: None })
    }

    /// The form for inference: packed on the CPU (in bf16 where the weight is of half precision, else in f32), the plain copy
    /// given back; unchanged on other devices and under autodiff.
    pub fn for_inference(self) -> Self {
        match self {
            Self::Plain(plain) if on_plain_cpu(&plain.weight.device()) => {
                let storage = match plain.weight.dtype() {
                    DType::F32 => Storage::F32,
                    _ => Storage::Bf16,
                };
                let layer = Arc::new(PackedLinear::from_tensors(plain.weight.val(), None, storage));
                Self::Packed(Packed { layer, bias: plain.bias })
            }
            other => other,
        }
    }

    /// Applies the layer to the last dimension.
    pub fn forward<const D: usize>(&self, x: Tensor<D>) -> Tensor<D> {
        let [y] = Self::forward_all([self], x);
        y
    }

    /// Several layers that read the same rows; packed ones in one go.
    pub fn forward_all<const D: usize, const N: usize>(layers: [&Self; N], x: Tensor<D>) -> [Tensor<D>; N] {
        let packed: Vec<&PackedLinear> = layers.iter().filter_map(|layer| layer.packed()).collect();
        let Ok(packed) = <[&PackedLinear; N]>::try_from(packed) else {
            return layers.map(|layer| layer.forward_alone(x.clone()));
        };
        let dtype = x.dtype();
        let mut layers = layers.iter();
        PackedLinear::forward_all(packed, x).map(|y| match layers.next().and_then(|layer| layer.bias()) {
            Some(bias) => (y + bias.unsqueeze()).cast(dtype),
            None => y.cast(dtype),
        })
    }

    /// For layers of which some are packed and some are not.
    fn forward_alone<const D: usize>(&self, x: Tensor<D>) -> Tensor<D> {
        match self {
            Self::Plain(plain) if [x.device(), plain.weight.device()].iter().any(Device::is_autodiff) => {
                train(plain, x)
            }
            Self::Plain(plain) => plain.forward(x),
            Self::Packed(_) => self.forward(x),
        }
    }

    fn packed(&self) -> Option<&PackedLinear> {
        match self {
            Self::Plain(_) => None,
            Self::Packed(packed) => Some(&packed.layer),
        }
    }

    /// Whether the layer is in the form for the CPU's inference.
    pub fn is_packed(&self) -> bool {
        self.packed().is_some()
    }

    /// `rows` rows that the layer takes, all ones: for measuring it.
    pub fn sample_input(&self, rows: usize) -> Tensor<2> {
        match self {
            Self::Plain(plain) => {
                let weight = plain.weight.val();
                Tensor::ones([rows, weight.dims()[0]], (&weight.device(), weight.dtype()))
            }
            Self::Packed(packed) => Tensor::ones([rows, packed.layer.inputs()], &Device::flex()),
        }
    }

    /// Bytes of weights that a pass over few rows reads.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Plain(plain) => {
                let [inputs, outputs] = plain.weight.dims();
                inputs * outputs * plain.weight.dtype().size()
            }
            Self::Packed(packed) => packed.layer.bytes(),
        }
    }

    /// The weight as Hugging Face stores it, `[out, in]`, for saving and for drafts that start from it.
    pub fn weight_out_in(&self) -> Tensor<2> {
        match self {
            Self::Plain(plain) => plain.weight.val().transpose(),
            Self::Packed(packed) => {
                let shape = [packed.layer.outputs(), packed.layer.inputs()];
                Tensor::from_data(TensorData::new(packed.layer.unpack(), shape), &Device::flex())
            }
        }
    }

    /// The bias `[out]`, if there is one.
    pub fn bias(&self) -> Option<Tensor<1>> {
        let bias = match self {
            Self::Plain(plain) => &plain.bias,
            Self::Packed(packed) => &packed.bias,
        };
        bias.as_ref().map(|bias| bias.val())
    }

    /// The precision of the rows that the layer takes.
    pub fn dtype(&self) -> DType {
        match self {
            Self::Plain(plain) => plain.weight.dtype(),
            Self::Packed(_) => DType::F32,
        }
    }

    /// Burn's layer.
    ///
    /// # Panics
    /// If the layer is packed: packed weights do not train.
    pub fn plain(&self) -> &Linear {
        match self {
            Self::Plain(plain) => plain,
            Self::Packed(_) => panic!("a packed layer does not train"),
        }
    }
}

/// The layer with gradients. All rows go through one product, so that the weight's gradient is made once, not once per sequence
/// and added up.
fn train<const D: usize>(layer: &Linear, x: Tensor<D>) -> Tensor<D> {
    let mut dims = x.dims();
    let weight = layer.weight.val();
    let [input, output] = weight.dims();
    let y = sightdraft_kernels::matmul(x.reshape([-1, input as i32]), weight, false);
    dims[D - 1] = output;
    let y = y.reshape(dims);
    match &layer.bias {
        Some(bias) => y + bias.val().unsqueeze(),
        None => y,
    }
}

/// Whether `device` is the processor, without gradients: where the kernels for inference run.
pub fn on_plain_cpu(device: &Device) -> bool {
    // Two devices are equal whether or not one records gradients.
    !device.is_autodiff() && *device == Device::flex()
}
