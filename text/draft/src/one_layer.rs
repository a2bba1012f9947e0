//! What drafts of one decoder layer have in common: passes over the cache, and the training unroll.

use burn::prelude::*;
use burn::tensor::DType;
use sightdraft_target::attention::Attention;
use sightdraft_target::{KvCache, Mask, PassRows, Rope};

use crate::published::Published;
use crate::rows::rows_from;
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
        let place = pass_rows(self, state, rows.positions, rows.mask, &rows.embeds.device());
        let hidden = self.enter(place.pad(rows.features.cast(self.dtype())));
        let embeds = place.pad(rows.embeds.cast(self.dtype()));
        let fused = self.fuse(hidden, embeds, &place.pad_marks(rows.image));
        pass(self, state, fused, &place)
    }

    fn step(
        &self,
        state: &mut DraftState,
        hidden: Tensor<3>,
        embeds: Tensor<3>,
        positions: &[Vec<usize>],
        mask: &Mask,
    ) -> DraftPass {
        let place = pass_rows(self, state, positions, mask, &embeds.device());
        let fused = self.fuse(place.pad(hidden), place.pad(embeds.cast(self.dtype())), &[]);
        pass(self, state, fused, &place)
    }

    fn unroll_rows(&self) -> UnrollRows {
        OneLayer::unroll_rows(self)
    }

    fn unroll(&self, rows: FeatureRows<'_>, from: usize, later: &[Tensor<3>]) -> Vec<DraftPass> {
        let (form, device) = (OneLayer::unroll_rows(self), rows.embeds.device());
        let n = rows.embeds.dims()[1];
        let blocked = rows.mask.blocked(n, 0, &device).map(|blocked| blocked.narrow(2, from, n - from));
        let angles = |step: usize, first: usize| {
            let moved = |row: &Vec<usize>| row[first..].iter().map(|position| position + form.shift(step)).collect();
            let positions: Vec<Vec<usize>> = rows.positions.iter().map(moved).collect();
            self.rope().angles(&positions, &device)
        };
        let entered = self.enter(rows.features.cast(self.dtype()));
        let fused = self.fuse(entered.clone(), rows.embeds.cast(self.dtype()), rows.image);
        let (k, v) = self.attention().keys_and_values(fused.input.clone(), &angles(0, 0));
        let q = self.attention().queries(rows_from(fused.input, from), &angles(0, from));
        let attended = self.attention().attend(q, k.clone(), v.clone(), blocked.clone());
        let mut passes = vec![self.leave(rows_from(fused.residual, from), attended)];
        let entered = rows_from(entered, from);
        let image: Vec<Vec<Option<usize>>> = rows.image.iter().map(|image| image[from..].to_vec()).collect();
        let mut unrolled = Unrolled::new(form, k, v, blocked);
        for (index, embeds) in later.iter().enumerate() {
            let hidden = form.next_features(&entered, &passes[index].hidden);
            let fused = self.fuse(hidden, embeds.clone().cast(self.dtype()), &image);
            let angles = angles(index + 1, from);
            let (k, v) = self.attention().keys_and_values(fused.input.clone(), &angles);
            let q = self.attention().queries(fused.input, &angles);
            let attended = unrolled.attend(self.attention(), q, k, v);
            passes.push(self.leave(fused.residual, attended));
        }
        passes
    }

    fn logits(&self, predict: Tensor<3>) -> Tensor<3> {
        OneLayer::logits(self, predict)
    }
}

/// Rows at `positions` behind what `state` keeps.
pub(crate) fn pass_rows(
    draft: &(impl OneLayer + ?Sized),
    state: &DraftState,
    positions: &[Vec<usize>],
    mask: &Mask,
    device: &Device,
) -> PassRows {
    PassRows::new(draft.rope(), positions, mask, state.cache.len(), device)
}

/// The layer over `fused` rows behind the cache, with their padding or without.
pub(crate) fn pass(
    draft: &(impl OneLayer + ?Sized),
    state: &mut DraftState,
    fused: Fused,
    rows: &PassRows,
) -> DraftPass {
    let input = rows.pad(fused.input);
    let attended = draft.attention().forward(input, &rows.angles, rows.blocked.clone(), &mut state.cache, 0);
    state.cache.advance(rows.count());
    let pass = draft.leave(rows.pad(fused.residual), attended);
    DraftPass { hidden: rows.cut(pass.hidden), predict: rows.cut(pass.predict) }
}
