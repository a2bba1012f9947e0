//! From spans of characters to a mask over tokens.

use super::Rendered;
use crate::{Error, Result, Tokenizer};

/// Ids of a rendered conversation (one BOS) and, for each id, whether it belongs to an assistant turn: what a loss may be
/// taken on *as the predicted token*. A token that spans a turn's edge, such as ` Hello` behind `ASSISTANT:`, belongs to it.
///
/// # Shapes
/// Both vectors have one entry per token.
///
/// # Errors
/// Text that the tokenizer cannot encode, or turns that cover no token at all.
pub fn assistant_mask(tokenizer: &Tokenizer, rendered: &Rendered) -> Result<(Vec<u32>, Vec<bool>)> {
    let tokens = tokenizer.encode_prompt_with_spans(&rendered.text)?;
    let mut end_before = 0;
    let mut mask = Vec::with_capacity(tokens.len());
    for (_, span) in &tokens {
        // Some tokenizers trim spaces off the spans they report; a token owns the gap before it.
        let start = span.start.min(end_before);
        end_before = end_before.max(span.end);
        mask.push(rendered.assistant.iter().any(|turn| start < turn.end && turn.start < span.end));
    }
    if !mask.contains(&true) {
        return Err(Error::invalid(
            "assistant mask",
            "at least one token of the assistant",
            format!("none among {} tokens", tokens.len()),
            "check that tokenizer and chat template belong together",
        ));
    }
    Ok((tokens.into_iter().map(|(id, _)| id).collect(), mask))
}
