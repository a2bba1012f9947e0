//! Writing safetensors so that a reader never sees half a file.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fs;
use std::path::Path;

use burn::tensor::{BoolStore, DType, TensorData};
use safetensors::{Dtype, SafeTensorError, View};

use crate::{Error, Result};

/// Writes `tensors` (floats, I64 and other integers, booleans) and string `metadata` to a temporary name beside `path`,
/// then renames it.
///
/// # Errors
/// A type that safetensors has no name for, or what the disk refuses.
pub fn save_safetensors(path: &Path, tensors: &[(String, TensorData)], metadata: &[(&str, &str)]) -> Result<()> {
    let views: Vec<(&str, Saved)> =
        tensors.iter().map(|(name, data)| Ok((name.as_str(), Saved::new(name, data)?))).collect::<Result<_>>()?;
    let metadata: HashMap<String, String> =
        metadata.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let temporary = path.with_file_name(format!(".{name}.{}.tmp", std::process::id()));
    let written = write(&temporary, views, metadata).and_then(|()| fs::rename(&temporary, path));
    written.map_err(|source| {
        // The temporary file may not exist; the first failure is the one to report.
        let _ = fs::remove_file(&temporary);
        Error::io("write", path, source)
    })
}

fn write(path: &Path, views: Vec<(&str, Saved)>, metadata: HashMap<String, String>) -> std::io::Result<()> {
    safetensors::serialize_to_file(views, Some(metadata), path).map_err(|error| match error {
        SafeTensorError::IoError(source) => source,
        other => std::io::Error::other(other),
    })?;
    fs::File::open(path)?.sync_all()
}

/// A tensor as safetensors wants to see it.
struct Saved<'a> {
    data: &'a TensorData,
    dtype: Dtype,
}

impl<'a> Saved<'a> {
    fn new(name: &str, data: &'a TensorData) -> Result<Self> {
        let dtype = match data.dtype() {
            DType::F64 => Dtype::F64,
            DType::F32 | DType::Flex32 => Dtype::F32,
            DType::F16 => Dtype::F16,
            DType::BF16 => Dtype::BF16,
            DType::I64 => Dtype::I64,
            DType::I32 => Dtype::I32,
            DType::U8 => Dtype::U8,
            DType::Bool(BoolStore::Native | BoolStore::U8) => Dtype::BOOL,
            other => {
                let what = format!("tensor {name}");
                return Err(Error::invalid(
                    what,
                    "floats, I64, I32, U8 or booleans",
                    format!("{other:?}"),
                    "convert it first",
                ));
            }
        };
        Ok(Self { data, dtype })
    }
}

impl View for Saved<'_> {
    fn dtype(&self) -> Dtype {
        self.dtype
    }

    fn shape(&self) -> &[usize] {
        self.data.shape().as_slice()
    }

    fn data(&self) -> Cow<'_, [u8]> {
        Cow::Borrowed(self.data.as_bytes())
    }

    fn data_len(&self) -> usize {
        self.data.as_bytes().len()
    }
}
