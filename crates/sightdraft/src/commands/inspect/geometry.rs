//! Sizes of a model, read from its config.json.

use std::fmt;
use std::path::Path;

use serde::Serialize;
use serde_json::Value;
use sightdraft_core::files::read_json;
use sightdraft_core::{Checkpoint, Error, Result};
use sightdraft_draft::config::QUERIES;
use sightdraft_draft::{Method, size};
use sightdraft_target::LlamaConfig;
use sightdraft_vision::{Family, VisionConfig};

use super::WEIGHTS;

/// What a checkpoint is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A text-only target.
    Llama,
    /// A target with images.
    Llava,
    /// A draft.
    #[serde(untagged)]
    Draft(Method),
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Llama => f.write_str("a target of the LLaMA family (text)"),
            Self::Llava => f.write_str("a LLaVA target (images and text)"),
            Self::Draft(method @ (Method::Eagle1 | Method::Eagle3 | Method::Msd)) => write!(f, "an {method} draft"),
            Self::Draft(method) => write!(f, "a {method} draft"),
        }
    }
}

/// A config.json as sizes.
pub struct Geometry {
    pub kind: Kind,
    text: LlamaConfig,
    vision: Option<VisionConfig>,
    draft_vocabulary: Option<u64>,
}

impl Geometry {
    /// Reads `config.json` of `dir`.
    pub fn open(dir: &Path) -> Result<Self> {
        let path = dir.join("config.json");
        let json: Value = read_json(&path)?;
        let kind = match (method(&json, dir, &path)?, json["model_type"].as_str()) {
            (Some(method), _) => Kind::Draft(method),
            (None, Some("llava")) => Kind::Llava,
            (None, Some("llama") | None) => Kind::Llama,
            (None, Some(other)) => {
                let found = format!("model_type {other:?}");
                return Err(Error::file(path, "a LLaMA, a LLaVA or a draft", found, "choose one of these"));
            }
        };
        let inner = ["text_config", "transformer_layer_config"].iter().find_map(|key| json.get(key));
        let text = LlamaConfig::from_hf_json(inner.unwrap_or(&json), &path)?;
        let vision = match kind {
            Kind::Llava => Some(VisionConfig::from_llava(&json, text.hidden_size, &path)?),
            _ => None,
        };
        Ok(Self { kind, text, vision, draft_vocabulary: json["draft_vocab_size"].as_u64() })
    }

    /// Numbers in all weights.
    pub fn parameters(&self) -> u64 {
        let vocabulary = self.text.vocab_size * self.text.hidden_size;
        match self.kind {
            Kind::Draft(method) => {
                let vocabulary = self.draft_vocabulary.map_or(self.text.vocab_size, |size| size as usize);
                size::parameters(method, &self.text, vocabulary, TAPS, QUERIES)
            }
            _ => {
                let heads = if self.text.tie_word_embeddings { 1 } else { 2 };
                let layers = self.text.num_hidden_layers * layer_parameters(&self.text);
                let text = heads * vocabulary + layers + self.text.hidden_size;
                (text + self.vision.as_ref().map_or(0, vision_parameters)) as u64
            }
        }
    }

    /// Keys and values of one token in f32.
    pub fn cache_bytes_per_token(&self) -> u64 {
        let layers = if self.is_draft() { 1 } else { self.text.num_hidden_layers };
        (4 * 2 * layers * self.text.num_key_value_heads * self.text.head_dim) as u64
    }

    /// Whether it is a draft, not a target.
    pub fn is_draft(&self) -> bool {
        matches!(self.kind, Kind::Draft(_))
    }

    /// Longest context.
    pub fn context(&self) -> usize {
        self.text.max_position_embeddings
    }

