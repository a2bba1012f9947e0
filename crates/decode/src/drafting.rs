//! A draft at work on one sequence: it follows the accepted tokens and grows trees behind them.

use burn::prelude::*;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use sightdraft_draft::{Draft, DraftPass, DraftState, FeatureRows};
use sightdraft_target::{Llama, Mask, PromptRows};

use crate::{Acceptance, DraftTree, DynamicTree, Guesses, Request, SampledTree, TreeBuilder, TreeShape};

/// A draft, its state, and what it last left.
pub(crate) struct Drafting<'a> {
    draft: &'a dyn Draft,
    llama: &'a Llama,
    request: &'a Request,
    state: DraftState,
    /// Rows followed so far: the position of the next one. A draft that compresses images keeps fewer keys.
    rows: usize,
    /// Features of accepted rows that the draft has not followed yet, and the token after each.
    pending: (Vec<Tensor<3>>, Vec<u32>),
    /// The pass over the last accepted token: where trees start from.
    last: Option<DraftPass>,
    random: ChaCha8Rng,
}

impl<'a> Drafting<'a> {
    pub(crate) fn new(draft: &'a dyn Draft, llama: &'a Llama, request: &'a Request) -> Self {
        // Another stream than the verifier's, which has the same seed.
        let mut random = ChaCha8Rng::seed_from_u64(request.sampling.seed);
        random.set_stream(1);
        Self { draft, llama, request, state: draft.start(), rows: 0, pending: Default::default(), last: None, random }
    }

    /// Hidden states of the target that the draft reads.
    pub(crate) fn taps(&self) -> &'a [usize] {
        self.draft.taps()
    }

    /// Follows the prompt: `features` `[1, n, F]` of its rows, each with the embedding of the row after it; `first` is the
    /// token after the prompt.
    pub(crate) fn prefill(&mut self, features: Tensor<3>, first: u32) {
        let prompt = &self.request.prompt;
        let n = prompt.ids.len();
        let image: Vec<Option<usize>> =
            (0..n).map(|row| prompt.image_rows.iter().position(|image| image.contains(&row))).collect();
        let next = image[1..].iter().copied().chain([None]).collect();
        let blind = self.request.blind_draft && !prompt.image_rows.is_empty();
        let (features, embeds) = match blind {
            true => (
                without(features, &image),
                self.llama.embed_ids(&next_ids(prompt, first, self.llama.config.vocab_size)),
            ),
            false => {
                let shifted = prompt.embeds.clone().narrow(1, 1, n - 1);
                (features, Tensor::cat(vec![shifted, self.llama.embed_ids(&[first])], 1))
            }
        };
        self.follow(features, embeds, next);
    }

    /// Takes in accepted tokens: `features` `[1, m, F]` of the accepted path, `next` the `m` tokens after each of its nodes. The
    /// draft follows when the next tree is wanted, all at once if several passes went without one.
    pub(crate) fn extend(&mut self, features: Tensor<3>, next: &[u32]) {
        self.pending.0.push(features);
        self.pending.1.extend_from_slice(next);
    }

    fn catch_up(&mut self) {
        let (features, next) = std::mem::take(&mut self.pending);
        if !next.is_empty() {
            self.follow(Tensor::cat(features, 1), self.llama.embed_ids(&next), vec![None; next.len()]);
        }
    }

    fn follow(&mut self, features: Tensor<3>, embeds: Tensor<3>, image: Vec<Option<usize>>) {
        let (n, start) = (image.len(), self.rows);
        let rows = FeatureRows {
            features,
            embeds,
            positions: &[(start..start + n).collect()],
            mask: &Mask::Causal,
            image: &[image],
        };
        let pass = self.draft.extend(&mut self.state, rows);
        self.rows += n;
        let last_row = |rows: Tensor<3>| rows.narrow(1, n - 1, 1);
        self.last = Some(DraftPass { hidden: last_row(pass.hidden), predict: last_row(pass.predict) });
    }

    /// A tree below `root`, the last accepted token, of at most `levels` levels.
    pub(crate) fn tree(&mut self, root: u32, shape: TreeShape, levels: usize) -> DraftTree {
        self.catch_up();
        let Some(mut pass) = self.last.take().filter(|_| levels > 0) else { return DraftTree::root(root) };
        let mut builder = self.builder(root, TreeShape { depth: shape.depth.min(levels - 1), ..shape });
        let stable = self.state.cache.len();
        let guess = |predict, wanted| Guesses::of(self.draft, predict, wanted);
        builder.expand(&guess(pass.predict, builder.wanted()), self.draft.vocab());
        let mut level = 0;
        while !builder.frontier().is_empty() {
            let parents: Vec<i32> = builder.frontier().iter().map(|feed| feed.parent_row as i32).collect();
            let tokens: Vec<u32> = builder.frontier().iter().map(|feed| feed.token).collect();
            let hidden = pass.hidden.clone().select(1, Tensor::from_ints(parents.as_slice(), &pass.hidden.device()));
            let positions = [vec![self.rows + level; tokens.len()]];
            let mask = level_mask(stable, builder.sees());
            let embeds = self.llama.embed_ids(&tokens);
            pass = self.draft.step(&mut self.state, hidden, embeds, &positions, &mask);
            builder.expand(&guess(pass.predict, builder.wanted()), self.draft.vocab());
            level += 1;
        }
        self.state.cache.truncate(stable);
        builder.finish()
    }

    fn builder(&mut self, root: u32, shape: TreeShape) -> Box<dyn TreeBuilder> {
        let request = self.request;
        if request.acceptance == Acceptance::Ratio && !request.sampling.is_greedy() {
            let random = ChaCha8Rng::seed_from_u64(self.random.random());
            return Box::new(SampledTree::new(root, shape, request.sampling, random));
        }
        Box::new(DynamicTree::new(root, shape))
    }
}

