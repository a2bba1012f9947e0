//! Why generation ended, and where.

use serde::{Deserialize, Serialize};
use sightdraft_core::{Error, Result};
use sightdraft_target::LlamaConfig;

/// The reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Stop {
    /// An end-of-answer token.
    Eos,
    /// max_new_tokens (or the context) was reached.
    Length,
}

/// Stop rules of one generation.
#[derive(Debug, Clone)]
pub(crate) struct StopRules<'a> {
    eos: &'a [u32],
    /// Most tokens to emit: max_new_tokens, or what the context leaves.
    pub(crate) limit: usize,
}

impl<'a> StopRules<'a> {
    /// For a prompt of `prompt` rows.
    ///
    /// # Errors
    /// An empty prompt, or one that leaves no room in the context.
    pub(crate) fn new(prompt: usize, max_new_tokens: usize, eos: &'a [u32], config: &LlamaConfig) -> Result<Self> {
        let context = config.max_position_embeddings;
        if prompt == 0 || prompt >= context {
            let expected = format!("1 to {} tokens (the context is {context})", context.saturating_sub(1));
            return Err(Error::invalid("prompt", expected, prompt.to_string(), "give a prompt of that length"));
        }
        Ok(Self { eos, limit: max_new_tokens.min(context - prompt) })
    }

    /// Cuts `new` where the answer ends, `emitted` tokens being out already; says why if it ends there. An EOS is kept.
    pub(crate) fn cut(&self, new: &mut Vec<u32>, emitted: usize) -> Option<Stop> {
        new.truncate(self.limit.saturating_sub(emitted));
        if let Some(end) = new.iter().position(|token| self.eos.contains(token)) {
            new.truncate(end + 1);
            return Some(Stop::Eos);
        }
        (emitted + new.len() >= self.limit).then_some(Stop::Length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_eos_inside_a_block_ends_it_and_the_limit_is_exact() {
        let rules = StopRules { eos: &[7, 8], limit: 6 };
        let cut = |tokens: &[u32], emitted| {
            let mut new = tokens.to_vec();
            let stop = rules.cut(&mut new, emitted);
            (new, stop)
        };
        assert_eq!(cut(&[1, 2, 7, 4, 5, 9], 0), (vec![1, 2, 7], Some(Stop::Eos)));
        assert_eq!(cut(&[1, 2, 3], 2), (vec![1, 2, 3], None));
        assert_eq!(cut(&[1, 2, 3, 8], 4), (vec![1, 2], Some(Stop::Length)));
        assert_eq!(cut(&[1, 8], 4), (vec![1, 8], Some(Stop::Eos)));
    }
}
