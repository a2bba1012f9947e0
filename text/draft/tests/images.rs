//! Drafts that treat images apart (MSD, ViSpec): any number of images in any place, and their checkpoints.

use std::path::Path;

use burn::prelude::*;
use burn::tensor::Distribution;
use sightdraft_core::save_safetensors;
use sightdraft_draft::{Draft, DraftConfig, DraftModel, DraftState, FeatureRows, Method, ViSpec, VocabMap};
use sightdraft_fixtures::Fixture;
use sightdraft_target::{Llama, LlamaConfig, Mask, Projection, RopeConfig};

const H: usize = 16;

/// Text, an image of three rows, one of two side by side with it, text, an image of one row, text.
const IMAGES: [Option<usize>; 12] =
    [None, None, Some(0), Some(0), Some(0), Some(1), Some(1), None, None, Some(2), None, None];

fn target() -> Llama {
    let config = LlamaConfig {
        hidden_size: H,
        intermediate_size: 24,
        num_hidden_layers: 3,
        num_attention_heads: 4,
        num_key_value_heads: 2,
        head_dim: 4,
        vocab_size: 12,
        max_position_embeddings: 64,
        rms_norm_eps: 1e-5,
        rope: RopeConfig { theta: 10000.0, scaling: None },
        tie_word_embeddings: false,
    };
    let device = Device::flex();
    device.seed(5);
    Llama::init(&config, &device)
}

/// A ViSpec draft of `queries` queries whose text hears of images.
fn vispec(target: &Llama, queries: usize) -> DraftModel {
    let device = Device::flex();
    let config = DraftConfig::for_target(Method::Vispec, &target.config, 12).unwrap().with_num_q(queries).unwrap();
    let mut draft = ViSpec::init(config, target, &device);
    draft.img_fc = Projection::init(2 * H, H, true, 0.3, &device);
    draft.imadpt.o_proj = Projection::init(H, H, false, 0.3, &device);
    DraftModel::ViSpec(draft)
}

fn msd(target: &Llama) -> DraftModel {
    let config = DraftConfig::for_target(Method::Msd, &target.config, 12).unwrap();
    DraftModel::init(config, VocabMap::identity(12), target, &Device::flex())
}

fn drafts(target: &Llama) -> [DraftModel; 4] {
    [msd(target), vispec(target, 1), vispec(target, 2), vispec(target, 3)]
}

/// Features and embeddings of a sequence of `IMAGES.len()` rows.
fn sequence() -> (Tensor<3>, Tensor<3>) {
    let random = || Tensor::random([1, IMAGES.len(), H], Distribution::Normal(0.0, 1.0), &Device::flex());
    (random(), random())
}

fn extend(
    draft: &DraftModel,
    state: &mut DraftState,
    (features, embeds): &(Tensor<3>, Tensor<3>),
    range: std::ops::Range<usize>,
) -> Tensor<3> {
    let rows = FeatureRows {
        features: features.clone().narrow(1, range.start, range.len()),
        embeds: embeds.clone().narrow(1, range.start, range.len()),
        positions: &[range.clone().collect()],
        mask: &Mask::Causal,
        image: &[IMAGES[range].to_vec()],
    };
    draft.extend(state, rows).hidden
}

/// Every row in one call, and the state behind it.
fn whole(draft: &DraftModel, rows: &(Tensor<3>, Tensor<3>)) -> Tensor<3> {
    extend(draft, &mut draft.start(), rows, 0..IMAGES.len())
}

/// The largest difference of rows `range`.
fn distance(a: &Tensor<3>, b: &Tensor<3>, range: std::ops::Range<usize>) -> f32 {
    (a.clone() - b.clone()).narrow(1, range.start, range.len()).abs().max().into_scalar()
}

#[test]
fn an_image_of_a_later_call_is_as_good_as_one_of_the_first() {
    let target = target();
    let rows = sequence();
    for draft in drafts(&target) {
        let expected = whole(&draft, &rows);
        let mut state = draft.start();
        let mut parts = vec![];
        // Turns end before the first image, between the two side by side, and before the last.
        for range in [0..2, 2..5, 5..9, 9..12] {
            parts.push(extend(&draft, &mut state, &rows, range));
        }
        assert!(distance(&Tensor::cat(parts, 1), &expected, 0..12) < 1e-5);
        assert_eq!(state.cache.len(), draft.keyed_rows(&IMAGES).len());
    }
}

#[test]
fn steps_go_on_from_the_latest_image_at_the_position_behind_the_last_row() {
    let target = target();
    let (features, embeds) = sequence();
    for draft in drafts(&target) {
        // A step with a feature of the target's own is the row that `extend` makes of it.
        let expected = whole(&draft, &(features.clone(), embeds.clone()));
        let mut state = draft.start();
        extend(&draft, &mut state, &(features.clone(), embeds.clone()), 0..11);
        let own = |rows: &Tensor<3>| rows.clone().narrow(1, 11, 1);
        let pass = draft.step(&mut state, own(&features), own(&embeds), &[vec![11]], &Mask::Causal);
        assert!(distance(&pass.hidden, &own(&expected), 0..1) < 1e-5);
    }
}

#[test]
fn every_image_reaches_what_follows_it_and_nothing_before() {
    let target = target();
    let (features, embeds) = sequence();
    let models = drafts(&target);
    for (draft, name) in models.iter().zip(["msd", "one query", "two queries", "three queries"]) {
        let before = whole(draft, &(features.clone(), embeds.clone()));
        for (image, range) in [(0, 2..5), (1, 5..7), (2, 9..10)] {
            let other = Tensor::ones([1, range.len(), H], &Device::flex());
            let changed = embeds.clone().slice_assign([0..1, range.clone(), 0..H], other);
            let after = whole(draft, &(features.clone(), changed));
            assert_eq!(distance(&before, &after, 0..range.start), 0.0, "{name}: image {image}");
            // One query leaves no token, only the global feature, which the next image replaces before any text hears of it.
            let silent = name == "one query" && image == 0;
            assert_eq!(distance(&before, &after, range.end..12) > 0.0, !silent, "{name}: image {image}");
        }
    }
}

