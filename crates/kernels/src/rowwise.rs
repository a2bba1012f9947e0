//! What a decoder does between its matrix products: row by row, so that a row's bits do not depend on its neighbours.

use pulp::{Simd, WithSimd};

use crate::exp::exp;
use crate::isa::{Isa, mul_add};
use crate::pool;

/// Values below which one core does it all: sharing them out would cost more.
const SMALL: usize = 1 << 14;

/// `out = x / sqrt(mean(x^2) + epsilon) * gamma`, row by row (RMS norm, Zhang and Sennrich 2019).
///
/// # Shapes
/// - x, out: `[rows, gamma.len()]`
///
/// # Panics
/// If the lengths do not fit.
pub fn rms_norm(x: &[f32], gamma: &[f32], epsilon: f32, out: &mut [f32]) {
    let width = gamma.len();
    assert_eq!(x.len(), out.len(), "out: expected as many values as x");
    assert!(width > 0 && x.len().is_multiple_of(width), "x: expected rows of {width}");
    let isa = Isa::detect();
    in_blocks(out, width, &|first, out| {
        let x = &x[first..first + out.len()];
        isa.dispatch(RmsNorm { x, gamma, epsilon, out });
    });
}

/// `gate = silu(gate) * up` (SwiGLU without its products, Shazeer 2020).
///
/// # Panics
/// If the lengths differ.
pub fn swiglu(gate: &mut [f32], up: &[f32]) {
    assert_eq!(gate.len(), up.len(), "up: expected as many values as gate");
    let isa = Isa::detect();
    // A multiple of every vector's length.
    in_blocks(gate, 64, &|first, gate| {
        let up = &up[first..first + gate.len()];
        isa.dispatch(SwiGlu { gate, up });
    });
}

/// Rotates vectors of `dim` values in place, dimension `i` together with `i + dim / 2` (Su et al. 2021).
///
/// # Shapes
/// - x: `[rows, heads, dim]`
/// - cos, sin: `[rows, dim]`, or one sequence's for all of them
///
/// # Panics
/// If the lengths do not fit.
pub fn rotate(x: &mut [f32], heads: usize, dim: usize, cos: &[f32], sin: &[f32]) {
    assert!(
        cos.len() == sin.len() && !cos.is_empty() && cos.len().is_multiple_of(dim),
        "cos, sin: expected rows of {dim}"
    );
    assert!(x.len().is_multiple_of(heads * cos.len()), "x: expected {heads} vectors of {dim} for each angle");
    let isa = Isa::detect();
    let angles = cos.len() / dim;
    in_blocks(x, heads * dim, &|first, x| {
        for (row, x) in x.chunks_exact_mut(heads * dim).enumerate() {
            let at = (first / (heads * dim) + row) % angles * dim;
            isa.dispatch(Rotate { x, dim, cos: &cos[at..at + dim], sin: &sin[at..at + dim] });
        }
    });
}

/// Logits to log-probabilities, in place.
///
/// # Shapes
/// - logits: `[rows, width]`
///
/// # Panics
/// If the length does not fit.
pub fn log_softmax(logits: &mut [f32], width: usize) {
    assert!(width > 0 && logits.len().is_multiple_of(width), "logits: expected rows of {width}");
    let isa = Isa::detect();
    in_blocks(logits, width, &|_, logits| {
        logits.chunks_exact_mut(width).for_each(|row| isa.dispatch(LogSoftmax(row)));
    });
}

/// The place of each row's largest value, the first of equals.
///
/// # Shapes
/// - values: `[rows, width]`
///
/// # Panics
/// If the length does not fit.
pub fn argmax(values: &[f32], width: usize) -> Vec<usize> {
    assert!(width > 0 && values.len().is_multiple_of(width), "values: expected rows of {width}");
    let isa = Isa::detect();
    let mut best = vec![0; values.len() / width];
    let each = (SMALL / width).max(1);
    pool::share_out(best.chunks_mut(each).zip(values.chunks(each * width)), |(best, values)| {
        for (best, row) in best.iter_mut().zip(values.chunks_exact(width)) {
            let largest = isa.dispatch(Largest(row));
            *best = row.iter().position(|value| *value == largest).unwrap_or(0);
        }
    });
    best
}

/// `work(first, block)` for blocks of whole rows, `first` being the place of the block's first value.
pub(crate) fn in_blocks(values: &mut [f32], width: usize, work: &(dyn Fn(usize, &mut [f32]) + Sync)) {
    if values.len() <= SMALL {
        return work(0, values);
    }
    let block = (SMALL / 2).next_multiple_of(width);
    pool::share_out(values.chunks_mut(block).enumerate(), |(i, values)| work(i * block, values));
}

