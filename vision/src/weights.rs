//! Tower and projector under their Hugging Face names, both ways.

use burn::module::Param;
use burn::nn::Linear;
use burn::prelude::*;
use sightdraft_core::{Checkpoint, Error, Result};

use crate::linear::{Sink, Source};
use crate::position::resample;
use crate::tower::{Activation, VisionAttention, VisionLayer};
use crate::{Family, Projector, VisionConfig, VisionModel, VisionTower};

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
        let names = config.family.names();
        // transformers 5 may leave CLIP's inner `vision_model.` out.
        let tower = [names.tower, "vision_tower."]
            .map(|name| format!("{prefix}{name}"))
            .into_iter()
            .find(|name| checkpoint.has(&format!("{name}{}", names.class)))
            .unwrap_or_else(|| format!("{prefix}{}", names.tower));
        Ok(Self {
            tower: VisionTower::load(checkpoint, &tower, config, device)?,
            projector: load_projector(
                &Source { checkpoint, device },
                &format!("{prefix}multi_modal_projector."),
                config,
            )?,
            config: config.clone(),
        })
    }

    /// Every tensor under its Hugging Face name (the names before transformers 4.52, which every version reads).
    pub fn tensors(&self) -> Vec<(String, TensorData)> {
        let mut sink = Sink(self.tower.tensors(self.config.family.names().tower));
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

impl VisionTower {
    /// Reads the tower whose tensors start with `prefix` (empty for a checkpoint of a tower alone). DINOv2's position embeddings
    /// are resampled to the size of the images, as its reference does.
    ///
    /// # Errors
    /// A missing tensor, or one of another shape.
    pub fn load(checkpoint: &Checkpoint, prefix: &str, config: &VisionConfig, device: &Device) -> Result<Self> {
        let source = Source { checkpoint, device };
        let (hidden, patch, eps) = (config.hidden_size, config.patch_size, config.layer_norm_eps);
        let names = config.family.names();
        let name = |part: &str| format!("{prefix}{part}");
        let class = match config.family {
            Family::Clip => source.tensor(&name(names.class), [hidden])?.reshape([1, 1, hidden]),
            Family::Dinov2 => source.tensor(&name(names.class), [1, 1, hidden])?,
        };
        let kernel = source.tensor(&name(&format!("{}.weight", names.patch)), [hidden, 3, patch, patch])?;
        let bias = match config.family {
            Family::Clip => None,
            Family::Dinov2 => Some(source.tensor(&name(&format!("{}.bias", names.patch)), [hidden])?),
        };
        let norm = |part: &str| source.layer_norm(&name(part), hidden, eps);
        let layers =
            (0..config.num_hidden_layers).map(|i| load_layer(&source, &name(&format!("{}.{i}", names.layers)), config));
        Ok(Self {
            class_embedding: Param::from_tensor(class),
            patch_embedding: Linear {
                weight: Param::from_tensor(kernel.reshape([hidden, 3 * patch * patch]).transpose()),
                bias: bias.map(Param::from_tensor),
            },
            position_embedding: Param::from_tensor(load_positions(&source, &name(names.position), config)?),
            pre_layernorm: names.pre_norm.map(norm).transpose()?,
            layers: layers.collect::<Result<_>>()?,
            post_layernorm: norm(names.post_norm)?,
            patch_size: patch,
            family: config.family,
        })
    }

    /// Every tensor under its Hugging Face name behind `prefix`.
    pub fn tensors(&self, prefix: &str) -> Vec<(String, TensorData)> {
        let mut sink = Sink::default();
        let names = self.family.names();
        let name = |part: &str| format!("{prefix}{part}");
        let [_, rows, hidden] = self.position_embedding.dims();
        let (class, position) = (self.class_embedding.val(), self.position_embedding.val());
        match self.family {
            Family::Clip => {
                sink.tensor(name(names.class), class.reshape([hidden]));
                sink.tensor(name(names.position), position.reshape([rows, hidden]));
            }
            Family::Dinov2 => {
                sink.tensor(name(names.class), class);
                sink.tensor(name(names.position), position);
            }
        }
        let kernel = self.patch_embedding.weight.val().transpose();
        let kernel = kernel.reshape([hidden, 3, self.patch_size, self.patch_size]);
        sink.tensor(name(&format!("{}.weight", names.patch)), kernel);
        if let Some(bias) = &self.patch_embedding.bias {
            sink.tensor(name(&format!("{}.bias", names.patch)), bias.val());
        }
        if let (Some(part), Some(norm)) = (names.pre_norm, &self.pre_layernorm) {
            sink.layer_norm(&name(part), norm);
        }
        for (i, layer) in self.layers.iter().enumerate() {
            save_layer(&mut sink, &name(&format!("{}.{i}", names.layers)), layer, self.family);
        }
        sink.layer_norm(&name(names.post_norm), &self.post_layernorm);
        sink.0
    }
}

/// Position embeddings `[1, rows, hidden]`, the class first.
fn load_positions(source: &Source, name: &str, config: &VisionConfig) -> Result<Tensor<3>> {
    let (hidden, grid) = (config.hidden_size, config.grid());
    let rows = grid * grid + 1;
    if config.family == Family::Clip {
        return Ok(source.tensor(name, [rows, hidden])?.unsqueeze());
    }
    let stored = source.checkpoint.shape(name).and_then(|shape| shape.get(1).copied()).unwrap_or(rows);
    let side = stored.saturating_sub(1).isqrt();
    if stored == rows || side * side + 1 != stored {
        return source.tensor(name, [1, rows, hidden]);
    }
    let whole: Tensor<3> = source.tensor(name, [1, stored, hidden])?;
    let places = source.checkpoint.floats(name)?;
    let places = TensorData::new(resample(&places[hidden..], side, grid, hidden), [1, rows - 1, hidden]);
    let places = Tensor::from_data(places, (source.device, whole.dtype()));
    Ok(Tensor::cat(vec![whole.narrow(1, 0, 1), places], 1))
}

fn load_layer(source: &Source, name: &str, config: &VisionConfig) -> Result<VisionLayer> {
    let (hidden, wide, eps) = (config.hidden_size, config.intermediate_size, config.layer_norm_eps);
    let names = config.family.names();
    let attention = |part: &str| source.linear(&format!("{name}.{part}"), hidden, hidden);
    let scale = |which: usize| match names.scales {
        Some(parts) => source.tensor(&format!("{name}.{}", parts[which]), [hidden]).map(Param::from_tensor).map(Some),
        None => Ok(None),
    };
    Ok(VisionLayer {
        layer_norm1: source.layer_norm(&format!("{name}.{}", names.norm1), hidden, eps)?,
        self_attn: VisionAttention {
            q_proj: attention(names.query)?,
            k_proj: attention(names.key)?,
            v_proj: attention(names.value)?,
            out_proj: attention(names.output)?,
            heads: config.num_attention_heads,
        },
        scale1: scale(0)?,
        layer_norm2: source.layer_norm(&format!("{name}.{}", names.norm2), hidden, eps)?,
        fc1: source.linear(&format!("{name}.mlp.fc1"), hidden, wide)?,
        fc2: source.linear(&format!("{name}.mlp.fc2"), wide, hidden)?,
        activation: Activation::of(config),
        scale2: scale(1)?,
    })
}

fn save_layer(sink: &mut Sink, name: &str, layer: &VisionLayer, family: Family) {
    let names = family.names();
    let part = |part: &str| format!("{name}.{part}");
    sink.layer_norm(&part(names.norm1), &layer.layer_norm1);
    sink.linear(&part(names.query), &layer.self_attn.q_proj);
    sink.linear(&part(names.key), &layer.self_attn.k_proj);
    sink.linear(&part(names.value), &layer.self_attn.v_proj);
    sink.linear(&part(names.output), &layer.self_attn.out_proj);
    sink.layer_norm(&part(names.norm2), &layer.layer_norm2);
    sink.linear(&part("mlp.fc1"), &layer.fc1);
    sink.linear(&part("mlp.fc2"), &layer.fc2);
    for (scale, which) in [&layer.scale1, &layer.scale2].into_iter().zip(names.scales.into_iter().flatten()) {
        if let Some(scale) = scale {
            sink.tensor(part(which), scale.val());
        }
    }
}
