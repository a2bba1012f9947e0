//! EAGLE-1 and EAGLE-2 (Li et al. 2024): one decoder layer over fc([embed, feature]), read by the target's own head. HASS
//! (Zhang et al. 2024) has the same tensors, and so has MSD (Lin et al. 2025), in which rows of images enter the layer as their
//! projected embeddings, without fusion or feature.

use burn::prelude::*;
use burn::tensor::DType;
use sightdraft_core::{Checkpoint, Result};
use sightdraft_target::attention::Attention;
use sightdraft_target::save::Named;
use sightdraft_target::{Llama, Projection, Rope};

use crate::layer::UnnormedLayer;
use crate::one_layer::{Fused, OneLayer};
use crate::published::{Published, save_table};
use crate::shared::Shared;
use crate::{DraftConfig, DraftPass, Method, UnrollRows, VocabMap, fusion};

/// The EAGLE-1 head.
#[derive(Module, Debug)]
pub struct Eagle1 {
    /// `[H, 2H]` fusion of embedding and feature, in that order.
    pub fc: Projection,
    /// The decoder layer.
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

impl Eagle1 {
    /// A fresh head for `target`. The fusion passes the feature through, so that the draft starts by saying what the target
    /// last said, and learns the step ahead (derived; the published code starts from random weights).
    pub fn init(config: DraftConfig, target: &Llama, device: &Device) -> Self {
        Self {
            fc: fusion::init(config.layer.hidden_size, device),
            layer: UnnormedLayer::init(1, &config.layer, device),
            vocab: VocabMap::identity(config.draft_vocab_size),
            rope: Rope::new(&config.layer.rope, config.layer.head_dim),
            shared: Shared::of(target),
            config,
        }
    }

    /// Reads the published layout. The embeddings are the target's own; a copy in the file is not read.
    ///
    /// # Errors
    /// A missing tensor or another shape.
    pub fn load(checkpoint: &Checkpoint, config: DraftConfig, target: &Llama, device: &Device) -> Result<Self> {
        Ok(Self {
            fc: fusion::load(checkpoint, "fc", config.layer.hidden_size, device)?,
            layer: UnnormedLayer::load(checkpoint, 1, &config.layer, device)?,
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

impl Published for Eagle1 {
    fn config(&self) -> &DraftConfig {
        &self.config
    }

    fn tensors(&self) -> Vec<(String, TensorData)> {
        let mut out = Named::new(self.dtype());
        save_table(&mut out, &self.shared);
        out.projection("fc", &self.fc);
        self.layer.name(&mut out);
        out.tensors
    }
}

impl OneLayer for Eagle1 {
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
        self.fc.dtype()
    }

    fn enter(&self, features: Tensor<3>) -> Tensor<3> {
        features
    }

    fn fuse(&self, hidden: Tensor<3>, embeds: Tensor<3>, image: &[Vec<Option<usize>>]) -> Fused {
        let x = self.fc.forward(Tensor::cat(vec![embeds.clone(), hidden], 2));
        let x = match self.config.method {
            Method::Msd => image_rows(x, embeds, image),
            _ => x,
        };
        Fused { input: x.clone(), residual: x }
    }

    fn leave(&self, residual: Tensor<3>, attended: Tensor<3>) -> DraftPass {
        let hidden = self.layer.finish(residual, attended);
        DraftPass { predict: hidden.clone(), hidden }
    }

    fn logits(&self, predict: Tensor<3>) -> Tensor<3> {
        self.shared.logits(predict)
    }
}

/// `fused` with the rows of images, `[B][n]`, taken from `embeds` as they are (MSD's decoupling of text and vision).
fn image_rows(fused: Tensor<3>, embeds: Tensor<3>, image: &[Vec<Option<usize>>]) -> Tensor<3> {
    let is_image: Vec<bool> = image.iter().flatten().map(Option::is_some).collect();
    if !is_image.contains(&true) {
        return fused;
    }
    let [batch, n, width] = fused.dims();
    let mask = Tensor::<3, Bool>::from_data(TensorData::new(is_image, [batch, n, 1]), &fused.device());
    fused.mask_where(mask.expand([batch, n, width]), embeds)
}
