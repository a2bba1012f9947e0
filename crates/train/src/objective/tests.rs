//! The numbers and reductions that the objectives must meet, by exact enumeration.

#![allow(clippy::excessive_precision)] // The numbers stand as they were computed, in f64.

use burn::prelude::*;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

use super::*;
use crate::estep;

const P: [f32; 4] = [0.4, 0.3, 0.2, 0.1];
const Q: [f32; 4] = [0.1, 0.2, 0.3, 0.4];

fn rng() -> ChaCha8Rng {
    ChaCha8Rng::seed_from_u64(0)
}

fn close(got: &[f32], want: &[f32], tolerance: f32) {
    assert_eq!(got.len(), want.len());
    for (g, w) in got.iter().zip(want) {
        assert!((g - w).abs() <= tolerance, "got {got:?}, expected {want:?}");
    }
}

fn table(values: &[f32], rows: usize) -> Tensor<2> {
    let data = TensorData::new(values.to_vec(), [rows, values.len() / rows]);
    Tensor::from_data(data, &Device::flex().autodiff()).require_grad()
}

fn gradient(loss: &Tensor<1>, of: &Tensor<2>) -> Vec<f32> {
    of.grad(&loss.backward()).expect("the loss depends on the table").into_data().try_into_vec().unwrap()
}

fn norm(values: &[f32]) -> f32 {
    values.iter().map(|v| v * v).sum::<f32>().sqrt()
}

fn logs(values: &[f32]) -> Vec<f32> {
    values.iter().map(|v| v.ln()).collect()
}

/// One anchor, one step: logits with p as the target.
fn one_position(logits: &Tensor<2>, p: &[f32]) -> Unrolled {
    let target = Tensor::from_data(TensorData::new(p.to_vec(), [1, p.len()]), &Device::flex());
    let step = Step {
        logits: logits.clone(),
        target,
        trains: vec![true],
        greedy: vec![Some(0)],
        tokens: vec![Some(0)],
        features: None,
    };
    Unrolled { steps: vec![step], weights: vec![1.0], following: vec![None], paths: None }
}

const SOFT_CE: SoftCe = SoftCe { decay: 0.8 };
const EM: Em = Em {
    samples: 2,
    oracle: Oracle::Greedy,
    anchors: 1,
    arw: true,
    car: false,
    gamma: 1.0,
    negative: Negative::Unbounded,
    lambda: 1.0,
    anchor: 0.0,
    soft_ce: SOFT_CE,
};
const ELBO: Elbo = Elbo { samples: 2, anchors: 1, anchor: 0.0, soft_ce: SOFT_CE };

/// Every ordered pair of outcomes as its own anchor, weighted by its probability: the mean over anchors is then the exact
/// expectation of an S=2 estimator. `sampled` and `corrected` are `[n, L]`.
fn all_pairs(sampled: &Tensor<2>, corrected: &Tensor<2>, fates: &[PathFate], probability: &[f32]) -> PathBatch {
    let [n, steps] = sampled.dims();
    let index: Vec<i64> = (0..n * n).flat_map(|i| [(i / n) as i64, (i % n) as i64]).collect();
    let index = Tensor::<1, Int>::from_data(TensorData::new(index, [n * n * 2]), &sampled.device());
    let pick = |t: &Tensor<2>| t.clone().select(0, index.clone()).reshape([n * n, 2, steps]);
    PathBatch {
        sampled: pick(sampled),
        corrected: pick(corrected),
        fates: (0..n * n).flat_map(|i| [fates[i / n].clone(), fates[i % n].clone()]).collect(),
        weights: (0..n * n).map(|i| probability[i / n] * probability[i % n]).collect(),
        out_of_vocabulary: 0,
    }
}

fn elbo_of(paths: PathBatch) -> Tensor<1> {
    // The unroll itself is not read: there is no anchor term.
    let unrolled = Unrolled { steps: vec![], weights: vec![], following: vec![], paths: Some(paths) };
    ELBO.loss(&unrolled, &mut rng()).value
}

fn fate(reward: f32) -> PathFate {
    PathFate { tokens: vec![], survived: 0, accepted: false, horizon: 1, confidence: 0.0, reward }
}

