//! The generation loop. Plain decoding is the same loop with trees of one node.

use sightdraft_core::Result;
use sightdraft_draft::Draft;
use sightdraft_target::{PromptRows, Target};

use crate::{Acceptance, Counters, Sampling, Seconds, Stop, TreeShape};

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
    /// Tree size when there is a draft.
    pub tree: TreeShape,
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
pub fn generate(
    _target: &dyn Target,
    _draft: Option<&dyn Draft>,
    _request: &Request,
    _on_tokens: &mut dyn FnMut(&[u32]),
) -> Result<Generation> {
    todo!()
}
