//! EAGLE-1 (and HASS, whose tensors are the same) for vLLM, whose fusion has no bias.
//!
//! The bias can be moved exactly: what the fusion puts out, x = W[e, h] + b, is read by the three projections into attention and
//! by the residual, and by nothing else, for nothing is normed in between. Without b in x, the projections get W_q b, W_k b and W_v b as
//! their own biases, and the output projection gets b, which the residual then receives with attention's output (derived). vLLM's
//! LLaMA layers have these four biases under `attention_bias`. The key `bias` of EAGLE's own config means the same to
//! vLLM, so it must not be there.

use burn::module::Param;
use burn::nn::Linear;
use burn::prelude::*;
use burn::tensor::DType;
use serde_json::json;
use sightdraft_core::{Checkpoint, Result};
use sightdraft_target::Projection;
use sightdraft_target::save::Named;

use super::{Layout, TargetFiles};
use crate::layer::UnnormedLayer;
use crate::{DraftConfig, fusion};

pub(super) fn layout(checkpoint: &Checkpoint, config: &DraftConfig, target: &TargetFiles) -> Result<Layout> {
    let device = Device::flex();
    let mut fc = fusion::load(checkpoint, "fc", config.layer.hidden_size, &device)?;
    let mut layer = UnnormedLayer::load(checkpoint, 1, &config.layer, &device)?;
    if let Some(bias) = fc.bias() {
        fc = Projection::from_weight(fc.plain().weight.val());
        fold(&bias, &mut layer);
    }
    let mut out = Named::new(DType::F32);
    out.projection("fc", &fc);
    layer.name(&mut out);
    out.tensors.push(("embed_tokens.weight".into(), target.table()?));
    let mut document = config.layer.to_hf_json();
    document["architectures"] = json!(["EagleLlamaForCausalLM"]);
    document["num_hidden_layers"] = json!(1);
    document["attention_bias"] = json!(layer.self_attn.o_proj.bias().is_some());
    target.add_ends(&mut document);
    Ok(Layout { config: document, tensors: out.tensors })
}

/// Moves `bias` `[H]` of the layer's input into its attention.
fn fold(bias: &Tensor<1>, layer: &mut UnnormedLayer) {
    let attention = &mut layer.self_attn;
    for projection in [&mut attention.q_proj, &mut attention.k_proj, &mut attention.v_proj] {
        let moved = bias.clone().unsqueeze::<2>().matmul(projection.plain().weight.val()).squeeze_dim(0);
        add(projection, moved);
    }
    add(&mut attention.o_proj, bias.clone());
}

fn add(projection: &mut Projection, more: Tensor<1>) {
    let bias = match projection.bias() {
        Some(bias) => bias + more,
        None => more,
    };
    let weight = projection.plain().weight.clone();
    *projection = Projection::Plain(Linear { weight, bias: Some(Param::from_tensor(bias)) });
}
