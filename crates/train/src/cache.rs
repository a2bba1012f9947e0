//! The feature cache: one target pass per conversation in all, kept as f16 safetensors, one file each. A file is written whole
//! or not at all, so filling the cache resumes where it stopped, and runs can share one.

use std::fmt;
use std::fs;
use std::hash::Hash;
use std::path::{Path, PathBuf};

use burn::prelude::*;
use burn::tensor::{DType, TensorData};
use half::f16;
use safetensors::SafeTensors;
use serde::Serialize;
use sightdraft_core::digits::digits;
use sightdraft_core::files::write_atomically;
use sightdraft_core::{Error, Result, save_safetensors};

use crate::align;
use crate::example::Example;
use crate::features::Sequence;

/// What the cached features depend on.
#[derive(Debug, Clone, Hash, Serialize)]
pub struct CacheKey {
    /// Fingerprint of the conversations, in order.
    pub data: String,
    /// The draft's taps.
    pub taps: Vec<usize>,
    /// The target's directory or name, and its precision.
    pub target: String,
}

/// What is still to be made before a cache is full.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Missing {
    /// The conversations, by the numbers that they are filed under.
    pub numbers: Vec<usize>,
    /// What their files will take on the disk.
    pub bytes: u64,
    /// Where.
    pub dir: PathBuf,
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (count, mebibytes) = (self.numbers.len(), self.bytes as f64 / f64::from(1 << 20));
        write!(f, "feature cache: {count} conversations to go, {mebibytes:.1} MiB in {}", self.dir.display())
    }
}

/// Features on disk.
#[derive(Debug, Clone)]
pub struct FeatureCache {
    dir: PathBuf,
    device: Device,
}

impl FeatureCache {
    /// Opens (or begins) the cache of `key` in `dir`, a folder of caches: each has a folder of its own in it, which is named by its
    /// key and holds it as key.json.
    ///
    /// # Errors
    /// A folder that cannot be written to.
    pub fn open(dir: &Path, key: &CacheKey, device: &Device) -> Result<Self> {
        let dir = dir.join(digits(|hasher| key.hash(hasher)));
        let path = dir.join("key.json");
        if !path.exists() {
            write_atomically(&path, &serde_json::to_vec_pretty(key).expect("plain structs serialise"))?;
        }
        Ok(Self { dir, device: device.clone() })
    }

    /// Which of `examples` have no file yet; `taps` and `width` are the columns of the features and of the embeddings.
    pub fn missing<'a>(&self, examples: impl IntoIterator<Item = &'a Example>, taps: usize, width: usize) -> Missing {
        let absent = |(number, _): &(usize, &Example)| !self.path(*number).exists();
        let (numbers, bytes): (Vec<usize>, Vec<u64>) = examples
            .into_iter()
            .enumerate()
            .filter(absent)
            .map(|(number, example)| (number, file_size(example, taps, width)))
            .unzip();
        Missing { numbers, bytes: bytes.iter().sum(), dir: self.dir.clone() }
    }

    /// The features of conversation `number`, made by `run` if they are not there yet.
    ///
    /// # Errors
    /// A damaged file, a full disk, features that f16 cannot hold, or what `run` meets.
    pub fn get_or(&self, number: usize, run: impl FnOnce() -> Result<Sequence>) -> Result<Sequence> {
        let path = self.path(number);
        if path.exists() {
            return self.read(&path);
        }
        let tensors = tensors(run()?);
        check_range(number, &tensors)?;
        save_safetensors(&path, &tensors, &[])?;
        // Read back, so that the first use sees the same rounding as every later one.
        self.read(&path)
    }

    fn path(&self, number: usize) -> PathBuf {
        self.dir.join(format!("{number:06}.safetensors"))
    }

    fn read(&self, path: &Path) -> Result<Sequence> {
        let bytes = fs::read(path).map_err(|e| Error::io("read", path, e))?;
        let damaged = |what: String| Error::file(path, "a whole feature file", what, "remove it; it is made again");
        let file = SafeTensors::deserialize(&bytes).map_err(|e| damaged(e.to_string()))?;
        let view = |name: &str| file.tensor(name).map_err(|e| damaged(e.to_string()));
        let longs = |name: &str| -> Result<Vec<i64>> {
            Ok(view(name)?.data().chunks_exact(8).map(|b| i64::from_le_bytes(b.try_into().expect("8 bytes"))).collect())
        };
        let halves = |name: &str| -> Result<Tensor<2>> {
            let view = view(name)?;
            let &[rows, width] = view.shape() else { return Err(damaged(format!("{name} of another rank"))) };
            let values = view.data().chunks_exact(2).map(|b| f16::from_le_bytes([b[0], b[1]]).to_f32());
            Ok(Tensor::from_data(TensorData::new(values.collect::<Vec<f32>>(), [rows, width]), &self.device))
        };
        Ok(Sequence {
            ids: longs("ids")?.into_iter().map(|id| id as u32).collect(),
            assistant: longs("assistant")?.into_iter().map(|f| f != 0).collect(),
            image: longs("image")?.into_iter().map(|number| usize::try_from(number - 1).ok()).collect(),
            embeds: halves("embeds")?,
            features: halves("features")?,
            hidden: halves("hidden")?,
            argmax: longs("argmax")?.into_iter().map(|id| id as u32).collect(),
        })
    }
}

