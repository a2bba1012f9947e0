//! EAGLE's rule: the children of a node are point masses, tried one after the other.

use burn::prelude::*;

use crate::sampling::{draw, normalise};
use crate::verify::{Uniforms, logits_row};
use crate::{DraftTree, Sampling, Verdict, Verifier};

/// Accept child x if u < p(x), else p(x) = 0 and renormalise; the bonus comes from what is left of p. Lossless for any
/// children that do not depend on the uniforms.
#[derive(Debug, Clone)]
pub struct PointMass<U> {
    sampling: Sampling,
    uniforms: U,
}

impl<U: Uniforms> PointMass<U> {
    /// The rule for a target that samples with `sampling`.
    pub fn new(sampling: Sampling, uniforms: U) -> Self {
        Self { sampling, uniforms }
    }

    /// The accepted path and the distribution of the bonus token; `row(i)` gives the target's logits after node i.
    pub fn accept(&mut self, tree: &DraftTree, mut row: impl FnMut(usize) -> Vec<f32>) -> (Vec<usize>, Vec<f32>) {
        let mut path = vec![0];
        let mut node = 0;
        loop {
            let mut p = self.sampling.probabilities(&row(node));
            let accepted = tree.children(node).find(|&child| {
                let token = tree.tokens[child] as usize;
                self.uniforms.test() < p[token] || !remove(&mut p, token)
            });
            match accepted {
                Some(child) => node = child,
                None => return (path, p),
            }
            path.push(node);
        }
    }
}

/// Takes `token` out of `p` and renormalises. False, with `p` as it was, if nothing but `token` has any mass: then rounding
/// alone can have rejected it.
fn remove(p: &mut [f32], token: usize) -> bool {
    let mass = std::mem::replace(&mut p[token], 0.0);
    if p.iter().all(|&weight| weight == 0.0) {
        p[token] = mass;
        return false;
    }
    normalise(p);
    true
}

impl<U: Uniforms> Verifier for PointMass<U> {
    fn verify(&mut self, tree: &DraftTree, logits: Tensor<2>) -> Verdict {
        let (path, residual) = self.accept(tree, |node| logits_row(&logits, node));
        let bonus = draw(&residual, self.uniforms.draw()) as u32;
        Verdict { path, bonus }
    }
}
