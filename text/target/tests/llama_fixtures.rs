//! Every LLaMA case under the fixtures against what the reference implementation computed.

use std::path::{Path, PathBuf};

use burn::prelude::*;
use burn::tensor::DType;
use sightdraft_core::Checkpoint;
use sightdraft_target::{KvCache, Llama, Mask, load::load_text};

const TOLERANCE: f32 = 1e-4;

/// A case: the model and the reference's inputs and outputs.
struct Case {
    name: String,
    model: Llama,
    io: Checkpoint,
    device: Device,
}

impl Case {
    fn open(dir: &Path, device: Device) -> Self {
        let model = load_text(dir, DType::F32, &device).expect("the fixture's model loads");
        let io = Checkpoint::open_file(&dir.join("io.safetensors")).expect("the fixture's figures open");
        Self { name: dir.display().to_string(), model, io, device }
    }

    fn reference(&self, name: &str) -> Vec<f32> {
        self.io.floats(name).expect("floats")
    }

    fn rows(&self, name: &str) -> Vec<Vec<u32>> {
        let width = self.io.shape(name).expect("present")[1];
        let flat = self.io.integers(name).expect("integers");
        flat.chunks(width).map(|row| row.iter().map(|id| *id as u32).collect()).collect()
    }

    fn ids(&self, rows: &[Vec<u32>]) -> Tensor<2, Int> {
        let flat: Vec<i64> = rows.iter().flatten().map(|id| i64::from(*id)).collect();
        Tensor::from_data(TensorData::new(flat, [rows.len(), rows[0].len()]), &self.device)
    }

    /// Asserts that `found` matches the reference tensor, and prints by how much.
    fn check<const D: usize>(&self, name: &str, found: Tensor<D>) {
        let found: Vec<f32> = found.into_data().try_to_vec().expect("f32");
        self.check_values(name, &found, &self.reference(name));
    }

    fn check_values(&self, name: &str, found: &[f32], expected: &[f32]) {
        assert_eq!(found.len(), expected.len(), "{} {name}", self.name);
        let largest = found.iter().zip(expected).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        println!("{} {name}: max |diff| {largest:.1e}", self.name);
        assert!(largest <= TOLERANCE && found.iter().all(|x| x.is_finite()), "{} {name}: {largest}", self.name);
    }

    fn has(&self, name: &str) -> bool {
        self.io.has(name)
    }
}

/// All cases whose figures have `needs`.
fn cases(needs: &str, device: &Device) -> Vec<Case> {
    let root = sightdraft_fixtures::root();
    let dirs: Vec<PathBuf> = sightdraft_fixtures::entries(&root).into_iter().filter(|d| is_llama(d)).collect();
    let found: Vec<Case> =
        dirs.iter().map(|dir| Case::open(dir, device.clone())).filter(|case| case.has(needs)).collect();
    assert!(!found.is_empty(), "no case with {needs} under {}", root.display());
    found
}

fn is_llama(dir: &Path) -> bool {
    let Ok(text) = std::fs::read_to_string(dir.join("config.json")) else { return false };
    let config: serde_json::Value = serde_json::from_str(&text).expect("config.json is JSON");
    config["architectures"][0] == "LlamaForCausalLM"
        && dir.join("io.safetensors").is_file()
        && dir.join("model.safetensors").is_file()
}

fn count(n: usize) -> Vec<Vec<usize>> {
    vec![(0..n).collect()]
}

#[test]
fn fixture_logits_hidden_states_and_kv() {
    for case in cases("hidden_states.0", &Device::flex()) {
        let rows = case.rows("input_ids");
        let last = case.model.layers.len();
        let taps: Vec<usize> = (0..=last).collect();
        let mut cache = case.model.new_cache();
        let embeds = case.model.embed(case.ids(&rows));
        let pass = case.model.forward(embeds, &count(rows[0].len()), &Mask::Causal, &mut cache, &taps);
        let width = case.model.config.hidden_size;
        for tap in taps {
            let tapped = pass.taps.clone().expect("taps were asked for").narrow(2, tap * width, width);
            case.check(&format!("hidden_states.{tap}"), tapped);
        }
        case.check("logits", case.model.logits(pass.hidden));
        let first = cache.layer(0).expect("filled");
        case.check("kv.0.k", first.0);
        case.check("kv.0.v", first.1);
        case.check("kv.last.k", cache.layer(last - 1).expect("filled").0);
    }
}

