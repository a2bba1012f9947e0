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
//! Keys and values are first laid out in tiles, once for all rows and for all heads that share them, and then go through the
//! same inner loop as the weights of a linear layer.

use std::sync::Mutex;

use pulp::{Simd, WithSimd};

use crate::exp::exp;
use crate::isa::Isa;
use crate::pool;
use crate::tile::{Ahead, MOST_ROWS, group_limit, group_of};

/// The shapes of an attention call, grouped-query attention included.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Attention {
    /// Query heads, a multiple of `kv_heads`; neighbours share a key and value head.
    pub heads: usize,
    /// Key and value heads.
    pub kv_heads: usize,
    /// Length of a head's vectors.
    pub dim: usize,
    /// Places for keys in the cache.
    pub capacity: usize,
    /// Places in use, from the first on.
    pub alive: usize,
    /// Query rows.
    pub rows: usize,
    /// Factor on the scores, usually `1 / sqrt(dim)`.
    pub scale: f32,
}

impl Attention {
    /// Softmax attention; a row that sees nothing gives zeros.
    ///
    /// # Shapes
    /// - q, out: `[heads, rows, dim]`; out is overwritten
    /// - k, v: `[kv_heads, capacity, dim]`
    /// - blocked: `[rows, alive]`, true where a row must not look; `None`: every row sees all
    ///
    /// # Panics
    /// If a length does not fit, `heads` is no multiple of `kv_heads`, or `alive` is above `capacity`.
    pub fn attend(&self, q: &[f32], k: &[f32], v: &[f32], blocked: Option<&[bool]>, out: &mut [f32]) {
        self.attend_with(Isa::detect(), q, k, v, blocked, out);
    }

    /// [`attend`](Self::attend) with given instructions.
    pub fn attend_with(&self, isa: Isa, q: &[f32], k: &[f32], v: &[f32], blocked: Option<&[bool]>, out: &mut [f32]) {
        self.check(q, k, v, blocked, out);
        if out.is_empty() {
            return;
        }
        let (lanes, registers) = isa.shape();
        let tiles = Tiles { width: 2 * lanes, alive: self.alive, dim: self.dim };
        let packed = self.pack(tiles, k, v);
        let group = group_limit(registers);
        let queue =
            Mutex::new(q.chunks(self.rows * self.dim).zip(out.chunks_mut(self.rows * self.dim)).enumerate().flat_map(
                |(head, (q, out))| {
                    let rows = q.chunks(group * self.dim).zip(out.chunks_mut(group * self.dim)).enumerate();
                    rows.map(move |(g, (q, out))| (head, g * group, q, out))
                },
            ));
        pool::for_each(self.heads * self.rows.div_ceil(group), &|_| {
            let next = queue.lock().ok().and_then(|mut queue| queue.next());
            let Some((head, first, q, out)) = next else { return };
            let rows = q.len() / self.dim;
            let kv = &packed[head / (self.heads / self.kv_heads) * tiles.len()..][..tiles.len()];
            let blocked = blocked.map(|b| &b[first * self.alive..(first + rows) * self.alive]);
            isa.dispatch(Group {
                tiles,
                keys: &kv[..tiles.keys_len()],
                values: &kv[tiles.keys_len()..],
                q,
                rows,
                scale: self.scale,
                blocked,
                out,
            });
        });
    }

    fn check(&self, q: &[f32], k: &[f32], v: &[f32], blocked: Option<&[bool]>, out: &[f32]) {
        let Self { heads, kv_heads, dim, capacity, alive, rows, .. } = *self;
        assert!(kv_heads > 0 && heads % kv_heads == 0, "heads: expected a multiple of {kv_heads}, found {heads}");
        assert!(alive <= capacity, "alive: expected at most the capacity {capacity}, found {alive}");
        assert_eq!(q.len(), heads * rows * dim, "q: expected [{heads}, {rows}, {dim}]");
        assert_eq!(out.len(), q.len(), "out: expected [{heads}, {rows}, {dim}]");
        assert_eq!(k.len(), kv_heads * capacity * dim, "k: expected [{kv_heads}, {capacity}, {dim}]");
        assert_eq!(v.len(), k.len(), "v: expected [{kv_heads}, {capacity}, {dim}]");
        if let Some(blocked) = blocked {
            assert_eq!(blocked.len(), rows * alive, "blocked: expected [{rows}, {alive}]");
        }
    }

