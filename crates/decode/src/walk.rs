//! Verification above temperature 0: down the tree from the root, while a child is accepted.

use burn::prelude::*;

use crate::sampling::draw;
use crate::verify::{Uniforms, to_host};
use crate::{DraftTree, Sampling, Verdict, Verifier};

/// How the children of one node are tried: all that tells the sampling rules apart.
pub trait Rule {
    /// The first of `node`'s children that is accepted. If none is, `p` (the target's distribution after `node`, `[V]`) is left
    /// as the distribution of the bonus token.
    fn first_accepted(
        &self,
        tree: &DraftTree,
        node: usize,
        p: &mut [f32],
        uniforms: &mut impl Uniforms,
    ) -> Option<usize>;
}

/// A rule at work on a target that samples.
#[derive(Debug, Clone)]
pub struct Walk<R, U> {
    rule: R,
    sampling: Sampling,
    uniforms: U,
}

impl<R: Rule, U: Uniforms> Walk<R, U> {
    /// `rule` for a target that samples with `sampling`.
    pub fn new(rule: R, sampling: Sampling, uniforms: U) -> Self {
        Self { rule, sampling, uniforms }
    }

    /// The accepted path and the distribution of the bonus token; `row(i)` gives the target's logits after node i.
    pub fn accept(&mut self, tree: &DraftTree, mut row: impl FnMut(usize) -> Vec<f32>) -> (Vec<usize>, Vec<f32>) {
        let mut path = vec![0];
        let mut node = 0;
        loop {
            let mut p = self.sampling.probabilities(&row(node));
            match self.rule.first_accepted(tree, node, &mut p, &mut self.uniforms) {
                Some(child) => node = child,
                None => return (path, p),
            }
            path.push(node);
        }
    }
}

impl<R: Rule, U: Uniforms> Verifier for Walk<R, U> {
    fn verify(&mut self, tree: &DraftTree, logits: Tensor<2>) -> Verdict {
        let width = logits.dims()[1];
        // All rows at once, though only those on the accepted path are needed: a GPU is waited for once.
        let rows = to_host(logits);
        let (path, residual) = self.accept(tree, |node| rows[node * width..][..width].to_vec());
        let bonus = draw(&residual, self.uniforms.draw()) as u32;
        Verdict { path, bonus }
    }
}
