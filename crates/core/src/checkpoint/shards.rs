//! Finding and checking the weight files of a directory.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::path::Path;

use burn::store::pytorch_reader::{self, PytorchReader};
use burn::tensor::DType;
use memmap2::Mmap;
use safetensors::{Dtype, SafeTensorError, SafeTensors};
use serde::Deserialize;

use super::convert::Stored;
use super::{Checkpoint, Entry, Place, WeightFile};
use crate::{Error, Result, files};

const DOWNLOAD: &str = "download or copy the file again";

/// The part of an index file that matters: which shard holds a tensor.
#[derive(Deserialize)]
struct Index {
    weight_map: BTreeMap<String, String>,
}

pub(super) fn open_dir(dir: &Path) -> Result<Checkpoint> {
    for name in ["model.safetensors", "pytorch_model.bin"] {
        let (single, index) = (dir.join(name), dir.join(format!("{name}.index.json")));
        if single.is_file() {
            return open_file(&single);
        }
        if index.is_file() {
            return open_sharded(dir, &index);
        }
    }
    let expected = "model.safetensors or pytorch_model.bin, or the .index.json of one";
    let found = if dir.is_dir() { "none of them" } else { "no such directory" };
    Err(Error::file(dir, expected, found, "name a model directory in the Hugging Face layout"))
}

pub(super) fn open_file(path: &Path) -> Result<Checkpoint> {
    let mut checkpoint = Checkpoint { files: Vec::new(), tensors: BTreeMap::new(), dtype: DType::F32 };
    add(&mut checkpoint, path)?;
    Ok(checkpoint)
}

fn open_sharded(dir: &Path, path: &Path) -> Result<Checkpoint> {
    let index: Index = serde_json::from_slice(&files::read(path)?)
        .map_err(|error| Error::file(path, "an index with a weight_map", error.to_string(), DOWNLOAD))?;
    let mut checkpoint = Checkpoint { files: Vec::new(), tensors: BTreeMap::new(), dtype: DType::F32 };
    for shard in index.weight_map.values().collect::<BTreeSet<_>>() {
        let shard_path = dir.join(shard);
        if !shard_path.is_file() {
            let expected = format!("a shard named in {}", path.file_name().unwrap_or_default().to_string_lossy());
            return Err(Error::file(shard_path, expected, "no such file", DOWNLOAD));
        }
        add(&mut checkpoint, &shard_path)?;
    }
    for (name, shard) in &index.weight_map {
        let held = checkpoint.tensors.get(name).is_some_and(|entry| checkpoint.files[entry.file].path.ends_with(shard));
        if !held {
            return Err(Error::file(dir.join(shard), format!("tensor {name}, as the index says"), "none", DOWNLOAD));
        }
    }
    Ok(checkpoint)
}

fn add(checkpoint: &mut Checkpoint, path: &Path) -> Result<()> {
    match path.extension().is_some_and(|extension| extension == "safetensors") {
        true => add_safetensors(checkpoint, path),
        false => add_pickle(checkpoint, path),
    }
}

fn add_safetensors(checkpoint: &mut Checkpoint, path: &Path) -> Result<()> {
    let file = File::open(path).map_err(|source| Error::io("open", path, source))?;
    // SAFETY: weight files are read-only inputs; like every mapped file, they must not be shortened meanwhile.
    let map = unsafe { Mmap::map(&file) }.map_err(|source| Error::io("map", path, source))?;
    let (header, metadata) = SafeTensors::read_metadata(&map).map_err(|error| damaged(path, map.len(), &error))?;
    let base = header + size_of::<u64>();
    let number = checkpoint.files.len();
    for (name, info) in metadata.tensors() {
        let stored = stored_safetensors(info.dtype).ok_or_else(|| {
            let found = format!("tensor {name} of type {:?}", info.dtype);
            Error::file(path, "floats, integers or booleans", found, "save the checkpoint unquantised")
        })?;
        let (start, end) = info.data_offsets;
        let place = Place::Mapped { start: base + start, end: base + end };
        checkpoint.tensors.insert(name, Entry { file: number, stored, shape: info.shape.clone(), place });
    }
    checkpoint.files.push(WeightFile { path: path.to_owned(), map: Some(map) });
    Ok(())
}

/// A header that does not fit the file: almost always a download that broke off.
fn damaged(path: &Path, len: usize, error: &SafeTensorError) -> Error {
    let found = match error {
        SafeTensorError::MetadataIncompleteBuffer
        | SafeTensorError::HeaderTooSmall
        | SafeTensorError::InvalidHeaderLength => format!("a truncated or damaged one of {len} bytes"),
        other => other.to_string(),
    };
    Error::file(path, "a whole safetensors file", found, DOWNLOAD)
}

fn add_pickle(checkpoint: &mut Checkpoint, path: &Path) -> Result<()> {
    let reader = PytorchReader::new(path)
        .map_err(|error| Error::file(path, "a whole PyTorch weight file", error.to_string(), DOWNLOAD))?;
    let number = checkpoint.files.len();
    for (name, tensor) in reader.into_tensors() {
        let (stored, shape) = (stored_pickle(tensor.dtype()), tensor.shape().to_vec());
        let place = Place::Pickled(Box::new(tensor));
        checkpoint.tensors.insert(name, Entry { file: number, stored, shape, place });
    }
    checkpoint.files.push(WeightFile { path: path.to_owned(), map: None });
    Ok(())
}

fn stored_safetensors(dtype: Dtype) -> Option<Stored> {
    Some(match dtype {
        Dtype::F64 => Stored::F64,
        Dtype::F32 => Stored::F32,
        Dtype::F16 => Stored::F16,
        Dtype::BF16 => Stored::Bf16,
        Dtype::I64 => Stored::I64,
        Dtype::I32 => Stored::I32,
        Dtype::I16 => Stored::I16,
        Dtype::I8 => Stored::I8,
        Dtype::U64 => Stored::U64,
        Dtype::U32 => Stored::U32,
        Dtype::U16 => Stored::U16,
        Dtype::U8 => Stored::U8,
        Dtype::BOOL => Stored::Bool,
        _ => return None,
    })
}

fn stored_pickle(dtype: pytorch_reader::DType) -> Stored {
    use pytorch_reader::DType as Pickled;
    match dtype {
        Pickled::F64 => Stored::F64,
        Pickled::F32 => Stored::F32,
        Pickled::F16 => Stored::F16,
        Pickled::BF16 => Stored::Bf16,
        Pickled::I64 => Stored::I64,
        Pickled::I32 => Stored::I32,
        Pickled::I16 => Stored::I16,
        Pickled::I8 => Stored::I8,
        Pickled::U64 => Stored::U64,
        Pickled::U32 => Stored::U32,
        Pickled::U16 => Stored::U16,
        Pickled::U8 => Stored::U8,
        Pickled::Bool => Stored::Bool,
    }
}
