//! `griffin`: the published loss of GRIFFIN (Hu et al. 2025). The terms are HASS's with other weights; a later step trains only
//! where it is token-alignable, that is where the draft had the data's token among its best few one step before.

use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};

use super::{HassLoss, Loss, Objective, Unrolled, cells};
use crate::estep::host;
use crate::ranges::Range;

/// `sum_j mean over the alignable cells of step j of (regression SmoothL1 + ce CE + top_k CE_top10)`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct GriffinLoss {
    /// Weight of the feature's SmoothL1; published 1.
    pub regression: f32,
    /// Weight of the soft cross-entropy; published 0.1.
    pub ce: f32,
    /// Weight of the cross-entropy on the target's ten most likely tokens; published 0.5.
    pub top_k: f32,
    /// A token is alignable where it is among this many best guesses; published 3.
    pub align: usize,
}

impl Default for GriffinLoss {
    fn default() -> Self {
        Self { regression: 1.0, ce: 0.1, top_k: 0.5, align: 3 }
    }
}

impl GriffinLoss {
    fn terms(&self) -> HassLoss {
        HassLoss { regression: self.regression, ce: self.ce, top_k: self.top_k }
    }

    /// Cells that train, per step. Step j at anchor t is on the row of step j-1 at anchor t+1 (both guess x_{t+2+j}), and that
    /// guess decides; from the third step on, so does the mask of the same anchor one step before.
    fn alignable(&self, unrolled: &Unrolled) -> Vec<Vec<bool>> {
        let mut mask: Option<Vec<bool>> = None;
        let mut masks = vec![unrolled.steps[0].trains.clone()];
        for (before, step) in unrolled.steps.iter().zip(&unrolled.steps[1..]) {
            let hits = self.hits(before);
            let aligned: Vec<bool> = (0..unrolled.anchors())
                .map(|m| {
                    let hit = unrolled.following[m].is_some_and(|next| hits[next]);
                    hit && mask.as_ref().is_none_or(|mask| mask[m])
                })
                .collect();
            masks.push(aligned.iter().zip(&step.trains).map(|(a, t)| *a && *t).collect());
            mask = Some(aligned);
        }
        masks
    }

    /// Whether the data's token is among the best guesses of each row.
    fn hits(&self, step: &super::Step) -> Vec<bool> {
        let logits = step.logits.clone().detach();
        let ids: Vec<i64> = step.tokens.iter().map(|token| i64::from(token.unwrap_or(0))).collect();
        let rows = ids.len();
        let index = burn::tensor::TensorData::new(ids, [rows, 1]);
        let own = logits.clone().gather(1, burn::tensor::Tensor::from_data(index, &logits.device()));
        let better = host(logits.greater(own.expand([rows, step.logits.dims()[1]])).float().sum_dim(1));
        better.iter().zip(&step.tokens).map(|(b, token)| token.is_some() && (*b as usize) < self.align).collect()
    }
}

impl Objective for GriffinLoss {
    fn name(&self) -> String {
        "griffin".into()
    }

    fn ranges(&self) -> Vec<Range> {
        let align = Range::count("align", self.align, usize::MAX);
        self.terms().own_ranges().into_iter().chain([align]).collect()
    }

    fn regresses(&self) -> bool {
        true
    }

    fn vocabulary_rows(&self) -> u64 {
        3
    }

    fn loss(&self, unrolled: &Unrolled, _rng: &mut ChaCha8Rng) -> Loss {
        let masks = self.alignable(unrolled);
        let mass = |mask: &[bool]| unrolled.weights.iter().zip(mask).filter(|(_, m)| **m).map(|(w, _)| w).sum::<f32>();
        let steps = unrolled.steps.iter().zip(&masks).enumerate().map(|(j, (step, mask))| {
            // Each step is a mean over its own cells: what the mask takes away does not make the step lighter.
            let scale = mass(&step.trains) / mass(mask).max(f32::MIN_POSITIVE);
            let scale = if j == 0 || mask.iter().all(|m| !m) { 1.0 } else { scale };
            cells::weighted(self.terms().rows(step), &unrolled.weights, mask) * scale
        });
        let value = steps.reduce(|a, b| a + b).expect("an unroll has at least one step");
        let all = masks[1..].iter().flatten().count().max(1);
        let aligned = masks[1..].iter().flatten().filter(|m| **m).count() as f32 / all as f32;
        Loss { value, logged: vec![("alignable".into(), aligned)] }
    }
}
