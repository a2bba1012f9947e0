//! Bicubic resampling as PIL does it, bit for bit: a separable filter (a = -0.5) widened by the scale when shrinking,
//! 22-bit fixed-point weights, rounding to bytes after the horizontal pass and again after the vertical one.
//!
//! Horizontal first is the order of Pillow 11.0 and of the fixtures, to which the bytes are equal. Pillow 13.0
//! takes the vertical pass first for some tall images; as bytes are rounded in between, its result then differs a little (by
//! up to 2 on a smooth image of 31 x 900, more on noise).

use std::ops::Range;

use crate::Image;

/// Bits behind the point of a weight: 32, less 8 for the byte and 2 for overshoot.
const PRECISION: u32 = 22;
/// One half of a byte's unit: sums start there, so that dropping the fraction rounds.
const HALF: i32 = 1 << (PRECISION - 1);

/// An image on a plain background, which is never stored: an image of 10 x 100000 on a square would need 30 GB.
#[derive(Debug, Clone, Copy)]
pub struct Canvas<'a> {
    /// The image.
    pub image: &'a Image,
    /// Width of the canvas.
    pub width: usize,
    /// Height of the canvas.
    pub height: usize,
    /// Columns of background left of the image.
    pub left: usize,
    /// Rows of background above the image.
    pub top: usize,
    /// The background.
    pub fill: [u8; 3],
}

impl<'a> Canvas<'a> {
    /// The image without a margin.
    pub fn bare(image: &'a Image) -> Self {
        Self { image, width: image.width, height: image.height, left: 0, top: 0, fill: [0; 3] }
    }

    /// The image in the middle of the smallest square that holds it.
    pub fn square(image: &'a Image, fill: [u8; 3]) -> Self {
        let side = image.width.max(image.height);
        Self { image, width: side, height: side, left: (side - image.width) / 2, top: (side - image.height) / 2, fill }
    }

    /// The image's own bytes in row `y` of the canvas.
    fn row(&self, y: usize) -> Option<&'a [u8]> {
        let y = y.checked_sub(self.top).filter(|y| *y < self.image.height)?;
        let bytes = self.image.width * 3;
        Some(&self.image.rgb[y * bytes..][..bytes])
    }
}

/// Resizes `canvas` to `width` x `height` and returns the columns `x` and rows `y` of the result,
/// `[y.len()][x.len()][3]`. Only what the window needs is computed.
///
/// # Panics
/// If the window reaches outside the result.
pub fn bicubic(canvas: &Canvas, width: usize, height: usize, x: Range<usize>, y: Range<usize>) -> Vec<u8> {
    assert!(x.end <= width && y.end <= height, "the window lies inside the resized image");
    if x.is_empty() || y.is_empty() {
        return Vec::new();
    }
    let columns: Vec<Taps> = x.map(|x| Taps::new(canvas.width, width, x)).collect();
    let rows: Vec<Taps> = y.map(|y| Taps::new(canvas.height, height, y)).collect();
    let first = rows.iter().map(|taps| taps.first).min().unwrap_or(0);
    let last = rows.iter().map(|taps| taps.first + taps.weights.len()).max().unwrap_or(0);
    let narrow = horizontal(canvas, first..last, &columns);
    vertical(&narrow, columns.len() * 3, first, &rows)
}

/// The canvas rows `rows`, each resampled to `columns`.
fn horizontal(canvas: &Canvas, rows: Range<usize>, columns: &[Taps]) -> Vec<u8> {
    let inside = canvas.left..canvas.left + canvas.image.width;
    let columns: Vec<(usize, &[i32], [i32; 3])> = columns
        .iter()
        .map(|taps| {
            let (first, weights) = taps.within(&inside);
            let margin = taps.weights.iter().sum::<i32>() - weights.iter().sum::<i32>();
            (first - canvas.left, weights, canvas.fill.map(|byte| HALF + i32::from(byte) * margin))
        })
        .collect();
    let mut out = Vec::with_capacity(rows.len() * columns.len() * 3);
    for y in rows {
        let Some(row) = canvas.row(y) else {
            // The weights of a pixel sum to one within half a unit each, too little to move a constant byte.
            out.extend(columns.iter().flat_map(|_| canvas.fill));
            continue;
        };
        for (first, weights, start) in &columns {
            let mut sums = *start;
            for (pixel, weight) in row[first * 3..].chunks_exact(3).zip(*weights) {
                for (sum, byte) in sums.iter_mut().zip(pixel) {
                    *sum += i32::from(*byte) * weight;
                }
            }
            out.extend(sums.map(to_byte));
        }
    }
    out
}

