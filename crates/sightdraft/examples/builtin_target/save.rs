//! The trained model as a Hugging Face directory, weights in f16.

use std::path::Path;

use burn::tensor::DType;
use serde_json::{Value, json};
use sightdraft_core::{Result, files};
use sightdraft_target::Llava;
use sightdraft_vision::Preprocessor;

use crate::tokenizer::{BOS, EOS, PAD};

/// Writes config.json, model.safetensors, generation_config.json and preprocessor_config.json.
///
/// # Errors
/// What the disk refuses.
pub fn model(model: &Llava, preprocessor: &Preprocessor, dir: &Path) -> Result<()> {
    model.save(dir, DType::F16)?;
    preprocessor.save(dir)?;
    let ids = json!({"bos_token_id": BOS, "eos_token_id": EOS, "pad_token_id": PAD});
    write_json(&dir.join("generation_config.json"), &ids)
}

/// Pretty JSON with a newline at its end.
///
/// # Errors
/// What the disk refuses.
pub fn write_json(path: &Path, value: &Value) -> Result<()> {
    files::write_atomically(path, format!("{value:#}\n").as_bytes())
}
