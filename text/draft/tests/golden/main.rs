//! Draft heads against recordings of the published implementations.

mod eagle3;
mod family;
mod llava;
mod msd;
mod vispec;

use sightdraft_target::Mask;

/// Causal among the rows that are not padding.
fn mask(attention: &[i64], n: usize) -> Mask {
    let row = |real: &[i64], query: usize| (0..n).map(|key| key <= query && real[key] == 1).collect();
    Mask::Full(attention.chunks(n).map(|real| (0..n).map(|query| row(real, query)).collect()).collect())
}
