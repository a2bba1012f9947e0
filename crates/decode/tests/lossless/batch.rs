//! Many prompts at once give what each gives alone.

use sightdraft_decode::{Sampling, generate, generate_batch};
use sightdraft_target::PromptRows;

use crate::tiny::{prompt, request, target};

#[test]
fn a_batch_is_the_single_loop_token_for_token() {
    let target = target();
    let prompts: Vec<PromptRows> = (0..6).map(|seed| prompt(&target, seed, seed % 2 == 0)).collect();
    for temperature in [0.0, 1.0] {
        let sampling = Sampling { temperature, top_p: 0.95, top_k: 0, seed: 5 };
        let eos = [3, 4, 5, 6];
        let mut answers = vec![None; prompts.len()];
        generate_batch(&target, &prompts, 30, &eos, sampling, &mut |index, tokens, stop| {
            assert!(answers[index].replace((tokens, stop)).is_none(), "row {index} ended twice");
            Ok(())
        })
        .unwrap();
        for (index, (answer, prompt)) in answers.into_iter().zip(&prompts).enumerate() {
            let mut request = request(prompt.clone(), 30);
            request.eos = eos.to_vec();
            request.sampling = Sampling { seed: 5 + index as u64, ..sampling };
            let single = generate(&target, None, &request, &mut |_| ()).unwrap();
            assert_eq!(answer, Some((single.token_ids, single.stop)), "temperature {temperature}, row {index}");
        }
    }
}
