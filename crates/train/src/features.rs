//! What one target pass leaves of a sequence, and batches of it for the draft.

use burn::prelude::*;
use burn::tensor::DType;
use rand::Rng;
use sightdraft_core::Result;
use sightdraft_draft::{Draft, DraftModel, FeatureRows, VocabMap};
use sightdraft_kernels::{masked_softmax, matmul};
use sightdraft_target::{KvCache, Llama, Mask, Prompt, Target};

use crate::align;
use crate::example::{Example, Picture};
use crate::objective::{FeaturePair, Step, Unrolled};

/// Rows of vocabulary logits made at a time: they are wide, and only their argmax or their token's probability stays.
pub(crate) const LOGIT_ROWS: usize = 256;

/// One sequence after its target pass; T rows. Features and embeddings are f32 and carry no gradient.
#[derive(Debug, Clone)]
pub struct Sequence {
    /// Token ids, T.
    pub ids: Vec<u32>,
    /// Whether each id is the assistant's, T.
    pub assistant: Vec<bool>,
    /// Which image each row is a row of, T; None for text.
    pub image: Vec<Option<usize>>,
    /// Input embeddings `[T, H]`.
    pub embeds: Tensor<2>,
    /// Concatenated taps `[T, F]`.
    pub features: Tensor<2>,
    /// Final hidden states of [`align::target_rows`], `[U, H]`.
    pub hidden: Tensor<2>,
    /// The target's argmax behind those rows, U.
    pub argmax: Vec<u32>,
}

impl Sequence {
    /// Runs the target over an example. Also returns the cache, for paths that branch off the sequence.
    ///
    /// # Errors
    /// An image that cannot be read; what [`Target::rows`] finds wrong with the prompt.
    pub fn run(target: &dyn Target, taps: &[usize], example: &Example) -> Result<(Self, KvCache)> {
        let llama = target.llama();
        let images = example.images.iter().map(Picture::pixels).collect::<Result<_>>()?;
        let rows = target.rows(&Prompt { ids: example.ids.clone(), images })?;
        let length = rows.ids.len();
        let mut cache = llama.new_cache();
        let positions = [(0..length).collect()];
        let pass = llama.forward(rows.embeds.clone(), &positions, &Mask::Causal, &mut cache, taps);
        let needed = align::target_rows(&example.assistant);
        let hidden = pass.hidden.squeeze_dim::<2>(0).select(0, index(&needed, &rows.embeds.device()));
        let features = pass.taps.expect("every draft reads at least one tap").squeeze_dim::<2>(0);
        let image = (0..length).map(|row| rows.image_rows.iter().position(|image| image.contains(&row))).collect();
        let sequence = Self {
            ids: rows.ids,
            assistant: example.assistant.clone(),
            image,
            embeds: rows.embeds.squeeze_dim::<2>(0).cast(DType::F32),
            features: features.cast(DType::F32),
            argmax: argmax(llama, &hidden),
            hidden: hidden.cast(DType::F32),
        };
        Ok((sequence, cache))
    }

    /// Rows, T.
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// Whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }
}

/// The target's choice after each of `hidden` `[U, H]`.
fn argmax(llama: &Llama, hidden: &Tensor<2>) -> Vec<u32> {
    let rows = hidden.dims()[0];
    (0..rows)
        .step_by(LOGIT_ROWS)
        .flat_map(|start| {
            let end = (start + LOGIT_ROWS).min(rows);
            let logits = llama.logits(hidden.clone().slice(start..end).unsqueeze_dim::<3>(0));
            ids_of(logits.argmax(2).reshape([end - start]))
        })
        .collect()
}

/// Token ids from an integer tensor.
pub(crate) fn ids_of(ids: Tensor<1, Int>) -> Vec<u32> {
    let ids: Vec<i64> = ids.into_data().convert::<i64>().try_into_vec().expect("converted to i64 above");
    ids.into_iter().map(|id| id as u32).collect()
}