#[test]
fn soft_ce_at_one_position() {
    let logits = table(&logs(&Q), 1);
    let loss = SOFT_CE.loss(&one_position(&logits, &P), &mut rng()).value;
    let entropy: f32 = P.iter().map(|p| -p * p.ln()).sum();
    close(&[loss.clone().into_scalar::<f32>() - entropy], &[0.45643482], 2e-6);
    close(&gradient(&loss, &logits), &[-0.3, -0.1, 0.1, 0.3], 1e-6);
}

#[test]
fn rivals_at_one_position() {
    // Names, values (soft CE's less the target's entropy) and gradients on the logits of q.
    let hybrid: Vec<f32> = [-0.3, -0.1, 0.1, 0.3]
        .iter()
        .zip([-0.07, -0.14, 0.09, 0.12])
        .map(|(kl, tv)| 0.16529889 * kl + (1.0 - 0.16529889) * tv)
        .collect();
    let cases: [(Box<dyn Objective>, f32, Vec<f32>); 4] = [
        (Box::new(Tv::default()), 0.4, vec![-0.07, -0.14, 0.09, 0.12]),
        (Box::new(Lk::default()), -(0.6f32.ln()), vec![-0.11666667, -0.23333333, 0.15, 0.2]),
        (Box::new(LkHybrid::default()), 0.40932861, hybrid),
        (Box::new(Ce::default()), -(0.1f32.ln()), vec![0.1 - 1.0, 0.2, 0.3, 0.4]),
    ];
    for (objective, value, slope) in cases {
        let logits = table(&logs(&Q), 1);
        let loss = objective.loss(&one_position(&logits, &P), &mut rng()).value;
        close(&[loss.clone().into_scalar()], &[value], 1e-6);
        close(&gradient(&loss, &logits), &slope, 1e-6);
    }
}

#[test]
fn a_draft_that_misses_the_target_altogether_has_finite_losses() {
    let (p, logits) = ([1.0, 0.0, 0.0, 0.0], table(&[-80.0, 0.0, 0.0, 80.0], 1));
    let rivals: [Box<dyn Objective>; 3] =
        [Box::new(Tv::default()), Box::new(Lk::default()), Box::new(LkHybrid::default())];
    for objective in rivals {
        let loss = objective.loss(&one_position(&logits, &p), &mut rng()).value;
        assert!(loss.clone().into_scalar::<f32>().is_finite(), "{}", objective.name());
        assert!(gradient(&loss, &logits).iter().all(|g| g.is_finite()), "{}", objective.name());
    }
}

#[test]
fn dpace_weighs_the_greedy_path_by_survival() {
    close(&Dpace::default().weights(&[0.9, 0.5, 0.8]), &[2.30375, 1.35375, 0.64125], 1e-6);
    let (logits, unrolled) = greedy_example();
    let got = gradient(&Dpace { smoothing: 0.0 }.loss(&unrolled, &mut rng()).value, &logits);
    let (logits, unrolled) = greedy_example();
    let survival = Survival { samples: 1, negatives: false, anchor: 0.0, soft_ce: SOFT_CE };
    close(&got, &gradient(&survival.loss(&unrolled, &mut rng()).value, &logits), 2e-6);
}

#[test]
fn vat_decays_behind_the_first_rejection() {
    let vat = Vat::default();
    let weights: Vec<f32> = (0..5).map(|j| vat.weight(j, Some(2))).collect();
    close(&weights, &[1.0, 1.0, 1.0, 0.8, 0.64], 1e-6);
    // The second step's target turns to the other token, which the draft (.6 against .4) does not take: the third decays.
    let logits = table(&logs(&[0.9, 0.1, 0.6, 0.4, 0.8, 0.2]), 3);
    let step = |j: usize, greedy: u32| Step {
        logits: logits.clone().slice([j..j + 1, 0..2]),
        target: Tensor::from_data([[1.0f32 - greedy as f32, greedy as f32]], &Device::flex()),
        trains: vec![true],
        greedy: vec![Some(greedy)],
        tokens: vec![None],
        features: None,
    };
    let unrolled = Unrolled {
        steps: vec![step(0, 0), step(1, 1), step(2, 0)],
        weights: vec![1.0],
        following: vec![None],
        paths: None,
    };
    let loss = vat.loss(&unrolled, &mut rng()).value;
    close(&[loss.into_scalar()], &[-(0.9f32.ln()) - 0.4f32.ln() - 0.8 * 0.8f32.ln()], 1e-6);
}