    /// All heads' keys and values in tiles.
    fn pack(&self, tiles: Tiles, k: &[f32], v: &[f32]) -> Vec<f32> {
        let mut packed = vec![0.0; self.kv_heads * tiles.len()];
        if self.alive > 0 {
            let queue = Mutex::new(packed.chunks_mut(tiles.len()).enumerate());
            pool::for_each(self.kv_heads, &|_| {
                let Some((head, kv)) = queue.lock().ok().and_then(|mut queue| queue.next()) else { return };
                let (keys, values) = kv.split_at_mut(tiles.keys_len());
                let used = head * self.capacity * self.dim..(head * self.capacity + self.alive) * self.dim;
                tiles.pack_keys(&k[used.clone()], keys);
                tiles.pack_values(&v[used], values);
            });
        }
        packed
    }
}

/// How one head's keys and values are laid out, `width` columns together.
#[derive(Clone, Copy)]
struct Tiles {
    width: usize,
    alive: usize,
    dim: usize,
}

impl Tiles {
    fn keys_len(self) -> usize {
        self.alive.next_multiple_of(self.width) * self.dim
    }

    fn len(self) -> usize {
        self.keys_len() + self.dim.next_multiple_of(self.width) * self.alive
    }

    /// `[alive, dim]` to `[tiles of keys, dim, width]`.
    fn pack_keys(self, k: &[f32], keys: &mut [f32]) {
        let tiles = keys.chunks_exact_mut(self.dim * self.width);
        for (k, tile) in k.chunks(self.width * self.dim).zip(tiles) {
            for (key, k) in k.chunks_exact(self.dim).enumerate() {
                for (value, k) in tile[key..].iter_mut().step_by(self.width).zip(k) {
                    *value = *k;
                }
            }
        }
    }

    /// `[alive, dim]` to `[tiles of the dimension, alive, width]`.
    fn pack_values(self, v: &[f32], values: &mut [f32]) {
        for (t, tile) in values.chunks_exact_mut(self.alive * self.width).enumerate() {
            let columns = t * self.width..self.dim.min((t + 1) * self.width);
            for (v, value) in v.chunks_exact(self.dim).zip(tile.chunks_exact_mut(self.width)) {
                value[..columns.len()].copy_from_slice(&v[columns.clone()]);
            }
        }
    }
}

/// One head's work for a group of rows.
struct Group<'a> {
    tiles: Tiles,
    keys: &'a [f32],
    values: &'a [f32],
    /// `[rows, dim]`.
    q: &'a [f32],
    rows: usize,
    scale: f32,
    /// `[rows, alive]`.
    blocked: Option<&'a [bool]>,
    /// `[rows, dim]`.
    out: &'a mut [f32],
}

impl WithSimd for Group<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, simd: S) {
        let stride = self.tiles.alive.next_multiple_of(self.tiles.width);
        let mut weights = self.scores(simd, stride);
        let common = self.seen_by_all();
        for (row, weights) in weights.chunks_exact_mut(stride.max(1)).enumerate() {
            self.softmax(simd, row, common, weights);
        }
        let together = self.together(stride, common, &weights);
        let totals = self.totals(stride, common, &weights, &together);
        self.weigh(simd, stride, common, &weights, &together, &totals);
    }
}