/// `[B, n, W]` as `[B * n, W]`.
fn flat_rows(rows: Tensor<3>) -> Tensor<2> {
    let [batch, n, width] = rows.dims();
    rows.reshape([batch * n, width])
}

/// Row indices as a tensor.
pub(crate) fn index(rows: &[usize], device: &Device) -> Tensor<1, Int> {
    let rows: Vec<i64> = rows.iter().map(|row| *row as i64).collect();
    let count = rows.len();
    Tensor::from_data(TensorData::new(rows, [count]), device)
}

/// The rows of the target's head that the draft vocabulary keeps, `[H, D]` in f32. The softmax over them alone costs D/V of
/// the full one.
pub fn restricted_head(llama: &Llama, vocab: &VocabMap) -> Tensor<2> {
    llama.head().rows(vocab.targets()).transpose().inner().cast(DType::F32)
}

/// One draft row of a batch that trains at some step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Anchor {
    /// Sequence in the batch.
    pub sequence: usize,
    /// Position t of the feature.
    pub position: usize,
}

/// Sequences padded to one length for the draft. Padding is on the right, so the causal mask keeps it out of every real row.
pub struct Batch<'a> {
    sequences: &'a [Sequence],
    /// Rows that train.
    pub anchors: Vec<Anchor>,
    steps: usize,
    /// Added to the features that the draft reads, `[B, n, F]`; not to those that it guesses.
    noise: Option<Tensor<3>>,
}

impl<'a> Batch<'a> {
    /// A batch for `steps` unrolled steps.
    pub fn new(sequences: &'a [Sequence], steps: usize) -> Self {
        let anchors = sequences.iter().enumerate().flat_map(|(sequence, s)| {
            align::anchors(&s.assistant, steps).into_iter().map(move |position| Anchor { sequence, position })
        });
        Self { sequences, anchors: anchors.collect(), steps, noise: None }
    }

    /// The same batch with uniform noise of `amplitude` times 512 over each sequence's rows on the features that the draft
    /// reads, as the EAGLE-1 family is trained.
    pub fn with_noise(mut self, amplitude: f32, rng: &mut impl Rng) -> Self {
        if amplitude > 0.0 && !self.anchors.is_empty() {
            let (n, width) = (self.rows(), self.sequences[0].features.dims()[1]);
            let of = |s: &Sequence, rng: &mut _| {
                let scale = amplitude * 512.0 / s.len() as f32;
                (0..n * width).map(|_| (Rng::random::<f32>(rng) - 0.5) * scale).collect::<Vec<_>>()
            };
            let values: Vec<f32> = self.sequences.iter().flat_map(|s| of(s, rng)).collect();
            let device = self.sequences[0].features.device();
            self.noise = Some(Tensor::from_data(TensorData::new(values, [self.sequences.len(), n, width]), &device));
        }
        self
    }

    /// Draft rows of the longest sequence: features 0..T-2, for the last token is predicted from T-3.
    fn rows(&self) -> usize {
        self.sequences.iter().map(|s| s.len().saturating_sub(2)).max().unwrap_or(0)
    }

