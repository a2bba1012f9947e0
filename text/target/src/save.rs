//! Writing a LLaMA in the Hugging Face layout.

use std::path::Path;

use burn::nn::RmsNorm;
use burn::prelude::*;
use burn::tensor::DType;
use sightdraft_core::files::write_atomically;
use sightdraft_core::{Error, Result, save_safetensors};

use crate::attention::Attention;
use crate::layer::{DecoderLayer, GatedMlp};
use crate::{Llama, Projection};

impl Llama {
    /// Writes `config.json` and `model.safetensors` (as `dtype`) into `dir`, which is made if need be.
    ///
    /// # Errors
    /// What the disk refuses.
    pub fn save(&self, dir: &Path, dtype: DType) -> Result<()> {
        std::fs::create_dir_all(dir).map_err(|source| Error::io("make", dir, source))?;
        save_safetensors(
            &dir.join("model.safetensors"),
            &self.tensors("model.", "lm_head", dtype),
            &[("format", "pt")],
        )?;
        let mut config = self.config.to_hf_json();
        config["torch_dtype"] = torch_name(dtype).into();
        let biased = |pick: fn(&DecoderLayer) -> &Projection| self.layers.iter().any(|l| pick(l).bias().is_some());
        config["attention_bias"] = biased(|layer| &layer.self_attn.q_proj).into();
        config["mlp_bias"] = biased(|layer| &layer.mlp.up_proj).into();
        let path = dir.join("config.json");
        write_atomically(&path, format!("{config:#}\n").as_bytes())
    }

    /// Every tensor under its Hugging Face name, converted to `dtype`; prefixes as in
    /// [`load_llama`](crate::load::load_llama).
    pub fn tensors(&self, model_prefix: &str, head: &str, dtype: DType) -> Vec<(String, TensorData)> {
        let mut out = Named::new(dtype);
        out.push(format!("{model_prefix}embed_tokens.weight"), self.embed_tokens.weight.val());
        for (i, layer) in self.layers.iter().enumerate() {
            let prefix = format!("{model_prefix}layers.{i}");
            out.norm(format!("{prefix}.input_layernorm"), &layer.input_layernorm);
            out.attention(&format!("{prefix}.self_attn"), &layer.self_attn);
            out.norm(format!("{prefix}.post_attention_layernorm"), &layer.post_attention_layernorm);
            out.mlp(&format!("{prefix}.mlp"), &layer.mlp);
        }
        out.norm(format!("{model_prefix}norm"), &self.norm);
        if let Some(projection) = self.lm_head.as_ref().filter(|_| !self.config.tie_word_embeddings) {
            out.projection(head, projection);
        }
        out.tensors
    }
}

/// Tensors gathered under their Hugging Face names, converted to one precision.
#[derive(Debug)]
pub struct Named {
    /// What was gathered, in order.
    pub tensors: Vec<(String, TensorData)>,
    dtype: DType,
}

impl Named {
    /// Nothing yet; floats will be converted to `dtype`.
    pub fn new(dtype: DType) -> Self {
        Self { tensors: Vec::new(), dtype }
    }

    /// A float tensor.
    pub fn push<const D: usize>(&mut self, name: impl Into<String>, tensor: Tensor<D>) {
        self.tensors.push((name.into(), tensor.into_data().convert_dtype(self.dtype)));
    }

    /// `{name}.weight`.
    pub fn norm(&mut self, name: impl std::fmt::Display, norm: &RmsNorm) {
        self.push(format!("{name}.weight"), norm.gamma.val());
    }

    /// `{prefix}.{q,k,v,o}_proj`.
    pub fn attention(&mut self, prefix: &str, attention: &Attention) {
        self.projection(format!("{prefix}.q_proj"), &attention.q_proj);
        self.projection(format!("{prefix}.k_proj"), &attention.k_proj);
        self.projection(format!("{prefix}.v_proj"), &attention.v_proj);
        self.projection(format!("{prefix}.o_proj"), &attention.o_proj);
    }

    /// `{prefix}.{gate,up,down}_proj`.
    pub fn mlp(&mut self, prefix: &str, mlp: &GatedMlp) {
        self.projection(format!("{prefix}.gate_proj"), &mlp.gate_proj);
        self.projection(format!("{prefix}.up_proj"), &mlp.up_proj);
        self.projection(format!("{prefix}.down_proj"), &mlp.down_proj);
    }

    /// `{name}.weight`, and `{name}.bias` where there is one.
    pub fn projection(&mut self, name: impl std::fmt::Display, projection: &Projection) {
        self.push(format!("{name}.weight"), projection.weight_out_in());
        if let Some(bias) = projection.bias() {
            self.push(format!("{name}.bias"), bias);
        }
    }
}

/// PyTorch's name of a float type.
pub fn torch_name(dtype: DType) -> &'static str {
    match dtype {
        DType::F16 => "float16",
        DType::BF16 => "bfloat16",
        _ => "float32",
    }
}
