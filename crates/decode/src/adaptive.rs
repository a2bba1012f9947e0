//! The tree that emits most tokens per second, by measured costs and by how often guesses have been right (derived; Sequoia,
//! Chen et al. 2024, chooses a tree for a hardware once, ahead of time).
//!
//! A tree of some nodes, levels and children is expected to emit one token and the chances of its nodes, the best ones taken;
//! it costs the draft's steps and one pass of the target. While no tree promises more than plain decoding, nothing is guessed,
//! and a few passes after every pause find out whether that has changed.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::odds::{DEPTHS, Odds, RANKS};
use crate::{Costs, DraftTree, TreeShape, Verdict};

/// Children per node that are considered.
const WIDTHS: [usize; 7] = [1, 2, 3, 4, 6, 8, 10];

/// Numbers of nodes that are considered.
const TOTALS: [usize; 15] = [2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 40, 48, 64];

/// A tree must promise so much more than plain decoding.
const MARGIN: f64 = 1.02;

/// Passes before the first decision, and of every attempt after a pause.
const TRIAL: usize = 4;

/// Passes between decisions grow up to so many.
const LONGEST_STAY: usize = 128;

/// Plain passes before guessing is tried again: at first, and at most after attempts that failed. An attempt of four passes that
/// emit nothing and cost half as much again loses 2% of the shortest pause.
const PAUSES: [usize; 2] = [128, 2048];

/// Weight of the newest pass in what passes cost compared with the measured curve.
const NEWEST: f64 = 0.05;

/// A chooser of trees, shared by the generations of one target with one draft.
#[derive(Debug, Clone)]
pub struct Tuner(Arc<Mutex<Adaptive>>);

impl Tuner {
    /// For what passes cost.
    pub fn new(costs: Costs) -> Self {
        Self(Arc::new(Mutex::new(Adaptive::new(costs))))
    }

    /// The tree of the next pass; none: do not guess.
    pub fn next(&self) -> Option<TreeShape> {
        self.lock().next()
    }

    /// Takes in how a pass went; `seconds` are those of drafting and of verification.
    pub fn record(&self, tree: &DraftTree, verdict: &Verdict, seconds: [f64; 2]) {
        self.lock().record(tree, verdict, seconds);
    }

    /// A panic elsewhere leaves statistics that are still statistics.
    fn lock(&self) -> MutexGuard<'_, Adaptive> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The state of a [`Tuner`].
#[derive(Debug)]
struct Adaptive {
    costs: Costs,
    odds: Odds,
    /// Seconds of draft and target relative to the curves: caches grow, machines slow down.
    scale: [f64; 2],
    choice: Option<TreeShape>,
    /// Passes until the next decision.
    left: usize,
    /// Passes that the next choice stays for.
    stay: usize,
    /// Length of the next pause.
    pause: usize,
}

impl Adaptive {
    fn new(costs: Costs) -> Self {
        let mut adaptive = Self {
            costs,
            odds: Odds::new(),
            scale: [1.0; 2],
            choice: None,
            left: TRIAL,
            stay: TRIAL,
            pause: PAUSES[0],
        };
        adaptive.choice = Some(adaptive.best().0);
        adaptive
    }

    fn next(&mut self) -> Option<TreeShape> {
        if self.left == 0 {
            self.decide();
        }
        self.left -= 1;
        self.choice
    }

    fn decide(&mut self) {
        let (shape, rate) = self.best();
        let plain = 1.0 / self.target_seconds(1);
        if self.choice.is_none() {
            // After a pause: four passes must be able to change the verdict.
            self.odds.fade();
            self.stay = TRIAL;
            (self.choice, self.left) = (Some(self.best().0), TRIAL);
        } else if rate > MARGIN * plain {
            self.stay = (2 * self.stay).min(LONGEST_STAY);
            if self.stay == LONGEST_STAY {
                self.pause = PAUSES[0];
            }
            (self.choice, self.left) = (Some(shape), self.stay);
        } else {
            (self.choice, self.left) = (None, self.pause);
            self.pause = (2 * self.pause).min(PAUSES[1]);
        }
    }

    fn record(&mut self, tree: &DraftTree, verdict: &Verdict, seconds: [f64; 2]) {
        self.odds.record(tree, verdict);
        let drafted = self.choice.filter(|_| tree.len() > 1).map(|shape| self.draft_curve(shape));
        let expected = [drafted, Some(self.costs.target.seconds(tree.len()))];
        for ((scale, seconds), expected) in self.scale.iter_mut().zip(seconds).zip(expected) {
            if let Some(expected) = expected.filter(|expected| *expected > 0.0) {
                // One pass that was disturbed must not decide.
                let ratio = (seconds / expected).clamp(0.25 * *scale, 4.0 * *scale);
                *scale += NEWEST * (ratio - *scale);
            }
        }
    }

    /// The tree that promises most, and its tokens per second.
    fn best(&self) -> (TreeShape, f64) {
        let chances = self.odds.chances();
        let mut best = (TreeShape::chain(1), 0.0);
        for top_k in WIDTHS {
            let levels = levels(&chances, top_k);
            let mut values: Vec<f64> = Vec::new();
            for (depth, level) in levels.iter().enumerate() {
                values.extend(level);
                values.sort_unstable_by(|a, b| b.total_cmp(a));
                for total in TOTALS.into_iter().filter(|total| *total <= values.len() + 1) {
                    let shape = TreeShape { total, depth, top_k };
                    let emitted = 1.0 + values[..total - 1].iter().sum::<f64>();
                    let rate = emitted / (self.scale[0] * self.draft_curve(shape) + self.target_seconds(total));
                    if rate > best.1 {
                        best = (shape, rate);
                    }
                }
            }
        }
        best
    }

