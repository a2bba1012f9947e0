//! What a generation counts and times.

use serde::{Deserialize, Serialize};

/// Counts of one generation; sums of several are sums of the fields.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Counters {
    /// Verification passes of the target, the prefill not among them.
    pub target_passes: usize,
    /// Draft tokens accepted.
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