struct RmsNorm<'a> {
    x: &'a [f32],
    gamma: &'a [f32],
    epsilon: f32,
    out: &'a mut [f32],
}

impl WithSimd for RmsNorm<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let width = self.gamma.len();
        for (x, out) in self.x.chunks_exact(width).zip(self.out.chunks_exact_mut(width)) {
            let (vectors, rest) = S::as_simd_f32s(x);
            let (fours, ones) = vectors.as_chunks::<4>();
            let mut sums = [simd.splat_f32s(0.0); 4];
            for four in fours {
                for (sum, x) in sums.iter_mut().zip(four) {
                    *sum = mul_add(simd, *x, *x, *sum);
                }
            }
            for x in ones {
                sums[0] = mul_add(simd, *x, *x, sums[0]);
            }
            let sums = simd.add_f32s(simd.add_f32s(sums[0], sums[1]), simd.add_f32s(sums[2], sums[3]));
            let square = rest.iter().fold(simd.reduce_sum_f32s(sums), |sum, x| sum + x * x);
            let scale = (square / width as f32 + self.epsilon).sqrt().recip();
            for ((out, x), gamma) in out.iter_mut().zip(x).zip(self.gamma) {
                *out = x * scale * gamma;
            }
        }
    }
}

struct SwiGlu<'a> {
    gate: &'a mut [f32],
    up: &'a [f32],
}

impl WithSimd for SwiGlu<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let (gates, gates_rest) = S::as_mut_simd_f32s(self.gate);
        let (ups, ups_rest) = S::as_simd_f32s(self.up);
        for (gate, up) in gates.iter_mut().zip(ups) {
            *gate = simd.mul_f32s(silu(simd, *gate), *up);
        }
        // The rest in one more vector, so that a value's bits do not depend on its place.
        let (mut gate, mut up) = (simd.splat_f32s(0.0), simd.splat_f32s(0.0));
        let lanes: &mut [f32] = bytemuck::cast_slice_mut(std::slice::from_mut(&mut gate));
        lanes[..gates_rest.len()].copy_from_slice(gates_rest);
        let lanes: &mut [f32] = bytemuck::cast_slice_mut(std::slice::from_mut(&mut up));
        lanes[..ups_rest.len()].copy_from_slice(ups_rest);
        let product = [simd.mul_f32s(silu(simd, gate), up)];
        gates_rest.copy_from_slice(&bytemuck::cast_slice(&product)[..ups_rest.len()]);
    }
}

/// `out = scale * (exp(x - value) - out)`: with `log sum exp x` as `value`, how that, less the sum of `out x`, grows with a row `x`.
pub(crate) struct ShareLess<'a> {
    pub(crate) x: &'a [f32],
    pub(crate) value: f32,
    pub(crate) scale: f32,
    pub(crate) out: &'a mut [f32],
}

impl WithSimd for ShareLess<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let (shift, scale) = (simd.splat_f32s(self.value), simd.splat_f32s(self.scale));
        let ((xs, x_rest), (outs, out_rest)) = (S::as_simd_f32s(self.x), S::as_mut_simd_f32s(self.out));
        for (out, x) in outs.iter_mut().zip(xs) {
            *out = simd.mul_f32s(scale, simd.sub_f32s(exp(simd, simd.sub_f32s(*x, shift)), *out));
        }
        for (out, x) in out_rest.iter_mut().zip(x_rest) {
            *out = self.scale * ((x - self.value).exp() - *out);
        }
    }
}

/// The gradient of [`RmsNorm`]'s rows, see `between.rs`.
pub(crate) struct RmsNormGrad<'a> {
    pub(crate) x: &'a [f32],
    pub(crate) gamma: &'a [f32],
    pub(crate) dy: &'a [f32],
    pub(crate) epsilon: f32,
    pub(crate) dx: &'a mut [f32],
}

impl WithSimd for RmsNormGrad<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let width = self.gamma.len();
        let rows = self.x.chunks_exact(width).zip(self.dy.chunks_exact(width));
        for ((x, dy), dx) in rows.zip(self.dx.chunks_exact_mut(width)) {
            for ((dx, dy), gamma) in dx.iter_mut().zip(dy).zip(self.gamma) {
                *dx = dy * gamma;
            }
            let scale = (dot(x, x) / width as f32 + self.epsilon).sqrt().recip();
            let along = dot(x, dx) / width as f32 * scale * scale;
            for (dx, x) in dx.iter_mut().zip(x) {
                *dx = scale * (*dx - along * x);
            }
        }
    }
}

