//! EAGLE-3 (Li et al. 2025): a fusion layer over three taps and one decoder layer that attends from [embed, hidden].

use std::path::Path;

use burn::module::Param;
use burn::nn::RmsNorm;
use burn::prelude::*;
use burn::tensor::Distribution;
use sightdraft_core::{Checkpoint, Error, Result};
use sightdraft_target::attention::Attention;
use sightdraft_target::layer::{GatedMlp, init_norm, load_norm};
use sightdraft_target::{KvCache, Llama, LlamaConfig, Mask, Projection, Rope};

use crate::unroll::Unrolled;
use crate::{Draft, DraftConfig, DraftPass, DraftState, FeatureRows, VocabMap};

/// Standard deviation of fresh weights.
const INIT_STD: f64 = 0.02;

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
            mlp: GatedMlp::init(config, INIT_STD, device),
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
            mlp: GatedMlp::load(checkpoint, &format!("{prefix}.mlp"), config, device)?,
        })
    }

    fn for_inference(self) -> Self {
        Self { self_attn: self.self_attn.for_inference(), mlp: self.mlp.for_inference(), ..self }
    }

    /// What attention reads, `[B, n, 2H]`.
    fn input(&self, hidden: Tensor<3>, embeds: Tensor<3>) -> Tensor<3> {
        Tensor::cat(vec![self.input_layernorm.forward(embeds), self.hidden_norm.forward(hidden)], 2)
    }

    /// The rest of the layer after attention; the residual is the un-normed hidden.
    fn finish(&self, hidden: Tensor<3>, attended: Tensor<3>) -> Tensor<3> {
        let hidden = hidden + attended;
        hidden.clone() + self.mlp.forward(self.post_attention_layernorm.forward(hidden))
    }
}

impl Eagle3 {
    /// A fresh head for `target`. The lm_head starts from the target's own rows of `vocab`, the final norm from the target's,
    /// and the fusion passes the last tap through: the head starts by reading the target's residual stream as the target
    /// itself would, and learns the step ahead (derived; the published code starts from random weights).
    pub fn init(config: DraftConfig, vocab: VocabMap, target: &Llama, device: &Device) -> Self {
        let (width, taps) = (config.layer.hidden_size, config.taps.len());
        let noise = Tensor::random([taps * width, width], Distribution::Normal(0.0, INIT_STD / taps as f64), device);
        let through =
            Tensor::cat(vec![Tensor::zeros([(taps - 1) * width, width], device), Tensor::eye(width, device)], 0);
        let ids: Vec<i32> = vocab.targets().iter().map(|&id| id as i32).collect();
        let head = match &target.lm_head {
            Some(head) => head.weight_out_in(),
            None => target.embed_tokens.weight.val(),
        };
        let rows = head.clone().select(0, Tensor::from_ints(ids.as_slice(), &head.device()));
        let rows = rows.into_data().convert::<f32>();
        let gamma = target.norm.gamma.val().into_data().convert::<f32>();
        Self {
            fc: Projection::from_weight(noise + through),
            midlayer: Midlayer::init(&config.layer, device),
            norm: RmsNorm {
                gamma: Param::from_tensor(Tensor::from_data(gamma, device)),
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
            lm_head: self.lm_head.for_inference(),
            ..self
        }
    }

    /// Reads the published layout (the layer as `midlayer.*`, or `layers.0.*` as vLLM renames it).
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

    /// The tensors of the published layout.
    pub fn tensors(&self) -> Vec<(String, TensorData)> {
        let layer = &self.midlayer;
        let matrices = [
            ("fc", &self.fc),
            ("midlayer.self_attn.q_proj", &layer.self_attn.q_proj),
            ("midlayer.self_attn.k_proj", &layer.self_attn.k_proj),
            ("midlayer.self_attn.v_proj", &layer.self_attn.v_proj),
            ("midlayer.self_attn.o_proj", &layer.self_attn.o_proj),
            ("midlayer.mlp.gate_proj", &layer.mlp.gate_proj),
            ("midlayer.mlp.up_proj", &layer.mlp.up_proj),
            ("midlayer.mlp.down_proj", &layer.mlp.down_proj),
            ("lm_head", &self.lm_head),
        ];
        let norms = [
            ("midlayer.hidden_norm", &layer.hidden_norm),
            ("midlayer.input_layernorm", &layer.input_layernorm),
            ("midlayer.post_attention_layernorm", &layer.post_attention_layernorm),
            ("norm", &self.norm),
        ];
        let mut tensors: Vec<(String, TensorData)> = Vec::new();
        tensors.extend(matrices.map(|(name, matrix)| (format!("{name}.weight"), matrix.weight_out_in().into_data())));
        tensors.extend(norms.map(|(name, norm)| (format!("{name}.weight"), norm.gamma.val().into_data())));
        if !self.vocab.is_identity() {
            let (d2t, t2d) = (self.vocab.offsets(), self.vocab.known());
            let (drafts, targets) = (d2t.len(), t2d.len());
            tensors.push(("d2t".into(), TensorData::new(d2t, [drafts])));
            tensors.push(("t2d".into(), TensorData::new(t2d, [targets])));
        }
        tensors
    }

    /// One pass of the layer behind the cache.
    fn pass(
        &self,
        state: &mut DraftState,
        hidden: Tensor<3>,
        embeds: Tensor<3>,
        positions: &[Vec<usize>],
        mask: &Mask,
    ) -> DraftPass {
        let n = hidden.dims()[1];
        let device = hidden.device();
        let angles = self.rope.angles(positions, &device);
        let blocked = mask.blocked(n, state.cache.len(), &device);
        let input = self.midlayer.input(hidden.clone(), embeds);
        let attended = self.midlayer.self_attn.forward(input, &angles, blocked, &mut state.cache, 0);
        state.cache.advance(n);
        self.leave(hidden, attended)
    }

    fn leave(&self, hidden: Tensor<3>, attended: Tensor<3>) -> DraftPass {
        let hidden = self.midlayer.finish(hidden, attended);
        DraftPass { predict: hidden.clone(), hidden }
    }

    /// The draft may be kept in another precision than the target.
    fn cast(&self, rows: Tensor<3>) -> Tensor<3> {
        rows.cast(self.fc.dtype())
    }
}

impl Draft for Eagle3 {
    fn taps(&self) -> &[usize] {
        &self.config.taps
    }

