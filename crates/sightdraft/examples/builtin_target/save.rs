//! The trained model as a Hugging Face directory, weights in f16.

use std::path::Path;

use burn::prelude::*;
use burn::tensor::DType;
use sightdraft_core::{Result, files, save_safetensors};
use sightdraft_target::{Llama, Llava};

use crate::tokenizer::{BOS, EOS, IMAGE};

/// Pretty JSON with a newline at the end.
///
/// # Errors
/// What the disk refuses.
pub fn json(path: &Path, value: &serde_json::Value) -> Result<()> {
    files::write_atomically(path, format!("{value:#}\n").as_bytes())
}

/// Writes config.json, generation_config.json, preprocessor_config.json and model.safetensors.
///
/// # Errors
/// What the disk refuses.
pub fn model(model: &Llava, dir: &Path) -> Result<()> {
    let mut config = model.vision.config.to_llava();
    let mut text = model.llama.config.to_hf_json();
    for (key, value) in [("bos_token_id", BOS), ("eos_token_id", EOS), ("pad_token_id", 0)] {
        text[key] = value.into();
    }
    config["architectures"] = serde_json::json!(["LlavaForConditionalGeneration"]);
    config["model_type"] = "llava".into();
    config["image_token_index"] = IMAGE.into();
    config["tie_word_embeddings"] = false.into();
    config["torch_dtype"] = "float16".into();
    config["text_config"] = text;
    json(&dir.join("config.json"), &config)?;
    let generation = serde_json::json!({"bos_token_id": BOS, "eos_token_id": EOS, "pad_token_id": 0});
    json(&dir.join("generation_config.json"), &generation)?;
    json(&dir.join("preprocessor_config.json"), &crate::model::preprocessing().to_json())?;
    let mut tensors = model.vision.tensors();
    tensors.extend(text_tensors(&model.llama));
    let half: Vec<_> = tensors.into_iter().map(|(name, data)| (name, data.convert_dtype(DType::F16))).collect();
    save_safetensors(&dir.join("model.safetensors"), &half, &[("format", "pt")])
}

/// Tensors under the names before transformers 4.52.
fn text_tensors(llama: &Llama) -> Vec<(String, TensorData)> {
    let base = "language_model.model";
    let mut tensors = vec![
        (format!("{base}.embed_tokens.weight"), llama.embed_tokens.weight.val().into_data()),
        (format!("{base}.norm.weight"), llama.norm.gamma.val().into_data()),
    ];
    for (i, layer) in llama.layers.iter().enumerate() {
        let name = format!("{base}.layers.{i}");
        let (attention, mlp) = (&layer.self_attn, &layer.mlp);
        for (part, projection) in [
            ("self_attn.q_proj", &attention.q_proj),
            ("self_attn.k_proj", &attention.k_proj),
            ("self_attn.v_proj", &attention.v_proj),
            ("self_attn.o_proj", &attention.o_proj),
            ("mlp.gate_proj", &mlp.gate_proj),
            ("mlp.up_proj", &mlp.up_proj),
            ("mlp.down_proj", &mlp.down_proj),
        ] {
            tensors.push((format!("{name}.{part}.weight"), projection.weight_out_in().into_data()));
        }
        for (part, norm) in
            [("input_layernorm", &layer.input_layernorm), ("post_attention_layernorm", &layer.post_attention_layernorm)]
        {
            tensors.push((format!("{name}.{part}.weight"), norm.gamma.val().into_data()));
        }
    }
    if let Some(head) = &llama.lm_head {
        tensors.push(("language_model.lm_head.weight".into(), head.weight_out_in().into_data()));
    }
    tensors
}
