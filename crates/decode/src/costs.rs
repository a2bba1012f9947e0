//! What a pass costs by its number of rows, measured: the shape of a tree should follow it.

use std::time::Instant;

use burn::prelude::*;
use serde::{Deserialize, Serialize};
use sightdraft_draft::{Draft, DraftPass, DraftState, FeatureRows};
use sightdraft_kernels::top_indices;
use sightdraft_target::{KvCache, Llama, Mask};

use crate::{Greedy, Guesses, Verifier};

/// Rows of a target pass that are measured.
pub const TARGET_ROWS: [usize; 7] = [1, 2, 4, 8, 16, 32, 64];

/// Rows of a draft step that are measured.
const DRAFT_ROWS: [usize; 5] = [1, 2, 4, 8, 16];

/// Tokens in the cache while measuring, if the context is that long.
pub const CONTEXT: usize = 256;

/// Children that a draft step proposes for each row.
const CHILDREN: usize = 10;

/// Seconds of a pass by its rows, in between by interpolation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CostCurve {
    /// (rows, seconds), rows ascending.
    points: Vec<(usize, f64)>,
}

impl CostCurve {
    /// From measured (rows, seconds), rows ascending. More rows never cost less: where they seem to, it is noise, and the later
    /// figure stands for both.
    pub fn new(mut points: Vec<(usize, f64)>) -> Self {
        for i in (1..points.len()).rev() {
            points[i - 1].1 = points[i - 1].1.min(points[i].1);
        }
        Self { points }
    }

    /// Seconds of a pass over `rows` rows; beyond the last point they grow as between the last two.
    pub fn seconds(&self, rows: usize) -> f64 {
        let above = self.points.partition_point(|point| point.0 < rows).clamp(1, self.points.len().max(2) - 1);
        match (self.points.get(above - 1), self.points.get(above)) {
            (Some(low), Some(high)) => {
                let share = (rows as f64 - low.0 as f64) / (high.0 - low.0) as f64;
                low.1 + share.max(0.0) * (high.1 - low.1)
            }
            (Some(only), None) => only.1,
            _ => 0.0,
        }
    }

    /// Measured (rows, seconds).
    pub fn points(&self) -> &[(usize, f64)] {
        &self.points
    }
}

/// What target and draft cost on one device.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Costs {
    /// A pass over the tree, its logits and the greedy rule among it.
    pub target: CostCurve,
    /// A step of the draft over one level, its log-probabilities and the choice of children among it.
    pub draft: CostCurve,
}

impl Costs {
    /// Measures with random tokens behind a cache of 256 for about `budget` seconds, at least three turns. The fastest turn
    /// counts: what disturbs a run only ever adds to it.
    pub fn measure(llama: &Llama, draft: &dyn Draft, budget: f64) -> Self {
        let mut target = TargetPasses::new(llama);
        let mut steps = DraftSteps::new(llama, draft);
        let (mut of_target, mut of_draft) = (Fastest::new(&target.rows()), Fastest::new(&DRAFT_ROWS));
        let start = Instant::now();
        // The first turn only warms up.
        for turn in 0.. {
            if turn > 3 && start.elapsed().as_secs_f64() > budget {
                break;
            }
            for (rows, best) in of_target.0.iter_mut() {
                let seconds = target.seconds(*rows);
                *best = if turn == 0 { *best } else { best.min(seconds) };
            }
            for (rows, best) in of_draft.0.iter_mut() {
                let seconds = steps.seconds(*rows);
                *best = if turn == 0 { *best } else { best.min(seconds) };
            }
        }
        Self { target: CostCurve::new(of_target.0), draft: CostCurve::new(of_draft.0) }
    }
}

struct Fastest(Vec<(usize, f64)>);

impl Fastest {
    fn new(rows: &[usize]) -> Self {
        Self(rows.iter().map(|&rows| (rows, f64::INFINITY)).collect())
    }
}

/// Passes of a target over trees behind a filled cache.
pub struct TargetPasses<'a> {
    llama: &'a Llama,
    cache: KvCache,
}

impl<'a> TargetPasses<'a> {
    /// Fills the cache.
    pub fn new(llama: &'a Llama) -> Self {
        let mut cache = llama.new_cache();
        let n = context(llama);
        llama.forward(llama.embed_ids(&ids(llama, n)), &[(0..n).collect()], &Mask::Causal, &mut cache, &[]);
        Self { llama, cache }
    }

