//! `vsd`: Variational Speculative Decoding (Zou, Li, Huang, Zhou 2026) as one switch with three modes.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

use super::{Elbo, Em, Objective, Survival};

/// What is done with draft paths and the target's verdict on them. A recipe that names no mode gets `survival`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(remote = "Self", tag = "mode", rename_all = "snake_case")]
pub enum Vsd {
    /// Expectation-maximisation on accepted and corrected paths.
    Em(Em),
    /// The bound by score function.
    Elbo(Elbo),
    /// The closed form of the expected accepted length at T=0.
    Survival(Survival),
}

impl Default for Vsd {
    fn default() -> Self {
        Self::Survival(Survival::default())
    }
}

impl Vsd {
    /// The mode as an objective.
    pub fn mode(&self) -> &dyn Objective {
        match self {
            Self::Em(mode) => mode,
            Self::Elbo(mode) => mode,
            Self::Survival(mode) => mode,
        }
    }
}

impl Serialize for Vsd {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Self::serialize(self, serializer)
    }
}

impl<'de> Deserialize<'de> for Vsd {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut keys = Map::<String, Value>::deserialize(deserializer)?;
        keys.entry("mode").or_insert_with(|| "survival".into());
        Self::deserialize(Value::Object(keys)).map_err(serde::de::Error::custom)
    }
}
