//! What a generation counts and times.

use serde::{Deserialize, Serialize};

use crate::{DraftTree, Verdict};

/// Counts of one generation; sums of several are sums of the fields.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Counters {
    /// Verification passes of the target, the prefill not among them.
    pub target_passes: usize,
    /// Draft tokens accepted, those behind a stop not among them.
    pub accepted: usize,
    /// Tokens emitted by verification passes (accepted + bonus, cut at a stop).
    pub emitted: usize,
    /// `reached[i]`: passes whose tree had a node at depth i+1 below an accepted prefix of length i; the denominator of
    /// conditional acceptance at position i.
    pub reached: Vec<usize>,
    /// `accepted_at[i]`: passes that accepted at least i+1 drafts.
    pub accepted_at: Vec<usize>,
    /// Passes in which the draft's greedy path (argmax at every level, down to the tree's depth) was pruned from its own tree.
    pub greedy_path_pruned: usize,
    /// Passes in which the accepted path was a prefix of the draft's greedy path.
    pub accepted_greedy_path: usize,
}

impl Counters {
    /// Adds one verification pass of which `emitted` tokens (accepted ones, then the bonus) came before a stop.
    pub fn record(&mut self, tree: &DraftTree, verdict: &Verdict, emitted: usize) {
        let found = verdict.path.len() - 1;
        let accepted = found.min(emitted);
        self.target_passes += 1;
        self.accepted += accepted;
        self.emitted += emitted;
        // Behind a stop nothing was asked of the draft any more.
        let asked = if emitted > found { accepted + 1 } else { accepted };
        for (position, &node) in verdict.path.iter().take(asked).enumerate() {
            if tree.children(node).next().is_some() {
                increment(&mut self.reached, position);
            }
        }
        (0..accepted).for_each(|position| increment(&mut self.accepted_at, position));
        self.greedy_path_pruned += usize::from(tree.greedy_path.len() <= tree.max_depth());
        let path = &verdict.path[..=accepted];
        self.accepted_greedy_path += usize::from(tree.greedy_path.starts_with(path));
    }

    /// Accepted draft tokens per verification pass; 0 without passes.
    pub fn accepted_per_pass(&self) -> f64 {
        self.accepted as f64 / self.target_passes.max(1) as f64
    }

    /// Emitted tokens per verification pass, the bonus among them; 0 without passes.
    pub fn emitted_per_pass(&self) -> f64 {
        self.emitted as f64 / self.target_passes.max(1) as f64
    }
}

fn increment(counts: &mut Vec<usize>, position: usize) {
    if counts.len() <= position {
        counts.resize(position + 1, 0);
    }
    counts[position] += 1;
}

/// Wall-clock split of one generation, seconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Seconds {
    /// The target over the prompt.
    pub prefill: f64,
    /// Drafting.
    pub draft: f64,
    /// Target passes and the acceptance rule.
    pub verify: f64,
    /// The rest: cache compaction, stop rules, callbacks.
    pub other: f64,
}

impl Seconds {
    /// All of it.
    pub fn total(&self) -> f64 {
        self.prefill + self.draft + self.verify + self.other
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chain(tokens: &[u32]) -> DraftTree {
        let mut tree = DraftTree::root(0);
        tokens.iter().enumerate().for_each(|(parent, &token)| {
            let child = tree.push(parent, token, -0.1);
            tree.greedy_path.push(child);
        });
        tree
    }

    #[test]
    fn accepted_and_emitted_per_pass_are_told_apart() {
        let tree = chain(&[1, 2]);
        let mut counters = Counters::default();
        for accepted in 0..3 {
            let verdict = Verdict { path: (0..=accepted).collect(), bonus: 9 };
            counters.record(&tree, &verdict, accepted + 1);
        }
        assert_eq!((counters.accepted_per_pass(), counters.emitted_per_pass()), (1.0, 2.0));
        assert_eq!((counters.reached.as_slice(), counters.accepted_at.as_slice()), (&[3, 2][..], &[2, 1][..]));
        assert_eq!((counters.greedy_path_pruned, counters.accepted_greedy_path), (0, 3));
    }

    #[test]
    fn what_comes_after_a_stop_does_not_count() {
        let mut counters = Counters::default();
        let verdict = Verdict { path: (0..=5).collect(), bonus: 9 };
        counters.record(&chain(&[1, 2, 3, 4, 5]), &verdict, 3);
        assert_eq!((counters.accepted, counters.emitted), (3, 3));
        assert_eq!(counters.accepted_at, [1, 1, 1]);
        assert_eq!(counters.reached, [1, 1, 1]);
    }
}
