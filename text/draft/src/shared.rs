//! What a draft that speaks with the target's voice shares with it: the head and the embeddings. Frozen: it never trains, and
//! only the published copy of the embeddings is saved.

use std::fmt;
use std::sync::{Arc, OnceLock};

use burn::prelude::*;
use burn::tensor::DType;
use sightdraft_target::{Head, Llama};

/// The target's head and embeddings. Clones share everything.
#[derive(Clone)]
pub struct Shared {
    head: Head,
    /// Embedding table `[V, H]`.
    table: Tensor<2>,
    /// The head as `[H, V]` in f32, for gradients; unpacked when the first one needs it.
    unpacked: Arc<OnceLock<Tensor<2>>>,
}

impl Shared {
    /// What `target` has.
    pub fn of(target: &Llama) -> Self {
        let table = target.embed_tokens.weight.val();
        Self { head: target.head(), table, unpacked: Arc::default() }
    }

    /// The target's logits of `predict` `[B, n, H]`: `[B, n, V]`. Gradients reach `predict`, and nothing else.
    pub fn logits(&self, predict: Tensor<3>) -> Tensor<3> {
        if !predict.is_autodiff() || self.head.is_differentiable() {
            return self.head.forward(predict.cast(self.head.dtype()));
        }
        let weight = self.unpacked.get_or_init(|| self.head.weight().transpose().cast(DType::F32));
        predict.matmul(weight.clone().unsqueeze())
    }

    /// The embedding table, `[V, H]`.
    pub fn table(&self) -> Tensor<2> {
        self.table.clone()
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Shared({:?})", self.table.dims())
    }
}
