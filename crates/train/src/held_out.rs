//! Held-out acceptance: what checkpoints are chosen by.

use burn::prelude::*;
use serde::{Deserialize, Serialize};
use sightdraft_draft::DraftModel;

use crate::features::{Batch, Sequence, ids_of};
use crate::objective::Unrolled;

/// Greedy chain acceptance over all held-out rows, from the teacher-forced unroll.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct HeldOut {
    /// Mean accepted drafts per pass of a chain as long as the unroll.
    pub accepted: f64,
    /// `conditional[j]`: of the chains that reach position j, the share whose token j is accepted.
    pub conditional: Vec<f64>,
    /// Chains measured.
    pub rows: usize,
}

/// Sums that become a [`HeldOut`].
#[derive(Debug, Default)]
pub struct Tally {
    reached: Vec<usize>,
    accepted: Vec<usize>,
}

impl Tally {
    /// Adds the rows of `sequences`. A token outside the draft vocabulary counts as rejected; a chain that the end of the
    /// answer cuts off counts as far as it goes.
    pub fn add(&mut self, draft: &DraftModel, sequences: &[Sequence], head: &Tensor<2>, steps: usize) {
        let batch = Batch::new(sequences, steps);
        if !batch.anchors.is_empty() {
            self.add_unrolled(&batch.unroll(draft, head, sequences.len()), &batch.known(steps));
        }
    }

    /// `known[m]`: steps of anchor m at which the target's choice is known, sayable by the draft or not.
    fn add_unrolled(&mut self, unrolled: &Unrolled, known: &[usize]) {
        let steps = unrolled.steps.len();
        self.reached.resize(steps, 0);
        self.accepted.resize(steps, 0);
        let mut alive: Vec<bool> = vec![true; known.len()];
        for (j, step) in unrolled.steps.iter().enumerate() {
            let rows = step.logits.dims()[0];
            let guesses = ids_of(step.logits.clone().argmax(1).reshape([rows]));
            for m in 0..rows {
                alive[m] &= j < known[m];
                self.reached[j] += usize::from(alive[m]);
                alive[m] &= step.greedy[m] == Some(guesses[m]);
                self.accepted[j] += usize::from(alive[m]);
            }
        }
    }

    /// The measurement.
    pub fn finish(&self) -> HeldOut {
        let rows = self.reached.first().copied().unwrap_or(0);
        let share = |(a, r): (&usize, &usize)| *a as f64 / (*r).max(1) as f64;
        HeldOut {
            accepted: self.accepted.iter().sum::<usize>() as f64 / rows.max(1) as f64,
            conditional: self.accepted.iter().zip(&self.reached).map(share).collect(),
            rows,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objective::Step;

    #[test]
    fn acceptance_is_a_cumulative_product() {
        // One chain with matches [T, F, T, T] accepts 1; one cut after two accepted tokens accepts 2.
        let says = |a: usize, b: usize| {
            let row = |t: usize| (0..2).map(move |v| if v == t { 1.0 } else { 0.0 });
            Tensor::<2>::from_data(TensorData::new(row(a).chain(row(b)).collect::<Vec<f32>>(), [2, 2]), &Device::flex())
        };
        let step = |a, greedy_b| Step {
            logits: says(a, 0),
            target: Tensor::zeros([2, 2], &Device::flex()),
            trains: vec![true; 2],
            greedy: vec![Some(0), greedy_b],
            tokens: vec![None; 2],
            features: None,
        };
        let steps = vec![step(0, Some(0)), step(1, Some(0)), step(0, None), step(0, None)];
        let mut tally = Tally::default();
        tally.add_unrolled(&Unrolled { steps, weights: vec![0.5; 2], following: vec![None; 2], paths: None }, &[4, 2]);
        let held_out = tally.finish();
        assert_eq!((held_out.accepted, held_out.rows), (1.5, 2));
        assert_eq!(held_out.conditional, [1.0, 0.5, 0.0, 0.0]);
    }
}
