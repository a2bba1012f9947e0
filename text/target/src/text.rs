//! A text-only target: the language model alone.

use burn::prelude::*;
use sightdraft_core::{Error, Result};
use sightdraft_kernels::rows_of;

use crate::{Llama, Prompt, PromptRows, Target};

impl Target for Llama {
    fn llama(&self) -> &Llama {
        self
    }

    fn rows(&self, prompt: &Prompt) -> Result<PromptRows> {
        let (ids, image_rows) = self.expand(&prompt.ids, prompt.images.len())?;
        self.check_ids(&ids)?;
        let embeds = self.embed_ids(&ids);
        Ok(PromptRows { ids, embeds, image_rows })
    }
}

impl Llama {
    /// Embeddings of one sequence, `[1, n, H]`.
    pub fn embed_ids(&self, ids: &[u32]) -> Tensor<3> {
        if let Some(rows) = rows_of(self.embed_tokens.weight.val(), ids) {
            return rows.unsqueeze();
        }
        let ids: Vec<i64> = ids.iter().map(|id| i64::from(*id)).collect();
        let device = self.embed_tokens.weight.device();
        self.embed(Tensor::from_data(TensorData::new(ids.clone(), [1, ids.len()]), &device))
    }

    /// Whether a prompt's rows fit: at least one, at most the context, every id in the vocabulary.
    ///
    /// # Errors
    /// What of the three does not hold.
    pub fn check_ids(&self, ids: &[u32]) -> Result<()> {
        let (longest, vocabulary) = (self.config.max_position_embeddings, self.config.vocab_size);
        if ids.is_empty() || ids.len() > longest {
            let expected = format!("1 to {longest} tokens (max_position_embeddings)");
            let mend = if ids.is_empty() { "give some text" } else { "shorten the prompt" };
            return Err(Error::invalid("prompt", expected, format!("{} tokens", ids.len()), mend));
        }
        match ids.iter().find(|id| **id as usize >= vocabulary) {
            None => Ok(()),
            Some(id) => {
                let expected = format!("ids below the vocabulary of {vocabulary}");
                Err(Error::invalid(
                    "prompt",
                    expected,
                    format!("id {id}"),
                    "use the tokenizer that belongs to the model",
                ))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tiny;
    use sightdraft_vision::Pixels;

    #[test]
    fn an_image_is_refused_and_so_is_what_does_not_fit() {
        let model = Llama::init(&tiny::config(), &Device::flex());
        let refusal = |ids: &[u32], images: Vec<Pixels>| {
            model.rows(&Prompt { ids: ids.to_vec(), images }).expect_err("refused").to_string()
        };
        let image = Pixels { size: 1, values: vec![0.0; 3] };
        assert!(refusal(&[1], vec![image]).contains("text-only"));
        assert!(refusal(&[1; 13], vec![]).contains("13 tokens"));
        assert!(refusal(&[], vec![]).contains("0 tokens"));
        assert!(refusal(&[16], vec![]).contains("id 16"));
        assert_eq!(model.rows(&Prompt { ids: vec![1, 2], images: vec![] }).expect("fits").embeds.dims(), [1, 2, 8]);
    }
}
