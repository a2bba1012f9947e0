//! The text model's geometry: the Hugging Face JSON, and the total struct it resolves to.

use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sightdraft_core::files::read_json;
use sightdraft_core::{Error, Result};

/// A LLaMA-family decoder, fully resolved.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LlamaConfig {
    /// Width of the residual stream, H.
    pub hidden_size: usize,
    /// Width of the MLP, I.
    pub intermediate_size: usize,
    /// Decoder layers, N.
    pub num_hidden_layers: usize,
    /// Query heads.
    pub num_attention_heads: usize,
    /// Key/value heads.
    pub num_key_value_heads: usize,
    /// Width of one head.
    pub head_dim: usize,
    /// Vocabulary, V.
    pub vocab_size: usize,
    /// Longest context.
    pub max_position_embeddings: usize,
    /// Epsilon of every RMS norm.
    pub rms_norm_eps: f64,
    /// Rotary embedding.
    pub rope: RopeConfig,
    /// Whether the head shares the embedding's weights.
    pub tie_word_embeddings: bool,
}

/// Rotary position embedding.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RopeConfig {
    /// Base of the inverse frequencies.
    pub theta: f64,
    /// Frequency scaling, if any.
    pub scaling: Option<RopeScaling>,
}

/// Frequency scaling.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "rope_type", rename_all = "lowercase")]
pub enum RopeScaling {
    /// LLaMA-3.1's.
    Llama3 {
        /// Division of the low frequencies.
        factor: f64,
        /// Below this the frequency is low.
        low_freq_factor: f64,
        /// Above this it is high.
        high_freq_factor: f64,
        /// Context of the original training.
        original_max_position_embeddings: usize,
    },
    /// Positions divided by a factor.
    Linear {
        /// The divisor.
        factor: f64,
    },
}

/// The JSON as Hugging Face writes it. Absent fields take the library's LLaMA defaults (LLaMA-7B's geometry), which is
/// what LLaVA's short `text_config` counts on.
#[derive(Debug, Deserialize)]
struct Raw {
    #[serde(default = "default_hidden")]
    hidden_size: usize,
    #[serde(default = "default_intermediate")]
    intermediate_size: usize,
    #[serde(default = "default_layers")]
    num_hidden_layers: usize,
    #[serde(default = "default_layers")]
    num_attention_heads: usize,
    num_key_value_heads: Option<usize>,
    head_dim: Option<usize>,
    #[serde(default = "default_vocabulary")]
    vocab_size: usize,
    #[serde(default = "default_context")]
    max_position_embeddings: usize,
    #[serde(default = "default_eps")]
    rms_norm_eps: f64,
    rope_theta: Option<f64>,
    rope_scaling: Option<Value>,
    rope_parameters: Option<Value>,
    #[serde(default)]
    tie_word_embeddings: bool,
    hidden_act: Option<String>,
}

fn default_hidden() -> usize {
    4096
}

fn default_intermediate() -> usize {
    11008
}

fn default_layers() -> usize {
    32
}

fn default_vocabulary() -> usize {
    32000
}

fn default_context() -> usize {
    2048
}

fn default_eps() -> f64 {
    1e-6
}

/// No size of a model is larger; products of a few sizes then fit the machine's integers.
const LARGEST: usize = 1 << 24;

impl LlamaConfig {
    /// Reads `config.json` of `dir` (a LLaMA, or the text_config of a LLaVA).
    ///
    /// # Errors
    /// A missing or malformed file, heads that do not divide, an unknown rope type or activation.
    pub fn open(dir: &Path) -> Result<Self> {
        let path = dir.join("config.json");
        let value: Value = read_json(&path)?;
        Self::from_hf_json(value.get("text_config").unwrap_or(&value), &path)
    }

