//! Geometry of the vision tower: the vision side of a LLaVA `config.json`, and the total struct it resolves to.

use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sightdraft_core::{Error, Result};

/// Whose form a vision transformer has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Family {
    /// CLIP's: a norm before the layers.
    Clip,
    /// DINOv2's: a bias of the patch embedding, a factor for each channel that a branch adds.
    Dinov2,
}

/// A vision transformer and its projector.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct VisionConfig {
    /// Whose form the tower has.
    pub family: Family,
    /// Width.
    pub hidden_size: usize,
    /// MLP width.
    pub intermediate_size: usize,
    /// Layers.
    pub num_hidden_layers: usize,
    /// Heads.
    pub num_attention_heads: usize,
    /// Side of the square image.
    pub image_size: usize,
    /// Side of a patch.
    pub patch_size: usize,
    /// LayerNorm epsilon.
    pub layer_norm_eps: f64,
    /// `quick_gelu` or `gelu`.
    pub hidden_act: String,
    /// Which hidden state is used (negative counts from the end).
    pub feature_layer: i64,
    /// Drop the CLS row (strategy `default`) or keep it (`full`).
    pub drop_cls: bool,
    /// Width of the language model that the projector feeds.
    pub text_hidden_size: usize,
}

/// No size of a tower is larger; products of a few sizes then fit the machine's integers.
const LARGEST: usize = 1 << 15;

impl VisionConfig {
    /// Resolves the vision keys of a LLaVA `config.json` (`model`), read from `path`; `text_hidden_size` is the width
    /// of its language model.
    ///
    /// # Errors
    /// A tower that is neither CLIP's nor DINOv2's, a feature layer that does not exist, sizes that do not divide.
    pub fn from_llava(model: &Value, text_hidden_size: usize, path: &Path) -> Result<Self> {
        let fault = |expected: &str, found: String| {
            Error::file(
                path,
                expected,
                found,
                "only LLaVA-1.5-shaped models (CLIP or DINOv2 tower, two-layer projector) are supported",
            )
        };
        let raw: RawModel = serde_json::from_value(model.clone())
            .map_err(|e| fault("the vision keys of a LLaVA config", e.to_string()))?;
        let (family, tower) = match raw.vision_config {
            None => (Family::Clip, RawVision::clip_large()),
            Some(value) => read_tower(value).map_err(|(expected, found)| fault(&expected, found))?,
        };
        if raw.projector_hidden_act != "gelu" {
            return Err(fault("projector_hidden_act gelu", raw.projector_hidden_act));
        }
        if !raw.multimodal_projector_bias {
            return Err(fault("multimodal_projector_bias true", "false".into()));
        }
        let feature_layer = match raw.vision_feature_layer {
            OneOrMany::One(layer) => layer,
            OneOrMany::Many(layers) if layers.len() == 1 => layers[0],
            OneOrMany::Many(layers) => return Err(fault("one vision_feature_layer", format!("{layers:?}"))),
        };
        let drop_cls = match raw.vision_feature_select_strategy.as_str() {
            "default" => true,
            "full" => false,
            other => return Err(fault("vision_feature_select_strategy default or full", other.into())),
        };
        let config = Self {
            family,
            hidden_size: tower.hidden_size,
            intermediate_size: tower.intermediate_size,
            num_hidden_layers: tower.num_hidden_layers,
            num_attention_heads: tower.num_attention_heads,
            image_size: tower.image_size,
            patch_size: tower.patch_size,
            layer_norm_eps: tower.layer_norm_eps,
            hidden_act: tower.hidden_act,
            feature_layer,
            drop_cls,
            text_hidden_size,
        };
        config.check().map_err(|(expected, found)| fault(&expected, found))?;
        Ok(config)
    }

    /// The vision keys of a LLaVA `config.json`.
    pub fn to_llava(&self) -> Value {
        let mut tower = json!({
            "hidden_size": self.hidden_size,
            "num_hidden_layers": self.num_hidden_layers,
            "num_attention_heads": self.num_attention_heads,
            "image_size": self.image_size,
            "patch_size": self.patch_size,
            "layer_norm_eps": self.layer_norm_eps,
            "hidden_act": self.hidden_act,
        });
        match self.family {
            Family::Clip => {
                tower["model_type"] = json!("clip_vision_model");
                tower["intermediate_size"] = json!(self.intermediate_size);
            }
            Family::Dinov2 => {
                tower["model_type"] = json!("dinov2");
                tower["mlp_ratio"] = json!(self.intermediate_size / self.hidden_size);
            }
        }
        json!({
            "projector_hidden_act": "gelu",
            "vision_feature_layer": self.feature_layer,
            "vision_feature_select_strategy": if self.drop_cls { "default" } else { "full" },
            "image_seq_length": self.rows_per_image(),
            "vision_config": tower,
        })
    }

