//! What a run will take, before it starts. Works from configs and lengths alone: no weights, no device.

use std::fmt;

use serde::Serialize;
use sightdraft_draft::{DraftConfig, Method};
use sightdraft_target::LlamaConfig;

use crate::batches;
use crate::config::{Features, TrainConfig};

/// A conversation as the schedule sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size {
    /// Rows in the language model.
    pub rows: usize,
    /// Rows before the assistant's first: no path begins there.
    pub prompt: usize,
    /// Rows that are the assistant's: logits are made for those alone.
    pub answer: usize,
    /// Whether it has images.
    pub image: bool,
}

impl Size {
    /// From which rows are the assistant's.
    pub fn of(assistant: &[bool], image: bool) -> Self {
        Self {
            rows: assistant.len(),
            prompt: assistant.iter().take_while(|a| !**a).count(),
            answer: assistant.iter().filter(|a| **a).count(),
            image,
        }
    }
}

/// The plan that `--dry-run` prints. Bytes are estimates.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Plan {
    /// Conversations that train.
    pub examples: usize,
    /// Conversations longer than `max_length`, left out.
    pub too_long: usize,
    /// Optimiser steps.
    pub steps: usize,
    /// Sequence rows in all steps together, without padding.
    pub tokens: usize,
    /// Parameters of the target.
    pub target_parameters: u64,
    /// Parameters of the draft.
    pub draft_parameters: u64,
    /// Peak memory: the target in `target_bytes` per weight, the draft with gradient and moments in f32, one batch's tape.
    /// `cargo bench -p sightdraft-train --bench training` measures how far it is off.
    pub memory: u64,
    /// The part of `memory` that a batch needs: the unroll's tape with the target's working set.
    pub unroll: u64,
    /// Disk: last and best checkpoint, the one being written, and the feature cache.
    pub disk: u64,
    /// The feature cache's part of `disk`.
    pub cache: u64,
}

/// What the program takes before it has read anything, and what the allocator keeps of freed memory.
const PROCESS: u64 = 88 << 20;

/// Plans `config` for conversations of these `sizes`. `target_bytes` is 4 for f32, 2 for f16.
pub fn plan(
    config: &TrainConfig,
    target: &LlamaConfig,
    draft: &DraftConfig,
    sizes: &[Size],
    target_bytes: u64,
) -> Plan {
    let kept: Vec<Size> = sizes.iter().copied().filter(|size| size.rows <= config.max_length).collect();
    let schedule = schedule(config, &kept);
    let tokens = schedule.iter().flatten().flatten().map(|i| kept[*i].rows).sum();
    let target_parameters = llama_parameters(target);
    let draft_parameters = draft.parameters();
    let cache = match config.features {
        Features::Online => 0,
        // Taps, final hidden state and embedding of every row in f16.
        Features::Disk => {
            kept.iter().map(|size| size.rows).sum::<usize>() as u64
                * (draft.taps.len() as u64 + 2)
                * target.hidden_size as u64
                * 2
        }
    };
    let restricted_head = draft.draft_vocab_size as u64 * target.hidden_size as u64 * 4;
    let tape = Tape { config, target, draft };
    let of = |batch: &Vec<usize>| tape.of_batch(&batch.iter().map(|i| kept[*i]).collect::<Vec<_>>());
    let unroll = schedule.iter().flatten().map(of).max().unwrap_or_else(|| tape.of_batch(&fullest(config)));
    let shared_table =
        if draft.method.shares_head() { target.vocab_size as u64 * target.hidden_size as u64 } else { 0 };
    Plan {
        examples: kept.len(),
        too_long: sizes.len() - kept.len(),
        steps: schedule.len(),
        tokens,
        target_parameters,
        draft_parameters,
        memory: PROCESS + resident(target, target_bytes) + restricted_head + draft_parameters * 16 + unroll,
        unroll,
        // Last = weights and two moments, twice while it is replaced; best = weights, twice as well; in each the copy of the
        // target's embeddings that the EAGLE-1 family publishes.
        disk: draft_parameters * 4 * (2 * 3 + 2) + shared_table * 4 * (2 + 2) + cache,
        cache,
    }
}

/// As large a batch as the recipe allows, for data that are not there yet.
fn fullest(config: &TrainConfig) -> Vec<Size> {
    let rows = config.batch_tokens.min(config.max_length).max(1);
    vec![Size { rows, prompt: 0, answer: rows, image: false }; config.batch_tokens / rows]
}

