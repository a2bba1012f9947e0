//! The generation loop. Plain decoding is the same loop with trees of one node.

use std::time::Instant;

use burn::prelude::*;
use burn::tensor::DType;
use sightdraft_core::Result;
use sightdraft_draft::Draft;
use sightdraft_target::{KvCache, Llama, Mask, PromptRows, Target};

use crate::drafting::Drafting;
use crate::stop::StopRules;
use crate::{Acceptance, Counters, DraftTree, Sampling, Seconds, Stop, TreeChoice, Verdict, Verifier};

/// What to generate.
#[derive(Debug, Clone)]
pub struct Request {
    /// The prompt.
    pub prompt: PromptRows,
    /// Most tokens to emit; met exactly.
    pub max_new_tokens: usize,
    /// Ids that end the answer (emitted, then stop).
    pub eos: Vec<u32>,
    /// Sampling.
    pub sampling: Sampling,
    /// Trees when there is a draft.
    pub tree: TreeChoice,
    /// Acceptance rule at temperature > 0.
    pub acceptance: Acceptance,
    /// Keep the image from the draft: its image rows see the embedding of the image token and zero features (measures how much seeing helps).
    pub blind_draft: bool,
}

/// What came out.
#[derive(Debug, Clone)]
pub struct Generation {
    /// New ids, the EOS included if one came.
    pub token_ids: Vec<u32>,
    /// Why it ended.
    pub stop: Stop,
    /// Counts.
    pub counters: Counters,
    /// Times.
    pub seconds: Seconds,
}

/// Generates. `on_tokens` gets every emitted id exactly once, in order, as soon as it is certain.
///
/// # Errors
/// A prompt that is empty or leaves no room in the target's context; a temperature or top_p that is none.
pub fn generate(
    target: &dyn Target,
    draft: Option<&dyn Draft>,
    request: &Request,
    on_tokens: &mut dyn FnMut(&[u32]),
) -> Result<Generation> {
    let llama = target.llama();
    request.sampling.check()?;
    let rules = StopRules::new(request.prompt.ids.len(), request.max_new_tokens, &request.eos, &llama.config)?;
    let mut run = Run::new(llama, draft, request, rules);
    if run.rules.limit > 0 {
        run.prefill(on_tokens);
        while run.stop.is_none() {
            run.step(on_tokens);
        }
    }
    Ok(Generation {
        token_ids: run.tokens,
        stop: run.stop.unwrap_or(Stop::Length),
        counters: run.counters,
        seconds: run.seconds,
    })
}

/// One generation under way.
struct Run<'a> {
    llama: &'a Llama,
    request: &'a Request,
    rules: StopRules<'a>,
    verifier: Box<dyn Verifier>,
    drafting: Option<Drafting<'a>>,
    /// Holds the prompt and every emitted token but the last.
    cache: KvCache,
    tokens: Vec<u32>,
    stop: Option<Stop>,
    counters: Counters,
    seconds: Seconds,
}

impl<'a> Run<'a> {
    fn new(llama: &'a Llama, draft: Option<&'a dyn Draft>, request: &'a Request, rules: StopRules<'a>) -> Self {
        Self {
            llama,
            request,
            rules,
            verifier: request.acceptance.verifier(request.sampling),
            drafting: draft.map(|draft| Drafting::new(draft, llama, request)),
            cache: llama.new_cache(),
            tokens: Vec::new(),
            stop: None,
            counters: Counters::default(),
            seconds: Seconds::default(),
        }
    }