/// Rows of a tree level see the whole stable cache, their ancestors and themselves.
fn level_mask(stable: usize, sees: &[Vec<bool>]) -> Mask {
    let row = |seen: &Vec<bool>| [vec![true; stable], seen.clone()].concat();
    Mask::Full(vec![sees.iter().map(row).collect()])
}

/// The id after each row of the prompt. An image token may lie beyond the embedding; id 0 stands in for it there.
fn next_ids(prompt: &PromptRows, first: u32, vocabulary: usize) -> Vec<u32> {
    let inside = |id: u32| if (id as usize) < vocabulary { id } else { 0 };
    prompt.ids[1..].iter().copied().map(inside).chain([first]).collect()
}

/// Features with those of image rows at zero.
fn without(features: Tensor<3>, image: &[Option<usize>]) -> Tensor<3> {
    let keep: Vec<f32> = image.iter().map(|image| f32::from(image.is_none())).collect();
    let dtype = features.dtype();
    let keep = Tensor::<1>::from_floats(keep.as_slice(), &features.device()).cast(dtype);
    features * keep.reshape([1, image.len(), 1])
}

#[cfg(test)]
mod tests {
    use sightdraft_draft::DraftModel;
    use sightdraft_fixtures::{Fixture, recordings, root};
    use sightdraft_target::LlamaConfig;
    use sightdraft_target::load::load_llama;

    use super::*;
    use crate::Sampling;

    fn target(device: &Device) -> Llama {
        let dir = root().join("hf_llama_gqa");
        let checkpoint = sightdraft_core::Checkpoint::open_file(&dir.join("model.safetensors")).unwrap();
        load_llama(&checkpoint, &LlamaConfig::open(&dir).unwrap(), "model.", "lm_head", device).unwrap()
    }

    #[test]
    fn fixture_trees_of_the_draft_itself_are_the_same() {
        let device = Device::flex();
        let llama = target(&device);
        let eagle3 = DraftModel::open(&root().join("eagle3"), &llama, &device).unwrap();
        for recording in recordings("tree", "e3.hidden_states") {
            let hidden = recording.fixture.tensor("e3.hidden_states", &device);
            check_trees(&eagle3, &llama, &recording.fixture, hidden);
        }
        for recording in ["hass", "griffin"].into_iter().flat_map(|folder| recordings(folder, "draft_tokens")) {
            let draft = DraftModel::open(recording.draft_dir().path(), &llama, &device).unwrap();
            let hidden = recording.fixture.tensor("hidden_states", &device);
            check_trees(&draft, &llama, &recording.fixture, hidden);
        }
    }

    /// The trees behind `hidden`, the features of a prompt; a case is the prefix of its tensors.
    fn check_trees(draft: &DraftModel, llama: &Llama, fixture: &Fixture, hidden: Tensor<3>) {
        for case in fixture.cases("draft_tokens") {
            let ids: Vec<u32> = fixture.i64(&format!("{case}input_ids")).iter().map(|&id| id as u32).collect();
            let (root_token, prompt) = ids.split_last().unwrap();
            let params = fixture.i64(&format!("{case}params"));
            let tree = TreeShape { total: params[0] as usize, depth: params[1] as usize, top_k: params[2] as usize };
            let request = Request {
                prompt: PromptRows { ids: prompt.to_vec(), embeds: llama.embed_ids(prompt), image_rows: Vec::new() },
                max_new_tokens: 100,
                eos: Vec::new(),
                sampling: Sampling::GREEDY,
                tree: tree.into(),
                acceptance: Acceptance::PointMass,
                blind_draft: false,
            };
            let mut drafting = Drafting::new(draft, llama, &request);
            drafting.prefill(hidden.clone(), *root_token);
            let found = drafting.tree(*root_token, tree, 100);
            let tokens: Vec<i64> = found.tokens.iter().map(|&token| token.into()).collect();
            assert_eq!(tokens, fixture.i64(&format!("{case}draft_tokens")), "{case}");
            let sees: Vec<u8> = found.sees().iter().flatten().map(|&seen| seen.into()).collect();
            assert_eq!(sees, fixture.u8(&format!("{case}tree_mask")), "{case}");
        }
    }
}
