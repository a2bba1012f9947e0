//! Position embeddings of a square of patches, brought to a square of another size.

/// Resamples `[from * from][width]` to `[to * to][width]`, as Hugging Face's DINOv2 does it: PyTorch's bicubic interpolation
/// without antialiasing (a = -0.75, half-pixel centres, edges repeated).
pub(crate) fn resample(rows: &[f32], from: usize, to: usize, width: usize) -> Vec<f32> {
    let taps: Vec<[(usize, f32); 4]> = (0..to).map(|at| taps(from, to, at)).collect();
    let mut out = Vec::with_capacity(to * to * width);
    for down in &taps {
        for across in &taps {
            out.extend((0..width).map(|channel| {
                let row =
                    |y: usize| across.iter().map(|(x, w)| w * rows[(y * from + x) * width + channel]).sum::<f32>();
                down.iter().map(|(y, weight)| weight * row(*y)).sum::<f32>()
            }));
        }
    }
    out
}

/// The four places, and their weights, that make up place `at` when `from` of them become `to`.
fn taps(from: usize, to: usize, at: usize) -> [(usize, f32); 4] {
    let center = (at as f64 + 0.5) * from as f64 / to as f64 - 0.5;
    let first = center.floor();
    let t = center - first;
    [(-1.0, 1.0 + t), (0.0, t), (1.0, 1.0 - t), (2.0, 2.0 - t)].map(|(step, distance)| {
        let place = (first + step).clamp(0.0, from as f64 - 1.0) as usize;
        (place, weight(distance) as f32)
    })
}

/// Keys' cubic kernel (1981) with a = -0.75.
fn weight(distance: f64) -> f64 {
    const A: f64 = -0.75;
    match distance {
        d if d <= 1.0 => ((A + 2.0) * d - (A + 3.0)) * d * d + 1.0,
        d if d < 2.0 => ((A * d - 5.0 * A) * d + 8.0 * A) * d - 4.0 * A,
        _ => 0.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_size_changes_nothing() {
        let rows: Vec<f32> = (0..18).map(|i| (i as f32).sin()).collect();
        assert_eq!(resample(&rows, 3, 3, 2), rows);
    }

    /// Four places become two: each lies half-way between two, with weights -0.09375 and 0.59375, and the edge stands in for
    /// what lies beyond it.
    #[test]
    fn halving_by_hand() {
        let line = [1.0, 2.0, 4.0, 8.0];
        let rows: Vec<f32> = line.iter().flat_map(|y| line.iter().map(move |x| x * y)).collect();
        let first = -0.09375 * 1.0 + 0.59375 * 1.0 + 0.59375 * 2.0 - 0.09375 * 4.0;
        let second = -0.09375 * 2.0 + 0.59375 * 4.0 + 0.59375 * 8.0 - 0.09375 * 8.0;
        let expected = [first * first, first * second, first * second, second * second];
        for (found, expected) in resample(&rows, 4, 2, 1).iter().zip(expected) {
            assert!((found - expected).abs() < 1e-5, "{found} {expected}");
        }
    }
}
