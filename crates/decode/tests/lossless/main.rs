//! Speculative decoding gives what plain decoding gives: token for token at temperature 0, in distribution above.

mod batch;
mod bits;
mod distribution;
mod greedy;
mod images;
mod tiny;
#[cfg(feature = "wgpu")]
mod wgpu;
