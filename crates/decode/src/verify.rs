//! Acceptance rules. Each keeps the target's distribution exactly.

use burn::prelude::*;
use burn::tensor::DType;
use rand::Rng;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};
use sightdraft_kernels::argmax_rows;

use crate::point_mass::PointMass;
use crate::ratio::Ratio;
use crate::{DraftTree, Sampling, Walk};

/// What a verification pass decided.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// Accepted nodes, root first.
    pub path: Vec<usize>,
    /// The target's own next token after the path.
    pub bonus: u32,
}

/// Which rule.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Acceptance {
    /// Children are point masses (EAGLE): accept x if u < p(x), else remove x and renormalise.
    #[default]
    PointMass,
    /// Children are samples of the draft (SpecInfer's recursive rejection): min(1, p/q).
    Ratio,
}

impl Acceptance {
    /// The rule for `sampling`: at temperature 0 there is only one.
    pub fn verifier(self, sampling: Sampling) -> Box<dyn Verifier> {
        let random = ChaCha8Rng::seed_from_u64(sampling.seed);
        match (sampling.is_greedy(), self) {
            (true, _) => Box::new(Greedy),
            (false, Self::PointMass) => Box::new(Walk::new(PointMass, sampling, random)),
            (false, Self::Ratio) => Box::new(Walk::new(Ratio, sampling, random)),
        }
    }
}

/// A rule applied to the target's logits over the tree.
pub trait Verifier {
    /// `logits` `[nodes, V]`, row i = the target's logits after node i.
    fn verify(&mut self, tree: &DraftTree, logits: Tensor<2>) -> Verdict;
}

/// Temperature 0: children that are the target's argmax are accepted.
#[derive(Debug, Clone, Copy)]
pub struct Greedy;

impl Verifier for Greedy {
    fn verify(&mut self, tree: &DraftTree, logits: Tensor<2>) -> Verdict {
        // The argmax is taken on the device: one integer per node comes back.
        let best: Vec<u32> = argmax_rows(logits).into_iter().map(|id| id as u32).collect();
        let mut path = vec![0];
        let mut node = 0;
        while let Some(child) = tree.children(node).find(|&child| tree.tokens[child] == best[node]) {
            path.push(child);
            node = child;
        }
        Verdict { path, bonus: best[node] }
    }
}

/// Where acceptance takes its uniforms from: `[0, 1)` in f32 for tests of u < p, in f64 for draws.
pub trait Uniforms {
    /// For a test u < p.
    fn test(&mut self) -> f32;
    /// For drawing from a distribution.
    fn draw(&mut self) -> f64;
}

impl Uniforms for ChaCha8Rng {
    fn test(&mut self) -> f32 {
        self.random()
    }
    fn draw(&mut self) -> f64 {
        self.random()
    }
}

/// All values, in f32, in one read.
pub(crate) fn to_host<const D: usize>(values: Tensor<D>) -> Vec<f32> {
    values.cast(DType::F32).into_data().try_into_vec().expect("values that were just cast to f32")
}
