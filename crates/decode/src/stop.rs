//! Why generation ended.

use serde::{Deserialize, Serialize};

/// The reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Stop {
    /// An end-of-answer token.
    Eos,
    /// max_new_tokens (or the context) was reached.
    Length,
}
