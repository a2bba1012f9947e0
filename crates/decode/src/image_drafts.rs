//! Drafts that treat images apart (MSD, ViSpec) at work: their recorded trees, and those after an accepted step.

use burn::prelude::*;
use sightdraft_core::Checkpoint;
use sightdraft_draft::DraftModel;
use sightdraft_fixtures::{Fixture, recordings, root};
use sightdraft_target::load::load_llama;
use sightdraft_target::{Llama, LlavaConfig, PromptRows};

use crate::drafting::Drafting;
use crate::{Acceptance, DraftTree, Request, Sampling, TreeShape};

fn target(device: &Device) -> Llama {
    let dir = root().join("hf_llava");
    let checkpoint = Checkpoint::open_file(&dir.join("model.safetensors")).unwrap();
    let config = LlavaConfig::open(&dir).unwrap().text;
    load_llama(&checkpoint, &config, "language_model.model.", "language_model.lm_head", device).unwrap()
}

fn ids(fixture: &Fixture, name: &str) -> Vec<u32> {
    fixture.i64(name).iter().map(|&id| id as u32).collect()
}

fn check_tree(tree: &DraftTree, fixture: &Fixture, case: &str) {
    let of = |name: &str| format!("{case}{name}");
    assert_eq!(tree.tokens, ids(fixture, &of("draft_tokens")), "{case}");
    let depths: Vec<i64> = tree.depths.iter().map(|&depth| depth as i64).collect();
    assert_eq!(depths, fixture.i64(&of("tree_position_ids")), "{case}");
    let sees: Vec<u8> = tree.sees().iter().flatten().map(|&seen| seen.into()).collect();
    assert_eq!(sees, fixture.u8(&of("tree_mask")), "{case}");
    let paths = tree.leaf_paths();
    let width = paths.iter().map(Vec::len).max().unwrap();
    let pad = |path: Vec<usize>| path.into_iter().map(|node| node as i64).chain(std::iter::repeat(-1)).take(width);
    let paths: Vec<i64> = paths.into_iter().flat_map(pad).collect();
    assert_eq!(paths, fixture.i64(&of("retrieve_indices")), "{case}");
}

/// The tree behind the prompt, and the one behind two accepted tokens more; `image` are the prompt's image rows.
fn check(draft: &DraftModel, target: &Llama, fixture: &Fixture, image: std::ops::Range<usize>) {
    let device = Device::flex();
    let embeds = fixture.tensor::<3>("inputs_embeds", &device);
    let params = fixture.i64("params");
    let tree = TreeShape { total: params[0] as usize, depth: params[1] as usize, top_k: params[2] as usize };
    let request = Request {
        prompt: PromptRows { ids: vec![0; embeds.dims()[1]], embeds, image_rows: vec![image] },
        max_new_tokens: 100,
        eos: Vec::new(),
        sampling: Sampling::GREEDY,
        tree: tree.into(),
        acceptance: Acceptance::PointMass,
        blind_draft: false,
    };
    let mut drafting = Drafting::new(draft, target, &request);
    let before = ids(fixture, "input_ids");
    let root_token = *before.last().unwrap();
    drafting.prefill(fixture.tensor("hidden_states", &device), root_token);
    check_tree(&drafting.tree(root_token, tree, 100), fixture, "");
    let next = &ids(fixture, "cont.input_ids")[before.len()..];
    drafting.extend(fixture.tensor("cont.hidden_states", &device), next);
    check_tree(&drafting.tree(*next.last().unwrap(), tree, 100), fixture, "cont.");
}

/// Every recorded tree of the drafts in `folder`; `image` gives the rows of the image in a prompt.
fn check_all(folder: &str, image: impl Fn(&Fixture) -> std::ops::Range<usize>) {
    let device = Device::flex();
    let target = target(&device);
    for recording in recordings(folder, "draft_tokens") {
        println!("{}", recording.name);
        let draft = DraftModel::open(recording.draft_dir().path(), &target, &device).unwrap();
        check(&draft, &target, &recording.fixture, image(&recording.fixture));
    }
}

#[test]
fn fixture_msd_trees_behind_large_images_are_the_same() {
    check_all("msd", |fixture| {
        let (ids, rows) = (fixture.i64("input_ids"), fixture.shape("inputs_embeds")[1]);
        let start = ids.iter().position(|&id| id == -200).unwrap();
        // The ids end with the tree's root, which is no row of the prompt yet.
        start..start + rows - (ids.len() - 2)
    });
}

#[test]
fn fixture_vispec_trees_over_compressed_images_are_the_same() {
    check_all("vispec", |fixture| {
        let mask = fixture.u8("image_mask");
        let rows: Vec<usize> = (0..mask.len()).filter(|&row| mask[row] != 0).collect();
        rows[0]..rows[rows.len() - 1] + 1
    });
}
