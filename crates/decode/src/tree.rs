//! The dynamic draft tree (EAGLE-2, section 4.2).

use serde::{Deserialize, Serialize};

/// How big a tree may get. Defaults to EAGLE-3's 60/5/10.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TreeShape {
    /// Nodes, the root included.
    pub total: usize,
    /// Expansions after the first level.
    pub depth: usize,
    /// Children per expanded node, and width of the beam.
    pub top_k: usize,
}

/// A tree of guesses; node 0 is the root, the last accepted token. Nodes are in creation order, parents before children.
#[derive(Debug, Clone, PartialEq)]
pub struct DraftTree {
    /// Target ids.
    pub tokens: Vec<u32>,
    /// Parent of each node; the root is its own.
    pub parents: Vec<usize>,
    /// Depth of each node; the root's is 0.
    pub depths: Vec<usize>,
    /// Draft log-probability of each node given its parent (root: 0).
    pub log_probs: Vec<f32>,
}

impl DraftTree {
    /// Only the root: plain decoding.
    pub fn root(token: u32) -> Self {
        Self { tokens: vec![token], parents: vec![0], depths: vec![0], log_probs: vec![0.0] }
    }
}
