//! `ce`: the likelihood of the data's own tokens, which VSD (Zou et al. 2026) names as what drafts are usually trained for.

use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};

use super::{Loss, Objective, Unrolled, cells, token_log_probs};
use crate::ranges::Range;

/// `-sum_j decay^j sum_m w_m log q_mj(x_{t+2+j})` over the cells whose token the draft can say.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Ce {
    /// Weight of step j is `decay^j`; default 0.8.
    pub decay: f32,
}

impl Default for Ce {
    fn default() -> Self {
        Self { decay: 0.8 }
    }
}

impl Objective for Ce {
    fn name(&self) -> String {
        "ce".into()
    }

    fn ranges(&self) -> Vec<Range> {
        vec![Range::decay("decay", self.decay)]
    }

    fn loss(&self, unrolled: &Unrolled, _rng: &mut ChaCha8Rng) -> Loss {
        let steps = unrolled.steps.iter().enumerate().map(|(j, step)| {
            let ids = step.tokens.iter().map(|token| token.unwrap_or(0)).collect();
            let log_q = token_log_probs(&step.logits, ids, 1).squeeze_dim::<1>(1);
            let said: Vec<bool> = step.tokens.iter().map(Option::is_some).collect();
            -cells::weighted(log_q, &unrolled.weights, &said) * self.decay.powi(j as i32)
        });
        let value = steps.reduce(|a, b| a + b).expect("an unroll has at least one step");
        Loss { value, logged: vec![] }
    }
}
