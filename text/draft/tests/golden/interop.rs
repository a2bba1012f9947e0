//! Layouts of other programs: what they wrote is read, and what is exported is what they write.

use std::path::{Path, PathBuf};

use burn::prelude::*;
use burn::tensor::DType;
use serde_json::Value;
use sightdraft_core::files::read_json;
use sightdraft_draft::export::{Format, TargetFiles, export, servers};
use sightdraft_draft::{Draft, DraftModel, FeatureRows};
use sightdraft_fixtures::{Fixture, TOLERANCE, root};
use sightdraft_target::Mask;

use crate::target;

/// Exports a draft for the recorded target into `out`.
fn exported(draft: &Path, format: Format, out: &Path) -> Result<PathBuf, String> {
    let target = TargetFiles::open(&root().join("hf_llama_gqa"), "hf_llama_gqa").unwrap();
    export(draft, &target, format, DType::F32, out).map(|()| out.to_owned()).map_err(|error| error.to_string())
}

fn open(dir: &Path) -> DraftModel {
    DraftModel::open(dir, &target(false), &Device::flex()).unwrap_or_else(|error| panic!("{error}"))
}

/// A copy of a recorded draft, its config.json edited.
fn copy(folder: &str, to: &Path, edit: impl FnOnce(&mut Value)) -> PathBuf {
    std::fs::create_dir_all(to).unwrap();
    std::fs::copy(root().join(folder).join("model.safetensors"), to.join("model.safetensors")).unwrap();
    let mut config: Value = read_json(&root().join(folder).join("config.json")).unwrap();
    edit(&mut config);
    std::fs::write(to.join("config.json"), config.to_string()).unwrap();
    to.to_owned()
}

/// Logits of two rows far out, where the rotation depends on its base and scaling, and of a step behind them.
fn logits(draft: &DraftModel) -> Vec<f32> {
    let device = Device::flex();
    let wave = |width: usize, k: f32| -> Tensor<3> {
        let values: Vec<f32> = (0..2 * width).map(|i| (i as f32 * k).sin()).collect();
        Tensor::from_data(TensorData::new(values, [1, 2, width]), &device)
    };
    let rows = FeatureRows {
        features: wave(64 * draft.taps().len(), 0.7),
        embeds: wave(64, 0.3),
        positions: &[vec![300, 301]],
        mask: &Mask::Causal,
        image: &[vec![None, None]],
    };
    let mut state = draft.start();
    let first = draft.extend(&mut state, rows);
    let next = draft.step(&mut state, first.hidden, wave(64, 0.2), &[vec![302, 303]], &Mask::Causal);
    let both = Tensor::cat(vec![draft.logits(first.predict), draft.logits(next.predict)], 1);
    both.into_data().iter::<f32>().collect()
}

fn max_diff(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
}

/// Every value of `expected` is in `found`, at its place; `without` names keys that need not be.
fn assert_holds(found: &Value, expected: &Value, without: &[&str]) {
    for (key, value) in expected.as_object().unwrap().iter().filter(|(key, _)| !without.contains(&key.as_str())) {
        match value {
            Value::Object(_) => assert_holds(&found[key], value, without),
            _ => assert_eq!(found.get(key), Some(value), "{key}"),
        }
    }
}

/// Names, shapes and values are those of `expected`; types too, but for booleans that EAGLE stores as bytes.
fn assert_same_tensors(found: &Path, expected: &Path) {
    let (found, expected) = (Fixture::open(found), Fixture::open(expected));
    assert_eq!(found.names(), expected.names());
    for name in found.names() {
        assert_eq!(found.shape(&name), expected.shape(&name), "{name}");
        assert!(found.u8(&name) == expected.u8(&name), "{name}: the bytes differ");
        let types = (found.dtype(&name), expected.dtype(&name));
        assert!(types.0 == types.1 || types == ("BOOL".into(), "U8".into()), "{name}: {types:?}");
    }
}

#[test]
fn fixture_exports_are_what_the_others_write() {
    let dir = tempfile::tempdir().unwrap();
    let out = |name: &str| dir.path().join(name);
    let config = |dir: &Path| read_json::<Value>(&dir.join("config.json")).unwrap();
    let (draft, interop) = (root().join("eagle3"), root().join("interop"));

    let written = exported(&draft, Format::Speculators, &out("speculators")).unwrap();
    let theirs = interop.join("speculators_eagle3");
    assert_same_tensors(&written.join("model.safetensors"), &theirs.join("model.safetensors"));
    // What transformers fills in by itself.
    let defaults = [
        "transformers_version",
        "attention_dropout",
        "initializer_range",
        "pad_token_id",
        "pretraining_tp",
        "use_cache",
    ];
    assert_holds(&config(&written), &config(&theirs), &defaults);

    for format in [Format::Sglang, Format::Vllm] {
        let written = exported(&draft, format, &out(format.name())).unwrap();
        assert_same_tensors(&written.join("model.safetensors"), &draft.join("model.safetensors"));
        let theirs: Value = read_json(&interop.join("sglang_specforge_config.json")).unwrap();
        let without = if format == Format::Vllm { &["architectures", "pad_token_id"][..] } else { &["pad_token_id"] };
        let config = config(&written);
        assert_holds(&config, &theirs, without);
        assert_eq!(config["norm_before_residual"], false);
        assert_eq!(config["eagle_aux_hidden_state_layer_ids"], serde_json::json!([2, 4, 5]));
        assert_eq!(config["eagle_config"]["eagle_aux_hidden_state_layer_ids"], serde_json::json!([1, 3, 4]));
    }
}

