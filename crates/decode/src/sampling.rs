//! Temperature, top-k and top-p, applied before verification.

use serde::{Deserialize, Serialize};
use sightdraft_core::{Error, Result};

/// How the target samples. Temperature 0 is greedy.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Sampling {
    /// Temperature.
    pub temperature: f32,
    /// Nucleus mass; 1 keeps everything.
    pub top_p: f32,
    /// Most likely tokens kept; 0 keeps all.
    pub top_k: usize,
    /// Seed of the uniforms.
    pub seed: u64,
}

impl Sampling {
    /// Temperature 0.
    pub const GREEDY: Self = Self { temperature: 0.0, top_p: 1.0, top_k: 0, seed: 0 };

    /// Refuses what is no sampling at all.
    ///
    /// # Errors
    /// A temperature that is negative or not finite; a top_p outside 0 to 1.
    pub fn check(&self) -> Result<()> {
        if !(self.temperature >= 0.0 && self.temperature.is_finite()) {
            let found = self.temperature.to_string();
            return Err(Error::invalid("temperature", "a number from 0 up", found, "use 0 for greedy decoding"));
        }
        if !(0.0..=1.0).contains(&self.top_p) {
            return Err(Error::invalid("top_p", "a number from 0 to 1", self.top_p.to_string(), "use 1 to keep all"));
        }
        Ok(())
    }

    /// Whether the target takes its argmax.
    pub fn is_greedy(&self) -> bool {
        self.temperature <= 0.0
    }

    /// The distribution that one row of logits is sampled from, in f32: temperature, then top-k, then top-p (the order of
    /// Hugging Face's processors; like them, logits that tie with the k-th are kept). Temperature 0 puts everything on the argmax.
    pub fn probabilities(&self, logits: &[f32]) -> Vec<f32> {
        if self.is_greedy() {
            let mut probabilities = vec![0.0; logits.len()];
            probabilities[argmax(logits)] = 1.0;
            return probabilities;
        }
        let mut scaled: Vec<f32> = logits.iter().map(|logit| logit / self.temperature).collect();
        self.keep_top_k(&mut scaled);
        softmax(&mut scaled);
        self.keep_nucleus(&mut scaled);
        scaled
    }

    fn keep_top_k(&self, logits: &mut [f32]) {
        if self.top_k == 0 || self.top_k >= logits.len() {
            return;
        }
        let mut sorted = logits.to_vec();
        let (_, &mut threshold, _) = sorted.select_nth_unstable_by(self.top_k - 1, |a, b| b.total_cmp(a));
        logits.iter_mut().filter(|logit| **logit < threshold).for_each(|logit| *logit = f32::NEG_INFINITY);
    }

    /// Keeps the most likely token, and each further one as long as those before it have less than top_p of the mass.
    fn keep_nucleus(&self, probabilities: &mut [f32]) {
        if self.top_p >= 1.0 {
            return;
        }
        let nucleus = nucleus(probabilities, self.top_p);
        let kept: Vec<(usize, f32)> = nucleus.into_iter().map(|index| (index, probabilities[index])).collect();
        probabilities.fill(0.0);
        kept.into_iter().for_each(|(index, probability)| probabilities[index] = probability);
        normalise(probabilities);
    }
}

/// Indices of the nucleus, most likely first (of equals the last first, as in an ascending sort read backwards).
fn nucleus(probabilities: &[f32], top_p: f32) -> Vec<usize> {
    let order = |&a: &usize, &b: &usize| probabilities[b].total_cmp(&probabilities[a]).then(b.cmp(&a));
    let mut indices: Vec<usize> = (0..probabilities.len()).collect();
    // A nucleus is a small part of a vocabulary: sort a head that is long enough instead of everything.
    let mut head = 256;
    loop {
        let whole = head >= indices.len();
        if whole {
            indices.sort_unstable_by(order);
        } else {
            indices.select_nth_unstable_by(head, order);
            indices[..head].sort_unstable_by(order);
        }
        let mut mass = 0.0;
        let within = |&&index: &&usize| {
            let before = mass;
            mass += f64::from(probabilities[index]);
            before < f64::from(top_p)
        };
        let len = indices[..head.min(indices.len())].iter().take_while(within).count();
        if whole || len < head {
            indices.truncate(len.max(1));
            return indices;
        }
        head *= 8;
    }
}