/// The sum of products, in as many partial sums as a compiler needs to use vectors.
#[inline(always)]
pub(crate) fn dot(a: &[f32], b: &[f32]) -> f32 {
    const LANES: usize = 32;
    let ((a, a_rest), (b, b_rest)) = (a.as_chunks::<LANES>(), b.as_chunks::<LANES>());
    let mut sums = [0.0; LANES];
    for (a, b) in a.iter().zip(b) {
        for lane in 0..LANES {
            sums[lane] += a[lane] * b[lane];
        }
    }
    sums.iter().sum::<f32>() + a_rest.iter().zip(b_rest).map(|(a, b)| a * b).sum::<f32>()
}

/// The gate's share of the gradient of [`SwiGlu`], see `between.rs`.
pub(crate) struct GateGrad<'a> {
    pub(crate) gate: &'a [f32],
    pub(crate) up: &'a [f32],
    pub(crate) dy: &'a [f32],
    pub(crate) out: &'a mut [f32],
}

impl WithSimd for GateGrad<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let one = simd.splat_f32s(1.0);
        let (outs, out_rest) = S::as_mut_simd_f32s(self.out);
        let ((gates, gate_rest), (ups, up_rest)) = (S::as_simd_f32s(self.gate), S::as_simd_f32s(self.up));
        let (dys, dy_rest) = S::as_simd_f32s(self.dy);
        for (((out, gate), up), dy) in outs.iter_mut().zip(gates).zip(ups).zip(dys) {
            let share = sigmoid(simd, *gate);
            let slope = mul_add(simd, *gate, simd.sub_f32s(one, share), one);
            *out = simd.mul_f32s(simd.mul_f32s(*dy, *up), simd.mul_f32s(share, slope));
        }
        for (((out, gate), up), dy) in out_rest.iter_mut().zip(gate_rest).zip(up_rest).zip(dy_rest) {
            let share = (1.0 + (-gate).exp()).recip();
            *out = dy * up * share * (1.0 + gate * (1.0 - share));
        }
    }
}

/// `exp(-|x|)`, which never overflows.
#[inline(always)]
fn small_exp<S: Simd>(simd: S, x: S::f32s) -> S::f32s {
    // Not by `abs_f32s`, which is compiled without the vector instructions.
    exp(simd, simd.min_f32s(x, simd.neg_f32s(x)))
}

/// `1 / (1 + exp(-x))`.
#[inline(always)]
fn sigmoid<S: Simd>(simd: S, x: S::f32s) -> S::f32s {
    let small = small_exp(simd, x);
    let one = simd.splat_f32s(1.0);
    let positive = simd.greater_than_or_equal_f32s(x, simd.splat_f32s(0.0));
    simd.div_f32s(simd.select_f32s(positive, one, small), simd.add_f32s(one, small))
}

/// `x / (1 + exp(-x))`.
#[inline(always)]
fn silu<S: Simd>(simd: S, x: S::f32s) -> S::f32s {
    let small = small_exp(simd, x);
    let one = simd.splat_f32s(1.0);
    let positive = simd.greater_than_or_equal_f32s(x, simd.splat_f32s(0.0));
    let above = simd.select_f32s(positive, x, simd.mul_f32s(x, small));
    simd.div_f32s(above, simd.add_f32s(one, small))
}

struct Rotate<'a> {
    x: &'a mut [f32],
    dim: usize,
    cos: &'a [f32],
    sin: &'a [f32],
}

impl WithSimd for Rotate<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let half = self.dim / 2;
        for vector in self.x.chunks_exact_mut(self.dim) {
            let (low, high) = vector.split_at_mut(half);
            for (((low, high), cos), sin) in low.iter_mut().zip(high).zip(self.cos).zip(self.sin) {
                (*low, *high) = (*low * cos - *high * sin, *high * cos + *low * sin);
            }
        }
    }
}

struct LogSoftmax<'a>(&'a mut [f32]);

impl WithSimd for LogSoftmax<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let shift = LogSumExp(self.0).with_simd(simd);
        self.0.iter_mut().for_each(|x| *x -= shift);
    }
}

/// `log sum exp` of one row.
pub(crate) struct LogSumExp<'a>(pub(crate) &'a [f32]);

impl WithSimd for LogSumExp<'_> {
    type Output = f32;

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> f32 {
        let largest = Largest(self.0).with_simd(simd);
        let (vectors, rest) = S::as_simd_f32s(self.0);
        let mut sums = simd.splat_f32s(0.0);
        for x in vectors {
            sums = simd.add_f32s(sums, exp(simd, simd.sub_f32s(*x, simd.splat_f32s(largest))));
        }
        let sum = rest.iter().fold(simd.reduce_sum_f32s(sums), |sum, x| sum + (x - largest).exp());
        largest + sum.ln()
    }
}

struct Largest<'a>(&'a [f32]);

