//! What a server cannot express, however the draft is written.

use super::Format;
use crate::Method;
use crate::config::Stated;

/// Features that SGLang and vLLM fuse.
const TAPS: usize = 3;

/// Why the draft cannot be written for `format`; empty if it can. `layers` of the target, where they are known.
pub(super) fn of(draft: &Stated, format: Format, layers: Option<usize>) -> Vec<String> {
    match draft.method {
        Method::Eagle3 => eagle3(draft, format, layers),
        Method::Eagle1 | Method::Hass if format == Format::Vllm => Vec::new(),
        Method::Eagle1 | Method::Hass => vec![format!("{} drafts are written for vLLM alone", draft.method)],
        method => vec![format!("no server has the layers of {method}")],
    }
}

fn eagle3(draft: &Stated, format: Format, layers: Option<usize>) -> Vec<String> {
    let mut obstacles = Vec::new();
    // The default taps are as many as every server's.
    let taps = draft.taps.as_deref().unwrap_or_default();
    if format != Format::Speculators && draft.taps.is_some() && taps.len() != TAPS {
        obstacles.push(format!("it reads {TAPS} hidden states of the target, the draft {}", taps.len()));
    }
    if let Some(last) = taps.last().filter(|last| layers.is_some_and(|layers| **last >= layers)) {
        obstacles.push(format!("it records inputs of layers, and the draft reads the target's last output ({last})"));
    }
    if format == Format::Sglang && draft.norm_before_residual {
        obstacles.push("it always norms after the residual (norm_before_residual is true)".into());
    }
    obstacles
}
