//! Recipes: TOML files of `configs/`, with dotted overrides. An unknown key is an error.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sightdraft_core::files::{read_text, stamp};
use sightdraft_core::{Error, Result};
use sightdraft_draft::{DraftConfig, Method};
use sightdraft_target::LlamaConfig;
use sightdraft_train::TrainConfig;
use toml::{Table, Value};

/// Keys of [`Models`]; all others are the trainer's.
const MODEL_KEYS: [&str; 8] = ["target", "method", "draft_vocab_size", "num_q", "start", "data", "held_out", "out"];

/// What is trained on what, and where it goes. Relative paths start at the working directory.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Models {
    /// Target: a directory, a hub name, or `builtin`.
    pub target: String,
    /// How a fresh draft is built; EAGLE-3 if not given.
    #[serde(default)]
    pub method: Method,
    /// Draft vocabulary: the most frequent ids of the training answers; the target's whole vocabulary if not given.
    pub draft_vocab_size: Option<usize>,
    /// Queries of a ViSpec draft's image adaptor: all but one become tokens that stand for an image; 2, as published, if not
    /// given.
    pub num_q: Option<usize>,
    /// A draft to go on from (its adaptor stays, and its vocabulary unless `draft_vocab_size` names another); a fresh one if not
    /// given.
    pub start: Option<String>,
    /// Conversations to train on, as JSON lines.
    pub data: PathBuf,
    /// Conversations to select on.
    pub held_out: PathBuf,
    /// Where checkpoints and metrics go.
    pub out: PathBuf,
}

impl Models {
    /// The fresh draft for a target of geometry `target`.
    ///
    /// # Errors
    /// A vocabulary, a number of queries or a target that the method cannot have.
    pub fn draft(&self, target: &LlamaConfig) -> Result<DraftConfig> {
        let vocabulary = self.draft_vocab_size.unwrap_or(target.vocab_size);
        let config = DraftConfig::for_target(self.method, target, vocabulary)?;
        match self.num_q {
            Some(num_q) => config.with_num_q(num_q),
            None => Ok(config),
        }
    }
}

/// Where runs of the folder `runs` keep features on disk: a draft and what goes on from it share them. `dir` is the target's; one
/// that changed has others.
///
/// # Errors
/// A target that cannot be looked at.
pub fn features(runs: &Path, dir: &Path) -> Result<PathBuf> {
    Ok(runs.join("features").join(stamp(dir)?))
}

/// A whole recipe.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Recipe {
    /// What on what.
    pub models: Models,
    /// How.
    pub train: TrainConfig,
}

impl Recipe {
    /// Reads `path` and applies `overrides` of the form `optim.lr=1e-4`.
    ///
    /// # Errors
    /// A missing file, bad TOML, an unknown key, a value of the wrong type or out of range.
    pub fn open(path: &Path, overrides: &[String]) -> Result<Self> {
        let text = read_text(path)?;
        let mend = "correct that key of the recipe or the --set that changes it";
        let bad = |e: toml::de::Error| Error::file(path, "a recipe", e.message().replace('\n', " "), mend);
        let mut table: Table = text.parse().map_err(bad)?;
        name_objective(&mut table);
        for text in overrides {
            set(&mut table, text)?;
            name_objective(&mut table);
        }
        let (models, train) = table.into_iter().partition::<Table, _>(|(key, _)| MODEL_KEYS.contains(&key.as_str()));
        let train = TrainConfig::deserialize(Value::Table(train)).map_err(bad)?;
        train.validate()?;
        Ok(Self { models: Models::deserialize(Value::Table(models)).map_err(bad)?, train })
    }
}

/// `objective = "vsd"` as the table that it is short for, so that overrides find its keys.
fn name_objective(table: &mut Table) {
    if let Some(objective) = table.get_mut("objective").filter(|objective| objective.is_str()) {
        let name = objective.clone();
        *objective = Value::Table(Table::from_iter([("name".to_string(), name)]));
    }
}

