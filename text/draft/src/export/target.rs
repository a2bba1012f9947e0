//! What an export needs of the target: its geometry, its name, its embeddings.

use std::path::{Path, PathBuf};

use burn::tensor::{DType, Device, TensorData};
use serde_json::{Map, Value};
use sightdraft_core::files::read_json;
use sightdraft_core::{Checkpoint, Error, Result};
use sightdraft_target::LlamaConfig;

/// Where the embeddings lie: a LLaMA, and a LLaVA before and since transformers 4.52.
const TABLES: [&str; 3] = [
    "model.embed_tokens.weight",
    "language_model.model.embed_tokens.weight",
    "model.language_model.embed_tokens.weight",
];

/// A target's directory. Its weights stay on disk.
#[derive(Debug)]
pub struct TargetFiles {
    /// Geometry of the language model.
    pub config: LlamaConfig,
    /// Its class in transformers.
    pub architecture: String,
    /// What it goes by: a hub name or a path.
    pub name: String,
    /// The ids that begin and end a text, under their keys in config.json.
    ends: Map<String, Value>,
    dir: PathBuf,
}

impl TargetFiles {
    /// Reads `config.json` of `dir`; servers will be told that the target is `name`.
    ///
    /// # Errors
    /// A missing or malformed file.
    pub fn open(dir: &Path, name: &str) -> Result<Self> {
        let json: Value = read_json(&dir.join("config.json"))?;
        let architecture = json["architectures"][0].as_str().unwrap_or("LlamaForCausalLM").to_owned();
        let text = json.get("text_config").unwrap_or(&json);
        let end = |key: &&str| text.get(*key).or(json.get(*key)).map(|id| ((*key).to_owned(), id.clone()));
        let ends = ["bos_token_id", "eos_token_id"].iter().filter_map(end).collect();
        Ok(Self { config: LlamaConfig::open(dir)?, architecture, name: name.into(), ends, dir: dir.into() })
    }

    /// Adds the ids that begin and end a text to a config.
    pub(super) fn add_ends(&self, config: &mut Value) {
        if let Some(fields) = config.as_object_mut() {
            fields.extend(self.ends.clone());
        }
    }

    /// The embeddings, `[V, H]` in f32.
    pub(super) fn table(&self) -> Result<TensorData> {
        let checkpoint = Checkpoint::open(&self.dir)?;
        let Some(name) = TABLES.into_iter().find(|name| checkpoint.has(name)) else {
            let mend = "check that this is a LLaMA or a LLaVA with all its shards";
            return Err(Error::file(&self.dir, format!("a tensor {}", TABLES[0]), "none", mend));
        };
        let shape = [self.config.vocab_size, self.config.hidden_size];
        Ok(checkpoint.tensor(name, shape, DType::F32, &Device::flex())?.into_data())
    }
}
