//! GRIFFIN (Hu et al. 2025): EAGLE-1 with a token-guided fusion, and a layer that ends in two rows: one for the head, one
//! for the next step.

use burn::nn::RmsNorm;
use burn::prelude::*;
use burn::tensor::DType;
use burn::tensor::activation::silu;
use sightdraft_core::{Checkpoint, Result};
use sightdraft_target::attention::Attention;
use sightdraft_target::layer::{init_norm, load_norm, normed};
use sightdraft_target::save::Named;
use sightdraft_target::{Llama, LlamaConfig, Projection, Rope};

use crate::layer::UnnormedLayer;
use crate::one_layer::{Fused, OneLayer};
use crate::published::{Published, save_table};
use crate::shared::Shared;
use crate::{DraftConfig, DraftPass, INIT_STD, UnrollRows, VocabMap, fusion};

/// The GRIFFIN head.
#[derive(Module, Debug)]
pub struct Griffin {
    /// Token-guided fusion.
    pub fc: TokenGuidedFusion,
    /// The decoder layer; its MLP ends in 2H.
    pub layer: UnnormedLayer,
    /// Geometry.
    #[module(skip)]
    pub config: DraftConfig,
    /// The whole vocabulary.
    #[module(skip)]
    pub vocab: VocabMap,
    /// Rotary frequencies.
    #[module(skip)]
    pub rope: Rope,
    /// The target's head and embeddings.
    #[module(skip)]
    pub shared: Shared,
}

/// y = fc([e, h]); y + down(silu(up([ln(post(y)), ln(e)]))).
#[derive(Module, Debug)]
pub struct TokenGuidedFusion {
    /// `[H, 2H]`, of embedding and feature in that order.
    pub fc: Projection,
    /// Of the fused row, before `input_layernorm`.
    pub post_attention_layernorm: RmsNorm,
    /// Of both, the fused row and the embedding.
    pub input_layernorm: RmsNorm,
    /// `[I, 2H]`.
    pub up_proj: Projection,
    /// `[H, I]`.
    pub down_proj: Projection,
}

impl TokenGuidedFusion {
    /// A fresh fusion that passes the feature through.
    pub fn init(config: &LlamaConfig, device: &Device) -> Self {
        let (width, inner) = (config.hidden_size, config.intermediate_size);
        Self {
            fc: fusion::init(width, device),
            post_attention_layernorm: init_norm(config, device),
            input_layernorm: init_norm(config, device),
            up_proj: Projection::init(2 * width, inner, false, INIT_STD, device),
            down_proj: Projection::init(inner, width, false, INIT_STD, device),
        }
    }

    /// Reads `fc.fc`, `fc.mlp.*` and `fc.post_attention_layernorm`.
    ///
    /// # Errors
    /// A missing tensor or another shape.
    pub fn load(checkpoint: &Checkpoint, config: &LlamaConfig, device: &Device) -> Result<Self> {
        let (width, inner) = (config.hidden_size, config.intermediate_size);
        let norm = |name: &str| load_norm(checkpoint, name, width, config.rms_norm_eps, device);
        let matrix = |name: &str, input, output| Projection::load(checkpoint, name, input, output, false, device);
        Ok(Self {
            fc: fusion::load(checkpoint, "fc.fc", width, device)?,
            post_attention_layernorm: norm("fc.post_attention_layernorm")?,
            input_layernorm: norm("fc.mlp.input_layernorm")?,
            up_proj: matrix("fc.mlp.up_proj", 2 * width, inner)?,
            down_proj: matrix("fc.mlp.down_proj", inner, width)?,
        })
    }

    /// The form for inference, see [`Projection::for_inference`].
    pub fn for_inference(self) -> Self {
        Self {
            fc: self.fc.for_inference(),
            up_proj: self.up_proj.for_inference(),
            down_proj: self.down_proj.for_inference(),
            ..self
        }
    }

