//! A draft as decoding and training see it.
//!
//! Indexing everywhere: the features at position t go with the embedding of x_{t+1} and predict x_{t+2}.

use std::fs;
use std::path::Path;

use burn::prelude::*;
use sightdraft_core::checkpoint::save_safetensors;
use sightdraft_core::{Checkpoint, Error, Result};
use sightdraft_target::{KvCache, LlamaConfig, Mask};

use crate::{DraftConfig, Eagle3, VocabMap};

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
    /// Whether x_{t+1} is an image row, `[B][n]`.
    pub image: &'a [Vec<bool>],
}

/// What the draft keeps of a sequence.
#[derive(Debug, Clone)]
pub struct DraftState {
    /// Keys and values of the draft's layer.
    pub cache: KvCache,
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

    /// The training unroll: step 0 is `rows`; step j uses the hidden of step j-1 and `later[j-1]`, the embeddings shifted left
    /// j times. Returns one pass per step (`later.len() + 1`); autodiff flows through all of them.
    fn unroll(&self, rows: FeatureRows<'_>, later: &[Tensor<3>]) -> Vec<DraftPass>;

    /// Logits over the draft vocabulary, `[B, n, D]`.
    fn logits(&self, predict: Tensor<3>) -> Tensor<3>;
}

/// Any draft, for training and for loading from a directory.
#[derive(Module, Debug)]
pub enum DraftModel {
    /// EAGLE-3.
    Eagle3(Eagle3),
}

impl DraftModel {
    /// Reads a draft directory; checks that it fits a target of this geometry.
    ///
    /// # Errors
    /// Not a draft; another hidden size or vocabulary; taps that the target does not have; missing, truncated or misshapen
    /// tensors; no d2t where D != V.
    pub fn open(dir: &Path, target: &LlamaConfig, device: &Device) -> Result<Self> {
        let config = DraftConfig::open(dir, target)?;
        Ok(Self::Eagle3(Eagle3::load(&Checkpoint::open(dir)?, config, device)?))
    }

    /// The form for inference: on the CPU packed for few rows; it no longer trains.
    pub fn for_inference(self) -> Self {
        match self {
            Self::Eagle3(draft) => Self::Eagle3(draft.for_inference()),
        }
    }

    /// Writes the published layout (config.json, model.safetensors) into `dir`. Both files are complete before either takes
    /// its name; other files in `dir` stay.
    ///
    /// # Errors
    /// What the disk refuses.
    pub fn save(&self, dir: &Path) -> Result<()> {
        let Self::Eagle3(draft) = self;
        let stage = dir.join(format!(".draft.{}.tmp", std::process::id()));
        fs::create_dir_all(&stage).map_err(|source| Error::io("create", &stage, source))?;
        let written = write_layout(draft, &stage).and_then(|()| {
            ["model.safetensors", "config.json"].iter().try_for_each(|name| {
                let path = dir.join(name);
                fs::rename(stage.join(name), &path).map_err(|source| Error::io("write", path, source))
            })
        });
        // Left behind only if the disk refuses this too; the first failure is the one to report.
        let _ = fs::remove_dir_all(&stage);
        written
    }

    fn inner(&self) -> &dyn Draft {
        match self {
            Self::Eagle3(draft) => draft,
        }
    }
}

fn write_layout(draft: &Eagle3, dir: &Path) -> Result<()> {
    save_safetensors(&dir.join("model.safetensors"), &draft.tensors(), &[("format", "pt")])?;
    let path = dir.join("config.json");
    fs::write(&path, format!("{:#}\n", draft.config.to_json())).map_err(|source| Error::io("write", path, source))
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

    fn unroll(&self, rows: FeatureRows<'_>, later: &[Tensor<3>]) -> Vec<DraftPass> {
        self.inner().unroll(rows, later)
    }

    fn logits(&self, predict: Tensor<3>) -> Tensor<3> {
        self.inner().logits(predict)
    }
}