#[test]
fn a_sum_is_the_weighted_sum_of_its_terms() {
    let term = |weight, objective| Term { weight, objective };
    let sum = Sum {
        terms: vec![
            term(2.0, crate::ObjectiveConfig::Tv(Tv::default())),
            term(0.5, crate::ObjectiveConfig::Lk(Lk::default())),
        ],
    };
    let logits = table(&logs(&Q), 1);
    let loss = sum.loss(&one_position(&logits, &P), &mut rng());
    close(&[loss.value.clone().into_scalar()], &[2.0 * 0.4 - 0.5 * 0.6f32.ln()], 1e-6);
    let want: Vec<f32> = [-0.07, -0.14, 0.09, 0.12]
        .iter()
        .zip([-0.11666667, -0.23333333, 0.15, 0.2])
        .map(|(a, b)| 2.0 * a + 0.5 * b)
        .collect();
    close(&gradient(&loss.value, &logits), &want, 1e-6);
    assert_eq!(loss.logged.len(), 2);
    assert!((loss.logged[0].1 - 0.4).abs() < 1e-6 && loss.logged[1].0 == "lk");
}

#[test]
fn oracle_and_posterior_at_one_position() {
    let kappa: Vec<f32> = P.iter().zip(Q).map(|(p, q)| estep::log_alpha(p.ln(), q.ln()).exp()).collect();
    close(&kappa, &[1.0, 1.0, 0.66666667, 0.25], 1e-6);
    close(&[kappa.iter().zip(Q).map(|(k, q)| k * q).sum()], &[0.6], 1e-6);
    let joint: Vec<f32> = kappa.iter().zip(P).map(|(k, p)| k * p).collect();
    let z: f32 = joint.iter().sum();
    close(&[z], &[0.85833333], 1e-6);
    let posterior: Vec<f32> = joint.iter().map(|j| j / z).collect();
    close(&posterior, &[0.46601942, 0.34951456, 0.15533981, 0.02912621], 1e-6);

    // Weighted likelihood of the posterior: ascent gradient posterior - q.
    let logits = table(&logs(&Q), 1);
    let log_q = token_log_probs(&logits, vec![0, 1, 2, 3], 4).reshape([4, 1, 1]);
    let fates = vec![fate(0.0); 4];
    let paths = PathBatch { sampled: log_q.clone(), corrected: log_q, fates, weights: posterior, out_of_vocabulary: 0 };
    let ascent: Vec<f32> = gradient(&EM.m_step(&paths), &logits).iter().map(|g| -g).collect();
    close(&ascent, &[0.36601942, 0.14951456, -0.14466019, -0.37087379], 1e-6);
}

/// kappa == 1 makes the target itself the posterior: the weighted likelihood's gradient is soft CE's.
#[test]
fn em_without_rejection_is_soft_cross_entropy() {
    let logits = table(&logs(&Q), 1);
    let log_q = token_log_probs(&logits, vec![0, 1, 2, 3], 4).reshape([4, 1, 1]);
    let accepted = PathFate { survived: 1, accepted: true, ..fate(0.0) };
    let (fates, weights) = (vec![accepted; 4], P.to_vec());
    let paths = PathBatch { sampled: log_q.clone(), corrected: log_q, fates, weights, out_of_vocabulary: 0 };
    let em = Em { samples: 1, ..EM };
    let want = gradient(&SOFT_CE.loss(&one_position(&logits, &P), &mut rng()).value, &logits);
    close(&gradient(&em.m_step(&paths), &logits), &want, 1e-6);
}

