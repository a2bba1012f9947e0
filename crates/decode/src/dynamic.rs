//! The dynamic draft tree (EAGLE-2, section 4.2): a beam by cumulative log-probability, then the best nodes of all that
//! were scored.
//!
//! Where scores tie, the node created first wins. Log-probabilities are never above 0, so a parent never ranks behind its
//! child and the kept nodes always form a tree.

use sightdraft_draft::VocabMap;
use sightdraft_kernels::top_indices;

use crate::builder::{Feed, TreeBuilder, next_sees};
use crate::guesses::Row;
use crate::{DraftTree, Guesses, TreeShape};

/// A node that was scored.
#[derive(Debug, Clone)]
struct Candidate {
    token: u32,
    parent: Option<usize>,
    log_prob: f32,
    score: f32,
    greedy: bool,
}

/// Builds the tree from rows of log-probabilities.
#[derive(Debug)]
pub struct DynamicTree {
    root: u32,
    shape: TreeShape,
    levels_left: usize,
    pool: Vec<Candidate>,
    /// Pool indices of the frontier.
    beam: Vec<usize>,
    frontier: Vec<Feed>,
    sees: Vec<Vec<bool>>,
}

impl DynamicTree {
    /// A tree below `root`.
    pub fn new(root: u32, shape: TreeShape) -> Self {
        Self {
            root,
            shape,
            levels_left: shape.levels(),
            pool: Vec::new(),
            beam: Vec::new(),
            frontier: Vec::new(),
            sees: Vec::new(),
        }
    }

    /// The best `top_k` children of one node (`parent` None: the root), as (row of the previous feed, pool index).
    fn add_children(
        &mut self,
        row: usize,
        parent: Option<usize>,
        guesses: Row<'_>,
        vocab: &VocabMap,
    ) -> Vec<(usize, usize)> {
        let (base, on_greedy_path) = parent.map_or((0.0, true), |p| (self.pool[p].score, self.pool[p].greedy));
        let best = top_indices(guesses.log_probs, self.shape.top_k);
        let mut added = Vec::with_capacity(best.len());
        for (rank, place) in best.into_iter().enumerate() {
            let log_prob = guesses.log_probs[place].min(0.0);
            let token = vocab.target(guesses.id(place));
            let greedy = on_greedy_path && rank == 0;
            self.pool.push(Candidate { token, parent, log_prob, score: base + log_prob, greedy });
            added.push((row, self.pool.len() - 1));
        }
        added
    }
}

impl TreeBuilder for DynamicTree {
    fn frontier(&self) -> &[Feed] {
        &self.frontier
    }

    fn sees(&self) -> &[Vec<bool>] {
        &self.sees
    }

    fn wanted(&self) -> Option<usize> {
        Some(self.shape.top_k)
    }

    fn expand(&mut self, guesses: &Guesses, vocab: &VocabMap) {
        if self.levels_left == 0 {
            return;
        }
        let first = self.pool.is_empty();
        let parents = if first { vec![None] } else { std::mem::take(&mut self.beam).into_iter().map(Some).collect() };
        let mut level = Vec::new();
        for (row, (parent, guesses)) in parents.into_iter().zip(guesses.rows()).enumerate() {
            level.extend(self.add_children(row, parent, guesses, vocab));
        }
        self.levels_left -= 1;
        self.frontier.clear();
        if self.levels_left == 0 {
            return;
        }
        let scores: Vec<f32> = level.iter().map(|&(_, node)| self.pool[node].score).collect();
        for index in top_indices(&scores, self.shape.top_k) {
            let (parent_row, node) = level[index];
            self.beam.push(node);
            self.frontier.push(Feed { token: self.pool[node].token, parent_row });
        }
        self.sees = next_sees(&self.sees, &self.frontier);
    }

    fn finish(self: Box<Self>) -> DraftTree {
        let scores: Vec<f32> = self.pool.iter().map(|candidate| candidate.score).collect();
        let mut kept = top_indices(&scores, self.shape.total.saturating_sub(1));
        kept.sort_unstable();
        let mut node_of = vec![0; self.pool.len()];
        let mut tree = DraftTree::root(self.root);
        for index in kept {
            let candidate = &self.pool[index];
            let parent = candidate.parent.map_or(0, |p| node_of[p]);
            node_of[index] = tree.push(parent, candidate.token, candidate.log_prob);
            if candidate.greedy {
                tree.greedy_path.push(node_of[index]);
            }
        }
        tree
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn any_scores_make_a_tree_of_the_size_asked_for(
            values in prop::collection::vec(-9f32..0.0, 5 * 40), total in 1usize..40, depth in 0usize..4, top_k in 1usize..6
        ) {
            let vocab = VocabMap::identity(5);
            let mut tree = Box::new(DynamicTree::new(9, TreeShape { total, depth, top_k }));
            let mut scored = top_k.min(5);
            tree.expand(&Guesses::all(values[..5].to_vec(), 5), &vocab);
            while !tree.frontier().is_empty() {
                let rows = tree.frontier().len();
                scored += rows * top_k.min(5);
                tree.expand(&Guesses::all(values[5..][..rows * 5].to_vec(), 5), &vocab);
            }
            let tree = tree.finish();
            prop_assert_eq!(tree.len(), if total == 1 { 1 } else { total.min(scored + 1) });
            for node in 1..tree.len() {
                prop_assert!(tree.parents[node] < node);
                prop_assert_eq!(tree.depths[node], tree.depths[tree.parents[node]] + 1);
            }
            // The likeliest child of the root has the best score of all.
            prop_assert!(total == 1 || tree.greedy_path.len() > 1);
        }
    }

    #[test]
    fn ties_go_to_the_node_created_first() {
        let vocab = VocabMap::identity(4);
        let mut tree = Box::new(DynamicTree::new(9, TreeShape { total: 4, depth: 1, top_k: 2 }));
        tree.expand(&Guesses::all(vec![-2.0, -1.0, -1.0, -2.0], 4), &vocab);
        assert_eq!(tree.frontier().iter().map(|feed| feed.token).collect::<Vec<_>>(), [1, 2]);
        // A certain child scores as its parent does; the parent must stay.
        tree.expand(&Guesses::all(vec![0.0, -9.0, -9.0, -9.0, 0.0, -9.0, -9.0, -9.0], 4), &vocab);
        let tree = tree.finish();
        assert_eq!(tree.tokens, [9, 1, 2, 0]);
        assert_eq!(tree.parents, [0, 0, 0, 1]);
        assert_eq!(tree.greedy_path, [0, 1, 3]);
    }

    #[test]
    fn no_levels_means_only_the_root() {
        let tree = Box::new(DynamicTree::new(9, TreeShape { total: 1, depth: 3, top_k: 2 }));
        assert_eq!(tree.finish(), DraftTree::root(9));
    }
}
