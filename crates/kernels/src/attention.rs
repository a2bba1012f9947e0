//! Attention of few query rows over a KV cache.
//!
//! A row's result is a function of its query and of the keys and values that it sees, in their order: not of where
//! in the cache they lie, what lies in blocked places between them, or which rows go with it. So a guess that is verified in a
//! tree, its ancestors scattered over the cache, gets the bits that plain decoding gives it:
//!
//! - a score is summed over the head's dimension in order, each key in a lane of its own;
//! - the largest score is the same in any order;
//! - the weighted values and the weights' sum are added up key after key, and blocked keys are not added at all (adding zeros
//!   would do for numbers, but not for whatever unused memory holds).
//!
//! The cache's tiles go through the same inner loop as the weights of a linear layer; the query heads that share keys go
//! through it together.

use std::ops::Range;

use pulp::{Simd, WithSimd};

use crate::exp::exp;
use crate::kv::PackedKv;
use crate::pool;
use crate::tile::{Ahead, MOST_COLUMNS, MOST_ROWS, group_limit, group_of};
use crate::visible::Visible;

/// New rows that look at a cache.
#[derive(Clone, Copy, Debug)]
pub struct Queries<'a> {
    /// `[batch, rows, heads, dim]`.
    pub q: &'a [f32],
    /// Query rows of each sequence.
    pub rows: usize,
    /// Query heads, a multiple of the key and value heads; neighbours share one of those.
    pub heads: usize,
    /// Places in use, from the first on.
    pub alive: usize,
    /// `[batch or 1, rows, alive]`, not 0 where a row must not look; `None`: every row sees all.
    pub blocked: Option<&'a [u8]>,
    /// Factor on the scores, usually `1 / sqrt(dim)`.
    pub scale: f32,
}

impl PackedKv {
    /// Softmax attention over this cache; a row that sees nothing gives zeros.
    ///
    /// # Shapes
    /// - out: as the queries; overwritten
    ///
    /// # Panics
    /// If the lengths do not fit.
    pub fn attend(&self, queries: Queries<'_>, out: &mut [f32]) {
        self.check(&queries, out);
        if out.is_empty() {
            return;
        }
        let Queries { rows, heads, alive, .. } = queries;
        let masks = queries.blocked.map_or(1, |blocked| blocked.len() / (rows * alive).max(1)).max(1);
        let visible = Visible::new(queries.blocked, masks * rows, alive);
        let share = heads / self.kv_heads;
        // Full groups use the processor best; fewer rows than that are spread over the cores.
        let all = self.batch * self.kv_heads * rows * share;
        let values = all * alive * self.dim;
        let threads = pool::threads_for(values);
        let spread = if threads > 1 { all.div_ceil(2 * threads) } else { all };
        let size = spread.clamp(1, group_limit(self.isa.shape().1)).min(rows * share);
        let groups = (rows * share).div_ceil(size);
        let out = Scattered(out.as_mut_ptr());
        pool::for_each(values, self.batch * self.kv_heads * groups, &|task| {
            let (head, group) = (task / groups, task % groups);
            let (sequence, kv_head) = (head / self.kv_heads, head % self.kv_heads);
            let members = group * size..((group + 1) * size).min(rows * share);
            let mask = if masks > 1 { sequence * rows } else { 0 };
            let group = Group {
                kv: self,
                head,
                queries: &queries,
                places: Places { first: (sequence * rows * heads + kv_head * share) * self.dim, heads, share },
                visible: &visible,
                rows: mask + members.start / share..mask + (members.end - 1) / share + 1,
                mask,
                members,
                out: &out,
            };
            self.isa.dispatch(group);
        });
    }