/// The batches of every optimiser step, over all epochs.
pub(crate) fn schedule(config: &TrainConfig, sizes: &[Size]) -> Vec<Vec<Vec<usize>>> {
    if sizes.is_empty() {
        return vec![];
    }
    let lengths: Vec<usize> = sizes.iter().map(|size| size.rows).collect();
    let all: Vec<Vec<usize>> = if config.visual_ramp {
        let image: Vec<bool> = sizes.iter().map(|size| size.image).collect();
        batches::ramp(&lengths, &image, config.epochs * sizes.len(), config.batch_tokens, config.seed)
    } else {
        (0..config.epochs).flat_map(|e| batches::epoch(&lengths, config.batch_tokens, config.seed, e)).collect()
    };
    let steps = all.chunks(config.accumulate).map(<[_]>::to_vec);
    steps.take(config.max_steps.unwrap_or(usize::MAX)).collect()
}

fn layer_parameters(c: &LlamaConfig, attention_input: usize) -> u64 {
    let (h, d) = (c.hidden_size as u64, c.head_dim as u64);
    let (q, kv) = (c.num_attention_heads as u64 * d, c.num_key_value_heads as u64 * d);
    attention_input as u64 * (q + 2 * kv) + q * h + 3 * h * c.intermediate_size as u64 + 2 * h
}

fn llama_parameters(c: &LlamaConfig) -> u64 {
    let table = c.vocab_size as u64 * c.hidden_size as u64;
    let tables = if c.tie_word_embeddings { table } else { 2 * table };
    tables + c.num_hidden_layers as u64 * layer_parameters(c, c.hidden_size) + c.hidden_size as u64
}

/// The target's weights as the CPU keeps them: rows are looked up in an f32 table, and a tied head is packed beside it.
fn resident(c: &LlamaConfig, bytes: u64) -> u64 {
    let table = c.vocab_size as u64 * c.hidden_size as u64;
    let tied_head = if c.tie_word_embeddings { table * bytes } else { 0 };
    llama_parameters(c) * bytes + table * (4 - bytes) + tied_head
}

/// What a batch holds in memory at most.
struct Tape<'a> {
    config: &'a TrainConfig,
    target: &'a LlamaConfig,
    draft: &'a DraftConfig,
}

impl Tape<'_> {
    /// What every unrolled step leaves on the tape for every row from the first path on, padding included, and for every anchor;
    /// what the rows before leave for paths to see; the taps and the target's own working set once; and three rows of D for an
    /// anchor besides the steps' (the target's probabilities before they are lined up, and gradients on their way back).
    fn of_batch(&self, batch: &[Size]) -> u64 {
        let steps = self.config.unroll as u64;
        let longest = batch.iter().map(|size| size.rows).max().unwrap_or(0) as u64;
        let (rows, seen) = (batch.len() as u64 * longest, batch.len() as u64 * self.before_paths(batch));
        // The steps before an answer's first token train too.
        let anchors = |size: &Size| (size.answer as u64 + steps - 1).min(size.rows as u64);
        let anchors: u64 = batch.iter().map(anchors).sum();
        let once = (self.draft.taps.len() as u64 + 4) * self.target.hidden_size as u64
            + 2 * self.target.intermediate_size as u64;
        let vocabulary = steps * self.config.objective.objective().vocabulary_rows() + 3;
        let paths = batch.len() as u64 * self.of_paths(longest);
        let unroll = (rows - seen) * steps * self.of_row(longest) + seen * self.of_seen_row();
        rows * 4 * once + unroll + anchors * self.of_vocabulary(vocabulary) + paths
    }

    /// Rows of each sequence that no path of the batch begins at or comes to. ViSpec's steps pass all rows.
    fn before_paths(&self, batch: &[Size]) -> u64 {
        if self.draft.method == Method::Vispec {
            return 0;
        }
        // The row that predicts the first of the answer, and the steps before it.
        let before = |size: &Size| size.prompt.saturating_sub(1 + self.config.unroll);
        batch.iter().map(before).min().unwrap_or(0) as u64
    }

    /// Bytes per row that is only seen: feature and embedding as they come in and normed, keys and values.
    fn of_seen_row(&self) -> u64 {
        4 * 8 * self.draft.layer.hidden_size as u64
    }

    /// Bytes of one sequence's sampled paths, where the objective has the draft sample them: every path is a row of every
    /// level and attends to the sequence and to the levels so far of all paths.
    fn of_paths(&self, longest: u64) -> u64 {
        let Some(request) = self.config.objective.objective().rollout() else { return 0 };
        let (paths, levels) = ((request.anchors * request.samples) as u64, self.config.unroll as u64);
        (0..levels).map(|level| paths * (self.of_row(longest + level * paths) + self.of_vocabulary(3))).sum()
    }

    /// Bytes per row and step: about two dozen rows of H, three of I, and two of attention weights over `keys` in every head;
    /// GRIFFIN's fusion is a gated MLP of its own.
    fn of_row(&self, keys: u64) -> u64 {
        let layer = &self.draft.layer;
        let (h, i) = (layer.hidden_size as u64, layer.intermediate_size as u64);
        let fusion = if self.draft.method == Method::Griffin { 10 * h + 2 * i } else { 0 };
        4 * (22 * h + 3 * i + fusion + 2 * layer.num_attention_heads as u64 * keys)
    }

    /// Bytes of `rows` rows of the draft's vocabulary.
    fn of_vocabulary(&self, rows: u64) -> u64 {
        4 * rows * self.draft.draft_vocab_size as u64
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "conversations  {} ({} left out as too long)", self.examples, self.too_long)?;
        writeln!(f, "steps          {}", self.steps)?;
        writeln!(f, "tokens         {}", self.tokens)?;
        let (target, draft) = (self.target_parameters as f64 / 1e6, self.draft_parameters as f64 / 1e6);
        writeln!(f, "parameters     target {target:.1} M, draft {draft:.1} M")?;
        let (memory, unroll) = (gib(self.memory), gib(self.unroll));
        writeln!(f, "memory         about {memory:.1} GiB, {unroll:.2} of it the unroll of a batch")?;
        write!(f, "disk           about {:.2} GiB, {:.2} of it feature cache", gib(self.disk), gib(self.cache))
    }
}

