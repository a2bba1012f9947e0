//! Every LLaVA case under the fixtures against what the reference implementation computed.

use std::path::{Path, PathBuf};

use burn::prelude::*;
use sightdraft_core::{Checkpoint, save_safetensors};
use sightdraft_target::load::load_llava;
use sightdraft_target::{KvCache, Llava, Mask, Prompt, PromptRows, Target};
use sightdraft_vision::{Image, Pixels, Preprocessor};

const TOLERANCE: f32 = 1e-4;

/// A case: the model and the reference's inputs and outputs.
struct Case {
    dir: PathBuf,
    model: Llava,
    io: Checkpoint,
}

impl Case {
    fn open(dir: &Path) -> Self {
        let model = load_llava(dir, &Device::flex()).expect("the fixture's model loads");
        let io = Checkpoint::open_file(&dir.join("io.safetensors")).expect("the fixture's figures open");
        Self { dir: dir.to_owned(), model, io }
    }

    /// The prompt of `{prefix}input_ids` and `{prefix}pixel_values`.
    fn prompt(&self, prefix: &str) -> Prompt {
        let ids = self.io.integers(&format!("{prefix}input_ids")).expect("integers");
        let name = format!("{prefix}pixel_values");
        let size = self.io.shape(&name).expect("present")[2];
        let values = self.io.floats(&name).expect("floats");
        let images = values.chunks(3 * size * size).map(|image| Pixels { size, values: image.to_vec() });
        Prompt { ids: ids.into_iter().map(|id| id as u32).collect(), images: images.collect() }
    }

    /// Asserts that `found` matches the reference tensor, and prints by how much.
    fn check(&self, name: &str, found: Tensor<3>) {
        let found: Vec<f32> = found.into_data().try_to_vec().expect("f32");
        let expected = self.io.floats(name).expect("floats");
        assert_eq!(found.len(), expected.len(), "{name}");
        let largest = found.iter().zip(&expected).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        println!("{} {name}: max |diff| {largest:.1e}", self.dir.display());
        assert!(largest <= TOLERANCE && found.iter().all(|x| x.is_finite()), "{name}: {largest}");
    }
}

/// All LLaVA cases.
fn cases() -> Vec<Case> {
    let root = sightdraft_fixtures::root();
    let dirs: Vec<PathBuf> = sightdraft_fixtures::entries(&root).into_iter().filter(|d| is_llava(d)).collect();
    assert!(!dirs.is_empty(), "no case under {}", root.display());
    dirs.iter().map(|dir| Case::open(dir)).collect()
}

fn is_llava(dir: &Path) -> bool {
    let Ok(text) = std::fs::read_to_string(dir.join("config.json")) else { return false };
    let config: serde_json::Value = serde_json::from_str(&text).expect("config.json is JSON");
    config["architectures"][0] == "LlavaForConditionalGeneration" && dir.join("io.safetensors").is_file()
}

/// Runs a prompt's rows with the taps asked for; hidden states after the final norm, and the taps.
fn pass(model: &Llava, rows: &PromptRows, cache: &mut KvCache, taps: &[usize]) -> (Tensor<3>, Option<Tensor<3>>) {
    let positions = vec![(0..rows.ids.len()).collect()];
    let pass = model.llama.forward(rows.embeds.clone(), &positions, &Mask::Causal, cache, taps);
    (pass.hidden, pass.taps)
}

#[test]
fn fixture_image_prompt_matches_in_every_hidden_state() {
    for case in cases() {
        let rows = case.model.rows(&case.prompt("")).expect("rows");
        case.check("merged_inputs_embeds", rows.embeds.clone());
        let layers = case.model.llama.config.num_hidden_layers;
        let taps: Vec<usize> = (0..=layers).collect();
        let (hidden, tapped) = pass(&case.model, &rows, &mut case.model.llama.new_cache(), &taps);
        let width = case.model.llama.config.hidden_size;
        for (i, state) in tapped.expect("asked for").split(width, 2).into_iter().enumerate() {
            case.check(&format!("hidden_states.{i}"), state);
        }
        case.check("logits", case.model.llama.logits(hidden));
    }
}

#[test]
fn fixture_two_images_in_one_prompt_match() {
    for case in cases() {
        if !case.io.has("two.logits") {
            continue;
        }
        let rows = case.model.rows(&case.prompt("two.")).expect("rows");
        assert_eq!(rows.image_rows.len(), 2);
        case.check("two.hidden_states.0", rows.embeds.clone());
        let (hidden, _) = pass(&case.model, &rows, &mut case.model.llama.new_cache(), &[]);
        case.check("two.hidden_states.last", hidden.clone());
        case.check("two.logits", case.model.llama.logits(hidden));
    }
}

