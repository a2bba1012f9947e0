//! Whole training runs on a tiny random target.

use std::path::Path;

use burn::prelude::*;
use burn::tensor::activation::log_softmax;
use sightdraft_draft::{Draft, DraftConfig, DraftModel, Eagle3, FeatureRows, Method, VocabMap};
use sightdraft_target::{KvCache, Llama, LlamaConfig, Mask, Projection, Prompt, RopeConfig, Target};
use sightdraft_train::config::Features;
use sightdraft_train::features::{Batch, Sequence, restricted_head};
use sightdraft_train::objective::{Elbo, Em, Oracle, RolloutRequest, SoftCe, Vsd};
use sightdraft_train::rollout::rollout;
use sightdraft_train::{
    Example, ObjectiveConfig, OptimConfig, Setup, TrainConfig, Trainer, align, batches, checkpoint, estep,
};

fn target() -> Llama {
    let config = LlamaConfig {
        hidden_size: 32,
        intermediate_size: 48,
        num_hidden_layers: 4,
        num_attention_heads: 4,
        num_key_value_heads: 2,
        head_dim: 8,
        vocab_size: 40,
        max_position_embeddings: 128,
        rms_norm_eps: 1e-5,
        rope: RopeConfig { theta: 10_000.0, scaling: None },
        tie_word_embeddings: false,
    };
    let device = Device::flex();
    device.seed(3);
    let mut llama = Llama::init(&config, &device);
    // A wide head makes the random model's choices sharp, so that there is something to learn.
    let head = llama.lm_head.take().expect("not tied");
    llama.lm_head = Some(Projection::from_weight(head.plain().weight.val() * 20.0));
    llama
}

fn draft(target: &Llama) -> DraftModel {
    let config = DraftConfig::for_target(Method::Eagle3, &target.config, 30).unwrap();
    let device = Device::flex();
    device.seed(4);
    DraftModel::Eagle3(Eagle3::init(config, VocabMap::new((5..35).collect(), 40), target, &device))
}

/// A prompt, then what the target itself says to it.
fn example(target: &Llama, number: u32) -> Example {
    let mut ids: Vec<u32> = (0..4).map(|i| (number * 7 + i * 11) % 40).collect();
    for _ in 0..8 + number % 5 {
        let rows = target.rows(&Prompt { ids: ids.clone(), images: vec![] }).unwrap();
        let positions = [(0..ids.len()).collect()];
        let pass = target.forward(rows.embeds, &positions, &Mask::Causal, &mut target.new_cache(), &[]);
        let last = pass.hidden.slice([0..1, ids.len() - 1..ids.len(), 0..32]);
        let choice = target.logits(last).argmax(2).into_data().convert::<i64>().try_to_vec::<i64>().unwrap();
        ids.push(choice[0] as u32);
    }
    let assistant = (0..ids.len()).map(|i| i >= 4).collect();
    Example { id: number.to_string(), ids, assistant, images: vec![] }
}

fn recipe(objective: ObjectiveConfig) -> TrainConfig {
    TrainConfig {
        objective,
        unroll: 3,
        epochs: 2,
        batch_tokens: 30,
        accumulate: 2,
        optim: OptimConfig { lr: 3e-3, ..OptimConfig::default() },
        ..TrainConfig::default()
    }
}

fn setup<'a>(target: &'a Llama, config: TrainConfig, out: &Path) -> Setup<'a> {
    Setup {
        config,
        target,
        target_name: "tiny".into(),
        eos: vec![0],
        examples: (0..16).map(|i| example(target, i)).collect(),
        held_out: (20..24).map(|i| example(target, i)).collect(),
        features: out.join("features"),
        out: out.to_owned(),
    }
}

fn losses(trainer: &mut Trainer<'_>, steps: usize) -> Vec<f32> {
    (0..steps).map(|_| trainer.step().unwrap().expect("more steps").loss).collect()
}

/// Eight steps in one go, and four, a kill, four more: the same losses to the last bit, and the same draft.
fn resumes_exactly(objective: ObjectiveConfig, features: Features) {
    let target = target();
    let config = TrainConfig { features, ..recipe(objective) };
    // Made once: the device's random stream is shared with the tests beside this one.
    let fresh = draft(&target);
    let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let mut whole = Trainer::start(setup(&target, config.clone(), dirs[0].path()), fresh.clone()).unwrap();
    assert!(whole.total_steps() >= 8, "{} steps", whole.total_steps());
    let want = losses(&mut whole, 8);
    assert!(want.iter().all(|l| l.is_finite()));

    let mut first = Trainer::start(setup(&target, config.clone(), dirs[1].path()), fresh).unwrap();
    let mut got = losses(&mut first, 4);
    first.save().unwrap();
    // Work after the checkpoint is lost, and a checkpoint in the making is left behind half-written.
    losses(&mut first, 1);
    drop(first);
    let staged = dirs[1].path().join("last.new");
    std::fs::create_dir(&staged).unwrap();
    std::fs::write(staged.join("model.safetensors"), [0; 10]).unwrap();
    std::fs::rename(dirs[1].path().join("last"), dirs[1].path().join("last.old")).unwrap();

    let mut second = Trainer::resume(setup(&target, config, dirs[1].path())).unwrap();
    assert_eq!(second.steps_done(), 4);
    got.extend(losses(&mut second, 4));
    assert_eq!(got, want);
}