    fn vocab(&self) -> &VocabMap {
        &self.vocab
    }

    fn start(&self) -> DraftState {
        DraftState { cache: KvCache::new(1) }
    }

    fn extend(&self, state: &mut DraftState, rows: FeatureRows<'_>) -> DraftPass {
        let hidden = self.fc.forward(self.cast(rows.features));
        self.pass(state, hidden, self.cast(rows.embeds), rows.positions, rows.mask)
    }

    fn step(
        &self,
        state: &mut DraftState,
        hidden: Tensor<3>,
        embeds: Tensor<3>,
        positions: &[Vec<usize>],
        mask: &Mask,
    ) -> DraftPass {
        self.pass(state, hidden, self.cast(embeds), positions, mask)
    }

    fn unroll(&self, rows: FeatureRows<'_>, later: &[Tensor<3>]) -> Vec<DraftPass> {
        let (layer, device) = (&self.midlayer, rows.embeds.device());
        let blocked = rows.mask.blocked(rows.embeds.dims()[1], 0, &device);
        let hidden = self.fc.forward(self.cast(rows.features));
        let angles = self.rope.angles(rows.positions, &device);
        let (q, k, v) = layer.self_attn.project(layer.input(hidden.clone(), self.cast(rows.embeds)), &angles);
        let attended = layer.self_attn.attend(q, k.clone(), v.clone(), blocked.clone());
        let mut passes = vec![self.leave(hidden, attended)];
        let mut unrolled = Unrolled::new(k, v, blocked);
        for (index, embeds) in later.iter().enumerate() {
            let moved = |row: &Vec<usize>| row.iter().map(|position| position + index + 1).collect();
            let positions: Vec<Vec<usize>> = rows.positions.iter().map(moved).collect();
            let angles = self.rope.angles(&positions, &device);
            let hidden = passes[index].hidden.clone();
            let input = layer.input(hidden.clone(), self.cast(embeds.clone()));
            let (q, k, v) = layer.self_attn.project(input, &angles);
            let attended = unrolled.attend(&layer.self_attn, q, k, v);
            passes.push(self.leave(hidden, attended));
        }
        passes
    }

    fn logits(&self, predict: Tensor<3>) -> Tensor<3> {
        self.lm_head.forward(self.norm.forward(predict))
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