#[test]
fn fixture_export_and_import_give_the_same_logits() {
    let dir = tempfile::tempdir().unwrap();
    let scaled = copy("eagle3", &dir.path().join("scaled"), |config| {
        config["rope_theta"] = 500000.0.into();
        config["rope_scaling"] = serde_json::json!({"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
            "high_freq_factor": 4.0, "original_max_position_embeddings": 64});
    });
    let plain = root().join("eagle3");
    assert_ne!(logits(&open(&plain)), logits(&open(&scaled)), "the rotation shows");
    for (name, draft) in [("plain", plain), ("scaled", scaled)] {
        for format in Format::ALL {
            let out = dir.path().join(format!("{name}-{}", format.name()));
            let back = open(&exported(&draft, format, &out).unwrap());
            assert_eq!(logits(&back), logits(&open(&draft)), "{name} through {format}");
            // A second export says the same as the first.
            let again =
                open(&exported(&out, Format::Sglang, &dir.path().join(format!("again-{name}-{format}"))).unwrap());
            assert_eq!(logits(&again), logits(&open(&draft)), "{name} through {format} twice");
        }
    }
}

#[test]
fn fixture_the_bias_of_a_fusion_moves_into_attention() {
    let dir = tempfile::tempdir().unwrap();
    for folder in ["eagle1", "hass"] {
        let out = exported(&root().join(folder), Format::Vllm, &dir.path().join(folder)).unwrap();
        let (written, config) = (Fixture::open(&out.join("model.safetensors")), out.join("config.json"));
        assert!(!written.has("fc.bias") && written.has("layers.0.self_attn.o_proj.bias"));
        let config: Value = read_json(&config).unwrap();
        assert_eq!(config["architectures"][0], "EagleLlamaForCausalLM");
        assert_eq!((config["attention_bias"].as_bool(), config.get("bias")), (Some(true), None));
        let diff = max_diff(&logits(&open(&out)), &logits(&open(&root().join(folder))));
        println!("{folder}: max |diff| {diff:.2e}");
        assert!(diff <= TOLERANCE, "{folder}: {diff}");
        // The bias is no trifle: without it the draft is another.
        let bias = Fixture::open(&root().join(folder).join("model.safetensors")).f32("fc.bias");
        assert!(bias.iter().any(|value| value.abs() > 1e-3));
    }
}

#[test]
fn fixture_a_directory_of_speculators_unrolls_as_there() {
    let interop = root().join("interop");
    let (device, fixture) = (Device::flex(), Fixture::open(&interop.join("speculators_ttt3.safetensors")));
    let target = target(false);
    let draft = DraftModel::open(&interop.join("speculators_eagle3"), &target, &device).unwrap();
    let ids: Vec<u32> = fixture.i64("input_ids").iter().map(|&id| id as u32).collect();
    let n = ids.len();
    let shifted = |k: usize| target.embed_ids(&[&ids[k..], &vec![0; k]].concat());
    let rows = FeatureRows {
        features: fixture.tensor("hidden_states", &device),
        embeds: shifted(0),
        positions: &[fixture.i64("position_ids").iter().map(|&position| position as usize).collect()],
        mask: &Mask::Causal,
        image: &[vec![None; n]],
    };
    for (step, pass) in draft.unroll(rows, 0, &[shifted(1), shifted(2)]).into_iter().enumerate() {
        let whole = n - step;
        let part = |logits: Tensor<3>| logits.narrow(1, 0, whole).into_data().iter::<f32>().collect::<Vec<f32>>();
        let expected = fixture.tensor(&format!("step{step}.logits"), &device);
        let diff = max_diff(&part(draft.logits(pass.predict)), &part(expected));
        println!("step {step}: max |diff| {diff:.2e}");
        assert!(diff <= TOLERANCE, "step {step}: {diff}");
    }
}