/// beta = c = 0: cross-entropy on the accepted and the corrected paths, whatever was rejected.
#[test]
fn em_without_negatives_is_cross_entropy_on_the_filtered_set() {
    for negative in [Negative::Bounded, Negative::Unbounded] {
        let (logits, unrolled) = greedy_example();
        // One path accepted, one rejected at its second token: both imitate the greedy path.
        let paths = estep::judge_greedy(&unrolled, 2, &[vec![0, 0], vec![0, 1], vec![0, 0]]);
        let loss = Em { arw: false, negative, ..EM }.m_step(&paths);
        close(&[loss.clone().into_scalar::<f32>()], &[-(0.9f32 * 0.5 * 0.8).ln()], 1e-6);
        close(&gradient(&loss, &logits), &[-0.1, 0.1, -0.5, 0.5, -0.2, 0.2], 1e-6);
    }
}

/// The exact expectation of the S=2 ELBO estimator at one position, and the mean reward.
fn elbo_at_one_position(p: &[f32], q: &[f32], kappa_is_one: bool) -> (f32, Vec<f32>) {
    let logits = table(&logs(q), 1);
    let reward = |z: usize| {
        let (p, q) = (p[z].ln(), q[z].ln());
        p - q + if kappa_is_one { 0.0 } else { estep::log_alpha(p, q) }
    };
    let fates: Vec<PathFate> = (0..4).map(|z| fate(reward(z))).collect();
    let bound = (0..4).map(|z| q[z] * reward(z)).sum();
    let log_q = token_log_probs(&logits, vec![0, 1, 2, 3], 4).reshape([4, 1]);
    let loss = elbo_of(all_pairs(&log_q, &log_q, &fates, q));
    (bound, gradient(&loss, &logits).iter().map(|g| -g).collect())
}

#[test]
fn elbo_at_one_position_and_its_reductions() {
    let (bound, ascent) = elbo_at_one_position(&P, &Q, false);
    close(&[bound], &[-1.13259210], 2e-6);
    close(&ascent, &[0.25188865, 0.30761144, 0.09649856, -0.65599865], 2e-6);

    // kappa == 1 is the reverse KL, whose descent gradient is q (log q/p - KL).
    let (bound, ascent) = elbo_at_one_position(&P, &Q, true);
    close(&[bound], &[-0.45643482], 2e-6);
    let want: Vec<f32> = P.iter().zip(Q).map(|(p, q)| -q * ((q / p).ln() - 0.45643482)).collect();
    close(&ascent, &want, 1e-6);

    // q = p: nothing to learn.
    let (_, ascent) = elbo_at_one_position(&P, &P, false);
    close(&ascent, &[0.0; 4], 1e-7);
}

#[test]
fn ratio_em_imitates_the_target_exactly_at_one_position() {
    // Outcomes: token z survives with min(1, p/q), else one residual token is imitated. Over all S=2 pairs the control
    // variate vanishes and the imitated token is distributed as p: soft CE's gradient.
    let logits = table(&logs(&Q), 1);
    let (mut drawn, mut imitated, mut fates, mut probability) = (vec![], vec![], vec![], vec![]);
    let rest = estep::residual(&P, &Q, &[0, 1, 2, 3]);
    let rest_mass: f32 = rest.iter().sum();
    for z in 0..4 {
        let keep = estep::log_alpha(P[z].ln(), Q[z].ln()).exp();
        for (c, accepted, chance) in
            (0..4).map(|c| (c, false, (1.0 - keep) * rest[c] / rest_mass)).chain([(z, true, keep)])
        {
            drawn.push(z as u32);
            imitated.push(c as u32);
            probability.push(Q[z] * chance);
            fates.push(PathFate {
                tokens: vec![z as u32],
                survived: usize::from(accepted),
                accepted,
                horizon: 1,
                confidence: Q[z].ln(),
                reward: 0.0,
            });
        }
    }
    let n = drawn.len();
    let sampled = token_log_probs(&logits, drawn, n).reshape([n, 1]);
    let corrected = token_log_probs(&logits, imitated, n).reshape([n, 1]);
    let loss = EM.m_step(&all_pairs(&sampled, &corrected, &fates, &probability));
    close(&gradient(&loss, &logits), &[-0.3, -0.1, 0.1, 0.3], 1e-6);
}

