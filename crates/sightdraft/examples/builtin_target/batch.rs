//! Charts as padded batches of token ids and pixels.

use burn::prelude::*;
use sightdraft_core::{Result, Tokenizer};
use sightdraft_datasets::charts::{Chart, Split};
use sightdraft_vision::{Image, Pixels, Preprocessor};

use crate::tokenizer::{IMAGE, PAD};

/// Batches that are drawn together and sorted by length, so that little is padding.
const POOL: u64 = 8;

/// Turns charts into what the model sees.
pub struct Encoder {
    /// The tokenizer.
    pub tokenizer: Tokenizer,
    /// Pixels of an image.
    pub preprocessor: Preprocessor,
}

/// A conversation: ids up to the answer, ids of the answer with its end.
pub struct Sample {
    /// BOS, the user's turn with one image token, `ASSISTANT:`.
    pub prompt: Vec<u32>,
    /// The answer and EOS.
    pub answer: Vec<u32>,
    /// The picture.
    pub pixels: Pixels,
}

/// A padded batch. Right padding needs no mask: causal rows never see it and it has no loss.
pub struct Batch {
    /// Ids before the image, `[B, p]`, the same in every row.
    pub before: Tensor<2, Int>,
    /// Ids behind the image, `[B, n]`.
    pub after: Tensor<2, Int>,
    /// Pictures.
    pub pixels: Vec<Pixels>,
    /// Rows of the flattened `[B * (p + image rows + n)]` that predict an answer token.
    pub rows: Tensor<1, Int>,
    /// What each of them predicts, `[rows, 1]`.
    pub targets: Tensor<2, Int>,
}

impl Encoder {
    /// The conversation of `chart`, as the chat template renders it.
    ///
    /// # Errors
    /// What the tokenizer refuses.
    pub fn sample(&self, chart: &Chart) -> Result<Sample> {
        let prompt = format!("<s>USER: <image>\n{} ASSISTANT:", chart.question);
        Ok(Sample {
            prompt: self.tokenizer.encode(&prompt, false)?,
            answer: self.tokenizer.encode(&format!(" {}</s>", chart.answer), false)?,
            pixels: self.pixels(chart)?,
        })
    }

    fn pixels(&self, chart: &Chart) -> Result<Pixels> {
        let (width, height) = (chart.image.width() as usize, chart.image.height() as usize);
        Ok(self.preprocessor.apply(&Image::from_rgb(width, height, chart.image.as_raw().clone())?))
    }
}

/// The training batches of a run, in order. Each follows from the seed and its step alone, so that a resumed run sees the
/// batches that an uninterrupted one would.
pub struct Feed<'a> {
    encoder: &'a Encoder,
    seed: u64,
    size: usize,
    /// The charts of the pool of that number, sorted by the length of their answers.
    pool: (u64, Vec<Chart>),
}

impl<'a> Feed<'a> {
    /// Batches of `size` charts of the set `seed`.
    pub fn new(encoder: &'a Encoder, seed: u64, size: usize) -> Self {
        Self { encoder, seed, size, pool: (u64::MAX, Vec::new()) }
    }

    /// The samples of `step`, answers cut after `limit` tokens.
    ///
    /// # Errors
    /// What the tokenizer refuses.
    pub fn samples(&mut self, step: u64, limit: usize) -> Result<Vec<Sample>> {
        let count = POOL * self.size as u64;
        let pool = step / POOL;
        if self.pool.0 != pool {
            let mut charts: Vec<Chart> =
                (0..count).map(|i| Chart::new(self.seed, Split::Train, pool * count + i)).collect();
            charts.sort_by_key(|chart| chart.answer.len());
            self.pool = (pool, charts);
        }
        let first = (step % POOL) as usize * self.size;
        let samples = self.pool.1[first..first + self.size].iter().map(|chart| {
            let mut sample = self.encoder.sample(chart)?;
            sample.answer.truncate(limit);
            Ok(sample)
        });
        samples.collect()
    }
}

/// Pads `samples` to the longest.
pub fn collate(samples: Vec<Sample>, image_rows: usize, device: &Device) -> Batch {
    let size = samples.len();
    let image = samples[0].prompt.iter().position(|id| *id == IMAGE).unwrap_or(0);
    let longest = samples.iter().map(|s| s.prompt.len() + s.answer.len()).max().unwrap_or(0) - image - 1;
    let (mut before, mut after, mut rows, mut targets) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let width = image + image_rows + longest;
    for (i, sample) in samples.iter().enumerate() {
        before.extend(sample.prompt[..image].iter().map(|id| *id as i64));
        let ids = sample.prompt[image + 1..].iter().chain(&sample.answer).map(|id| *id as i64);
        after.extend(ids.chain(std::iter::repeat(i64::from(PAD))).take(longest));
        let first = i * width + sample.prompt.len() - 1 + image_rows - 1;
        rows.extend((0..sample.answer.len()).map(|j| (first + j) as i64));
        targets.extend(sample.answer.iter().map(|id| *id as i64));
    }
    let count = rows.len();
    Batch {
        before: Tensor::from_data(TensorData::new(before, [size, image]), device),
        after: Tensor::from_data(TensorData::new(after, [size, longest]), device),
        pixels: samples.into_iter().map(|sample| sample.pixels).collect(),
        rows: Tensor::from_data(TensorData::new(rows, [count]), device),
        targets: Tensor::from_data(TensorData::new(targets, [count, 1]), device),
    }
}
