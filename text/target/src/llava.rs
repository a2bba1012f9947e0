//! LLaVA-1.5: CLIP vision tower, projector and LLaMA, image tokens expanded in place (Liu et al. 2023, "Visual
//! Instruction Tuning"; 2024, "Improved Baselines with Visual Instruction Tuning").

use std::ops::Range;
use std::path::Path;

use burn::prelude::*;
use burn::tensor::DType;
use serde_json::{Value, json};
use sightdraft_core::files::{read_json, write_atomically};
use sightdraft_core::{Checkpoint, Error, Result, save_safetensors};
use sightdraft_vision::{VisionConfig, VisionModel};

use crate::image_block;
use crate::load::load_llama;
use crate::save::torch_name;
use crate::{Llama, LlamaConfig, Prompt, PromptRows, Target};

/// A LLaVA-shaped model.
#[derive(Module, Debug)]
pub struct Llava {
    /// Vision tower and projector.
    pub vision: VisionModel,
    /// Language model.
    pub llama: Llama,
    /// The id that stands for an image in the prompt.
    #[module(skip)]
    pub image_token: u32,
}

/// The geometry of a LLaVA.
#[derive(Debug, Clone, PartialEq)]
pub struct LlavaConfig {
    /// The language model's.
    pub text: LlamaConfig,
    /// Tower's and projector's.
    pub vision: VisionConfig,
    /// The id that stands for an image in the prompt.
    pub image_token: u32,
}

/// The image token of a config that names none, as in Hugging Face's LlavaConfig.
const DEFAULT_IMAGE_TOKEN: u32 = 32000;

/// Language model and head before transformers 4.52 and since.
const NAMES: [(&str, &str); 2] =
    [("language_model.model.", "language_model.lm_head"), ("model.language_model.", "lm_head")];

impl LlavaConfig {
    /// Reads `config.json` of `dir`.
    ///
    /// # Errors
    /// A missing or malformed file, a part that is not LLaVA-1.5's.
    pub fn open(dir: &Path) -> Result<Self> {
        let path = dir.join("config.json");
        let value: Value = read_json(&path)?;
        let text = LlamaConfig::from_hf_json(value.get("text_config").unwrap_or(&json!({})), &path)?;
        let vision = VisionConfig::from_llava(&value, text.hidden_size, &path)?;
        let token = ["image_token_index", "image_token_id"].into_iter().find_map(|key| value.get(key));
        let image_token = match token {
            None => DEFAULT_IMAGE_TOKEN,
            Some(id) => id.as_u64().and_then(|id| u32::try_from(id).ok()).ok_or_else(|| {
                Error::file(&path, "a token id as image_token_index", id.to_string(), "correct config.json")
            })?,
        };
        Ok(Self { text, vision, image_token })
    }

    /// The config as Hugging Face writes it.
    pub fn to_hf_json(&self) -> Value {
        let mut value = self.vision.to_llava();
        value["architectures"] = json!(["LlavaForConditionalGeneration"]);
        value["model_type"] = json!("llava");
        value["image_token_index"] = json!(self.image_token);
        value["tie_word_embeddings"] = json!(self.text.tie_word_embeddings);
        value["text_config"] = self.text.to_hf_json();
        value
    }
}

impl Llava {
    /// A random model, for training from scratch.
    pub fn init(config: &LlavaConfig, device: &Device) -> Self {
        Self {
            vision: VisionModel::init(&config.vision, device),
            llama: Llama::init(&config.text, device),
            image_token: config.image_token,
        }
    }

    /// The form for inference of the language model, see [`Llama::for_inference`].
    pub fn for_inference(self) -> Self {
        Self { llama: self.llama.for_inference(), ..self }
    }

