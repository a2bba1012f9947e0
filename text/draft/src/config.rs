//! `config.json` of a draft directory.
//!
//! Layer ids come in two conventions. `eagle_aux_hidden_state_layer_ids` at the top (vLLM, speculators) counts *inputs*: id j is the
//! input of layer j, which is HF `hidden_states[j]`. The same key inside `eagle_config` (SGLang, SpecForge) counts *outputs*: id j
//! is `hidden_states[j + 1]`. Both are written, always; the first is read where there is one, else the second.

use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sightdraft_core::files::read_json;
use sightdraft_core::{Checkpoint, Error, Result};
use sightdraft_target::LlamaConfig;

use crate::Method;
use crate::method::METHOD_KEY;
use crate::taps::default_taps;

/// Queries of a fresh adaptor, as published: one token and the global feature.
pub const QUERIES: usize = 2;

/// More queries than images have rows would not compress them.
const MOST_QUERIES: usize = 1024;

/// The key of the layer ids, at either place.
pub(crate) const TAPS: &str = "eagle_aux_hidden_state_layer_ids";

/// A draft, fully resolved.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DraftConfig {
    /// How it is built and trained.
    pub method: Method,
    /// Geometry of the draft's one decoder layer; `vocab_size` is the target's V.
    pub layer: LlamaConfig,
    /// Draft vocabulary D.
    pub draft_vocab_size: usize,
    /// Indices into the target's HF hidden_states that are the features, low to high.
    pub taps: Vec<usize>,
    /// Queries of ViSpec's image adaptor: all but one become tokens that stand for an image, the last its global feature. Where
    /// there are tensors, they tell; other methods have none.
    pub num_q: usize,
    /// Whether the residual of EAGLE-3's layer is the normed feature (a variant that speculators trains), not the raw one.
    #[serde(default)]
    pub norm_before_residual: bool,
}

/// What the `config.json` of a draft states, before a target is known.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Stated {
    pub(crate) method: Method,
    pub(crate) layer: LlamaConfig,
    pub(crate) draft_vocab_size: usize,
    /// None: the method's own for the target.
    pub(crate) taps: Option<Vec<usize>>,
    pub(crate) norm_before_residual: bool,
}

impl Stated {
    /// Reads `config.json` of `dir`, as EAGLE, SGLang, SpecForge and vLLM write it or as speculators does.
    ///
    /// # Errors
    /// Not a draft, or one with parts that are unknown here.
    pub(crate) fn read(dir: &Path) -> Result<Self> {
        let path = dir.join("config.json");
        let value: Value = read_json(&path)?;
        let method = method(&value, dir)?;
        refuse_variants(&value, method, &path)?;
        let layer = LlamaConfig::from_hf_json(value.get("transformer_layer_config").unwrap_or(&value), &path)?;
        if method == Method::Eagle3 && layer.num_hidden_layers != 1 {
            let (expected, found) = ("num_hidden_layers 1", layer.num_hidden_layers.to_string());
            return Err(Error::file(path, expected, found, "use a draft of one layer"));
        }
        let draft_vocab_size = match value.get("draft_vocab_size").filter(|size| !size.is_null()) {
            None => layer.vocab_size,
            Some(size) => whole_number(size, "draft_vocab_size", &path)?,
        };
        let taps = stated_taps(&value, &path)?;
        let norm_before_residual = value["norm_before_residual"] == true;
        Ok(Self { method, layer, draft_vocab_size, taps, norm_before_residual })
    }
}

impl DraftConfig {
    /// A draft whose layer is shaped like the layers of `target`, with the default taps.
    ///
    /// # Errors
    /// A draft vocabulary that is empty or larger than the target's, or smaller where the method speaks through the target's
    /// head; for EAGLE-3, a target of fewer than three layers.
    pub fn for_target(method: Method, target: &LlamaConfig, draft_vocab_size: usize) -> Result<Self> {
        let found = draft_vocab_size.to_string();
        if method.shares_head() && draft_vocab_size != target.vocab_size {
            let expected = format!("{}, for {method} speaks through the target's head", target.vocab_size);
            return Err(Error::invalid("draft_vocab_size", expected, found, "leave the key out"));
        }
        if draft_vocab_size == 0 || draft_vocab_size > target.vocab_size {
            let expected = format!("1 to {} (the target's vocabulary)", target.vocab_size);
            return Err(Error::invalid("draft_vocab_size", expected, found, "choose a size in that range"));
        }
        let layer = LlamaConfig { num_hidden_layers: 1, tie_word_embeddings: false, ..target.clone() };
        let taps = default_taps(method, target.num_hidden_layers)?;
        Ok(Self { method, layer, draft_vocab_size, taps, num_q: QUERIES, norm_before_residual: false })
    }

