//! EAGLE-3 (Li et al. 2025): a fusion layer over three taps and one decoder layer that attends from [embed, hidden].

use std::path::Path;

use burn::module::Param;
use burn::nn::RmsNorm;
use burn::prelude::*;
use burn::tensor::{DType, Distribution};
use sightdraft_core::{Checkpoint, Error, Result};
use sightdraft_target::attention::Attention;
use sightdraft_target::layer::{GatedMlp, init_norm, load_norm, norm_for_inference, normed};
use sightdraft_target::save::Named;
use sightdraft_target::{Llama, LlamaConfig, Projection, Rope};

use crate::one_layer::{Fused, OneLayer};
use crate::published::Published;
use crate::{DraftConfig, DraftPass, INIT_STD, UnrollRows, VocabMap};

/// Standard deviation of a fresh fusion.
const FUSION_STD: f64 = 0.002;
/// Share of the target's final norm that a fresh head starts with.
const SOFT_START: f64 = 0.3;

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

impl Midlayer {
    fn init(config: &LlamaConfig, device: &Device) -> Self {
        Self {
            hidden_norm: init_norm(config, device),
            input_layernorm: init_norm(config, device),
            self_attn: Attention::init(2 * config.hidden_size, config, INIT_STD, device),
            post_attention_layernorm: init_norm(config, device),
            mlp: GatedMlp::init(config.hidden_size, config, INIT_STD, device),
        }
    }

    fn load(checkpoint: &Checkpoint, prefix: &str, config: &LlamaConfig, device: &Device) -> Result<Self> {
        let width = config.hidden_size;
        let norm = |name: &str| load_norm(checkpoint, &format!("{prefix}.{name}"), width, config.rms_norm_eps, device);
        Ok(Self {
            hidden_norm: norm("hidden_norm")?,
            input_layernorm: norm("input_layernorm")?,
            self_attn: Attention::load(checkpoint, &format!("{prefix}.self_attn"), 2 * width, config, device)?,
            post_attention_layernorm: norm("post_attention_layernorm")?,
            mlp: GatedMlp::load(checkpoint, &format!("{prefix}.mlp"), width, config, device)?,
        })
    }

    fn for_inference(self) -> Self {
        Self {
            hidden_norm: norm_for_inference(self.hidden_norm),
            input_layernorm: norm_for_inference(self.input_layernorm),
            self_attn: self.self_attn.for_inference(),
            post_attention_layernorm: norm_for_inference(self.post_attention_layernorm),
            mlp: self.mlp.for_inference(),
        }
    }

    fn name(&self, out: &mut Named) {
        out.norm("midlayer.hidden_norm", &self.hidden_norm);
        out.norm("midlayer.input_layernorm", &self.input_layernorm);
        out.attention("midlayer.self_attn", &self.self_attn);
        out.norm("midlayer.post_attention_layernorm", &self.post_attention_layernorm);
        out.mlp("midlayer.mlp", &self.mlp);
    }

    /// The rest of the layer after attention.
    fn finish(&self, hidden: Tensor<3>, attended: Tensor<3>) -> Tensor<3> {
        let hidden = hidden + attended;
        hidden.clone() + self.mlp.forward(normed(&self.post_attention_layernorm, hidden))
    }
}

impl Eagle3 {
    /// A fresh head for `target`. The lm_head starts from the target's own rows of `vocab`; the final norm from a share of
    /// the target's, so that the first guesses are soft; and the fusion so small that what the layer adds is not drowned by
    /// the taps, which are large in deep layers (derived, and measured on SmolLM2-135M and the built-in target; the
    /// published code starts from random weights).
    pub fn init(config: DraftConfig, vocab: VocabMap, target: &Llama, device: &Device) -> Self {
        let (width, taps) = (config.layer.hidden_size, config.taps.len());
        let fusion = Tensor::random([taps * width, width], Distribution::Normal(0.0, FUSION_STD), device);
        let rows = target.head().rows(vocab.targets()).into_data().convert::<f32>();
        let gamma = target.norm.gamma.val().into_data().convert::<f32>();
        Self {
            fc: Projection::from_weight(fusion),
            midlayer: Midlayer::init(&config.layer, device),
            norm: RmsNorm {
                gamma: Param::from_tensor(Tensor::<1>::from_data(gamma, device) * SOFT_START),
                epsilon: config.layer.rms_norm_eps,
            },
            lm_head: Projection::from_weight(Tensor::<2>::from_data(rows, device).transpose()),
            rope: Rope::new(&config.layer.rope, config.layer.head_dim),
            config,
            vocab,
        }
    }

    /// The form for inference, see [`Projection::for_inference`].
    pub fn for_inference(self) -> Self {
        Self {
            fc: self.fc.for_inference(),
            midlayer: self.midlayer.for_inference(),
            norm: norm_for_inference(self.norm),
            lm_head: self.lm_head.for_inference(),
            ..self
        }
    }

