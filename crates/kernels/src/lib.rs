//! CPU kernels for passes over few rows.
//!
//! Verifying a tree of guesses multiplies a handful of rows by every weight of the model. The memory must be read once
//! whatever the number of rows, so up to a few dozen rows should cost about as much as one; a general matrix product does
//! not get there. This crate does it for Burn's `flex` backend:
//!
//! - [`PackedLinear`]: a linear layer whose weights are packed once, at load, in the order in which they are read.
//! - [`PackedKv`] and [`attend`]: a KV cache laid out for reading, and attention of few query rows over it, with any mask.
//! - [`norm`], [`gated`], [`log_softmax`], [`argmax`], [`top_rows`]: what lies between the products, each in one go.
//!
//! [`norm`] and [`gated`] have gradients; for training there are also [`matmul`], a product on the same inner loop,
//! [`masked_softmax`], [`turn`], [`log_sum_exp`] and [`cross_entropy`].
//!
//! Everything else is for inference (no gradients). All of it is **batch-invariant**: the bits of a row's result do not depend on the
//! rows beside it, because each output is summed in one fixed order. Speculative decoding then gives the very logits of
//! plain decoding.
//!
//! The instruction set (AVX-512, AVX2 with FMA, NEON, or portable code) is picked at run time through [`pulp`].

mod attention;
mod bandwidth;
mod between;
mod cross_entropy;
mod exp;
mod isa;
mod kv;
mod linear;
mod log_sum_exp;
mod matmul;
mod operation;
mod pages;
mod pool;
mod product;
mod rows;
mod rowwise;
mod softmax;
mod tensor;
mod tile;
mod top;
mod turn;
mod visible;

pub use attention::Queries;
pub use bandwidth::ReadBandwidth;
pub use between::{gated, norm};
pub use cross_entropy::cross_entropy;
pub use isa::Isa;
pub use kv::PackedKv;
pub use linear::{PackedLinear, Storage};
pub use log_sum_exp::log_sum_exp;
pub use matmul::matmul;
pub use pool::threads;
pub use rowwise::{argmax, log_softmax, rms_norm, rotate, swiglu};
pub use softmax::masked_softmax;
pub use tensor::{Projected, argmax_rows, attend, rows_of};
pub use top::{top_indices, top_rows};
pub use turn::turn;
