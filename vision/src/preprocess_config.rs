//! The numbers of preprocessing, and the shapes in which Hugging Face writes them.

use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sightdraft_core::{Error, Result};

/// How an image (after padding, if any) is brought to size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Resize {
    /// The shorter side becomes this; the aspect ratio stays.
    ShortestEdge(usize),
    /// To this width and height, whatever the aspect ratio.
    Exact {
        /// Pixels across.
        width: usize,
        /// Pixels down.
        height: usize,
    },
    /// Not at all.
    Keep,
}

/// Preprocessing numbers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PreprocessConfig {
    /// Side of the square result, cut from the middle.
    pub size: usize,
    /// What happens before that cut.
    pub resize: Resize,
    /// Expand to a square of the mean colour first (original LLaVA) instead of losing what the cut leaves out.
    pub pad: bool,
    /// What bytes are multiplied by.
    pub rescale: f64,
    /// Per-channel mean.
    pub mean: [f32; 3],
    /// Per-channel deviation.
    pub std: [f32; 3],
}

/// CLIP's channel means.
const CLIP_MEAN: [f32; 3] = [0.481_454_66, 0.457_827_5, 0.408_210_73];
/// CLIP's channel deviations.
const CLIP_STD: [f32; 3] = [0.268_629_54, 0.261_302_6, 0.275_777_1];

impl PreprocessConfig {
    /// CLIP's numbers for a square of `size`: shortest edge, then centre crop; with `pad`, a square of the mean
    /// colour first.
    pub fn clip(size: usize, pad: bool) -> Self {
        let resize = Resize::ShortestEdge(size);
        Self { size, resize, pad, rescale: 1.0 / 255.0, mean: CLIP_MEAN, std: CLIP_STD }
    }

    /// Reads `preprocessor_config.json`, or the `image_processor` of `processor_config.json`. An original LLaVA says in
    /// `config.json` (`image_aspect_ratio: "pad"`) that it pads; a Hugging Face one says `do_pad`.
    ///
    /// # Errors
    /// Neither file is there, or one asks for what is not implemented (a filter other than bicubic, a result that is
    /// not square).
    pub fn open(dir: &Path) -> Result<Self> {
        let (path, value) = find(dir)?;
        let raw: Raw = serde_json::from_value(value).map_err(|e| {
            Error::file(
                &path,
                "the keys of a CLIP image processor",
                e.to_string(),
                "compare it with the model's original file",
            )
        })?;
        let mut config = raw.into_config().map_err(|fault| {
            Error::file(
                &path,
                fault.expected,
                fault.found,
                "use the CLIP image processor that the model was trained with",
            )
        })?;
        let model = dir.join("config.json");
        if model.is_file() {
            let model: Value = sightdraft_core::files::read_json(&model)?;
            config.pad |= model["image_aspect_ratio"] == "pad";
        }
        Ok(config)
    }

    /// What to write as `preprocessor_config.json`.
    pub fn to_json(&self) -> Value {
        let mut value = json!({
            "image_processor_type": "CLIPImageProcessor",
            "do_convert_rgb": true,
            "do_resize": self.resize != Resize::Keep,
            "resample": BICUBIC,
            "do_center_crop": true,
            "crop_size": {"height": self.size, "width": self.size},
            "do_rescale": true,
            "rescale_factor": self.rescale,
            "do_normalize": true,
            "image_mean": self.mean.map(decimal),
            "image_std": self.std.map(decimal),
        });
        match self.resize {
            Resize::ShortestEdge(edge) => value["size"] = json!({"shortest_edge": edge}),
            Resize::Exact { width, height } => value["size"] = json!({"height": height, "width": width}),
            Resize::Keep => {}
        }
        if self.pad {
            // Only this class knows the key; CLIP's would ignore it silently.
            value["image_processor_type"] = json!("LlavaImageProcessor");
            value["do_pad"] = json!(true);
        }
        value
    }
}

/// The f64 that prints like `x`: 0.2 stays 0.2, where a plain widening gives 0.20000000298.
pub(crate) fn decimal(x: f32) -> f64 {
    x.to_string().parse().unwrap_or(f64::from(x))
}

/// PIL's number of the only filter that LLaVA-1.5 uses.
const BICUBIC: u32 = 3;

/// The file that describes image preprocessing, and that description.
fn find(dir: &Path) -> Result<(std::path::PathBuf, Value)> {
    let path = dir.join("preprocessor_config.json");
    if path.is_file() {
        let value = sightdraft_core::files::read_json(&path)?;
        return Ok((path, value));
    }
    let newer = dir.join("processor_config.json");
    if newer.is_file() {
        let mut value: Value = sightdraft_core::files::read_json(&newer)?;
        if value["image_processor"].is_object() {
            return Ok((newer, value["image_processor"].take()));
        }
    }
    Err(Error::file(
        path,
        "the image processor's settings (or an image_processor in processor_config.json)",
        "no such file",
        "copy preprocessor_config.json from the model's original directory",
    ))
}

/// The JSON, with the defaults of Hugging Face's CLIPImageProcessor.
#[derive(Debug, Deserialize)]
#[serde(default)]
struct Raw {
    do_resize: bool,
    size: RawSize,
    resample: u32,
    do_center_crop: bool,
    crop_size: Option<RawSize>,
    do_rescale: bool,
    rescale_factor: f64,
    do_normalize: bool,
    image_mean: [f32; 3],
    image_std: [f32; 3],
    do_pad: Option<bool>,
}

impl Default for Raw {
    fn default() -> Self {
        Self {
            do_resize: true,
            size: RawSize::Side(224),
            resample: BICUBIC,
            do_center_crop: true,
            crop_size: None,
            do_rescale: true,
            rescale_factor: 1.0 / 255.0,
            do_normalize: true,
            image_mean: CLIP_MEAN,
            image_std: CLIP_STD,
            do_pad: None,
        }
    }
}

