//! Where rows go when every image of a sequence is replaced by a few tokens (ViSpec), and back again.
//!
//! An image of n rows leaves its last `tokens` rows (all of them if it has fewer): the compressed tokens take those places and
//! keep those positions, the other rows leave the sequence. Rows of text stay as they are.

use std::ops::Range;

use burn::prelude::*;
use sightdraft_target::Mask;

/// The rows of `image` that stay, ascending.
pub(crate) fn kept(image: &[Option<usize>], tokens: usize) -> Vec<usize> {
    runs(image).flat_map(|run| if image[run.start].is_some() { stay(&run, tokens) } else { run }).collect()
}

/// Maximal runs of rows of one image, or of text.
fn runs(image: &[Option<usize>]) -> impl Iterator<Item = Range<usize>> + '_ {
    image.chunk_by(|a, b| a == b).scan(0, |start, run| {
        let range = *start..*start + run.len();
        *start = range.end;
        Some(range)
    })
}

/// The rows of one image that stay.
fn stay(image: &Range<usize>, tokens: usize) -> Range<usize> {
    image.end - tokens.min(image.len())..image.end
}

/// The layout of a batch of sequences of n rows. Flattened rows are numbered `sequence * n + row`.
#[derive(Debug)]
pub(crate) struct Compression {
    /// Flattened rows of text.
    pub(crate) text: Vec<usize>,
    /// Which global feature each of `text` has: its sequence's number before the first image, then B + the latest image's
    /// index in `images`.
    pub(crate) latest: Vec<usize>,
    /// The same behind the last row of every sequence.
    pub(crate) last: Vec<usize>,
    /// Flattened rows of every image.
    pub(crate) images: Vec<Range<usize>>,
    /// How many tokens each image leaves.
    tokens: Vec<usize>,
    /// The rows of each sequence that stay.
    kept: Vec<Vec<usize>>,
    /// n.
    rows: usize,
}

impl Compression {
    /// `image` `[B][n]` tells which image a row belongs to; every image leaves at most `tokens` tokens.
    pub(crate) fn new(image: &[Vec<Option<usize>>], tokens: usize) -> Self {
        let rows = image.first().map_or(0, Vec::len);
        let (mut text, mut latest, mut images, mut left) = (vec![], vec![], vec![], vec![]);
        let mut last: Vec<usize> = (0..image.len()).collect();
        for (sequence, own) in image.iter().enumerate() {
            let flat = |run: Range<usize>| sequence * rows + run.start..sequence * rows + run.end;
            for run in runs(own) {
                if own[run.start].is_some() {
                    last[sequence] = image.len() + images.len();
                    left.push(tokens.min(run.len()));
                    images.push(flat(run));
                } else {
                    latest.extend(std::iter::repeat_n(last[sequence], run.len()));
                    text.extend(flat(run));
                }
            }
        }
        let kept = image.iter().map(|own| kept(own, tokens)).collect();
        Self { text, latest, last, images, tokens: left, kept, rows }
    }

    /// Rows of the longest sequence after compression, m.
    pub(crate) fn len(&self) -> usize {
        self.kept.iter().map(Vec::len).max().unwrap_or(0)
    }

    /// Whether all sequences stay equally long, so that none is padded.
    pub(crate) fn is_even(&self) -> bool {
        self.kept.iter().all(|kept| kept.len() == self.len())
    }

    /// The compressed batch `[B, m, H]`, of the rows of `text` `[T, H]` (None where there are none) and what the adaptor read of
    /// each of `images` (`[>= tokens, H]`, the last row the global feature, which is no token). Shorter sequences are padded at
    /// their end with rows that mean nothing. None if nothing stays at all.
    pub(crate) fn join(&self, text: Option<Tensor<2>>, read: &[Tensor<2>]) -> Option<Tensor<3>> {
        let texts = self.text.len();
        let mut parts = Vec::from_iter(text);
        for (read, &tokens) in read.iter().zip(&self.tokens).filter(|(_, tokens)| **tokens > 0) {
            parts.push(read.clone().narrow(0, read.dims()[0] - 1 - tokens, tokens));
        }
        let (width, device) = parts.first().map(|part| (part.dims()[1], part.device()))?;
        let (mut next_text, mut next_token) = (0, texts);
        let mut is_text = vec![false; self.kept.len() * self.rows];
        self.text.iter().for_each(|&row| is_text[row] = true);
        let mut sources = Vec::with_capacity(self.kept.len() * self.len());
        for (sequence, kept) in self.kept.iter().enumerate() {
            for row in kept {
                let next = if is_text[sequence * self.rows + row] { &mut next_text } else { &mut next_token };
                sources.push(*next);
                *next += 1;
            }
            sources.resize((sequence + 1) * self.len(), 0);
        }
        Some(select(Tensor::cat(parts, 0), &sources, &device).reshape([self.kept.len(), self.len(), width]))
    }

    /// Back to n rows: `[B, m, H] -> [B, n, H]`, zeros where a row left.
    pub(crate) fn spread(&self, compressed: Tensor<3>) -> Tensor<3> {
        let [batch, m, width] = compressed.dims();
        let device = compressed.device();
        let flat = compressed.reshape([batch * m, width]);
        let nothing = Tensor::zeros([1, width], (&device, flat.dtype()));
        let mut sources = vec![batch * m; batch * self.rows];
        for (sequence, kept) in self.kept.iter().enumerate() {
            for (place, row) in kept.iter().enumerate() {
                sources[sequence * self.rows + row] = sequence * m + place;
            }
        }
        select(Tensor::cat(vec![flat, nothing], 0), &sources, &device).reshape([batch, self.rows, width])
    }

