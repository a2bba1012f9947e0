//! Percentile bootstrap over prompts.

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Resamples drawn.
const RESAMPLES: usize = 2000;

/// The central 95% of `statistic` over resamples of `units` with replacement. Prompts are the units, never passes or tokens:
/// those of one prompt are not independent. `None` with fewer than two units, where no spread can be seen.
pub fn interval<T>(units: &[T], seed: u64, statistic: impl Fn(&[&T]) -> f64) -> Option<[f64; 2]> {
    if units.len() < 2 {
        return None;
    }
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let mut values: Vec<f64> = (0..RESAMPLES)
        .map(|_| {
            let draw: Vec<&T> = (0..units.len()).map(|_| &units[random.random_range(0..units.len())]).collect();
            statistic(&draw)
        })
        .collect();
    values.sort_by(f64::total_cmp);
    Some([quantile(&values, 0.025), quantile(&values, 0.975)])
}

/// Linear interpolation between order statistics of a sorted, non-empty slice.
fn quantile(sorted: &[f64], q: f64) -> f64 {
    let at = q * (sorted.len() - 1) as f64;
    let low = at.floor() as usize;
    let high = (low + 1).min(sorted.len() - 1);
    sorted[low] + (sorted[high] - sorted[low]) * (at - low as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mean(draw: &[&f64]) -> f64 {
        draw.iter().copied().sum::<f64>() / draw.len() as f64
    }

    #[test]
    fn the_interval_of_a_mean_is_near_the_normal_one() {
        let units: Vec<f64> = (0..200).map(|i| (i % 10) as f64).collect();
        let [low, high] = interval(&units, 7, mean).unwrap();
        // Mean 4.5, standard error sqrt(8.25 / 200) = 0.203.
        assert!((low - 4.102).abs() < 0.03, "{low}");
        assert!((high - 4.898).abs() < 0.03, "{high}");
    }

    #[test]
    fn the_same_seed_gives_the_same_interval_and_one_unit_gives_none() {
        let units = [1.0, 2.0, 4.0, 8.0];
        assert_eq!(interval(&units, 1, mean), interval(&units, 1, mean));
        assert_ne!(interval(&units, 1, mean), interval(&units, 2, mean));
        assert_eq!(interval(&units[..1], 1, mean), None);
    }

    #[test]
    fn quantiles_interpolate() {
        assert_eq!(quantile(&[0.0, 1.0, 2.0, 3.0, 4.0], 0.5), 2.0);
        assert_eq!(quantile(&[0.0, 1.0], 0.25), 0.25);
    }
}
