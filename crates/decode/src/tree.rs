//! A tree of guesses that one target pass verifies.

use serde::{Deserialize, Serialize};

use crate::{Tuner, Verdict};

/// How big a tree may get. Defaults to EAGLE-3's 60/5/10.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TreeShape {
    /// Nodes, the root included.
    pub total: usize,
    /// Expansions after the first level.
    pub depth: usize,
    /// Children per expanded node, and width of the beam.
    pub top_k: usize,
}

impl Default for TreeShape {
    fn default() -> Self {
        Self { total: 60, depth: 5, top_k: 10 }
    }
}

impl TreeShape {
    /// A chain of `drafts` guesses.
    pub const fn chain(drafts: usize) -> Self {
        Self { total: drafts + 1, depth: drafts.saturating_sub(1), top_k: 1 }
    }

    /// Levels below the root.
    pub fn levels(&self) -> usize {
        if self.total > 1 && self.top_k > 0 { self.depth + 1 } else { 0 }
    }
}

/// Which trees a generation grows.
#[derive(Debug, Clone)]
pub enum TreeChoice {
    /// Always the same size.
    Fixed(TreeShape),
    /// Whatever emits most tokens per second. It never changes a greedy answer, nor the distribution of a sampled one.
    Adaptive(Tuner),
}

impl From<TreeShape> for TreeChoice {
    fn from(shape: TreeShape) -> Self {
        Self::Fixed(shape)
    }
}

impl TreeChoice {
    /// The tree of the next pass; none: do not guess.
    pub(crate) fn next(&self) -> Option<TreeShape> {
        match self {
            Self::Fixed(shape) => Some(*shape),
            Self::Adaptive(tuner) => tuner.next(),
        }
    }

    /// Takes in how a pass went; `seconds` are those of drafting and of verification.
    pub(crate) fn record(&self, tree: &DraftTree, verdict: &Verdict, seconds: [f64; 2]) {
        if let Self::Adaptive(tuner) = self {
            tuner.record(tree, verdict, seconds);
        }
    }
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
    /// The draft's greedy path (its argmax at every level) as far as it is in the tree, root first.
    pub greedy_path: Vec<usize>,
    /// What the children of each node were sampled from, without replacement: (target id, probability), no zeros. Empty
    /// where a node has no children, and everywhere in a tree that was not sampled.
    pub proposals: Vec<Vec<(u32, f32)>>,
}

impl DraftTree {
    /// Only the root: plain decoding.
    pub fn root(token: u32) -> Self {
        Self {
            tokens: vec![token],
            parents: vec![0],
            depths: vec![0],
            log_probs: vec![0.0],
            greedy_path: vec![0],
            proposals: vec![Vec::new()],
        }
    }

    /// Adds a child of `parent` and returns its index.
    pub fn push(&mut self, parent: usize, token: u32, log_prob: f32) -> usize {
        self.tokens.push(token);
        self.parents.push(parent);
        self.depths.push(self.depths[parent] + 1);
        self.log_probs.push(log_prob);
        self.proposals.push(Vec::new());
        self.tokens.len() - 1
    }

    /// Nodes, the root included.
    pub fn len(&self) -> usize {
        self.tokens.len()
    }

    /// Never: a tree has a root. Here for `len`'s sake.
    pub fn is_empty(&self) -> bool {
        self.tokens.is_empty()
    }

    /// Depth of the deepest node.
    pub fn max_depth(&self) -> usize {
        self.depths.iter().copied().max().unwrap_or(0)
    }

    /// Children of `node` in creation order.
    pub fn children(&self, node: usize) -> impl Iterator<Item = usize> + '_ {
        (node + 1..self.len()).filter(move |&child| self.parents[child] == node)
    }

    /// `sees[i][j]`: node j is i or an ancestor of i. The mask of the verification pass.
    pub fn sees(&self) -> Vec<Vec<bool>> {
        let n = self.len();
        let mut sees: Vec<Vec<bool>> = Vec::with_capacity(n);
        for node in 0..n {
            let mut row = if node == 0 { vec![false; n] } else { sees[self.parents[node]].clone() };
            row[node] = true;
            sees.push(row);
        }
        sees
    }

    /// From the root to each leaf, in order of the leaves.
    pub fn leaf_paths(&self) -> Vec<Vec<usize>> {
        let mut inner = vec![false; self.len()];
        self.parents.iter().skip(1).for_each(|&parent| inner[parent] = true);
        (0..self.len()).filter(|&node| !inner[node]).map(|leaf| self.path_to(leaf)).collect()
    }

    /// From the root to `node`.
    pub fn path_to(&self, mut node: usize) -> Vec<usize> {
        let mut path = vec![node];
        while node != 0 {
            node = self.parents[node];
            path.push(node);
        }
        path.reverse();
        path
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_and_mask_follow_the_parents() {
        let mut tree = DraftTree::root(7);
        let a = tree.push(0, 1, -0.1);
        let b = tree.push(0, 2, -0.2);
        let c = tree.push(a, 3, -0.3);
        assert_eq!(tree.leaf_paths(), [vec![0, b], vec![0, a, c]]);
        assert_eq!(tree.sees()[c], [true, true, false, true]);
        assert_eq!(tree.children(0).collect::<Vec<_>>(), [a, b]);
        assert_eq!(tree.max_depth(), 2);
    }
}