    /// Resolves one JSON object; `path` is the file it came from, for messages.
    ///
    /// # Errors
    /// As [`LlamaConfig::open`].
    pub fn from_hf_json(value: &Value, path: &Path) -> Result<Self> {
        let raw = Raw::deserialize(value)
            .map_err(|error| Error::file(path, "a LLaMA config", error.to_string(), "correct the key"))?;
        if let Some(act) = raw.hidden_act.as_deref().filter(|act| *act != "silu") {
            let found = format!("hidden_act {act:?}");
            return Err(Error::file(path, "hidden_act \"silu\"", found, "use a model of the LLaMA family"));
        }
        let heads = raw.num_attention_heads;
        let config = Self {
            hidden_size: raw.hidden_size,
            intermediate_size: raw.intermediate_size,
            num_hidden_layers: raw.num_hidden_layers,
            num_attention_heads: heads,
            num_key_value_heads: raw.num_key_value_heads.unwrap_or(heads),
            head_dim: raw.head_dim.unwrap_or(raw.hidden_size / heads.max(1)),
            vocab_size: raw.vocab_size,
            max_position_embeddings: raw.max_position_embeddings,
            rms_norm_eps: raw.rms_norm_eps,
            rope: raw.rope(path)?,
            tie_word_embeddings: raw.tie_word_embeddings,
        };
        config.check(path)?;
        Ok(config)
    }

    /// The config as Hugging Face writes it, rope fields included.
    pub fn to_hf_json(&self) -> Value {
        json!({
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "hidden_act": "silu",
            "hidden_size": self.hidden_size,
            "intermediate_size": self.intermediate_size,
            "num_hidden_layers": self.num_hidden_layers,
            "num_attention_heads": self.num_attention_heads,
            "num_key_value_heads": self.num_key_value_heads,
            "head_dim": self.head_dim,
            "vocab_size": self.vocab_size,
            "max_position_embeddings": self.max_position_embeddings,
            "rms_norm_eps": self.rms_norm_eps,
            "rope_theta": self.rope.theta,
            "rope_scaling": self.rope.scaling,
            "tie_word_embeddings": self.tie_word_embeddings,
        })
    }

    /// What no tensor shape would catch in time.
    fn check(&self, path: &Path) -> Result<()> {
        let groups = self.num_attention_heads.is_multiple_of(self.num_key_value_heads);
        let sizes = [
            ("hidden_size", self.hidden_size),
            ("intermediate_size", self.intermediate_size),
            ("num_hidden_layers", self.num_hidden_layers),
            ("num_attention_heads", self.num_attention_heads),
            ("num_key_value_heads", self.num_key_value_heads),
            ("head_dim", self.head_dim),
            ("vocab_size", self.vocab_size),
            ("max_position_embeddings", self.max_position_embeddings),
        ];
        let mend = "correct config.json";
        if let Some((key, size)) = sizes.iter().find(|(_, size)| !(1..=LARGEST).contains(size)) {
            return Err(Error::file(path, format!("{key} of 1 to {LARGEST}"), size.to_string(), mend));
        }
        if !groups {
            let found = format!("{} over {}", self.num_attention_heads, self.num_key_value_heads);
            let expected = "num_attention_heads to be a multiple of num_key_value_heads";
            return Err(Error::file(path, expected, found, mend));
        }
        if !self.head_dim.is_multiple_of(2) {
            return Err(Error::file(path, "an even head_dim", self.head_dim.to_string(), mend));
        }
        if !(self.rms_norm_eps > 0.0 && self.rope.theta > 0.0) {
            let found = format!("{} and {}", self.rms_norm_eps, self.rope.theta);
            return Err(Error::file(path, "rms_norm_eps and rope_theta above 0", found, mend));
        }
        Ok(())
    }
}

impl Raw {
    /// The rotary part: `rope_parameters` (newer files, theta inside), else `rope_theta` and `rope_scaling`.
    fn rope(&self, path: &Path) -> Result<RopeConfig> {
        let parameters = self.rope_parameters.as_ref().or(self.rope_scaling.as_ref()).filter(|value| !value.is_null());
        let inner_theta = parameters.and_then(|value| value.get("rope_theta")).and_then(Value::as_f64);
        let theta = inner_theta.or(self.rope_theta).unwrap_or(10000.0);
        let Some(parameters) = parameters else {
            return Ok(RopeConfig { theta, scaling: None });
        };
        let kind = parameters.get("rope_type").or_else(|| parameters.get("type")).and_then(Value::as_str);
        let scaling = match kind {
            Some("default") | None => None,
            Some(kind @ ("llama3" | "linear")) => Some(scaling(kind, parameters, path)?),
            Some(other) => {
                let expected = "rope type \"default\", \"linear\" or \"llama3\"";
                let mend = "use a model without that scaling";
                return Err(Error::file(path, expected, format!("{other:?}"), mend));
            }
        };
        Ok(RopeConfig { theta, scaling })
    }
}

