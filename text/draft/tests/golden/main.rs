//! Draft heads against recordings of the published implementations.

mod eagle3;
mod family;
mod interop;
mod llava;
mod msd;
mod vispec;

use burn::prelude::*;
use sightdraft_core::Checkpoint;
use sightdraft_fixtures::root;
use sightdraft_target::load::load_llama;
use sightdraft_target::{Llama, LlamaConfig, Mask};

/// The recorded target. Packed, as it serves: gradients must pass its head all the same.
fn target(packed: bool) -> Llama {
    let (dir, device) = (root().join("hf_llama_gqa"), Device::flex());
    let checkpoint = Checkpoint::open_file(&dir.join("model.safetensors")).unwrap();
    let target = load_llama(&checkpoint, &LlamaConfig::open(&dir).unwrap(), "model.", "lm_head", &device).unwrap();
    if packed { target.for_inference() } else { target }
}

/// Causal among the rows that are not padding.
fn mask(attention: &[i64], n: usize) -> Mask {
    let row = |real: &[i64], query: usize| (0..n).map(|key| key <= query && real[key] == 1).collect();
    Mask::Full(attention.chunks(n).map(|real| (0..n).map(|query| row(real, query)).collect()).collect())
}
