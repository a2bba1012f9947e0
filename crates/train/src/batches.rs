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
    let mut batches: Vec<Vec<usize>> = vec![];
    for window in order.chunks_mut(WINDOW) {
        window.sort_by_key(|i| lengths[*i]);
        let mut batch: Vec<usize> = vec![];
        for &i in window.iter() {
            if !batch.is_empty() && (batch.len() + 1) * lengths[i] > budget {
                batches.push(std::mem::take(&mut batch));
            }
            batch.push(i);
        }
        batches.push(batch);
    }
    batches.shuffle(&mut rng);
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
}
