//! The feature cache: one target pass per conversation in all, kept as f16 safetensors, one file each. A file is written whole
//! or not at all, so filling the cache resumes where it stopped.

use std::fs;
use std::path::{Path, PathBuf};

use burn::prelude::*;
use burn::tensor::{DType, TensorData};
use half::f16;
use safetensors::SafeTensors;
use serde::{Deserialize, Serialize};
use sightdraft_core::files::{read_json, write_atomically};
use sightdraft_core::{Error, Result, save_safetensors};

use crate::features::Sequence;

/// What the cached features depend on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CacheKey {
    /// Fingerprint of the conversations, in order.
    pub data: String,
    /// The draft's taps.
    pub taps: Vec<usize>,
    /// The target's directory or name.
    pub target: String,
}

/// Features on disk.
#[derive(Debug, Clone)]
pub struct FeatureCache {
    dir: PathBuf,
    device: Device,
}

impl FeatureCache {
    /// Opens (or begins) the cache in `dir`.
    ///
    /// # Errors
    /// A cache of other data, taps or target in that place.
    pub fn open(dir: &Path, key: &CacheKey, device: &Device) -> Result<Self> {
        let path = dir.join("key.json");
        if path.exists() {
            let found: CacheKey = read_json(&path)?;
            if found != *key {
                let (expected, found) = (format!("features of {key:?}"), format!("{found:?}"));
                return Err(Error::file(dir, expected, found, "remove the directory or train in another"));
            }
        } else {
            write_atomically(&path, &serde_json::to_vec_pretty(key).expect("plain structs serialise"))?;
        }
        Ok(Self { dir: dir.to_owned(), device: device.clone() })
    }

    /// The features of conversation `number`, made by `run` if they are not there yet.
    ///
    /// # Errors
    /// A damaged file, a full disk, or what `run` meets.
    pub fn get_or(&self, number: usize, run: impl FnOnce() -> Result<Sequence>) -> Result<Sequence> {
        let path = self.dir.join(format!("{number:06}.safetensors"));
        if path.exists() {
            return self.read(&path);
        }
        save_safetensors(&path, &tensors(run()?), &[])?;
        // Read back, so that the first use sees the same rounding as every later one.
        self.read(&path)
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
            image: longs("image")?.into_iter().map(|f| f != 0).collect(),
            embeds: halves("embeds")?,
            features: halves("features")?,
            hidden: halves("hidden")?,
            argmax: longs("argmax")?.into_iter().map(|id| id as u32).collect(),
        })
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
        ("image".into(), longs(s.image.iter().map(|f| i64::from(*f)).collect())),
        ("argmax".into(), longs(s.argmax.iter().map(|id| i64::from(*id)).collect())),
        ("embeds".into(), halves(s.embeds)),
        ("features".into(), halves(s.features)),
        ("hidden".into(), halves(s.hidden)),
    ]
}