    /// The same head for another vocabulary: ids that it knows keep their rows, new ones start from the target's own, as in a fresh
    /// head (derived).
    pub fn with_vocab(self, vocab: VocabMap, target: &Llama) -> Self {
        let host = |rows: Tensor<2>| rows.into_data().convert::<f32>().iter::<f32>().collect::<Vec<f32>>();
        let width = self.config.layer.hidden_size;
        let own = host(self.lm_head.weight_out_in());
        let mut rows = host(target.head().rows(vocab.targets()));
        for (row, &id) in rows.chunks_exact_mut(width).zip(vocab.targets()) {
            if let Some(known) = self.vocab.draft(id) {
                row.copy_from_slice(&own[known as usize * width..][..width]);
            }
        }
        let device = self.norm.gamma.device();
        let rows = Tensor::<2>::from_data(TensorData::new(rows, [vocab.targets().len(), width]), &device);
        let config = DraftConfig { draft_vocab_size: vocab.targets().len(), ..self.config };
        Self { lm_head: Projection::from_weight(rows.transpose()), vocab, config, ..self }
    }

    /// Reads the published layout (the layer as `midlayer.*`, or `layers.0.*` as speculators and vLLM name it).
    ///
    /// # Errors
    /// A missing tensor, another shape, no d2t where D != V, or maps that contradict each other.
    pub fn load(checkpoint: &Checkpoint, config: DraftConfig, device: &Device) -> Result<Self> {
        let (layer, width) = (&config.layer, config.layer.hidden_size);
        let prefix = if checkpoint.has("layers.0.self_attn.q_proj.weight") { "layers.0" } else { "midlayer" };
        let vocab = load_vocab(checkpoint, &config)?;
        Ok(Self {
            fc: Projection::load(checkpoint, "fc", config.taps.len() * width, width, false, device)?,
            midlayer: Midlayer::load(checkpoint, prefix, layer, device)?,
            norm: load_norm(checkpoint, "norm", width, layer.rms_norm_eps, device)?,
            lm_head: Projection::load(checkpoint, "lm_head", width, config.draft_vocab_size, false, device)?,
            rope: Rope::new(&layer.rope, layer.head_dim),
            vocab,
            config,
        })
    }
}

impl Published for Eagle3 {
    fn config(&self) -> &DraftConfig {
        &self.config
    }

    fn tensors(&self) -> Vec<(String, TensorData)> {
        let mut out = Named::new(OneLayer::dtype(self));
        out.projection("fc", &self.fc);
        self.midlayer.name(&mut out);
        out.norm("norm", &self.norm);
        out.projection("lm_head", &self.lm_head);
        if !self.vocab.is_identity() {
            let (d2t, t2d) = (self.vocab.offsets(), self.vocab.known());
            let (drafts, targets) = (d2t.len(), t2d.len());
            out.tensors.push(("d2t".into(), TensorData::new(d2t, [drafts])));
            out.tensors.push(("t2d".into(), TensorData::new(t2d, [targets])));
        }
        out.tensors
    }
}

impl OneLayer for Eagle3 {
    fn vocab(&self) -> &VocabMap {
        &self.vocab
    }

    fn unroll_rows(&self) -> UnrollRows {
        UnrollRows::Anchor
    }

    fn attention(&self) -> &Attention {
        &self.midlayer.self_attn
    }

    fn rope(&self) -> &Rope {
        &self.rope
    }

    fn dtype(&self) -> DType {
        self.fc.dtype()
    }

    fn enter(&self, features: Tensor<3>) -> Tensor<3> {
        self.fc.forward(features)
    }

    fn fuse(&self, hidden: Tensor<3>, embeds: Tensor<3>, _image: &[Vec<Option<usize>>]) -> Fused {
        let feature = normed(&self.midlayer.hidden_norm, hidden.clone());
        Fused {
            input: Tensor::cat(vec![normed(&self.midlayer.input_layernorm, embeds), feature.clone()], 2),
            residual: if self.config.norm_before_residual { feature } else { hidden },
        }
    }

    fn leave(&self, residual: Tensor<3>, attended: Tensor<3>) -> DraftPass {
        let hidden = self.midlayer.finish(residual, attended);
        DraftPass { predict: hidden.clone(), hidden }
    }

    fn logits(&self, predict: Tensor<3>) -> Tensor<3> {
        self.lm_head.forward(normed(&self.norm, predict))
    }
}

/// d2t and t2d, where D != V.
fn load_vocab(checkpoint: &Checkpoint, config: &DraftConfig) -> Result<VocabMap> {
    let (drafts, targets) = (config.draft_vocab_size, config.layer.vocab_size);
    let file: &Path = checkpoint.path("d2t");
    let mend = "use the draft that was trained for this target, or export it again";
    let wrong = |expected: String, found: String| Err(Error::file(file, expected, found, mend));
    if !checkpoint.has("d2t") {
        return match drafts == targets {
            true => Ok(VocabMap::identity(targets)),
            false => wrong(format!("a tensor d2t that maps {drafts} draft ids to {targets} target ids"), "none".into()),
        };
    }
    let offsets = checkpoint.integers("d2t")?;
    if offsets.len() != drafts {
        return wrong(format!("{drafts} offsets in d2t (draft_vocab_size)"), offsets.len().to_string());
    }
    let vocab =
        VocabMap::from_offsets(&offsets, targets).or_else(|error| wrong("a usable d2t".into(), error.to_string()))?;
    if checkpoint.has("t2d") {
        let known: Vec<bool> = checkpoint.integers("t2d")?.iter().map(|&known| known != 0).collect();
        if known != vocab.known() {
            return wrong("t2d true exactly where d2t leads".into(), "another set of ids".into());
        }
    }
    Ok(vocab)
}
