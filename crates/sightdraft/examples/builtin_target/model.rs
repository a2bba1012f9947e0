//! The geometry of the built-in target, and its fresh start.

use burn::nn::{EmbeddingConfig, Initializer};
use burn::prelude::*;
use sightdraft_datasets::charts::{SIDE, SLOT};
use sightdraft_target::layer::{DecoderLayer, init_norm};
use sightdraft_target::{Llama, LlamaConfig, Llava, Projection, Rope, RopeConfig};
use sightdraft_vision::{Family, PreprocessConfig, VisionConfig, VisionModel};

use crate::tokenizer;

/// Eight narrow layers: deep enough that EAGLE-3's taps 2, N/2 and N-3 differ.
pub fn text_config(vocab_size: usize) -> LlamaConfig {
    LlamaConfig {
        hidden_size: 96,
        intermediate_size: 192,
        num_hidden_layers: 8,
        num_attention_heads: 3,
        num_key_value_heads: 3,
        head_dim: 32,
        vocab_size,
        max_position_embeddings: 512,
        rms_norm_eps: 1e-5,
        rope: RopeConfig { theta: 10_000.0, scaling: None },
        tie_word_embeddings: false,
    }
}

/// Two layers that are used and, as in LLaVA-1.5 (feature layer -2), one that is not; a patch is a slot of the charts.
pub fn vision_config() -> VisionConfig {
    VisionConfig {
        family: Family::Clip,
        hidden_size: 96,
        intermediate_size: 192,
        num_hidden_layers: 3,
        num_attention_heads: 3,
        image_size: SIDE as usize,
        patch_size: SLOT as usize,
        layer_norm_eps: 1e-5,
        hidden_act: "quick_gelu".into(),
        feature_layer: -2,
        drop_cls: true,
        text_hidden_size: 96,
    }
}

/// A random model. Weights start wider than the family's 0.02, which suits widths of thousands.
pub fn init(vocab_size: usize, device: &Device) -> Llava {
    let (text, vision) = (text_config(vocab_size), vision_config());
    let width = text.hidden_size;
    let embedding = Initializer::Normal { mean: 0.0, std: 0.3 };
    let llama = Llama {
        embed_tokens: EmbeddingConfig::new(vocab_size, width).with_initializer(embedding).init(device),
        layers: (0..text.num_hidden_layers).map(|_| DecoderLayer::init(&text, 0.05, device)).collect(),
        norm: init_norm(&text, device),
        lm_head: Some(Projection::init(width, vocab_size, false, 0.03, device)),
        rope: Rope::new(&text.rope, text.head_dim),
        config: text,
    };
    // Where a patch stands matters as much as what it shows; CLIP's 0.02 would drown beside the pixels.
    let place = Initializer::Normal { mean: 0.0, std: 0.5 };
    let mut vision = VisionModel::init(&vision, device);
    vision.tower.position_embedding = place.init(vision.tower.position_embedding.dims(), device);
    Llava { vision, llama, image_token: tokenizer::IMAGE }
}

/// Paper is near 0 and ink far below, so that what is drawn stands out from the first step.
pub fn preprocessing() -> PreprocessConfig {
    PreprocessConfig { mean: [0.95; 3], std: [0.25; 3], ..PreprocessConfig::clip(SIDE as usize, false) }
}
