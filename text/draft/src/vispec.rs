//! ViSpec (Kang et al. 2025, "ViSpec: Accelerating Vision-Language Models with Vision-Aware Speculative Decoding"): EAGLE-1's
//! layer, for which an adaptor compresses every image to a few tokens and one global feature.
//!
//! The adaptor's last output is the global feature of its image: it goes into every later row of text, until the next image
//! replaces it; before the first image it is zero. The other outputs stand in the sequence for the image, without a fusion, at
//! the positions of its last rows. So the cache holds fewer keys than the sequence has rows, and positions are always the
//! sequence's. The published code takes one image per prompt; here images may come in any number, side by side and in later
//! calls, and an image of fewer rows than tokens leaves the last of them (derived).

use burn::prelude::*;
use sightdraft_core::{Checkpoint, Result};
use sightdraft_target::save::Named;
use sightdraft_target::{Llama, Mask, Projection};

use crate::adaptor::ImageAdaptor;
use crate::compress::{self, Compression};
use crate::one_layer::{self, Fused, OneLayer};
use crate::published::Published;
use crate::rows::{moved_down, rows_from};
use crate::{Draft, DraftConfig, DraftPass, DraftState, Eagle1, FeatureRows, INIT_STD, UnrollRows, VocabMap, fusion};

/// The ViSpec head.
#[derive(Module, Debug)]
pub struct ViSpec {
    /// Fusion of embedding and feature, layer, and what the target shares.
    pub eagle: Eagle1,
    /// What reads images.
    pub imadpt: ImageAdaptor,
    /// `[H, 2H]` fusion of feature and global image feature, in that order.
    pub img_fc: Projection,
}

/// What the adaptor read of the images of some rows.
struct Images {
    /// `[num_q, H]` of each image.
    read: Vec<Tensor<2>>,
    /// Global features `[B + images, H]`: what each sequence starts with, then every image's.
    globals: Tensor<2>,
}

impl ViSpec {
    /// A fresh head for `target`. Images do not reach text at first: the fusion with the global feature is `[I | 0]`, as published. The rest starts as
    /// [`Eagle1::init`] does.
    pub fn init(config: DraftConfig, target: &Llama, device: &Device) -> Self {
        let width = config.layer.hidden_size;
        let through = Tensor::cat(vec![Tensor::eye(width, device), Tensor::zeros([width, width], device)], 0);
        Self {
            imadpt: ImageAdaptor::init(config.num_q, &config.layer, INIT_STD, device),
            img_fc: fusion::with_bias(through),
            eagle: Eagle1::init(config, target, device),
        }
    }

    /// Reads the published layout.
    ///
    /// # Errors
    /// A missing tensor or another shape.
    pub fn load(checkpoint: &Checkpoint, config: DraftConfig, target: &Llama, device: &Device) -> Result<Self> {
        let imadpt = ImageAdaptor::load(checkpoint, "imadpt", &config.layer, device)?;
        let config = DraftConfig { num_q: imadpt.queries(), ..config };
        Ok(Self {
            imadpt,
            img_fc: fusion::load(checkpoint, "img_fc", config.layer.hidden_size, device)?,
            eagle: Eagle1::load(checkpoint, config, target, device)?,
        })
    }

    /// The form for inference, see [`Projection::for_inference`].
    pub fn for_inference(self) -> Self {
        Self {
            eagle: self.eagle.for_inference(),
            imadpt: self.imadpt.for_inference(),
            img_fc: self.img_fc.for_inference(),
        }
    }

    /// Tokens that an image is compressed to.
    fn tokens(&self) -> usize {
        self.imadpt.queries() - 1
    }

    /// Runs the adaptor over every image of `embeds` `[B, n, H]`; `before` `[B, H]` is the global feature before these rows.
    fn look(&self, embeds: &Tensor<3>, compression: &Compression, before: Tensor<2>) -> Images {
        let [batch, n, width] = embeds.dims();
        let flat = embeds.clone().reshape([batch * n, width]);
        let image = |rows: &std::ops::Range<usize>| self.imadpt.forward(flat.clone().slice(rows.clone()));
        let read: Vec<Tensor<2>> = compression.images.iter().map(image).collect();
        let last = read.iter().map(|read| read.clone().narrow(0, self.tokens(), 1));
        let globals = Tensor::cat(std::iter::once(before).chain(last).collect(), 0);
        Images { read, globals }
    }

    /// Text rows: `hidden` and `embeds` `[B, n, H]`, and the global feature of each row `[B, n, H]`.
    fn fuse(&self, hidden: Tensor<3>, embeds: Tensor<3>, globals: Tensor<3>) -> Fused {
        let hidden = self.img_fc.forward(Tensor::cat(vec![hidden, globals], 2));
        self.eagle.fuse(hidden, embeds, &[])
    }

