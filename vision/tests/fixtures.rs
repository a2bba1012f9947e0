//! Preprocessing, tower and projector against Hugging Face's, for every LLaVA under the fixtures folder.

use std::path::{Path, PathBuf};

use burn::prelude::*;
use safetensors::SafeTensors;
use sightdraft_core::Checkpoint;
use sightdraft_core::files::read_json;
use sightdraft_vision::resize::{Canvas, bicubic};
use sightdraft_vision::{Image, PreprocessConfig, Preprocessor, Resize, VisionConfig, VisionModel};

/// Every fixture directory that has a file of this name.
fn cases(file: &str) -> Vec<PathBuf> {
    let folders = sightdraft_fixtures::entries(&sightdraft_fixtures::root());
    folders.into_iter().filter(|dir| dir.join(file).is_file()).collect()
}

/// The images of a case, by the name that the tensors use.
fn images(dir: &Path) -> Vec<(String, Image)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        if let (Some(name), Some("png" | "jpg")) =
            (name.strip_prefix("img_"), path.extension().and_then(|e| e.to_str()))
        {
            found.push((name.to_owned(), Image::open(&path).unwrap()));
        }
    }
    found
}

fn floats(tensors: &SafeTensors, name: &str) -> Vec<f32> {
    let view = tensors.tensor(name).unwrap();
    view.data().chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect()
}

fn max_diff(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
}

#[test]
fn fixture_images_decode_and_resize_to_the_byte() {
    let mut seen = 0;
    for dir in cases("preprocess.safetensors") {
        let bytes = std::fs::read(dir.join("preprocess.safetensors")).unwrap();
        let tensors = SafeTensors::deserialize(&bytes).unwrap();
        for (name, image) in images(&dir) {
            if let Ok(expected) = tensors.tensor(&format!("rgb_u8.{name}")) {
                assert_eq!(expected.shape(), [image.height, image.width, 3], "{name}");
                assert_eq!(expected.data(), image.rgb, "rgb_u8.{name}");
                seen += 1;
            }
            if let Ok(expected) = tensors.tensor(&format!("resize_u8.{name}")) {
                let (height, width) = (expected.shape()[0], expected.shape()[1]);
                let resized = bicubic(&Canvas::bare(&image), width, height, 0..width, 0..height);
                assert_eq!(expected.data(), resized, "resize_u8.{name}");
                seen += 1;
            }
        }
    }
    assert!(seen > 0, "no case found");
}

#[test]
fn fixture_preprocessing_matches_in_both_conventions() {
    let mut seen = 0;
    for dir in cases("preprocess.safetensors") {
        let bytes = std::fs::read(dir.join("preprocess.safetensors")).unwrap();
        let tensors = SafeTensors::deserialize(&bytes).unwrap();
        let mut preprocessor = Preprocessor::open(&dir).unwrap();
        for (name, image) in images(&dir) {
            for (convention, pad) in [("hf", false), ("pad", true)] {
                let name = format!("{convention}.{name}");
                if tensors.tensor(&name).is_err() {
                    continue;
                }
                preprocessor.config.pad = pad;
                let diff = max_diff(&preprocessor.apply(&image).values, &floats(&tensors, &name));
                println!("{name}: {diff:e}");
                assert!(diff <= 1e-6, "{name}: {diff}");
                seen += 1;
            }
        }
    }
    assert!(seen > 0, "no case found");
}

/// Files named preprocess<size>_<image's first letter>: the same at a real size. They are large, so the repository has none.
#[test]
fn fixture_preprocessing_matches_at_real_sizes() {
    for dir in cases("preprocess.safetensors") {
        for entry in std::fs::read_dir(&dir).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_stem().unwrap().to_str().unwrap();
            let Some((size, letter)) = name.strip_prefix("preprocess").and_then(|rest| rest.split_once('_')) else {
                continue;
            };
            let Ok(size) = size.parse() else { continue };
            let preprocessor = Preprocessor { config: PreprocessConfig::clip(size, false) };
            assert_eq!(preprocessor.config.resize, Resize::ShortestEdge(preprocessor.config.size));
            let (_, image) = images(&dir).into_iter().find(|(name, _)| name.starts_with(letter)).unwrap();
            let bytes = std::fs::read(&path).unwrap();
            let expected = floats(&SafeTensors::deserialize(&bytes).unwrap(), "pixel_values");
            let diff = max_diff(&preprocessor.apply(&image).values, &expected);
            println!("{name}: {diff:e}");
            assert!(diff <= 1e-6, "{name}: {diff}");
        }
    }
}

/// Compares a tensor with the fixture's, if the fixture has it.
fn check<const D: usize>(tensors: &SafeTensors, name: &str, found: Tensor<D>) -> usize {
    let Ok(view) = tensors.tensor(name) else { return 0 };
    assert_eq!(view.shape(), found.dims(), "{name}");
    let diff = max_diff(&found.into_data().try_to_vec::<f32>().unwrap(), &floats(tensors, name));
    println!("{name}: {diff:e}");
    assert!(diff <= 1e-4, "{name}: {diff}");
    1
}

#[test]
fn fixture_tower_and_projector_match() {
    let device = Device::flex();
    let mut seen = 0;
    for dir in cases("preprocessor_config.json") {
        let path = dir.join("config.json");
        let json: serde_json::Value = read_json(&path).unwrap();
        let width = json["text_config"]["hidden_size"].as_u64().unwrap() as usize;
        let config = VisionConfig::from_llava(&json, width, &path).unwrap();
        let model = VisionModel::load(&Checkpoint::open(&dir).unwrap(), &config, &device).unwrap();
        let bytes = std::fs::read(dir.join("io.safetensors")).unwrap();
        let io = SafeTensors::deserialize(&bytes).unwrap();
        let shape: [usize; 4] = io.tensor("pixel_values").unwrap().shape().try_into().unwrap();
        let pixels = Tensor::<4>::from_data(TensorData::new(floats(&io, "pixel_values"), shape), &device);

        let states = model.tower.hidden_states(pixels.clone(), config.num_hidden_layers);
        let last = states[config.num_hidden_layers].clone();
        for (i, state) in states.into_iter().enumerate() {
            seen += check(&io, &format!("vision.hidden_states.{i}"), state);
        }
        seen += check(&io, "vision.last_hidden_state", last.clone());
        seen += check(&io, "vision.pooler_output", model.tower.pool(last));
        seen += check(&io, "vision.selected", model.features(pixels.clone()));
        seen += check(&io, "projected", model.forward_pixels(pixels));
    }
    assert!(seen > 0, "no case found");
}
