//! Temperature above 0: both acceptance rules give the target's distribution over two tokens, with and without top-p.

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use sightdraft_decode::sampling::draw;
use sightdraft_decode::{
    DraftTree, DynamicTree, Guesses, PointMass, Ratio, SampledTree, Sampling, TreeBuilder, TreeShape, Walk,
};
use sightdraft_draft::VocabMap;

const DRAWS: usize = 200_000;
const SHAPE: TreeShape = TreeShape { total: 10, depth: 1, top_k: 3 };

/// Target logits after the root (row 4) and after each first token.
const TARGET: [[f32; 4]; 5] = [
    [1.0, -0.5, 0.2, 0.7],
    [0.0, 2.0, -1.0, 0.3],
    [-2.0, 0.5, 0.5, 0.1],
    [0.9, 0.8, -3.0, 0.0],
    [0.4, -0.3, 1.1, -1.2],
];

/// The draft's log-probabilities, the same after every token: a poor draft.
const DRAFT: [f32; 4] = [0.1, 0.5, 0.15, 0.25];

fn grow(mut tree: Box<dyn TreeBuilder>) -> DraftTree {
    let vocab = VocabMap::identity(4);
    let row = DRAFT.map(f32::ln);
    tree.expand(&Guesses::all(row.to_vec(), 4), &vocab);
    while !tree.frontier().is_empty() {
        let rows = row.repeat(tree.frontier().len());
        tree.expand(&Guesses::all(rows, 4), &vocab);
    }
    tree.finish()
}

fn logits_after(tree: &DraftTree, node: usize) -> Vec<f32> {
    // Only the last token matters to this target; the root's is 4.
    TARGET[tree.tokens[node] as usize].to_vec()
}

/// The first two tokens that come out of one pass, and of the target itself where one pass gives only one.
fn two_tokens(
    tree: &DraftTree,
    path: &[usize],
    residual: &[f32],
    sampling: Sampling,
    random: &mut ChaCha8Rng,
) -> usize {
    let mut tokens: Vec<usize> = path[1..].iter().map(|&node| tree.tokens[node] as usize).collect();
    tokens.push(draw(residual, random.random()));
    if tokens.len() == 1 {
        tokens.push(draw(&sampling.probabilities(&TARGET[tokens[0]]), random.random()));
    }
    tokens[0] * 4 + tokens[1]
}

fn total_variation(counts: &[usize; 16], sampling: Sampling) -> f64 {
    let first = sampling.probabilities(&TARGET[4]);
    let mut distance = 0.0;
    for (a, &p_a) in first.iter().enumerate() {
        for (b, &p_b) in sampling.probabilities(&TARGET[a]).iter().enumerate() {
            let exact = f64::from(p_a) * f64::from(p_b);
            distance += (counts[a * 4 + b] as f64 / DRAWS as f64 - exact).abs() / 2.0;
        }
    }
    distance
}

fn samplings() -> [Sampling; 3] {
    let plain = Sampling { temperature: 1.0, top_p: 1.0, top_k: 0, seed: 0 };
    [plain, Sampling { top_p: 0.8, ..plain }, Sampling { temperature: 0.6, top_k: 3, ..plain }]
}

#[test]
fn point_masses_keep_the_distribution() {
    let tree = grow(Box::new(DynamicTree::new(4, SHAPE)));
    for sampling in samplings() {
        let mut random = ChaCha8Rng::seed_from_u64(1);
        let mut rule = Walk::new(PointMass, sampling, ChaCha8Rng::seed_from_u64(2));
        let mut counts = [0; 16];
        for _ in 0..DRAWS {
            let (path, residual) = rule.accept(&tree, |node| logits_after(&tree, node));
            counts[two_tokens(&tree, &path, &residual, sampling, &mut random)] += 1;
        }
        let distance = total_variation(&counts, sampling);
        assert!(distance < 0.01, "{sampling:?}: {distance}");
    }
}

#[test]
fn ratios_keep_the_distribution() {
    for sampling in samplings() {
        let mut random = ChaCha8Rng::seed_from_u64(3);
        let mut rule = Walk::new(Ratio, sampling, ChaCha8Rng::seed_from_u64(4));
        let mut counts = [0; 16];
        for _ in 0..DRAWS {
            let seed = ChaCha8Rng::seed_from_u64(random.random());
            let tree = grow(Box::new(SampledTree::new(4, SHAPE, sampling, seed)));
            let (path, residual) = rule.accept(&tree, |node| logits_after(&tree, node));
            counts[two_tokens(&tree, &path, &residual, sampling, &mut random)] += 1;
        }
        let distance = total_variation(&counts, sampling);
        assert!(distance < 0.01, "{sampling:?}: {distance}");
    }
}