#[test]
fn fixture_greedy_answer_is_the_same_from_the_image_file_on() {
    for case in cases() {
        if !case.io.has("greedy.sequence") {
            continue;
        }
        let expected = case.io.integers("greedy.sequence").expect("integers");
        let mut prompt = case.prompt("");
        // The reference's pixels came from this image; ours come from the file.
        let file = case.dir.join("img_a_37x53_rgb.png");
        if file.is_file() {
            let preprocessor = Preprocessor::open(&case.dir).expect("settings");
            prompt.images = vec![preprocessor.apply(&Image::open(&file).expect("decodes"))];
        }
        let rows = case.model.rows(&prompt).expect("rows");
        let mut cache = case.model.llama.new_cache();
        let (hidden, _) = pass(&case.model, &rows, &mut cache, &[]);
        let mut found: Vec<i64> = rows.ids.iter().map(|id| i64::from(*id)).collect();
        let mut last = hidden.narrow(1, found.len() - 1, 1);
        while found.len() < expected.len() {
            let next = case.model.llama.logits(last).argmax(2).into_scalar::<i64>();
            let embeds = case.model.llama.embed_ids(&[next as u32]);
            last = case.model.llama.forward(embeds, &[vec![found.len()]], &Mask::Causal, &mut cache, &[]).hidden;
            found.push(next);
        }
        assert_eq!(found, expected);
    }
}

#[test]
fn fixture_prompt_cut_inside_its_image_is_rejected() {
    for case in cases() {
        let mut prompt = case.prompt("");
        let token = case.model.image_token;
        let last = prompt.ids.iter().rposition(|id| *id == token).expect("an image token");
        prompt.ids.truncate(last);
        let message = case.model.rows(&prompt).expect_err("cut").to_string();
        assert!(message.contains("cut inside an image block"), "{message}");
    }
}

#[test]
fn fixture_save_and_load_is_the_same_model() {
    for case in cases() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        case.model.save(dir.path(), burn::tensor::DType::F32).expect("saves");
        let again = load_llava(dir.path(), &Device::flex()).expect("loads again");
        assert_eq!(again.config(), case.model.config());
        let rows = again.rows(&case.prompt("")).expect("rows");
        let (hidden, _) = pass(&again, &rows, &mut again.llama.new_cache(), &[]);
        case.check("logits", again.llama.logits(hidden));
    }
}

/// A tensor's name since transformers 4.52; with `flat`, without the tower's inner `vision_model.` as version 5 may write it.
fn newer(name: &str, flat: bool) -> String {
    let renamed = [
        ("language_model.model.", "model.language_model."),
        ("language_model.lm_head.", "lm_head."),
        ("vision_tower.vision_model.", if flat { "model.vision_tower." } else { "model.vision_tower.vision_model." }),
        ("multi_modal_projector.", "model.multi_modal_projector."),
    ];
    let replace = |(old, new): (&str, &str)| name.strip_prefix(old).map(|rest| format!("{new}{rest}"));
    renamed.into_iter().find_map(replace).unwrap_or_else(|| name.to_owned())
}

#[test]
fn fixture_newer_tensor_names_are_the_same_model() {
    for (case, flat) in cases().into_iter().flat_map(|case| [(case.dir.clone(), false), (case.dir, true)]) {
        let case = Case::open(&case);
        let dir = tempfile::tempdir().expect("a temporary directory");
        case.model.save(dir.path(), burn::tensor::DType::F32).expect("saves under the older names");
        let path = dir.path().join("model.safetensors");
        let tensors: Vec<(String, TensorData)> = {
            let saved = Checkpoint::open_file(&path).expect("opens");
            let renamed = |name: &&str| {
                let data = TensorData::new(saved.floats(name).expect("floats"), saved.shape(name).expect("present"));
                (newer(name, flat), data)
            };
            saved.names().iter().map(renamed).collect()
        };
        let all_new = |name: &str| name.starts_with("model.") || name.starts_with("lm_head.");
        assert!(tensors.iter().all(|(name, _)| all_new(name)), "every tensor is renamed");
        save_safetensors(&path, &tensors, &[]).expect("saves under the newer names");
        let again = load_llava(dir.path(), &Device::flex()).expect("loads the newer names");
        let rows = again.rows(&case.prompt("")).expect("rows");
        let (hidden, _) = pass(&again, &rows, &mut again.llama.new_cache(), &[]);
        case.check("logits", again.llama.logits(hidden));
    }
}