    /// Features and embeddings, `[B, n, H]` each, to `[B, n, H]`.
    pub fn forward(&self, hidden: Tensor<3>, embeds: Tensor<3>) -> Tensor<3> {
        let fused = self.fc.forward(Tensor::cat(vec![embeds.clone(), hidden], 2));
        let twice = normed(&self.input_layernorm, normed(&self.post_attention_layernorm, fused.clone()));
        let guided = Tensor::cat(vec![twice, normed(&self.input_layernorm, embeds)], 2);
        fused + self.down_proj.forward(silu(self.up_proj.forward(guided)))
    }

    fn name(&self, out: &mut Named) {
        out.projection("fc.fc", &self.fc);
        out.norm("fc.post_attention_layernorm", &self.post_attention_layernorm);
        out.norm("fc.mlp.input_layernorm", &self.input_layernorm);
        out.projection("fc.mlp.up_proj", &self.up_proj);
        out.projection("fc.mlp.down_proj", &self.down_proj);
    }
}

impl Griffin {
    /// A fresh head for `target`, as [`Eagle1::init`](crate::Eagle1::init).
    pub fn init(config: DraftConfig, target: &Llama, device: &Device) -> Self {
        Self {
            fc: TokenGuidedFusion::init(&config.layer, device),
            layer: UnnormedLayer::init(2, &config.layer, device),
            vocab: VocabMap::identity(config.draft_vocab_size),
            rope: Rope::new(&config.layer.rope, config.layer.head_dim),
            shared: Shared::of(target),
            config,
        }
    }

    /// Reads the published layout, the embeddings apart: they are the target's own.
    ///
    /// # Errors
    /// A missing tensor or another shape.
    pub fn load(checkpoint: &Checkpoint, config: DraftConfig, target: &Llama, device: &Device) -> Result<Self> {
        Ok(Self {
            fc: TokenGuidedFusion::load(checkpoint, &config.layer, device)?,
            layer: UnnormedLayer::load(checkpoint, 2, &config.layer, device)?,
            vocab: VocabMap::identity(config.draft_vocab_size),
            rope: Rope::new(&config.layer.rope, config.layer.head_dim),
            shared: Shared::of(target),
            config,
        })
    }

    /// The form for inference, see [`Projection::for_inference`].
    pub fn for_inference(self) -> Self {
        Self { fc: self.fc.for_inference(), layer: self.layer.for_inference(), ..self }
    }
}

impl Published for Griffin {
    fn config(&self) -> &DraftConfig {
        &self.config
    }

    fn tensors(&self) -> Vec<(String, TensorData)> {
        let mut out = Named::new(self.dtype());
        save_table(&mut out, &self.shared);
        self.fc.name(&mut out);
        self.layer.name(&mut out);
        out.tensors
    }
}

impl OneLayer for Griffin {
    fn vocab(&self) -> &VocabMap {
        &self.vocab
    }

    fn unroll_rows(&self) -> UnrollRows {
        UnrollRows::Row
    }

    fn attention(&self) -> &Attention {
        &self.layer.self_attn
    }

    fn rope(&self) -> &Rope {
        &self.rope
    }

    fn dtype(&self) -> DType {
        self.fc.fc.dtype()
    }

    fn enter(&self, features: Tensor<3>) -> Tensor<3> {
        features
    }

    fn fuse(&self, hidden: Tensor<3>, embeds: Tensor<3>, _image: &[Vec<Option<usize>>]) -> Fused {
        let x = self.fc.forward(hidden, embeds);
        Fused { input: x.clone(), residual: x }
    }

    fn leave(&self, residual: Tensor<3>, attended: Tensor<3>) -> DraftPass {
        let width = residual.dims()[2];
        let both = self.layer.finish(residual, attended);
        DraftPass { predict: both.clone().narrow(2, 0, width), hidden: both.narrow(2, width, width) }
    }

    fn logits(&self, predict: Tensor<3>) -> Tensor<3> {
        self.shared.logits(predict)
    }
}
