//! Which servers load a draft as it lies in its directory.

use std::path::Path;

use serde::Serialize;
use serde_json::Value;
use sightdraft_core::Result;
use sightdraft_core::files::read_json;

use super::{Format, obstacles};
use crate::Method;
use crate::config::{Stated, TAPS};

/// What one server makes of a draft.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Verdict {
    /// Who.
    pub server: Format,
    /// Whether it loads the directory and guesses with it as it was trained.
    pub loads: bool,
    /// Why not.
    pub reasons: Vec<String>,
    /// Whether an export for this server mends that.
    pub exportable: bool,
}

/// The verdict of every server on the draft in `dir`, whose tensors have these `names` (empty where there are no weights).
///
/// # Errors
/// A `config.json` that is missing, malformed or not a draft's.
pub fn servers(dir: &Path, names: &[&str]) -> Result<Vec<Verdict>> {
    let config: Value = read_json(&dir.join("config.json"))?;
    let stated = Stated::read(dir)?;
    let verdict = |server: Format| {
        let never = obstacles::of(&stated, server, None);
        let exportable = never.is_empty();
        let reasons = if exportable { as_it_lies(&config, names, &stated, server) } else { never };
        Verdict { server, loads: reasons.is_empty(), reasons, exportable }
    };
    Ok(Format::ALL.map(verdict).into())
}

/// What keeps `server` from loading the files as they are.
fn as_it_lies(config: &Value, names: &[&str], stated: &Stated, server: Format) -> Vec<String> {
    let speculators = !config["speculators_model_type"].is_null();
    let files = Files { config, names };
    match (server, stated.method) {
        (Format::Speculators, _) => files.unless(speculators, "config.json has no speculators_model_type"),
        (Format::Sglang, _) if speculators => vec!["config.json is in the layout of speculators".into()],
        (Format::Sglang, _) => files.sglang(),
        (Format::Vllm, Method::Eagle3) if speculators => Vec::new(),
        (Format::Vllm, Method::Eagle3) => files.vllm_eagle3(),
        (Format::Vllm, _) => files.vllm_eagle1(),
    }
}

/// A directory's config.json and the names of its tensors.
struct Files<'a> {
    config: &'a Value,
    names: &'a [&'a str],
}

impl Files<'_> {
    fn unless(&self, holds: bool, reason: &str) -> Vec<String> {
        if holds { Vec::new() } else { vec![reason.into()] }
    }

    fn is_called(&self, class: &str) -> bool {
        self.config["architectures"].as_array().is_some_and(|names| names.iter().any(|name| name == class))
    }

    fn has(&self, name: &str) -> bool {
        self.names.contains(&name)
    }

    fn sglang(&self) -> Vec<String> {
        let named = self.is_called("LlamaForCausalLMEagle3");
        let ids = self.config[TAPS].is_null() || !self.config["eagle_config"][TAPS].is_null();
        let layer = self.names.is_empty() || self.names.iter().any(|name| name.starts_with("midlayer."));
        let sized = !self.config["draft_vocab_size"].is_null();
        let checks = [
            (named, "it looks for architectures [\"LlamaForCausalLMEagle3\"]"),
            (sized, "it looks for draft_vocab_size"),
            (layer, "it looks for the layer as midlayer.*"),
            (ids, "it reads the ids of layers inside eagle_config alone, where there are none"),
        ];
        checks.iter().flat_map(|(holds, reason)| self.unless(*holds, reason)).collect()
    }

    fn vllm_eagle3(&self) -> Vec<String> {
        let named = self.is_called("LlamaForCausalLMEagle3") || self.is_called("Eagle3LlamaForCausalLM");
        let ids = !self.config[TAPS].is_null() || self.config["eagle_config"][TAPS].is_null();
        let checks = [
            (named, "it looks for architectures [\"Eagle3LlamaForCausalLM\"] or [\"LlamaForCausalLMEagle3\"]"),
            (ids, "it counts the ids of layers at the top of config.json, where there are none"),
        ];
        checks.iter().flat_map(|(holds, reason)| self.unless(*holds, reason)).collect()
    }

    fn vllm_eagle1(&self) -> Vec<String> {
        // vLLM puts "Eagle" before the name of a target's class itself.
        let named = self.is_called("LlamaForCausalLM") || self.is_called("EagleLlamaForCausalLM");
        let attention = self.has("layers.0.self_attn.o_proj.bias");
        let told = self.config["attention_bias"] == true;
        let checks = [
            (named, "it looks for architectures [\"EagleLlamaForCausalLM\"]"),
            (!self.has("fc.bias"), "its fusion has no bias, and the draft has fc.bias"),
            (self.config["bias"] != true, "it takes bias: true in config.json for biases of attention"),
            (self.names.is_empty() || attention == told, "attention_bias in config.json does not tell the tensors"),
        ];
        checks.iter().flat_map(|(holds, reason)| self.unless(*holds, reason)).collect()
    }
}