/// Index of the largest value, the first of equals.
pub fn argmax(values: &[f32]) -> usize {
    let mut best = 0;
    for (index, value) in values.iter().enumerate() {
        if *value > values[best] {
            best = index;
        }
    }
    best
}

/// Exponentials that sum to 1.
fn softmax(logits: &mut [f32]) {
    let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    logits.iter_mut().for_each(|logit| *logit = (*logit - max).exp());
    normalise(logits);
}

/// Divides by the sum; all zeros stay so.
pub(crate) fn normalise(weights: &mut [f32]) {
    let sum: f64 = weights.iter().map(|&weight| f64::from(weight)).sum();
    if sum > 0.0 {
        weights.iter_mut().for_each(|weight| *weight = (f64::from(*weight) / sum) as f32);
    }
}

/// The index that a uniform `u` of [0, 1) falls on; an index of weight zero is never drawn.
pub fn draw(weights: &[f32], u: f64) -> usize {
    let sum: f64 = weights.iter().map(|&weight| f64::from(weight)).sum();
    let mut left = u * sum;
    let mut last = 0;
    for (index, &weight) in weights.iter().enumerate() {
        if weight > 0.0 {
            last = index;
            left -= f64::from(weight);
            if left < 0.0 {
                break;
            }
        }
    }
    last
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn top_k_and_top_p_keep_the_head() {
        let logits = [0.1f32, 0.4, 0.3, 0.2].map(f32::ln);
        let top_p = Sampling { temperature: 1.0, top_p: 0.6, top_k: 0, seed: 0 };
        let kept = top_p.probabilities(&logits);
        assert!((kept[1] - 4.0 / 7.0).abs() < 1e-6 && (kept[2] - 3.0 / 7.0).abs() < 1e-6, "{kept:?}");
        assert_eq!([kept[0], kept[3]], [0.0, 0.0]);
        let top_k = Sampling { top_p: 1.0, top_k: 1, ..top_p };
        assert_eq!(top_k.probabilities(&logits), [0.0, 1.0, 0.0, 0.0]);
        let tiny = Sampling { top_p: 0.0, ..top_p };
        assert_eq!(tiny.probabilities(&logits), [0.0, 1.0, 0.0, 0.0]);
    }

    #[test]
    fn a_flat_nucleus_longer_than_the_first_head_is_whole() {
        let sampling = Sampling { temperature: 1.0, top_p: 0.75, top_k: 0, seed: 0 };
        let kept = sampling.probabilities(&[0.0; 1024]);
        assert_eq!(kept.iter().filter(|&&p| p > 0.0).count(), 768);
    }

    #[test]
    fn what_is_no_sampling_is_refused() {
        assert!(Sampling::GREEDY.check().is_ok());
        for temperature in [-1.0, f32::NAN, f32::INFINITY] {
            let message = Sampling { temperature, ..Sampling::GREEDY }.check().unwrap_err().to_string();
            assert!(message.contains("temperature"), "{message}");
        }
        assert!(Sampling { top_p: 1.5, ..Sampling::GREEDY }.check().unwrap_err().to_string().contains("top_p"));
    }

    proptest! {
        #[test]
        fn probabilities_sum_to_one_and_draws_have_mass(
            logits in prop::collection::vec(-20f32..20.0, 1..40), t in 0.0f32..2.0, top_p in 0.0f32..1.2, top_k in 0usize..50, u in 0f64..1.0
        ) {
            let p = Sampling { temperature: t, top_p, top_k, seed: 0 }.probabilities(&logits);
            prop_assert!((p.iter().sum::<f32>() - 1.0).abs() < 1e-5);
            prop_assert!(p[draw(&p, u)] > 0.0);
        }
    }
}
