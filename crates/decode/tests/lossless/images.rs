//! Drafts that treat images apart: whatever images a prompt has, the output is the target's.

use burn::prelude::*;
use burn::tensor::Distribution;
use sightdraft_decode::{Acceptance, Sampling, TreeShape, generate};
use sightdraft_draft::{DraftConfig, DraftModel, Eagle1, Method, ViSpec};
use sightdraft_target::{Llama, Projection, PromptRows};

use crate::tiny::{config, request, target};

/// No image; one; one in the first row; two apart; two side by side; three, the last one at the end of the prompt.
#[allow(clippy::single_range_in_vec_init, reason = "a layout is a list of images")]
const LAYOUTS: [&[std::ops::Range<usize>]; 6] =
    [&[], &[1..4], &[0..5], &[1..2, 5..9], &[2..5, 5..6], &[1..3, 3..7, 9..12]];

fn prompt(target: &Llama, layout: &[std::ops::Range<usize>]) -> PromptRows {
    let ids: Vec<u32> = (0..12).map(|row| row * 7 % 40).collect();
    let mut embeds = target.embed_ids(&ids);
    for image in layout {
        let shape = [1, image.len(), 16];
        let pixels = Tensor::random(shape, Distribution::Normal(0.0, 0.05), &Device::flex());
        embeds = embeds.slice_assign([0..1, image.clone(), 0..16], pixels);
    }
    PromptRows { ids, embeds, image_rows: layout.to_vec() }
}

/// MSD, and ViSpec with one to three queries, whose text hears of images.
fn drafts(target: &Llama) -> Vec<DraftModel> {
    let device = Device::flex();
    let config = |method| DraftConfig::for_target(method, &config(), 40).unwrap();
    let vispec = |queries| {
        let mut draft = ViSpec::init(config(Method::Vispec).with_num_q(queries).unwrap(), target, &device);
        draft.img_fc = Projection::init(32, 16, true, 0.3, &device);
        DraftModel::ViSpec(draft)
    };
    let msd = DraftModel::Eagle1(Eagle1::init(config(Method::Msd), target, &device));
    std::iter::once(msd).chain((1..4).map(vispec)).collect()
}

#[test]
fn any_images_in_any_place_leave_the_output_as_it_is() {
    let target = target();
    let drafts = drafts(&target);
    for layout in LAYOUTS {
        let mut request = request(prompt(&target, layout), 12);
        request.tree = TreeShape { total: 12, depth: 3, top_k: 3 }.into();
        let plain = generate(&target, None, &request, &mut |_| ()).unwrap();
        for (number, draft) in drafts.iter().enumerate() {
            for blind in [false, true] {
                request.blind_draft = blind;
                let speculative = generate(&target, Some(draft), &request, &mut |_| ()).unwrap();
                assert_eq!(speculative.token_ids, plain.token_ids, "draft {number}, images {layout:?}, blind {blind}");
            }
        }
    }
}

#[test]
fn sampled_trees_behind_two_images_are_verified_too() {
    let target = target();
    for draft in drafts(&target) {
        let mut request = request(prompt(&target, &[1..4, 4..9]), 12);
        request.sampling = Sampling { temperature: 1.0, seed: 3, ..Sampling::GREEDY };
        for acceptance in [Acceptance::PointMass, Acceptance::Ratio] {
            request.acceptance = acceptance;
            let generation = generate(&target, Some(&draft), &request, &mut |_| ()).unwrap();
            assert_eq!(generation.token_ids.len(), 12);
            assert!(generation.token_ids.iter().all(|&id| id < 40));
        }
    }
}
