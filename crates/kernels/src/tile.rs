//! The inner loop: a group of rows times a tile of weights.
//!
//! A tile is two vectors of outputs wide and runs over all inputs. For each input the loop loads the two vectors once
//! and multiplies them by that input of each row of the group; the sums stay in registers. Each output is the sum
//! over inputs, one after another, whatever the group's size, which is what makes a row's result independent of its neighbours.

use pulp::{Simd, WithSimd};

use crate::isa::mul_add;
use crate::linear::Storage;
use crate::rows::PackedRows;

/// The largest group of rows, with 32 vector registers: 24 sums, two of weights, one of input.
pub(crate) const MOST_ROWS: usize = 12;
/// The widest tile: two vectors of 16.
pub(crate) const MOST_COLUMNS: usize = 32;
/// Inputs taken at a time, half as many where each has two vectors of words: the piece of the tile (16 KiB at most) is still in
/// the first cache for the next group, and the next piece is asked for early enough.
const CHUNK: usize = 256;
/// How many bytes ahead a single group asks for its weights: far, into the second cache, which has room for more requests under
/// way than the first one. (Measured on SmolLM2-135M: a pass over 8 rows takes 14% less than where they are asked into the first
/// cache from 2 KiB ahead on, the best distance for that; over one row 5% less.)
const AHEAD: usize = 32 << 10;

/// Bytes that a prefetch brings.
pub(crate) const LINE: usize = 64;

/// Rows that go together, given the number of vector registers.
pub(crate) fn group_limit(registers: usize) -> usize {
    if registers >= 32 { MOST_ROWS } else { 6 }
}

/// One tile's outputs for all rows of a block.
pub(crate) struct Tile<'a> {
    pub(crate) storage: Storage,
    /// The tile's words: for each input two vectors of `f32` bits, or one vector of `bf16` pairs.
    pub(crate) words: &'a [u32],
    pub(crate) inputs: usize,
    pub(crate) rows: &'a PackedRows<'a>,
    /// `[rows, tile width]`: initial values (the bias) in, results out.
    pub(crate) sums: &'a mut [f32],
}

impl WithSimd for Tile<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        match self.storage {
            Storage::F32 => self.run::<S, 2>(simd),
            Storage::Bf16 => self.run::<S, 1>(simd),
        }
    }
}

impl Tile<'_> {
    /// `V`: vectors of words per input.
    #[inline(always)]
    fn run<S: Simd, const V: usize>(self, simd: S) {
        let width = 2 * S::F32_LANES;
        let per_input = V * S::F32_LANES;
        let groups = self.rows.groups();
        let stride = (per_input * 4).div_ceil(groups);
        for from in (0..self.inputs).step_by(CHUNK / V) {
            let to = (from + CHUNK / V).min(self.inputs);
            let piece = &self.words[from * per_input..to * per_input];
            // While one piece is at work, each of several groups asks for its share of the next one.
            let (distance, cache) = if groups == 1 { (AHEAD, Cache::Second) } else { (piece.len() * 4, Cache::First) };
            let next = piece.as_ptr().cast::<u8>().wrapping_add(distance);
            for g in 0..groups {
                let (first, size) = self.rows.group_rows(g);
                let ahead = Ahead { address: next.wrapping_add(g * stride * (to - from)), stride, cache };
                let x = self.rows.group(g, from, to);
                let sums = &mut self.sums[first * width..(first + size) * width];
                group_of::<S, V>(simd, size, x, piece, sums, ahead);
            }
        }
    }
}