/// The fields of a known scaling, whichever way its type is spelled.
fn scaling(kind: &str, parameters: &Value, path: &Path) -> Result<RopeScaling> {
    let mut tagged = parameters.clone();
    if let Some(fields) = tagged.as_object_mut() {
        fields.insert("rope_type".into(), kind.into());
    }
    serde_json::from_value(tagged).map_err(|error| {
        Error::file(path, format!("the fields of rope type {kind:?}"), error.to_string(), "correct rope_scaling")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rope;

    fn resolve(value: Value) -> Result<LlamaConfig> {
        LlamaConfig::from_hf_json(&value, Path::new("config.json"))
    }

    fn llama3() -> Value {
        json!({"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8192})
    }

    #[test]
    fn llama3_scaling_survives_save_and_load() {
        let first = resolve(json!({"rope_theta": 500000.0, "rope_scaling": llama3()})).expect("resolves");
        let second = resolve(first.to_hf_json()).expect("resolves again");
        assert_eq!(first, second);
        let turned = |config: &LlamaConfig| {
            let (cos, _) =
                Rope::new(&config.rope, config.head_dim).angles(&[vec![9000]], &burn::tensor::Device::flex());
            cos.into_data()
        };
        assert_eq!(turned(&first), turned(&second));
        let unscaled = RopeConfig { scaling: None, ..first.rope.clone() };
        assert_ne!(Rope::new(&first.rope, 128).inv_freq, Rope::new(&unscaled, 128).inv_freq);
    }

    #[test]
    fn both_spellings_and_the_newer_key_mean_the_same() {
        let mut parameters = llama3();
        parameters["rope_theta"] = 500000.0.into();
        let newer = resolve(json!({"rope_parameters": parameters})).expect("newer");
        assert_eq!(newer, resolve(json!({"rope_theta": 500000.0, "rope_scaling": llama3()})).expect("older"));
        let linear = resolve(json!({"rope_scaling": {"type": "linear", "factor": 2.0}})).expect("type");
        assert_eq!(linear.rope.scaling, Some(RopeScaling::Linear { factor: 2.0 }));
    }

    #[test]
    fn absent_fields_take_the_defaults_of_the_family() {
        let config = resolve(json!({"vocab_size": 32064})).expect("resolves");
        assert_eq!((config.hidden_size, config.head_dim, config.num_key_value_heads), (4096, 128, 32));
        assert_eq!((config.vocab_size, config.rope.theta), (32064, 10000.0));
    }

    #[test]
    fn sizes_out_of_reach_are_errors_that_name_the_key() {
        for key in ["num_hidden_layers", "hidden_size", "num_attention_heads", "max_position_embeddings"] {
            for size in [0u64, 1 << 63] {
                let message = resolve(json!({key: size})).expect_err(key).to_string();
                assert!(message.contains(&format!("{key} of 1 to")), "{message}");
            }
        }
    }

    #[test]
    fn unknown_rope_types_and_odd_groups_are_errors() {
        let yarn = resolve(json!({"rope_scaling": {"rope_type": "yarn", "factor": 2.0}}));
        assert!(yarn.expect_err("yarn").to_string().contains("yarn"));
        let groups = resolve(json!({"num_attention_heads": 6, "num_key_value_heads": 4}));
        assert!(groups.expect_err("groups").to_string().contains("6 over 4"));
        let incomplete = resolve(json!({"rope_scaling": {"rope_type": "llama3", "factor": 8.0}}));
        assert!(incomplete.expect_err("incomplete").to_string().contains("low_freq_factor"));
    }
}
