//! EAGLE's rule: the children of a node are point masses, tried one after the other.

use crate::DraftTree;
use crate::sampling::normalise;
use crate::verify::Uniforms;
use crate::walk::Rule;

/// Accept child x if u < p(x), else p(x) = 0 and renormalise; the bonus comes from what is left of p. Lossless for any
/// children that do not depend on the uniforms.
#[derive(Debug, Clone, Copy)]
pub struct PointMass;

impl Rule for PointMass {
    fn first_accepted(
        &self,
        tree: &DraftTree,
        node: usize,
        p: &mut [f32],
        uniforms: &mut impl Uniforms,
    ) -> Option<usize> {
        tree.children(node).find(|&child| {
            let token = tree.tokens[child] as usize;
            uniforms.test() < p[token] || !remove(p, token)
        })
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
