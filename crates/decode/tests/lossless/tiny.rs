//! A tiny random target, a random draft, and an oracle: a draft that is the target itself.

use burn::prelude::*;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use sightdraft_decode::{Acceptance, CostCurve, Costs, DraftTree, Request, Sampling, TreeShape, Tuner};
use sightdraft_draft::{
    Draft, DraftConfig, DraftModel, DraftPass, DraftState, Eagle3, FeatureRows, Method, UnrollRows, VocabMap,
};
use sightdraft_target::{Llama, LlamaConfig, Mask, PromptRows, RopeConfig};

pub fn config() -> LlamaConfig {
    LlamaConfig {
        hidden_size: 16,
        intermediate_size: 24,
        num_hidden_layers: 3,
        num_attention_heads: 4,
        num_key_value_heads: 2,
        head_dim: 4,
        vocab_size: 40,
        max_position_embeddings: 64,
        rms_norm_eps: 1e-5,
        rope: RopeConfig { theta: 10000.0, scaling: None },
        tie_word_embeddings: false,
    }
}

pub fn target() -> Llama {
    let device = Device::flex();
    device.seed(11);
    Llama::init(&config(), &device)
}

pub fn random_draft(target: &Llama) -> Eagle3 {
    let vocab = VocabMap::new((0..40).filter(|id| id % 4 != 3).collect(), 40);
    Eagle3::init(
        DraftConfig::for_target(Method::Eagle3, &config(), vocab.len()).unwrap(),
        vocab,
        target,
        &target.embed_tokens.weight.device(),
    )
}

/// A random draft that speaks through the target's head.
pub fn random_of(method: Method, target: &Llama) -> DraftModel {
    let config = DraftConfig::for_target(method, &config(), 40).unwrap();
    DraftModel::init(config, VocabMap::identity(40), target, &target.embed_tokens.weight.device())
}

/// Random ids; with `image`, rows 1..4 are an image of random embeddings.
pub fn prompt(target: &Llama, seed: u64, image: bool) -> PromptRows {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let n = random.random_range(5..12);
    let ids: Vec<u32> = (0..n).map(|_| random.random_range(0..40)).collect();
    let mut embeds = target.embed_ids(&ids);
    let device = embeds.device();
    if image {
        let pixels: Vec<f32> = (0..3 * 16).map(|_| random.random::<f32>() * 0.1 - 0.05).collect();
        embeds =
            embeds.slice_assign([0..1, 1..4, 0..16], Tensor::from_data(TensorData::new(pixels, [1, 3, 16]), &device));
    }
    PromptRows { ids, embeds, image_rows: image.then_some(1..4).into_iter().collect() }
}

pub fn request(prompt: PromptRows, max_new_tokens: usize) -> Request {
    Request {
        prompt,
        max_new_tokens,
        eos: Vec::new(),
        sampling: Sampling::GREEDY,
        tree: TreeShape { total: 12, depth: 2, top_k: 3 }.into(),
        acceptance: Acceptance::PointMass,
        blind_draft: false,
    }
}

/// A tree of eleven guesses, three levels deep; its leaves are the last four nodes.
pub fn bushy_tree() -> DraftTree {
    let mut tree = DraftTree::root(7);
    for (parent, token) in [(0, 3), (0, 9), (2, 1), (1, 8), (3, 30), (3, 2), (5, 17), (0, 39), (6, 4), (7, 11), (7, 12)]
    {
        tree.push(parent, token, -0.1);
    }
    tree
}

/// A chooser of trees for a target whose pass costs 1 and `more` per further row, and a draft whose steps cost `step`.
pub fn tuner(more: f64, step: f64) -> Tuner {
    let curve = |first: f64, more: f64| CostCurve::new(vec![(1, first), (64, first + 63.0 * more)]);
    Tuner::new(Costs { target: curve(1.0, more), draft: curve(step, 0.0) })
}

/// The target as its own draft. It needs the first row of the prompt, which drafts are never given.
pub struct Oracle<'a> {
    pub llama: &'a Llama,
    pub first_row: Tensor<3>,
    pub vocab: VocabMap,
}

impl<'a> Oracle<'a> {
    pub fn new(target: &'a Llama, prompt: &PromptRows) -> Self {
        let first_row = prompt.embeds.clone().narrow(1, 0, 1);
        Self { llama: target, first_row, vocab: VocabMap::identity(target.config.vocab_size) }
    }

    fn pass(&self, state: &mut DraftState, embeds: Tensor<3>, positions: &[Vec<usize>], mask: &Mask) -> DraftPass {
        let hidden = self.llama.forward(embeds, positions, mask, &mut state.cache, &[]).hidden;
        DraftPass { predict: hidden.clone(), hidden }
    }
}

impl Draft for Oracle<'_> {
    fn taps(&self) -> &[usize] {
        &[1]
    }

    fn vocab(&self) -> &VocabMap {
        &self.vocab
    }

    fn start(&self) -> DraftState {
        DraftState::new(self.llama.new_cache())
    }

    fn extend(&self, state: &mut DraftState, rows: FeatureRows<'_>) -> DraftPass {
        if !state.cache.is_empty() {
            return self.pass(state, rows.embeds, rows.positions, rows.mask);
        }
        let embeds = Tensor::cat(vec![self.first_row.clone(), rows.embeds], 1);
        let n = embeds.dims()[1];
        let pass = self.pass(state, embeds, &[(0..n).collect()], &Mask::Causal);
        let own = |rows: Tensor<3>| rows.narrow(1, 1, n - 1);
        DraftPass { hidden: own(pass.hidden), predict: own(pass.predict) }
    }

    fn step(
        &self,
        state: &mut DraftState,
        _hidden: Tensor<3>,
        embeds: Tensor<3>,
        positions: &[Vec<usize>],
        mask: &Mask,
    ) -> DraftPass {
        self.pass(state, embeds, positions, mask)
    }

    fn unroll_rows(&self) -> UnrollRows {
        UnrollRows::Anchor
    }

    fn unroll(&self, _rows: FeatureRows<'_>, _from: usize, _later: &[Tensor<3>]) -> Vec<DraftPass> {
        Vec::new()
    }

    fn logits(&self, predict: Tensor<3>) -> Tensor<3> {
        self.llama.logits(predict)
    }
}
