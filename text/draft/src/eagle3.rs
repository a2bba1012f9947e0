//! EAGLE-3 (Li et al. 2025): a fusion layer over three taps and one decoder layer that attends from [embed, hidden].

use burn::nn::RmsNorm;
use burn::prelude::*;
use sightdraft_target::attention::Attention;
use sightdraft_target::layer::GatedMlp;
use sightdraft_target::{Llama, Projection, Rope};

use crate::{DraftConfig, VocabMap};

/// The EAGLE-3 head.
#[derive(Module, Debug)]
pub struct Eagle3 {
    /// `[H, 3H]` fusion of the taps, no bias.
    pub fc: Projection,
    /// The decoder layer.
    pub midlayer: Midlayer,
    /// Final norm.
    pub norm: RmsNorm,
    /// `[D, H]` head.
    pub lm_head: Projection,
    /// Geometry.
    #[module(skip)]
    pub config: DraftConfig,
    /// Vocabulary.
    #[module(skip)]
    pub vocab: VocabMap,
    /// Rotary frequencies.
    #[module(skip)]
    pub rope: Rope,
}

/// EAGLE-3's decoder layer.
#[derive(Module, Debug)]
pub struct Midlayer {
    /// Norm of the feature.
    pub hidden_norm: RmsNorm,
    /// Norm of the embedding.
    pub input_layernorm: RmsNorm,
    /// Attention from 2H.
    pub self_attn: Attention,
    /// Before the MLP.
    pub post_attention_layernorm: RmsNorm,
    /// MLP.
    pub mlp: GatedMlp,
}

impl Eagle3 {
    /// A fresh head for `target`; the lm_head starts from the target's own rows of `vocab`.
    pub fn init(_config: DraftConfig, _vocab: VocabMap, _target: &Llama, _device: &Device) -> Self {
        todo!()
    }
}