    fn taps(&self) -> &'a [usize] {
        self.drafting.as_ref().map_or(&[], Drafting::taps)
    }

    /// The target over the prompt; the first token comes from it by the same rule as every bonus.
    fn prefill(&mut self, on_tokens: &mut dyn FnMut(&[u32])) {
        let clock = Instant::now();
        let n = self.request.prompt.ids.len();
        let embeds = self.request.prompt.embeds.clone();
        let taps = self.taps();
        let pass = self.llama.forward(embeds, &[(0..n).collect()], &Mask::Causal, &mut self.cache, taps);
        let logits = self.logits(pass.hidden.narrow(1, n - 1, 1));
        let first = self.verifier.verify(&DraftTree::root(self.request.prompt.ids[n - 1]), logits).bonus;
        self.seconds.prefill += clock.elapsed().as_secs_f64();
        self.emit(vec![first], on_tokens);
        let clock = Instant::now();
        if let (None, Some(drafting), Some(features)) = (self.stop, &mut self.drafting, pass.taps) {
            drafting.prefill(features, first);
        }
        self.seconds.draft += clock.elapsed().as_secs_f64();
    }

    /// One round: draft, verify, compact, emit.
    fn step(&mut self, on_tokens: &mut dyn FnMut(&[u32])) {
        let clock = Instant::now();
        let tree = self.guess();
        let drafting = clock.elapsed().as_secs_f64();
        self.seconds.draft += drafting;

        let clock = Instant::now();
        let before = self.cache.len();
        let (logits, features) = self.target_pass(&tree, before);
        let verdict = self.verifier.verify(&tree, logits);
        let verification = clock.elapsed().as_secs_f64();
        self.seconds.verify += verification;

        let clock = Instant::now();
        let next: Vec<u32> = accepted_tokens(&tree, &verdict);
        self.cache.gather(before, &verdict.path);
        let emitted = self.emit(next.clone(), on_tokens);
        self.counters.record(&tree, &verdict, emitted);
        if let (None, Some(drafting), Some(features)) = (self.stop, &mut self.drafting, features) {
            let rows: Vec<i32> = verdict.path.iter().map(|&node| node as i32).collect();
            let rows = Tensor::from_ints(rows.as_slice(), &features.device());
            drafting.extend(features.select(1, rows), &next);
        }
        if self.drafting.is_some() {
            self.request.tree.record(&tree, &verdict, [drafting, verification]);
        }
        self.seconds.other += clock.elapsed().as_secs_f64();
    }

    /// The tree below the last emitted token: the root alone where nothing is guessed.
    fn guess(&mut self) -> DraftTree {
        let root = self.tokens[self.tokens.len() - 1];
        // The bonus comes on top of what is accepted, so deeper guesses could never be emitted.
        let levels = self.rules.limit - self.tokens.len() - 1;
        match self.drafting.as_mut().and_then(|drafting| Some((drafting, self.request.tree.next()?))) {
            Some((drafting, shape)) => drafting.tree(root, shape, levels),
            None => DraftTree::root(root),
        }
    }

    /// The packed tree through the target: logits `[nodes, V]` and tapped features `[1, nodes, F]`.
    fn target_pass(&mut self, tree: &DraftTree, before: usize) -> (Tensor<2>, Option<Tensor<3>>) {
        let positions = [tree.depths.iter().map(|depth| before + depth).collect()];
        let mask = if tree.len() == 1 { Mask::Causal } else { Mask::Tree(tree.sees()) };
        let embeds = self.llama.embed_ids(&tree.tokens);
        let taps = self.taps();
        let pass = self.llama.forward(embeds, &positions, &mask, &mut self.cache, taps);
        (self.logits(pass.hidden), pass.taps)
    }

    /// `[1, n, H] -> [n, V]` in f32.
    fn logits(&self, hidden: Tensor<3>) -> Tensor<2> {
        self.llama.logits(hidden).squeeze_dim::<2>(0).cast(DType::F32)
    }

    /// Cuts `new` at a stop, hands it out, and says how many came out.
    fn emit(&mut self, mut new: Vec<u32>, on_tokens: &mut dyn FnMut(&[u32])) -> usize {
        self.stop = self.rules.cut(&mut new, self.tokens.len());
        on_tokens(&new);
        self.tokens.extend_from_slice(&new);
        new.len()
    }
}

/// The tokens after each node of the accepted path: the drafts on it, then the bonus.
fn accepted_tokens(tree: &DraftTree, verdict: &Verdict) -> Vec<u32> {
    let drafts = verdict.path[1..].iter().map(|&node| tree.tokens[node]);
    drafts.chain([verdict.bonus]).collect()
}