/// Puts `a.b=value` into the table. The value is TOML where it parses as such, else a plain string, so that paths and names
/// need no quotes.
fn set(table: &mut Table, text: &str) -> Result<()> {
    let bad = || Error::invalid("--set", "key=value, the key dotted", text, "write for example --set optim.lr=1e-4");
    let (key, value) = text.split_once('=').ok_or_else(bad)?;
    let value = format!("x = {value}")
        .parse::<Table>()
        .ok()
        .and_then(|mut parsed| parsed.remove("x"))
        .unwrap_or_else(|| Value::String(value.into()));
    let mut keys: Vec<&str> = key.trim().split('.').collect();
    let last = keys.pop().filter(|last| !last.is_empty()).ok_or_else(bad)?;
    let mut place = table;
    for key in keys {
        let next = place.entry(key).or_insert_with(|| Value::Table(Table::new()));
        place = next.as_table_mut().ok_or_else(bad)?;
    }
    place.insert(last.into(), value);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const RECIPE: &str =
        "target = \"t\"\ndata = \"d\"\nheld_out = \"h\"\nout = \"o\"\nepochs = 3\n[optim]\nlr = 1e-3\n";

    fn open(text: &str, overrides: &[&str]) -> Result<Recipe> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("recipe.toml");
        std::fs::write(&path, text).unwrap();
        Recipe::open(&path, &overrides.iter().map(|o| o.to_string()).collect::<Vec<_>>())
    }

    #[test]
    fn overrides_win_and_the_rest_stays() {
        let recipe = open(RECIPE, &["optim.lr=1e-4", "target=owner/name", "objective=vsd"]).unwrap();
        assert_eq!(recipe.train.optim.lr, 1e-4);
        assert_eq!(recipe.train.epochs, 3);
        assert_eq!(recipe.models.target, "owner/name");
        assert!(matches!(recipe.train.objective, sightdraft_train::ObjectiveConfig::Vsd(_)));
    }

    #[test]
    fn an_objective_is_one_word_or_a_table() {
        let name = |text: &str, overrides: &[&str]| {
            let text = RECIPE.replace("[optim]", &format!("{text}\n[optim]"));
            open(&text, overrides).map(|recipe| recipe.train.objective.objective().name())
        };
        assert_eq!(name("objective = \"vsd\"", &[]).unwrap(), "vsd (survival)");
        assert_eq!(name("objective = \"vsd\"", &["objective.mode=em"]).unwrap(), "vsd (em)");
        assert_eq!(name("[objective]\nname = \"vsd\"\nmode = \"elbo\"", &[]).unwrap(), "vsd (elbo)");
        let sum = "[objective]\nname = \"sum\"\n[[objective.terms]]\nweight = 1\nname = \"vsd\"\nsamples = 8\n\
                   [[objective.terms]]\nweight = 0.25\nname = \"lk\"";
        assert_eq!(name(sum, &[]).unwrap(), "1 vsd (survival) + 0.25 lk");
        let message = name("objective = \"vsd\"", &["objective.anchor=-1"]).unwrap_err().to_string();
        assert!(message.contains("objective.anchor"), "{message}");
    }

    #[test]
    fn queries_are_for_an_adaptor() {
        let target = serde_json::json!({"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 4,
            "num_attention_heads": 2, "vocab_size": 16, "max_position_embeddings": 32, "rms_norm_eps": 1e-5});
        let target = LlamaConfig::from_hf_json(&target, Path::new("config.json")).unwrap();
        let queries = |overrides: &[&str]| open(RECIPE, overrides).unwrap().models.draft(&target).map(|d| d.num_q);
        assert_eq!(queries(&["method=vispec"]).unwrap(), 2);
        assert_eq!(queries(&["method=vispec", "num_q=5"]).unwrap(), 5);
        for bad in [["method=vispec", "num_q=0"], ["method=vispec", "num_q=99999"], ["method=hass", "num_q=2"]] {
            let message = queries(&bad).unwrap_err().to_string();
            assert!(message.contains("num_q"), "{message}");
        }
    }

    #[test]
    fn unknown_keys_are_named() {
        for (text, overrides, word) in [
            (format!("epoch = 1\n{RECIPE}"), vec![], "epoch"),
            (RECIPE.to_string(), vec!["optim.rate=1"], "rate"),
            (RECIPE.to_string(), vec!["objective.name=magic"], "magic"),
            (RECIPE.to_string(), vec!["epochs=many"], "many"),
            (RECIPE.replace("data", "dota"), vec![], "dota"),
        ] {
            let message = open(&text, &overrides).unwrap_err().to_string();
            assert!(message.contains(word) && !message.contains('\n'), "{message}");
        }
    }

    #[test]
    fn half_an_override_is_refused() {
        for bad in ["optim.lr", "=3", "epochs.x=1"] {
            assert!(open(RECIPE, &[bad]).is_err(), "{bad}");
        }
    }
}
