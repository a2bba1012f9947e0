//! Peak memory of loading: a checkpoint of about 2 GB is generated in a temporary directory and loaded; the peak of
//! resident memory is printed against the promise, the weights plus the largest shard.
//!
//! `cargo bench -p sightdraft-target --bench load_peak` (Linux; SIGHTDRAFT_BENCH_GB changes the size).

use std::path::Path;
use std::time::Instant;

use burn::tensor::{DType, Device, TensorData};
use sightdraft_core::{Checkpoint, save_safetensors};
use sightdraft_target::load::load_text;
use sightdraft_target::{LlamaConfig, RopeConfig};

const GB: f64 = 1e9;
const LAYERS_PER_SHARD: usize = 4;

fn main() {
    let Ok(size) = std::env::var("SIGHTDRAFT_BENCH_GB").unwrap_or_else(|_| "2".into()).parse::<f64>() else {
        eprintln!("SIGHTDRAFT_BENCH_GB: expected a number");
        std::process::exit(2);
    };
    let dir = tempfile::tempdir().expect("a temporary directory");
    let config = geometry(size);
    let largest_shard = generate(dir.path(), &config);
    let before = resident("VmRSS");
    reset_peak();
    let start = Instant::now();
    let model = load_text(dir.path(), DType::F32, &Device::flex()).expect("the generated checkpoint loads");
    let seconds = start.elapsed().as_secs_f64();
    let weights = Checkpoint::open(dir.path()).expect("opens").bytes() as f64;
    let peak = resident("VmHWM") - before;
    let bound = weights + largest_shard as f64;
    println!(
        "layers {}, weights {:.2} GB, largest shard {:.2} GB",
        model.layers.len(),
        weights / GB,
        largest_shard as f64 / GB
    );
    println!("loaded in {seconds:.1} s; resident before {:.2} GB", before / GB);
    println!("peak {:.2} GB = {:.3} x weights; promised at most {:.2} GB", peak / GB, peak / weights, bound / GB);
    if peak > bound {
        eprintln!("the peak is above the promise");
        std::process::exit(1);
    }
}

/// Layers of width 2048 up to about `size` GB in F32.
fn geometry(size: f64) -> LlamaConfig {
    let (width, inner, vocabulary) = (2048, 5632, 8192);
    let layer_bytes = (4 * width * width + 3 * width * inner) as f64 * 4.0;
    LlamaConfig {
        hidden_size: width,
        intermediate_size: inner,
        num_hidden_layers: (size * GB / layer_bytes).round().max(1.0) as usize,
        num_attention_heads: 16,
        num_key_value_heads: 16,
        head_dim: 128,
        vocab_size: vocabulary,
        max_position_embeddings: 2048,
        rms_norm_eps: 1e-5,
        rope: RopeConfig { theta: 1e4, scaling: None },
        tie_word_embeddings: true,
    }
}

/// Writes config, shards and index; returns the bytes of the largest shard.
fn generate(dir: &Path, config: &LlamaConfig) -> u64 {
    std::fs::write(dir.join("config.json"), config.to_hf_json().to_string()).expect("writes");
    let (width, inner) = (config.hidden_size, config.intermediate_size);
    let mut index = serde_json::Map::new();
    let mut largest = 0;
    for first in (0..config.num_hidden_layers).step_by(LAYERS_PER_SHARD) {
        let mut tensors = Vec::new();
        if first == 0 {
            tensors.push(tensor("model.embed_tokens.weight".into(), &[config.vocab_size, width]));
            tensors.push(tensor("model.norm.weight".into(), &[width]));
        }
        for layer in first..(first + LAYERS_PER_SHARD).min(config.num_hidden_layers) {
            for (name, shape) in layer_shapes(width, inner) {
                tensors.push(tensor(format!("model.layers.{layer}.{name}.weight"), &shape));
            }
        }
        let name = format!("model-{first:05}.safetensors");
        save_safetensors(&dir.join(&name), &tensors, &[]).expect("writes");
        largest = largest.max(tensors.iter().map(|(_, data)| data.as_bytes().len() as u64).sum());
        index.extend(tensors.into_iter().map(|(tensor, _)| (tensor, name.clone().into())));
    }
    let index = serde_json::json!({ "weight_map": index });
    std::fs::write(dir.join("model.safetensors.index.json"), index.to_string()).expect("writes");
    largest
}

fn layer_shapes(width: usize, inner: usize) -> Vec<(&'static str, Vec<usize>)> {
    let square = || vec![width, width];
    vec![
        ("input_layernorm", vec![width]),
        ("self_attn.q_proj", square()),
        ("self_attn.k_proj", square()),
        ("self_attn.v_proj", square()),
        ("self_attn.o_proj", square()),
        ("post_attention_layernorm", vec![width]),
        ("mlp.gate_proj", vec![inner, width]),
        ("mlp.up_proj", vec![inner, width]),
        ("mlp.down_proj", vec![width, inner]),
    ]
}

fn tensor(name: String, shape: &[usize]) -> (String, TensorData) {
    (name, TensorData::full(shape.to_vec(), 0.01f32))
}

/// Bytes of a field of /proc/self/status.
fn resident(field: &str) -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find(|line| line.starts_with(field)).expect("the field exists");
    let kilobytes: f64 = line.split_whitespace().nth(1).and_then(|n| n.parse().ok()).expect("a number");
    kilobytes * 1024.0
}

/// Forgets the peak of generating, so that the peak of loading is seen.
fn reset_peak() {
    std::fs::write("/proc/self/clear_refs", "5").expect("the kernel lets a process reset its own peak");
}