#[test]
fn soft_ce_resumes_to_the_same_losses() {
    resumes_exactly(ObjectiveConfig::SoftCe(SoftCe::default()), Features::Online);
}

#[test]
fn cached_features_resume_to_the_same_losses() {
    resumes_exactly(ObjectiveConfig::Vsd(Vsd::default()), Features::Disk);
}

#[test]
fn a_cache_is_filled_before_the_first_step() {
    let target = target();
    let out = tempfile::tempdir().unwrap();
    let config = TrainConfig {
        features: Features::Disk,
        max_steps: Some(1),
        ..recipe(ObjectiveConfig::SoftCe(SoftCe::default()))
    };
    let trainer = Trainer::start(setup(&target, config, out.path()), draft(&target)).unwrap();
    assert_eq!(trainer.missing_features().unwrap().numbers, (0..20).collect::<Vec<_>>());
    trainer.fill_cache().unwrap();
    assert_eq!(trainer.missing_features(), None);
}

#[test]
fn sampled_objectives_resume_to_the_same_losses() {
    resumes_exactly(ObjectiveConfig::Vsd(Vsd::Em(Em { samples: 4, ..Em::default() })), Features::Online);
    let ratio = Em { samples: 4, oracle: Oracle::Ratio, anchors: 3, ..Em::default() };
    resumes_exactly(ObjectiveConfig::Vsd(Vsd::Em(ratio)), Features::Online);
    let elbo = Elbo { samples: 4, anchors: 3, ..Elbo::default() };
    resumes_exactly(ObjectiveConfig::Vsd(Vsd::Elbo(elbo)), Features::Online);
}

#[test]
fn training_raises_acceptance_and_keeps_the_best() {
    let target = target();
    let out = tempfile::tempdir().unwrap();
    let config = TrainConfig { epochs: 12, ..recipe(ObjectiveConfig::SoftCe(SoftCe::default())) };
    let mut setup = setup(&target, config, out.path());
    // A random target has no rules that carry over: what is measured is what was trained on.
    setup.held_out = setup.examples.clone();
    let mut trainer = Trainer::start(setup, draft(&target)).unwrap();
    let before = trainer.measure_and_keep().unwrap();
    let first = trainer.step().unwrap().unwrap().loss;
    let mut last = first;
    while let Some(report) = trainer.step().unwrap() {
        last = report.loss;
    }
    assert!(last < 0.8 * first, "{first} to {last}");
    let after = trainer.measure_and_keep().unwrap();
    assert!(after.accepted > before.accepted, "{before:?} to {after:?}");
    assert_eq!(trainer.best().unwrap().held_out, after);
    let best = DraftModel::open(&out.path().join("best"), &target, &Device::flex()).unwrap();
    assert_eq!(best.vocab(), trainer.draft().vocab());
}

#[test]
fn another_recipe_or_directory_is_refused_in_a_sentence() {
    let target = target();
    let out = tempfile::tempdir().unwrap();
    let config = recipe(ObjectiveConfig::SoftCe(SoftCe::default()));
    let fresh = Trainer::resume(setup(&target, config.clone(), out.path())).err().unwrap().to_string();
    assert!(fresh.contains("expected a checkpoint, found none"), "{fresh}");
    let trainer = Trainer::start(setup(&target, config.clone(), out.path()), draft(&target)).unwrap();
    trainer.save().unwrap();
    assert!(checkpoint::exists(out.path()));
    let again = Trainer::start(setup(&target, config.clone(), out.path()), draft(&target)).err().unwrap().to_string();
    assert!(again.contains("resume it"), "{again}");
    let half = Setup { target_name: "tiny in bf16".into(), ..setup(&target, config.clone(), out.path()) };
    let half = Trainer::resume(half).err().unwrap().to_string();
    assert!(half.contains("target"), "{half}");
    let other = TrainConfig { seed: 1, ..config };
    let other = Trainer::resume(setup(&target, other, out.path())).err().unwrap().to_string();
    assert!(other.contains("recipe"), "{other}");
}