/// Resamples rows of `stride` bytes, the first of which is canvas row `first`, to `rows`.
fn vertical(narrow: &[u8], stride: usize, first: usize, rows: &[Taps]) -> Vec<u8> {
    let mut out = Vec::with_capacity(rows.len() * stride);
    let mut sums = vec![0i32; stride];
    for taps in rows {
        sums.fill(HALF);
        for (row, weight) in narrow[(taps.first - first) * stride..].chunks_exact(stride).zip(&taps.weights) {
            for (sum, byte) in sums.iter_mut().zip(row) {
                *sum += i32::from(*byte) * weight;
            }
        }
        out.extend(sums.iter().copied().map(to_byte));
    }
    out
}

/// Drops the fraction and clips.
fn to_byte(sum: i32) -> u8 {
    (sum >> PRECISION).clamp(0, 255) as u8
}

/// The source pixels that one result pixel is made of.
#[derive(Debug)]
struct Taps {
    first: usize,
    weights: Vec<i32>,
}

impl Taps {
    /// Weights of result pixel `at` when `from` pixels become `to`. The arithmetic follows PIL's in order and type: the
    /// roundings are part of the result.
    fn new(from: usize, to: usize, at: usize) -> Self {
        let scale = from as f64 / to as f64;
        let widen = scale.max(1.0);
        let support = 2.0 * widen;
        let center = (at as f64 + 0.5) * scale;
        let first = (center - support + 0.5).max(0.0) as usize;
        let end = ((center + support + 0.5) as usize).min(from);
        let mut weights: Vec<f64> = (first..end).map(|x| kernel((x as f64 - center + 0.5) * (1.0 / widen))).collect();
        let sum: f64 = weights.iter().sum();
        if sum != 0.0 {
            weights.iter_mut().for_each(|w| *w /= sum);
        }
        let one = f64::from(1 << PRECISION);
        Self { first, weights: weights.into_iter().map(|w| (w * one + 0.5f64.copysign(w)) as i32).collect() }
    }

    /// The first source pixel within `range` and the weights from there on; none if there is no overlap.
    fn within(&self, range: &Range<usize>) -> (usize, &[i32]) {
        let end = self.first + self.weights.len();
        let start = range.start.clamp(self.first, end);
        let stop = range.end.clamp(start, end);
        if start == stop {
            return (range.start, &[]);
        }
        (start, &self.weights[start - self.first..stop - self.first])
    }
}

/// Keys' cubic with a = -0.5.
fn kernel(x: f64) -> f64 {
    const A: f64 = -0.5;
    let x = x.abs();
    if x < 1.0 {
        ((A + 2.0) * x - (A + 3.0)) * x * x + 1.0
    } else if x < 2.0 {
        (((x - 5.0) * x + 8.0) * x - 4.0) * A
    } else {
        0.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noise(width: usize, height: usize) -> Image {
        let bytes = (0..width * height * 3).map(|i| (i * 7919 % 251) as u8).collect();
        Image::from_rgb(width, height, bytes).unwrap()
    }

    #[test]
    fn the_same_size_is_the_same_image() {
        let image = noise(9, 5);
        assert_eq!(bicubic(&Canvas::bare(&image), 9, 5, 0..9, 0..5), image.rgb);
    }

    #[test]
    fn a_window_is_cut_from_the_whole() {
        let image = noise(23, 17);
        let canvas = Canvas::bare(&image);
        let whole = bicubic(&canvas, 11, 29, 0..11, 0..29);
        let window = bicubic(&canvas, 11, 29, 3..7, 10..14);
        for y in 0..4 {
            let expected = &whole[((y + 10) * 11 + 3) * 3..][..12];
            assert_eq!(&window[y * 12..][..12], expected, "row {y}");
        }
    }

    #[test]
    fn a_canvas_equals_the_image_painted_on_its_background() {
        let image = noise(6, 20);
        let canvas = Canvas::square(&image, [122, 116, 104]);
        let mut painted: Vec<u8> = [122u8, 116, 104].into_iter().cycle().take(20 * 20 * 3).collect();
        for y in 0..20 {
            painted[(y * 20 + 7) * 3..][..18].copy_from_slice(&image.rgb[y * 18..][..18]);
        }
        let painted = Image::from_rgb(20, 20, painted).unwrap();
        assert_eq!(bicubic(&canvas, 8, 8, 0..8, 0..8), bicubic(&Canvas::bare(&painted), 8, 8, 0..8, 0..8));
    }
}
