//! The ratio oracle's E-step on real models: S paths per anchor sampled by the draft, all scored by one packed target pass.
//!
//! The draft's sampling pass is also the pass with gradients. A corrected path differs from the sampled one in its last token
//! only (the residual sample at the first rejection), so both read their log q off the same rows. Beyond the correction the
//! target's continuation would need a pass per token; the path ends there instead.

use burn::prelude::*;
use rand::Rng;
use rand_chacha::ChaCha8Rng;
use sightdraft_draft::{Draft, DraftModel, FeatureRows};
use sightdraft_target::{KvCache, Llama, Mask};

use crate::estep::{self, host};
use crate::features::{LOGIT_ROWS, Sequence, index, places};
use crate::objective::{PathBatch, PathFate, RolloutRequest, log_sum_exp, token_log_probs};
use crate::{align, batches};

/// What sampling from the draft leaves: R = A x S paths, path-major within an anchor.
struct Sampled {
    /// Draft logits per level, `[R, D]`, gradients flow.
    logits: Vec<Tensor<2>>,
    /// Draft ids per level, R.
    tokens: Vec<Vec<u32>>,
    /// log q of those tokens per level, R.
    log_q: Vec<Vec<f32>>,
}

/// Samples and judges paths at up to `request.anchors` anchors of one sequence; None if it has none. `cache` holds the
/// target's keys of exactly this sequence, and does so again afterwards. `eos` ends a path.
#[allow(clippy::too_many_arguments)] // Two models, a sequence with its cache, and how to sample: all are needed at once.
pub fn rollout(
    draft: &DraftModel,
    llama: &Llama,
    sequence: &Sequence,
    cache: &mut KvCache,
    steps: usize,
    request: RolloutRequest,
    eos: &[u32],
    rng: &mut ChaCha8Rng,
) -> Option<PathBatch> {
    let anchors = align::anchors(&sequence.assistant, 1);
    let anchors = batches::choose(&anchors, request.anchors, rng);
    if anchors.is_empty() {
        return None;
    }
    let paths = Paths { anchors: &anchors, samples: request.samples, steps };
    let sampled = paths.sample(draft, llama, sequence, rng);
    let hidden = paths.target_rows(llama, draft, sequence, cache, &sampled.tokens);
    let log_p = paths.target_log_probs(llama, draft, &hidden, &sampled.tokens);
    Some(paths.judge(draft, llama, &sampled, &hidden, &log_p, request.corrected, eos, rng))
}

/// The shape of a rollout.
struct Paths<'a> {
    anchors: &'a [usize],
    samples: usize,
    steps: usize,
}

