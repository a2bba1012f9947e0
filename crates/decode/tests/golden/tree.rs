//! The dynamic tree against the published implementation's recordings.

use sightdraft_decode::{DraftTree, DynamicTree, Guesses, TreeBuilder, TreeShape};
use sightdraft_draft::VocabMap;
use sightdraft_fixtures::{Fixture, files};

fn log_softmax(logits: &[f32]) -> Vec<f32> {
    let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum: f32 = logits.iter().map(|logit| (logit - max).exp()).sum();
    logits.iter().map(|logit| logit - max - sum.ln()).collect()
}

fn vocab(fixture: &Fixture, size: usize) -> VocabMap {
    if !fixture.has("d2t") {
        return VocabMap::identity(size);
    }
    let targets: Vec<u32> =
        fixture.i64("d2t").iter().enumerate().map(|(id, offset)| (id as i64 + offset) as u32).collect();
    let target_vocab = *targets.last().unwrap() as usize + 1;
    VocabMap::new(targets, target_vocab)
}

/// What the draft was called with at one level, where it was recorded.
fn check_level(fixture: &Fixture, step: &str, tree: &DynamicTree) {
    if !fixture.has(&format!("{step}.draft_input_ids")) {
        return;
    }
    let tokens: Vec<i64> = tree.frontier().iter().map(|feed| i64::from(feed.token)).collect();
    assert_eq!(tokens, fixture.i64(&format!("{step}.draft_input_ids")), "{step}");
    let sees: Vec<u8> = tree.sees().iter().flatten().map(|&seen| seen.into()).collect();
    assert_eq!(sees, fixture.u8(&format!("{step}.draft_tree_mask")), "{step}");
}

/// `case` is the prefix of its tensors, `e3.` or nothing.
fn build(fixture: &Fixture, case: &str) -> DraftTree {
    let params = fixture.i64(&format!("{case}params"));
    let shape = TreeShape { total: params[0] as usize, depth: params[1] as usize, top_k: params[2] as usize };
    let root = *fixture.i64(&format!("{case}input_ids")).last().unwrap() as u32;
    let recorded = recorded(case);
    let width = fixture.shape(&format!("{recorded}step0.logits"))[1];
    let vocab = vocab(fixture, width);
    let mut tree = Box::new(DynamicTree::new(root, shape));
    for level in 0..=shape.depth {
        let step = format!("{recorded}step{level}");
        if level > 0 {
            check_level(fixture, &step, &tree);
        }
        let rows: Vec<f32> = fixture.f32(&format!("{step}.logits")).chunks(width).flat_map(log_softmax).collect();
        tree.expand(&Guesses::all(rows, width), &vocab);
    }
    assert!(tree.frontier().is_empty());
    tree.finish()
}

/// The case whose logits were recorded: sampling differs in the order of paths alone.
fn recorded(case: &str) -> String {
    case.replace("_sampling.", ".")
}

fn padded(mut paths: Vec<Vec<usize>>, sort: bool) -> Vec<i64> {
    let width = paths.iter().map(Vec::len).max().unwrap_or(0);
    if sort {
        paths.sort();
    }
    let pad = |path: Vec<usize>| path.into_iter().map(|node| node as i64).chain(std::iter::repeat(-1)).take(width);
    paths.into_iter().flat_map(pad).collect()
}

#[test]
fn fixture_trees_are_the_same() {
    let mut cases = 0;
    for path in ["tree", "hass", "griffin"].into_iter().flat_map(files) {
        let fixture = Fixture::open(&path);
        for case in fixture.cases("draft_tokens") {
            if !fixture.has(&format!("{}step0.logits", recorded(&case))) {
                continue;
            }
            let tree = build(&fixture, &case);
            let tokens: Vec<i64> = tree.tokens.iter().map(|&token| token.into()).collect();
            assert_eq!(tokens, fixture.i64(&format!("{case}draft_tokens")), "{case}");
            let depths: Vec<i64> = tree.depths.iter().map(|&depth| depth as i64).collect();
            assert_eq!(depths, fixture.i64(&format!("{case}tree_position_ids")), "{case}");
            let sees: Vec<u8> = tree.sees().iter().flatten().map(|&seen| seen.into()).collect();
            assert_eq!(sees, fixture.u8(&format!("{case}tree_mask")), "{case}");
            let paths = padded(tree.leaf_paths(), case.ends_with("_sampling."));
            assert_eq!(paths, fixture.i64(&format!("{case}retrieve_indices")), "{case}");
            cases += 1;
        }
    }
    assert!(cases > 2, "no tree cases found beside those of two drafts");
}
