//! What a draft says of the next token, as far as a tree wants to know it.

use burn::prelude::*;
use burn::tensor::activation::log_softmax;
use burn::tensor::{DType, Transaction};
use sightdraft_draft::Draft;
use sightdraft_target::pass_rows::with_few_shapes;

use crate::verify::to_host;

/// Log-probabilities of guesses after some rows, of each row equally many, on the host.
#[derive(Debug, Clone)]
pub struct Guesses {
    /// Row by row.
    log_probs: Vec<f32>,
    /// Their draft ids in the same order; none where every row has all ids in their order.
    ids: Option<Vec<u32>>,
    /// Guesses per row.
    width: usize,
}

/// The guesses after one row.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Row<'a> {
    /// Their log-probabilities.
    pub log_probs: &'a [f32],
    ids: Option<&'a [u32]>,
}

impl Row<'_> {
    /// The draft id of the guess at `place`.
    pub fn id(&self, place: usize) -> u32 {
        self.ids.map_or(place as u32, |ids| ids[place])
    }
}

impl Guesses {
    /// The whole distribution over `vocabulary` draft ids, row by row.
    pub fn all(log_probs: Vec<f32>, vocabulary: usize) -> Self {
        Self { log_probs, ids: None, width: vocabulary }
    }

    /// What `draft` reads off `predict` `[1, n, H]`, in one read. Of a GPU only the `best` guesses of each row are read, if they
    /// are all that is wanted: it finds them faster than a vocabulary gets over to the host.
    pub(crate) fn of(draft: &dyn Draft, predict: Tensor<3>, best: Option<usize>) -> Self {
        let logits = with_few_shapes(predict, |predict| draft.logits(predict));
        match best {
            Some(count) if logits.device() != Device::flex() => Self::best(logits.squeeze_dim(0), count),
            _ => {
                let mut log_probs = to_host(logits);
                sightdraft_kernels::log_softmax(&mut log_probs, draft.vocab().len());
                Self::all(log_probs, draft.vocab().len())
            }
        }
    }

    /// The `count` best of each row of `logits` `[n, D]`, best first, chosen on their device.
    fn best(logits: Tensor<2>, count: usize) -> Self {
        let width = count.min(logits.dims()[1]);
        let (log_probs, ids) = log_softmax(logits.cast(DType::F32), 1).topk_with_indices(width, 1);
        let read = Transaction::default().register(log_probs).register(ids).execute();
        let log_probs = read[0].iter::<f32>().collect();
        let ids = read[1].iter::<i64>().map(|id| id as u32).collect();
        Self { log_probs, ids: Some(ids), width }
    }

    /// Row by row.
    pub(crate) fn rows(&self) -> impl Iterator<Item = Row<'_>> {
        let row = |(place, log_probs)| Row {
            log_probs,
            ids: self.ids.as_ref().map(|ids| &ids[place * self.width..][..self.width]),
        };
        self.log_probs.chunks(self.width).enumerate().map(row)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_guesses_are_those_of_the_whole_distribution() {
        let logits = Tensor::<2>::from_data([[1.0, 3.0, -2.0, 2.0], [0.0, -1.0, 5.0, 0.5]], &Device::flex());
        let best = Guesses::best(logits, 2);
        let ids: Vec<[u32; 2]> = best.rows().map(|row| [row.id(0), row.id(1)]).collect();
        assert_eq!(ids, [[1, 3], [2, 3]]);
        let sum = [1f32, 3.0, -2.0, 2.0].map(f32::exp).iter().sum::<f32>();
        let row = best.rows().next().unwrap();
        assert!((row.log_probs[0] - (3.0 - sum.ln())).abs() < 1e-6, "{row:?}");
    }
}
