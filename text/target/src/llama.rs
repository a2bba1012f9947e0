//! The LLaMA decoder.

use burn::module::Param;
use burn::nn::{Embedding, EmbeddingConfig, Initializer, RmsNorm};
use burn::prelude::*;
use burn::tensor::DType;

use crate::layer::{DecoderLayer, init_norm, norm_for_inference, normed};
use crate::linear::on_plain_cpu;
use crate::pass_rows::with_few_shapes;
use crate::{Head, KvCache, LlamaConfig, Mask, PassRows, Projection, Rope};

/// Standard deviation of fresh weights: the family's `initializer_range`.
const INIT_STD: f64 = 0.02;

/// A LLaMA-family language model.
#[derive(Module, Debug)]
pub struct Llama {
    /// Token embeddings `[V, H]`.
    pub embed_tokens: Embedding,
    /// Decoder layers.
    pub layers: Vec<DecoderLayer>,
    /// Final norm.
    pub norm: RmsNorm,
    /// The head; None when tied to the embedding.
    pub lm_head: Option<Projection>,
    /// Geometry.
    #[module(skip)]
    pub config: LlamaConfig,
    /// Rotary frequencies.
    #[module(skip)]
    pub rope: Rope,
}

/// What one forward pass leaves.
#[derive(Debug, Clone)]
pub struct Pass {
    /// HF `hidden_states[-1]`: after the final norm, `[B, n, H]`.
    pub hidden: Tensor<3>,
    /// The tapped hidden states, concatenated in the order asked for: `[B, n, taps * H]`. None if no taps were asked for.
    pub taps: Option<Tensor<3>>,
}

impl Llama {
    /// A random model (training from scratch, tests): weights normal with standard deviation 0.02, norms at one.
    pub fn init(config: &LlamaConfig, device: &Device) -> Self {
        let (vocabulary, width) = (config.vocab_size, config.hidden_size);
        let initializer = Initializer::Normal { mean: 0.0, std: INIT_STD };
        let head = || Projection::init(width, vocabulary, false, INIT_STD, device);
        Self {
            embed_tokens: EmbeddingConfig::new(vocabulary, width).with_initializer(initializer).init(device),
            layers: (0..config.num_hidden_layers).map(|_| DecoderLayer::init(config, INIT_STD, device)).collect(),
            norm: init_norm(config, device),
            lm_head: (!config.tie_word_embeddings).then(head),
            config: config.clone(),
            rope: Rope::new(&config.rope, config.head_dim),
        }
    }

    /// Embeddings of `ids` `[B, n]` -> `[B, n, H]`.
    pub fn embed(&self, ids: Tensor<2, Int>) -> Tensor<3> {
        self.embed_tokens.forward(ids)
    }

    /// Runs `embeds` `[B, n, H]` behind the cache. `positions` is `[B or 1][n]`; `taps` are indices into HF
    /// `hidden_states`: 0 = embeddings, k = output of layer k-1 (= input of layer k), N = after the final norm.
    ///
    /// # Panics
    /// Positions or a mask of another size than the rows, a tap above N.
    pub fn forward(
        &self,
        embeds: Tensor<3>,
        positions: &[Vec<usize>],
        mask: &Mask,
        cache: &mut KvCache,
        taps: &[usize],
    ) -> Pass {
        let n = embeds.dims()[1];
        assert!(positions.iter().all(|row| row.len() == n), "one position per row");
        assert!(taps.iter().all(|tap| *tap <= self.layers.len()), "a tap lies beyond the last layer");
        let rows = PassRows::new(&self.rope, positions, mask, cache.len(), &embeds.device());
        let mut tapped: Vec<Option<Tensor<3>>> = vec![None; taps.len()];
        let mut hidden = rows.pad(embeds);
        for (index, layer) in self.layers.iter().enumerate() {
            keep(&mut tapped, taps, index, &hidden);
            hidden = layer.forward(hidden, &rows.angles, rows.blocked.clone(), cache, index);
        }
        cache.advance(n);
        let hidden = normed(&self.norm, hidden);
        keep(&mut tapped, taps, self.layers.len(), &hidden);
        let tapped: Vec<Tensor<3>> = tapped.into_iter().flatten().collect();
        let taps = (!tapped.is_empty()).then(|| rows.cut(Tensor::cat(tapped, 2)));
        Pass { hidden: rows.cut(hidden), taps }
    }

    /// Vocabulary logits `[B, n, V]` of final hidden states; pass only the rows that are needed.
    pub fn logits(&self, hidden: Tensor<3>) -> Tensor<3> {
        with_few_shapes(hidden, |hidden| self.head().forward(hidden))
    }

    /// The head by itself; it shares the weights.
    pub fn head(&self) -> Head {
        match &self.lm_head {
            Some(head) => Head::Own(head.clone()),
            None => Head::Tied(self.embed_tokens.weight.val()),
        }
    }

    /// The form for inference. On the CPU every layer is packed, one at a time, instead of the plain copy (in bf16 where the
    /// weights are of half precision), and rows are f32; a tied head is packed beside the embedding table, which stays for
    /// looking up. Unchanged on other devices.
    pub fn for_inference(mut self) -> Self {
        if !on_plain_cpu(&self.embed_tokens.weight.device()) {
            return self;
        }
        let table = self.embed_tokens.weight.val();
        let head = self.lm_head.unwrap_or_else(|| Projection::from_weight(table.clone().transpose()));
        self.lm_head = Some(head.for_inference());
        self.embed_tokens = Embedding { weight: Param::from_tensor(table.cast(DType::F32)) };
        self.layers = self.layers.into_iter().map(DecoderLayer::for_inference).collect();
        self.norm = norm_for_inference(self.norm);
        self
    }

    /// Every linear layer that a pass goes through, in its order and with its name, the head last unless it is the embedding table.
    pub fn projections(&self) -> Vec<(&'static str, &Projection)> {
        fn of(layer: &DecoderLayer) -> [(&'static str, &Projection); 7] {
            let (attention, mlp) = (&layer.self_attn, &layer.mlp);
            [
                ("q_proj", &attention.q_proj),
                ("k_proj", &attention.k_proj),
                ("v_proj", &attention.v_proj),
                ("o_proj", &attention.o_proj),
                ("gate_proj", &mlp.gate_proj),
                ("up_proj", &mlp.up_proj),
                ("down_proj", &mlp.down_proj),
            ]
        }
        self.layers.iter().flat_map(of).chain(self.lm_head.iter().map(|head| ("lm_head", head))).collect()
    }

    /// An empty cache of this model's shape.
    pub fn new_cache(&self) -> KvCache {
        KvCache::new(self.config.num_hidden_layers)
    }
}

/// Stores hidden state `index` wherever it was asked for.
fn keep(tapped: &mut [Option<Tensor<3>>], taps: &[usize], index: usize, hidden: &Tensor<3>) {
    for (slot, _) in tapped.iter_mut().zip(taps).filter(|(_, tap)| **tap == index) {
        *slot = Some(hidden.clone());
    }
}