#[test]
fn fixture_what_a_format_cannot_say_is_refused_and_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let refused = |draft: &Path, format: Format, word: &str| {
        let message = exported(draft, format, &out).unwrap_err();
        assert!(message.contains(word), "{message}");
        assert!(
            !out.exists()
                && std::fs::read_dir(dir.path()).unwrap().all(|e| !e
                    .unwrap()
                    .file_name()
                    .to_string_lossy()
                    .starts_with('.'))
        );
    };
    for format in Format::ALL {
        refused(&root().join("griffin"), format, "GRIFFIN");
    }
    refused(&root().join("eagle1"), Format::Sglang, "vLLM alone");
    let normed = copy("eagle3", &dir.path().join("normed"), |config| config["norm_before_residual"] = true.into());
    refused(&normed, Format::Sglang, "norm_before_residual");
    let last = copy("eagle3", &dir.path().join("last"), |config| {
        config["eagle_aux_hidden_state_layer_ids"] = serde_json::json!([2, 4, 8]);
    });
    refused(&last, Format::Vllm, "last output (8)");
    // Found out only when the tensors are read.
    let narrow = copy("eagle3", &dir.path().join("narrow"), |config| config["draft_vocab_size"] = 63.into());
    refused(&narrow, Format::Speculators, "d2t");
    std::fs::create_dir(&out).unwrap();
    std::fs::write(out.join("precious"), "").unwrap();
    assert!(exported(&root().join("eagle3"), Format::Vllm, &out).unwrap_err().contains("not there yet"));
    assert!(out.join("precious").exists());
}

#[test]
fn fixture_parts_that_are_unknown_here_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    for key in ["norm_before_fc", "fc_norm", "norm_output"] {
        let draft = copy("interop/speculators_eagle3", &dir.path().join(key), |config| config[key] = true.into());
        let message = DraftModel::open(&draft, &target(false), &Device::flex()).unwrap_err().to_string();
        assert!(message.contains(key), "{message}");
    }
    let deep = copy("eagle3", &dir.path().join("deep"), |config| config["num_hidden_layers"] = 2.into());
    let message = DraftModel::open(&deep, &target(false), &Device::flex()).unwrap_err().to_string();
    assert!(message.contains("num_hidden_layers 1"), "{message}");
}

/// With attention and MLP silenced, what is left of the layer is its residual.
#[test]
fn fixture_the_residual_is_normed_where_the_config_says_so() {
    let dir = tempfile::tempdir().unwrap();
    for normed in [false, true] {
        let path = copy("eagle3", &dir.path().join(normed.to_string()), |config| {
            config["norm_before_residual"] = normed.into();
        });
        let DraftModel::Eagle3(mut draft) = open(&path) else { panic!("an EAGLE-3 draft") };
        let silence = |layer: &mut sightdraft_target::Projection| {
            *layer = sightdraft_target::Projection::from_weight(layer.plain().weight.val().zeros_like());
        };
        silence(&mut draft.midlayer.self_attn.o_proj);
        silence(&mut draft.midlayer.mlp.down_proj);
        let features = Tensor::<1, Int>::arange(0..192, &Device::flex()).float().cos().reshape([1, 1, 192]);
        let raw = draft.fc.forward(features.clone());
        let expected = if normed { draft.midlayer.hidden_norm.forward(raw) } else { raw };
        let embeds = Tensor::ones([1, 1, 64], &Device::flex());
        let rows = FeatureRows { features, embeds, positions: &[vec![0]], mask: &Mask::Causal, image: &[vec![None]] };
        let pass = draft.extend(&mut draft.start(), rows);
        let diff: f32 = (pass.hidden - expected).abs().max().into_scalar();
        assert!(diff <= 1e-6, "normed {normed}: {diff}");
    }
}

#[test]
fn fixture_servers_say_what_they_load_and_why_not() {
    let dir = tempfile::tempdir().unwrap();
    let verdicts = |path: &Path| {
        let names = Fixture::open(&path.join("model.safetensors")).names();
        servers(path, &names.iter().map(String::as_str).collect::<Vec<_>>()).unwrap()
    };
    let loads = |path: &Path| verdicts(path).iter().map(|verdict| verdict.loads).collect::<Vec<_>>();
    for (format, expected) in
        Format::ALL.into_iter().zip([[true, true, false], [false, true, false], [false, true, true]])
    {
        let out = exported(&root().join("eagle3"), format, &dir.path().join(format.name())).unwrap();
        assert_eq!(loads(&out), expected, "{format}");
    }
    let folded = exported(&root().join("eagle1"), Format::Vllm, &dir.path().join("folded")).unwrap();
    assert_eq!(loads(&folded), [false, true, false]);
    let original = verdicts(&root().join("eagle1"));
    assert!(!original[1].loads && original[1].exportable && original[1].reasons.join(" ").contains("fc.bias"));
    for verdict in verdicts(&root().join("griffin")) {
        assert!(!verdict.loads && !verdict.exportable && verdict.reasons[0].contains("GRIFFIN"));
    }
}
