//! A draft as decoding and training see it.
//!
//! Indexing everywhere: the features at position t go with the embedding of x_{t+1} and predict x_{t+2}.

use burn::prelude::*;
use sightdraft_core::Result;
use sightdraft_target::{KvCache, Mask};

use crate::{Eagle3, VocabMap};

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
    pub fn open(_dir: &std::path::Path, _target: &sightdraft_target::LlamaConfig, _device: &Device) -> Result<Self> {
        todo!()
    }

    /// Writes the published layout (config.json, model.safetensors) into `dir`, whole or not at all.
    pub fn save(&self, _dir: &std::path::Path) -> Result<()> {
        todo!()
    }
}

impl Draft for DraftModel {
    fn taps(&self) -> &[usize] {
        todo!()
    }
    fn vocab(&self) -> &VocabMap {
        todo!()
    }
    fn start(&self) -> DraftState {
        todo!()
    }
    fn extend(&self, _state: &mut DraftState, _rows: FeatureRows<'_>) -> DraftPass {
        todo!()
    }
    fn step(
        &self,
        _state: &mut DraftState,
        _hidden: Tensor<3>,
        _embeds: Tensor<3>,
        _positions: &[Vec<usize>],
        _mask: &Mask,
    ) -> DraftPass {
        todo!()
    }
    fn unroll(&self, _rows: FeatureRows<'_>, _later: &[Tensor<3>]) -> Vec<DraftPass> {
        todo!()
    }
    fn logits(&self, _predict: Tensor<3>) -> Tensor<3> {
        todo!()
    }
}
