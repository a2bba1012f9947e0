//! A draft as decoding and training see it.
//!
//! Indexing everywhere: the features at position t go with the embedding of x_{t+1} and predict x_{t+2}.

use std::path::Path;

use burn::module::{ModuleMapper, Param};
use burn::prelude::*;
use burn::tensor::DType;
use sightdraft_core::{Checkpoint, Error, Result};
use sightdraft_target::{KvCache, Llama, Mask, on_plain_cpu};

use crate::published::{self, Published};
use crate::{DraftConfig, Eagle1, Eagle3, Griffin, Method, UnrollRows, ViSpec, VocabMap};

/// Rows that carry the target's features.
#[derive(Debug, Clone)]
pub struct FeatureRows<'a> {
    /// Concatenated taps of position t, `[B, n, F]`.
    pub features: Tensor<3>,
    /// Input embedding of x_{t+1}, `[B, n, H]`; the projected image features where x_{t+1} is an image row.
    pub embeds: Tensor<3>,
    /// RoPE positions, `[B or 1][n]`.
    pub positions: &'a [Vec<usize>],
    /// Attention among these rows and over the cache.
    pub mask: &'a Mask,
    /// Which image of the sequence x_{t+1} is a row of, `[B][n]`; None for text. All rows of an image come in one call.
    pub image: &'a [Vec<Option<usize>>],
}

/// What the draft keeps of a sequence.
#[derive(Debug, Clone)]
pub struct DraftState {
    /// Keys and values of the draft's layer.
    pub cache: KvCache,
    /// What a draft with a global image feature keeps of each sequence's latest image, `[B, H]`.
    pub global: Option<Tensor<2>>,
}

impl DraftState {
    /// Before the first row.
    pub fn new(cache: KvCache) -> Self {
        Self { cache, global: None }
    }
}

/// What a draft pass leaves.
#[derive(Debug, Clone)]
pub struct DraftPass {
    /// The draft's own feature, input of the next step, `[B, n, H]`.
    pub hidden: Tensor<3>,
    /// What the head reads, `[B, n, H]` (differs from `hidden` in GRIFFIN only).
    pub predict: Tensor<3>,
}

/// A draft head.
pub trait Draft {
    /// Indices into the target's hidden_states that it reads.
    fn taps(&self) -> &[usize];

    /// Its vocabulary.
    fn vocab(&self) -> &VocabMap;

    /// An empty state.
    fn start(&self) -> DraftState;

    /// Which of the rows of one call to [`Draft::extend`] leave a key in the cache, ascending: all, unless the draft compresses
    /// images. `image` as in [`FeatureRows`].
    fn keyed_rows(&self, image: &[Option<usize>]) -> Vec<usize> {
        (0..image.len()).collect()
    }

