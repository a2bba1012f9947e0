//! How often guesses are right, by their depth and by their rank among their siblings.

use crate::{DraftTree, Verdict};

/// Levels that are told apart.
pub(crate) const DEPTHS: usize = 8;

/// Ranks that are told apart.
pub(crate) const RANKS: usize = 10;

/// What a guess is worth before any was seen: of the likeliest child, and of each further one relative to the one before.
const PRIOR: [f64; 2] = [0.6, 0.35];

/// How many observations the prior weighs.
const PRIOR_WEIGHT: f64 = 4.0;

/// What remains of an observation after one more: half after 350. Texts change, and so do a draft's chances.
const MEMORY: f64 = 0.998;

/// Running acceptance statistics.
#[derive(Debug, Clone)]
pub(crate) struct Odds {
    /// `[depth][rank]`: times that a guess of this kind stood below an accepted node.
    seen: [[f64; RANKS]; DEPTHS],
    /// `[depth][rank]`: times that it was accepted.
    right: [[f64; RANKS]; DEPTHS],
}

impl Odds {
    pub(crate) fn new() -> Self {
        Self { seen: [[0.0; RANKS]; DEPTHS], right: [[0.0; RANKS]; DEPTHS] }
    }

    /// Learns from one verification.
    pub(crate) fn record(&mut self, tree: &DraftTree, verdict: &Verdict) {
        for (depth, &node) in verdict.path.iter().enumerate().take(DEPTHS) {
            let accepted = verdict.path.get(depth + 1);
            for (rank, child) in tree.children(node).enumerate().take(RANKS) {
                let (seen, right) = (&mut self.seen[depth][rank], &mut self.right[depth][rank]);
                *seen = *seen * MEMORY + 1.0;
                *right = *right * MEMORY + f64::from(u8::from(accepted == Some(&child)));
            }
        }
    }

    /// Believes all that was seen a twentieth as much: it is long ago.
    pub(crate) fn fade(&mut self) {
        self.seen.iter_mut().chain(&mut self.right).flatten().for_each(|count| *count *= 0.05);
    }

    /// The chance of every kind of guess, given that its parent is right: `[depth][rank]`. Where little was seen, it is that
    /// of the level above.
    pub(crate) fn chances(&self) -> [[f64; RANKS]; DEPTHS] {
        let mut above: [f64; RANKS] = std::array::from_fn(|rank| PRIOR[0] * PRIOR[1].powi(rank as i32));
        std::array::from_fn(|depth| {
            let chance = |rank: usize| {
                (self.right[depth][rank] + PRIOR_WEIGHT * above[rank]) / (self.seen[depth][rank] + PRIOR_WEIGHT)
            };
            // Exactly one token is right: what a likelier rank has is not left for the others, of which less may be known.
            let mut left = 1.0;
            above = std::array::from_fn(|rank| {
                let own = chance(rank).min(left);
                left -= own;
                own
            });
            above
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chances_follow_what_is_accepted() {
        let mut tree = DraftTree::root(0);
        let first = tree.push(0, 1, -0.1);
        tree.push(0, 2, -0.2);
        tree.push(first, 3, -0.1);
        let mut odds = Odds::new();
        for pass in 0..400 {
            let path = if pass % 4 == 0 { vec![0, 2] } else { vec![0, 1] };
            odds.record(&tree, &Verdict { path, bonus: 9 });
        }
        let chances = odds.chances();
        assert!((chances[0][0] - 0.75).abs() < 0.03 && (chances[0][1] - 0.25).abs() < 0.03, "{chances:?}");
        assert!(chances[1][0] < 0.05, "{chances:?}");
        // Nothing was seen deeper: as above.
        assert!(chances[2][0] <= chances[1][0] + 1e-9);
    }
}