    fn target_seconds(&self, rows: usize) -> f64 {
        self.scale[1] * self.costs.target.seconds(rows)
    }

    /// What the draft's curve says of a tree: the rows that were accepted last, then a step per further level.
    fn draft_curve(&self, shape: TreeShape) -> f64 {
        self.costs.draft.seconds(2) + shape.depth as f64 * self.costs.draft.seconds(shape.top_k)
    }
}

/// The chances that nodes are right, level by level, of a tree that grows `top_k` children from each of the `top_k` best nodes of
/// a level.
fn levels(chances: &[[f64; RANKS]; DEPTHS], top_k: usize) -> Vec<Vec<f64>> {
    let mut beam = vec![1.0];
    let grow = |level: &[f64; RANKS]| {
        let mut nodes: Vec<f64> =
            beam.iter().flat_map(|parent| level[..top_k].iter().map(move |c| parent * c)).collect();
        nodes.sort_unstable_by(|a, b| b.total_cmp(a));
        beam = nodes[..top_k.min(nodes.len())].to_vec();
        nodes
    };
    chances.iter().map(grow).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::CostCurve;

    /// One row costs 1; `more` for each further one; a draft step costs `step`.
    fn costs(more: f64, step: f64) -> Costs {
        let target = [1, 64].map(|rows| (rows, 1.0 + more * (rows - 1) as f64)).to_vec();
        Costs { target: CostCurve::new(target), draft: CostCurve::new(vec![(1, step), (16, step)]) }
    }

    /// Decodes `passes` passes with a draft whose likeliest guess is right with chance `right`; seconds by the costs. Returns
    /// tokens per second.
    fn play(adaptive: &mut Adaptive, passes: usize, right: f64) -> f64 {
        let (mut tokens, mut seconds, mut dice) = (0.0, 0.0, 12_345u64);
        for _ in 0..passes {
            let mut tree = DraftTree::root(0);
            let mut path = vec![0];
            let shape = adaptive.next();
            if let Some(shape) = shape {
                let mut parent = 0;
                let mut alive = true;
                for _ in 0..(shape.depth + 1).min(shape.total - 1) {
                    parent = tree.push(parent, 1, -0.1);
                    dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    alive &= ((dice >> 33) as f64 / (1u64 << 31) as f64) < right;
                    if alive {
                        path.push(parent);
                    }
                }
            }
            let draft = shape.map_or(0.0, |shape| adaptive.draft_curve(shape));
            let verify = adaptive.costs.target.seconds(tree.len());
            tokens += path.len() as f64;
            seconds += draft + verify;
            adaptive.record(&tree, &Verdict { path, bonus: 1 }, [draft, verify]);
        }
        tokens / seconds
    }

    #[test]
    fn cheap_rows_grow_large_trees_and_dear_ones_small_trees() {
        let shape = |more| Adaptive::new(costs(more, 0.05)).best().0;
        assert!(shape(0.001).total >= 24, "{:?}", shape(0.001));
        assert!(shape(0.3).total <= 4, "{:?}", shape(0.3));
        let deep = |step| Adaptive::new(costs(0.001, step)).best().0.depth;
        assert!(deep(0.01) > deep(0.5), "a dear draft is asked less often");
    }

    #[test]
    fn a_good_draft_is_used_deeply() {
        let mut adaptive = Adaptive::new(costs(0.02, 0.05));
        let rate = play(&mut adaptive, 2000, 0.95);
        assert!(rate > 3.0, "{rate}");
        assert!(adaptive.choice.is_some_and(|shape| shape.depth >= 5), "{:?}", adaptive.choice);
    }

    #[test]
    fn a_useless_draft_costs_less_than_three_percent() {
        for right in [0.0, 0.05] {
            let mut adaptive = Adaptive::new(costs(0.1, 0.2));
            let rate = play(&mut adaptive, 3000, right);
            assert!(rate > 0.97, "{rate}");
            assert!(adaptive.choice.is_none());
        }
    }

    #[test]
    fn guessing_starts_again_when_it_pays() {
        let mut adaptive = Adaptive::new(costs(0.05, 0.1));
        play(&mut adaptive, 600, 0.0);
        play(&mut adaptive, 6000, 0.9);
        let rate = play(&mut adaptive, 500, 0.9);
        assert!(rate > 1.5, "{rate}");
    }

    #[test]
    fn slower_passes_than_measured_are_noticed() {
        let mut adaptive = Adaptive::new(costs(0.01, 0.02));
        let before = adaptive.best().0;
        for _ in 0..200 {
            let mut tree = DraftTree::root(0);
            tree.push(0, 1, -0.1);
            // The draft turns out fifty times as dear.
            let draft = 50.0 * adaptive.choice.map_or(0.0, |shape| adaptive.draft_curve(shape));
            adaptive.record(&tree, &Verdict { path: vec![0, 1], bonus: 1 }, [draft, 1.0]);
        }
        assert!(adaptive.best().0.depth < before.depth);
    }
}
