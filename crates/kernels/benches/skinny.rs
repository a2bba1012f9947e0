//! What m rows cost, relative to one, in one linear layer: this crate's kernel against Burn's matmul, and against the time in
//! which this machine reads the same bytes.
//!
//! `cargo bench -p sightdraft-kernels [-- OUTPUTS INPUTS]`. All contenders take turns, and the fastest of many turns
//! counts: what disturbs a run only ever adds to it.

use std::time::Instant;

use burn::tensor::{Device, Tensor, TensorData};
use sightdraft_kernels::{PackedKv, PackedLinear, Queries, ReadBandwidth, Storage, threads};

const ROWS: [usize; 8] = [1, 2, 4, 8, 16, 32, 64, 256];
const TURNS: usize = 31;

fn main() {
    let sizes: Vec<usize> = std::env::args().filter_map(|arg| arg.parse().ok()).collect();
    match sizes[..] {
        [outputs, inputs] => layer(outputs, inputs),
        _ => {
            layer(8192, 2048);
            layer(576, 576);
            attention();
        }
    }
}

fn layer(outputs: usize, inputs: usize) {
    let device = Device::flex();
    let weight = noise(outputs * inputs, 1);
    let packed = [Storage::F32, Storage::Bf16].map(|s| PackedLinear::pack(&weight, outputs, inputs, None, s));
    let plain = Tensor::<2>::from_data(TensorData::new(weight, [outputs, inputs]), &device);
    let plain = [plain.clone().transpose(), Tensor::from_data(plain.transpose().into_data(), &device)];
    let limits = packed.each_ref().map(|p| ReadBandwidth::new(p.bytes()));

    println!("[m, {inputs}] x [{inputs}, {outputs}], {} threads", threads());
    let mut first = [f64::NAN; 4];
    for rows in ROWS {
        let x = noise(rows * inputs, 2);
        let tensor = Tensor::<2>::from_data(TensorData::new(x.clone(), [rows, inputs]), &device);
        let mut y = vec![0.0; rows * outputs];
        let mut times = [const { Vec::new() }; 6];
        for _ in 0..TURNS {
            for (i, packed) in packed.iter().enumerate() {
                times[i].push(seconds(|| packed.matmul(&x, rows, &mut y)));
                times[4 + i].push(limits[i].read());
            }
            for (i, plain) in plain.iter().enumerate() {
                times[2 + i].push(seconds(|| drop(tensor.clone().matmul(plain.clone()).into_data())));
            }
        }
        let times = times.map(fastest);
        if rows == 1 {
            let reads = [times[4], times[5]];
            first = [times[0], times[1], times[2], times[3]];
            let rate = |i: usize| limits[i].bytes() as f64 / reads[i] / 1e9;
            println!(
                "reads: {:.1} GB/s of {} MB, {:.1} GB/s of {} MB",
                rate(0),
                mb(&limits[0]),
                rate(1),
                mb(&limits[1])
            );
            println!(
                "one row at {:.0}% (f32), {:.0}% (bf16) of that",
                100.0 * reads[0] / first[0],
                100.0 * reads[1] / first[1]
            );
            println!(
                "rows   packed f32 (ratio)   packed bf16 (ratio)   burn, x W^T (ratio)   burn, x W (ratio)   GFLOP/s f32"
            );
        }
        let cell = |i: usize| format!("{:9.3} ms ({:5.2})", times[i] * 1e3, times[i] / first[i]);
        let gflops = 2e-9 * (rows * inputs * outputs) as f64 / times[0];
        println!("{rows:4}  {}  {}   {}   {}  {gflops:8.0}", cell(0), cell(1), cell(2), cell(3));
    }
}

/// Attention in the shape of a 135M model: 9 heads on 3, a cache of 256 and the rows' own places, each row blocked from the
/// other rows' places.
fn attention() {
    println!("attention over 256 keys, 9 heads of 64 on 3");
    for rows in [1, 8, 16, 32] {
        let alive = 256 + rows;
        let q = noise(9 * rows * 64, 1);
        let [k, v] = [2, 3].map(|seed| noise(3 * alive * 64, seed));
        let mut kv = PackedKv::new(1, 3, 64);
        kv.write(0, alive, &k, &v);
        let other = |i: usize| u8::from(i % alive >= 256 && i % alive - 256 != i / alive);
        let blocked: Vec<u8> = (0..rows * alive).map(other).collect();
        let queries = Queries { q: &q, rows, heads: 9, alive, blocked: Some(&blocked), scale: 0.125 };
        let mut out = vec![0.0; q.len()];
        let times = (0..TURNS * 10).map(|_| seconds(|| kv.attend(queries, &mut out)));
        println!("{rows:4}  {:9.3} ms", fastest(times.collect()) * 1e3);
    }
}

fn mb(limit: &ReadBandwidth) -> usize {
    limit.bytes() / 1_000_000
}

fn seconds(work: impl FnOnce()) -> f64 {
    let start = Instant::now();
    work();
    start.elapsed().as_secs_f64()
}

fn fastest(times: Vec<f64>) -> f64 {
    times.into_iter().fold(f64::INFINITY, f64::min)
}

/// Values in -1..1, the same for the same seed.
fn noise(len: usize, seed: u32) -> Vec<f32> {
    let mut state = seed;
    (0..len)
        .map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as f32 / (1 << 23) as f32 - 1.0
        })
        .collect()
}