/// Every path that a rollout samples, scored by itself: fresh passes over prefix and path give the same reward.
#[test]
fn packed_rollouts_equal_separate_passes() {
    let target = target();
    let draft = draft(&target);
    let (sequence, mut cache): (Sequence, KvCache) =
        Sequence::run(&target, draft.taps(), &example(&target, 5)).unwrap();
    let request = RolloutRequest { samples: 3, corrected: false, anchors: 2 };
    let mut rng = batches::step_stream(1, 0);
    let paths = rollout(&draft, &target, &sequence, &mut cache, 3, request, &[], &mut rng).unwrap();
    assert_eq!((cache.len(), paths.sampled.dims()), (sequence.len(), [2, 3, 3]));
    // The first draw from the stream is the choice of anchors.
    let anchors = batches::choose(&align::anchors(&sequence.assistant, 1), 2, &mut batches::step_stream(1, 0));
    for (path, fate) in paths.fates.iter().enumerate() {
        let want = reward_alone(&target, &draft, &sequence, anchors[path / 3], &fate.tokens);
        assert!((fate.reward - want).abs() < 1e-3, "path {path}: {} against {want}", fate.reward);
    }
}

/// `sum log alpha + log p - log q` of one path behind anchor `t`, token by token.
fn reward_alone(target: &Llama, draft: &DraftModel, sequence: &Sequence, t: usize, tokens: &[u32]) -> f32 {
    let mut ids = sequence.ids[..t + 2].to_vec();
    ids.extend(tokens.iter().map(|d| draft.vocab().target(*d)));
    let rows = target.rows(&Prompt { ids: ids.clone(), images: vec![] }).unwrap();
    let positions = [(0..ids.len()).collect()];
    let pass = target.forward(rows.embeds.clone(), &positions, &Mask::Causal, &mut target.new_cache(), &[]);
    let log_p = log_softmax(target.logits(pass.hidden).squeeze_dim::<2>(0), 1);

    let positions = [(0..t + 1).collect()];
    let image = [vec![None; t + 1]];
    let embeds = rows.embeds.clone().slice([0..1, 1..t + 2, 0..32]);
    let features = sequence.features.clone().slice(0..t + 1).unsqueeze_dim::<3>(0);
    let first = FeatureRows { features, embeds, positions: &positions, mask: &Mask::Causal, image: &image };
    let mut state = draft.start();
    let pass = draft.extend(&mut state, first);
    let last = |x: Tensor<3>| x.slice([0..1, t..t + 1, 0..32]);
    let (mut hidden, mut predict) = (last(pass.hidden), last(pass.predict));
    let mut reward = 0.0;
    for (i, token) in tokens.iter().enumerate() {
        let id = ids[t + 2 + i] as usize;
        let at = |x: &Tensor<2>, row: usize, column: usize| -> f32 {
            x.clone().slice([row..row + 1, column..column + 1]).into_scalar()
        };
        let q = at(&log_softmax(draft.logits(predict).squeeze_dim::<2>(0), 1), 0, *token as usize);
        let p = at(&log_p, t + 1 + i, id);
        reward += estep::log_alpha(p, q) + p - q;
        let embeds = rows.embeds.clone().slice([0..1, t + 2 + i..t + 3 + i, 0..32]);
        let pass = draft.step(&mut state, hidden, embeds, &[vec![t + 1 + i]], &Mask::Causal);
        (hidden, predict) = (pass.hidden, pass.predict);
    }
    reward
}

/// On the target's own greedy text the teacher-forced unroll and a rollout agree about step 0.
#[test]
fn the_unroll_reads_the_rows_that_it_says() {
    let target = target();
    let draft = draft(&target);
    let sequences: Vec<Sequence> =
        [5, 6].map(|i| Sequence::run(&target, draft.taps(), &example(&target, i)).unwrap().0).into();
    let head = restricted_head(&target, draft.vocab());
    let both = Batch::new(&sequences, 3);
    let unrolled = both.unroll(&draft, &head, 2);
    // One by one, without padding: the same logits.
    let mut start = 0;
    for sequence in &sequences {
        let one = Batch::new(std::slice::from_ref(sequence), 3);
        let alone = one.unroll(&draft, &head, 2);
        let rows = one.anchors.len();
        for (step, whole) in alone.steps.iter().zip(&unrolled.steps) {
            let part = whole.logits.clone().slice([start..start + rows, 0..30]);
            let difference: f32 = (part - step.logits.clone()).abs().max().into_scalar();
            assert!(difference < 1e-5, "{difference}");
            assert_eq!(whole.greedy[start..start + rows], step.greedy[..]);
        }
        start += rows;
        // Twice in bounds: every answer token is predicted once per step.
        let answers = sequence.assistant.iter().filter(|a| **a).count();
        for (j, step) in alone.steps.iter().enumerate() {
            let sayable = (0..rows).filter(|m| step.trains[*m]).count();
            assert!(sayable <= answers, "step {j}");
        }
    }
    // p is the target's own: its argmax is the greedy id wherever the draft can say it.
    let tops = unrolled.steps[0].target.clone().argmax(1).into_data().convert::<i64>().try_to_vec::<i64>().unwrap();
    for (m, top) in tops.iter().enumerate() {
        if let Some(greedy) = unrolled.steps[0].greedy[m] {
            assert_eq!(*top as u32, greedy);
        }
    }
}
