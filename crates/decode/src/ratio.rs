//! Recursive rejection (SpecInfer; without replacement as in Jeon et al. 2024): the children of a node are samples of the
//! draft, tried one after the other with min(1, p/q).

use crate::DraftTree;
use crate::sampling::normalise;
use crate::verify::Uniforms;
use crate::walk::Rule;

/// Accept child x if u < p(x)/q(x), else p = (p - q)+ renormalised and x leaves q. Needs a tree whose children were sampled
/// without replacement from `DraftTree::proposals`; a node without a proposal gets its children as point masses.
#[derive(Debug, Clone, Copy)]
pub struct Ratio;

impl Rule for Ratio {
    fn first_accepted(
        &self,
        tree: &DraftTree,
        node: usize,
        p: &mut [f32],
        uniforms: &mut impl Uniforms,
    ) -> Option<usize> {
        let mut q = tree.proposals[node].clone();
        for child in tree.children(node) {
            let token = tree.tokens[child];
            let q_token = q.iter().find(|(id, _)| *id == token).map_or(1.0, |&(_, weight)| weight);
            if uniforms.test() * q_token < p[token as usize] || !subtract(p, &q, token) {
                return Some(child);
            }
            q.retain(|(id, _)| *id != token);
            normalise_pairs(&mut q);
        }
        None
    }
}

/// p = (p - q)+, renormalised; without a proposal (`q` empty) `token` is a point mass. False, with `p` as it was, if nothing
/// is left: then p = q, and rounding alone can have rejected the child.
fn subtract(p: &mut [f32], q: &[(u32, f32)], token: u32) -> bool {
    let before = p.to_vec();
    if q.is_empty() {
        p[token as usize] = 0.0;
    }
    q.iter().for_each(|&(id, weight)| p[id as usize] = (p[id as usize] - weight).max(0.0));
    if p.iter().all(|&weight| weight == 0.0) {
        p.copy_from_slice(&before);
        return false;
    }
    normalise(p);
    true
}

/// Divides by the sum.
fn normalise_pairs(pairs: &mut [(u32, f32)]) {
    let sum: f64 = pairs.iter().map(|&(_, weight)| f64::from(weight)).sum();
    if sum > 0.0 {
        pairs.iter_mut().for_each(|(_, weight)| *weight = (f64::from(*weight) / sum) as f32);
    }
}
