//! Attention over a cache against the plain formula, and its independence of everything that a row does not see.

use burn::tensor::{Bool, Device, Tensor, TensorData};
use proptest::prelude::*;
use sightdraft_kernels::{Attention, Isa, attend};

/// Values in -2..2, the same for the same seed.
fn noise(len: usize, seed: u32) -> Vec<f32> {
    let mut state = seed.wrapping_mul(2_654_435_761).wrapping_add(1);
    (0..len)
        .map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as f32 / (1 << 22) as f32 - 2.0
        })
        .collect()
}

/// One row of one head in double precision.
fn reference(q: &[f32], k: &[f32], v: &[f32], sees: &[usize], scale: f32) -> Vec<f64> {
    let dot = |key: usize| -> f64 {
        let k = &k[key * q.len()..][..q.len()];
        q.iter().zip(k).map(|(q, k)| f64::from(*q) * f64::from(*k)).sum::<f64>() * f64::from(scale)
    };
    let weights: Vec<f64> = sees.iter().map(|key| dot(*key).exp()).collect();
    let total: f64 = weights.iter().sum();
    (0..q.len())
        .map(|c| sees.iter().zip(&weights).map(|(key, w)| w / total * f64::from(v[key * q.len() + c])).sum())
        .collect()
}

/// Keys `0..prefix` for all, the others by chance.
fn mask(rows: usize, alive: usize, prefix: usize, seed: u32) -> Vec<bool> {
    let chance = noise(rows * alive, seed);
    (0..rows * alive).map(|i| i % alive >= prefix && chance[i] < 0.0).collect()
}

fn run(shape: Attention, isa: Isa, q: &[f32], k: &[f32], v: &[f32], blocked: Option<&[bool]>) -> Vec<f32> {
    let mut out = vec![f32::NAN; q.len()];
    shape.attend_with(isa, q, k, v, blocked, &mut out);
    out
}

fn same_bits(a: &[f32], b: &[f32]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.to_bits() == b.to_bits())
}

fn shapes() -> impl Strategy<Value = (Attention, usize)> {
    (1usize..4, 1usize..4, 1usize..80, 1usize..90, 0usize..20, 1usize..30, 0usize..90).prop_map(
        |(kv_heads, share, dim, alive, spare, rows, prefix)| {
            let heads = kv_heads * share;
            let scale = 1.0 / (dim as f32).sqrt();
            (Attention { heads, kv_heads, dim, capacity: alive + spare, alive, rows, scale }, prefix.min(alive))
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, rng_seed: proptest::test_runner::RngSeed::Fixed(7), ..Default::default() })]

    #[test]
    fn results_are_right((shape, prefix) in shapes(), seed in any::<u32>()) {
        let Attention { heads, kv_heads, dim, capacity, alive, rows, scale } = shape;
        let q = noise(heads * rows * dim, seed);
        let [mut k, mut v] = [1, 2].map(|s| noise(kv_heads * capacity * dim, seed ^ s));
        // Places past the last in use hold what was never written.
        for cache in [&mut k, &mut v] {
            cache.chunks_mut(capacity * dim).for_each(|head| head[alive * dim..].fill(f32::NAN));
        }
        let blocked = mask(rows, alive, prefix, seed ^ 3);
        for isa in Isa::available() {
            let out = run(shape, isa, &q, &k, &v, Some(&blocked));
            for (i, out) in out.chunks(dim).enumerate() {
                let (head, row) = (i / rows, i % rows);
                let sees: Vec<usize> = (0..alive).filter(|key| !blocked[row * alive + key]).collect();
                let start = head / (heads / kv_heads) * capacity * dim;
                let expected = reference(&q[i * dim..(i + 1) * dim], &k[start..], &v[start..], &sees, scale);
                for (out, expected) in out.iter().zip(expected) {
                    prop_assert!((f64::from(*out) - expected).abs() < 1e-5, "{isa:?}: {out} for {expected}");
                }
            }
        }
    }

    #[test]
    fn a_row_depends_on_what_it_sees_alone((shape, prefix) in shapes()) {
        let Attention { heads, kv_heads, dim, capacity, alive, rows, .. } = shape;
        let q = noise(heads * rows * dim, 4);
        let [k, v] = [5, 6].map(|s| noise(kv_heads * capacity * dim, s));
        let blocked = mask(rows, alive, prefix, 7);
        for isa in Isa::available() {
            let all = run(shape, isa, &q, &k, &v, Some(&blocked));
            for row in [0, rows / 2, rows - 1] {
                // The row by itself, over a cache that holds only the keys that it sees.
                let sees: Vec<usize> = (0..alive).filter(|key| !blocked[row * alive + key]).collect();
                let compact = |cache: &[f32]| -> Vec<f32> {
                    cache.chunks(capacity * dim).flat_map(|head| sees.iter().flat_map(|key| head[key * dim..(key + 1) * dim].to_vec())).collect()
                };
                let pick = |x: &[f32]| -> Vec<f32> { x.chunks(rows * dim).flat_map(|head| head[row * dim..(row + 1) * dim].to_vec()).collect() };
                let alone = Attention { capacity: sees.len(), alive: sees.len(), rows: 1, ..shape };
                let expected = run(alone, isa, &pick(&q), &compact(&k), &compact(&v), None);
                prop_assert!(same_bits(&pick(&all), &expected), "{isa:?}: row {row} of {shape:?}");
            }
        }
    }
}

