//! The recorded target and draft together: the draft's own trees, and generation.

use burn::prelude::*;
use sightdraft_core::Checkpoint;
use sightdraft_decode::{Acceptance, Request, Sampling, TreeShape, generate};
use sightdraft_draft::DraftModel;
use sightdraft_fixtures::{Fixture, root};
use sightdraft_target::load::load_llama;
use sightdraft_target::{Llama, LlamaConfig, PromptRows};

fn target(device: &Device) -> Llama {
    let dir = root().join("hf_llama_gqa");
    let config = LlamaConfig::open(&dir).unwrap();
    let checkpoint = Checkpoint::open_file(&dir.join("model.safetensors")).unwrap();
    load_llama(&checkpoint, &config, "model.", "lm_head", device).unwrap()
}

fn rows(target: &Llama, ids: &[i64]) -> PromptRows {
    let ids: Vec<u32> = ids.iter().map(|&id| id as u32).collect();
    PromptRows { embeds: target.embed_ids(&ids), ids, image_rows: Vec::new() }
}

#[test]
fn fixture_generation_is_lossless_and_accepts() {
    let device = Device::flex();
    let target = target(&device);
    let io = Fixture::open(&root().join("hf_llama_gqa/io.safetensors"));
    let (prompt, sequence) = (io.i64("greedy.prompt"), io.i64("greedy.sequence"));
    let expected: Vec<u32> = sequence[prompt.len()..].iter().map(|&id| id as u32).collect();
    let trees = [TreeShape { total: 20, depth: 3, top_k: 4 }, TreeShape::default()];
    // The drafts that were trained for this target.
    for (folder, tree) in ["eagle1", "eagle3"].into_iter().flat_map(|folder| trees.map(|tree| (folder, tree))) {
        let draft = DraftModel::open(&root().join(folder), &target, &device).unwrap();
        let request = Request {
            prompt: rows(&target, &prompt),
            max_new_tokens: expected.len(),
            eos: Vec::new(),
            sampling: Sampling::GREEDY,
            tree: tree.into(),
            acceptance: Acceptance::PointMass,
            blind_draft: false,
        };
        let plain = generate(&target, None, &request, &mut |_| ()).unwrap();
        let speculative = generate(&target, Some(&draft), &request, &mut |_| ()).unwrap();
        assert_eq!(plain.token_ids, expected);
        assert_eq!(speculative.token_ids, expected);
        let accepted = speculative.counters.accepted_per_pass();
        println!("{folder}, {tree:?}: {accepted:.2} accepted per pass");
        assert!(accepted > 1.0, "a trained draft is accepted: {folder} {accepted}");
    }
}
