//! `sum`: several objectives at once, each with its weight.

use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};

use super::{Loss, Objective, RolloutRequest, Unrolled};
use crate::config::ObjectiveConfig;
use crate::ranges::Range;

/// `sum_i weight_i loss_i`. In a recipe: `name = "sum"` and one `[[objective.terms]]` per term.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sum {
    /// What is added up.
    pub terms: Vec<Term>,
}

/// One term of a [`Sum`]: the keys of its objective, and a weight beside them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Term {
    /// Factor of this term.
    pub weight: f32,
    /// What is weighted.
    #[serde(flatten)]
    pub objective: ObjectiveConfig,
}

impl Objective for Sum {
    fn name(&self) -> String {
        let terms: Vec<String> =
            self.terms.iter().map(|term| format!("{} {}", term.weight, term.objective.objective().name())).collect();
        terms.join(" + ")
    }

    fn ranges(&self) -> Vec<Range> {
        let count = Range::count("terms", self.terms.len(), 16);
        let of_term = |(i, term): (usize, &Term)| {
            let place = format!("terms[{i}]");
            let own = std::iter::once(Range::positive("weight", term.weight));
            own.chain(term.objective.objective().ranges()).map(move |range| range.under(&place)).collect::<Vec<_>>()
        };
        std::iter::once(count).chain(self.terms.iter().enumerate().flat_map(of_term)).collect()
    }

    fn rollout(&self) -> Option<RolloutRequest> {
        // A recipe is checked for terms that would need different paths.
        self.terms.iter().find_map(|term| term.objective.objective().rollout())
    }

    fn regresses(&self) -> bool {
        self.terms.iter().any(|term| term.objective.objective().regresses())
    }

    fn vocabulary_rows(&self) -> u64 {
        // Logits and target are there once.
        2 + self.terms.iter().map(|term| term.objective.objective().vocabulary_rows() - 2).sum::<u64>()
    }

    fn loss(&self, unrolled: &Unrolled, rng: &mut ChaCha8Rng) -> Loss {
        let mut logged = vec![];
        let terms = self.terms.iter().map(|term| {
            let objective = term.objective.objective();
            let loss = objective.loss(unrolled, rng);
            logged.push((objective.name(), loss.value.clone().detach().into_scalar::<f32>()));
            logged.extend(loss.logged);
            loss.value * term.weight
        });
        let value = terms.reduce(|a, b| a + b).expect("a recipe's sum has at least one term");
        Loss { value, logged }
    }
}
