//! Reading targets from a Hugging Face directory, weights moved tensor by tensor.

use std::path::Path;

use burn::tensor::Device;
use sightdraft_core::{Checkpoint, Result};

use crate::{Llama, LlamaConfig, Llava, Target};

/// Reads a LLaMA whose tensors start with `prefix` (`""`, `"language_model."`, ..).
pub fn load_llama(
    _checkpoint: &Checkpoint,
    _config: &LlamaConfig,
    _model_prefix: &str,
    _head: &str,
    _device: &Device,
) -> Result<Llama> {
    todo!()
}

/// Reads a LLaVA directory, both tensor naming schemes (before and after transformers 4.52).
pub fn load_llava(_dir: &Path, _device: &Device) -> Result<Llava> {
    todo!()
}

/// Whatever target is in `dir`.
pub fn load(_dir: &Path, _device: &Device) -> Result<Box<dyn Target>> {
    todo!()
}
