//! Weights of a Hugging Face directory: single or sharded safetensors, or `pytorch_model.bin`, read tensor by tensor.

use std::path::Path;

use burn::tensor::{DType, Device, Tensor};

use crate::Result;

/// An opened set of weight files. Safetensors shards are memory-mapped; a tensor is copied only when asked for, so peak
/// memory is the model plus one tensor (plus, for `.bin` files, one shard).
pub struct Checkpoint {}

impl Checkpoint {
    /// Opens `model.safetensors(.index.json)` or `pytorch_model.bin(.index.json)` in `dir`. Checks that every shard is
    /// there and whole.
    pub fn open(_dir: &Path) -> Result<Self> {
        todo!()
    }

    /// All tensor names, sorted.
    pub fn names(&self) -> Vec<&str> {
        todo!()
    }

    /// Whether a tensor of that name exists.
    pub fn has(&self, _name: &str) -> bool {
        todo!()
    }

    /// The shape of a tensor, if it exists.
    pub fn shape(&self, _name: &str) -> Option<Vec<usize>> {
        todo!()
    }

    /// A float tensor, converted to `dtype` on `device`; an error names file, tensor, expected and found shape.
    pub fn tensor<const D: usize>(
        &self,
        _name: &str,
        _shape: [usize; D],
        _dtype: DType,
        _device: &Device,
    ) -> Result<Tensor<D>> {
        todo!()
    }

    /// An integer or boolean tensor as a vector (d2t, t2d).
    pub fn integers(&self, _name: &str) -> Result<Vec<i64>> {
        todo!()
    }

    /// Bytes of all tensors as stored.
    pub fn bytes(&self) -> u64 {
        todo!()
    }
}