    /// Unrolls the draft and lines the target up with it. `head` is [`restricted_head`]; `step_sequences` is how many
    /// sequences share the optimiser step.
    pub fn unroll(&self, draft: &DraftModel, head: &Tensor<2>, step_sequences: usize) -> Unrolled {
        let n = self.rows();
        let clean = self.padded(|s| &s.features, 0, n);
        let features = self.noise.iter().fold(clean, |features, noise| features + noise.clone());
        let form = draft.unroll_rows();
        let embeds = |step: usize, from: usize| self.padded(|s| &s.embeds, 1 + form.shift(step) + from, n - from);
        let positions = [(0..n).collect()];
        let image: Vec<Vec<Option<usize>>> = self.sequences.iter().map(|s| window(&s.image, 1, n)).collect();
        let rows =
            FeatureRows { features, embeds: embeds(0, 0), positions: &positions, mask: &Mask::Causal, image: &image };
        // Prompts are seen, but begin no path that trains.
        let from = self.anchors.iter().map(|anchor| anchor.position).min().unwrap_or(0);
        let later: Vec<Tensor<3>> = (1..self.steps).map(|step| embeds(step, from)).collect();
        let passes = draft.unroll(rows, from, &later);
        let probabilities = self.target_probabilities(head);
        let greedy = self.greedy(draft.vocab());
        // Several taps are more than the head reads: such a draft guesses no feature of the target.
        let next = (draft.taps().len() == 1).then(|| flat_rows(self.padded(|s| &s.features, 1 + from, n - from)));
        let steps = passes.into_iter().enumerate().map(|(j, pass)| {
            // A row beyond the end trains nothing; any other stands in for it.
            let row = |a: &Anchor| a.sequence * (n - from) + form.row(a.position, j).min(n - 1) - from;
            let flat: Vec<usize> = self.anchors.iter().map(row).collect();
            let of_draft = index(&flat, &pass.predict.device());
            let predict = flat_rows(pass.predict).select(0, of_draft.clone());
            let features = next.as_ref().map(|next| FeaturePair {
                draft: flat_rows(pass.hidden).select(0, of_draft),
                target: next.clone().select(0, index(&flat, &next.device())),
            });
            let logits = draft.logits(predict.unsqueeze_dim::<3>(0)).squeeze_dim::<2>(0);
            let (target_rows, trains) = self.targets(j, draft.vocab());
            let target = probabilities.clone().select(0, index(&target_rows, &probabilities.device()));
            Step {
                logits,
                target,
                trains,
                greedy: greedy.iter().map(|path| path[j]).collect(),
                tokens: self.tokens(j, draft.vocab()),
                features,
            }
        });
        let weights = self.weights(step_sequences);
        Unrolled { steps: steps.collect(), weights, following: self.following(), paths: None }
    }

    /// `[B, n, width]`: rows `from..from + n` of every sequence, zeros behind its end.
    fn padded(&self, of: impl Fn(&Sequence) -> &Tensor<2>, from: usize, n: usize) -> Tensor<3> {
        let rows = self.sequences.iter().map(|s| {
            let source = of(s);
            let [length, width] = source.dims();
            let end = (from + n).min(length);
            let start = from.min(end);
            let mut parts = vec![];
            if end > start {
                parts.push(source.clone().slice(start..end));
            }
            if end - start < n {
                parts.push(Tensor::zeros([n - (end - start), width], &source.device()));
            }
            Tensor::cat(parts, 0)
        });
        Tensor::stack::<3>(rows.collect(), 0)
    }

    /// The target's probabilities over the draft vocabulary behind all needed rows of all sequences, `[sum U, D]`.
    fn target_probabilities(&self, head: &Tensor<2>) -> Tensor<2> {
        let hidden = Tensor::cat(self.sequences.iter().map(|s| s.hidden.clone()).collect(), 0);
        let logits = matmul(hidden, head.clone(), false);
        masked_softmax(logits.unsqueeze::<4>(), None).squeeze_dims(&[0, 1])
    }

    /// Row of [`Batch::target_probabilities`] and training flag of every anchor at step `j`. Where nothing trains the row is
    /// any valid one.
    fn targets(&self, j: usize, vocab: &VocabMap) -> (Vec<usize>, Vec<bool>) {
        let mut offsets = vec![0];
        for s in self.sequences {
            offsets.push(offsets[offsets.len() - 1] + s.argmax.len());
        }
        let places: Vec<Vec<Option<usize>>> = self.sequences.iter().map(places).collect();
        let cells = self.anchors.iter().map(|a| {
            let s = &self.sequences[a.sequence];
            let trains = align::trains(&s.assistant, a.position, j);
            let place = places[a.sequence].get(align::target_row(a.position, j)).copied().flatten();
            match place.filter(|_| trains) {
                Some(u) => (offsets[a.sequence] + u, vocab.draft(s.argmax[u]).is_some()),
                None => (offsets[a.sequence], false),
            }
        });
        cells.unzip()
    }