/// Three steps of a two-token draft whose probability of the greedy token 0 is .9, .5, .8; logits of all steps in one table.
fn greedy_example() -> (Tensor<2>, Unrolled) {
    let logits = table(&[0.9f32.ln(), 0.1f32.ln(), 0.5f32.ln(), 0.5f32.ln(), 0.8f32.ln(), 0.2f32.ln()], 3);
    let steps = (0..3)
        .map(|j| Step {
            logits: logits.clone().slice([j..j + 1, 0..2]),
            target: Tensor::from_data([[1.0f32, 0.0]], &Device::flex()),
            trains: vec![true],
            greedy: vec![Some(0)],
            tokens: vec![Some(0)],
            features: None,
        })
        .collect();
    (logits, Unrolled { steps, weights: vec![1.0], following: vec![None], paths: None })
}

#[test]
fn survival_on_the_greedy_path() {
    let cases: [(usize, f32, Option<[f32; 3]>); 4] = [
        (1, 1.71, Some([1.71, 0.81, 0.36])),
        (2, 2.2779, Some([1.1358, 0.9558, 0.4608])),
        (4, 2.74062159, Some([0.68056236, 0.67696236, 0.37748736])),
        (8, 2.96347910, None),
    ];
    for (samples, length, slopes) in cases {
        let (logits, unrolled) = greedy_example();
        let survival = Survival { samples, negatives: false, anchor: 0.0, soft_ce: SOFT_CE };
        let value = survival.loss(&unrolled, &mut rng()).value;
        close(&[-value.clone().into_scalar::<f32>()], &[length], 3e-6);
        if let Some(slopes) = slopes {
            let grad = gradient(&value, &logits);
            // d log q / d logit of the token itself is 1 - q.
            let want: Vec<f32> = slopes.iter().zip([0.1, 0.5, 0.2]).map(|(s, rest)| -s * rest).collect();
            close(&[grad[0], grad[2], grad[4]], &want, 2e-6);
        }
    }
}

#[test]
fn one_greedy_sample_is_cross_entropy_on_the_greedy_path() {
    let (logits, unrolled) = greedy_example();
    let em = Em { samples: 1, negative: Negative::Bounded, car: true, ..EM };
    let loss = em.loss(&unrolled, &mut rng()).value;
    close(&[loss.clone().into_scalar::<f32>()], &[-(0.9f32 * 0.5 * 0.8).ln()], 1e-6);
    close(&gradient(&loss, &logits), &[-0.1, 0.1, -0.5, 0.5, -0.2, 0.2], 1e-6);
}

#[test]
fn a_rejected_confident_path_is_pushed_down_only_beside_accepted_ones() {
    // Two samples: one survives, one puts .5 on the wrong token at step 1.
    let (logits, unrolled) = greedy_example();
    let tokens = vec![vec![0, 0], vec![0, 1], vec![0, 0]];
    let bounded = Em { negative: Negative::Bounded, car: true, ..EM };
    let with = gradient(&bounded.m_step(&estep::judge_greedy(&unrolled, 2, &tokens)), &logits);
    // beta = .9 for the rejected: mean over two paths of .9 * -log(1 - q), whose gradient on the wrong logit is q.
    close(&with[2..4], &[-0.5 - 0.45 * 0.5, 0.5 + 0.45 * 0.5], 1e-6);
    let (logits, unrolled) = greedy_example();
    let none = vec![vec![0, 0], vec![1, 1], vec![0, 0]];
    let without = gradient(&bounded.m_step(&estep::judge_greedy(&unrolled, 2, &none)), &logits);
    close(&without, &[-0.1, 0.1, -0.5, 0.5, -0.2, 0.2], 1e-6);
}

#[test]
fn survival_pushes_down_what_em_pushes_down() {
    let example = |loss: &dyn Fn(&Unrolled) -> Tensor<1>| {
        let (logits, unrolled) = greedy_example();
        gradient(&loss(&unrolled), &logits)
    };
    let em = |arw| Em { samples: 4, negative: Negative::Bounded, car: true, arw, ..EM };
    let survival = |negatives| Survival { samples: 4, negatives, anchor: 0.0, soft_ce: SOFT_CE };
    let of_em = |arw| example(&|unrolled| em(arw).loss(unrolled, &mut rng()).value);
    let of_survival = |negatives| example(&|unrolled| survival(negatives).loss(unrolled, &mut rng()).value);
    let minus = |a: Vec<f32>, b: Vec<f32>| a.iter().zip(&b).map(|(a, b)| a - b).collect::<Vec<_>>();
    let pushed = minus(of_survival(true), of_survival(false));
    close(&pushed, &minus(of_em(true), of_em(false)), 1e-6);
    assert!(pushed.iter().any(|push| push.abs() > 0.01), "{pushed:?}");
}

