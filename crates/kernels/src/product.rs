//! The product of two matrices with many rows, as training needs it: nothing is packed ahead, either may be transposed.
//!
//! It runs on the same inner loop as [`PackedLinear`](crate::PackedLinear): the left matrix is packed into groups of rows once,
//! and each task packs the tiles of the right matrix that it multiplies.

use std::mem::MaybeUninit;

use crate::isa::Isa;
use crate::linear::{Columns, ROWS_PER_READ, Storage};
use crate::pool;
use crate::rows::{PackedRows, interleave};
use crate::tile::{Tile, group_limit};

/// A matrix in memory, read as it lies or as its transpose.
#[derive(Clone, Copy, Debug)]
pub struct Matrix<'a> {
    values: &'a [f32],
    rows: usize,
    columns: usize,
    transposed: bool,
}

impl<'a> Matrix<'a> {
    /// `values` are `[rows, columns]`, row-major.
    ///
    /// # Panics
    /// If there are not `rows * columns` values.
    pub fn new(values: &'a [f32], rows: usize, columns: usize) -> Self {
        assert_eq!(values.len(), rows * columns, "matrix: expected {rows} x {columns} values");
        Self { values, rows, columns, transposed: false }
    }

    /// The transpose, without moving a value.
    pub fn transpose(self) -> Self {
        Self { rows: self.columns, columns: self.rows, transposed: !self.transposed, ..self }
    }

    pub(crate) fn rows(&self) -> usize {
        self.rows
    }

    pub(crate) fn columns(&self) -> usize {
        self.columns
    }

    /// Packs rows `first..first + size` as a group, neighbours together: `[columns, size]`.
    fn pack_group(&self, first: usize, size: usize, group: &mut [f32]) {
        if self.transposed {
            for (neighbours, source) in group.chunks_exact_mut(size).zip(self.values.chunks_exact(self.rows)) {
                neighbours.copy_from_slice(&source[first..first + size]);
            }
        } else {
            interleave(&self.values[first * self.columns..(first + size) * self.columns], self.columns, group, size);
        }
    }

    /// Packs columns from `first` on into tiles of `width`, `[tiles, rows, width]`, zeros behind the last column. Several tiles
    /// at once, because a row of the matrix is then read in longer pieces.
    fn pack_tiles(&self, first: usize, width: usize, tiles: &mut [f32]) {
        let count = (self.columns - first).min(tiles.len() / self.rows);
        if count * self.rows < tiles.len() {
            tiles.fill(0.0);
        }
        let tiles = tiles.chunks_exact_mut(self.rows * width);
        if self.transposed {
            for (t, tile) in tiles.enumerate() {
                let from = first + t * width;
                let to = (from + width).min(self.columns);
                interleave(&self.values[from * self.rows..to * self.rows], self.rows, tile, width);
            }
        } else {
            let mut tiles: Vec<_> = tiles.map(|tile| tile.chunks_exact_mut(width)).collect();
            for source in self.values.chunks_exact(self.columns) {
                let pieces = source[first..first + count].chunks(width);
                for (place, piece) in tiles.iter_mut().filter_map(Iterator::next).zip(pieces) {
                    place[..piece.len()].copy_from_slice(piece);
                }
            }
        }
    }
}