    /// Numbers of rows that fit behind the cache.
    pub fn rows(&self) -> Vec<usize> {
        let room = self.llama.config.max_position_embeddings - self.cache.len();
        TARGET_ROWS.into_iter().filter(|&rows| rows == 1 || rows <= room).collect()
    }

    /// Seconds of one pass over `rows` guesses for the same place, to the last logit.
    pub fn seconds(&mut self, rows: usize) -> f64 {
        let before = self.cache.len();
        let mut tree = crate::DraftTree::root(0);
        ids(self.llama, rows).into_iter().skip(1).for_each(|id| {
            tree.push(0, id, -1.0);
        });
        let clock = Instant::now();
        let mask = if rows == 1 { Mask::Causal } else { Mask::Tree(tree.sees()) };
        let positions = [tree.depths.iter().map(|depth| before + depth).collect()];
        let embeds = self.llama.embed_ids(&tree.tokens);
        let hidden = self.llama.forward(embeds, &positions, &mask, &mut self.cache, &[]).hidden;
        Greedy.verify(&tree, self.llama.logits(hidden).squeeze_dim::<2>(0));
        let seconds = clock.elapsed().as_secs_f64();
        self.cache.truncate(before);
        seconds
    }
}

/// Steps of a draft behind a filled cache.
pub struct DraftSteps<'a> {
    llama: &'a Llama,
    draft: &'a dyn Draft,
    state: DraftState,
    last: DraftPass,
    rows: usize,
}

impl<'a> DraftSteps<'a> {
    /// Fills the state with rows of no features.
    pub fn new(llama: &'a Llama, draft: &'a dyn Draft) -> Self {
        let n = context(llama);
        let embeds = llama.embed_ids(&ids(llama, n));
        let width = draft.taps().len() * llama.config.hidden_size;
        let features = Tensor::zeros([1, n, width], (&embeds.device(), embeds.dtype()));
        let mut state = draft.start();
        let rows = FeatureRows {
            features,
            embeds,
            positions: &[(0..n).collect()],
            mask: &Mask::Causal,
            image: &[vec![None; n]],
        };
        let pass = draft.extend(&mut state, rows);
        let last = |rows: Tensor<3>| rows.narrow(1, n - 1, 1);
        Self {
            llama,
            draft,
            state,
            last: DraftPass { hidden: last(pass.hidden), predict: last(pass.predict) },
            rows: n,
        }
    }

    /// Seconds of one step over `rows` nodes of a level, to their children.
    pub fn seconds(&mut self, rows: usize) -> f64 {
        let stable = self.state.cache.len();
        let ids = ids(self.llama, rows);
        let clock = Instant::now();
        let hidden = self.last.hidden.clone().repeat_dim(1, rows);
        let row = |own: usize| (0..stable + rows).map(|key| key < stable || key == stable + own).collect();
        let mask = Mask::Full(vec![(0..rows).map(row).collect()]);
        let positions = [vec![self.rows; rows]];
        let pass = self.draft.step(&mut self.state, hidden, self.llama.embed_ids(&ids), &positions, &mask);
        for row in Guesses::of(self.draft, pass.predict, Some(CHILDREN)).rows() {
            std::hint::black_box(top_indices(row.log_probs, CHILDREN));
        }
        let seconds = clock.elapsed().as_secs_f64();
        self.state.cache.truncate(stable);
        seconds
    }
}

fn context(llama: &Llama) -> usize {
    CONTEXT.min(llama.config.max_position_embeddings / 2).max(1)
}

/// `n` ids of the vocabulary, the same every time.
fn ids(llama: &Llama, n: usize) -> Vec<u32> {
    (0..n).map(|i| (i * 7919 % llama.config.vocab_size) as u32).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_curve_goes_through_its_points_and_never_falls() {
        let curve = CostCurve::new(vec![(1, 1.0), (4, 2.5), (8, 2.0), (16, 4.0)]);
        assert_eq!([1, 4, 6, 8, 12, 24].map(|rows| curve.seconds(rows)), [1.0, 2.0, 2.0, 2.0, 3.0, 6.0]);
        assert_eq!(CostCurve::new(vec![(1, 3.0)]).seconds(5), 3.0);
    }
}
