//! The published draft methods, and how a directory's method is recognised.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sightdraft_core::{Error, Result};

/// The key of config.json that names the method where tensors alone do not tell it.
pub(crate) const METHOD_KEY: &str = "sightdraft_method";

/// How a draft is built and trained.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Method {
    /// EAGLE-1 (Li et al. 2024a), and EAGLE-2 (2024b): the same draft, decoded with a dynamic tree.
    Eagle1,
    /// HASS (Zhang et al. 2024): EAGLE-1's tensors, trained on its own features.
    Hass,
    /// GRIFFIN (Hu et al. 2025): a token-guided fusion, and a feature apart from what the head reads.
    Griffin,
    /// MSD (Lin et al. 2025): EAGLE-1's tensors, image rows apart from text rows.
    Msd,
    /// ViSpec (Kang et al. 2025): EAGLE-1's layer behind an image adaptor.
    Vispec,
    /// EAGLE-3 (Li et al. 2025): three taps and a head of its own.
    #[default]
    Eagle3,
}

impl Method {
    /// Every method.
    pub const ALL: [Self; 6] = [Self::Eagle1, Self::Hass, Self::Griffin, Self::Msd, Self::Vispec, Self::Eagle3];

    /// The name in recipes and config files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Eagle1 => "eagle1",
            Self::Hass => "hass",
            Self::Griffin => "griffin",
            Self::Msd => "msd",
            Self::Vispec => "vispec",
            Self::Eagle3 => "eagle3",
        }
    }

    /// Whether the draft reads the target's last feature and speaks through the target's head, in its whole vocabulary.
    pub fn shares_head(self) -> bool {
        self != Self::Eagle3
    }

    /// The method of a draft with this `config.json` (read from `path`) and tensors of these `names`; None where it is no draft.
    /// The config decides where it names one. HASS and EAGLE-1 have the same tensors: without a name they are taken for
    /// EAGLE-1, which decodes alike.
    ///
    /// # Errors
    /// A `sightdraft_method` that is none.
    pub fn recognise(config: &Value, names: &[&str], path: &Path) -> Result<Option<Self>> {
        if let Some(stated) = config.get(METHOD_KEY) {
            let expected = || format!("{METHOD_KEY} as one of {}", Self::names());
            let unknown = |_| Error::file(path, expected(), stated.to_string(), "correct the key");
            return stated.as_str().unwrap_or_default().parse().map(Some).map_err(unknown);
        }
        let architectures = config["architectures"].to_string();
        let has = |name: &str| names.contains(&name);
        let method = if architectures.contains("Eagle3") || !config["draft_vocab_size"].is_null() {
            Self::Eagle3
        } else if has("imadpt.q") {
            Self::Vispec
        } else if has("fc.fc.weight") {
            Self::Griffin
        } else if has("midlayer.self_attn.q_proj.weight") {
            Self::Eagle3
        } else if has("fc.weight") && has("layers.0.self_attn.q_proj.weight") {
            if architectures.contains("Llava") { Self::Msd } else { Self::Eagle1 }
        } else {
            return Ok(None);
        };
        Ok(Some(method))
    }

    fn names() -> String {
        Self::ALL.map(Self::name).join(", ")
    }
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Eagle1 => "EAGLE-1",
            Self::Hass => "HASS",
            Self::Griffin => "GRIFFIN",
            Self::Msd => "MSD",
            Self::Vispec => "ViSpec",
            Self::Eagle3 => "EAGLE-3",
        })
    }
}

impl FromStr for Method {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let named = Self::ALL.into_iter().find(|method| method.name() == text);
        named.ok_or_else(|| {
            let expected = format!("one of {}", Self::names());
            Error::invalid("method", expected, format!("{text:?}"), "correct the name")
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn names_lead_back_and_match_the_recipes() {
        for method in Method::ALL {
            assert_eq!(method.name().parse::<Method>().unwrap(), method);
            assert_eq!(json!(method), json!(method.name()));
        }
    }

    #[test]
    fn the_config_decides_then_the_tensors() {
        let layer = "layers.0.self_attn.q_proj.weight";
        let of = |config: Value, names: &[&str]| Method::recognise(&config, names, Path::new("config.json")).unwrap();
        assert_eq!(of(json!({}), &["fc.weight", layer]), Some(Method::Eagle1));
        assert_eq!(of(json!({ METHOD_KEY: "hass" }), &["fc.weight", layer]), Some(Method::Hass));
        assert_eq!(of(json!({"architectures": ["LlavaLlamaForCausalLM"]}), &["fc.weight", layer]), Some(Method::Msd));
        assert_eq!(of(json!({}), &["fc.fc.weight", layer]), Some(Method::Griffin));
        assert_eq!(of(json!({}), &["fc.weight", "imadpt.q", layer]), Some(Method::Vispec));
        assert_eq!(of(json!({"draft_vocab_size": 32000}), &[]), Some(Method::Eagle3));
        assert_eq!(
            of(json!({"architectures": ["LlamaForCausalLM"]}), &["model.layers.0.self_attn.q_proj.weight"]),
            None
        );
        let unknown = Method::recognise(&json!({ METHOD_KEY: "medusa" }), &[], Path::new("config.json"));
        assert!(unknown.unwrap_err().to_string().contains("vispec"));
    }
}