    /// Rows with the target's features, appended to the state.
    fn extend(&self, state: &mut DraftState, rows: FeatureRows<'_>) -> DraftPass;

    /// Rows with the draft's own features (`hidden` `[B, n, H]` of their parents), appended to the state.
    fn step(
        &self,
        state: &mut DraftState,
        hidden: Tensor<3>,
        embeds: Tensor<3>,
        positions: &[Vec<usize>],
        mask: &Mask,
    ) -> DraftPass;

    /// How the rows of later steps are numbered.
    fn unroll_rows(&self) -> UnrollRows;

    /// The training unroll over the rows from `from` on: those before leave keys that paths see, but no path of theirs is asked
    /// for. Step 0 is `rows`; step j uses the hidden of step j-1 and `later[j-1]`, the embeddings of the rows from `from` on,
    /// shifted left by [`UnrollRows::shift`] of j. Returns one pass of those rows per step (`later.len() + 1`); autodiff flows
    /// through all of them, as far as the method does not cut it.
    ///
    /// # Shapes
    /// - rows: `[B, n, ..]`; each of `later`: `[B, n - from, H]`
    /// - passes: `[B, n - from, H]`
    fn unroll(&self, rows: FeatureRows<'_>, from: usize, later: &[Tensor<3>]) -> Vec<DraftPass>;

    /// Logits over the draft vocabulary, `[B, n, D]`.
    fn logits(&self, predict: Tensor<3>) -> Tensor<3>;
}

/// Any draft, for training and for loading from a directory.
#[derive(Module, Debug)]
#[allow(clippy::large_enum_variant, reason = "a program holds one or two drafts, and moves them hardly ever")]
pub enum DraftModel {
    /// EAGLE-1, EAGLE-2, HASS and MSD.
    Eagle1(Eagle1),
    /// GRIFFIN.
    Griffin(Griffin),
    /// ViSpec.
    ViSpec(ViSpec),
    /// EAGLE-3.
    Eagle3(Eagle3),
}

impl DraftModel {
    /// A fresh draft for `target`; `vocab` is the whole vocabulary where the method speaks through the target's head.
    pub fn init(config: DraftConfig, vocab: VocabMap, target: &Llama, device: &Device) -> Self {
        match config.method {
            Method::Eagle3 => Self::Eagle3(Eagle3::init(config, vocab, target, device)),
            Method::Griffin => Self::Griffin(Griffin::init(config, target, device)),
            Method::Vispec => Self::ViSpec(ViSpec::init(config, target, device)),
            _ => Self::Eagle1(Eagle1::init(config, target, device)),
        }
    }

    /// Reads a draft directory; checks that it fits the target, whose head it may share.
    ///
    /// # Errors
    /// Not a draft; another hidden size or vocabulary; taps that the target does not have; missing, truncated or misshapen
    /// tensors; no d2t where D != V.
    pub fn open(dir: &Path, target: &Llama, device: &Device) -> Result<Self> {
        let config = DraftConfig::open(dir, &target.config)?;
        let checkpoint = Checkpoint::open(dir)?;
        Ok(match config.method {
            Method::Eagle3 => Self::Eagle3(Eagle3::load(&checkpoint, config, device)?),
            Method::Griffin => Self::Griffin(Griffin::load(&checkpoint, config, target, device)?),
            Method::Vispec => Self::ViSpec(ViSpec::load(&checkpoint, config, target, device)?),
            _ => Self::Eagle1(Eagle1::load(&checkpoint, config, target, device)?),
        })
    }

    /// The same draft for another vocabulary, see [`Eagle3::with_vocab`].
    ///
    /// # Errors
    /// A method that speaks through the target's head, and so has the target's vocabulary.
    pub fn with_vocab(self, vocab: VocabMap, target: &Llama) -> Result<Self> {
        match self {
            Self::Eagle3(draft) => Ok(Self::Eagle3(draft.with_vocab(vocab, target))),
            other => {
                let (expected, found) =
                    ("an EAGLE-3 draft to start from", other.published().config().method.to_string());
                Err(Error::invalid("draft_vocab_size", expected, found, "leave it out"))
            }
        }
    }

    /// The form for inference: on the CPU packed for few rows, in bf16, for a step costs what its weights take to read and a guess
    /// need not be exact; it no longer trains.
    pub fn for_inference(self) -> Self {
        match self.map(&mut Halve) {
            Self::Eagle1(draft) => Self::Eagle1(draft.for_inference()),
            Self::Griffin(draft) => Self::Griffin(draft.for_inference()),
            Self::ViSpec(draft) => Self::ViSpec(draft.for_inference()),
            Self::Eagle3(draft) => Self::Eagle3(draft.for_inference()),
        }
    }

    /// Writes the published layout (config.json, model.safetensors) into `dir`. Both files are complete before either takes
    /// its name; other files in `dir` stay.
    ///
    /// # Errors
    /// What the disk refuses.
    pub fn save(&self, dir: &Path) -> Result<()> {
        published::save(self.published(), dir)
    }

    /// Geometry and tensors under their published names.
    pub fn published(&self) -> &dyn Published {
        match self {
            Self::Eagle1(draft) => draft,
            Self::Griffin(draft) => draft,
            Self::ViSpec(draft) => draft,
            Self::Eagle3(draft) => draft,
        }
    }

    fn inner(&self) -> &dyn Draft {
        match self {
            Self::Eagle1(draft) => draft,
            Self::Griffin(draft) => draft,
            Self::ViSpec(draft) => draft,
            Self::Eagle3(draft) => draft,
        }
    }
}

impl Draft for DraftModel {
    fn taps(&self) -> &[usize] {
        self.inner().taps()
    }

    fn vocab(&self) -> &VocabMap {
        self.inner().vocab()
    }

    fn start(&self) -> DraftState {
        self.inner().start()
    }

    fn keyed_rows(&self, image: &[Option<usize>]) -> Vec<usize> {
        self.inner().keyed_rows(image)
    }

    fn extend(&self, state: &mut DraftState, rows: FeatureRows<'_>) -> DraftPass {
        self.inner().extend(state, rows)
    }

    fn step(
        &self,
        state: &mut DraftState,
        hidden: Tensor<3>,
        embeds: Tensor<3>,
        positions: &[Vec<usize>],
        mask: &Mask,
    ) -> DraftPass {
        self.inner().step(state, hidden, embeds, positions, mask)
    }

    fn unroll_rows(&self) -> UnrollRows {
        self.inner().unroll_rows()
    }

    fn unroll(&self, rows: FeatureRows<'_>, from: usize, later: &[Tensor<3>]) -> Vec<DraftPass> {
        self.inner().unroll(rows, from, later)
    }

    fn logits(&self, predict: Tensor<3>) -> Tensor<3> {
        self.inner().logits(predict)
    }
}

/// Rounds matrices on the plain CPU to bf16; norms and biases stay.
struct Halve;

impl ModuleMapper for Halve {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        match D == 2 && on_plain_cpu(&param.val().device()) {
            true => Param::initialized(param.id, param.val().cast(DType::BF16)),
            false => param,
        }
    }
}
