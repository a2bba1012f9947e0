//! The whole program on tiny random parts.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use burn::nn::{EmbeddingConfig, Initializer};
use burn::tensor::{DType, Device};
use serde_json::{Value, json};
use sightdraft_core::{Message, save_safetensors};
use sightdraft_decode::{Acceptance, Request, Sampling, TreeChoice, TreeShape, generate};
use sightdraft_target::layer::DecoderLayer;
use sightdraft_target::{Llama, LlamaConfig, RopeConfig, ServedTarget};
use sightdraft_vision::{Image, VisionConfig, VisionTower};

use super::*;
use crate::train::{HeldOut, Lessons};

const VOCABULARY: usize = 32;

/// The device has one stream of random numbers: whoever seeds it must be alone.
fn alone() -> MutexGuard<'static, ()> {
    static DEVICE: Mutex<()> = Mutex::new(());
    DEVICE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A DINOv2 that was trained on images of 42 pixels.
fn vision(dir: PathBuf) -> PathBuf {
    std::fs::create_dir_all(&dir).unwrap();
    let tower = json!({"model_type": "dinov2", "hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "mlp_ratio": 2,
        "image_size": 42, "patch_size": 14});
    let config = VisionConfig::from_llava(&json!({"vision_config": tower.clone()}), 16, &dir).unwrap();
    let device = Device::flex();
    device.seed(1);
    let tensors = VisionTower::init(&config, &device).tensors("");
    save_safetensors(&dir.join("model.safetensors"), &tensors, &[("format", "pt")]).unwrap();
    write(&dir.join("config.json"), &tower);
    dir
}