impl Paths<'_> {
    fn count(&self) -> usize {
        self.anchors.len() * self.samples
    }

    fn anchor(&self, path: usize) -> usize {
        self.anchors[path / self.samples]
    }

    /// Samples level by level from the draft, over the sequence's own draft rows.
    fn sample(&self, draft: &DraftModel, llama: &Llama, sequence: &Sequence, rng: &mut ChaCha8Rng) -> Sampled {
        let rows = self.anchors[self.anchors.len() - 1] + 1;
        let mut state = draft.start();
        let positions = [(0..rows).collect()];
        let image = [sequence.image[1..=rows].to_vec()];
        let feature_rows = FeatureRows {
            features: sequence.features.clone().slice(0..rows).unsqueeze_dim::<3>(0),
            embeds: sequence.embeds.clone().slice(1..rows + 1).unsqueeze_dim::<3>(0),
            positions: &positions,
            mask: &Mask::Causal,
            image: &image,
        };
        let pass = draft.extend(&mut state, feature_rows);
        let owners: Vec<usize> = (0..self.count()).map(|path| self.anchor(path)).collect();
        let owners = index(&owners, &pass.hidden.device());
        let keyed = draft.keyed_rows(&image[0]);
        let mut hidden = pass.hidden.select(1, owners.clone());
        let mut predict = pass.predict.select(1, owners);
        let mut sampled = Sampled { logits: vec![], tokens: vec![], log_q: vec![] };
        for level in 0..self.steps {
            let logits = draft.logits(predict.clone()).squeeze_dim::<2>(0);
            let tokens = draw_rows(&logits, rng);
            sampled.log_q.push(host(token_log_probs(&logits.clone().detach(), tokens.clone(), 1)));
            sampled.logits.push(logits);
            if level + 1 < self.steps {
                let ids: Vec<u32> = tokens.iter().map(|t| draft.vocab().target(*t)).collect();
                let embeds = llama.embed_ids(&ids).cast(burn::tensor::DType::F32);
                let positions = [(0..self.count()).map(|path| self.anchor(path) + 1 + level).collect()];
                let pass = draft.step(&mut state, hidden, embeds, &positions, &self.draft_mask(&keyed, level));
                (hidden, predict) = (pass.hidden, pass.predict);
            }
            sampled.tokens.push(tokens);
        }
        sampled
    }

    /// Level `level + 1`'s rows see the sequence up to their anchor (`keyed`: the row behind each of its keys), their own
    /// ancestors and themselves.
    fn draft_mask(&self, keyed: &[usize], level: usize) -> Mask {
        let count = self.count();
        let row = |path: usize| {
            let prefix = keyed.iter().map(move |&row| row <= self.anchor(path));
            prefix.chain((0..(level + 1) * count).map(move |key| key % count == path)).collect()
        };
        Mask::Full(vec![(0..count).map(row).collect()])
    }

    /// The target's final hidden states before each token, level-major `[L * R, H]`: one packed pass over all paths.
    fn target_rows(
        &self,
        llama: &Llama,
        draft: &DraftModel,
        sequence: &Sequence,
        cache: &mut KvCache,
        tokens: &[Vec<u32>],
    ) -> Tensor<2> {
        let (count, levels) = (self.count(), self.steps - 1);
        let places = places(sequence);
        // An anchor's first token is an assistant token, so the row before it is among those that were kept.
        let first: Vec<usize> = (0..count).filter_map(|path| places[align::target_row(self.anchor(path), 0)]).collect();
        let first = sequence.hidden.clone().select(0, index(&first, &sequence.hidden.device()));
        if levels == 0 {
            return first;
        }
        let ids: Vec<u32> = tokens[..levels].iter().flatten().map(|t| draft.vocab().target(*t)).collect();
        let embeds = llama.embed_ids(&ids);
        let positions = [(0..levels * count).map(|node| self.anchor(node % count) + 2 + node / count).collect()];
        let past = cache.len();
        let row = |node: usize| {
            let (level, path) = (node / count, node % count);
            let prefix = (0..past).map(move |key| key <= self.anchor(path) + 1);
            let ancestors = (0..levels * count).map(move |key| key % count == path && key / count <= level);
            prefix.chain(ancestors).collect()
        };
        let mask = Mask::Full(vec![(0..levels * count).map(row).collect()]);
        let pass = llama.forward(embeds, &positions, &mask, cache, &[]);
        cache.truncate(past);
        Tensor::cat(vec![first, pass.hidden.squeeze_dim::<2>(0).cast(burn::tensor::DType::F32)], 0)
    }

    /// log p of every sampled token under the target's full softmax, per level, R.
    fn target_log_probs(
        &self,
        llama: &Llama,
        draft: &DraftModel,
        hidden: &Tensor<2>,
        tokens: &[Vec<u32>],
    ) -> Vec<Vec<f32>> {
        let ids: Vec<u32> = tokens.iter().flatten().map(|t| draft.vocab().target(*t)).collect();
        let mut values = vec![];
        for start in (0..ids.len()).step_by(LOGIT_ROWS) {
            let end = (start + LOGIT_ROWS).min(ids.len());
            let logits = full_logits(llama, hidden.clone().slice(start..end));
            values.extend(host(token_log_probs(&logits, ids[start..end].to_vec(), 1)));
        }
        values.chunks(self.count()).map(<[f32]>::to_vec).collect()
    }

    #[allow(clippy::too_many_arguments)] // The two models' verdicts meet here.
    fn judge(
        &self,
        draft: &DraftModel,
        llama: &Llama,
        sampled: &Sampled,
        hidden: &Tensor<2>,
        log_p: &[Vec<f32>],
        corrected: bool,
        eos: &[u32],
        rng: &mut ChaCha8Rng,
    ) -> PathBatch {
        let count = self.count();
        let fates: Vec<PathFate> = (0..count).map(|path| self.fate(draft, sampled, log_p, path, eos, rng)).collect();
        let mut corrections = vec![None; count];
        let mut out_of_vocabulary = 0;
        if corrected {
            for (path, fate) in fates.iter().enumerate().filter(|(_, fate)| !fate.accepted) {
                let row = fate.survived * count + path;
                let p = softmax_row(&full_logits(llama, hidden.clone().slice(row..row + 1)));
                let logits = sampled.logits[fate.survived].clone().inner();
                let q = softmax_row(&logits.slice(path..path + 1));
                let rest = estep::residual(&p, &q, draft.vocab().targets());
                let drawn = estep::draw(&rest, rng.random::<f32>());
                corrections[path] = drawn.and_then(|token| draft.vocab().draft(token as u32));
                out_of_vocabulary += usize::from(corrections[path].is_none());
            }
        }
        let weights = vec![1.0 / self.anchors.len() as f32; self.anchors.len()];
        let (sampled, corrected) = self.log_probs(sampled, &fates, &corrections, corrected);
        PathBatch { sampled, corrected, fates, weights, out_of_vocabulary }
    }

    fn fate(
        &self,
        draft: &DraftModel,
        sampled: &Sampled,
        log_p: &[Vec<f32>],
        path: usize,
        eos: &[u32],
        rng: &mut ChaCha8Rng,
    ) -> PathFate {
        let ends = |level: &usize| eos.contains(&draft.vocab().target(sampled.tokens[*level][path]));
        // What follows the end of the answer is nobody's language.
        let horizon = (0..self.steps).find(ends).map_or(self.steps, |level| level + 1);
        let p: Vec<f32> = (0..horizon).map(|level| log_p[level][path]).collect();
        let q: Vec<f32> = (0..horizon).map(|level| sampled.log_q[level][path]).collect();
        let alphas: Vec<f32> = p.iter().zip(&q).map(|(p, q)| estep::log_alpha(*p, *q)).collect();
        let uniforms: Vec<f32> = (0..horizon).map(|_| rng.random::<f32>()).collect();
        let survived = estep::survived(&alphas, &uniforms);
        let judged = (survived + 1).min(horizon);
        PathFate {
            tokens: sampled.tokens.iter().map(|level| level[path]).collect(),
            survived,
            accepted: survived == horizon,
            horizon,
            confidence: q[..judged].iter().sum::<f32>() / judged as f32,
            reward: alphas.iter().sum::<f32>() + p.iter().sum::<f32>() - q.iter().sum::<f32>(),
        }
    }

    /// log q `[A, S, L]` of the sampled tokens and of the path to imitate.
    fn log_probs(
        &self,
        sampled: &Sampled,
        fates: &[PathFate],
        corrections: &[Option<u32>],
        corrected: bool,
    ) -> (Tensor<3>, Tensor<3>) {
        let shape = [self.anchors.len(), self.samples, 1];
        let (mut of_sampled, mut of_corrected) = (vec![], vec![]);
        for (level, (logits, tokens)) in sampled.logits.iter().zip(&sampled.tokens).enumerate() {
            let fix = |path: usize| corrections[path].filter(|_| fates[path].survived == level);
            let ids = (0..self.count()).flat_map(|path| [tokens[path], fix(path).unwrap_or(tokens[path])]);
            let log_q = token_log_probs(logits, ids.collect(), 2);
            let keep = (0..self.count()).flat_map(|path| {
                let fate = &fates[path];
                let counts = level < fate.horizon && (!corrected || level <= fate.survived);
                [counts, level < fate.survived || fix(path).is_some()].map(|k| f32::from(u8::from(k)))
            });
            let keep = TensorData::new(keep.collect::<Vec<f32>>(), [self.count(), 2]);
            let log_q = log_q * Tensor::from_data(keep, &logits.device());
            of_sampled.push(log_q.clone().slice([0..self.count(), 0..1]).reshape(shape));
            of_corrected.push(log_q.slice([0..self.count(), 1..2]).reshape(shape));
        }
        (Tensor::cat(of_sampled, 2), Tensor::cat(of_corrected, 2))
    }
}

/// One token from the softmax of every row.
fn draw_rows(logits: &Tensor<2>, rng: &mut ChaCha8Rng) -> Vec<u32> {
    let logits = logits.clone().inner();
    let width = logits.dims()[1];
    let weights = host(burn::tensor::activation::softmax(logits, 1));
    // A softmax row always has a positive entry.
    weights.chunks(width).map(|row| estep::draw(row, rng.random::<f32>()).unwrap_or(0) as u32).collect()
}

fn full_logits(llama: &Llama, hidden: Tensor<2>) -> Tensor<2> {
    let dtype = llama.embed_tokens.weight.val().dtype();
    let logits = llama.logits(hidden.cast(dtype).unsqueeze_dim::<3>(0)).squeeze_dim::<2>(0);
    logits.cast(burn::tensor::DType::F32)
}

/// A single row's softmax on the host.
fn softmax_row(logits: &Tensor<2>) -> Vec<f32> {
    let norm = log_sum_exp(logits.clone()).unsqueeze_dim::<2>(1);
    host((logits.clone() - norm).exp())
}