    fn check(&self, queries: &Queries<'_>, out: &[f32]) {
        let Self { batch, kv_heads, dim, capacity, .. } = *self;
        let Queries { rows, heads, alive, .. } = *queries;
        assert!(
            kv_heads > 0 && heads.is_multiple_of(kv_heads),
            "heads: expected a multiple of {kv_heads}, found {heads}"
        );
        assert!(alive <= capacity, "alive: expected at most the capacity {capacity}, found {alive}");
        assert_eq!(queries.q.len(), batch * rows * heads * dim, "q: expected [{batch}, {rows}, {heads}, {dim}]");
        assert_eq!(out.len(), queries.q.len(), "out: expected [{batch}, {rows}, {heads}, {dim}]");
        if let Some(blocked) = queries.blocked {
            let fits = [1, batch].iter().any(|masks| blocked.len() == masks * rows * alive);
            assert!(fits, "blocked: expected [{batch} or 1, {rows}, {alive}], found {} flags", blocked.len());
        }
    }
}

/// Memory of the results, written to by several threads, each in its own places.
struct Scattered(*mut f32);

// SAFETY: every task writes the vectors of its own members only.
unsafe impl Sync for Scattered {}

/// Where in queries and results the vectors of a head's members lie. Member `m` is row `m / share`, head `m % share` of those
/// that share keys.
#[derive(Clone, Copy)]
struct Places {
    first: usize,
    heads: usize,
    share: usize,
}

impl Places {
    fn of(self, member: usize, dim: usize) -> Range<usize> {
        let start = self.first + (member / self.share * self.heads + member % self.share) * dim;
        start..start + dim
    }
}

/// One key head's work for a group of members.
struct Group<'a> {
    kv: &'a PackedKv,
    /// Of the cache.
    head: usize,
    queries: &'a Queries<'a>,
    places: Places,
    visible: &'a Visible,
    /// Rows of `visible` that the members belong to.
    rows: Range<usize>,
    /// Row of `visible` that member 0 belongs to.
    mask: usize,
    members: Range<usize>,
    out: &'a Scattered,
}

impl WithSimd for Group<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let stride = self.visible.end(self.rows.clone()).next_multiple_of(self.kv.width);
        let common = self.visible.common(self.rows.clone());
        let mut weights = self.scores(simd, stride);
        for (index, weights) in weights.chunks_exact_mut(stride.max(1)).enumerate() {
            self.softmax(simd, index, &common, weights);
        }
        let together = self.together(stride, &common, &weights);
        let totals = self.totals(stride, &common, &weights, &together);
        self.weigh(simd, stride, &common, &weights, &together, &totals);
    }
}

