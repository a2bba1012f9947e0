//! The language model's head by itself: what a draft that speaks with the target's voice shares with it.

use burn::module::{Param, ParamId};
use burn::nn::Linear;
use burn::prelude::*;
use burn::tensor::DType;

use crate::Projection;

/// Hidden states to vocabulary logits. Clones share the weights.
#[derive(Debug, Clone)]
pub enum Head {
    /// Weights of its own.
    Own(Projection),
    /// The embedding table `[V, H]`.
    Tied(Tensor<2>),
}

impl Head {
    /// `[B, n, H] -> [B, n, V]`.
    pub fn forward(&self, hidden: Tensor<3>) -> Tensor<3> {
        match self {
            Self::Own(projection) => projection.forward(hidden),
            Self::Tied(table) => tied_logits(table, hidden),
        }
    }

    /// The weight, `[V, H]`.
    pub fn weight(&self) -> Tensor<2> {
        match self {
            Self::Own(projection) => projection.weight_out_in(),
            Self::Tied(table) => table.clone(),
        }
    }

    /// The rows of the weight that speak `ids`, `[ids, H]`.
    pub fn rows(&self, ids: &[u32]) -> Tensor<2> {
        let weight = self.weight();
        let ids: Vec<i32> = ids.iter().map(|id| *id as i32).collect();
        let ids = Tensor::from_ints(ids.as_slice(), &weight.device());
        weight.select(0, ids)
    }

    /// The precision of the rows that it takes.
    pub fn dtype(&self) -> DType {
        match self {
            Self::Own(projection) => projection.dtype(),
            Self::Tied(table) => table.dtype(),
        }
    }

    /// The head as gradients pass through it, to the hidden states and no further: packed weights are unpacked, in f32.
    pub fn differentiable(&self) -> Self {
        let Self::Own(packed @ Projection::Packed(_)) = self else { return self.clone() };
        // `[H, V]` row by row, once and for all: products would copy a transposed view every time.
        let weight = packed.weight_out_in().transpose();
        let weight = Tensor::<2>::from_data(weight.into_data(), &Device::flex()).autodiff();
        Self::Own(Projection::Plain(Linear { weight: Param::initialized(ParamId::new(), weight), bias: None }))
    }
}

/// (E h^T)^T: the embedding is read row by row. Transposing it instead makes the CPU's matrix product twenty times slower
/// for one row.
fn tied_logits(table: &Tensor<2>, hidden: Tensor<3>) -> Tensor<3> {
    let [batch, n, width] = hidden.dims();
    let columns = hidden.reshape([batch * n, width]).transpose();
    table.clone().matmul(columns).transpose().reshape([batch, n, table.dims()[0]])
}
