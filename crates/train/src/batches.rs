//! The order of the data: a function of seed and epoch alone, so a position in it is two numbers.

use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Examples are sorted by length within windows of this many, so that batches pad little and still mix.
const WINDOW: usize = 256;

/// Batches of one epoch: each as many examples of like length as fit `budget` rows, padding included (at least one).
pub fn epoch(lengths: &[usize], budget: usize, seed: u64, epoch: usize) -> Vec<Vec<usize>> {
    let mut rng = stream(seed, epoch as u64);
    let mut order: Vec<usize> = (0..lengths.len()).collect();
    order.shuffle(&mut rng);
    let mut batches: Vec<Vec<usize>> = order.chunks_mut(WINDOW).flat_map(|w| packed(w, lengths, budget)).collect();
    batches.shuffle(&mut rng);
    batches
}

/// Batches of a whole run of `draws` examples in which the share of those with images rises linearly from 0 to 1, as MSD
/// trains: the draw at share u of the way is of one with images with probability u. Either kind is shuffled anew whenever it
/// is used up. Where there is but one kind, it is drawn throughout.
pub fn ramp(lengths: &[usize], image: &[bool], draws: usize, budget: usize, seed: u64) -> Vec<Vec<usize>> {
    let mut rng = stream(seed, 0);
    let of_kind = |kind: bool| (0..lengths.len()).filter(|i| image[*i] == kind).collect::<Vec<_>>();
    let kinds = [of_kind(false), of_kind(true)];
    let mut left: [Vec<usize>; 2] = [vec![], vec![]];
    let order = (0..draws).map(|draw| {
        let visual = rng.random::<f64>() < (draw as f64 + 0.5) / draws as f64;
        let kind = usize::from(visual && !kinds[1].is_empty() || kinds[0].is_empty());
        if left[kind].is_empty() {
            left[kind] = kinds[kind].clone();
            left[kind].shuffle(&mut rng);
        }
        left[kind].pop()
    });
    let mut order: Vec<usize> = order.flatten().collect();
    // Sorting and mixing within a small part of the run only, so that the share still rises.
    let window = WINDOW.min(draws.div_ceil(16).max(1));
    let mixed = order.chunks_mut(window).flat_map(|window| {
        let mut batches = packed(window, lengths, budget);
        batches.shuffle(&mut rng);
        batches
    });
    mixed.collect()
}

/// `window` sorted by length and cut into batches of at most `budget` rows.
fn packed(window: &mut [usize], lengths: &[usize], budget: usize) -> Vec<Vec<usize>> {
    window.sort_by_key(|i| lengths[*i]);
    let (mut batches, mut batch): (Vec<Vec<usize>>, Vec<usize>) = (vec![], vec![]);
    for &i in window.iter() {
        if !batch.is_empty() && (batch.len() + 1) * lengths[i] > budget {
            batches.push(std::mem::take(&mut batch));
        }
        batch.push(i);
    }
    batches.push(batch);
    batches
}

/// The random stream of one training step, whatever came before it: this is what makes a resumed run the same run.
pub fn step_stream(seed: u64, step: usize) -> ChaCha8Rng {
    // Epoch orders use the lower streams.
    stream(seed, (1 << 32) + step as u64)
}

fn stream(seed: u64, number: u64) -> ChaCha8Rng {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    rng.set_stream(number);
    rng
}

/// `count` of `items`, drawn without replacement, in their old order.
pub fn choose(items: &[usize], count: usize, rng: &mut impl Rng) -> Vec<usize> {
    let mut chosen = items.to_vec();
    chosen.shuffle(rng);
    chosen.truncate(count);
    chosen.sort_unstable();
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_example_comes_once_within_the_budget_and_the_order_is_the_seeds() {
        let lengths: Vec<usize> = (0..700).map(|i| 20 + i * 37 % 400).collect();
        let batches = epoch(&lengths, 1000, 7, 0);
        let mut seen: Vec<usize> = batches.iter().flatten().copied().collect();
        seen.sort_unstable();
        assert_eq!(seen, (0..700).collect::<Vec<_>>());
        for batch in &batches {
            let longest = batch.iter().map(|i| lengths[*i]).max().unwrap();
            assert!(batch.len() == 1 || batch.len() * longest <= 1000);
        }
        let rows: usize = batches.iter().map(|b| b.len() * b.iter().map(|i| lengths[*i]).max().unwrap()).sum();
        let useful: usize = lengths.iter().sum();
        assert!((rows as f64) < 1.1 * useful as f64, "{rows} rows for {useful} tokens");
        assert_eq!(batches, epoch(&lengths, 1000, 7, 0));
        assert_ne!(batches, epoch(&lengths, 1000, 7, 1));
        assert_ne!(batches, epoch(&lengths, 1000, 8, 0));
    }

    #[test]
    fn the_share_with_images_rises_over_the_run() {
        let lengths = vec![10; 100];
        let image: Vec<bool> = (0..100).map(|i| i % 4 == 0).collect();
        let order: Vec<usize> = ramp(&lengths, &image, 1000, 40, 3).into_iter().flatten().collect();
        assert_eq!(order.len(), 1000);
        let share = |part: std::ops::Range<usize>| {
            let all = part.len() as f64;
            order[part].iter().filter(|i| image[**i]).count() as f64 / all
        };
        assert!(share(0..100) < 0.15 && share(900..1000) > 0.85, "{} to {}", share(0..100), share(900..1000));
        assert!((share(400..600) - 0.5).abs() < 0.1, "{}", share(400..600));
        assert_eq!(order, ramp(&lengths, &image, 1000, 40, 3).into_iter().flatten().collect::<Vec<_>>());
        assert_eq!(ramp(&lengths, &[false; 100], 200, 40, 3).iter().flatten().count(), 200);
    }
}
