//! The published losses and their gradients, from recorded rows through the batch, the draft's unroll and the objective.

use burn::module::Module;
use burn::optim::{GradientsParams, SgdConfig};
use burn::prelude::*;
use burn::tensor::TensorData;
use rand::SeedableRng;
use sightdraft_core::Checkpoint;
use sightdraft_draft::{Draft, DraftModel};
use sightdraft_fixtures::{Fixture, TOLERANCE, recordings, root};
use sightdraft_target::llava::LlavaConfig;
use sightdraft_target::load::load_llama;
use sightdraft_target::{Llama, LlamaConfig};
use sightdraft_train::align;
use sightdraft_train::features::{Batch, Sequence, restricted_head};
use sightdraft_train::objective::{Eagle1Loss, GriffinLoss, HassLoss, Objective, Unrolled, VispecLoss};
use sightdraft_train::trainable::trainable;

/// One recorded training step.
struct Recording {
    fixture: Fixture,
    target: Llama,
    draft: DraftModel,
}

impl Recording {
    /// Every step in `folder` that holds `tensor`.
    fn all(folder: &str, tensor: &str, target: fn() -> Llama) -> impl Iterator<Item = Self> {
        recordings(folder, tensor).into_iter().map(move |recording| {
            println!("{}", recording.name);
            let target = target();
            let draft = DraftModel::open(recording.draft_dir().path(), &target, &Device::flex()).unwrap();
            Self { fixture: recording.fixture, target, draft: trainable(draft, None) }
        })
    }

    /// The recorded rows as sequences of L + 1 tokens: row t trains where x_{t+2} is the assistant's. `image` flags x_t in each
    /// sequence that has an image.
    fn sequences(&self, mask: &[bool], image: &[Vec<bool>]) -> Vec<Sequence> {
        let features = self.fixture.tensor::<3>("hidden_states", &Device::flex());
        let [batch, n, width] = features.dims();
        let (ids, embeds) = self.inputs(batch, n);
        let row = |rows: &Tensor<3>, b: usize| rows.clone().slice([b..b + 1, 0..n, 0..width]).squeeze_dim::<2>(0);
        let pad = || Tensor::<2>::zeros([1, width], &Device::flex());
        (0..batch)
            .map(|b| {
                let mut assistant = vec![false; n + 1];
                (0..n - 1).for_each(|t| assistant[t + 2] = mask[b * n + t]);
                let features = Tensor::cat(vec![row(&features, b), pad()], 0);
                let needed: Vec<i32> = align::target_rows(&assistant).into_iter().map(|row| row as i32).collect();
                let hidden = features.clone().select(0, Tensor::from_ints(needed.as_slice(), &Device::flex()));
                let logits = self.target.logits(hidden.clone().unsqueeze_dim::<3>(0)).squeeze_dim::<2>(0);
                let argmax = logits.argmax(1).into_data().iter::<i64>().map(|id| id as u32).collect();
                Sequence {
                    ids: ids[b * (n + 1)..(b + 1) * (n + 1)].to_vec(),
                    assistant,
                    image: (0..=n)
                        .map(|t| image.get(b).is_some_and(|flags| flags.get(t) == Some(&true)).then_some(0))
                        .collect(),
                    embeds: Tensor::cat(vec![pad(), row(&embeds, b)], 0),
                    features,
                    hidden,
                    argmax,
                }
            })
            .collect()
    }

    /// Ids (of any first token and the recorded ones behind it) and the embeddings of x_1 and on.
    fn inputs(&self, batch: usize, n: usize) -> (Vec<u32>, Tensor<3>) {
        if self.fixture.has("inputs_embeds_shifted") {
            return (vec![0; batch * (n + 1)], self.fixture.tensor("inputs_embeds_shifted", &Device::flex()));
        }
        let shifted = self.fixture.i64("input_ids_shifted");
        let ids = shifted.chunks(n).flat_map(|row| [0].into_iter().chain(row.iter().map(|id| *id as u32))).collect();
        let index = TensorData::new(shifted, [batch, n]);
        (ids, self.target.embed(Tensor::<2, Int>::from_data(index, &Device::flex())))
    }

    /// The unroll over the recorded rows, each row of the mask weighing the same, as the originals divide.
    fn unroll(&self, mask: &[bool], image: &[Vec<bool>], steps: usize) -> Unrolled {
        let sequences = self.sequences(mask, image);
        let batch = Batch::new(&sequences, steps);
        let mut unrolled = batch.unroll(&self.draft, &restricted_head(&self.target, self.draft.vocab()), 1);
        let rows = mask.iter().filter(|on| **on).count();
        unrolled.weights.fill(1.0 / (rows as f32 + 1e-5));
        unrolled
    }

