//! Acceptance against the published implementation's recordings, with its uniforms.

use std::collections::HashMap;

use burn::prelude::*;
use sightdraft_decode::verify::Uniforms;
use sightdraft_decode::{DraftTree, Greedy, PointMass, Sampling, Verifier, Walk};
use sightdraft_fixtures::{Fixture, files, root};

/// Uniforms in the order recorded.
struct Recorded(std::vec::IntoIter<f64>);

impl Uniforms for Recorded {
    fn test(&mut self) -> f32 {
        self.0.next().expect("no more uniforms were drawn than recorded") as f32
    }
    fn draw(&mut self) -> f64 {
        unreachable!("the recordings end at the distribution of the bonus token")
    }
}

/// A case as a tree: equal prefixes of the candidate rows are one node.
struct Case {
    tree: DraftTree,
    logits: Vec<Vec<f32>>,
    candidates: Vec<Vec<i64>>,
    node_of: HashMap<Vec<i64>, usize>,
}

impl Case {
    fn open(fixture: &Fixture, case: &str) -> Self {
        let shape = fixture.shape(&format!("{case}.candidates"));
        let candidates: Vec<Vec<i64>> =
            fixture.i64(&format!("{case}.candidates")).chunks(shape[1]).map(<[i64]>::to_vec).collect();
        let width = fixture.shape(&format!("{case}.logits"))[2];
        let rows: Vec<Vec<f32>> = fixture.f32(&format!("{case}.logits")).chunks(width).map(<[f32]>::to_vec).collect();
        let mut tree = DraftTree::root(candidates[0][0] as u32);
        let mut node_of = HashMap::from([(vec![candidates[0][0]], 0)]);
        let mut logits = vec![rows[0].clone()];
        for (row, candidate) in candidates.iter().enumerate() {
            for depth in 1..shape[1] {
                let prefix = candidate[..=depth].to_vec();
                if candidate[depth] < 0 || node_of.contains_key(&prefix) {
                    continue;
                }
                let node = tree.push(node_of[&prefix[..depth]], candidate[depth] as u32, 0.0);
                node_of.insert(prefix, node);
                logits.push(rows[row * shape[1] + depth].clone());
            }
        }
        Self { tree, logits, candidates, node_of }
    }

    fn recorded_path(&self, fixture: &Fixture, case: &str) -> Vec<usize> {
        let best = fixture.i64(&format!("{case}.best_candidate"))[0] as usize;
        let accepted = fixture.i64(&format!("{case}.accept_length"))[0] as usize;
        (0..=accepted).map(|depth| self.node_of[&self.candidates[best][..=depth]]).collect()
    }
}

fn sampling(fixture: &Fixture, case: &str) -> Sampling {
    let filter = fixture.f32(&format!("{case}.top_p_top_k"));
    let top_p = if filter[0] > 0.0 { filter[0] } else { 1.0 };
    let temperature = fixture.f64(&format!("{case}.temperature"))[0] as f32;
    Sampling { temperature, top_p, top_k: filter[1].max(0.0) as usize, seed: 0 }
}

fn max_diff(a: &[f32], b: &[f32]) -> f32 {
    a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
}

/// Every file of the folder with its cases that record both inputs and uniforms.
fn recordings() -> Vec<(Fixture, Vec<String>)> {
    let open = |path: std::path::PathBuf| {
        let fixture = Fixture::open(&path);
        let cases: Vec<String> =
            fixture.cases(".candidates").into_iter().filter(|case| fixture.has(&format!("{case}.sample_p"))).collect();
        (!cases.is_empty()).then_some((fixture, cases))
    };
    let found: Vec<_> = files("posterior").into_iter().filter_map(open).collect();
    assert!(!found.is_empty(), "no recorded posteriors found");
    found
}

fn check(fixture: &Fixture, case: &str) {
    let this = Case::open(fixture, case);
    let expected = fixture.f32(&format!("{case}.sample_p"));
    let sampling = sampling(fixture, case);
    let path = this.recorded_path(fixture, case);
    if sampling.is_greedy() {
        let width = this.logits[0].len();
        let data = TensorData::new(this.logits.concat(), [this.logits.len(), width]);
        let verdict = Greedy.verify(&this.tree, Tensor::from_data(data, &Device::flex()));
        assert_eq!(verdict.path, path, "{case}");
        assert_eq!(this.logits[*path.last().unwrap()], expected, "{case}");
        assert!(expected.iter().all(|&logit| logit <= expected[verdict.bonus as usize]), "{case}");
        return;
    }
    let uniforms = fixture.f64(&format!("{case}.uniforms"));
    let mut rule = Walk::new(PointMass, sampling, Recorded(uniforms.into_iter()));
    let (accepted, residual) = rule.accept(&this.tree, |node| this.logits[node].clone());
    assert_eq!(accepted, path, "{case}");
    assert!(max_diff(&residual, &expected) < 1e-6, "{case}: {}", max_diff(&residual, &expected));
}

#[test]
fn fixture_posteriors_are_the_same() {
    for (fixture, cases) in recordings() {
        cases.iter().for_each(|case| check(&fixture, case));
    }
}

#[test]
fn fixture_known_bad_bonus_is_not_ours() {
    let good = Fixture::open(&root().join("posterior/eagle.safetensors"));
    for path in files("posterior").into_iter().filter(|path| path.to_string_lossy().contains("known_bad")) {
        let bad = Fixture::open(&path);
        let mut differing = 0;
        for case in bad.cases(".sample_p") {
            let this = Case::open(&good, &case);
            let uniforms = good.f64(&format!("{case}.uniforms"));
            let mut rule = Walk::new(PointMass, sampling(&good, &case), Recorded(uniforms.into_iter()));
            let (_, residual) = rule.accept(&this.tree, |node| this.logits[node].clone());
            differing += usize::from(max_diff(&residual, &bad.f32(&format!("{case}.sample_p"))) > 1e-3);
        }
        assert!(differing > 0, "{}: the temperature must shape the bonus token too", path.display());
    }
}