    /// Patches along one side; what a patch does not cover at the right and bottom is left out.
    pub fn grid(&self) -> usize {
        self.image_size / self.patch_size
    }

    /// Rows that one image takes in the language model.
    pub fn rows_per_image(&self) -> usize {
        self.grid() * self.grid() + usize::from(!self.drop_cls)
    }

    /// The hidden state that feeds the projector, counted from 0 (after the embeddings).
    pub fn feature_state(&self) -> usize {
        let states = self.num_hidden_layers as i64 + 1;
        let state = if self.feature_layer < 0 { states + self.feature_layer } else { self.feature_layer };
        // `check` keeps it in 0..states; one built by hand out of that range is held at the nearest end.
        state.clamp(0, states - 1) as usize
    }

    /// Expected and found of the first thing that does not fit.
    fn check(&self) -> Result<(), (String, String)> {
        let fault = |expected: &str, found: String| Err((expected.to_owned(), found));
        let sizes = [
            ("hidden_size", self.hidden_size),
            ("intermediate_size", self.intermediate_size),
            ("num_hidden_layers", self.num_hidden_layers),
            ("num_attention_heads", self.num_attention_heads),
            ("image_size", self.image_size),
            ("patch_size", self.patch_size),
        ];
        if let Some((key, size)) = sizes.iter().find(|(_, size)| !(1..=LARGEST).contains(size)) {
            return fault(&format!("a vision {key} of 1 to {LARGEST}"), size.to_string());
        }
        let states = self.num_hidden_layers as i64 + 1;
        if !(-states..states).contains(&self.feature_layer) {
            return fault(
                &format!("vision_feature_layer in {}..{states}", -states),
                format!("{} with {} layers", self.feature_layer, self.num_hidden_layers),
            );
        }
        if !self.hidden_size.is_multiple_of(self.num_attention_heads) {
            return fault(
                "a vision hidden_size that num_attention_heads divides",
                format!("{} and {}", self.hidden_size, self.num_attention_heads),
            );
        }
        if self.image_size < self.patch_size {
            return fault(
                "an image_size of at least one patch",
                format!("image_size {} and patch_size {}", self.image_size, self.patch_size),
            );
        }
        if !["quick_gelu", "gelu"].contains(&self.hidden_act.as_str()) {
            return fault("vision hidden_act quick_gelu or gelu", self.hidden_act.clone());
        }
        Ok(())
    }
}

/// The keys beside the vision config, with Hugging Face's defaults.
#[derive(Debug, Deserialize)]
#[serde(default)]
struct RawModel {
    vision_config: Option<Value>,
    vision_feature_layer: OneOrMany,
    vision_feature_select_strategy: String,
    projector_hidden_act: String,
    multimodal_projector_bias: bool,
}

impl Default for RawModel {
    fn default() -> Self {
        Self {
            vision_config: None,
            vision_feature_layer: OneOrMany::One(-2),
            vision_feature_select_strategy: "default".into(),
            projector_hidden_act: "gelu".into(),
            multimodal_projector_bias: true,
        }
    }
}

/// One layer, or a list of them.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum OneOrMany {
    One(i64),
    Many(Vec<i64>),
}

/// The vision config, with the defaults of CLIPVisionConfig.
#[derive(Debug, Deserialize)]
#[serde(default)]
struct RawVision {
    model_type: String,
    hidden_size: usize,
    intermediate_size: usize,
    num_hidden_layers: usize,
    num_attention_heads: usize,
    image_size: usize,
    patch_size: usize,
    layer_norm_eps: f64,
    hidden_act: String,
}

impl Default for RawVision {
    fn default() -> Self {
        Self {
            model_type: "clip_vision_model".into(),
            hidden_size: 768,
            intermediate_size: 3072,
            num_hidden_layers: 12,
            num_attention_heads: 12,
            image_size: 224,
            patch_size: 32,
            layer_norm_eps: 1e-5,
            hidden_act: "quick_gelu".into(),
        }
    }
}

impl RawVision {
    /// What LlavaConfig takes when a config names no tower: CLIP ViT-L/14 at 336.
    fn clip_large() -> Self {
        Self {
            hidden_size: 1024,
            intermediate_size: 4096,
            num_hidden_layers: 24,
            num_attention_heads: 16,
            image_size: 336,
            patch_size: 14,
            ..Self::default()
        }
    }
}

/// What differs in DINOv2's vision config; its other keys are CLIP's.
#[derive(Debug, Deserialize)]
#[serde(default)]
struct RawDinov2 {
    mlp_ratio: usize,
    layer_norm_eps: f64,
    hidden_act: String,
    use_swiglu_ffn: bool,
    qkv_bias: bool,
}