    /// Why this draft cannot serve `target`; empty if it can.
    pub fn obstacles(&self, target: &Self) -> Vec<String> {
        let mut obstacles = Vec::new();
        if !self.is_draft() {
            obstacles.push(format!("the checkpoint is {}, not a draft", self.kind));
        }
        if target.is_draft() {
            obstacles.push("what was named as the target is a draft".into());
        }
        let mut compare = |what: &str, own: usize, theirs: usize| {
            if own != theirs {
                obstacles.push(format!("{what} is {own} in the draft and {theirs} in the target"));
            }
        };
        compare("hidden_size", self.text.hidden_size, target.text.hidden_size);
        compare("vocab_size", self.text.vocab_size, target.text.vocab_size);
        obstacles
    }
}

/// Hidden states that EAGLE-3 reads.
const TAPS: usize = 3;

/// The method of a draft in `dir`. Its weights are looked at only where config.json, of a single layer, does not tell.
fn method(json: &Value, dir: &Path, path: &Path) -> Result<Option<Method>> {
    let stated = Method::recognise(json, &[], path)?;
    let open = json["num_hidden_layers"] == 1 && WEIGHTS.iter().any(|name| dir.join(name).exists());
    match stated {
        None if open => Method::recognise(json, &Checkpoint::open(dir)?.names(), path),
        stated => Ok(stated),
    }
}

/// A decoder layer, its norms included.
fn layer_parameters(config: &LlamaConfig) -> usize {
    let width = config.hidden_size;
    let queries = config.num_attention_heads * config.head_dim;
    let keys = config.num_key_value_heads * config.head_dim;
    width * (queries + 2 * keys) + queries * width + 3 * width * config.intermediate_size + 2 * width
}

/// Tower and projector.
fn vision_parameters(config: &VisionConfig) -> usize {
    let (width, mlp, text) = (config.hidden_size, config.intermediate_size, config.text_hidden_size);
    let patches = (config.image_size / config.patch_size).pow(2);
    let embeddings = width * (3 * config.patch_size.pow(2) + 1 + patches + 1);
    let layer = 4 * (width * width + width) + 2 * width * mlp + mlp + width + 4 * width;
    // CLIP has a norm before the layers; DINOv2 a bias of the patches and two factors a channel in each layer.
    let own = match config.family {
        Family::Clip => 2 * width,
        Family::Dinov2 => width + 2 * width * config.num_hidden_layers,
    };
    let norm = 2 * width;
    let projector = width * text + text + text * text + text;
    embeddings + own + norm + config.num_hidden_layers * layer + projector
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(config: &str) -> Result<Geometry> {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("config.json"), config).unwrap();
        Geometry::open(dir.path())
    }

    const LLAMA_8B: &str = r#"{"model_type":"llama","hidden_size":4096,"intermediate_size":14336,"num_hidden_layers":32,
        "num_attention_heads":32,"num_key_value_heads":8,"vocab_size":128256,"max_position_embeddings":131072,
        "rms_norm_eps":1e-5,"rope_theta":500000.0,"tie_word_embeddings":false}"#;

    #[test]
    fn the_published_size_of_an_8b_model_comes_out() {
        let geometry = open(LLAMA_8B).unwrap();
        assert_eq!(geometry.parameters(), 8_030_261_248);
        assert_eq!(geometry.cache_bytes_per_token(), 4 * 2 * 32 * 1024);
    }

    #[test]
    fn a_draft_of_another_vocabulary_does_not_fit() {
        let target = open(LLAMA_8B).unwrap();
        let draft = LLAMA_8B.replacen('{', r#"{"draft_vocab_size":32000,"#, 1);
        assert!(open(&draft).unwrap().obstacles(&target).is_empty());
        let other = open(&draft.replace("128256", "32000")).unwrap().obstacles(&target);
        assert_eq!(other.len(), 1);
        assert!(other[0].contains("vocab_size"));
        assert!(!target.obstacles(&target).is_empty());
    }

    #[test]
    fn another_architecture_is_refused_by_name() {
        let message = open(&LLAMA_8B.replace("llama", "mamba")).map(|_| ()).unwrap_err().to_string();
        assert!(message.contains("mamba"));
    }
}