#[test]
fn a_batch_with_other_images_in_every_sequence_is_each_of_them_alone() {
    let target = target();
    let layouts = [IMAGES.to_vec(), vec![None; 12], [vec![Some(0); 6], vec![None; 6]].concat()];
    let batch: Vec<(Tensor<3>, Tensor<3>)> = layouts.iter().map(|_| sequence()).collect();
    let unroll = |draft: &DraftModel, rows: &[(Tensor<3>, Tensor<3>)], image: &[Vec<Option<usize>>]| {
        let embeds = Tensor::cat(rows.iter().map(|row| row.1.clone()).collect(), 0);
        let rows = FeatureRows {
            features: Tensor::cat(rows.iter().map(|row| row.0.clone()).collect(), 0),
            embeds: embeds.clone(),
            positions: &[(0..12).collect()],
            mask: &Mask::Causal,
            image,
        };
        draft.unroll(rows, 0, &[embeds.clone(), embeds])
    };
    for draft in drafts(&target) {
        let together = unroll(&draft, &batch, &layouts);
        assert_eq!(together.len(), 3);
        for (sequence, layout) in layouts.iter().enumerate() {
            let alone = unroll(&draft, &batch[sequence..sequence + 1], std::slice::from_ref(layout));
            for (own, all) in alone.iter().zip(&together) {
                assert!(distance(&own.hidden, &all.hidden.clone().narrow(0, sequence, 1), 0..12) < 1e-5);
            }
        }
    }
}

#[test]
fn a_fresh_vispec_draft_hears_of_images_through_its_tokens_alone() {
    let target = target();
    let config = DraftConfig::for_target(Method::Vispec, &target.config, 12).unwrap();
    let DraftModel::ViSpec(draft) = DraftModel::init(config, VocabMap::identity(12), &target, &Device::flex()) else {
        panic!("the method decides")
    };
    assert_eq!(draft.imadpt.queries(), 2);
    let weight = draft.img_fc.weight_out_in();
    weight.clone().narrow(1, 0, H).into_data().assert_eq(&Tensor::<2>::eye(H, &Device::flex()).into_data(), false);
    let rest = weight.narrow(1, H, H).abs().max().into_scalar::<f32>();
    let bias = draft.img_fc.bias().unwrap().abs().max().into_scalar::<f32>();
    assert_eq!((rest, bias), (0.0, 0.0));
}

fn weights(dir: &Path) -> Vec<(String, TensorData)> {
    let tensors = Fixture::open(&dir.join("model.safetensors"));
    let read = |name: String| (name.clone(), TensorData::new(tensors.f32(&name), tensors.shape(&name)));
    tensors.names().into_iter().map(read).collect()
}

#[test]
fn saved_drafts_come_back_whole_under_their_published_names() {
    let target = target();
    let rows = sequence();
    for draft in drafts(&target) {
        let dir = tempfile::tempdir().unwrap();
        draft.save(dir.path()).unwrap();
        let back = DraftModel::open(dir.path(), &target, &Device::flex()).unwrap();
        whole(&back, &rows).into_data().assert_eq(&whole(&draft, &rows).into_data(), true);
        let names: Vec<String> = weights(dir.path()).into_iter().map(|(name, _)| name).collect();
        for name in ["embed_tokens.weight", "fc.bias", "fc.weight", "layers.0.self_attn.q_proj.weight"] {
            assert!(names.contains(&name.into()), "{name} is missing: {names:?}");
        }
        let own = ["imadpt.q", "imadpt.k_proj.weight", "img_fc.weight", "img_fc.bias"];
        let has_own = own.iter().filter(|name| names.contains(&name.to_string())).count();
        assert_eq!(has_own, if matches!(draft, DraftModel::ViSpec(_)) { own.len() } else { 0 });
        let inference = back.for_inference();
        // Its matrices are rounded to bf16, to one part in 512.
        let largest = whole(&draft, &rows).abs().max().into_scalar::<f32>();
        assert!(distance(&whole(&inference, &rows), &whole(&draft, &rows), 0..12) < 0.02 * largest);
    }
}

#[test]
fn misshapen_and_missing_tensors_are_named() {
    let target = target();
    let dir = tempfile::tempdir().unwrap();
    vispec(&target, 2).save(dir.path()).unwrap();
    let good = weights(dir.path());
    let refusal = |name: &str, shape: Option<&[usize]>| {
        let mut tensors: Vec<(String, TensorData)> = good.iter().filter(|(other, _)| other != name).cloned().collect();
        if let Some(shape) = shape {
            tensors.push((name.into(), TensorData::zeros::<f32, _>(shape.to_vec())));
        }
        save_safetensors(&dir.path().join("model.safetensors"), &tensors, &[]).unwrap();
        let error = DraftModel::open(dir.path(), &target, &Device::flex()).expect_err("a bad tensor");
        let message = error.to_string();
        assert!(message.contains(name) && message.contains("model.safetensors"), "{message}");
    };
    refusal("imadpt.q", Some(&[2, 16]));
    refusal("imadpt.q", Some(&[0, 4, 4]));
    refusal("imadpt.q", None);
    refusal("imadpt.k_proj.weight", Some(&[8, H]));
    refusal("imadpt.o_proj.weight", None);
    refusal("img_fc.weight", Some(&[H, H]));
}
