//! What must hold for any LLaMA: batching, caching, masking and chunking change nothing.

use burn::module::Param;
use burn::nn::Linear;
use burn::prelude::*;
use burn::tensor::activation::log_softmax;
use burn::tensor::{DType, Distribution};
use sightdraft_target::attention::Attention;
use sightdraft_target::{Llama, LlamaConfig, Mask, Projection, RopeConfig};

fn config() -> LlamaConfig {
    LlamaConfig {
        hidden_size: 32,
        intermediate_size: 48,
        num_hidden_layers: 3,
        num_attention_heads: 4,
        num_key_value_heads: 2,
        head_dim: 8,
        vocab_size: 64,
        max_position_embeddings: 4096,
        rms_norm_eps: 1e-5,
        rope: RopeConfig { theta: 1e4, scaling: None },
        tie_word_embeddings: true,
    }
}

fn model(device: &Device) -> Llama {
    device.seed(7);
    Llama::init(&config(), device)
}

fn ids(batch: usize, n: usize, device: &Device) -> Tensor<2, Int> {
    let values: Vec<i64> = (0..batch * n).map(|i| (i * 37 % 61) as i64).collect();
    Tensor::from_data(TensorData::new(values, [batch, n]), device)
}

fn range(start: usize, end: usize) -> Vec<Vec<usize>> {
    vec![(start..end).collect()]
}

fn largest<const D: usize>(a: Tensor<D>, b: Tensor<D>) -> f32 {
    (a - b).abs().max().into_scalar::<f32>()
}

#[test]
fn a_row_alone_and_in_a_batch_of_eight_agree() {
    let device = Device::flex();
    let model = model(&device);
    let ids = ids(8, 20, &device);
    let run = |ids| model.forward(model.embed(ids), &range(0, 20), &Mask::Causal, &mut model.new_cache(), &[]).hidden;
    let together = run(ids.clone());
    for row in 0..8 {
        let alone = run(ids.clone().narrow(0, row, 1));
        assert!(largest(alone, together.clone().narrow(0, row, 1)) <= 1e-5, "row {row}");
    }
}

#[test]
fn embeddings_of_a_few_ids_are_those_of_the_lookup() {
    let device = Device::flex();
    let model = model(&device);
    let listed = model.embed_ids(&[5, 63, 5, 0]);
    let looked_up = model.embed(Tensor::from_data([[5, 63, 5, 0]], &device));
    assert_eq!(listed.into_data(), looked_up.into_data());
}

#[test]
fn one_pass_and_many_cached_passes_agree() {
    let device = Device::flex();
    let model = model(&device);
    let n = 300;
    let ids = ids(1, n, &device);
    let whole = model.forward(model.embed(ids.clone()), &range(0, n), &Mask::Causal, &mut model.new_cache(), &[1]);
    let mut cache = model.new_cache();
    let mut start = 0;
    // 290 in two blocks, then single rows across the 256-row step and its successor.
    for rows in [200, 90, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1] {
        let embeds = model.embed(ids.clone().narrow(1, start, rows));
        let pass = model.forward(embeds, &range(start, start + rows), &Mask::Causal, &mut cache, &[1]);
        let expected = whole.taps.clone().expect("tapped").narrow(1, start, rows);
        assert!(largest(pass.taps.expect("tapped"), expected) <= 1e-5);
        assert!(largest(pass.hidden, whole.hidden.clone().narrow(1, start, rows)) <= 1e-5, "rows from {start}");
        start += rows;
    }
    assert_eq!(cache.len(), n);
}

#[test]
fn a_long_prompt_in_chunks_equals_short_ones() {
    let device = Device::flex();
    let model = model(&device);
    let n = 1100;
    let ids = ids(1, n, &device);
    let whole = model.forward(model.embed(ids.clone()), &range(0, n), &Mask::Causal, &mut model.new_cache(), &[]);
    let mut cache = model.new_cache();
    for start in (0..n).step_by(100) {
        let embeds = model.embed(ids.clone().narrow(1, start, 100));
        let part = model.forward(embeds, &range(start, start + 100), &Mask::Causal, &mut cache, &[]);
        assert!(largest(part.hidden, whole.hidden.clone().narrow(1, start, 100)) <= 1e-5, "rows from {start}");
    }
}

