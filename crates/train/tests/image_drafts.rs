//! Drafts that treat images apart (MSD, ViSpec) under the trainer's batches and rollouts, on a tiny target that sees.

mod tiny;

use burn::prelude::*;
use burn::tensor::Distribution;
use burn::tensor::activation::log_softmax;
use sightdraft_core::Result;
use sightdraft_draft::{Draft, DraftConfig, DraftModel, Method, VocabMap};
use sightdraft_target::{Llama, Prompt, PromptRows, Target};
use sightdraft_train::features::{Batch, Sequence, restricted_head};
use sightdraft_train::objective::RolloutRequest;
use sightdraft_train::rollout::rollout;
use sightdraft_train::{Example, align, batches};
use tiny::{VOCABULARY, WIDTH, path_logits};

/// Rows 1 to 3 and 4 to 5 of every prompt are images.
struct Seeing(Llama);

impl Target for Seeing {
    fn llama(&self) -> &Llama {
        &self.0
    }

    fn rows(&self, prompt: &Prompt) -> Result<PromptRows> {
        let image_rows = vec![1..4, 4..6];
        let mut embeds = self.0.embed_ids(&prompt.ids);
        for image in &image_rows {
            let pixels = Tensor::<1, Int>::arange(0..(image.len() * WIDTH) as i64, &Device::flex()).float().sin();
            let pixels = pixels.reshape([1, image.len(), WIDTH]);
            embeds = embeds.slice_assign([0..1, image.clone(), 0..WIDTH], pixels);
        }
        Ok(PromptRows { ids: prompt.ids.clone(), embeds, image_rows })
    }
}

fn target() -> Seeing {
    Seeing(tiny::target())
}

fn drafts(target: &Seeing) -> [DraftModel; 2] {
    [Method::Msd, Method::Vispec].map(|method| {
        let config = DraftConfig::for_target(method, &target.0.config, VOCABULARY).unwrap();
        let mut draft = DraftModel::init(config, VocabMap::identity(VOCABULARY), &target.0, &Device::flex());
        if let DraftModel::ViSpec(draft) = &mut draft {
            // Fresh, text hears nothing of the global feature.
            let noise = Distribution::Normal(0.0, 0.3);
            let weight = draft.img_fc.plain().weight.val();
            draft.img_fc = sightdraft_target::Projection::from_weight(weight.clone() + weight.random_like(noise));
        }
        draft
    })
}

fn sequence(target: &Seeing, draft: &DraftModel, length: u32) -> (Sequence, sightdraft_target::KvCache) {
    let ids: Vec<u32> = (0..length).map(|i| (i * 11 + length) % VOCABULARY as u32).collect();
    let assistant = (0..length).map(|row| row >= 8).collect();
    Sequence::run(target, draft.taps(), &Example { id: String::new(), ids, assistant, images: vec![] }).unwrap()
}

#[test]
fn rollouts_over_a_compressed_cache_equal_separate_passes() {
    let target = target();
    for draft in drafts(&target) {
        let (sequence, mut cache) = sequence(&target, &draft, 14);
        assert_eq!(sequence.image[..7], [None, Some(0), Some(0), Some(0), Some(1), Some(1), None]);
        let request = RolloutRequest { samples: 2, corrected: false, anchors: 2 };
        let paths = rollout(&draft, &target.0, &sequence, &mut cache, 3, request, &[], &mut batches::step_stream(1, 0))
            .unwrap();
        let found: Vec<f32> = paths.sampled.into_data().try_to_vec().unwrap();
        // The first draw from the stream is the choice of anchors.
        let anchors = batches::choose(&align::anchors(&sequence.assistant, 1), 2, &mut batches::step_stream(1, 0));
        for (path, fate) in paths.fates.iter().enumerate() {
            let alone = log_q_alone(&target, &draft, &sequence, anchors[path / 2], &fate.tokens);
            for (level, (a, b)) in found[path * 3..].iter().zip(alone).enumerate() {
                assert!((a - b).abs() < 1e-4, "path {path}, level {level}: {a} against {b}");
            }
        }
    }
}

/// log q of the tokens of one path behind anchor `t`, row by row.
fn log_q_alone(target: &Seeing, draft: &DraftModel, sequence: &Sequence, t: usize, tokens: &[u32]) -> Vec<f32> {
    let rows = path_logits(&target.0, draft, sequence, t, tokens).into_iter();
    let log_q = |(row, &token)| log_softmax(row, 1).narrow(1, token as usize, 1).into_scalar();
    rows.zip(tokens).map(log_q).collect()
}

#[test]
fn a_batch_of_seeing_sequences_trains_every_parameter_and_pads_nothing_in() {
    let target = target();
    for draft in drafts(&target) {
        let draft = sightdraft_train::trainable::trainable(draft, None);
        let sequences = [14, 11].map(|length| sequence(&target, &draft, length).0);
        let head = restricted_head(&target.0, draft.vocab());
        let both = Batch::new(&sequences, 2).unroll(&draft, &head, 2);
        let first = Batch::new(&sequences[..1], 2);
        let alone = first.unroll(&draft, &head, 2);
        for (all, own) in both.steps.iter().zip(&alone.steps) {
            let part = all.logits.clone().narrow(0, 0, first.anchors.len());
            let difference: f32 = (part - own.logits.clone()).abs().max().into_scalar();
            assert!(difference < 1e-5, "{difference}");
        }
        let loss = both.steps.iter().map(|step| log_softmax(step.logits.clone(), 1).narrow(1, 3, 1).sum());
        let gradients = loss.reduce(|a, b| a + b).unwrap().backward();
        let gradients = burn::optim::GradientsParams::from_grads(gradients, &draft);
        let parameters = sightdraft_train::trainable::param_ids(&draft).len();
        assert_eq!(gradients.len(), parameters, "{} of {parameters} parameters are reached", gradients.len());
    }
}
