//! Drafts on disk: what is written is read back, and what does not fit is refused with a sentence that says why.

use std::path::Path;

use burn::prelude::*;
use sightdraft_core::checkpoint::save_safetensors;
use sightdraft_draft::{Draft, DraftConfig, DraftModel, Eagle3, FeatureRows, Method, Published, ViSpec, VocabMap};
use sightdraft_target::config::RopeScaling;
use sightdraft_target::{Llama, LlamaConfig, Mask, RopeConfig};

fn target_config() -> LlamaConfig {
    let scaling = RopeScaling::Llama3 {
        factor: 8.0,
        low_freq_factor: 1.0,
        high_freq_factor: 4.0,
        original_max_position_embeddings: 8192,
    };
    LlamaConfig {
        hidden_size: 16,
        intermediate_size: 24,
        num_hidden_layers: 4,
        num_attention_heads: 4,
        num_key_value_heads: 2,
        head_dim: 4,
        vocab_size: 12,
        max_position_embeddings: 64,
        rms_norm_eps: 1e-5,
        rope: RopeConfig { theta: 500000.0, scaling: Some(scaling) },
        tie_word_embeddings: true,
    }
}

fn target() -> Llama {
    Llama::init(&target_config(), &Device::flex())
}

fn draft() -> Eagle3 {
    let device = Device::flex();
    let config = DraftConfig::for_target(Method::Eagle3, &target_config(), 3).unwrap();
    Eagle3::init(config, VocabMap::new(vec![0, 5, 9], 12), &target(), &device)
}

/// A fresh draft of a method that shares the target's head.
fn sharing(method: Method, target: &Llama) -> DraftModel {
    let config = DraftConfig::for_target(method, &target.config, 12).unwrap();
    DraftModel::init(config, VocabMap::identity(12), target, &Device::flex())
}

fn saved(dir: &Path) {
    DraftModel::Eagle3(draft()).save(dir).unwrap();
}

fn refusal(dir: &Path, target: &LlamaConfig) -> String {
    DraftModel::open(dir, &Llama::init(target, &Device::flex()), &Device::flex())
        .expect_err("the draft does not fit")
        .to_string()
}

fn edit_config(dir: &Path, edit: impl FnOnce(&mut serde_json::Value)) {
    let path = dir.join("config.json");
    let mut value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
    edit(&mut value);
    std::fs::write(path, value.to_string()).unwrap();
}

fn logits(draft: &dyn Draft) -> Vec<f32> {
    let device = Device::flex();
    let width = 16 * draft.taps().len();
    let rows = FeatureRows {
        features: Tensor::<1, Int>::arange(0..2 * width as i64, &device).float().sin().reshape([1, 2, width]),
        embeds: Tensor::<1, Int>::arange(0..32, &device).float().cos().reshape([1, 2, 16]),
        positions: &[vec![9000, 9001]],
        mask: &Mask::Causal,
        image: &[vec![None, None]],
    };
    let pass = draft.extend(&mut draft.start(), rows);
    draft.logits(pass.predict).into_data().iter::<f32>().collect()
}

#[test]
fn a_saved_draft_comes_back_whole() {
    let dir = tempfile::tempdir().unwrap();
    let model = DraftModel::Eagle3(draft());
    model.save(dir.path()).unwrap();
    let back = DraftModel::open(dir.path(), &target(), &Device::flex()).unwrap();
    assert_eq!(back.vocab(), &VocabMap::new(vec![0, 5, 9], 12));
    assert_eq!(back.taps(), [1, 2, 3]);
    // The rope scaling is among what must survive: position 9000 shows it.
    assert_eq!(logits(&back), logits(&model));
    let mut names: Vec<_> = std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["config.json", "model.safetensors"]);
}

#[test]
fn both_layer_id_conventions_are_read() {
    let dir = tempfile::tempdir().unwrap();
    saved(dir.path());
    edit_config(dir.path(), |value| {
        value.as_object_mut().unwrap().remove("eagle_aux_hidden_state_layer_ids");
        value["eagle_config"]["eagle_aux_hidden_state_layer_ids"] = serde_json::json!([-1, 0, 3]);
    });
    assert_eq!(DraftConfig::open(dir.path(), &target_config()).unwrap().taps, [0, 1, 4]);
}

