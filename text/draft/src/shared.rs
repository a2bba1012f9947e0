//! What a draft that speaks with the target's voice shares with it: the head and the embeddings. Frozen: it never trains, and
//! only the published copy of the embeddings is saved.

use std::fmt;
use std::sync::{Arc, OnceLock};

use burn::prelude::*;
use sightdraft_target::{Head, Llama};

/// The target's head and embeddings. Clones share everything.
#[derive(Clone)]
pub struct Shared {
    head: Head,
    /// Embedding table `[V, H]`.
    table: Tensor<2>,
    /// The head for gradients, made when the first one needs it.
    differentiable: Arc<OnceLock<Head>>,
}

impl Shared {
    /// What `target` has.
    pub fn of(target: &Llama) -> Self {
        let table = target.embed_tokens.weight.val();
        Self { head: target.head(), table, differentiable: Arc::default() }
    }

    /// The target's logits of `predict` `[B, n, H]`: `[B, n, V]`. Gradients reach `predict`, and nothing else.
    pub fn logits(&self, predict: Tensor<3>) -> Tensor<3> {
        let head = match predict.is_autodiff() {
            true => self.differentiable.get_or_init(|| self.head.differentiable()),
            false => &self.head,
        };
        head.forward(predict.cast(head.dtype()))
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