// ---- the tabular model: V=4, K=3, 21 contexts ----

fn target_logits() -> Vec<f32> {
    (0..21).flat_map(|i| (0..4).map(move |v| 2.0 * (1.0 + 0.7 * i as f32 + 1.3 * v as f32).sin())).collect()
}

fn draft_logits() -> Vec<f32> {
    (0..21).flat_map(|i| (0..4).map(move |v| 1.5 * (0.5 + 0.9 * i as f32 + 0.8 * v as f32).cos())).collect()
}

fn log_softmax_rows(logits: &[f32]) -> Vec<f32> {
    let rows = logits.chunks(4).flat_map(|row| {
        let sum: f64 = row.iter().map(|x| f64::from(*x).exp()).sum();
        row.iter().map(move |x| (f64::from(*x) - sum.ln()) as f32)
    });
    rows.collect()
}

fn argmax(row: &[f32]) -> usize {
    (0..row.len()).max_by(|a, b| row[*a].total_cmp(&row[*b])).unwrap()
}

/// All 64 paths as (context, token) per step.
fn paths() -> Vec<[(usize, usize); 3]> {
    (0..64).map(|i| (i / 16, i / 4 % 4, i % 4)).map(|(a, b, c)| [(0, a), (1 + a, b), (5 + 4 * a + b, c)]).collect()
}

struct Enumerated {
    log_p: Vec<f32>,
    log_q: Vec<f32>,
    kappa: Vec<f32>,
    reward: Vec<f32>,
}

impl Enumerated {
    /// The same paths and kappa under a draft with other logits.
    fn at(&self, logits: &[f32]) -> Self {
        let q = log_softmax_rows(logits);
        let log_q: Vec<f32> = paths().iter().map(|z| z.iter().map(|(c, t)| q[4 * c + t]).sum()).collect();
        let reward = (0..64).map(|i| self.kappa[i] + self.log_p[i] - log_q[i]).collect();
        Self { log_p: self.log_p.clone(), log_q, kappa: self.kappa.clone(), reward }
    }

    fn bound(&self) -> f32 {
        (0..64).map(|i| self.log_q[i].exp() * self.reward[i]).sum()
    }
}

fn enumerate(greedy_floor: Option<f32>) -> Enumerated {
    let (p, q) = (log_softmax_rows(&target_logits()), log_softmax_rows(&draft_logits()));
    let alpha = |&(c, t): &(usize, usize)| match greedy_floor {
        None => estep::log_alpha(p[4 * c + t], q[4 * c + t]),
        Some(eps) => {
            if argmax(&p[4 * c..4 * c + 4]) == t {
                0.0
            } else {
                eps.ln()
            }
        }
    };
    let sum = |f: &dyn Fn(&(usize, usize)) -> f32| paths().iter().map(|z| z.iter().map(f).sum()).collect::<Vec<f32>>();
    let log_p = sum(&|&(c, t)| p[4 * c + t]);
    let log_q = sum(&|&(c, t)| q[4 * c + t]);
    let kappa = sum(&|step| alpha(step));
    let reward = (0..64).map(|i| kappa[i] + log_p[i] - log_q[i]).collect();
    Enumerated { log_p, log_q, kappa, reward }
}

/// log q of every path's tokens `[64, 3]`, with gradients to the table.
fn path_log_probs(draft: &Tensor<2>) -> Tensor<2> {
    let all = token_log_probs(draft, (0..21).flat_map(|_| [0, 1, 2, 3]).collect(), 4).reshape([84]);
    let index: Vec<i64> = paths().iter().flatten().map(|(c, t)| (4 * c + t) as i64).collect();
    all.select(0, Tensor::from_data(TensorData::new(index, [192]), &draft.device())).reshape([64, 3])
}

fn tabular_elbo_ascent(e: &Enumerated) -> Vec<f32> {
    tabular_elbo_ascent_at(&draft_logits(), e)
}

