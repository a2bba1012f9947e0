//! EAGLE-3 for the library speculators (0.9), and for vLLM through it: the layer as `layers.0`, the target's embeddings beside it.

use burn::tensor::Device;
use serde_json::{Value, json};
use sightdraft_core::{Checkpoint, Result};
use sightdraft_target::LlamaConfig;

use super::{Layout, TargetFiles};
use crate::config::TAPS;
use crate::{DraftConfig, Eagle3, Published};

/// Version of the library whose layout this is.
const VERSION: &str = "0.9.0";
/// Tokens that a server is advised to guess; the library's default.
const SPECULATIVE_TOKENS: usize = 3;

pub(super) fn layout(checkpoint: &Checkpoint, config: DraftConfig, target: &TargetFiles) -> Result<Layout> {
    let draft = Eagle3::load(checkpoint, config, &Device::flex())?;
    let renamed = |name: String| match name.strip_prefix("midlayer.") {
        Some(rest) => format!("layers.0.{rest}"),
        None => name,
    };
    let mut tensors: Vec<_> = draft.tensors().into_iter().map(|(name, data)| (renamed(name), data)).collect();
    tensors.push(("embed_tokens.weight".into(), target.table()?));
    Ok(Layout { config: document(&draft.config, target), tensors })
}

fn document(config: &DraftConfig, target: &TargetFiles) -> Value {
    json!({
        "architectures": ["Eagle3DraftModel"],
        "speculators_model_type": "eagle3",
        "speculators_version": VERSION,
        "draft_vocab_size": config.draft_vocab_size,
        TAPS: config.taps,
        "norm_before_residual": config.norm_before_residual,
        "norm_before_fc": false,
        "fc_norm": false,
        "norm_output": false,
        "embed_requires_grad": false,
        "target_hidden_size": null,
        "tie_word_embeddings": false,
        "speculators_config": {
            "algorithm": "eagle3",
            "default_proposal_method": "greedy",
            "proposal_methods": [{
                "proposal_type": "greedy",
                "speculative_tokens": SPECULATIVE_TOKENS,
                "verifier_accept_k": 1,
                "accept_tolerance": 0.0,
            }],
            "verifier": { "name_or_path": target.name, "architectures": [target.architecture] },
        },
        "transformer_layer_config": layer(&config.layer, target),
    })
}

/// The layer's geometry with its rotary embedding as transformers 5 (`rope_parameters`) and as transformers 4 write it.
fn layer(config: &LlamaConfig, target: &TargetFiles) -> Value {
    let mut value = config.to_hf_json();
    if let Some(fields) = value.as_object_mut() {
        // The class of the whole is not the layer's.
        fields.remove("architectures");
    }
    target.add_ends(&mut value);
    value["attention_bias"] = false.into();
    value["mlp_bias"] = false.into();
    value["rope_parameters"] = match &config.rope.scaling {
        Some(scaling) => json!(scaling),
        None => json!({ "rope_type": "default" }),
    };
    value["rope_parameters"]["rope_theta"] = config.rope.theta.into();
    value
}