    /// Positions `[B][m]` of what stayed, of `positions` `[B or 1][n]`.
    pub(crate) fn positions(&self, positions: &[Vec<usize>]) -> Vec<Vec<usize>> {
        let of = |(sequence, kept): (usize, &Vec<usize>)| {
            let all = &positions[sequence.min(positions.len() - 1)];
            let mut own: Vec<usize> = kept.iter().map(|&row| all[row]).collect();
            own.resize(self.len(), 0);
            own
        };
        self.kept.iter().enumerate().map(of).collect()
    }

    /// Who sees whom of what stayed, behind `past` cached keys.
    pub(crate) fn mask(&self, mask: &Mask, past: usize) -> Mask {
        let sees = |sequence: usize, row: usize| match mask {
            Mask::Tree(sees) => [vec![true; past], sees[row].clone()].concat(),
            Mask::Full(sees) => sees[sequence.min(sees.len() - 1)][row].clone(),
            Mask::Causal => (0..past + self.rows).map(|key| key <= past + row).collect(),
        };
        let width = past + self.len();
        let of = |(sequence, kept): (usize, &Vec<usize>)| {
            let keys = |&row: &usize| {
                let all = sees(sequence, row);
                let mut own = all[..past].to_vec();
                own.extend(kept.iter().map(|&key| all[past + key]));
                own.resize(width, false);
                own
            };
            let mut own: Vec<Vec<bool>> = kept.iter().map(keys).collect();
            own.resize(self.len(), vec![false; width]);
            own
        };
        match mask {
            // What stayed is in its old order, and padding comes last.
            Mask::Causal => Mask::Causal,
            _ => Mask::Full(self.kept.iter().enumerate().map(of).collect()),
        }
    }
}

/// Rows of a matrix by their index.
pub(crate) fn select(matrix: Tensor<2>, rows: &[usize], device: &Device) -> Tensor<2> {
    let rows: Vec<i64> = rows.iter().map(|&row| row as i64).collect();
    let count = rows.len();
    matrix.select(0, Tensor::<1, Int>::from_data(TensorData::new(rows, [count]), device))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two images of three rows and of one, without text between them, and text around.
    const IMAGE: [Option<usize>; 7] = [None, Some(0), Some(0), Some(0), Some(1), None, None];

    fn numbers<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
        tensor.into_data().iter::<f32>().collect()
    }

    /// `[values, 1]`.
    fn column(values: &[f32]) -> Tensor<2> {
        Tensor::<1>::from_floats(values, &Device::flex()).reshape([values.len(), 1])
    }

    #[test]
    fn images_side_by_side_leave_their_own_last_rows() {
        assert_eq!(kept(&IMAGE, 1), [0, 3, 4, 5, 6]);
        assert_eq!(kept(&IMAGE, 2), [0, 2, 3, 4, 5, 6]);
        assert_eq!(kept(&IMAGE, 0), [0, 5, 6]);
        assert_eq!(kept(&[], 1), [0usize; 0]);
    }

    #[test]
    fn a_batch_of_sequences_with_other_images_goes_there_and_back() {
        let batch = [IMAGE.to_vec(), vec![None; 7], [vec![None; 5], vec![Some(0); 2]].concat()];
        let compression = Compression::new(&batch, 1);
        assert_eq!(compression.images, [1..4, 4..5, 19..21]);
        assert_eq!(compression.latest, [0, 4, 4, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2]);
        assert_eq!(compression.last, [4, 1, 5]);
        assert_eq!((compression.len(), compression.is_even()), (7, false));
        let text: Vec<f32> = compression.text.iter().map(|&row| row as f32).collect();
        let read = [column(&[101.0, -1.0]), column(&[102.0, -1.0]), column(&[103.0, -1.0])];
        let joined = compression.join(Some(column(&text)), &read).expect("rows stay");
        assert_eq!(joined.dims(), [3, 7, 1]);
        let flat = numbers(joined.clone());
        assert_eq!(flat[..5], [0.0, 101.0, 102.0, 5.0, 6.0]);
        assert_eq!(flat[7..14], [7.0, 8.0, 9.0, 10.0, 11.0, 12.0, 13.0]);
        assert_eq!(flat[14..20], [14.0, 15.0, 16.0, 17.0, 18.0, 103.0]);
        let back = numbers(compression.spread(joined));
        assert_eq!(back[..7], [0.0, 0.0, 0.0, 101.0, 102.0, 5.0, 6.0]);
        assert_eq!(back[14..], [14.0, 15.0, 16.0, 17.0, 18.0, 0.0, 103.0]);
        assert_eq!(compression.positions(&[(10..17).collect()])[0], [10, 13, 14, 15, 16, 0, 0]);
    }

    #[test]
    fn a_mask_loses_the_rows_that_left_and_keeps_the_past() {
        let image = [vec![None, Some(0), Some(0), None]];
        let compression = Compression::new(&image, 1);
        // One cached key that only the last row sees; row 3 does not see row 2.
        let mut sees: Vec<Vec<bool>> =
            (0..4).map(|row| (0..5).map(|key| key > 0 && key <= row + 1).collect()).collect();
        sees[3] = vec![true, true, true, false, true];
        let Mask::Full(own) = compression.mask(&Mask::Full(vec![sees.clone()]), 1) else { panic!("full stays full") };
        assert_eq!(own, [[[false, true, false, false], [false, true, true, false], [true, true, false, true]]]);
        let tree = Mask::Tree(sees.into_iter().map(|row| row[1..].to_vec()).collect());
        let Mask::Full(own) = compression.mask(&tree, 1) else { panic!("explicit again") };
        assert_eq!(own, [[[true, true, false, false], [true, true, true, false], [true, true, false, true]]]);
    }
}
