//! The engine on a GPU device, through WGSL. Where there is no card, Mesa's software rasteriser (lavapipe) plays one; where
//! neither is there, every test says so and passes.

mod host_reads;

use std::io::Write;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use burn::prelude::*;
use sightdraft_core::device::{DeviceChoice, pick};
use sightdraft_decode::{Acceptance, Sampling, TreeChoice, TreeShape, generate};
use sightdraft_draft::{Draft, Method};
use sightdraft_target::{KvCache, Llama, Mask};

use crate::tiny::{Oracle, bushy_tree, prompt, random_draft, random_of, request, target, tuner};

/// How far a GPU's numbers may be from the CPU's.
const TOLERANCE: f32 = 1e-3;

/// The first device, opened once, for one test at a time: its reads are counted.
fn device() -> Option<(Device, MutexGuard<'static, ()>)> {
    static DEVICE: OnceLock<Option<Device>> = OnceLock::new();
    static TURN: Mutex<()> = Mutex::new(());
    let open = || match pick(&DeviceChoice("wgpu".into())) {
        Ok((device, taken)) => {
            say(&format!("testing the engine on {taken}"));
            Some(device)
        }
        Err(error) => {
            say(&format!("skipping the engine's tests on wgpu: {error}"));
            None
        }
    };
    let device = DEVICE.get_or_init(open).clone()?;
    // A test that failed leaves nothing behind.
    Some((device, TURN.lock().unwrap_or_else(PoisonError::into_inner)))
}

/// To the terminal, past the test harness, which keeps what tests print that pass.
fn say(sentence: &str) {
    let _ = writeln!(std::io::stderr(), "{sentence}");
}

fn values<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
    tensor.into_data().iter::<f32>().collect()
}

/// Logits of rows `ids` and the second layer's input, behind the cache.
fn pass(llama: &Llama, ids: &[u32], positions: Vec<usize>, mask: &Mask, cache: &mut KvCache) -> [Vec<f32>; 2] {
    let pass = llama.forward(llama.embed_ids(ids), &[positions], mask, cache, &[1]);
    [values(llama.logits(pass.hidden)), values(pass.taps.unwrap())]
}

/// A prompt, a tree behind it, the tree's path to node 11 kept, and the row after it.
fn passes(llama: &Llama) -> Vec<Vec<f32>> {
    let mut cache = llama.new_cache();
    let ids: Vec<u32> = (0..9).map(|row| row * 7 % 40).collect();
    let mut found = pass(llama, &ids, (0..9).collect(), &Mask::Causal, &mut cache).to_vec();
    let tree = bushy_tree();
    let positions = tree.depths.iter().map(|depth| 9 + depth).collect();
    found.extend(pass(llama, &tree.tokens, positions, &Mask::Tree(tree.sees()), &mut cache));
    let path = tree.path_to(11);
    cache.gather(9, &path);
    found.extend(pass(llama, &[5], vec![9 + path.len()], &Mask::Causal, &mut cache));
    for layer in 0..llama.config.num_hidden_layers {
        let (keys, rows) = cache.layer(layer).unwrap();
        found.extend([values(keys), values(rows)]);
    }
    found
}

#[test]
fn passes_trees_and_compaction_agree_with_the_cpu() {
    let Some((device, _turn)) = device() else { return };
    let target = target();
    // Weights are drawn when they are first used: here, then moved.
    let here = passes(&target);
    let there = passes(&target.to_device(&device));
    for (place, (here, there)) in here.iter().zip(there).enumerate() {
        assert_eq!(here.len(), there.len(), "{place}");
        let diff = here.iter().zip(&there).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(diff < TOLERANCE, "{place}: {diff}");
    }
}

/// A prompt, with an image where `seed` is even, decoded with the draft and without.
fn check_lossless(target: &Llama, draft: &dyn Draft, tree: TreeChoice, seed: u64) {
    let mut request = request(prompt(target, seed, seed % 2 == 0), 8);
    let plain = generate(target, None, &request, &mut |_| ()).unwrap();
    request.tree = tree;
    let speculative = generate(target, Some(draft), &request, &mut |_| ()).unwrap();
    assert_eq!(speculative.token_ids, plain.token_ids, "prompt {seed}");
}

#[test]
fn drafts_change_no_token() {
    let Some((device, _turn)) = device() else { return };
    let target = target().to_device(&device);
    let tree = TreeChoice::Fixed(TreeShape { total: 6, depth: 1, top_k: 3 });
    check_lossless(&target, &random_draft(&target), tree.clone(), 0);
    check_lossless(&target, &random_draft(&target), tree.clone(), 1);
    check_lossless(&target, &random_of(Method::Vispec, &target), tree, 2);
}

#[test]
fn trees_that_follow_the_cost_change_no_token() {
    let Some((device, _turn)) = device() else { return };
    let target = target().to_device(&device);
    check_lossless(&target, &random_draft(&target), TreeChoice::Adaptive(tuner(0.1, 0.3)), 3);
}

#[test]
fn an_oracle_is_accepted() {
    let Some((device, _turn)) = device() else { return };
    let target = target().to_device(&device);
    let mut request = request(prompt(&target, 3, true), 11);
    request.tree = TreeShape::chain(4).into();
    let oracle = Oracle::new(&target, &request.prompt);
    let plain = generate(&target, None, &request, &mut |_| ()).unwrap();
    let speculative = generate(&target, Some(&oracle), &request, &mut |_| ()).unwrap();
    assert_eq!(speculative.token_ids, plain.token_ids);
    assert_eq!(speculative.counters.accepted_at, [2; 4]);
}

#[test]
fn sampling_gives_tokens_of_the_vocabulary() {
    let Some((device, _turn)) = device() else { return };
    let target = target().to_device(&device);
    let draft = random_draft(&target);
    for acceptance in [Acceptance::PointMass, Acceptance::Ratio] {
        let mut request = request(prompt(&target, 5, true), 6);
        request.sampling = Sampling { temperature: 1.0, top_p: 0.95, seed: 3, ..Sampling::GREEDY };
        request.acceptance = acceptance;
        let sampled = generate(&target, Some(&draft), &request, &mut |_| ()).unwrap();
        assert_eq!(sampled.token_ids.len(), 6);
        assert!(sampled.token_ids.iter().all(|&id| id < 40), "{acceptance:?}: {:?}", sampled.token_ids);
    }
}