    /// The compressed sequence behind the cache, spread over all n rows again: zeros where a row left.
    fn pass(
        &self,
        state: &mut DraftState,
        hidden: Tensor<3>,
        rows: &FeatureRows<'_>,
        compression: &Compression,
        images: &Images,
    ) -> DraftPass {
        let [batch, n, width] = hidden.dims();
        let device = hidden.device();
        let text =
            |x: Tensor<3>| compress::select(x.reshape([batch * n, width]), &compression.text, &device).unsqueeze();
        let text = (!compression.text.is_empty()).then(|| {
            let globals = compress::select(images.globals.clone(), &compression.latest, &device).unsqueeze();
            self.fuse(text(hidden), text(rows.embeds.clone()), globals).input.squeeze_dim(0)
        });
        let Some(input) = compression.join(text, &images.read) else {
            let nothing = rows.embeds.zeros_like();
            return DraftPass { predict: nothing.clone(), hidden: nothing };
        };
        let fused = Fused { residual: input.clone(), input };
        let mask = compression.mask(rows.mask, state.cache.len());
        let place = one_layer::pass_rows(&self.eagle, state, &compression.positions(rows.positions), &mask, &device);
        let pass = one_layer::pass(&self.eagle, state, fused, &place);
        let hidden = compression.spread(pass.hidden);
        DraftPass { predict: hidden.clone(), hidden }
    }

    /// The global feature that a state of `batch` sequences holds, `[B, H]`.
    fn global(&self, state: &DraftState, batch: usize, device: &Device) -> Tensor<2> {
        let width = self.eagle.config.layer.hidden_size;
        let zeros = || Tensor::zeros([batch, width], (device, self.eagle.dtype()));
        state.global.clone().unwrap_or_else(zeros)
    }

    /// `rows` in the draft's precision.
    fn cast<'a>(&self, rows: FeatureRows<'a>) -> FeatureRows<'a> {
        let dtype = self.eagle.dtype();
        FeatureRows { features: rows.features.cast(dtype), embeds: rows.embeds.cast(dtype), ..rows }
    }
}

impl Published for ViSpec {
    fn config(&self) -> &DraftConfig {
        &self.eagle.config
    }

    fn tensors(&self) -> Vec<(String, TensorData)> {
        let mut out = Named::new(self.eagle.dtype());
        out.push("imadpt.q", self.imadpt.q.val());
        out.projection("imadpt.k_proj", &self.imadpt.k_proj);
        out.projection("imadpt.v_proj", &self.imadpt.v_proj);
        out.projection("imadpt.o_proj", &self.imadpt.o_proj);
        out.projection("img_fc", &self.img_fc);
        [self.eagle.tensors(), out.tensors].concat()
    }
}

impl Draft for ViSpec {
    fn taps(&self) -> &[usize] {
        self.eagle.taps()
    }

    fn vocab(&self) -> &VocabMap {
        &self.eagle.vocab
    }

    fn start(&self) -> DraftState {
        self.eagle.start()
    }

    fn keyed_rows(&self, image: &[Option<usize>]) -> Vec<usize> {
        compress::kept(image, self.tokens())
    }

    fn extend(&self, state: &mut DraftState, rows: FeatureRows<'_>) -> DraftPass {
        let rows = self.cast(rows);
        let compression = Compression::new(rows.image, self.tokens());
        assert!(compression.is_even(), "sequences that share a cache must keep equally many rows");
        let device = rows.embeds.device();
        let before = self.global(state, rows.embeds.dims()[0], &device);
        let images = self.look(&rows.embeds, &compression, before);
        let pass = self.pass(state, rows.features.clone(), &rows, &compression, &images);
        state.global = Some(compress::select(images.globals, &compression.last, &device));
        pass
    }

    fn step(
        &self,
        state: &mut DraftState,
        hidden: Tensor<3>,
        embeds: Tensor<3>,
        positions: &[Vec<usize>],
        mask: &Mask,
    ) -> DraftPass {
        let [batch, n, width] = hidden.dims();
        let global = self.global(state, batch, &hidden.device());
        let place = one_layer::pass_rows(&self.eagle, state, positions, mask, &hidden.device());
        let globals = global.unsqueeze_dim::<3>(1).expand([batch, n, width]);
        let [hidden, embeds, globals] = [hidden, embeds.cast(self.eagle.dtype()), globals].map(|x| place.pad(x));
        one_layer::pass(&self.eagle, state, self.fuse(hidden, embeds, globals), &place)
    }

    fn unroll_rows(&self) -> UnrollRows {
        UnrollRows::Row
    }

    /// Every step is a pass of its own over the whole sequence: row r reads what the step before left at row r-1 (the first
    /// row the target's feature again), and gradients flow back through all of them, as published. Since a row sees what other
    /// rows of its step leave, all rows are passed, whichever are asked for.
    fn unroll(&self, rows: FeatureRows<'_>, from: usize, later: &[Tensor<3>]) -> Vec<DraftPass> {
        let rows = self.cast(rows);
        let compression = Compression::new(rows.image, self.tokens());
        let batch = rows.embeds.dims()[0];
        let before = self.global(&self.start(), batch, &rows.embeds.device());
        let images = self.look(&rows.embeds, &compression, before);
        let mut passes: Vec<DraftPass> = Vec::with_capacity(later.len() + 1);
        for _ in 0..=later.len() {
            let hidden = match passes.last() {
                None => rows.features.clone(),
                Some(last) => moved_down(&rows.features, last.hidden.clone()),
            };
            passes.push(self.pass(&mut self.start(), hidden, &rows, &compression, &images));
        }
        let asked = |rows: Tensor<3>| rows_from(rows, from);
        passes.into_iter().map(|pass| DraftPass { hidden: asked(pass.hidden), predict: asked(pass.predict) }).collect()
    }

    fn logits(&self, predict: Tensor<3>) -> Tensor<3> {
        self.eagle.shared.logits(predict)
    }
}