impl Default for RawDinov2 {
    fn default() -> Self {
        Self { mlp_ratio: 4, layer_norm_eps: 1e-6, hidden_act: "gelu".into(), use_swiglu_ffn: false, qkv_bias: true }
    }
}

/// The vision config of either family.
fn read_tower(value: Value) -> Result<(Family, RawVision), (String, String)> {
    let malformed = |e: serde_json::Error| ("the keys of a vision_config".to_owned(), e.to_string());
    let mut raw: RawVision = serde_json::from_value(value.clone()).map_err(malformed)?;
    match raw.model_type.as_str() {
        "clip_vision_model" => Ok((Family::Clip, raw)),
        "dinov2" => {
            let own: RawDinov2 = serde_json::from_value(value.clone()).map_err(malformed)?;
            if own.use_swiglu_ffn || !own.qkv_bias {
                let found = format!("use_swiglu_ffn {} and qkv_bias {}", own.use_swiglu_ffn, own.qkv_bias);
                return Err(("a DINOv2 with a plain MLP and with biases in attention".into(), found));
            }
            // Releases of transformers disagree about the default, so it must be there.
            if value["patch_size"].is_null() {
                return Err(("patch_size in vision_config".into(), "none".into()));
            }
            raw.intermediate_size = own.mlp_ratio * raw.hidden_size;
            raw.layer_norm_eps = own.layer_norm_eps;
            raw.hidden_act = own.hidden_act;
            Ok((Family::Dinov2, raw))
        }
        other => Err(("vision_config.model_type clip_vision_model or dinov2".into(), other.into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(value: Value) -> Result<VisionConfig> {
        VisionConfig::from_llava(&value, 64, Path::new("config.json"))
    }

    #[test]
    fn defaults_are_clips() {
        let large = parse(json!({})).unwrap();
        assert_eq!((large.rows_per_image(), large.feature_state(), large.hidden_size), (576, 23, 1024));
        let base = parse(json!({"vision_config": {}, "vision_feature_select_strategy": "full"})).unwrap();
        assert_eq!((base.rows_per_image(), base.hidden_size), (50, 768));
    }

    /// A 28 x 28 image of 14-pixel patches: four rows, five with CLS.
    #[test]
    fn image_rows_with_and_without_cls() {
        for (strategy, rows) in [("default", 4), ("full", 5)] {
            let config = parse(json!({
                "vision_feature_select_strategy": strategy,
                "vision_config": {"image_size": 28, "patch_size": 14},
            }));
            assert_eq!(config.unwrap().rows_per_image(), rows);
        }
    }

    #[test]
    fn what_is_written_reads_back() {
        let config =
            parse(json!({"vision_config": {"hidden_size": 24, "num_attention_heads": 4, "image_size": 56}})).unwrap();
        assert_eq!(parse(config.to_llava()).unwrap(), config);
    }

    #[test]
    fn dinov2_has_defaults_of_its_own() {
        let value = json!({"vision_config": {"model_type": "dinov2", "hidden_size": 384, "num_attention_heads": 6,
            "mlp_ratio": 4, "patch_size": 14, "image_size": 112}, "vision_feature_layer": 9});
        let config = parse(value).unwrap();
        assert_eq!((config.family, config.intermediate_size, config.rows_per_image()), (Family::Dinov2, 1536, 64));
        assert_eq!((config.hidden_act.as_str(), config.layer_norm_eps), ("gelu", 1e-6));
        assert_eq!(parse(config.to_llava()).unwrap(), config);
    }

    #[test]
    fn other_towers_and_layers_are_refused() {
        for (value, word) in [
            (json!({"vision_config": {"model_type": "siglip_vision_model"}}), "siglip_vision_model"),
            (json!({"vision_config": {"model_type": "dinov2", "patch_size": 14, "use_swiglu_ffn": true}}), "swiglu"),
            (json!({"vision_config": {"model_type": "dinov2"}}), "patch_size"),
            (json!({"vision_feature_layer": [-2, -5]}), "[-2, -5]"),
            (json!({"vision_feature_layer": -26}), "-26"),
            (json!({"vision_config": {"hidden_act": "relu"}}), "relu"),
            (json!({"vision_config": {"num_attention_heads": 7}}), "768 and 7"),
            (json!({"vision_config": {"image_size": 8}}), "image_size 8"),
            (json!({"projector_hidden_act": "silu"}), "silu"),
        ] {
            let message = parse(value).unwrap_err().to_string();
            assert!(message.contains("config.json") && message.contains(word), "{message}");
        }
    }
}