    /// Reads a directory, weights as `dtype` (F32, F16 or BF16); the tensors are named as before or since
    /// transformers 4.52.
    ///
    /// # Errors
    /// A config or weight file that is missing, damaged or does not fit.
    pub fn load(dir: &Path, dtype: DType, device: &Device) -> Result<Self> {
        let config = LlavaConfig::open(dir)?;
        let checkpoint = Checkpoint::open(dir)?.with_dtype(dtype)?;
        let names = NAMES.into_iter().find(|(model, _)| checkpoint.has(&format!("{model}embed_tokens.weight")));
        let Some((model, head)) = names else {
            let expected = format!("{}embed_tokens.weight or {}embed_tokens.weight", NAMES[0].0, NAMES[1].0);
            let mend = "check that this is a LLaVA-1.5 in Hugging Face layout, with all its shards";
            return Err(Error::file(dir, expected, "neither tensor", mend));
        };
        let llama = load_llama(&checkpoint, &config.text, model, head, device)?;
        // The CPU computes half precision through f32 copies, and the tower is small beside the language model.
        let checkpoint = if *device == Device::flex() { checkpoint.with_dtype(DType::F32)? } else { checkpoint };
        Ok(Self {
            vision: VisionModel::load(&checkpoint, &config.vision, device)?,
            llama,
            image_token: config.image_token,
        })
    }

    /// The geometry.
    pub fn config(&self) -> LlavaConfig {
        LlavaConfig {
            text: self.llama.config.clone(),
            vision: self.vision.config.clone(),
            image_token: self.image_token,
        }
    }

    /// Writes `config.json` and `model.safetensors` (as `dtype`, named as before transformers 4.52, which every version
    /// reads) into `dir`, which is made if need be. How images are preprocessed is
    /// [`Preprocessor::save`](sightdraft_vision::Preprocessor::save)'s to write.
    ///
    /// # Errors
    /// What the disk refuses.
    pub fn save(&self, dir: &Path, dtype: DType) -> Result<()> {
        std::fs::create_dir_all(dir).map_err(|source| Error::io("make", dir, source))?;
        let (model, head) = NAMES[0];
        let mut tensors = self.llama.tensors(model, head, dtype);
        tensors.extend(self.vision.tensors().into_iter().map(|(name, data)| (name, data.convert_dtype(dtype))));
        save_safetensors(&dir.join("model.safetensors"), &tensors, &[("format", "pt")])?;
        let mut config = self.config().to_hf_json();
        config["torch_dtype"] = torch_name(dtype).into();
        write_atomically(&dir.join("config.json"), format!("{config:#}\n").as_bytes())
    }

    /// Text embeddings of `ids` `[1, n, H]` with the rows `blocks` taken from `features` `[images, rows, H]` in order.
    fn merge(&self, text: Tensor<3>, blocks: &[Range<usize>], features: &Tensor<3>) -> Tensor<3> {
        let n = text.dims()[1];
        let mut parts = Vec::with_capacity(2 * blocks.len() + 1);
        let mut done = 0;
        for (image, block) in blocks.iter().enumerate() {
            if block.start > done {
                parts.push(text.clone().narrow(1, done, block.start - done));
            }
            parts.push(features.clone().narrow(0, image, 1));
            done = block.end;
        }
        if done < n {
            parts.push(text.narrow(1, done, n - done));
        }
        Tensor::cat(parts, 1)
    }
}

impl Target for Llava {
    fn llama(&self) -> &Llama {
        &self.llama
    }

    fn expand(&self, ids: &[u32], images: usize) -> Result<(Vec<u32>, Vec<Range<usize>>)> {
        image_block::expand(ids, self.image_token, images, self.vision.rows_per_image())
    }

    fn rows(&self, prompt: &Prompt) -> Result<PromptRows> {
        let size = self.vision.config.image_size;
        if let Some(image) = prompt.images.iter().find(|image| image.size != size) {
            return Err(Error::invalid(
                "preprocessed image",
                format!("{size} x {size} pixels (vision_config.image_size)"),
                format!("{0} x {0}", image.size),
                "use the preprocessor_config.json that belongs to the model",
            ));
        }
        let (ids, image_rows) = self.expand(&prompt.ids, prompt.images.len())?;
        // The image token may lie beyond the vocabulary, and its embedding is never used.
        let text: Vec<u32> = ids.iter().map(|id| if *id == self.image_token { 0 } else { *id }).collect();
        self.llama.check_ids(&text)?;
        let mut embeds = self.llama.embed_ids(&text);
        if !image_rows.is_empty() {
            embeds = self.merge(embeds, &image_rows, &self.vision.forward(&prompt.images));
        }
        Ok(PromptRows { ids, embeds, image_rows })
    }
}

