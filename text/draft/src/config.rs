//! `config.json` of a draft directory.
//!
//! Layer ids come in two conventions. `eagle_aux_hidden_state_layer_ids` at the top (vLLM, speculators) counts *inputs*: id j is the
//! input of layer j, which is HF `hidden_states[j]`. The same key inside `eagle_config` (SGLang, SpecForge) counts *outputs*: id j
//! is `hidden_states[j + 1]`. Both are written, always; the first is read where there is one, else the second.

use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sightdraft_core::{Error, Result};
use sightdraft_target::LlamaConfig;

use crate::taps::default_taps;

const TAPS: &str = "eagle_aux_hidden_state_layer_ids";

/// A draft, fully resolved.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DraftConfig {
    /// Geometry of the draft's one decoder layer; `vocab_size` is the target's V.
    pub layer: LlamaConfig,
    /// Draft vocabulary D.
    pub draft_vocab_size: usize,
    /// Indices into the target's HF hidden_states that are the features, low to high.
    pub taps: Vec<usize>,
}

impl DraftConfig {
    /// A draft whose layer is shaped like the layers of `target`, with the default taps.
    ///
    /// # Errors
    /// A target of fewer than three layers, or a draft vocabulary that is empty or larger than the target's.
    pub fn for_target(target: &LlamaConfig, draft_vocab_size: usize) -> Result<Self> {
        if draft_vocab_size == 0 || draft_vocab_size > target.vocab_size {
            let expected = format!("1 to {} (the target's vocabulary)", target.vocab_size);
            let found = draft_vocab_size.to_string();
            return Err(Error::invalid("draft_vocab_size", expected, found, "choose a size in that range"));
        }
        let layer = LlamaConfig { num_hidden_layers: 1, tie_word_embeddings: false, ..target.clone() };
        Ok(Self { layer, draft_vocab_size, taps: default_taps(target.num_hidden_layers)? })
    }

    /// Reads `config.json` of `dir` and checks it against the geometry of the target.
    ///
    /// # Errors
    /// Not an EAGLE-3 draft; another hidden size or vocabulary; taps that are not ascending or not in the target.
    pub fn open(dir: &Path, target: &LlamaConfig) -> Result<Self> {
        let path = dir.join("config.json");
        let text = std::fs::read_to_string(&path).map_err(|source| Error::io("read", &path, source))?;
        let value: Value = serde_json::from_str(&text)
            .map_err(|error| Error::file(&path, "JSON", error.to_string(), "download or write the file again"))?;
        check_architecture(&value, &path)?;
        let layer = LlamaConfig::from_hf_json(&value, &path)?;
        let draft_vocab_size = match value.get("draft_vocab_size").filter(|size| !size.is_null()) {
            None => layer.vocab_size,
            Some(size) => whole_number(size, "draft_vocab_size", &path)?,
        };
        let taps = match stated_taps(&value, &path)? {
            Some(taps) => taps,
            None => default_taps(target.num_hidden_layers)?,
        };
        let config = Self { layer, draft_vocab_size, taps };
        config.check(target, &path)?;
        Ok(config)
    }

    /// The `config.json` that EAGLE, SGLang, SpecForge and vLLM read.
    pub fn to_json(&self) -> Value {
        let mut value = self.layer.to_hf_json();
        value["architectures"] = json!(["LlamaForCausalLMEagle3"]);
        value["draft_vocab_size"] = json!(self.draft_vocab_size);
        value["num_hidden_layers"] = json!(1);
        value["tie_word_embeddings"] = json!(false);
        value[TAPS] = json!(self.taps);
        let outputs: Vec<i64> = self.taps.iter().map(|&tap| tap as i64 - 1).collect();
        value["eagle_config"] = json!({ TAPS: outputs, "use_aux_hidden_state": true });
        value
    }

    fn check(&self, target: &LlamaConfig, path: &Path) -> Result<()> {
        let differs = |key: &str, expected: usize, found: usize| {
            let expected = format!("{key} {expected}, as in the target");
            Err(Error::file(path, expected, found.to_string(), "use the draft that was trained for this target"))
        };
        if self.layer.hidden_size != target.hidden_size {
            return differs("hidden_size", target.hidden_size, self.layer.hidden_size);
        }
        if self.layer.vocab_size != target.vocab_size {
            return differs("vocab_size", target.vocab_size, self.layer.vocab_size);
        }
        if self.draft_vocab_size == 0 || self.draft_vocab_size > target.vocab_size {
            let expected = format!("draft_vocab_size of 1 to {}", target.vocab_size);
            return Err(Error::file(path, expected, self.draft_vocab_size.to_string(), "correct the key"));
        }
        let ascending = !self.taps.is_empty() && self.taps.windows(2).all(|pair| pair[0] < pair[1]);
        if !ascending || self.taps.last() > Some(&target.num_hidden_layers) {
            let last = target.num_hidden_layers;
            let expected = format!("{TAPS} ascending and at most {last} (the target's num_hidden_layers)");
            return Err(Error::file(path, expected, format!("{:?}", self.taps), "name layers that the target has"));
        }
        Ok(())
    }
}

/// EAGLE-3 by name, or (as EAGLE's own checkpoints do it) a plain LLaMA with a draft vocabulary.
fn check_architecture(value: &Value, path: &Path) -> Result<()> {
    let names = value.get("architectures").cloned().unwrap_or(Value::Null);
    let named = names
        .as_array()
        .is_some_and(|list| list.iter().any(|name| name.as_str().is_some_and(|n| n.contains("Eagle3"))));
    if named || value.get("draft_vocab_size").is_some() {
        return Ok(());
    }
    let expected = "an EAGLE-3 draft (architectures [\"LlamaForCausalLMEagle3\"] or a draft_vocab_size)";
    Err(Error::file(path, expected, format!("architectures {names}"), "give the directory of a draft, not of a target"))
}

/// The taps that the file states, in HF `hidden_states` indices.
fn stated_taps(value: &Value, path: &Path) -> Result<Option<Vec<usize>>> {
    let ids = |list: &Value, offset: i64| -> Result<Option<Vec<usize>>> {
        if list.is_null() {
            return Ok(None);
        }
        let number = |id: &Value| id.as_i64().and_then(|id| usize::try_from(id + offset).ok());
        let taps: Option<Vec<usize>> = list.as_array().and_then(|list| list.iter().map(number).collect());
        let expected = format!("{TAPS} as a list of layer ids");
        taps.map(Some).ok_or_else(|| Error::file(path, expected, list.to_string(), "correct the key"))
    };
    match ids(&value[TAPS], 0)? {
        Some(taps) => Ok(Some(taps)),
        None => ids(&value["eagle_config"][TAPS], 1),
    }
}

fn whole_number(value: &Value, key: &str, path: &Path) -> Result<usize> {
    let number = value.as_u64().and_then(|number| usize::try_from(number).ok());
    number.ok_or_else(|| Error::file(path, format!("{key} as a whole number"), value.to_string(), "correct the key"))
}