impl Group<'_> {
    fn len(&self) -> usize {
        self.members.len()
    }

    /// Scaled scores, `[members, stride]`.
    #[inline(always)]
    fn scores<S: Simd>(&self, simd: S, stride: usize) -> Vec<f32> {
        let (width, dim, len) = (self.kv.width, self.kv.dim, self.len());
        let mut q = vec![0.0; len * dim];
        for (index, member) in self.members.clone().enumerate() {
            let own = &self.queries.q[self.places.of(member, dim)];
            for (slot, value) in q[index..].iter_mut().step_by(len).zip(own) {
                *slot = *value * self.queries.scale;
            }
        }
        let mut scores = vec![0.0; len * stride];
        let tiles = self.kv.keys(self.head).chunks_exact(width * dim).take(stride / width);
        for (t, tile) in tiles.enumerate() {
            let mut sums = [0.0; MOST_ROWS * MOST_COLUMNS];
            let sums = &mut sums[..len * width];
            group_of::<S, 2>(simd, len, &q, bytemuck::cast_slice(tile), sums, Ahead::nothing());
            for (scores, sums) in scores.chunks_exact_mut(stride).zip(sums.chunks_exact(width)) {
                scores[t * width..(t + 1) * width].copy_from_slice(sums);
            }
        }
        scores
    }

    /// The runs of keys that a member sees beyond those in `common`.
    fn runs(&self, index: usize, common: &Range<usize>) -> impl Iterator<Item = Range<usize>> + use<'_> {
        let row = self.mask + (self.members.start + index) / self.places.share;
        let end = common.end;
        self.visible.of(row).iter().map(move |run| run.start.max(end)..run.end).filter(|run| !run.is_empty())
    }

    /// Scores of a member to `exp(score - largest)`; blocked places hold anything afterwards.
    #[inline(always)]
    fn softmax<S: Simd>(&self, simd: S, index: usize, common: &Range<usize>, scores: &mut [f32]) {
        let (vectors, rest) = S::as_simd_f32s(&scores[common.clone()]);
        let mut largest = simd.splat_f32s(f32::NEG_INFINITY);
        for scores in vectors {
            largest = simd.max_f32s(largest, *scores);
        }
        let largest = simd.reduce_max_f32s(largest);
        let largest = rest.iter().fold(largest, |a, b| a.max(*b));
        let largest = self.runs(index, common).fold(largest, |a, run| scores[run].iter().fold(a, |a, b| a.max(*b)));
        let largest = simd.splat_f32s(largest);
        for scores in S::as_mut_simd_f32s(scores).0 {
            *scores = exp(simd, simd.sub_f32s(*scores, largest));
        }
    }

    /// The weights of the keys that all see, `[common, members]`.
    fn together(&self, stride: usize, common: &Range<usize>, weights: &[f32]) -> Vec<f32> {
        let len = self.len();
        let mut together = vec![0.0; common.len() * len];
        for (index, weights) in weights.chunks_exact(stride.max(1)).enumerate() {
            for (slot, weight) in together.iter_mut().skip(index).step_by(len).zip(&weights[common.clone()]) {
                *slot = *weight;
            }
        }
        together
    }

    /// Each member's sum of weights, key after key; the members side by side, since one sum alone waits for each addition.
    #[inline(always)]
    fn totals(&self, stride: usize, common: &Range<usize>, weights: &[f32], together: &[f32]) -> [f32; MOST_ROWS] {
        let len = self.len();
        let mut totals = [0.0; MOST_ROWS];
        for weights in together.chunks_exact(len) {
            for (total, weight) in totals.iter_mut().zip(weights) {
                *total += weight;
            }
        }
        for (index, total) in totals[..len].iter_mut().enumerate() {
            for run in self.runs(index, common) {
                for weight in &weights[index * stride..][run] {
                    *total += weight;
                }
            }
        }
        totals
    }

    /// Weighted means of the values.
    #[inline(always)]
    fn weigh<S: Simd>(
        &self,
        simd: S,
        stride: usize,
        common: &Range<usize>,
        weights: &[f32],
        together: &[f32],
        totals: &[f32; MOST_ROWS],
    ) {
        let (width, dim, capacity) = (self.kv.width, self.kv.dim, self.kv.capacity);
        let tiles = self.kv.values(self.head).chunks_exact(capacity * width);
        for (t, tile) in tiles.enumerate() {
            let values: &[u32] = bytemuck::cast_slice(tile);
            let mut sums = [0.0; MOST_ROWS * MOST_COLUMNS];
            let sums = &mut sums[..self.len() * width];
            let seen = &values[common.start * width..common.end * width];
            group_of::<S, 2>(simd, self.len(), together, seen, sums, Ahead::nothing());
            for (index, sums) in sums.chunks_exact_mut(width).enumerate() {
                for run in self.runs(index, common) {
                    let weights = &weights[index * stride..][run.clone()];
                    let values = &values[run.start * width..run.end * width];
                    group_of::<S, 2>(simd, 1, weights, values, sums, Ahead::nothing());
                }
                let columns = t * width..dim.min((t + 1) * width);
                let own = self.places.of(self.members.start + index, dim);
                // SAFETY: the checked lengths make the span lie inside; no other task has this member.
                let out =
                    unsafe { std::slice::from_raw_parts_mut(self.out.0.add(own.start + columns.start), columns.len()) };
                for (out, sum) in out.iter_mut().zip(sums) {
                    // The total of a row that sees something is at least 1, its largest weight.
                    *out = if totals[index] > 0.0 { *sum / totals[index] } else { 0.0 };
                }
            }
        }
    }
}
