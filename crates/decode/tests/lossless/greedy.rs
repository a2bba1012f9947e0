//! Temperature 0, stop rules and streaming.

use sightdraft_decode::{Acceptance, Costs, Generation, Request, Sampling, Stop, TreeChoice, TreeShape, generate};
use sightdraft_draft::{Draft, Method};
use sightdraft_target::Llama;

use crate::tiny::{Oracle, prompt, random_draft, random_of, request, target, tuner};

/// Generates, checking that streaming hands out every token once and in order.
fn run(target: &Llama, draft: Option<&dyn Draft>, request: &Request) -> Generation {
    let mut streamed = Vec::new();
    let generation = generate(target, draft, request, &mut |ids| streamed.extend_from_slice(ids)).unwrap();
    assert_eq!(streamed, generation.token_ids);
    let counters = &generation.counters;
    assert_eq!(counters.emitted + 1, generation.token_ids.len(), "all but the prefill's token come from passes");
    assert_eq!(counters.accepted_at.iter().sum::<usize>(), counters.accepted);
    generation
}

#[test]
fn two_hundred_random_prompts_speculative_is_plain() {
    let target = target();
    let draft = random_draft(&target);
    for seed in 0..200 {
        let mut request = request(prompt(&target, seed, seed % 3 == 0), 8);
        request.blind_draft = seed % 2 == 0;
        let plain = run(&target, None, &request);
        let speculative = run(&target, Some(&draft), &request);
        assert_eq!(speculative.token_ids, plain.token_ids, "prompt {seed}");
        assert_eq!((plain.counters.accepted, plain.counters.target_passes), (0, 7));
    }
}

#[test]
fn drafts_that_share_the_head_change_no_token() {
    let target = target();
    for method in [Method::Eagle1, Method::Hass, Method::Griffin] {
        let draft = random_of(method, &target);
        for seed in 0..30 {
            let mut request = request(prompt(&target, seed, seed % 3 == 0), 8);
            request.blind_draft = seed % 2 == 0;
            let speculative = run(&target, Some(&draft), &request);
            assert_eq!(speculative.token_ids, run(&target, None, &request).token_ids, "{method}, prompt {seed}");
        }
    }
}

#[test]
fn an_oracle_reaches_the_maximum_at_every_step_with_an_image_in_the_prompt() {
    let target = target();
    for acceptance in [Acceptance::PointMass, Acceptance::Ratio] {
        let mut request = request(prompt(&target, 3, true), 21);
        request.tree = TreeShape::chain(4).into();
        request.acceptance = acceptance;
        if acceptance == Acceptance::Ratio {
            request.sampling = Sampling { temperature: 1.0, ..Sampling::GREEDY };
        }
        let oracle = Oracle::new(&target, &request.prompt);
        let speculative = run(&target, Some(&oracle), &request);
        assert_eq!(speculative.token_ids.len(), 21);
        assert_eq!(speculative.counters.accepted_at, [4; 4], "{acceptance:?}");
        assert_eq!(speculative.counters.target_passes, 4);
    }
}

#[test]
fn a_wide_oracle_tree_is_lossless_too() {
    let target = target();
    for seed in 0..10 {
        let request = request(prompt(&target, seed, true), 20);
        let oracle = Oracle::new(&target, &request.prompt);
        let speculative = run(&target, Some(&oracle), &request);
        assert_eq!(speculative.token_ids, run(&target, None, &request).token_ids);
        assert!(speculative.counters.accepted > 0);
    }
}

