//! On the CPU a row's logits are the same in every bit, whatever is verified beside it: what makes speculative decoding give
//! the very numbers of plain decoding, not only the same tokens.

use burn::prelude::*;
use sightdraft_decode::generate;
use sightdraft_target::{KvCache, Llama, Mask};

use crate::tiny::{bushy_tree, prompt, random_draft, request, target};

/// The logits' bits of rows `ids` behind the cache, one list per row.
fn pass(llama: &Llama, ids: &[u32], positions: Vec<usize>, mask: &Mask, cache: &mut KvCache) -> Vec<Vec<u32>> {
    let pass = llama.forward(llama.embed_ids(ids), &[positions], mask, cache, &[]);
    bits(llama.logits(pass.hidden))
}

fn bits(logits: Tensor<3>) -> Vec<Vec<u32>> {
    let width = logits.dims()[2];
    let values: Vec<f32> = logits.into_data().try_into_vec().unwrap();
    values.chunks(width).map(|row| row.iter().map(|value| value.to_bits()).collect()).collect()
}

/// A cache with the prompt, its ids and the logits of its rows.
fn prefilled(llama: &Llama, seed: u64) -> (KvCache, Vec<u32>, Vec<Vec<u32>>) {
    let rows = prompt(llama, seed, false);
    let mut cache = llama.new_cache();
    let logits = pass(llama, &rows.ids, (0..rows.ids.len()).collect(), &Mask::Causal, &mut cache);
    (cache, rows.ids, logits)
}

#[test]
fn a_tree_gives_the_logits_of_plain_decoding() {
    let llama = target().for_inference();
    let tree = bushy_tree();
    for seed in 0..5 {
        let (cache, ids, _) = prefilled(&llama, seed);
        let positions = tree.depths.iter().map(|depth| ids.len() + depth).collect();
        let mut packed = cache.clone();
        let logits = pass(&llama, &tree.tokens, positions, &Mask::Tree(tree.sees()), &mut packed);
        for leaf in [8, 9, 10, 11] {
            let mut plain = cache.clone();
            let path = tree.path_to(leaf);
            for (depth, &node) in path.iter().enumerate() {
                let row = pass(&llama, &tree.tokens[node..=node], vec![ids.len() + depth], &Mask::Causal, &mut plain);
                assert!(row[0] == logits[node], "seed {seed}: node {node}");
            }
            // After compaction the next row sees the same as after plain decoding.
            let mut compacted = packed.clone();
            compacted.gather(ids.len(), &path);
            let next = |cache: &mut KvCache| pass(&llama, &[5], vec![ids.len() + path.len()], &Mask::Causal, cache);
            assert!(next(&mut compacted) == next(&mut plain), "seed {seed}: after the path to {leaf}");
        }
    }
}

#[test]
fn a_prompt_at_once_or_row_by_row_gives_the_same_logits() {
    let llama = target().for_inference();
    let (_, ids, whole) = prefilled(&llama, 4);
    let mut cache = llama.new_cache();
    for (position, expected) in whole.iter().enumerate() {
        let row = pass(&llama, &ids[position..=position], vec![position], &Mask::Causal, &mut cache);
        assert!(row[0] == *expected, "row {position}");
    }
}

#[test]
fn a_row_of_a_batch_is_the_row_alone() {
    let llama = target().for_inference();
    let prompts: Vec<Vec<u32>> = (0..8).map(|seed| prompt(&llama, seed, false).ids).collect();
    let longest = prompts.iter().map(Vec::len).max().unwrap();
    let padded: Vec<u32> =
        prompts.iter().flat_map(|ids| [vec![0; longest - ids.len()], ids.clone()].concat()).collect();
    let positions: Vec<Vec<usize>> = prompts
        .iter()
        .map(|ids| (0..longest).map(|place| place.saturating_sub(longest - ids.len())).collect())
        .collect();
    let sees = |ids: &Vec<u32>| -> Vec<Vec<bool>> {
        let padding = longest - ids.len();
        (0..longest).map(|row| (0..longest).map(|key| key >= padding && key <= row).collect()).collect()
    };
    let mask = Mask::Full(prompts.iter().map(sees).collect());
    let embeds = llama.embed_ids(&padded).reshape([8, longest, 16]);
    let together = bits(llama.logits(llama.forward(embeds, &positions, &mask, &mut llama.new_cache(), &[]).hidden));
    for (i, ids) in prompts.iter().enumerate() {
        let alone = pass(&llama, ids, (0..ids.len()).collect(), &Mask::Causal, &mut llama.new_cache());
        assert!(alone == together[(i + 1) * longest - ids.len()..(i + 1) * longest], "prompt {i}");
    }
}

#[test]
fn packed_models_decode_the_same_with_a_draft_and_without() {
    let plain_target = target();
    let draft = random_draft(&plain_target).for_inference();
    let llama = plain_target.for_inference();
    for seed in 0..30 {
        let request = request(prompt(&llama, seed, seed % 3 == 0), 24);
        let plain = generate(&llama, None, &request, &mut |_| ()).unwrap();
        let speculative = generate(&llama, Some(&draft), &request, &mut |_| ()).unwrap();
        assert_eq!(speculative.token_ids, plain.token_ids, "prompt {seed}");
    }
}