/// Bytes as GiB.
pub fn gib(bytes: u64) -> f64 {
    bytes as f64 / (1u64 << 30) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ObjectiveConfig;
    use crate::objective::{Em, Oracle, SoftCe, Vsd};

    fn smollm2() -> LlamaConfig {
        LlamaConfig::open(&sightdraft_fixtures::root().join("configs/smollm2-135m")).unwrap()
    }

    fn text(rows: usize) -> Size {
        Size { rows, prompt: 0, answer: rows, image: false }
    }

    #[test]
    fn counts_the_published_parameters_and_every_row() {
        let target = smollm2();
        let draft = DraftConfig::for_target(Method::Eagle3, &target, 8192).unwrap();
        let config = TrainConfig { epochs: 2, features: Features::Disk, ..TrainConfig::default() };
        let plan = plan(&config, &target, &draft, &[100, 200, 300, 5000].map(text), 4);
        assert_eq!(plan.target_parameters, 134_515_008);
        assert_eq!((plan.examples, plan.too_long, plan.tokens), (3, 1, 1200));
        assert_eq!(plan.steps, 2);
        assert_eq!(plan.cache, 600 * 5 * 576 * 2);
        assert!(plan.memory > plan.target_parameters * 4 && plan.memory < 2 << 30, "{plan}");
    }

    #[test]
    fn long_rows_and_sampled_paths_cost_memory() {
        let target = smollm2();
        let draft = DraftConfig::for_target(Method::Eagle3, &target, 8192).unwrap();
        let memory = |objective, length: usize| {
            let config = TrainConfig { objective, ..TrainConfig::default() };
            plan(&config, &target, &draft, &vec![text(length); 1024 / length], 4).memory
        };
        let soft_ce = || ObjectiveConfig::SoftCe(SoftCe::default());
        // 1024 rows of 9 heads over 1024 keys, twice per step, 5 steps.
        assert_eq!(memory(soft_ce(), 1024) - memory(soft_ce(), 512), 1024 * 9 * 512 * 2 * 5 * 4);
        let ratio = |samples| ObjectiveConfig::Vsd(Vsd::Em(Em { oracle: Oracle::Ratio, samples, ..Em::default() }));
        assert!(memory(ratio(8), 512) > memory(soft_ce(), 512));
        assert!(memory(ratio(64), 512) > memory(ratio(8), 512) + (1 << 30));
        assert_eq!(memory(ObjectiveConfig::Vsd(Vsd::Em(Em::default())), 512), memory(soft_ce(), 512));
    }

    #[test]
    fn logits_cost_memory_where_the_assistant_speaks() {
        let target = smollm2();
        let draft = DraftConfig::for_target(Method::Eagle1, &target, target.vocab_size).unwrap();
        let memory = |answer| {
            let sizes = [Size { rows: 500, prompt: 100, answer, image: true }];
            plan(&TrainConfig::default(), &target, &draft, &sizes, 4).memory
        };
        // Logits and the target's probabilities on five steps, three rows besides.
        assert_eq!(memory(300) - memory(200), 100 * (5 * 2 + 3) * 49152 * 4);
    }

    #[test]
    fn data_that_are_not_there_yet_are_planned_for_as_a_full_batch() {
        let target = smollm2();
        let draft = DraftConfig::for_target(Method::Eagle3, &target, 8192).unwrap();
        let config = TrainConfig { max_length: 512, ..TrainConfig::default() };
        let unroll = |sizes: &[Size]| plan(&config, &target, &draft, sizes, 4).unroll;
        assert_eq!(unroll(&[]), unroll(&[text(512); 2]));
    }
}
