//! The rows of a pass as its device takes them.
//!
//! A GPU compiles kernels, and tries variants of them, for the shapes that it meets. Trees and caches come in every size, so there
//! rows and keys are padded to few sizes with some that nothing sees. On the CPU a row costs what it costs, and under autodiff
//! shapes repeat: nothing is padded.

use burn::prelude::*;

use crate::linear::on_plain_cpu;
use crate::{Mask, Rope};

/// Padded rows are a power of two up to here, and multiples of it above; keys are always multiples of it.
const STEP: usize = 64;

/// What a pass knows of its rows besides their values.
#[derive(Debug, Clone)]
pub struct PassRows {
    /// cos and sin of the rows' positions, see [`Rope::angles`].
    pub angles: (Tensor<4>, Tensor<4>),
    /// What the rows must not see, see [`Mask::blocked`]; padding sees nothing and is not seen.
    pub blocked: Option<Tensor<4, Bool>>,
    /// Rows without padding.
    len: usize,
    /// Rows with padding.
    padded: usize,
}

impl PassRows {
    /// Rows at `positions` `[B or 1][n]` behind `past` cached ones.
    ///
    /// # Panics
    /// Rows of `positions` of different lengths, a mask of another size.
    pub fn new(rope: &Rope, positions: &[Vec<usize>], mask: &Mask, past: usize, device: &Device) -> Self {
        let len = positions.first().map_or(0, Vec::len);
        let padded = padded_rows(len, device);
        let blocked = mask.blocked_padded([len, past], [padded, padded_keys(past + padded, device)], device);
        let angles = if padded == len {
            rope.angles(positions, device)
        } else {
            let grown = |row: &Vec<usize>| row.iter().copied().chain(std::iter::repeat_n(0, padded - len)).collect();
            rope.angles(&positions.iter().map(grown).collect::<Vec<_>>(), device)
        };
        Self { angles, blocked, len, padded }
    }

    /// Rows without padding.
    pub fn count(&self) -> usize {
        self.len
    }

    /// Values of the rows, `[B, n, width]`, with padding of zeros; as they are if they have it already.
    pub fn pad(&self, x: Tensor<3>) -> Tensor<3> {
        pad(x, self.padded)
    }

    /// What goes with each row of `[B][n]`; nothing goes with padding.
    pub fn pad_marks(&self, marks: &[Vec<Option<usize>>]) -> Vec<Vec<Option<usize>>> {
        marks.iter().map(|row| [row.as_slice(), &vec![None; self.padded - self.len]].concat()).collect()
    }

    /// Without the padding: `[B, n, width]`.
    pub fn cut(&self, x: Tensor<3>) -> Tensor<3> {
        cut(x, self.len)
    }
}

/// `f` of `x` `[B, n, ..]`, row by row, with `n` padded where the device wants few shapes.
pub fn with_few_shapes(x: Tensor<3>, f: impl FnOnce(Tensor<3>) -> Tensor<3>) -> Tensor<3> {
    let n = x.dims()[1];
    let padded = padded_rows(n, &x.device());
    cut(f(pad(x, padded)), n)
}

fn pad(x: Tensor<3>, padded: usize) -> Tensor<3> {
    let [batch, n, width] = x.dims();
    if n == padded {
        return x;
    }
    let nothing = Tensor::zeros([batch, padded - n, width], (&x.device(), x.dtype()));
    Tensor::cat(vec![x, nothing], 1)
}

fn cut(x: Tensor<3>, n: usize) -> Tensor<3> {
    if x.dims()[1] == n { x } else { x.narrow(1, 0, n) }
}

/// Rows of a pass of `n` rows on `device`.
fn padded_rows(n: usize, device: &Device) -> usize {
    if as_it_comes(device) { n } else { bucket(n) }
}

/// The next of 1, 2, 4, .. 64, 128, 192, ..
fn bucket(n: usize) -> usize {
    if n < STEP { n.next_power_of_two() } else { n.next_multiple_of(STEP) }
}

/// Keys that `n` keys are read as on `device`.
pub(crate) fn padded_keys(n: usize, device: &Device) -> usize {
    if as_it_comes(device) { n } else { n.next_multiple_of(STEP) }
}

fn as_it_comes(device: &Device) -> bool {
    device.is_autodiff() || on_plain_cpu(device)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passes_of_up_to_sixty_four_rows_have_seven_shapes() {
        let mut sizes: Vec<usize> = (1..=64).map(bucket).collect();
        sizes.dedup();
        assert_eq!(sizes, [1, 2, 4, 8, 16, 32, 64]);
        assert_eq!([65, 128, 129].map(bucket), [128, 128, 192]);
    }

    #[test]
    fn the_cpu_takes_rows_and_keys_as_they_come() {
        let device = Device::flex();
        for n in [1, 3, 70] {
            assert_eq!((padded_rows(n, &device), padded_keys(n, &device)), (n, n));
            assert_eq!(padded_rows(n, &device.clone().autodiff()), n);
        }
    }

    #[test]
    fn padding_comes_behind_and_goes_again() {
        let x = Tensor::<1>::from_floats([1.0, 2.0, 3.0, 4.0, 5.0, 6.0], &Device::flex()).reshape([1, 3, 2]);
        let padded = pad(x.clone(), 4);
        assert_eq!(padded.dims(), [1, 4, 2]);
        assert_eq!(padded.clone().narrow(1, 3, 1).into_data().iter::<f32>().collect::<Vec<_>>(), [0.0, 0.0]);
        cut(padded, 3).into_data().assert_eq(&x.into_data(), true);
    }
}