/// The exact expectation of the S=2 estimator's ascent direction for a draft with these logits.
fn tabular_elbo_ascent_at(logits: &[f32], e: &Enumerated) -> Vec<f32> {
    let draft = table(logits, 21);
    let log_q = path_log_probs(&draft);
    let fates: Vec<PathFate> = e.reward.iter().map(|r| fate(*r)).collect();
    let probability: Vec<f32> = e.log_q.iter().map(|l| l.exp()).collect();
    let loss = elbo_of(all_pairs(&log_q, &log_q, &fates, &probability));
    gradient(&loss, &draft).iter().map(|g| -g).collect()
}

#[test]
fn tabular_bound_and_partition() {
    let e = enumerate(None);
    let expect = |weights: &[f32], f: &dyn Fn(usize) -> f32| (0..64).map(|i| weights[i].exp() * f(i)).sum::<f32>();
    let z = expect(&e.log_p, &|i| e.kappa[i].exp());
    close(&[z, z.ln()], &[0.735085091, -0.307769016], 2e-6);
    let bound = expect(&e.log_q, &|i| e.reward[i]);
    close(&[bound], &[-3.723254441], 1e-5);
    close(&[expect(&e.log_q, &|i| e.log_q[i] - e.log_p[i])], &[1.561791623], 1e-5);
    close(&[z.ln() - bound], &[3.415485425], 1e-5);
    close(&[expect(&e.log_q, &|i| e.kappa[i].exp())], &[0.272277842], 2e-6);
    close(&[expect(&e.log_q, &|i| e.kappa[i])], &[-2.161462818], 1e-5);
    let first = |t: usize| (0..64).filter(|i| i / 16 == t).map(|i| (e.log_p[i] + e.kappa[i]).exp() / z).sum::<f32>();
    close(&[first(0), first(1), first(2), first(3)], &[0.511801, 0.459353, 0.023673, 0.005173], 2e-6);

    let e = enumerate(Some(0.05));
    let z: f32 = (0..64).map(|i| (e.log_p[i] + e.kappa[i]).exp()).sum();
    let bound: f32 = (0..64).map(|i| e.log_q[i].exp() * e.reward[i]).sum();
    close(&[z.ln(), bound], &[-1.405045420, -6.763309416], 1e-5);
}

#[test]
fn tabular_elbo_gradient_over_all_pairs_is_exact() {
    let ascent = tabular_elbo_ascent(&enumerate(None));
    close(&[norm(&ascent)], &[0.897765627], 1e-5);
    close(&ascent[..4], &[0.334053, -0.121238, -0.129012, -0.083803], 2e-6);
    close(&[norm(&tabular_elbo_ascent(&enumerate(Some(0.05))))], &[1.608137522], 2e-5);
}

/// The bound by enumeration with the gradient through kappa too, which no objective takes (kappa is detached): how far that
/// gradient is from the frozen one.
#[test]
fn tabular_elbo_gradient_through_kappa_is_another() {
    let draft = table(&draft_logits(), 21);
    let log_q = path_log_probs(&draft);
    let p = log_softmax_rows(&target_logits());
    let log_p: Vec<f32> = paths().iter().flatten().map(|(c, t)| p[4 * c + t]).collect();
    let log_p = constant(log_p, &draft.device()).reshape([64, 3]);
    let reward = (log_p.clone() - log_q.clone()).clamp_max(0.0) + log_p - log_q.clone();
    let bound = (log_q.sum_dim(1).exp() * reward.sum_dim(1)).sum();
    close(&[bound.clone().into_scalar()], &[-3.723254441], 1e-5);
    close(&[norm(&gradient(&bound, &draft))], &[1.042781451], 1e-5);
}

/// Plain ascent, rate 2, kappa as it is at the start: the estimator's own gradient climbs to log Z.
#[test]
fn tabular_elbo_ascent_reaches_the_recorded_bounds() {
    let start = enumerate(None);
    let log_z = (0..64).map(|i| (start.log_p[i] + start.kappa[i]).exp()).sum::<f32>().ln();
    let mut logits = draft_logits();
    let mut bounds = vec![];
    for _ in 0..100 {
        let e = start.at(&logits);
        let rise = tabular_elbo_ascent_at(&logits, &e);
        logits.iter_mut().zip(rise).for_each(|(x, g)| *x += 2.0 * g);
        bounds.push(start.at(&logits).bound());
    }
    close(&[bounds[0], bounds[9], bounds[99]], &[-2.267, -1.084, -0.374], 6e-4);
    assert!(bounds.windows(2).all(|pair| pair[0] <= pair[1] + 1e-6) && bounds[99] < log_z, "{bounds:?}");
}