/// The ways to write a size.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(untagged)]
enum RawSize {
    Side(usize),
    Edge { shortest_edge: usize },
    Box { height: usize, width: usize },
}

/// Pixels that no side of a preprocessed image exceeds; a slip of the keyboard would take all memory.
const LARGEST: usize = 1 << 14;

impl RawSize {
    fn sides(self) -> [usize; 2] {
        match self {
            Self::Side(side) | Self::Edge { shortest_edge: side } => [side; 2],
            Self::Box { height, width } => [height, width],
        }
    }
}

/// What does not fit.
struct Fault {
    expected: String,
    found: String,
}

impl Raw {
    fn into_config(self) -> Result<PreprocessConfig, Fault> {
        let fault = |expected: &str, found: String| Err(Fault { expected: expected.into(), found });
        let sides = self.crop_size.into_iter().chain([self.size]).flat_map(RawSize::sides);
        if let Some(side) = sides.into_iter().find(|side| *side > LARGEST) {
            return fault(&format!("size and crop_size of up to {LARGEST} pixels"), side.to_string());
        }
        if self.do_resize && self.resample != BICUBIC {
            return fault("resample 3 (bicubic)", self.resample.to_string());
        }
        if self.image_std.contains(&0.0) {
            return fault("image_std without zeros", format!("{:?}", self.image_std));
        }
        let pad = self.do_pad.unwrap_or(false);
        let resize = match self.size {
            _ if !self.do_resize => Resize::Keep,
            RawSize::Side(edge) | RawSize::Edge { shortest_edge: edge } => Resize::ShortestEdge(edge),
            RawSize::Box { height, width } => Resize::Exact { width, height },
        };
        let size = match (self.do_center_crop, self.crop_size.unwrap_or(self.size)) {
            (true, RawSize::Side(side) | RawSize::Edge { shortest_edge: side }) => side,
            (true, RawSize::Box { height, width }) if height == width => height,
            (true, found) => return fault("a square crop_size", format!("{found:?}")),
            (false, _) => match resize {
                Resize::Exact { width, height } if width == height => width,
                Resize::ShortestEdge(edge) if pad => edge,
                _ => return fault("a square result", format!("do_center_crop false and size {:?}", self.size)),
            },
        };
        if size == 0 || matches!(resize, Resize::ShortestEdge(0)) {
            return fault("sizes above zero", format!("{:?}", self.size));
        }
        if let Resize::Exact { width, height } = resize
            && width * height == 0
        {
            return fault("sizes above zero", format!("{:?}", self.size));
        }
        let (mean, std) = if self.do_normalize { (self.image_mean, self.image_std) } else { ([0.0; 3], [1.0; 3]) };
        let rescale = if self.do_rescale { self.rescale_factor } else { 1.0 };
        Ok(PreprocessConfig { size, resize, pad, rescale, mean, std })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<PreprocessConfig, String> {
        let raw: Raw = serde_json::from_str(text).map_err(|e| e.to_string())?;
        raw.into_config().map_err(|fault| format!("{} / {}", fault.expected, fault.found))
    }

    #[test]
    fn every_way_to_write_a_size() {
        for text in [
            r#"{"size": 336, "crop_size": 336}"#,
            r#"{"size": {"shortest_edge": 336}, "crop_size": {"height": 336, "width": 336}}"#,
            r#"{"size": {"shortest_edge": 336}}"#,
        ] {
            assert_eq!(parse(text).unwrap(), PreprocessConfig::clip(336, false), "{text}");
        }
        let exact = parse(r#"{"size": {"height": 384, "width": 384}, "do_center_crop": false}"#).unwrap();
        assert_eq!((exact.size, exact.resize), (384, Resize::Exact { width: 384, height: 384 }));
        assert!(parse(r#"{"size": 336, "do_pad": true, "do_center_crop": false}"#).unwrap().pad);
    }

    #[test]
    fn what_is_not_implemented_is_refused() {
        for (text, word) in [
            (r#"{"resample": 2}"#, "bicubic"),
            (r#"{"crop_size": {"height": 3, "width": 4}}"#, "square"),
            (r#"{"do_center_crop": false}"#, "square"),
            (r#"{"size": 0}"#, "above zero"),
            (r#"{"image_std": [1, 0, 1]}"#, "image_std"),
        ] {
            let message = parse(text).unwrap_err();
            assert!(message.contains(word), "{text}: {message}");
        }
    }

    #[test]
    fn what_is_written_reads_back() {
        for config in [PreprocessConfig::clip(28, true), PreprocessConfig::clip(336, false)] {
            let dir = tempfile::tempdir().unwrap();
            crate::Preprocessor { config: config.clone() }.save(dir.path()).unwrap();
            assert_eq!(PreprocessConfig::open(dir.path()).unwrap(), config);
        }
    }

    #[test]
    fn newer_and_original_directories() {
        let dir = tempfile::tempdir().unwrap();
        let message = PreprocessConfig::open(dir.path()).unwrap_err().to_string();
        assert!(message.contains("preprocessor_config.json"), "{message}");
        std::fs::write(dir.path().join("processor_config.json"), r#"{"image_processor": {"size": 42}}"#).unwrap();
        assert_eq!(PreprocessConfig::open(dir.path()).unwrap(), PreprocessConfig::clip(42, false));
        std::fs::write(dir.path().join("config.json"), r#"{"image_aspect_ratio": "pad"}"#).unwrap();
        assert_eq!(PreprocessConfig::open(dir.path()).unwrap(), PreprocessConfig::clip(42, true));
    }
}
