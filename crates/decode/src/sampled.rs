//! A draft tree whose children are samples of the draft, for ratio acceptance.
//!
//! How many children a node gets is settled before any of them is drawn, from its ancestors' and their siblings' draft
//! probabilities alone; nothing is pruned afterwards. So the children of every node are distributed as the draft's samples
//! whatever the shape, which is what keeps recursive rejection exact (the allotment is derived, not published).

use rand::Rng;
use rand_chacha::ChaCha8Rng;
use sightdraft_draft::VocabMap;
use sightdraft_kernels::top_indices;

use crate::builder::{Feed, TreeBuilder, next_sees};
use crate::sampling::{argmax, draw};
use crate::{DraftTree, Guesses, Sampling, TreeShape};

/// Builds the tree from rows of log-probabilities, drawing children without replacement.
#[derive(Debug)]
pub struct SampledTree {
    shape: TreeShape,
    sampling: Sampling,
    random: ChaCha8Rng,
    levels_left: usize,
    tree: DraftTree,
    /// Cumulative log-probability of each node.
    scores: Vec<f32>,
    /// Nodes to expand and how many children each gets.
    expanding: Vec<(usize, usize)>,
    /// Rows in the last feed of the nodes of the level being expanded.
    frontier: Vec<Feed>,
    sees: Vec<Vec<bool>>,
}

impl SampledTree {
    /// A tree below `root`; the draft's distribution is shaped by `sampling` as the target's is.
    pub fn new(root: u32, shape: TreeShape, sampling: Sampling, random: ChaCha8Rng) -> Self {
        let children = shape.top_k.min(shape.total.saturating_sub(1));
        Self {
            shape,
            sampling,
            random,
            levels_left: shape.levels(),
            tree: DraftTree::root(root),
            scores: vec![0.0],
            expanding: vec![(0, children)],
            frontier: Vec::new(),
            sees: Vec::new(),
        }
    }

    /// Draws `count` children of `node`, without replacement, and returns them.
    fn add_children(&mut self, node: usize, count: usize, log_probs: &[f32], vocab: &VocabMap) -> Vec<usize> {
        let mut weights = self.sampling.probabilities(log_probs);
        let on_greedy_path = self.tree.greedy_path.last() == Some(&node);
        let best = argmax(log_probs);
        let pair = |(id, &weight): (usize, &f32)| (weight > 0.0).then(|| (vocab.target(id as u32), weight));
        let proposal: Vec<(u32, f32)> = weights.iter().enumerate().filter_map(pair).collect();
        let mut children = Vec::with_capacity(count);
        for _ in 0..count.min(proposal.len()) {
            let id = draw(&weights, self.random.random());
            weights[id] = 0.0;
            let child = self.tree.push(node, vocab.target(id as u32), log_probs[id].min(0.0));
            self.scores.push(self.scores[node] + self.tree.log_probs[child]);
            if on_greedy_path && id == best {
                self.tree.greedy_path.push(child);
            }
            children.push(child);
        }
        self.tree.proposals[node] = proposal;
        children
    }

    /// Shares the next level's nodes among `level` (row of the last feed, node): always to the node that is likeliest to be
    /// reached per child it already has.
    fn allot(&mut self, level: &[(usize, usize)]) {
        let budget = (self.shape.total - self.tree.len()).div_ceil(self.levels_left);
        let reach: Vec<f32> = level.iter().map(|&(_, node)| self.scores[node].exp()).collect();
        let mut counts = vec![0usize; level.len()];
        for _ in 0..budget {
            let open = |(i, &count): (usize, &usize)| {
                if count < self.shape.top_k { reach[i] / (count + 1) as f32 } else { f32::NEG_INFINITY }
            };
            let priority: Vec<f32> = counts.iter().enumerate().map(open).collect();
            let Some(&next) = top_indices(&priority, 1).first() else { break };
            counts[next] += 1;
        }
        self.expanding.clear();
        self.frontier.clear();
        for (&(parent_row, node), &count) in level.iter().zip(&counts) {
            if count > 0 {
                self.expanding.push((node, count));
                self.frontier.push(Feed { token: self.tree.tokens[node], parent_row });
            }
        }
    }
}

impl TreeBuilder for SampledTree {
    fn frontier(&self) -> &[Feed] {
        &self.frontier
    }

    fn sees(&self) -> &[Vec<bool>] {
        &self.sees
    }

    fn wanted(&self) -> Option<usize> {
        None
    }

    fn expand(&mut self, guesses: &Guesses, vocab: &VocabMap) {
        if self.levels_left == 0 {
            return;
        }
        let expanding = std::mem::take(&mut self.expanding);
        let mut level = Vec::new();
        for (row, ((node, count), guesses)) in expanding.into_iter().zip(guesses.rows()).enumerate() {
            let children = self.add_children(node, count, guesses.log_probs, vocab);
            level.extend(children.into_iter().map(|child| (row, child)));
        }
        self.levels_left -= 1;
        self.frontier.clear();
        if self.levels_left > 0 && self.tree.len() < self.shape.total {
            self.allot(&level);
            self.sees = next_sees(&self.sees, &self.frontier);
        }
    }

    fn finish(self: Box<Self>) -> DraftTree {
        self.tree
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::*;

    #[test]
    fn budget_and_proposals() {
        let vocab = VocabMap::identity(5);
        let shape = TreeShape { total: 9, depth: 2, top_k: 3 };
        let sampling = Sampling { temperature: 1.0, top_p: 1.0, top_k: 0, seed: 0 };
        let mut tree = Box::new(SampledTree::new(4, shape, sampling, ChaCha8Rng::seed_from_u64(1)));
        let row = [0.5f32, 0.2, 0.15, 0.1, 0.05].map(f32::ln);
        tree.expand(&Guesses::all(row.to_vec(), 5), &vocab);
        while !tree.frontier().is_empty() {
            let rows = row.repeat(tree.frontier().len());
            assert_eq!(tree.sees().len(), tree.frontier().len());
            tree.expand(&Guesses::all(rows, 5), &vocab);
        }
        let tree = tree.finish();
        assert_eq!(tree.len(), 9);
        assert_eq!(tree.max_depth(), 3);
        for node in 0..tree.len() {
            let mut tokens: Vec<u32> = tree.children(node).map(|child| tree.tokens[child]).collect();
            assert_eq!(tree.proposals[node].is_empty(), tokens.is_empty());
            tokens.sort_unstable();
            tokens.dedup();
            assert_eq!(tokens.len(), tree.children(node).count(), "children are distinct");
        }
    }
}
