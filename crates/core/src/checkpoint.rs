//! Weights of a Hugging Face directory: single or sharded safetensors, or `pytorch_model.bin`, read tensor by tensor.

mod convert;
mod save;
mod shards;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use burn::store::pytorch_reader;
use burn::tensor::{DType, Device, Tensor};
use memmap2::Mmap;

use crate::{Error, Result};
use convert::{Stored, decode, decode_transposed, floats, integers};
pub use save::save_safetensors;

/// An opened set of weight files. Safetensors shards are memory-mapped; a tensor is copied only when asked for, and the
/// mapped pages are given back after each, so peak memory is the model plus one tensor (for `.bin` files, two).
pub struct Checkpoint {
    files: Vec<WeightFile>,
    tensors: BTreeMap<String, Entry>,
    dtype: DType,
}

/// One shard; `map` is None for pickles, which are read by position.
struct WeightFile {
    path: PathBuf,
    map: Option<Mmap>,
}

/// Where a tensor lies and what it is.
struct Entry {
    file: usize,
    stored: Stored,
    shape: Vec<usize>,
    place: Place,
}

enum Place {
    /// Byte range of the mapped file.
    Mapped { start: usize, end: usize },
    /// A tensor of a pickle.
    Pickled(Box<pytorch_reader::Tensor>),
}

impl Checkpoint {
    /// Opens `model.safetensors(.index.json)` or `pytorch_model.bin(.index.json)` in `dir`. Checks that every shard is
    /// there and whole.
    ///
    /// # Errors
    /// No weights in `dir`, a missing or truncated shard, a shard without a tensor that the index promises.
    pub fn open(dir: &Path) -> Result<Self> {
        shards::open_dir(dir)
    }

    /// Opens a single `.safetensors` or `.bin`/`.pt`/`.pth` file.
    ///
    /// # Errors
    /// As [`Checkpoint::open`].
    pub fn open_file(path: &Path) -> Result<Self> {
        shards::open_file(path)
    }

    /// The same weights, to be handed out as `dtype` by the loaders that ask [`Checkpoint::dtype`].
    ///
    /// # Errors
    /// A dtype that is not F32, F16 or BF16.
    pub fn with_dtype(self, dtype: DType) -> Result<Self> {
        match dtype {
            DType::F32 | DType::F16 | DType::BF16 => Ok(Self { dtype, ..self }),
            other => Err(Error::invalid("dtype", "F32, F16 or BF16", format!("{other:?}"), "choose one of the three")),
        }
    }

    /// What loaders convert to: F32 unless [`Checkpoint::with_dtype`] said otherwise.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// All tensor names, sorted.
    pub fn names(&self) -> Vec<&str> {
        self.tensors.keys().map(String::as_str).collect()
    }

    /// Whether a tensor of that name exists.
    pub fn has(&self, name: &str) -> bool {
        self.tensors.contains_key(name)
    }

    /// The shape of a tensor, if it exists.
    pub fn shape(&self, name: &str) -> Option<Vec<usize>> {
        self.tensors.get(name).map(|entry| entry.shape.clone())
    }

    /// The file that holds a tensor, for messages; the first file if there is none of that name.
    pub fn path(&self, name: &str) -> &Path {
        &self.files[self.tensors.get(name).map_or(0, |entry| entry.file)].path
    }

    /// A float tensor, converted to `dtype` on `device`; an error names file, tensor, expected and found shape.
    ///
    /// # Errors
    /// A missing tensor, another shape, a type that is not a float (or a `dtype` that is not F32, F16 or BF16).
    pub fn tensor<const D: usize>(
        &self,
        name: &str,
        shape: [usize; D],
        dtype: DType,
        device: &Device,
    ) -> Result<Tensor<D>> {
        let entry = self.expect(name, &shape)?;
        let data = self.read(name, entry, |bytes| decode(bytes, entry.stored, &entry.shape, dtype))?;
        Ok(Tensor::from_data(data, (device, dtype)))
    }

    /// A float matrix `[out, in]`, handed out as contiguous `[in, out]`.
    ///
    /// # Errors
    /// As [`Checkpoint::tensor`].
    pub fn transposed(&self, name: &str, shape: [usize; 2], dtype: DType, device: &Device) -> Result<Tensor<2>> {
        let entry = self.expect(name, &shape)?;
        let data = self.read(name, entry, |bytes| decode_transposed(bytes, entry.stored, shape, dtype))?;
        Ok(Tensor::from_data(data, (device, dtype)))
    }

    /// A float tensor of any shape (a scalar included) as a flat vector, row-major.
    ///
    /// # Errors
    /// A missing tensor, or one that is not of floats.
    pub fn floats(&self, name: &str) -> Result<Vec<f32>> {
        let entry = self.find(name)?;
        self.read(name, entry, |bytes| floats(bytes, entry.stored))
    }

    /// An integer or boolean tensor as a vector (d2t, t2d).
    ///
    /// # Errors
    /// A missing tensor, or one of floats.
    pub fn integers(&self, name: &str) -> Result<Vec<i64>> {
        let entry = self.find(name)?;
        self.read(name, entry, |bytes| integers(bytes, entry.stored))
    }

    /// Bytes of all tensors as stored.
    pub fn bytes(&self) -> u64 {
        self.tensors.values().map(|entry| (entry.elements() * entry.stored.size()) as u64).sum()
    }

    fn find(&self, name: &str) -> Result<&Entry> {
        self.tensors.get(name).ok_or_else(|| {
            let found = format!("none of that name among {} tensors", self.tensors.len());
            Error::file(
                self.path(name),
                format!("a tensor {name}"),
                found,
                "check that config.json and weights belong together",
            )
        })
    }

    fn expect(&self, name: &str, shape: &[usize]) -> Result<&Entry> {
        let entry = self.find(name)?;
        if entry.shape == shape {
            return Ok(entry);
        }
        let (expected, found) = (format!("tensor {name} of shape {shape:?}"), format!("shape {:?}", entry.shape));
        Err(Error::file(self.path(name), expected, found, "check that config.json and weights belong together"))
    }

    /// Hands the tensor's bytes to `convert` and gives the mapped pages back to the system afterwards.
    fn read<T>(&self, name: &str, entry: &Entry, convert: impl FnOnce(&[u8]) -> Result<T, String>) -> Result<T> {
        let file = &self.files[entry.file];
        let converted = match (&entry.place, &file.map) {
            (Place::Mapped { start, end }, Some(map)) => {
                let converted = convert(&map[*start..*end]);
                release(map, *start, *end);
                converted
            }
            (Place::Mapped { .. }, None) => Err("a file that is no longer mapped".to_owned()),
            (Place::Pickled(tensor), _) => {
                convert(&tensor.read().map_err(|source| Error::io("read", &file.path, source))?)
            }
        };
        converted.map_err(|found| {
            let expected = format!("tensor {name} of a type that can be converted");
            Error::file(&file.path, expected, found, "save the checkpoint as F32, F16 or BF16")
        })
    }
}

impl Entry {
    fn elements(&self) -> usize {
        self.shape.iter().product()
    }
}

/// Drops the pages of a tensor that was copied: a mapped file counts as resident memory otherwise.
fn release(map: &Mmap, start: usize, end: usize) {
    #[cfg(unix)]
    // SAFETY: the mapping is read-only and file-backed, so dropped pages read back the same bytes.
    // A refusal only means that the pages stay resident.
    let _ = unsafe { map.unchecked_advise_range(memmap2::UncheckedAdvice::DontNeed, start, end - start) };
    #[cfg(not(unix))]
    let _ = (map, start, end);
}