/// A LLaMA whose head is tied, with a tokenizer of whole words and one special token to spare.
fn text(dir: PathBuf) -> PathBuf {
    let config = LlamaConfig {
        hidden_size: 16,
        intermediate_size: 24,
        num_hidden_layers: 2,
        num_attention_heads: 2,
        num_key_value_heads: 1,
        head_dim: 8,
        vocab_size: VOCABULARY,
        max_position_embeddings: 64,
        rms_norm_eps: 1e-5,
        rope: RopeConfig { theta: 1e4, scaling: None },
        tie_word_embeddings: true,
    };
    let device = Device::flex();
    device.seed(2);
    // Wide weights: a random model must look at its context for a picture to tell in what it says.
    let wide = Initializer::Normal { mean: 0.0, std: 0.5 };
    let llama = Llama {
        embed_tokens: EmbeddingConfig::new(VOCABULARY, config.hidden_size).with_initializer(wide).init(&device),
        layers: (0..config.num_hidden_layers).map(|_| DecoderLayer::init(&config, 0.4, &device)).collect(),
        ..Llama::init(&config, &device)
    };
    llama.save(&dir, DType::F32).unwrap();
    let special = ["<unk>", "<s>", "</s>", "<spare>"].map(String::from);
    let words: serde_json::Map<String, Value> =
        special.iter().cloned().chain((4..VOCABULARY).map(|i| format!("w{i}"))).zip((0..).map(Value::from)).collect();
    let added: Vec<Value> = special
        .iter()
        .enumerate()
        .map(|(id, content)| {
            json!({"id": id, "content": content, "special": true, "single_word": false, "lstrip": false,
            "rstrip": false, "normalized": false})
        })
        .collect();
    let model = json!({"type": "WordLevel", "vocab": words, "unk_token": "<unk>"});
    let tokenizer =
        json!({"version": "1.0", "added_tokens": added, "pre_tokenizer": {"type": "WhitespaceSplit"}, "model": model});
    write(&dir.join("tokenizer.json"), &tokenizer);
    let template = "{{ bos_token }}{% for m in messages %} {{ m['content'] }} {% if m['role'] == 'assistant' %}</s>{% endif %}{% endfor %}";
    let config = json!({"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "chat_template": template});
    write(&dir.join("tokenizer_config.json"), &config);
    write(&dir.join("generation_config.json"), &json!({"eos_token_id": 2}));
    dir
}

/// Twenty pictures; the answer is the colour. Two of them are held out as well: they only tell whether pictures are looked at.
fn data(dir: &Path) {
    std::fs::create_dir_all(dir).unwrap();
    let colours = [([220, 20, 20], "w8 w9"), ([20, 20, 220], "w10 w11")];
    let lines: Vec<String> = (0..20)
        .map(|at| {
            let (rgb, word) = colours[at % 2];
            let name = format!("{at}.png");
            image::RgbImage::from_pixel(40, 20, image::Rgb(rgb)).save(dir.join(&name)).unwrap();
            json!({"image": name, "question": "w4 w5", "answer": word, "rationale": word}).to_string()
        })
        .collect();
    std::fs::write(dir.join("train.jsonl"), lines.join("\n")).unwrap();
    std::fs::write(dir.join("val.jsonl"), lines[..2].join("\n")).unwrap();
}

fn write(path: &Path, value: &Value) {
    std::fs::write(path, value.to_string()).unwrap();
}

fn arguments(dir: &Path, steps: u64, batch: u64) -> Arguments {
    data(&dir.join("data"));
    Arguments {
        vision: vision(dir.join("vision")),
        text: text(dir.join("text")),
        data: dir.join("data"),
        out: dir.join("out"),
        image_size: 28,
        feature_layer: 1,
        steps,
        batch,
        learning_rate: 0.05,
        answer_tokens: 160,
        seed: 1,
        every: 2,
        held_out: 2,
    }
}

fn held_out(model: &Llava, arguments: &Arguments) -> HeldOut {
    let preprocessor = parts::preprocessing(&model.vision.config);
    let reader = Reader::open(&arguments.out, preprocessor, 160).unwrap();
    let held_out = reader.read(&arguments.data.join("val.jsonl")).unwrap();
    HeldOut::of(model, &Lessons { reader: &reader, train: &[], held_out: &held_out }).unwrap()
}

#[test]
fn the_projector_learns_to_show_the_picture_and_the_result_is_a_llava() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let mut arguments = arguments(dir.path(), 0, 2);
    let before = held_out(&run(&arguments).unwrap(), &arguments);
    arguments.steps = 60;
    let after = held_out(&run(&arguments).unwrap(), &arguments);
    println!("before: {before}\nafter: {after}");
    assert!(after.right < before.right - 0.3, "before: {before}, after: {after}");
    assert!(after.swapped > after.right + 0.1, "{after}");

    let served = ServedTarget::open(&arguments.out, DType::F32, &Device::flex()).unwrap();
    let image = Image::open(&arguments.data.join("0.png")).unwrap();
    let prompt = served.prompt(&[Message::user("<image>\nw4 w5")], &[image]).unwrap();
    let rows = served.model.rows(&prompt).unwrap();
    assert_eq!(rows.image_rows.len(), 1);
    assert_eq!(rows.image_rows[0], 1..5);
    let request = Request {
        prompt: rows,
        max_new_tokens: 4,
        eos: served.eos.clone(),
        sampling: Sampling::GREEDY,
        tree: TreeChoice::Fixed(TreeShape::default()),
        acceptance: Acceptance::PointMass,
        blind_draft: false,
    };
    let generation = generate(served.model.as_ref(), None, &request, &mut |_| {}).unwrap();
    assert!(!generation.token_ids.is_empty());
}

#[test]
fn a_run_that_was_stopped_ends_where_a_whole_one_does() {
    let _alone = alone();
    let weights = |dir: &Path| std::fs::read(dir.join("out/model.safetensors")).unwrap();
    let (whole, cut) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    run(&arguments(whole.path(), 4, 5)).unwrap();

    let arguments = arguments(cut.path(), 4, 5);
    // The last picture, which only the last step opens, one step behind a checkpoint.
    let last = arguments.data.join("19.png");
    let picture = std::fs::read(&last).unwrap();
    std::fs::write(&last, "").unwrap();
    assert!(run(&arguments).unwrap_err().to_string().contains("19.png"));
    std::fs::write(&last, picture).unwrap();
    run(&arguments).unwrap();
    assert!(weights(whole.path()) == weights(cut.path()));
}

#[test]
fn a_question_without_a_rationale_is_refused_by_file() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let arguments = arguments(dir.path(), 1, 1);
    let line = json!({"image": "0.png", "question": "w4", "answer": "w5"});
    write(&arguments.data.join("train.jsonl"), &line);
    let message = run(&arguments).unwrap_err().to_string();
    assert!(message.contains("train.jsonl") && message.contains("rationale"), "{message}");
}
