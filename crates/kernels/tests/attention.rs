//! Attention over a cache against the plain formula, and its independence of everything that a row does not see.

use burn::tensor::{Bool, Device, Tensor, TensorData};
use proptest::prelude::*;
use sightdraft_kernels::{Isa, PackedKv, Projected, Queries, attend};

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
fn mask(rows: usize, alive: usize, prefix: usize, seed: u32) -> Vec<u8> {
    let chance = noise(rows * alive, seed);
    (0..rows * alive).map(|i| u8::from(i % alive >= prefix && chance[i] < 0.0)).collect()
}

/// Attention of some query rows of every head over a cache with spare room.
#[derive(Clone, Copy, Debug)]
struct Case {
    heads: usize,
    kv_heads: usize,
    dim: usize,
    alive: usize,
    rows: usize,
}

impl Case {
    /// `q`, the result: `[rows, heads, dim]`; `k`, `v`: `[alive, kv_heads, dim]`.
    fn run(self, isa: Isa, q: &[f32], k: &[f32], v: &[f32], blocked: Option<&[u8]>) -> Vec<f32> {
        let Self { heads, kv_heads, dim, alive, rows } = self;
        let mut kv = PackedKv::new_for(isa, 1, kv_heads, dim);
        // What truncated places hold must not matter.
        let junk = vec![f32::NAN; (alive + 3) * kv_heads * dim];
        kv.write(0, alive + 3, &junk, &junk);
        kv.write(0, alive, k, v);
        let mut out = vec![f32::NAN; q.len()];
        kv.attend(Queries { q, rows, heads, alive, blocked, scale: (dim as f32).sqrt().recip() }, &mut out);
        out
    }
}

fn same_bits(a: &[f32], b: &[f32]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.to_bits() == b.to_bits())
}

fn cases() -> impl Strategy<Value = (Case, usize)> {
    (1usize..4, 1usize..4, 1usize..80, 1usize..90, 1usize..30, 0usize..90).prop_map(
        |(kv_heads, share, dim, alive, rows, prefix)| {
            (Case { heads: kv_heads * share, kv_heads, dim, alive, rows }, prefix.min(alive))
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, rng_seed: proptest::test_runner::RngSeed::Fixed(7), ..Default::default() })]

    #[test]
    fn results_are_right((case, prefix) in cases(), seed in any::<u32>()) {
        let Case { heads, kv_heads, dim, alive, rows } = case;
        let q = noise(heads * rows * dim, seed);
        let [k, v] = [1, 2].map(|s| noise(kv_heads * alive * dim, seed ^ s));
        let blocked = mask(rows, alive, prefix, seed ^ 3);
        for isa in Isa::available() {
            let out = case.run(isa, &q, &k, &v, Some(&blocked));
            for (i, out) in out.chunks(dim).enumerate() {
                let (row, head) = (i / heads, i % heads);
                let sees: Vec<usize> = (0..alive).filter(|key| blocked[row * alive + key] == 0).collect();
                let own = |x: &[f32]| -> Vec<f32> {
                    x.chunks(dim).skip(head / (heads / kv_heads)).step_by(kv_heads).flatten().copied().collect()
                };
                let expected = reference(&q[i * dim..(i + 1) * dim], &own(&k), &own(&v), &sees, (dim as f32).sqrt().recip());
                for (out, expected) in out.iter().zip(expected) {
                    prop_assert!((f64::from(*out) - expected).abs() < 1e-5, "{isa:?}: {out} for {expected}");
                }
            }
        }
    }

    #[test]
    fn a_row_depends_on_what_it_sees_alone((case, prefix) in cases()) {
        let Case { heads, kv_heads, dim, alive, rows } = case;
        let q = noise(heads * rows * dim, 4);
        let [k, v] = [5, 6].map(|s| noise(kv_heads * alive * dim, s));
        let blocked = mask(rows, alive, prefix, 7);
        for isa in Isa::available() {
            let all = case.run(isa, &q, &k, &v, Some(&blocked));
            for row in [0, rows / 2, rows - 1] {
                // The row by itself, over a cache that holds only the keys that it sees.
                let sees: Vec<usize> = (0..alive).filter(|key| blocked[row * alive + key] == 0).collect();
                let compact = |cache: &[f32]| -> Vec<f32> {
                    sees.iter().flat_map(|key| cache[key * kv_heads * dim..(key + 1) * kv_heads * dim].to_vec()).collect()
                };
                let own = row * heads * dim..(row + 1) * heads * dim;
                let alone = Case { alive: sees.len(), rows: 1, ..case };
                let expected = alone.run(isa, &q[own.clone()], &compact(&k), &compact(&v), None);
                prop_assert!(same_bits(&all[own], &expected), "{isa:?}: row {row} of {case:?}");
            }
        }
    }
}