/// Bytes of [`tensors`], the header of the file apart.
fn file_size(example: &Example, taps: usize, width: usize) -> u64 {
    let (rows, heard) = (example.ids.len(), align::target_rows(&example.assistant).len());
    let (halves, longs) = (rows * (taps + width) + heard * width, 3 * rows + heard);
    (2 * halves + 8 * longs) as u64
}

/// f16 ends at 65504: an infinite feature would only show as a loss that is not a number, much later.
fn check_range(number: usize, tensors: &[(String, TensorData)]) -> Result<()> {
    let beyond = |data: &TensorData| data.dtype() == DType::F16 && data.iter::<f32>().any(|value| !value.is_finite());
    match tensors.iter().find(|(_, data)| beyond(data)) {
        None => Ok(()),
        Some((name, _)) => Err(Error::invalid(
            format!("{name} of conversation {number}"),
            "values that f16 can hold, up to 65504",
            "larger ones",
            "set features = \"online\" in the recipe",
        )),
    }
}

fn tensors(s: Sequence) -> Vec<(String, TensorData)> {
    let longs = |values: Vec<i64>| {
        let count = values.len();
        TensorData::new(values, [count])
    };
    let halves = |t: Tensor<2>| t.cast(DType::F32).into_data().convert::<f16>();
    vec![
        ("ids".into(), longs(s.ids.iter().map(|id| i64::from(*id)).collect())),
        ("assistant".into(), longs(s.assistant.iter().map(|f| i64::from(*f)).collect())),
        ("image".into(), longs(s.image.iter().map(|image| image.map_or(0, |image| image as i64 + 1)).collect())),
        ("argmax".into(), longs(s.argmax.iter().map(|id| i64::from(*id)).collect())),
        ("embeds".into(), halves(s.embeds)),
        ("features".into(), halves(s.features)),
        ("hidden".into(), halves(s.hidden)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_size_announced_is_the_size_written() {
        let dir = tempfile::tempdir().unwrap();
        let device = Device::flex();
        let key = CacheKey { data: "d".into(), taps: vec![0, 1], target: "t".into() };
        let cache = FeatureCache::open(dir.path(), &key, &device).unwrap();
        let example = |rows: usize| Example {
            id: rows.to_string(),
            ids: vec![7; rows],
            assistant: (0..rows).map(|row| row >= 100).collect(),
            images: vec![],
        };
        let examples = [example(300), example(200)];
        let missing = cache.missing(&examples, 64, 32);
        assert_eq!(missing.numbers, [0, 1]);
        let sequence = || Sequence {
            ids: examples[1].ids.clone(),
            assistant: examples[1].assistant.clone(),
            image: vec![None; 200],
            embeds: Tensor::ones([200, 32], &device),
            features: Tensor::ones([200, 64], &device),
            hidden: Tensor::ones([100, 32], &device),
            argmax: vec![3; 100],
        };
        cache.get_or(1, || Ok(sequence())).unwrap();
        assert_eq!(cache.missing(&examples, 64, 32).numbers, [0]);
        let announced = missing.bytes - cache.missing(&examples, 64, 32).bytes;
        let written = fs::metadata(cache.path(1)).unwrap().len();
        assert!((announced..announced + 1000).contains(&written), "{announced} announced, {written} written");
        let huge = || Sequence { features: Tensor::ones([200, 64], &device) * 1e5, ..sequence() };
        let message = cache.get_or(2, || Ok(huge())).unwrap_err().to_string();
        assert!(message.contains("features of conversation 2") && message.contains("online"), "{message}");
        assert!(missing.to_string().starts_with("feature cache: 2 conversations to go, 0.1 MiB in "), "{missing}");
        let other = FeatureCache::open(dir.path(), &CacheKey { taps: vec![0], ..key.clone() }, &device).unwrap();
        assert_eq!(other.missing(&examples, 64, 32).numbers, [0, 1]);
        let again = FeatureCache::open(dir.path(), &key, &device).unwrap();
        assert_eq!(again.missing(&examples, 64, 32).numbers, [0]);
    }
}