#[test]
fn fixture_left_padding() {
    for case in cases("leftpad.logits", &Device::flex()) {
        let rows = case.rows("input_ids");
        let padding = case.rows("leftpad.attention_mask");
        let positions: Vec<Vec<usize>> =
            case.rows("leftpad.position_ids").iter().map(|row| row.iter().map(|p| *p as usize).collect()).collect();
        let sees = |row: &Vec<u32>| -> Vec<Vec<bool>> {
            (0..row.len()).map(|i| (0..row.len()).map(|j| j <= i && row[j] == 1).collect()).collect()
        };
        let mask = Mask::Full(padding.iter().map(sees).collect());
        let pass =
            case.model.forward(case.model.embed(case.ids(&rows)), &positions, &mask, &mut case.model.new_cache(), &[]);
        let found: Vec<f32> = case.model.logits(pass.hidden).into_data().try_to_vec().expect("f32");
        assert!(found.iter().all(|x| x.is_finite()), "{}: a padding row gave NaN", case.name);
        // What a padding row itself says is undefined: the reference lets it see everything.
        let real: Vec<bool> = padding.iter().flatten().map(|flag| *flag == 1).collect();
        let vocabulary = case.model.config.vocab_size;
        let keep = |values: &[f32]| -> Vec<f32> {
            values.chunks(vocabulary).zip(&real).filter(|(_, real)| **real).flat_map(|(row, _)| row.to_vec()).collect()
        };
        case.check_values("leftpad.logits", &keep(&found), &keep(&case.reference("leftpad.logits")));
    }
}

#[test]
fn fixture_tree_forward() {
    for case in cases("tree.logits", &Device::flex()) {
        let (prefix, tokens) = (case.rows("tree.prefix"), case.rows("tree.tokens"));
        let parents = case.io.integers("tree.parent").expect("integers");
        let positions: Vec<usize> = case.rows("tree.position_ids")[0].iter().map(|p| *p as usize).collect();
        let sees = (0..parents.len()).map(|node| ancestry(node, &parents)).collect();
        let mut cache = case.model.new_cache();
        let model = &case.model;
        model.forward(model.embed(case.ids(&prefix)), &count(prefix[0].len()), &Mask::Causal, &mut cache, &[]);
        let pass = model.forward(model.embed(case.ids(&tokens)), &[positions], &Mask::Tree(sees), &mut cache, &[]);
        case.check("tree.logits", model.logits(pass.hidden));
    }
}

/// The row of `node`: itself and its ancestors.
fn ancestry(node: usize, parents: &[i64]) -> Vec<bool> {
    let mut sees = vec![false; parents.len()];
    let mut next = Some(node);
    while let Some(at) = next {
        sees[at] = true;
        next = usize::try_from(parents[at]).ok();
    }
    sees
}

#[test]
fn fixture_greedy_sequence() {
    for case in cases("greedy.sequence", &Device::flex()) {
        let mut ids = case.rows("greedy.prompt").remove(0);
        let expected = case.rows("greedy.sequence").remove(0);
        let mut cache = case.model.new_cache();
        let mut next = step(&case, &ids, 0, &mut cache);
        while ids.len() < expected.len() {
            ids.push(next);
            next = step(&case, &[next], ids.len() - 1, &mut cache);
        }
        assert_eq!(ids, expected, "{}", case.name);
    }
}

/// Feeds `ids` from position `start` on and returns the most likely next id.
fn step(case: &Case, ids: &[u32], start: usize, cache: &mut KvCache) -> u32 {
    let positions = vec![(start..start + ids.len()).collect()];
    let pass = case.model.forward(case.model.embed_ids(ids), &positions, &Mask::Causal, cache, &[]);
    let last = pass.hidden.narrow(1, ids.len() - 1, 1);
    case.model.logits(last).argmax(2).into_scalar::<i64>() as u32
}