#[test]
fn what_is_blocked_for_all_may_hold_anything() {
    // Few rows, and enough to fill any vector.
    for rows in [3, 12] {
        let case = Case { heads: 2, kv_heads: 1, dim: 8, alive: 6, rows };
        let (q, mut k, mut v) = (noise(16 * rows, 1), noise(48, 2), noise(48, 3));
        let blocked: Vec<u8> = (0..6 * rows).map(|i| u8::from(i % 6 == 2 || i % 6 == 5)).collect();
        for isa in Isa::available() {
            let expected = case.run(isa, &q, &k, &v, Some(&blocked));
            for key in [2, 5] {
                k[key * 8..(key + 1) * 8].fill(f32::NAN);
                v[key * 8..(key + 1) * 8].fill(f32::INFINITY);
            }
            assert!(same_bits(&expected, &case.run(isa, &q, &k, &v, Some(&blocked))), "{isa:?}, {rows} rows");
            (k, v) = (noise(48, 2), noise(48, 3));
        }
    }
}

#[test]
fn a_row_that_sees_nothing_gives_zeros() {
    let case = Case { heads: 1, kv_heads: 1, dim: 4, alive: 3, rows: 2 };
    let (q, k, v) = (noise(8, 1), noise(12, 2), noise(12, 3));
    let out = case.run(Isa::detect(), &q, &k, &v, Some(&[1, 1, 1, 0, 1, 1]));
    assert_eq!(out, [&[0.0; 4], &v[..4]].concat());
}

#[test]
fn sequences_of_a_batch_keep_apart() {
    let case = Case { heads: 2, kv_heads: 1, dim: 8, alive: 5, rows: 2 };
    let [q, k, v] = [(1, 96), (2, 120), (3, 120)].map(|(seed, len)| noise(len, seed));
    // Sequence i is padded by i places on the left.
    let blocked: Vec<u8> = (0..30).map(|i| u8::from(i % 5 < i / 10)).collect();
    let mut kv = PackedKv::new(3, 1, 8);
    kv.write(0, 5, &k, &v);
    let mut out = vec![0.0; 96];
    let scale = 8f32.sqrt().recip();
    kv.attend(Queries { q: &q, rows: 2, heads: 2, alive: 5, blocked: Some(&blocked), scale }, &mut out);
    for i in 0..3 {
        let alone = Case { alive: 5 - i, ..case };
        let seen = (i * 5 + i) * 8..(i + 1) * 5 * 8;
        let expected = alone.run(Isa::detect(), &q[i * 32..(i + 1) * 32], &k[seen.clone()], &v[seen], None);
        assert!(same_bits(&out[i * 32..(i + 1) * 32], &expected), "sequence {i}");
    }
}

#[test]
fn tensors_give_what_burn_gives() {
    let device = Device::flex();
    let tensor = |dims: [usize; 3], seed| {
        Tensor::<3>::from_data(TensorData::new(noise(dims.iter().product(), seed), dims), &device)
    };
    let (q, k, v) = (tensor([1, 5, 64], 1), tensor([1, 9, 64], 2), tensor([1, 9, 64], 3));
    let blocked: Vec<bool> = mask(5, 9, 3, 4).into_iter().map(|flag| flag != 0).collect();
    let blocked = Tensor::<4, Bool>::from_data(TensorData::new(blocked, [1, 1, 5, 9]), &device);
    // Angles of 0 turn nothing.
    let still = |rows| (Tensor::<4>::ones([1, 1, rows, 16], &device), Tensor::<4>::zeros([1, 1, rows, 16], &device));
    let mut kv = PackedKv::new(1, 4, 16);
    let rows = |from, n| [&k, &v].map(|x| x.clone().narrow(1, from, n));
    let [first_k, first_v] = rows(0, 4);
    attend(&mut kv, 0, Projected { q: tensor([1, 4, 64], 5), k: first_k, v: first_v }, &still(4), None);
    let [last_k, last_v] = rows(4, 5);
    let out = attend(&mut kv, 4, Projected { q: q.clone(), k: last_k, v: last_v }, &still(5), Some(blocked.clone()));
    let [q, k, v] = [q, k, v].map(|x| {
        let [_, n, _] = x.dims();
        x.reshape([1, n, 4, 16]).swap_dims(1, 2)
    });
    let scores = (q.matmul(k.swap_dims(2, 3)) * 0.25).mask_fill(blocked, -1e9);
    let expected = burn::tensor::activation::softmax(scores, 3).matmul(v).swap_dims(1, 2).reshape([1, 5, 64]);
    let difference = (out - expected).abs().max().into_scalar::<f32>();
    assert!(difference < 1e-5, "differs by {difference}");
}