#[test]
fn a_fresh_head_speaks_with_the_rows_of_the_target() {
    let device = Device::flex();
    let target = target();
    let config = DraftConfig::for_target(Method::Eagle3, &target_config(), 3).unwrap();
    let head = Eagle3::init(config, VocabMap::new(vec![0, 5, 9], 12), &target, &device);
    let rows = target.embed_tokens.weight.val().select(0, Tensor::from_ints([0, 5, 9], &device));
    head.lm_head.weight_out_in().into_data().assert_eq(&rows.into_data(), false);
}

#[test]
fn another_vocabulary_keeps_the_known_rows_and_takes_the_others_from_the_target() {
    let (old, target) = (draft(), target());
    let new = DraftModel::Eagle3(old.clone()).with_vocab(VocabMap::new(vec![2, 5, 9, 11], 12), &target).unwrap();
    let (before, after) = (logits(&old), logits(&new));
    // Two positions each: 3 logits before, 4 after.
    for row in 0..2 {
        assert_eq!(after[row * 4 + 1..row * 4 + 3], before[row * 3 + 1..row * 3 + 3]);
    }
    let DraftModel::Eagle3(head) = &new else { panic!("still EAGLE-3") };
    let rows = head.lm_head.weight_out_in().select(0, Tensor::from_ints([0, 3], &Device::flex()));
    let own = target.embed_tokens.weight.val().select(0, Tensor::from_ints([2, 11], &Device::flex()));
    rows.into_data().assert_eq(&own.into_data(), false);
    let dir = tempfile::tempdir().unwrap();
    new.save(dir.path()).unwrap();
    assert_eq!(logits(&DraftModel::open(dir.path(), &target, &Device::flex()).unwrap()), after);
    let shared = sharing(Method::Eagle1, &target).with_vocab(VocabMap::new(vec![2], 12), &target);
    assert!(shared.unwrap_err().to_string().contains("draft_vocab_size"));
}

#[test]
fn what_does_not_fit_the_target_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    saved(dir.path());
    let refused = |target: LlamaConfig, words: &[&str]| {
        let message = refusal(dir.path(), &target);
        words.iter().for_each(|word| assert!(message.contains(word), "{message:?} should mention {word}"));
    };
    refused(LlamaConfig { vocab_size: 13, ..target_config() }, &["config.json", "vocab_size 13", "found 12"]);
    refused(LlamaConfig { hidden_size: 8, ..target_config() }, &["config.json", "hidden_size 8", "found 16"]);
    refused(
        LlamaConfig { num_hidden_layers: 2, ..target_config() },
        &["eagle_aux_hidden_state_layer_ids", "[1, 2, 3]"],
    );
}

#[test]
fn a_missing_map_and_a_foreign_directory_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    saved(dir.path());
    let mut tensors = draft().tensors();
    tensors.retain(|(name, _)| name != "d2t");
    save_safetensors(&dir.path().join("model.safetensors"), &tensors, &[]).unwrap();
    assert!(refusal(dir.path(), &target_config()).contains("d2t"));
    let other = tempfile::tempdir().unwrap();
    target().save(other.path(), burn::tensor::DType::F32).unwrap();
    let message = refusal(other.path(), &target_config());
    assert!(message.contains("EAGLE-3") && message.contains("LlamaForCausalLM"), "{message}");
    assert!(refusal(&dir.path().join("nowhere"), &target_config()).contains("nowhere"));
}

#[test]
fn every_method_comes_back_as_itself() {
    for method in [Method::Eagle1, Method::Hass, Method::Griffin] {
        let dir = tempfile::tempdir().unwrap();
        let target = target();
        let model = sharing(method, &target);
        model.save(dir.path()).unwrap();
        let back = DraftModel::open(dir.path(), &target, &Device::flex()).unwrap();
        assert_eq!(back.published().config(), model.published().config());
        assert_eq!((back.published().config().method, back.taps()), (method, &[4][..]));
        assert_eq!(logits(&back), logits(&model), "{method}");
        // Its matrices are rounded to bf16, to one part in 512.
        let packed = logits(&back.for_inference());
        let largest = logits(&model).iter().fold(0f32, |largest, x| largest.max(x.abs()));
        let worst = packed.iter().zip(logits(&model)).fold(0f32, |worst, (a, b)| worst.max((a - b).abs()));
        assert!(worst > 0.0 && worst < 0.01 * largest, "{method}: {worst} of {largest}");
        let config = std::fs::read_to_string(dir.path().join("config.json")).unwrap();
        let config: serde_json::Value = serde_json::from_str(&config).unwrap();
        assert_eq!((&config["num_hidden_layers"], &config["bias"]), (&1.into(), &true.into()));
    }
}