#[test]
fn trees_that_follow_the_cost_change_no_token() {
    let target = target();
    let draft = random_draft(&target);
    let oracle_prompt = prompt(&target, 0, true);
    let oracle = Oracle::new(&target, &oracle_prompt);
    // Costs that make guessing pay always, sometimes, and never.
    for (more, step) in [(0.001, 0.01), (0.1, 0.3), (1.0, 3.0)] {
        let (random_tuner, oracle_tuner) = (tuner(more, step), tuner(more, step));
        for seed in 0..12 {
            let mut own = request(prompt(&target, seed, seed % 2 == 0), 40);
            let plain = run(&target, None, &own);
            own.tree = TreeChoice::Adaptive(random_tuner.clone());
            assert_eq!(run(&target, Some(&draft), &own).token_ids, plain.token_ids, "prompt {seed}, {more}");
            let mut own = request(oracle_prompt.clone(), 40);
            let plain = run(&target, None, &own);
            own.tree = TreeChoice::Adaptive(oracle_tuner.clone());
            assert_eq!(run(&target, Some(&oracle), &own).token_ids, plain.token_ids, "oracle, {more}");
        }
    }
}

#[test]
fn costs_are_measured_up_to_the_context() {
    let target = target().for_inference();
    let costs = Costs::measure(&target, &random_draft(&target), 0.0);
    let rows: Vec<usize> = costs.target.points().iter().map(|point| point.0).collect();
    // A context of 64 holds 32 rows behind a cache of 32.
    assert_eq!(rows, [1, 2, 4, 8, 16, 32]);
    let all = costs.target.points().iter().chain(costs.draft.points());
    assert!(all.clone().all(|point| point.1 > 0.0 && point.1 < 1.0), "{costs:?}");
}

#[test]
fn length_limits_are_met_exactly() {
    let target = target();
    let mut request = request(prompt(&target, 1, false), 5);
    request.tree = TreeShape::chain(3).into();
    let oracle = Oracle::new(&target, &request.prompt);
    let generation = run(&target, Some(&oracle), &request);
    assert_eq!((generation.token_ids.len(), generation.stop), (5, Stop::Length));
    request.max_new_tokens = 1000;
    let room = 64 - request.prompt.ids.len();
    assert_eq!(run(&target, Some(&oracle), &request).token_ids.len(), room);
    request.max_new_tokens = 0;
    assert!(generate(&target, None, &request, &mut |_| ()).unwrap().token_ids.is_empty());
}

#[test]
fn an_eos_in_the_middle_of_a_step_stops_there() {
    let target = target();
    let mut request = request(prompt(&target, 2, false), 16);
    request.tree = TreeShape::chain(5).into();
    let plain = run(&target, None, &request).token_ids;
    // The first token at or after place 3 that was not there before.
    let end = (3..plain.len()).find(|&place| !plain[..place].contains(&plain[place])).unwrap();
    request.eos = vec![plain[end]];
    let oracle = Oracle::new(&target, &request.prompt);
    let generation = run(&target, Some(&oracle), &request);
    assert_eq!((generation.token_ids.as_slice(), generation.stop), (&plain[..=end], Stop::Eos));
    assert_eq!(run(&target, None, &request).token_ids, generation.token_ids);
}

#[test]
fn a_prompt_that_leaves_no_room_is_refused() {
    let target = target();
    let mut request = request(prompt(&target, 2, false), 16);
    request.prompt.ids = vec![1; 64];
    let message = generate(&target, None, &request, &mut |_| ()).unwrap_err().to_string();
    assert!(message.contains("64") && message.contains("63"), "{message}");
}

#[test]
fn only_an_unbroken_run_of_matches_counts() {
    use burn::prelude::*;
    use sightdraft_decode::{DraftTree, Greedy, Verifier};
    let mut tree = DraftTree::root(0);
    (0..4).for_each(|parent| {
        tree.push(parent, parent as u32 + 1, -0.1);
    });
    // The target's choices after each node: matches are [true, false, true, true].
    let choices = Tensor::<1, Int>::from_ints([1, 7, 3, 4, 5], &Device::flex());
    let verdict = Greedy.verify(&tree, choices.one_hot::<2>(8).float());
    assert_eq!((verdict.path.as_slice(), verdict.bonus), (&[0, 1][..], 7));
}