#[test]
fn compaction_leaves_what_the_accepted_path_alone_would() {
    let device = Device::flex();
    let model = model(&device);
    let ids = ids(1, 12, &device);
    let embeds = |start, rows| model.embed(ids.clone().narrow(1, start, rows));
    // Prefix of 4, then a tree: 4 -> {5, 6}, 6 -> 7; the path 4, 6, 7 is accepted.
    let sees = [[1, 0, 0, 0], [1, 1, 0, 0], [1, 0, 1, 0], [1, 0, 1, 1]];
    let sees = sees.iter().map(|row| row.iter().map(|flag| *flag == 1).collect()).collect();
    let mut cache = model.new_cache();
    model.forward(embeds(0, 4), &range(0, 4), &Mask::Causal, &mut cache, &[]);
    model.forward(embeds(4, 4), &[vec![4, 5, 5, 6]], &Mask::Tree(sees), &mut cache, &[]);
    cache.gather(4, &[0, 2, 3]);
    let found = model.forward(embeds(8, 1), &range(7, 8), &Mask::Causal, &mut cache, &[]).hidden;
    let path = Tensor::cat(vec![embeds(0, 5), embeds(6, 3)], 1);
    let expected = model.forward(path, &range(0, 8), &Mask::Causal, &mut model.new_cache(), &[]).hidden;
    assert!(largest(found, expected.narrow(1, 7, 1)) <= 1e-5);
}

#[test]
fn a_fully_blocked_row_is_zero_and_its_gradient_finite() {
    let device = Device::flex().autodiff();
    device.seed(3);
    let attention = Attention::init(32, &config(), 0.2, &device);
    let random = |heads| Tensor::<4>::random([1, heads, 2, 8], Distribution::Default, &device).require_grad();
    let (q, k, v) = (random(4), random(2), random(2));
    let blocked = Tensor::<4, Bool>::from_data([[[[true, true], [false, true]]]], &device);
    let out = attention.attend(q.clone(), k, v, Some(blocked));
    let rows: Vec<f32> = out.clone().into_data().try_to_vec().expect("f32");
    assert!(rows[..32].iter().all(|x| *x == 0.0) && rows[32..].iter().any(|x| *x != 0.0));
    let gradient = q.grad(&out.sum().backward()).expect("tracked");
    let gradient: Vec<f32> = gradient.into_data().try_to_vec().expect("f32");
    assert!(gradient.iter().all(|x| x.is_finite()));
}

#[test]
fn grouped_heads_equal_repeated_ones_in_value_and_gradient() {
    let device = Device::flex().autodiff();
    device.seed(5);
    let grouped = Attention::init(32, &config(), 0.2, &device);
    let repeated = Attention { kv_heads: 4, ..grouped.clone() };
    let random = |heads| Tensor::<4>::random([2, heads, 3, 8], Distribution::Default, &device).require_grad();
    let (q, k, v) = (random(4), random(2), random(2));
    // Head h of group g reads key head g: 0, 0, 1, 1.
    let repeat = |x: Tensor<4>| {
        let heads = Tensor::<1, Int>::from_data([0, 0, 1, 1], &device);
        x.select(1, heads)
    };
    let a = grouped.attend(q.clone(), k.clone(), v.clone(), None);
    let b = repeated.attend(q, repeat(k.clone()), repeat(v), None);
    assert!(largest(a.clone(), b.clone()) <= 1e-6);
    let gradient = |out: Tensor<3>| k.grad(&out.square().sum().backward()).expect("tracked");
    assert!(largest(gradient(a), gradient(b)) <= 1e-5);
}

