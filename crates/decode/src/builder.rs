//! Growing a draft tree level by level, apart from the network that scores it.

use sightdraft_draft::VocabMap;

use crate::{DraftTree, Guesses};

/// A node that the draft must be run on next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Feed {
    /// Its token, a target id.
    pub token: u32,
    /// Which row of the previous feed it hangs from (its parent's hidden state).
    pub parent_row: usize,
}

/// A way to choose the nodes. First `expand` takes the root's row; then, as long as `frontier` is not empty, the nodes of
/// the frontier go through the draft and `expand` takes their rows.
pub trait TreeBuilder {
    /// The nodes to run the draft on; empty when the tree is complete.
    fn frontier(&self) -> &[Feed];

    /// `sees[i][j]`: whether row i of the frontier sees row j of all rows fed so far, its own level included (the root is
    /// not among them).
    fn sees(&self) -> &[Vec<bool>];

    /// How many of the best guesses of each row are wanted; None: all guesses.
    fn wanted(&self) -> Option<usize>;

    /// Takes the draft's guesses, one row per node of the frontier (the first time: of the root).
    fn expand(&mut self, guesses: &Guesses, vocab: &VocabMap);

    /// The tree.
    fn finish(self: Box<Self>) -> DraftTree;
}

/// Rows of the frontier see what their parents saw, and themselves.
pub(crate) fn next_sees(previous: &[Vec<bool>], frontier: &[Feed]) -> Vec<Vec<bool>> {
    let level = frontier.len();
    let inherit = |feed: &Feed| previous.get(feed.parent_row).cloned().unwrap_or_default();
    let with_self = |(row, mut seen): (usize, Vec<bool>)| {
        seen.extend((0..level).map(|other| other == row));
        seen
    };
    frontier.iter().map(inherit).enumerate().map(with_self).collect()
}