impl WithSimd for Largest<'_> {
    type Output = f32;

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> f32 {
        let (vectors, rest) = S::as_simd_f32s(self.0);
        let (fours, ones) = vectors.as_chunks::<4>();
        let mut largest = [simd.splat_f32s(f32::NEG_INFINITY); 4];
        for four in fours {
            for (largest, x) in largest.iter_mut().zip(four) {
                *largest = simd.max_f32s(*largest, *x);
            }
        }
        for x in ones {
            largest[0] = simd.max_f32s(largest[0], *x);
        }
        let [a, b, c, d] = largest;
        let largest = simd.reduce_max_f32s(simd.max_f32s(simd.max_f32s(a, b), simd.max_f32s(c, d)));
        rest.iter().fold(largest, |a, b| a.max(*b))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values in -2..2, the same for the same seed.
    fn noise(len: usize, seed: u32) -> Vec<f32> {
        let mut state = seed;
        let next = |_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as f32 / (1 << 22) as f32 - 2.0
        };
        (0..len).map(next).collect()
    }

    fn close(found: &[f32], expected: impl Iterator<Item = f64>) {
        for (i, (found, expected)) in found.iter().zip(expected).enumerate() {
            assert!((f64::from(*found) - expected).abs() < 2e-6 * expected.abs().max(1.0), "{i}: {found}, {expected}");
        }
    }

    #[test]
    fn norms_are_right_and_rows_do_not_touch() {
        for width in [3, 64, 100] {
            let (x, gamma) = (noise(width * 400, 1), noise(width, 2));
            let mut out = vec![0.0; x.len()];
            rms_norm(&x, &gamma, 1e-5, &mut out);
            for (row, (x, out)) in x.chunks(width).zip(out.chunks(width)).enumerate() {
                let square: f64 = x.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>() / width as f64;
                let scale = 1.0 / (square + 1e-5).sqrt();
                close(out, x.iter().zip(&gamma).map(|(x, g)| f64::from(*x) * scale * f64::from(*g)));
                let mut alone = vec![0.0; width];
                rms_norm(x, &gamma, 1e-5, &mut alone);
                assert_eq!(alone, out, "row {row}");
            }
        }
    }

    #[test]
    fn swiglu_is_right_for_large_and_small_gates() {
        let mut gate = noise(20_003, 3);
        [(0, 90.0), (1, -90.0), (2, 0.0)].iter().for_each(|(i, value)| gate[*i] = *value);
        let up = noise(gate.len(), 4);
        let expected: Vec<f64> =
            gate.iter().zip(&up).map(|(g, u)| f64::from(*g) / (1.0 + (-f64::from(*g)).exp()) * f64::from(*u)).collect();
        let mut alone = gate[20_001..].to_vec();
        swiglu(&mut alone, &up[20_001..]);
        swiglu(&mut gate, &up);
        assert_eq!(alone, gate[20_001..]);
        close(&gate, expected.into_iter());
    }

    #[test]
    fn rotation_turns_pairs_by_their_row_angles() {
        // Two sequences of two rows of one head, pairs (0, 2) and (1, 3), one set of angles for both.
        let mut x: Vec<f32> = [1.0, 2.0, 3.0, 4.0].repeat(4);
        let angles = [0.0f32, 0.0, 0.0, 0.0, 1.0, 0.5, 1.0, 0.5];
        let (cos, sin): (Vec<f32>, Vec<f32>) = angles.iter().map(|a| (a.cos(), a.sin())).unzip();
        rotate(&mut x, 1, 4, &cos, &sin);
        assert_eq!(x[..4], [1.0, 2.0, 3.0, 4.0]);
        let (s, c) = 1f64.sin_cos();
        close(&x[4..5], [c - 3.0 * s].into_iter());
        close(&x[6..7], [3.0 * c + s].into_iter());
        assert_eq!(x[..8], x[8..]);
    }

    #[test]
    fn log_probabilities_sum_to_one_and_the_first_largest_wins() {
        let mut logits = noise(3 * 9_001, 5);
        [4_000, 4_001, 9_000].iter().for_each(|i| logits[*i] = 7.5);
        logits[2 * 9_001] = 9.0;
        let best = argmax(&logits, 9_001);
        assert_eq!([best[0], best[2]], [4_000, 0]);
        let before = logits.clone();
        log_softmax(&mut logits, 9_001);
        for (before, row) in before.chunks(9_001).zip(logits.chunks(9_001)) {
            let sum: f64 = row.iter().map(|x| f64::from(*x).exp()).sum();
            assert!((sum - 1.0).abs() < 1e-5, "{sum}");
            assert!((before[7] - before[8] - (row[7] - row[8])).abs() < 1e-5);
        }
    }
}
