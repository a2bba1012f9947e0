//! Tower and projector under their Hugging Face names, both ways.

use burn::module::Param;
use burn::nn::Linear;
use burn::prelude::*;
use sightdraft_core::{Checkpoint, Error, Result};

use crate::clip::{Activation, VisionAttention, VisionLayer};
use crate::linear::{Sink, Source};
use crate::{ClipVision, Projector, VisionConfig, VisionModel};

/// What tower and projector are called: before transformers 4.52 and since.
const PREFIXES: [&str; 2] = ["", "model."];

impl VisionModel {
    /// Reads `vision_tower.*` and `multi_modal_projector.*`, either bare or (since transformers 4.52) under `model.`.
    ///
    /// # Errors
    /// No tower under either name, a missing tensor, or one of another shape.
    pub fn load(checkpoint: &Checkpoint, config: &VisionConfig, device: &Device) -> Result<Self> {
        let prefix =
            PREFIXES.into_iter().find(|p| checkpoint.has(&format!("{p}multi_modal_projector.linear_1.weight")));
        let Some(prefix) = prefix else {
            return Err(Error::invalid(
                "weights of the vision side",
                "multi_modal_projector.linear_1.weight (with or without `model.` before it)",
                "neither",
                "check that this is a LLaVA-1.5 in Hugging Face layout, with all its shards",
            ));
        };
        let source = Source { checkpoint, device };
        // transformers 5 may leave the inner `vision_model.` out.
        let tower = ["vision_tower.vision_model.", "vision_tower."]
            .map(|name| format!("{prefix}{name}"))
            .into_iter()
            .find(|name| checkpoint.has(&format!("{name}embeddings.class_embedding")))
            .unwrap_or_else(|| format!("{prefix}vision_tower.vision_model."));
        Ok(Self {
            tower: load_tower(&source, &tower, config)?,
            projector: load_projector(&source, &format!("{prefix}multi_modal_projector."), config)?,
            config: config.clone(),
        })
    }

    /// Every tensor under its Hugging Face name (the names before transformers 4.52, which every version reads).
    pub fn tensors(&self) -> Vec<(String, TensorData)> {
        let mut sink = Sink::default();
        save_tower(&mut sink, "vision_tower.vision_model.", &self.tower);
        sink.linear("multi_modal_projector.linear_1", &self.projector.linear_1);
        sink.linear("multi_modal_projector.linear_2", &self.projector.linear_2);
        sink.0
    }
}

fn load_projector(source: &Source, prefix: &str, config: &VisionConfig) -> Result<Projector> {
    let (vision, text) = (config.hidden_size, config.text_hidden_size);
    Ok(Projector {
        linear_1: source.linear(&format!("{prefix}linear_1"), vision, text)?,
        linear_2: source.linear(&format!("{prefix}linear_2"), text, text)?,
    })
}

fn load_tower(source: &Source, prefix: &str, config: &VisionConfig) -> Result<ClipVision> {
    let (hidden, patch, eps) = (config.hidden_size, config.patch_size, config.layer_norm_eps);
    let rows = config.grid() * config.grid() + 1;
    let class = source.tensor(&format!("{prefix}embeddings.class_embedding"), [hidden])?;
    let kernel = source.tensor(&format!("{prefix}embeddings.patch_embedding.weight"), [hidden, 3, patch, patch])?;
    let position = source.tensor(&format!("{prefix}embeddings.position_embedding.weight"), [rows, hidden])?;
    let layers =
        (0..config.num_hidden_layers).map(|i| load_layer(source, &format!("{prefix}encoder.layers.{i}"), config));
    Ok(ClipVision {
        class_embedding: Param::from_tensor(class.reshape([1, 1, hidden])),
        patch_embedding: Linear {
            weight: Param::from_tensor(kernel.reshape([hidden, 3 * patch * patch]).transpose()),
            bias: None,
        },
        position_embedding: Param::from_tensor(position.unsqueeze()),
        // The misspelling is Hugging Face's.
        pre_layernorm: source.layer_norm(&format!("{prefix}pre_layrnorm"), hidden, eps)?,
        layers: layers.collect::<Result<_>>()?,
        post_layernorm: source.layer_norm(&format!("{prefix}post_layernorm"), hidden, eps)?,
        patch_size: patch,
    })
}

fn load_layer(source: &Source, name: &str, config: &VisionConfig) -> Result<VisionLayer> {
    let (hidden, wide, eps) = (config.hidden_size, config.intermediate_size, config.layer_norm_eps);
    let attention = |part: &str| source.linear(&format!("{name}.self_attn.{part}"), hidden, hidden);
    Ok(VisionLayer {
        layer_norm1: source.layer_norm(&format!("{name}.layer_norm1"), hidden, eps)?,
        self_attn: VisionAttention {
            q_proj: attention("q_proj")?,
            k_proj: attention("k_proj")?,
            v_proj: attention("v_proj")?,
            out_proj: attention("out_proj")?,
            heads: config.num_attention_heads,
        },
        layer_norm2: source.layer_norm(&format!("{name}.layer_norm2"), hidden, eps)?,
        fc1: source.linear(&format!("{name}.mlp.fc1"), hidden, wide)?,
        fc2: source.linear(&format!("{name}.mlp.fc2"), wide, hidden)?,
        activation: Activation::of(config),
    })
}

fn save_tower(sink: &mut Sink, prefix: &str, tower: &ClipVision) {
    let embeddings = format!("{prefix}embeddings");
    let [_, _, hidden] = tower.class_embedding.dims();
    let [_, rows, _] = tower.position_embedding.dims();
    let kernel = tower.patch_embedding.weight.val().transpose();
    sink.tensor(format!("{embeddings}.class_embedding"), tower.class_embedding.val().reshape([hidden]));
    sink.tensor(
        format!("{embeddings}.patch_embedding.weight"),
        kernel.reshape([hidden, 3, tower.patch_size, tower.patch_size]),
    );
    sink.tensor(
        format!("{embeddings}.position_embedding.weight"),
        tower.position_embedding.val().reshape([rows, hidden]),
    );
    sink.layer_norm(&format!("{prefix}pre_layrnorm"), &tower.pre_layernorm);
    for (i, layer) in tower.layers.iter().enumerate() {
        let name = format!("{prefix}encoder.layers.{i}");
        sink.layer_norm(&format!("{name}.layer_norm1"), &layer.layer_norm1);
        sink.linear(&format!("{name}.self_attn.q_proj"), &layer.self_attn.q_proj);
        sink.linear(&format!("{name}.self_attn.k_proj"), &layer.self_attn.k_proj);
        sink.linear(&format!("{name}.self_attn.v_proj"), &layer.self_attn.v_proj);
        sink.linear(&format!("{name}.self_attn.out_proj"), &layer.self_attn.out_proj);
        sink.layer_norm(&format!("{name}.layer_norm2"), &layer.layer_norm2);
        sink.linear(&format!("{name}.mlp.fc1"), &layer.fc1);
        sink.linear(&format!("{name}.mlp.fc2"), &layer.fc2);
    }
    sink.layer_norm(&format!("{prefix}post_layernorm"), &tower.post_layernorm);
}
