//! EAGLE-3 for SGLang, SpecForge and vLLM: EAGLE's own layout.

use burn::tensor::Device;
use serde_json::json;
use sightdraft_core::{Checkpoint, Result};

use super::{Format, Layout, TargetFiles};
use crate::{DraftConfig, Eagle3, Published};

/// The layout; vLLM calls the class by another name and reads the same tensors.
pub(super) fn layout(
    checkpoint: &Checkpoint,
    config: DraftConfig,
    format: Format,
    target: &TargetFiles,
) -> Result<Layout> {
    let draft = Eagle3::load(checkpoint, config, &Device::flex())?;
    let mut config = draft.config.to_json();
    if format == Format::Vllm {
        config["architectures"] = json!(["Eagle3LlamaForCausalLM"]);
    }
    target.add_ends(&mut config);
    Ok(Layout { config, tensors: draft.tensors() })
}
