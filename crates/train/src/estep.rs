//! The E-step: sampling from the draft, the oracle's verdict, the correction. Everything here is detached.
//!
//! Two oracles. *Greedy* (T=0): a token survives where it is the target's argmax; after the first mismatch nothing has
//! utility, so the teacher-forced rows already at hand are enough. *Ratio* (T>0): a token survives with probability
//! `min(1, p/q)`, computed in log space and floored at e^-20, never by division.

use burn::prelude::*;
use rand::Rng;
use rand_chacha::ChaCha8Rng;

use crate::objective::{PathBatch, PathFate, Unrolled, log_sum_exp, token_log_probs};

/// Lower bound of a log acceptance.
pub const LOG_ALPHA_FLOOR: f32 = -20.0;

/// `log alpha = min(0, log p - log q)`, held at -20 or above.
pub fn log_alpha(log_p: f32, log_q: f32) -> f32 {
    (log_p - log_q).clamp(LOG_ALPHA_FLOOR, 0.0)
}

/// How many leading tokens survive when token i is kept where `uniforms[i] < exp(log_alphas[i])`.
pub fn survived(log_alphas: &[f32], uniforms: &[f32]) -> usize {
    log_alphas.iter().zip(uniforms).take_while(|(a, u)| **u < a.exp()).count()
}

/// Draws an index by its probability; `uniform` in [0, 1). Weights need not sum to one. None if all are zero.
pub fn draw(weights: &[f32], uniform: f32) -> Option<usize> {
    let total: f64 = weights.iter().map(|w| f64::from(*w)).sum();
    let mut left = f64::from(uniform) * total;
    let mut last = None;
    for (i, w) in weights.iter().enumerate().filter(|(_, w)| **w > 0.0) {
        last = Some(i);
        left -= f64::from(*w);
        if left < 0.0 {
            break;
        }
    }
    last
}

/// The residual `(p - q)+` of a rejected token, over p's vocabulary; `to_p[d]` is q's index d in it. Not normalised.
pub fn residual(p: &[f32], q: &[f32], to_p: &[u32]) -> Vec<f32> {
    let mut rest = p.to_vec();
    for (d, &t) in to_p.iter().enumerate() {
        let r = &mut rest[t as usize];
        *r = (*r - q[d]).max(0.0);
    }
    rest
}

/// Samples `samples` paths at every anchor from the teacher-forced steps and judges them by the greedy oracle. Every
/// correction is the target's greedy path, whatever was sampled; so the sampled paths matter to the push on rejected ones
/// only, and are drawn only up to their first mismatch.
pub fn greedy_paths(unrolled: &Unrolled, samples: usize, rng: &mut ChaCha8Rng) -> PathBatch {
    let tokens = sample_until_mismatch(unrolled, samples, rng);
    judge_greedy(unrolled, samples, &tokens)
}

/// Draft ids per step, M x S row-major; steps after a path's first mismatch hold 0.
fn sample_until_mismatch(unrolled: &Unrolled, samples: usize, rng: &mut ChaCha8Rng) -> Vec<Vec<u32>> {
    let anchors = unrolled.anchors();
    let mut alive = vec![true; anchors * samples];
    unrolled
        .steps
        .iter()
        .map(|step| {
            let mut drawn = vec![0u32; anchors * samples];
            let rows: Vec<usize> = (0..anchors)
                .filter(|m| step.greedy[*m].is_some() && alive[m * samples..(m + 1) * samples].contains(&true))
                .collect();
            let weights = probabilities(&step.logits, &rows);
            let width = step.logits.dims()[1];
            for (r, &m) in rows.iter().enumerate() {
                let row = &weights[r * width..(r + 1) * width];
                for i in (m * samples..(m + 1) * samples).filter(|i| alive[*i]) {
                    // A softmax row always has a positive entry.
                    drawn[i] = draw(row, rng.random::<f32>()).unwrap_or(0) as u32;
                }
            }
            for (i, alive) in alive.iter_mut().enumerate() {
                *alive &= step.greedy[i / samples] == Some(drawn[i]);
            }
            drawn
        })
        .collect()
}

/// Softmax of chosen rows on the host, row-major.
fn probabilities(logits: &Tensor<2>, rows: &[usize]) -> Vec<f32> {
    if rows.is_empty() {
        return vec![];
    }
    let index: Vec<i64> = rows.iter().map(|r| *r as i64).collect();
    let index = Tensor::<1, Int>::from_data(TensorData::new(index, [rows.len()]), &logits.device().inner());
    let chosen = logits.clone().inner().select(0, index);
    let norm = log_sum_exp(chosen.clone()).unsqueeze_dim::<2>(1);
    host((chosen - norm).exp())
}

/// The greedy oracle's verdict on given tokens (per step, M x S row-major draft ids).
pub fn judge_greedy(unrolled: &Unrolled, samples: usize, tokens: &[Vec<u32>]) -> PathBatch {
    let anchors = unrolled.anchors();
    let horizons = unrolled.horizons();
    let survived: Vec<usize> = (0..anchors * samples)
        .map(|i| {
            let steps = unrolled.steps.iter().zip(tokens);
            steps.take_while(|(step, t)| step.greedy[i / samples] == Some(t[i])).count()
        })
        .collect();
    let (mut sampled, mut corrected) = (vec![], vec![]);
    for (j, (step, drawn)) in unrolled.steps.iter().zip(tokens).enumerate() {
        // One gather per step: the S drawn ids and the greedy one.
        let ids = (0..anchors).flat_map(|m| {
            let drawn = drawn[m * samples..(m + 1) * samples].iter().copied();
            drawn.chain([step.greedy[m].unwrap_or(0)])
        });
        let log_q = token_log_probs(&step.logits, ids.collect(), samples + 1);
        let counts = |i: usize| j < horizons[i / samples] && j <= survived[i];
        let device = unrolled.device();
        let keep = mask((0..anchors * samples).map(counts), [anchors, samples], &device);
        sampled.push(log_q.clone().slice([0..anchors, 0..samples]) * keep);
        let keep = mask((0..anchors).map(|m| j < horizons[m]), [anchors, 1], &device);
        corrected.push((log_q.slice([0..anchors, samples..samples + 1]) * keep).repeat_dim(1, samples));
    }
    let sampled = Tensor::stack::<3>(sampled, 2);
    let steps = unrolled.steps.len();
    let values = host(sampled.clone().detach());
    let fates = (0..anchors * samples)
        .map(|i| {
            let horizon = horizons[i / samples];
            let accepted = horizon > 0 && survived[i] >= horizon;
            let judged = (survived[i] + 1).min(horizon);
            let log_q: f32 = values[i * steps..i * steps + judged].iter().sum();
            PathFate {
                tokens: tokens.iter().map(|step| step[i]).collect(),
                survived: survived[i].min(horizon),
                accepted,
                horizon,
                confidence: log_q / judged.max(1) as f32,
                reward: 0.0,
            }
        })
        .collect();
    PathBatch {
        sampled,
        corrected: Tensor::stack::<3>(corrected, 2),
        fates,
        weights: unrolled.weights.clone(),
        out_of_vocabulary: 0,
    }
}

fn mask(keep: impl Iterator<Item = bool>, shape: [usize; 2], device: &Device) -> Tensor<2> {
    let values: Vec<f32> = keep.map(|k| f32::from(u8::from(k))).collect();
    Tensor::from_data(TensorData::new(values, shape), device)
}

/// A tensor's values as f32 on the host.
pub(crate) fn host<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
    tensor.into_data().convert::<f32>().try_into_vec().expect("converted to f32 above")
}