    /// The data's token of every anchor at step `j` as a draft id, where it is the assistant's and the draft can say it.
    fn tokens(&self, j: usize, vocab: &VocabMap) -> Vec<Option<u32>> {
        let token = |a: &Anchor| {
            let s = &self.sequences[a.sequence];
            align::trains(&s.assistant, a.position, j).then(|| vocab.draft(s.ids[a.position + 2 + j])).flatten()
        };
        self.anchors.iter().map(token).collect()
    }

    /// The target's greedy path from every anchor as draft ids, cut at the first token that the draft cannot say.
    fn greedy(&self, vocab: &VocabMap) -> Vec<Vec<Option<u32>>> {
        let chosen: Vec<Vec<u32>> = self.sequences.iter().map(spread_argmax).collect();
        self.anchors
            .iter()
            .map(|a| {
                let s = &self.sequences[a.sequence];
                let path = align::greedy_path(&s.ids, &s.assistant, &chosen[a.sequence], a.position, self.steps);
                let mut said = path.into_iter().map(|t| t.and_then(|t| vocab.draft(t)));
                let mut cut: Vec<Option<u32>> = said.by_ref().take_while(Option::is_some).collect();
                cut.resize(self.steps, None);
                cut
            })
            .collect()
    }

    /// How many steps of each anchor the target's choice is known for, whether the draft can say it or not.
    pub(crate) fn known(&self, steps: usize) -> Vec<usize> {
        let chosen: Vec<Vec<u32>> = self.sequences.iter().map(spread_argmax).collect();
        let known = |a: &Anchor| {
            let s = &self.sequences[a.sequence];
            let path = align::greedy_path(&s.ids, &s.assistant, &chosen[a.sequence], a.position, steps);
            path.iter().flatten().count()
        };
        self.anchors.iter().map(known).collect()
    }

    fn weights(&self, step_sequences: usize) -> Vec<f32> {
        let answer = |s: &Sequence| s.assistant.iter().skip(2).filter(|a| **a).count().max(1);
        let counts: Vec<usize> = self.sequences.iter().map(answer).collect();
        self.anchors.iter().map(|a| 1.0 / (counts[a.sequence] * step_sequences) as f32).collect()
    }

    fn following(&self) -> Vec<Option<usize>> {
        let later = |a: &Anchor| Anchor { position: a.position + 1, ..*a };
        (0..self.anchors.len())
            .map(|m| Some(m + 1).filter(|n| self.anchors.get(*n) == Some(&later(&self.anchors[m]))))
            .collect()
    }

    /// Tokens of greedy paths at step 0 that the draft vocabulary lacks, and all of them.
    pub fn out_of_vocabulary(&self, vocab: &VocabMap) -> (usize, usize) {
        let all = self.sequences.iter().flat_map(|s| &s.argmax);
        (all.clone().filter(|t| vocab.draft(**t).is_none()).count(), all.count())
    }
}

/// `image[from..from + n]`, text behind the end.
fn window(image: &[Option<usize>], from: usize, n: usize) -> Vec<Option<usize>> {
    (from..from + n).map(|row| image.get(row).copied().flatten()).collect()
}

/// Index into the needed rows for each row of the sequence.
pub(crate) fn places(s: &Sequence) -> Vec<Option<usize>> {
    let mut places = vec![None; s.len()];
    align::target_rows(&s.assistant).into_iter().enumerate().for_each(|(u, row)| places[row] = Some(u));
    places
}

/// The argmax behind every row; rows whose choice is not needed hold 0 and are never read.
fn spread_argmax(s: &Sequence) -> Vec<u32> {
    places(s).into_iter().map(|u| u.map_or(0, |u| s.argmax[u])).collect()
}