#[test]
fn fixture_loss_and_gradients() {
    for case in cases("loss.value", &Device::flex().autodiff()) {
        let rows = case.rows("input_ids");
        let [batch, n] = [rows.len(), rows[0].len()];
        let embeds = case.model.embed(case.ids(&rows));
        let pass = case.model.forward(embeds, &count(n), &Mask::Causal, &mut case.model.new_cache(), &[]);
        let labels = case.io.integers("loss.labels").expect("integers");
        let shifted: Vec<i64> = labels.chunks(n).flat_map(|row| row[1..].to_vec()).collect();
        let weights: Vec<f32> = shifted.iter().map(|label| f32::from(*label >= 0)).collect();
        let cells = weights.iter().sum::<f32>();
        let targets: Vec<i64> = shifted.iter().map(|label| (*label).max(0)).collect();
        let log = burn::tensor::activation::log_softmax(case.model.logits(pass.hidden).narrow(1, 0, n - 1), 2);
        let targets = Tensor::<3, Int>::from_data(TensorData::new(targets, [batch, n - 1, 1]), &case.device);
        let weights = Tensor::<3>::from_data(TensorData::new(weights, [batch, n - 1, 1]), &case.device);
        let loss = (log.gather(2, targets) * weights).sum().neg() / cells;
        case.check_values("loss.value", &[loss.clone().into_scalar::<f32>()], &case.reference("loss.value"));
        let gradients = loss.backward();
        let key = case.model.layers[0].self_attn.k_proj.plain().weight.val().grad(&gradients).expect("trained");
        case.check("loss.grad.model.layers.0.self_attn.k_proj.weight", key.transpose());
        let norm = case.model.norm.gamma.val().grad(&gradients).expect("trained");
        case.check("loss.grad.model.norm.weight", norm);
    }
}

#[test]
fn fixture_inverse_frequencies() {
    for case in cases("rope.inv_freq", &Device::flex()) {
        let found: Vec<f32> = case.model.rope.inv_freq.iter().map(|f| *f as f32).collect();
        case.check_values("rope.inv_freq", &found, &case.reference("rope.inv_freq"));
    }
}

#[test]
fn fixture_save_and_load_is_the_same_model() {
    for case in cases("logits", &Device::flex()) {
        let dir = tempfile::tempdir().expect("a temporary directory");
        case.model.save(dir.path(), DType::F32).expect("saves");
        let again = load_text(dir.path(), DType::F32, &case.device).expect("loads again");
        assert_eq!(again.config, case.model.config);
        assert_eq!(again.rope.inv_freq, case.model.rope.inv_freq);
        let rows = case.rows("input_ids");
        let embeds = again.embed(case.ids(&rows));
        let pass = again.forward(embeds, &count(rows[0].len()), &Mask::Causal, &mut again.new_cache(), &[]);
        case.check("logits", again.logits(pass.hidden));
    }
}

#[test]
fn fixture_half_precision_stays_close() {
    for case in cases("logits", &Device::flex()) {
        let rows = case.rows("input_ids");
        for (dtype, tolerance) in [(DType::F16, 0.01), (DType::BF16, 0.08)] {
            let model = load_text(Path::new(&case.name), dtype, &case.device).expect("loads");
            let embeds = model.embed(case.ids(&rows));
            let pass = model.forward(embeds, &count(rows[0].len()), &Mask::Causal, &mut model.new_cache(), &[]);
            assert_eq!(pass.hidden.dtype(), dtype);
            let found = model.logits(pass.hidden).into_data().convert::<f32>().try_to_vec::<f32>().expect("f32");
            let expected = case.reference("logits");
            let scale = expected.iter().map(|x| x.abs()).fold(0.0, f32::max);
            let largest = found.iter().zip(&expected).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            println!("{} {dtype:?}: {:.1e} of the largest logit", case.name, largest / scale);
            assert!(largest <= tolerance * scale, "{} {dtype:?}: {largest} of {scale}", case.name);
        }
    }
}
