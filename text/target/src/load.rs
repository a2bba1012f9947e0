//! Reading targets from a Hugging Face directory, weights moved tensor by tensor.
//!
//! Peak memory is the weights in the chosen dtype plus one tensor: mapped pages of a shard are given back as soon as its
//! tensor is copied. `cargo bench -p sightdraft-target --bench load_peak` measures it on a generated checkpoint.

use std::path::Path;

use burn::module::Param;
use burn::nn::Embedding;
use burn::tensor::{DType, Device};
use sightdraft_core::files::read_json;
use sightdraft_core::{Checkpoint, Error, Result};

use crate::layer::{DecoderLayer, load_norm};
use crate::{Llama, LlamaConfig, Llava, Projection, Rope, Target};

/// Reads a LLaMA whose tensors start with `model_prefix` (`"model."`, `"language_model.model."`, ..) and whose head is the
/// tensor `{head}.weight` (`"lm_head"`, ..), in the checkpoint's [`dtype`](Checkpoint::dtype). A head that is absent where
/// the config does not tie it is an error.
///
/// # Errors
/// A missing tensor or another shape.
pub fn load_llama(
    checkpoint: &Checkpoint,
    config: &LlamaConfig,
    model_prefix: &str,
    head: &str,
    device: &Device,
) -> Result<Llama> {
    let (vocabulary, width) = (config.vocab_size, config.hidden_size);
    let embedding = format!("{model_prefix}embed_tokens.weight");
    let weight = checkpoint.tensor(&embedding, [vocabulary, width], checkpoint.dtype(), device)?;
    let layer = |i| DecoderLayer::load(checkpoint, &format!("{model_prefix}layers.{i}"), config, device);
    let layers = (0..config.num_hidden_layers).map(layer).collect::<Result<_>>()?;
    let lm_head = match config.tie_word_embeddings {
        true => None,
        false => Some(Projection::load(checkpoint, head, width, vocabulary, false, device)?),
    };
    Ok(Llama {
        embed_tokens: Embedding { weight: Param::from_tensor(weight) },
        layers,
        norm: load_norm(checkpoint, &format!("{model_prefix}norm"), width, config.rms_norm_eps, device)?,
        lm_head,
        rope: Rope::new(&config.rope, config.head_dim),
        config: config.clone(),
    })
}

/// Reads a LLaVA directory in F32; [`Llava::load`] takes other dtypes.
///
/// # Errors
/// As [`Llava::load`].
pub fn load_llava(dir: &Path, device: &Device) -> Result<Llava> {
    Llava::load(dir, DType::F32, device)
}

/// Reads a text-only LLaMA directory, weights as `dtype` (F32, F16 or BF16).
///
/// # Errors
/// A directory, config or weight file that is missing, damaged or does not fit.
pub fn load_text(dir: &Path, dtype: DType, device: &Device) -> Result<Llama> {
    let config = LlamaConfig::open(dir)?;
    load_llama(&Checkpoint::open(dir)?.with_dtype(dtype)?, &config, "model.", "lm_head", device)
}

/// Whatever target is in `dir`, weights as `dtype` (F32, F16 or BF16), in the form for inference.
///
/// # Errors
/// As [`load_text`]; a `model_type` that is neither LLaMA nor LLaVA.
pub fn load(dir: &Path, dtype: DType, device: &Device) -> Result<Box<dyn Target>> {
    match model_type(dir)?.as_str() {
        "llava" => Ok(Box::new(Llava::load(dir, dtype, device)?.for_inference())),
        "llama" => Ok(Box::new(load_text(dir, dtype, device)?.for_inference())),
        other => {
            let expected = "model_type \"llama\" or \"llava\"";
            let mend = "use a model of the LLaMA family or LLaVA-1.5";
            Err(Error::file(dir.join("config.json"), expected, format!("{other:?}"), mend))
        }
    }
}

/// `model_type` of config.json; files that lack it are taken for LLaMA.
pub(crate) fn model_type(dir: &Path) -> Result<String> {
    let config: serde_json::Value = read_json(&dir.join("config.json"))?;
    Ok(config.get("model_type").and_then(serde_json::Value::as_str).unwrap_or("llama").to_owned())
}