    /// The same draft with an adaptor of `num_q` queries.
    ///
    /// # Errors
    /// A method without an adaptor; no query, or more than a prompt has use for.
    pub fn with_num_q(self, num_q: usize) -> Result<Self> {
        if self.method != Method::Vispec {
            let (expected, found) =
                (format!("no such key, for {} has no image adaptor", self.method), num_q.to_string());
            return Err(Error::invalid("num_q", expected, found, "leave the key out, or choose method = \"vispec\""));
        }
        if !(1..=MOST_QUERIES).contains(&num_q) {
            let expected = format!("1 to {MOST_QUERIES}");
            return Err(Error::invalid("num_q", expected, num_q.to_string(), "choose a number in that range"));
        }
        Ok(Self { num_q, ..self })
    }

    /// Reads `config.json` of `dir` and checks it against the geometry of the target.
    ///
    /// # Errors
    /// Not a draft; another hidden size or vocabulary; taps that are not ascending or not in the target.
    pub fn open(dir: &Path, target: &LlamaConfig) -> Result<Self> {
        let Stated { method, layer, draft_vocab_size, taps, norm_before_residual } = Stated::read(dir)?;
        let taps = match taps {
            Some(taps) => taps,
            None => default_taps(method, target.num_hidden_layers)?,
        };
        let config = Self { method, layer, draft_vocab_size, taps, num_q: QUERIES, norm_before_residual };
        config.check(target, &dir.join("config.json"))?;
        Ok(config)
    }

    /// The `config.json` of the published layout; EAGLE-3's is the one that EAGLE, SGLang, SpecForge and vLLM read.
    pub fn to_json(&self) -> Value {
        let mut value = self.layer.to_hf_json();
        if self.method.shares_head() {
            value[METHOD_KEY] = json!(self.method);
            return value;
        }
        value["architectures"] = json!(["LlamaForCausalLMEagle3"]);
        value["draft_vocab_size"] = json!(self.draft_vocab_size);
        value["num_hidden_layers"] = json!(1);
        value["tie_word_embeddings"] = json!(false);
        value[TAPS] = json!(self.taps);
        let outputs: Vec<i64> = self.taps.iter().map(|&tap| tap as i64 - 1).collect();
        value["eagle_config"] = json!({ TAPS: outputs, "use_aux_hidden_state": true });
        value["norm_before_residual"] = json!(self.norm_before_residual);
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
        if self.method.shares_head() && self.draft_vocab_size != target.vocab_size {
            return differs("draft_vocab_size", target.vocab_size, self.draft_vocab_size);
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

/// The method of the draft in `dir`; its tensors are looked at only where the config alone does not tell.
fn method(value: &Value, dir: &Path) -> Result<Method> {
    let path = dir.join("config.json");
    let method = match Method::recognise(value, &[], &path)? {
        Some(method) => Some(method),
        None => Method::recognise(value, &Checkpoint::open(dir)?.names(), &path)?,
    };
    method.ok_or_else(|| {
        let found = format!("architectures {}", value["architectures"]);
        let mend = "give the directory of a draft, not of a target";
        Error::file(path, "a draft: EAGLE-1 or -2, HASS, GRIFFIN, MSD, ViSpec or EAGLE-3", found, mend)
    })
}

/// Parts that speculators can add to EAGLE-3. A draft that has them guesses nonsense without them.
fn refuse_variants(value: &Value, method: Method, path: &Path) -> Result<()> {
    const VARIANTS: [&str; 4] = ["norm_before_fc", "fc_norm", "norm_output", "embed_requires_grad"];
    match VARIANTS.iter().find(|key| method == Method::Eagle3 && value[**key] == true) {
        None => Ok(()),
        Some(key) => {
            let mend = "use a draft that was trained without it";
            Err(Error::file(path, format!("{key} false, for EAGLE-3 as published has no such part"), "true", mend))
        }
    }
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
