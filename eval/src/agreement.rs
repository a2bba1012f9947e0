//! Whether two greedy answers are the same, and if not, whether the target itself could not tell.

use burn::prelude::*;
use sightdraft_target::{Mask, PromptRows, Target};

use crate::metrics::Agreement;

/// Logits closer than this are a tie: rounding decides between them.
const TIE: f32 = 1e-5;

/// Compares a greedy answer with the plain one. Where they part, the target reads prompt and common prefix once more, in one
/// causal pass, and a gap of its two logits within 1e-5 is reported as a tie.
pub fn compare(target: &dyn Target, prompt: &PromptRows, plain: &[u32], other: &[u32]) -> Agreement {
    let Some(position) = first_difference(plain, other) else {
        return Agreement::Same;
    };
    let (Some(&a), Some(&b)) = (plain.get(position), other.get(position)) else {
        return Agreement::Different { position };
    };
    let logits = next_logits(target, prompt, &plain[..position]);
    if (logits[a as usize] - logits[b as usize]).abs() <= TIE {
        Agreement::Tie { position }
    } else {
        Agreement::Different { position }
    }
}

/// Where two answers part; the end of the shorter one if it begins the longer.
fn first_difference(a: &[u32], b: &[u32]) -> Option<usize> {
    (a != b).then(|| a.iter().zip(b).take_while(|(x, y)| x == y).count())
}

/// The target's logits of the token after `prompt` and `answer`.
fn next_logits(target: &dyn Target, prompt: &PromptRows, answer: &[u32]) -> Vec<f32> {
    let llama = target.llama();
    let mut embeds = prompt.embeds.clone();
    if !answer.is_empty() {
        embeds = Tensor::cat(vec![embeds, llama.embed_ids(answer)], 1);
    }
    let rows = embeds.dims()[1];
    let pass = llama.forward(embeds, &[(0..rows).collect()], &Mask::Causal, &mut llama.new_cache(), &[]);
    let logits = llama.logits(pass.hidden.narrow(1, rows - 1, 1));
    logits.into_data().convert::<f32>().try_into_vec::<f32>().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use sightdraft_target::{Llama, LlamaConfig, Projection, RopeConfig};

    use super::*;

    #[test]
    fn answers_part_where_they_first_differ_or_where_one_ends() {
        assert_eq!(first_difference(&[1, 2, 3], &[1, 2, 3]), None);
        assert_eq!(first_difference(&[1, 2, 3], &[1, 4, 3]), Some(1));
        assert_eq!(first_difference(&[1, 2], &[1, 2, 3]), Some(2));
        assert_eq!(first_difference(&[], &[7]), Some(0));
    }

    /// A target that always says the same: its logits are `scores`, whatever came before.
    fn monotone(scores: [f32; 4]) -> Llama {
        let config = LlamaConfig {
            hidden_size: 4,
            intermediate_size: 4,
            num_hidden_layers: 1,
            num_attention_heads: 1,
            num_key_value_heads: 1,
            head_dim: 4,
            vocab_size: 4,
            max_position_embeddings: 16,
            rms_norm_eps: 1e-5,
            rope: RopeConfig { theta: 1e4, scaling: None },
            tie_word_embeddings: false,
        };
        let device = Device::flex();
        let mut llama = Llama::init(&config, &device);
        let silent = Projection::init(4, 4, true, 0.0, &device);
        let Projection::Plain(mut head) = silent else { unreachable!("fresh layers are plain") };
        head.bias = Some(burn::module::Param::from_tensor(Tensor::from_floats(scores, &device)));
        llama.lm_head = Some(Projection::Plain(head));
        llama
    }

    #[test]
    fn answers_that_part_within_rounding_part_at_a_tie() {
        let compared = |scores: [f32; 4]| {
            let llama = monotone(scores);
            let ids = vec![1, 2];
            let prompt = PromptRows { embeds: llama.embed_ids(&ids), ids, image_rows: vec![] };
            compare(&llama, &prompt, &[0, 0, 3], &[0, 0, 2])
        };
        assert_eq!(compared([0.0, 0.0, 0.5, 0.500_005]), Agreement::Tie { position: 2 });
        assert_eq!(compared([0.0, 0.0, 0.5, 0.500_1]), Agreement::Different { position: 2 });
    }
}