/// `out = a b`, on all cores. As in [`PackedLinear`](crate::PackedLinear) each result is summed in one fixed order.
///
/// # Shapes
/// - a: `[m, k]`; b: `[k, n]`
/// - out: `[m, n]`, row-major; written in every place
///
/// # Panics
/// If the shapes do not fit each other.
pub fn multiply(a: Matrix<'_>, b: Matrix<'_>, out: &mut [MaybeUninit<f32>]) {
    assert_eq!(a.columns, b.rows, "product: expected the right matrix to have {} rows", a.columns);
    assert_eq!(out.len(), a.rows * b.columns, "out: expected {} x {} values", a.rows, b.columns);
    if a.columns == 0 || out.is_empty() {
        out.fill(MaybeUninit::new(0.0));
        return;
    }
    let isa = Isa::detect();
    let (lanes, registers) = isa.shape();
    let (width, inputs) = (2 * lanes, a.columns);
    let mut scratch = vec![0.0; a.values.len()];
    let rows = PackedRows::fill(a.rows, inputs, group_limit(registers), &mut scratch, |first, size, group| {
        a.pack_group(first, size, group)
    });
    let tiles = b.columns.div_ceil(width);
    let values = b.values.len() * a.rows.div_ceil(ROWS_PER_READ);
    let run = tiles.div_ceil(pool::threads_for(values) * TASKS_PER_THREAD);
    let columns = Columns::new(out, a.rows, b.columns);
    let together = (PACKED / (inputs * width)).clamp(1, run);
    let each = a.rows * width;
    let beside = (SUMS / each).clamp(1, together);
    pool::for_each(values, tiles.div_ceil(run), &|task| {
        let mut packed = vec![0.0; together * inputs * width];
        let mut sums = vec![0.0; beside * each];
        let end = ((task + 1) * run).min(tiles);
        for first in (task * run..end).step_by(together) {
            let packed = &mut packed[..together.min(end - first) * inputs * width];
            b.pack_tiles(first * width, width, packed);
            for (t, words) in packed.chunks(beside * inputs * width).enumerate() {
                let words = words.chunks_exact(inputs * width);
                let sums = &mut sums[..words.len() * each];
                sums.fill(0.0);
                for (words, sums) in words.zip(sums.chunks_exact_mut(each)) {
                    let words = bytemuck::cast_slice(words);
                    isa.dispatch(Tile { storage: Storage::F32, words, inputs, rows: &rows, sums });
                }
                // SAFETY: each tile has its own columns, and each tile is in one task.
                unsafe { columns.write_beside((first + t * beside) * width, sums, width) };
            }
        }
    });
}

/// Values that a task packs at a time: half a megabyte, which stays in the second cache.
const PACKED: usize = 1 << 17;

/// Sums that a task holds before it writes them: the tiles beside each other go to a row of the result in one piece.
const SUMS: usize = 1 << 16;

/// Enough tasks that a core which is disturbed does not hold up the others, few enough that a task's scratch pays.
const TASKS_PER_THREAD: usize = 4;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::linear::as_uninit;

    fn values(n: usize, seed: usize) -> Vec<f32> {
        (0..n).map(|i| ((i * 2_654_435_761 + seed * 40_503) % 2001) as f32 / 1000.0 - 1.0).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(60))]
        #[test]
        fn products_of_any_shape_are_those_of_the_definition(
            m in 1usize..70, k in 1usize..300, n in 1usize..90, flip_a: bool, flip_b: bool,
        ) {
            let (x, w) = (values(m * k, 1), values(k * n, 2));
            let a = if flip_a { Matrix::new(&x, k, m).transpose() } else { Matrix::new(&x, m, k) };
            let b = if flip_b { Matrix::new(&w, n, k).transpose() } else { Matrix::new(&w, k, n) };
            let at = |row: usize, i: usize| if flip_a { x[i * m + row] } else { x[row * k + i] };
            let bt = |i: usize, column: usize| if flip_b { w[column * k + i] } else { w[i * n + column] };
            let mut out = vec![f32::NAN; m * n];
            multiply(a, b, as_uninit(&mut out));
            for row in 0..m {
                for column in 0..n {
                    let exact: f64 = (0..k).map(|i| f64::from(at(row, i)) * f64::from(bt(i, column))).sum();
                    prop_assert!((f64::from(out[row * n + column]) - exact).abs() < 1e-5 * k as f64);
                }
            }
        }
    }

    #[test]
    fn nothing_to_sum_gives_zeros() {
        let mut out = [1.0; 6];
        multiply(Matrix::new(&[], 2, 0), Matrix::new(&[], 0, 3), as_uninit(&mut out));
        assert_eq!(out, [0.0; 6]);
    }
}
