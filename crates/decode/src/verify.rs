//! Acceptance rules. Each keeps the target's distribution exactly.

use burn::prelude::*;
use serde::{Deserialize, Serialize};

use crate::DraftTree;

/// What a verification pass decided.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// Accepted nodes, root first.
    pub path: Vec<usize>,
    /// The target's own next token after the path.
    pub bonus: u32,
}

/// Which rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Acceptance {
    /// Children are point masses (EAGLE): accept x if u <= p(x), else remove x and renormalise.
    PointMass,
    /// Children are samples of the draft (SpecInfer's recursive rejection): min(1, p/q).
    Ratio,
}

/// A rule applied to the target's logits over the tree.
pub trait Verifier {
    /// `logits` `[nodes, V]`, row i = the target's logits after node i.
    fn verify(&mut self, tree: &DraftTree, logits: Tensor<2>) -> Verdict;
}