#[test]
fn what_is_blocked_for_all_may_hold_anything() {
    let shape = Attention { heads: 2, kv_heads: 1, dim: 8, capacity: 6, alive: 6, rows: 3, scale: 0.3 };
    let (q, mut k, mut v) = (noise(48, 1), noise(48, 2), noise(48, 3));
    let blocked: Vec<bool> = (0..18).map(|i| i % 6 == 2 || i % 6 == 5).collect();
    let expected = run(shape, Isa::detect(), &q, &k, &v, Some(&blocked));
    for key in [2, 5] {
        k[key * 8..(key + 1) * 8].fill(f32::NAN);
        v[key * 8..(key + 1) * 8].fill(f32::INFINITY);
    }
    assert!(same_bits(&expected, &run(shape, Isa::detect(), &q, &k, &v, Some(&blocked))));
}

#[test]
fn a_row_that_sees_nothing_gives_zeros() {
    let shape = Attention { heads: 1, kv_heads: 1, dim: 4, capacity: 3, alive: 3, rows: 2, scale: 1.0 };
    let (q, k, v) = (noise(8, 1), noise(12, 2), noise(12, 3));
    let out = run(shape, Isa::detect(), &q, &k, &v, Some(&[true, true, true, false, true, true]));
    assert_eq!(out, [&[0.0; 4], &v[..4]].concat());
    let empty = Attention { alive: 0, ..shape };
    assert_eq!(run(empty, Isa::detect(), &q, &k, &v, None), [0.0; 8]);
}

#[test]
fn tensors_give_what_burn_gives() {
    let device = Device::flex();
    let tensor = |dims: [usize; 3], seed| {
        Tensor::<3>::from_data(TensorData::new(noise(dims.iter().product(), seed), dims), &device)
    };
    let (q, k, v) = (tensor([4, 5, 16], 1), tensor([4, 20, 16], 2), tensor([4, 20, 16], 3));
    let blocked = Tensor::<2, Bool>::from_data(TensorData::new(mask(5, 9, 3, 4), [5, 9]), &device);
    let out = attend(q.clone(), k.clone(), v.clone(), 9, Some(blocked.clone()), 0.25);
    let scores = (q.matmul(k.slice([0..4, 0..9]).swap_dims(1, 2)) * 0.25).mask_fill(blocked.unsqueeze(), -1e9);
    let expected = burn::tensor::activation::softmax(scores, 2).matmul(v.slice([0..4, 0..9]));
    let difference = (out - expected).abs().max().into_scalar::<f32>();
    assert!(difference < 1e-5, "differs by {difference}");
}