#[test]
fn parameters_are_counted_without_weights() {
    let count = |draft: &DraftModel| -> usize {
        let tensors = draft.published().tensors();
        let own = tensors.iter().filter(|(name, _)| !matches!(name.as_str(), "embed_tokens.weight" | "d2t" | "t2d"));
        own.map(|(_, data)| data.num_elements()).sum()
    };
    for method in Method::ALL.into_iter().filter(|method| method.shares_head()) {
        let draft = sharing(method, &target());
        assert_eq!(draft.published().config().parameters(), count(&draft) as u64, "{method}");
    }
    let config = DraftConfig::for_target(Method::Vispec, &target().config, target().config.vocab_size).unwrap();
    let config = config.with_num_q(5).unwrap();
    let vispec = DraftModel::ViSpec(ViSpec::init(config.clone(), &target(), &Device::flex()));
    assert_eq!(config.parameters(), count(&vispec) as u64);
    assert_eq!(draft().config.parameters(), count(&DraftModel::Eagle3(draft())) as u64);
}

#[test]
fn without_our_key_the_tensors_tell_the_method() {
    for (method, taken_for) in
        [(Method::Eagle1, Method::Eagle1), (Method::Hass, Method::Eagle1), (Method::Griffin, Method::Griffin)]
    {
        let dir = tempfile::tempdir().unwrap();
        sharing(method, &target()).save(dir.path()).unwrap();
        edit_config(dir.path(), |value| drop(value.as_object_mut().unwrap().remove("sightdraft_method")));
        assert_eq!(DraftConfig::open(dir.path(), &target_config()).unwrap().method, taken_for);
    }
    let dir = tempfile::tempdir().unwrap();
    sharing(Method::Eagle1, &target()).save(dir.path()).unwrap();
    edit_config(dir.path(), |value| value["sightdraft_method"] = "medusa".into());
    let message = refusal(dir.path(), &target_config());
    assert!(message.contains("config.json") && message.contains("medusa") && message.contains("griffin"), "{message}");
}

#[test]
fn a_misshapen_or_missing_tensor_is_named() {
    for (method, name) in [
        (Method::Eagle1, "fc.weight"),
        (Method::Eagle1, "layers.0.post_attention_layernorm.weight"),
        (Method::Griffin, "layers.0.mlp.down_proj.weight"),
        (Method::Griffin, "fc.mlp.up_proj.weight"),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let model = sharing(method, &target());
        model.save(dir.path()).unwrap();
        let file = dir.path().join("model.safetensors");
        let mut tensors = model.published().tensors();
        let place = tensors.iter().position(|(other, _)| other == name).unwrap();
        tensors[place].1 = TensorData::zeros::<f32, _>([3, 5]);
        save_safetensors(&file, &tensors, &[]).unwrap();
        let message = refusal(dir.path(), &target_config());
        assert!(message.contains(name) && message.contains("[3, 5]"), "{message}");
        tensors.remove(place);
        save_safetensors(&file, &tensors, &[]).unwrap();
        assert!(refusal(dir.path(), &target_config()).contains(name));
    }
}

#[test]
fn a_draft_that_speaks_through_the_head_has_its_whole_vocabulary() {
    for method in [Method::Eagle1, Method::Hass, Method::Griffin] {
        let message = DraftConfig::for_target(method, &target_config(), 3).unwrap_err().to_string();
        assert!(message.contains("draft_vocab_size") && message.contains("12"), "{message}");
        // Two layers are enough: it reads the last hidden state alone.
        let shallow = LlamaConfig { num_hidden_layers: 2, ..target_config() };
        assert_eq!(DraftConfig::for_target(method, &shallow, 12).unwrap().taps, [2]);
        let dir = tempfile::tempdir().unwrap();
        sharing(method, &target()).save(dir.path()).unwrap();
        edit_config(dir.path(), |value| value["draft_vocab_size"] = 3.into());
        assert!(refusal(dir.path(), &target_config()).contains("draft_vocab_size 12"));
    }
}
