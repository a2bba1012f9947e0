//! Tiny models on disk, and the binary run on them.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use burn::tensor::{DType, Device};
use sightdraft_draft::{DraftConfig, DraftModel, Eagle3, Method, VocabMap};
use sightdraft_target::llava::LlavaConfig;
use sightdraft_target::{Llama, LlamaConfig, Llava, RopeConfig};

pub const VOCABULARY: usize = 64;

/// A four-layer LLaMA of 16 numbers a row.
pub fn llama_config() -> LlamaConfig {
    LlamaConfig {
        hidden_size: 16,
        intermediate_size: 24,
        num_hidden_layers: 4,
        num_attention_heads: 2,
        num_key_value_heads: 1,
        head_dim: 8,
        vocab_size: VOCABULARY,
        max_position_embeddings: 96,
        rms_norm_eps: 1e-5,
        rope: RopeConfig { theta: 10_000.0, scaling: None },
        tie_word_embeddings: false,
    }
}

/// A text-only target.
pub fn text_target(dir: &Path) -> PathBuf {
    std::fs::create_dir_all(dir).unwrap();
    let device = Device::flex();
    device.seed(1);
    Llama::init(&llama_config(), &device).save(dir, DType::F32).unwrap();
    words(dir);
    dir.into()
}

/// A target that sees 28 x 28 pixels as four rows.
pub fn image_target(dir: &Path) -> PathBuf {
    std::fs::create_dir_all(dir).unwrap();
    let json = serde_json::json!({
        "vision_config": {"hidden_size": 8, "intermediate_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2,
            "image_size": 28, "patch_size": 14},
    });
    let vision = sightdraft_vision::VisionConfig::from_llava(&json, 16, dir).unwrap();
    let config = LlavaConfig { text: llama_config(), vision, image_token: 3 };
    let device = Device::flex();
    device.seed(2);
    Llava::init(&config, &device).save(dir, DType::F32).unwrap();
    let preprocessor = serde_json::json!({"size": {"shortest_edge": 28}, "crop_size": {"height": 28, "width": 28},
        "image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5]});
    std::fs::write(dir.join("preprocessor_config.json"), preprocessor.to_string()).unwrap();
    words(dir);
    dir.into()
}

/// A random EAGLE-3 draft for [`llama_config`] with `vocabulary` target ids.
pub fn draft(dir: &Path, vocabulary: usize) -> PathBuf {
    let device = Device::flex();
    device.seed(3);
    let config = LlamaConfig { vocab_size: vocabulary, ..llama_config() };
    let target = Llama::init(&config, &device);
    let draft = DraftConfig::for_target(Method::Eagle3, &config, vocabulary).unwrap();
    let head = Eagle3::init(draft, VocabMap::identity(vocabulary), &target, &device);
    std::fs::create_dir_all(dir).unwrap();
    DraftModel::Eagle3(head).save(dir).unwrap();
    dir.into()
}

/// A tokenizer of whole words, a chat template and stop ids.
fn words(dir: &Path) {
    let special = ["<unk>", "<s>", "</s>", "<image>"];
    let mut vocabulary = serde_json::Map::new();
    for (id, token) in special.iter().map(|s| s.to_string()).chain((4..VOCABULARY).map(|i| format!("w{i}"))).enumerate()
    {
        vocabulary.insert(token, id.into());
    }
    let added: Vec<_> = special
        .iter()
        .enumerate()
        .map(|(id, token)| {
            serde_json::json!({"id": id, "content": token, "special": true, "single_word": false, "lstrip": false,
                "rstrip": false, "normalized": false})
        })
        .collect();
    let tokenizer = serde_json::json!({"version": "1.0", "added_tokens": added, "pre_tokenizer": {"type": "WhitespaceSplit"},
        "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": "<unk>"}});
    std::fs::write(dir.join("tokenizer.json"), tokenizer.to_string()).unwrap();
    let template = "{{ bos_token }}{% for m in messages %} {{ m['content'] }} {% if m['role'] == 'assistant' %}</s>{% endif %}{% endfor %}";
    let config = serde_json::json!({"bos_token": "<s>", "eos_token": "</s>", "chat_template": template});
    std::fs::write(dir.join("tokenizer_config.json"), config.to_string()).unwrap();
    std::fs::write(dir.join("generation_config.json"), r#"{"eos_token_id": 2}"#).unwrap();
}

/// A red PNG of `side` pixels.
pub fn picture(path: &Path, side: u32) -> PathBuf {
    image::RgbImage::from_pixel(side, side, image::Rgb([200, 30, 30])).save(path).unwrap();
    path.into()
}

/// Runs the binary on the CPU, away from any hub.
pub fn sightdraft(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_sightdraft"))
        .args(arguments)
        .env("HF_HUB_OFFLINE", "1")
        .env("RUST_BACKTRACE", "0")
        // Measured costs stay with the tests.
        .env("XDG_CACHE_HOME", env!("CARGO_TARGET_TMPDIR"))
        .output()
        .unwrap()
}

/// The one JSON object on stdout of a run that must succeed.
pub fn json(arguments: &[&str]) -> serde_json::Value {
    let output = sightdraft(arguments);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The sentence of a run that must fail: exit code 2, one line after what was said about the device, no panic.
pub fn refusal(arguments: &[&str]) -> String {
    let output = sightdraft(arguments);
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(output.stdout.is_empty(), "nothing is printed on stdout");
    assert!(!stderr.contains("panicked") && !stderr.contains("a fault in sightdraft"), "{stderr}");
    let errors: Vec<&str> = stderr.lines().filter(|line| line.starts_with("error: ")).collect();
    assert_eq!(errors.len(), 1, "{stderr}");
    assert_eq!(stderr.lines().last(), errors.first().copied(), "the error is the last line: {stderr}");
    errors[0].to_string()
}

/// A path as the command line takes it.
pub fn arg(path: &Path) -> &str {
    path.to_str().unwrap()
}