impl Group<'_> {
    /// Scaled scores, `[rows, stride]`.
    #[inline(always)]
    fn scores<S: Simd>(&self, simd: S, stride: usize) -> Vec<f32> {
        let Tiles { width, dim, .. } = self.tiles;
        let mut q = vec![0.0; self.q.len()];
        transpose(self.q, dim, &mut q);
        q.iter_mut().for_each(|q| *q *= self.scale);
        let mut scores = vec![0.0; self.rows * stride];
        for (t, tile) in self.keys.chunks_exact(width * dim).enumerate() {
            let mut sums = [0.0; MOST_ROWS * crate::tile::MOST_COLUMNS];
            let sums = &mut sums[..self.rows * width];
            group_of::<S, 2>(simd, self.rows, &q, bytemuck::cast_slice(tile), sums, Ahead::nothing());
            for (scores, sums) in scores.chunks_exact_mut(stride).zip(sums.chunks_exact(width)) {
                scores[t * width..(t + 1) * width].copy_from_slice(sums);
            }
        }
        scores
    }

    /// How many keys, from the first on, every row sees.
    fn seen_by_all(&self) -> usize {
        let first_blocked = |row: &[bool]| row.iter().position(|b| *b).unwrap_or(row.len());
        let rows = self.blocked.unwrap_or_default().chunks_exact(self.tiles.alive.max(1));
        rows.map(first_blocked).min().unwrap_or(self.tiles.alive)
    }

    /// The runs of keys from `from` on that `row` sees.
    fn runs(&self, row: usize, from: usize) -> impl Iterator<Item = std::ops::Range<usize>> {
        let alive = self.tiles.alive;
        let blocked = self.blocked.map(|b| &b[row * alive..(row + 1) * alive]);
        let mut at = from;
        std::iter::from_fn(move || {
            let is_blocked = |key: &usize| blocked.is_some_and(|b| b[*key]);
            let start = (at..alive).find(|key| !is_blocked(key))?;
            at = (start..alive).find(is_blocked).unwrap_or(alive);
            Some(start..at)
        })
    }

    /// Scores of a row to `exp(score - largest)`; blocked places hold anything afterwards.
    #[inline(always)]
    fn softmax<S: Simd>(&self, simd: S, row: usize, common: usize, scores: &mut [f32]) {
        let (vectors, rest) = S::as_simd_f32s(&scores[..common]);
        let mut largest = simd.splat_f32s(f32::NEG_INFINITY);
        for scores in vectors {
            largest = simd.max_f32s(largest, *scores);
        }
        let largest = simd.reduce_max_f32s(largest);
        let largest = rest.iter().fold(largest, |a, b| a.max(*b));
        let largest = self.runs(row, common).fold(largest, |a, run| scores[run].iter().fold(a, |a, b| a.max(*b)));
        let largest = simd.splat_f32s(largest);
        for scores in S::as_mut_simd_f32s(scores).0 {
            *scores = exp(simd, simd.sub_f32s(*scores, largest));
        }
    }

    /// The weights of the keys that all see, `[common, rows]`.
    fn together(&self, stride: usize, common: usize, weights: &[f32]) -> Vec<f32> {
        let mut together = vec![0.0; common * self.rows];
        for (row, weights) in weights.chunks_exact(stride.max(1)).enumerate() {
            for (slot, weight) in together.iter_mut().skip(row).step_by(self.rows).zip(&weights[..common]) {
                *slot = *weight;
            }
        }
        together
    }

    /// Each row's sum of weights, key after key; the rows side by side, since one sum alone waits for each addition.
    #[inline(always)]
    fn totals(&self, stride: usize, common: usize, weights: &[f32], together: &[f32]) -> [f32; MOST_ROWS] {
        let mut totals = [0.0; MOST_ROWS];
        for weights in together.chunks_exact(self.rows) {
            for (total, weight) in totals.iter_mut().zip(weights) {
                *total += weight;
            }
        }
        for (row, total) in totals[..self.rows].iter_mut().enumerate() {
            for run in self.runs(row, common) {
                for weight in &weights[row * stride..][run] {
                    *total += weight;
                }
            }
        }
        totals
    }

    /// Weighted means of the values.
    #[inline(always)]
    fn weigh<S: Simd>(
        &mut self,
        simd: S,
        stride: usize,
        common: usize,
        weights: &[f32],
        together: &[f32],
        totals: &[f32; MOST_ROWS],
    ) {
        let Tiles { width, alive, dim } = self.tiles;
        for t in 0..dim.div_ceil(width) {
            let values: &[u32] = bytemuck::cast_slice(&self.values[t * alive * width..(t + 1) * alive * width]);
            let mut sums = [0.0; MOST_ROWS * crate::tile::MOST_COLUMNS];
            let sums = &mut sums[..self.rows * width];
            group_of::<S, 2>(simd, self.rows, together, &values[..common * width], sums, Ahead::nothing());
            for (row, sums) in sums.chunks_exact_mut(width).enumerate() {
                for run in self.runs(row, common) {
                    let weights = &weights[row * stride..][run.clone()];
                    let values = &values[run.start * width..run.end * width];
                    group_of::<S, 2>(simd, 1, weights, values, sums, Ahead::nothing());
                }
                let columns = t * width..dim.min((t + 1) * width);
                let out = &mut self.out[row * dim..(row + 1) * dim][columns];
                for (out, sum) in out.iter_mut().zip(sums) {
                    // The total of a row that sees something is at least 1, its largest weight.
                    *out = if totals[row] > 0.0 { *sum / totals[row] } else { 0.0 };
                }
            }
        }
    }
}

/// `[rows, width]` to `[width, rows]`.
fn transpose(x: &[f32], width: usize, out: &mut [f32]) {
    let rows = x.len() / width;
    for (row, x) in x.chunks_exact(width).enumerate() {
        for (out, x) in out[row..].iter_mut().step_by(rows).zip(x) {
            *out = *x;
        }
    }
}