    /// Checks the loss, then every recorded gradient by what one plain step of descent does to the published tensors.
    fn check(&self, objective: &dyn Objective, unrolled: &Unrolled, want: f32, prefix: &str) {
        let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(0);
        let loss = objective.loss(unrolled, &mut rng).value;
        let got = loss.clone().into_scalar::<f32>();
        println!("{}: |diff| {:.2e}", objective.name(), (got - want).abs());
        assert!((got - want).abs() <= TOLERANCE, "{}: {got} against {want}", objective.name());
        let gradients = GradientsParams::from_grads(loss.backward(), &self.draft);
        let before = self.draft.valid().published().tensors();
        let after = SgdConfig::new().init().step(1.0, self.draft.clone(), gradients).valid().published().tensors();
        let mut worst = 0.0f32;
        let mut checked = 0;
        for ((name, before), (_, after)) in before.into_iter().zip(after) {
            let recorded = format!("{prefix}grad.{name}");
            if self.fixture.has(&recorded) {
                let want = self.fixture.f32(&recorded);
                let moved = before.iter::<f32>().zip(after.iter::<f32>()).map(|(b, a)| b - a);
                let diff = moved.zip(want).map(|(got, want)| (got - want).abs()).fold(0.0, f32::max);
                assert!(diff <= TOLERANCE, "{name}: max |diff| {diff}");
                worst = worst.max(diff);
                checked += 1;
            }
        }
        let all = self.fixture.names().iter().filter(|name| name.starts_with(&format!("{prefix}grad."))).count();
        assert_eq!(checked, all, "every recorded gradient has its tensor");
        println!("{}: gradients to {worst:.2e}", objective.name());
    }
}

fn text_target() -> Llama {
    let dir = root().join("hf_llama_gqa");
    let checkpoint = Checkpoint::open_file(&dir.join("model.safetensors")).unwrap();
    let config = LlamaConfig::open(&dir).unwrap();
    load_llama(&checkpoint, &config, "model.", "lm_head", &Device::flex()).unwrap()
}

/// The language model of the recorded LLaVA.
fn seeing_target() -> Llama {
    let dir = root().join("hf_llava");
    let checkpoint = Checkpoint::open_file(&dir.join("model.safetensors")).unwrap();
    let config = LlavaConfig::open(&dir).unwrap().text;
    load_llama(&checkpoint, &config, "language_model.model.", "language_model.lm_head", &Device::flex()).unwrap()
}

fn on(values: &[i64]) -> Vec<bool> {
    values.iter().map(|value| *value != 0).collect()
}

#[test]
fn fixture_eagle1_loss() {
    for recording in Recording::all("eagle1", "out_logits", text_target) {
        let unrolled = recording.unroll(&on(&recording.fixture.i64("loss_mask")), &[], 1);
        recording.check(&Eagle1Loss::default(), &unrolled, recording.fixture.f32("loss")[0], "");
    }
}

/// Three steps whose gradients add up, as the originals call backward three times.
fn three_steps(folder: &str, objective: &dyn Objective) {
    for recording in Recording::all(folder, "corrected3.step0.predict", text_target) {
        let unrolled = recording.unroll(&on(&recording.fixture.i64("loss_mask")), &[], 3);
        let totals = (0..3).map(|step| recording.fixture.f32(&format!("corrected3.step{step}.total"))[0]);
        recording.check(objective, &unrolled, totals.sum(), "corrected3.");
    }
}

#[test]
fn fixture_hass_loss() {
    three_steps("hass", &HassLoss::default());
}

#[test]
fn fixture_griffin_loss() {
    three_steps("griffin", &GriffinLoss::default());
}

/// A visual and a text sample; the visual one's image rows enter without features.
#[test]
fn fixture_msd_loss() {
    for recording in Recording::all("msd", "inputs_embeds_shifted", seeing_target) {
        let (rows, ids) = (recording.fixture.shape("hidden_states")[1], recording.fixture.i64("raw_ids_visual"));
        // One id stands for the image; the last of the `rows` is there for its guess alone.
        let start = ids.iter().position(|&id| id == -200).unwrap();
        let image = start..start + rows - (ids.len() - 1);
        let visual: Vec<bool> = (0..rows).map(|t| image.contains(&t)).collect();
        let mask = on(&recording.fixture.i64("loss_mask"));
        let unrolled = recording.unroll(&mask, &[visual], 1);
        recording.check(&Eagle1Loss::default(), &unrolled, recording.fixture.f32("loss")[0], "");
    }
}

#[test]
fn fixture_vispec_second_stage_loss() {
    for recording in Recording::all("vispec", "adapted_image_tokens", seeing_target) {
        let flags = |name: &str| recording.fixture.u8(name).iter().map(|on| *on != 0).collect::<Vec<_>>();
        let unrolled = recording.unroll(&flags("loss_mask_shifted"), &[flags("image_mask")], 2);
        recording.check(&VispecLoss { stage: 2 }, &unrolled, recording.fixture.f32("loss")[0], "");
    }
}
