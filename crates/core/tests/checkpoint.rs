//! Weight files: what is read back, and what is said about damaged ones.

use std::fs;
use std::path::Path;

use burn::tensor::{DType, Device, Tensor, TensorData};
use half::{bf16, f16};
use sightdraft_core::{Checkpoint, save_safetensors};

fn save(path: &Path, name: &str, data: TensorData) {
    save_safetensors(path, &[(name.to_owned(), data)], &[("format", "pt")]).expect("saves");
}

fn ramp() -> TensorData {
    TensorData::new(vec![1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0], [2, 3])
}

fn numbers<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
    tensor.into_data().convert::<f32>().try_to_vec().expect("f32")
}

/// Two shards and their index in a fresh directory.
fn sharded() -> tempfile::TempDir {
    let dir = tempfile::tempdir().expect("a temporary directory");
    save(&dir.path().join("model-00001-of-00002.safetensors"), "a", ramp());
    save(&dir.path().join("model-00002-of-00002.safetensors"), "b", TensorData::new(vec![7.0f32], [1]));
    let index = r#"{"metadata": {}, "weight_map": {"a": "model-00001-of-00002.safetensors",
        "b": "model-00002-of-00002.safetensors"}}"#;
    fs::write(dir.path().join("model.safetensors.index.json"), index).expect("writes");
    dir
}

/// What opening `dir` says.
fn refusal(dir: &Path) -> String {
    Checkpoint::open(dir).err().expect("refused").to_string()
}

#[test]
fn shards_are_one_checkpoint() {
    let dir = sharded();
    let checkpoint = Checkpoint::open(dir.path()).expect("opens");
    let device = Device::flex();
    assert_eq!(checkpoint.names(), ["a", "b"]);
    assert_eq!(checkpoint.bytes(), 28);
    let a = checkpoint.tensor("a", [2, 3], DType::F32, &device).expect("reads");
    assert_eq!(numbers(a), [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    let transposed = checkpoint.transposed("a", [2, 3], DType::F16, &device).expect("reads");
    assert_eq!(transposed.dtype(), DType::F16);
    assert_eq!(numbers(transposed), [1.0, 4.0, 2.0, 5.0, 3.0, 6.0]);
}

#[test]
fn a_missing_shard_is_named() {
    let dir = sharded();
    fs::remove_file(dir.path().join("model-00002-of-00002.safetensors")).expect("removes");
    let message = refusal(dir.path());
    assert!(message.contains("model-00002-of-00002.safetensors") && message.contains("no such file"), "{message}");
}

#[test]
fn a_truncated_shard_is_named() {
    let dir = sharded();
    let path = dir.path().join("model-00001-of-00002.safetensors");
    let bytes = fs::read(&path).expect("reads");
    for keep in [bytes.len() - 1, 20, 3, 0] {
        fs::write(&path, &bytes[..keep]).expect("writes");
        let message = refusal(dir.path());
        assert!(message.contains("model-00001-of-00002.safetensors"), "{keep}: {message}");
        assert!(message.contains("truncated") && message.contains("again"), "{keep}: {message}");
    }
}

#[test]
fn a_shard_without_a_promised_tensor_is_named() {
    let dir = sharded();
    save(&dir.path().join("model-00002-of-00002.safetensors"), "c", ramp());
    let message = refusal(dir.path());
    assert!(message.contains("model-00002-of-00002.safetensors") && message.contains("tensor b"), "{message}");
}

#[test]
fn an_empty_directory_and_a_wrong_path_are_errors() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    assert!(refusal(dir.path()).contains("model.safetensors"));
    assert!(refusal(&dir.path().join("nowhere")).contains("no such directory"));
}

#[test]
fn a_wrong_shape_and_a_missing_tensor_name_file_and_tensor() {
    let dir = sharded();
    let checkpoint = Checkpoint::open(dir.path()).expect("opens");
    let device = Device::flex();
    let shape = checkpoint.tensor("a", [3, 2], DType::F32, &device).expect_err("another shape").to_string();
    assert!(shape.contains("00001-of-00002") && shape.contains("[3, 2]") && shape.contains("[2, 3]"), "{shape}");
    let missing = checkpoint.tensor("z", [1], DType::F32, &device).expect_err("no such tensor").to_string();
    assert!(missing.contains("tensor z"), "{missing}");
    assert!(checkpoint.integers("a").is_err());
}

#[test]
fn every_float_type_is_converted() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join("model.safetensors");
    let values = [0.5f32, -1.25, 3.0];
    let stored = [
        TensorData::new(values.map(f64::from).to_vec(), [3]),
        TensorData::new(values.to_vec(), [3]),
        TensorData::new(values.map(f16::from_f32).to_vec(), [3]),
        TensorData::new(values.map(bf16::from_f32).to_vec(), [3]),
    ];
    for data in stored {
        save(&path, "x", data);
        let checkpoint = Checkpoint::open(dir.path()).expect("opens");
        for dtype in [DType::F32, DType::F16, DType::BF16] {
            let tensor = checkpoint.tensor("x", [3], dtype, &Device::flex()).expect("reads");
            assert_eq!(tensor.dtype(), dtype);
            assert_eq!(numbers(tensor), values);
        }
    }
    assert!(Checkpoint::open(dir.path()).expect("opens").with_dtype(DType::I64).is_err());
}

#[test]
fn maps_between_vocabularies_round_trip() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join("model.safetensors");
    let tensors = [
        ("d2t".to_owned(), TensorData::new(vec![0i64, 4, 7], [3])),
        ("t2d".to_owned(), TensorData::new(vec![true, false, true], [3])),
    ];
    save_safetensors(&path, &tensors, &[]).expect("saves");
    let checkpoint = Checkpoint::open(dir.path()).expect("opens");
    assert_eq!(checkpoint.integers("d2t").expect("reads"), [0, 4, 7]);
    assert_eq!(checkpoint.integers("t2d").expect("reads"), [1, 0, 1]);
    let left: Vec<_> = fs::read_dir(dir.path()).expect("lists").collect();
    assert_eq!(left.len(), 1, "a temporary file was left behind");
}

#[test]
fn pickled_weights_are_read_and_truncated_ones_named() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join("pytorch_model.bin");
    let whole = include_bytes!("data/tiny.bin");
    fs::write(&path, whole).expect("writes");
    let checkpoint = Checkpoint::open(dir.path()).expect("opens");
    let weight = checkpoint.transposed("weight", [2, 3], DType::F32, &Device::flex()).expect("reads");
    assert_eq!(numbers(weight), [1.0, 4.0, 2.0, 5.0, 3.0, 6.0]);
    assert_eq!(checkpoint.integers("map").expect("reads"), [0, 4, 7]);
    fs::write(&path, &whole[..whole.len() / 2]).expect("writes");
    assert!(refusal(dir.path()).contains("pytorch_model.bin"));
}
