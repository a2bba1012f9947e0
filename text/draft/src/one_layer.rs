//! What drafts of one decoder layer have in common: passes over the cache, and the training unroll.

use burn::prelude::*;
use burn::tensor::DType;
use sightdraft_target::attention::Attention;
use sightdraft_target::{KvCache, Mask, Rope};

use crate::published::Published;
use crate::unroll::Unrolled;
use crate::{Draft, DraftPass, DraftState, FeatureRows, UnrollRows, VocabMap};

/// Rows on their way into the layer.
#[derive(Debug, Clone)]
pub struct Fused {
    /// What attention reads, `[B, n, its input]`.
    pub input: Tensor<3>,
    /// What is added to attention's output, `[B, n, H]`.
    pub residual: Tensor<3>,
}

/// A draft of one decoder layer, in parts; that makes it a [`Draft`].
pub trait OneLayer: Published {
    /// Its vocabulary.
    fn vocab(&self) -> &VocabMap;

    /// How the steps of its unroll are numbered.
    fn unroll_rows(&self) -> UnrollRows;

    /// The layer's attention.
    fn attention(&self) -> &Attention;

    /// Rotary frequencies.
    fn rope(&self) -> &Rope;

    /// The precision of the weights; rows are cast to it, for the target may be kept in another.
    fn dtype(&self) -> DType;

    /// The target's features as features of the draft, `[B, n, F] -> [B, n, H]`.
    fn enter(&self, features: Tensor<3>) -> Tensor<3>;

    /// Features and embeddings (`[B, n, H]` each) joined; `image` tells image rows, and is empty where there are none.
    fn fuse(&self, hidden: Tensor<3>, embeds: Tensor<3>, image: &[Vec<Option<usize>>]) -> Fused;

    /// The rest of the layer behind attention.
    fn leave(&self, residual: Tensor<3>, attended: Tensor<3>) -> DraftPass;

    /// Logits over the draft vocabulary, `[B, n, H] -> [B, n, D]`.
    fn logits(&self, predict: Tensor<3>) -> Tensor<3>;
}

impl<T: OneLayer> Draft for T {
    fn taps(&self) -> &[usize] {
        &self.config().taps
    }

    fn vocab(&self) -> &VocabMap {
        OneLayer::vocab(self)
    }

    fn start(&self) -> DraftState {
        DraftState::new(KvCache::new(1))
    }

    fn extend(&self, state: &mut DraftState, rows: FeatureRows<'_>) -> DraftPass {
        let hidden = self.enter(rows.features.cast(self.dtype()));
        let fused = self.fuse(hidden, rows.embeds.cast(self.dtype()), rows.image);
        pass(self, state, fused, rows.positions, rows.mask)
    }

    fn step(
        &self,
        state: &mut DraftState,
        hidden: Tensor<3>,
        embeds: Tensor<3>,
        positions: &[Vec<usize>],
        mask: &Mask,
    ) -> DraftPass {
        let fused = self.fuse(hidden, embeds.cast(self.dtype()), &[]);
        pass(self, state, fused, positions, mask)
    }

    fn unroll_rows(&self) -> UnrollRows {
        OneLayer::unroll_rows(self)
    }

    fn unroll(&self, rows: FeatureRows<'_>, later: &[Tensor<3>]) -> Vec<DraftPass> {
        let (form, device) = (OneLayer::unroll_rows(self), rows.embeds.device());
        let blocked = rows.mask.blocked(rows.embeds.dims()[1], 0, &device);
        let entered = self.enter(rows.features.cast(self.dtype()));
        let fused = self.fuse(entered.clone(), rows.embeds.cast(self.dtype()), rows.image);
        let angles = self.rope().angles(rows.positions, &device);
        let (q, k, v) = self.attention().project(fused.input, &angles);
        let attended = self.attention().attend(q, k.clone(), v.clone(), blocked.clone());
        let mut passes = vec![self.leave(fused.residual, attended)];
        let mut unrolled = Unrolled::new(form, k, v, blocked);
        for (index, embeds) in later.iter().enumerate() {
            let moved = |row: &Vec<usize>| row.iter().map(|position| position + form.shift(index + 1)).collect();
            let positions: Vec<Vec<usize>> = rows.positions.iter().map(moved).collect();
            let hidden = form.next_features(&entered, &passes[index].hidden);
            let fused = self.fuse(hidden, embeds.clone().cast(self.dtype()), rows.image);
            let (q, k, v) = self.attention().project(fused.input, &self.rope().angles(&positions, &device));
            let attended = unrolled.attend(self.attention(), q, k, v);
            passes.push(self.leave(fused.residual, attended));
        }
        passes
    }

    fn logits(&self, predict: Tensor<3>) -> Tensor<3> {
        OneLayer::logits(self, predict)
    }
}

/// The layer over `fused` rows behind the cache.
pub(crate) fn pass(
    draft: &(impl OneLayer + ?Sized),
    state: &mut DraftState,
    fused: Fused,
    positions: &[Vec<usize>],
    mask: &Mask,
) -> DraftPass {
    let n = fused.residual.dims()[1];
    let device = fused.residual.device();
    let angles = draft.rope().angles(positions, &device);
    let blocked = mask.blocked(n, state.cache.len(), &device);
    let attended = draft.attention().forward(fused.input, &angles, blocked, &mut state.cache, 0);
    state.cache.advance(n);
    draft.leave(fused.residual, attended)
}