#[test]
fn tabular_acceptance_lengths() {
    // Chain speculative sampling: the mean number of leading tokens that survive.
    let (p, q) = (log_softmax_rows(&target_logits()), log_softmax_rows(&draft_logits()));
    let e = enumerate(None);
    let length: f32 = paths()
        .iter()
        .zip(&e.log_q)
        .map(|(z, log_q)| {
            let mut kept = 0.0;
            let lengths = z.iter().map(|(c, t)| {
                kept += estep::log_alpha(p[4 * c + t], q[4 * c + t]);
                f32::exp(kept)
            });
            log_q.exp() * lengths.sum::<f32>()
        })
        .sum();
    close(&[length], &[1.656926149], 1e-5);

    let unrolled = tabular_greedy(&table(&draft_logits(), 21), 1, vec![1.0]);
    for (samples, want) in [(1, 1.054286470), (4, 2.041178846)] {
        let survival = Survival { samples, negatives: false, anchor: 0.0, soft_ce: SOFT_CE };
        close(&[survival.expected_length(&unrolled).into_scalar()], &[want], 1e-5);
    }
}

/// The teacher-forced rows along the tabular greedy path, the same at every anchor.
fn tabular_greedy(draft: &Tensor<2>, anchors: usize, weights: Vec<f32>) -> Unrolled {
    let target = log_softmax_rows(&target_logits());
    let mut context = [0, 0, 0];
    let mut greedy = [0, 0, 0];
    for j in 0..3 {
        context[j] = [0, 1 + greedy[0], 5 + 4 * greedy[0] + greedy[1]][j];
        greedy[j] = argmax(&target[4 * context[j]..4 * context[j] + 4]);
    }
    assert_eq!(greedy, [0, 0, 3]);
    let steps = (0..3).map(|j| Step {
        logits: draft.clone().slice([context[j]..context[j] + 1, 0..4]).repeat_dim(0, anchors),
        target: Tensor::zeros([anchors, 4], &Device::flex()),
        trains: vec![true; anchors],
        greedy: vec![Some(greedy[j] as u32); anchors],
        tokens: vec![Some(greedy[j] as u32); anchors],
        features: None,
    });
    Unrolled { steps: steps.collect(), weights, following: vec![None; anchors], paths: None }
}

#[test]
fn tabular_em_over_all_greedy_pairs_is_cross_entropy_on_the_greedy_path() {
    // 64 x 64 pairs of paths on the teacher-forced rows, each weighted by its probability there.
    let q = log_softmax_rows(&draft_logits());
    let chance: Vec<f32> = (0..64).map(|i| (q[i / 16] + q[4 + i / 4 % 4] + q[20 + i % 4]).exp()).collect();
    let weights: Vec<f32> = (0..4096).map(|i| chance[i / 64] * chance[i % 64]).collect();
    let draft = table(&draft_logits(), 21);
    let unrolled = tabular_greedy(&draft, 4096, weights);
    let digit = |path: usize, j: usize| (path / [16, 4, 1][j] % 4) as u32;
    let tokens: Vec<Vec<u32>> =
        (0..3).map(|j| (0..4096).flat_map(|i| [digit(i / 64, j), digit(i % 64, j)]).collect()).collect();
    let paths = estep::judge_greedy(&unrolled, 2, &tokens);
    assert!(paths.acceptance() > 0.0 && paths.acceptance() < 1.0);
    let got = gradient(&EM.m_step(&paths), &draft);

    let draft = table(&draft_logits(), 21);
    let one = tabular_greedy(&draft, 1, vec![1.0]);
    let want = gradient(&Em { samples: 1, ..EM }.loss(&one, &mut rng()).value, &draft);
    close(&got, &want, 3e-6);
    assert!(norm(&want) > 0.5);
}