/// [`group`] for a group of `size` rows.
///
/// # Panics
/// If `size` is not in 1 to [`group_limit`].
#[inline(always)]
pub(crate) fn group_of<S: Simd, const V: usize>(
    simd: S,
    size: usize,
    x: &[f32],
    piece: &[u32],
    sums: &mut [f32],
    ahead: Ahead,
) {
    match size {
        1 => group::<S, V, 1>(simd, x, piece, sums, ahead),
        2 => group::<S, V, 2>(simd, x, piece, sums, ahead),
        3 => group::<S, V, 3>(simd, x, piece, sums, ahead),
        4 => group::<S, V, 4>(simd, x, piece, sums, ahead),
        5 => group::<S, V, 5>(simd, x, piece, sums, ahead),
        6 => group::<S, V, 6>(simd, x, piece, sums, ahead),
        7 if S::REGISTER_COUNT >= 32 => group::<S, V, 7>(simd, x, piece, sums, ahead),
        8 if S::REGISTER_COUNT >= 32 => group::<S, V, 8>(simd, x, piece, sums, ahead),
        9 if S::REGISTER_COUNT >= 32 => group::<S, V, 9>(simd, x, piece, sums, ahead),
        10 if S::REGISTER_COUNT >= 32 => group::<S, V, 10>(simd, x, piece, sums, ahead),
        11 if S::REGISTER_COUNT >= 32 => group::<S, V, 11>(simd, x, piece, sums, ahead),
        12 if S::REGISTER_COUNT >= 32 => group::<S, V, 12>(simd, x, piece, sums, ahead),
        _ => unreachable!("groups have 1 to `group_limit` rows"),
    }
}

/// Memory to have in the cache soon.
#[derive(Clone, Copy)]
pub(crate) struct Ahead {
    address: *const u8,
    /// Bytes to go on for each input.
    stride: usize,
    cache: Cache,
}

impl Ahead {
    /// Nothing: it is there already.
    pub(crate) fn nothing() -> Self {
        Self { address: std::ptr::null(), stride: 0, cache: Cache::First }
    }

    #[inline(always)]
    fn step<const V: usize>(&mut self) {
        for line in 0..V {
            ask_for(self.address.wrapping_add(line * LINE), self.cache);
        }
        self.address = self.address.wrapping_add(self.stride);
    }
}

/// A cache to bring memory into.
#[derive(Clone, Copy)]
pub(crate) enum Cache {
    First,
    Second,
}

/// Asks for the line at `address`, which need not be memory: a hint.
#[inline(always)]
pub(crate) fn ask_for(address: *const u8, cache: Cache) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _MM_HINT_T1, _mm_prefetch};
        let address = address.cast();
        // SAFETY: a prefetch faults at no address, and every x86-64 has it.
        match cache {
            Cache::First => unsafe { _mm_prefetch::<_MM_HINT_T0>(address) },
            Cache::Second => unsafe { _mm_prefetch::<_MM_HINT_T1>(address) },
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (address, cache);
}

/// Adds to `sums` (`[G, 2 vectors]`) the products of `x` (`[inputs, G]`) and a piece of a tile (`[inputs, V vectors]`).
#[inline(always)]
fn group<S: Simd, const V: usize, const G: usize>(
    simd: S,
    x: &[f32],
    piece: &[u32],
    sums: &mut [f32],
    mut ahead: Ahead,
) {
    let (x, _) = x.as_chunks::<G>();
    let (weights, _) = S::as_simd_u32s(piece).0.as_chunks::<V>();
    let (sums, _) = S::as_mut_simd_f32s(sums).0.as_chunks_mut::<2>();
    let sums: &mut [[S::f32s; 2]; G] = sums.try_into().expect("two vectors of sums for each row");
    let mut local = *sums;
    for (x, words) in x.iter().zip(weights) {
        ahead.step::<V>();
        let [low, high] = unpack(simd, *words);
        for (sum, x) in local.iter_mut().zip(x) {
            let x = simd.splat_f32s(*x);
            sum[0] = mul_add(simd, x, low, sum[0]);
            sum[1] = mul_add(simd, x, high, sum[1]);
        }
    }
    *sums = local;
}

/// Two vectors of weights from two vectors of `f32` bits, or from one whose words hold a `bf16` of the first in the low and
/// one of the second in the high half (a `bf16` is the upper half of an `f32`).
#[inline(always)]
fn unpack<S: Simd, const V: usize>(simd: S, words: [S::u32s; V]) -> [S::f32s; 2] {
    let [low, high] = if V == 2 {
        [words[0], words[V - 1]]
    } else {
        [
            simd.wrapping_dyn_shl_u32s(words[0], simd.splat_u32s(16)),
            simd.and_u32s(words[0], simd.splat_u32s(0xffff_0000)),
        ]
    };
    [simd.transmute_f32s_u32s(low), simd.transmute_f32s_u32s(high)]
}