#[test]
fn the_form_for_inference_gives_the_same_model() {
    let device = Device::flex();
    for tie_word_embeddings in [false, true] {
        let config = LlamaConfig { tie_word_embeddings, ..config() };
        device.seed(11);
        let plain = Llama::init(&config, &device);
        let packed = plain.clone().for_inference();
        let rows = ids(1, 9, &device);
        let logits = |model: &Llama| {
            let embeds = model.embed(rows.clone());
            let pass = model.forward(embeds, &range(0, 9), &Mask::Causal, &mut model.new_cache(), &[]);
            model.logits(pass.hidden)
        };
        let difference = largest(logits(&plain), logits(&packed));
        assert!(difference < 1e-5, "tied {tie_word_embeddings}: {difference}");
        let head = packed.lm_head.as_ref().expect("packed, tied or not").weight_out_in();
        let original = match &plain.lm_head {
            Some(head) => head.weight_out_in(),
            None => plain.embed_tokens.weight.val(),
        };
        head.into_data().assert_eq(&original.into_data(), true);
    }
}

#[test]
fn half_precision_on_the_cpu_keeps_rows_in_f32() {
    let device = Device::flex();
    let dir = tempfile::tempdir().expect("a temporary directory");
    let model = model(&device);
    model.save(dir.path(), DType::F32).expect("saved");
    let rows = ids(1, 9, &device);
    let logits = |model: &Llama| {
        let embeds = model.embed(rows.clone());
        let pass = model.forward(embeds, &range(0, 9), &Mask::Causal, &mut model.new_cache(), &[]);
        model.logits(pass.hidden)
    };
    let half = sightdraft_target::load::load(dir.path(), DType::BF16, &device).expect("loaded");
    let found = logits(half.llama());
    assert_eq!(found.dtype(), DType::F32);
    let exact = logits(&model);
    let scale: f32 = exact.clone().abs().max().into_scalar();
    let difference = largest(exact, found) / scale;
    assert!(difference > 0.0 && difference < 0.03, "{difference} of the largest logit");
}

/// The gradient of a tied table is the sum of what the same table gets as embedding and as head when they are apart.
#[test]
fn a_tied_head_gathers_both_gradients() {
    let device = Device::flex().autodiff();
    device.seed(5);
    let tied = Llama::init(&config(), &device);
    let mut apart = tied.clone();
    let table = tied.embed_tokens.weight.val().into_data();
    let head = Tensor::<2>::from_data(table.clone(), &device).transpose().into_data();
    apart.embed_tokens.weight = Param::from_tensor(Tensor::from_data(table, &device).require_grad());
    apart.lm_head = Some(Projection::Plain(Linear {
        weight: Param::from_tensor(Tensor::from_data(head, &device).require_grad()),
        bias: None,
    }));
    let rows = ids(2, 7, &device);
    let next: Tensor<3, Int> = rows.clone().narrow(1, 1, 6).unsqueeze_dim(2);
    let gradients = |model: &Llama| {
        let embeds = model.embed(rows.clone().narrow(1, 0, 6));
        let pass = model.forward(embeds, &range(0, 6), &Mask::Causal, &mut model.new_cache(), &[]);
        let loss = log_softmax(model.logits(pass.hidden), 2).gather(2, next.clone()).mean().neg();
        (loss.clone().into_scalar::<f32>(), loss.backward())
    };
    let (loss, together) = gradients(&tied);
    let (same_loss, separate) = gradients(&apart);
    assert!((loss - same_loss).abs() < 1e-6, "{loss} and {same_loss}");
    let embedding = apart.embed_tokens.weight.val().grad(&separate).expect("embedding");
    let head = apart.lm_head.as_ref().expect("a head").plain().weight.val().grad(&separate).expect("head");
    let gathered = tied.embed_tokens.weight.val().grad(&together).expect("table");
    assert!(largest(gathered.clone(), embedding.clone() + head.transpose()) < 1e-6);
    // Neither part is lost for being small.
    assert!(largest(gathered, embedding) > 1e-3);
}
