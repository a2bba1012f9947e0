//! Plain generation for many prompts at once: answers that a target gives to its own training prompts.

use burn::prelude::*;
use burn::tensor::DType;
use sightdraft_core::{Error, Result};
use sightdraft_kernels::argmax_rows;
use sightdraft_target::{KvCache, Llama, Mask, PromptRows, Target};

use crate::stop::StopRules;
use crate::verify::to_host;
use crate::{Acceptance, DraftTree, Sampling, Stop, Verifier};

/// Answers every prompt, all in one batch (prompts padded on the left). A row leaves the batch when it ends; `on_done` gets its
/// index, its tokens (the EOS included) and why it ended, in the order of ending. Row i draws as a generation of seed + i
/// does.
///
/// # Errors
/// A prompt that is empty or leaves no room in the context; whatever `on_done` returns.
pub fn generate_batch(
    target: &dyn Target,
    prompts: &[PromptRows],
    max_new_tokens: usize,
    eos: &[u32],
    sampling: Sampling,
    on_done: &mut dyn FnMut(usize, Vec<u32>, Stop) -> Result<()>,
) -> Result<()> {
    let llama = target.llama();
    sampling.check()?;
    let mut rows = Vec::with_capacity(prompts.len());
    for (index, prompt) in prompts.iter().enumerate() {
        let rules = StopRules::new(prompt.ids.len(), max_new_tokens, eos, &llama.config)?;
        rows.push(Row::new(index, rules, prompt.ids.len(), sampling));
    }
    if max_new_tokens == 0 {
        return rows.iter().try_for_each(|row| on_done(row.index, Vec::new(), Stop::Length));
    }
    if rows.is_empty() {
        return Ok(());
    }
    let mut batch = Batch { llama, rows, cache: llama.new_cache() };
    let mut hidden = batch.prefill(prompts)?;
    loop {
        batch.take(hidden, sampling, on_done)?;
        if batch.rows.is_empty() {
            return Ok(());
        }
        hidden = batch.step();
    }
}

/// One prompt on its way.
struct Row<'a> {
    index: usize,
    rules: StopRules<'a>,
    prompt: usize,
    /// Rows of padding before the prompt.
    padding: usize,
    tokens: Vec<u32>,
    verifier: Box<dyn Verifier>,
}

impl<'a> Row<'a> {
    fn new(index: usize, rules: StopRules<'a>, prompt: usize, sampling: Sampling) -> Self {
        let sampling = Sampling { seed: sampling.seed.wrapping_add(index as u64), ..sampling };
        let verifier = Acceptance::PointMass.verifier(sampling);
        Self { index, rules, prompt, padding: 0, tokens: Vec::new(), verifier }
    }
}

struct Batch<'a> {
    llama: &'a Llama,
    rows: Vec<Row<'a>>,
    cache: KvCache,
}

impl Batch<'_> {
    /// All prompts, padded on the left; the last hidden state of each, `[B, 1, H]`.
    fn prefill(&mut self, prompts: &[PromptRows]) -> Result<Tensor<3>> {
        let longest = self.rows.iter().map(|row| row.prompt).max().unwrap_or(0);
        let mut embeds = Vec::with_capacity(prompts.len());
        for (row, prompt) in self.rows.iter_mut().zip(prompts) {
            row.padding = longest - row.prompt;
            let [_, n, width] = prompt.embeds.dims();
            if n != row.prompt {
                let expected = format!("{} embeddings, one per id", row.prompt);
                return Err(Error::invalid("prompt", expected, n.to_string(), "build it with Target::rows"));
            }
            let zeros = Tensor::zeros([1, row.padding, width], (&prompt.embeds.device(), prompt.embeds.dtype()));
            embeds.push(if row.padding == 0 {
                prompt.embeds.clone()
            } else {
                Tensor::cat(vec![zeros, prompt.embeds.clone()], 1)
            });
        }
        let positions: Vec<Vec<usize>> =
            self.rows.iter().map(|row| (0..longest).map(|place| place.saturating_sub(row.padding)).collect()).collect();
        let sees = |row: &Row, query: usize| (0..longest).map(|key| key <= query && key >= row.padding).collect();
        let mask = self.rows.iter().map(|row| (0..longest).map(|query| sees(row, query)).collect()).collect();
        let embeds = Tensor::cat(embeds, 0);
        let pass = self.llama.forward(embeds, &positions, &Mask::Full(mask), &mut self.cache, &[]);
        Ok(pass.hidden.narrow(1, longest - 1, 1))
    }

    /// The next token of every row. Rows that end are handed out, and the last ones take their places in the batch: the cache of
    /// the others stays where it is.
    fn take(
        &mut self,
        hidden: Tensor<3>,
        sampling: Sampling,
        on_done: &mut dyn FnMut(usize, Vec<u32>, Stop) -> Result<()>,
    ) -> Result<()> {
        let logits = self.llama.logits(hidden).squeeze_dim::<2>(1).cast(DType::F32);
        let next = self.next_tokens(logits, sampling);
        let before = next.len();
        let mut going: Vec<usize> = (0..before).collect();
        for (place, token) in next.into_iter().enumerate().rev() {
            let row = &mut self.rows[place];
            let mut new = vec![token];
            let stop = row.rules.cut(&mut new, row.tokens.len());
            row.tokens.append(&mut new);
            if let Some(stop) = stop {
                going.swap_remove(place);
                let row = self.rows.swap_remove(place);
                on_done(row.index, row.tokens, stop)?;
            }
        }
        if going.len() < before {
            self.cache.keep(&going);
        }
        Ok(())
    }

    fn next_tokens(&mut self, logits: Tensor<2>, sampling: Sampling) -> Vec<u32> {
        if sampling.is_greedy() {
            // One small read for the whole batch.
            return argmax_rows(logits).into_iter().map(|id| id as u32).collect();
        }
        let width = logits.dims()[1];
        // One read for the whole batch; what it brought stays here.
        let draw = |(row, logits): (&mut Row, &[f32])| {
            let own = Tensor::from_data(TensorData::new(logits.to_vec(), [1, width]), &Device::flex());
            row.verifier.verify(&DraftTree::root(0), own).bonus
        };
        let logits = to_host(logits);
        self.rows.iter_mut().zip(logits.chunks(width)).map(draw).collect()
    }

    /// The last token of every row through the target: `[B, 1, H]`.
    fn step(&mut self) -> Tensor<3> {
        let past = self.cache.len();
        let tokens: Vec<u32> = self.rows.iter().filter_map(|row| row.tokens.last().copied()).collect();
        let embeds = self.llama.embed_ids(&tokens).swap_dims(0, 1);
        let positions: Vec<Vec<usize>> = self.rows.iter().map(|row| vec![past - row.padding]).collect();
        let sees = |row: &Row| vec![(0..=past).map(|key| key >= row.padding).collect()];
        let mask = Mask::Full(self.rows.iter().map(sees).collect());
        self.llama.forward(embeds, &positions, &mask, &mut self.cache, &[]).hidden
    }
}