#[cfg(test)]
mod tests {
    use burn::tensor::Tolerance;
    use sightdraft_vision::{Family, Pixels};

    use super::*;
    use crate::tiny;

    fn model() -> Llava {
        let vision = VisionConfig {
            family: Family::Clip,
            hidden_size: 8,
            intermediate_size: 8,
            num_hidden_layers: 2,
            num_attention_heads: 2,
            image_size: 28,
            patch_size: 14,
            layer_norm_eps: 1e-5,
            hidden_act: "gelu".into(),
            feature_layer: -2,
            drop_cls: true,
            text_hidden_size: 8,
        };
        let device = Device::flex();
        device.seed(3);
        Llava::init(&LlavaConfig { text: tiny::config(), vision, image_token: 99 }, &device)
    }

    fn image(k: f32) -> Pixels {
        Pixels { size: 28, values: (0..3 * 28 * 28).map(|i| (i as f32 * k).sin()).collect() }
    }

    #[test]
    fn one_token_per_image_and_one_per_row_are_the_same_prompt() {
        let model = model();
        let rows = |ids: &[u32]| model.rows(&Prompt { ids: ids.to_vec(), images: vec![image(0.1), image(0.3)] });
        let short = rows(&[1, 99, 99, 2]).unwrap();
        let long = rows(&[1, 99, 99, 99, 99, 99, 99, 99, 99, 2]).unwrap();
        assert_eq!((short.ids.len(), &short.image_rows[..]), (10, &[1..5, 5..9][..]));
        assert_eq!((&short.ids, &short.image_rows), (&long.ids, &long.image_rows));
        short.embeds.clone().into_data().assert_eq(&long.embeds.into_data(), true);
        let second = model.vision.forward(&[image(0.3)]);
        short
            .embeds
            .narrow(1, 5, 4)
            .into_data()
            .assert_approx_eq::<f32>(&second.into_data(), Tolerance::absolute(1e-5));
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let model = model();
        let refusal = |ids: &[u32], images: Vec<Pixels>| {
            model.rows(&Prompt { ids: ids.to_vec(), images }).expect_err("refused").to_string()
        };
        assert!(refusal(&[1, 99, 99, 99], vec![image(0.1)]).contains("cut"));
        assert!(refusal(&[1, 99], vec![Pixels { size: 14, values: vec![0.0; 588] }]).contains("14 x 14"));
        assert!(refusal(&[1, 99, 16], vec![image(0.1)]).contains("id 16"));
        assert!(refusal(&[1, 99, 1, 1, 1, 1, 1, 1, 1, 1], vec![image(0.1)]).contains("13 tokens"));
        assert!(refusal(&[1, 99], vec![]).contains("no image"));
    }

    #[test]
    fn what_is_saved_loads_under_both_naming_schemes() {
        let model = model();
        let dir = tempfile::tempdir().unwrap();
        model.save(dir.path(), DType::F32).unwrap();
        let prompt = Prompt { ids: vec![1, 99, 2], images: vec![image(0.2)] };
        let expected = model.rows(&prompt).unwrap().embeds.into_data();
        let same = |dir: &Path| {
            let loaded = Llava::load(dir, DType::F32, &Device::flex()).unwrap();
            assert_eq!(loaded.config(), model.config());
            loaded.rows(&prompt).unwrap().embeds.into_data().assert_eq(&expected, true);
        };
        same(dir.path());

        let newer = tempfile::tempdir().unwrap();
        let mut tensors = model.llama.tensors(NAMES[1].0, NAMES[1].1, DType::F32);
        tensors.extend(model.vision.tensors().into_iter().map(|(name, data)| (format!("model.{name}"), data)));
        save_safetensors(&newer.path().join("model.safetensors"), &tensors, &[("format", "pt")]).unwrap();
        std::fs::copy(dir.path().join("config.json"), newer.path().join("config.json")).unwrap();
        same(newer.path());
    }
}
