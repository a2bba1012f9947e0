//! The published EAGLE-3 losses from the recorded logits.

use burn::prelude::*;
use rand::SeedableRng;
use sightdraft_fixtures::{Fixture, root};
use sightdraft_train::objective::{Objective, SoftCe, Step, Unrolled};

/// The peer's step: targets and mask shifted left `k` times more, zeros moving in; all B*L positions are averaged.
fn step(file: &Fixture, case: &str, k: usize, to_target: &[usize]) -> Step {
    let shape = file.shape(&format!("{case}.target_logits_shifted"));
    let (batch, length, vocab) = (shape[0], shape[1], shape[2]);
    let logits = file.f32(&format!("{case}.step{k}.logits"));
    let target = file.f32(&format!("{case}.target_logits_shifted"));
    let mask = file.i64(&format!("{case}.loss_mask"));
    let (mut p, mut trains) = (vec![], vec![]);
    for (b, t) in (0..batch).flat_map(|b| (0..length).map(move |t| (b, t))) {
        let row = (t + k < length).then(|| &target[(b * length + t + k) * vocab..][..vocab]);
        let row = row.map_or_else(|| vec![0.0; vocab], <[f32]>::to_vec);
        let top = (0..vocab).rev().max_by(|x, y| row[*x].total_cmp(&row[*y])).unwrap();
        trains.push(t + k < length && mask[b * length + t + k] == 1 && to_target.contains(&top));
        let exp: Vec<f32> = to_target.iter().map(|v| row[*v].exp()).collect();
        let sum: f32 = exp.iter().sum();
        p.extend(exp.iter().map(|e| e / sum));
    }
    let shape = [batch * length, to_target.len()];
    let tensor = |values| Tensor::from_data(TensorData::new(values, shape), &Device::flex());
    let cells = trains.len();
    Step {
        logits: tensor(logits),
        target: tensor(p),
        trains,
        greedy: vec![None; cells],
        tokens: vec![None; cells],
        features: None,
    }
}

#[test]
fn fixture_eagle3_losses() {
    let dir = root().join("eagle3");
    let d2t = Fixture::open(&dir.join("model.safetensors")).i64("d2t");
    let to_target: Vec<usize> = d2t.iter().enumerate().map(|(d, offset)| (d as i64 + offset) as usize).collect();
    let file = Fixture::open(&dir.join("train_unroll.safetensors"));
    let cases = file.cases(".loss_total");
    assert!(!cases.is_empty());
    for case in cases {
        let count = (0..).take_while(|k| file.has(&format!("{case}.step{k}.ploss"))).count();
        let steps: Vec<Step> = (0..count).map(|k| step(&file, &case, k, &to_target)).collect();
        let anchors = steps[0].trains.len();
        let unrolled = Unrolled {
            steps,
            weights: vec![1.0 / anchors as f32; anchors],
            following: vec![None; anchors],
            paths: None,
        };
        for k in 0..count {
            let want = file.f32(&format!("{case}.step{k}.ploss"))[0];
            let got = SoftCe::step(&unrolled, k).into_scalar::<f32>();
            assert!((got - want).abs() <= 1e-5, "{case} step {k}: {got} against {want}");
        }
        let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(0);
        let got = SoftCe { decay: 0.8 }.loss(&unrolled, &mut rng).value.into_scalar::<f32>();
        let want = file.f32(&format!("{case}.loss_total"))[0];
        assert!((got - want).abs() <= 5e-5, "{case}: {got} against {want}");
    }
}
