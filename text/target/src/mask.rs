//! Which earlier rows a row may see.

use burn::tensor::{Bool, Device, Tensor, TensorData};

/// Attention pattern of the `n` new rows of a pass over `past` cached rows.
#[derive(Debug, Clone)]
pub enum Mask {
    /// Every new row sees the cache and the new rows up to itself.
    Causal,
    /// Row i sees the whole cache and the new rows j with `sees[i][j]` (ancestors and itself): a packed tree.
    Tree(Vec<Vec<bool>>),
    /// Everything explicit: `[B][n][past + n]`, true = may see. Batches with padding, training unrolls.
    Full(Vec<Vec<Vec<bool>>>),
}

impl Mask {
    /// `[B or 1, 1, n, past + n]`, true = blocked (Burn's convention); None when nothing is blocked (one causal row).
    ///
    /// # Panics
    /// An explicit mask of another size than `n` and `past` say.
    pub fn blocked(&self, n: usize, past: usize, device: &Device) -> Option<Tensor<4, Bool>> {
        self.blocked_padded([n, past], [n, past + n], device)
    }

    /// As [`Mask::blocked`], of `n` rows behind `past`, in a shape of more rows and keys `[B or 1, 1, rows, keys]`: all that is
    /// padding is blocked.
    pub(crate) fn blocked_padded(
        &self,
        [n, past]: [usize; 2],
        [rows, keys]: [usize; 2],
        device: &Device,
    ) -> Option<Tensor<4, Bool>> {
        if matches!(self, Self::Causal) && n == 1 && [rows, keys] == [1, past + 1] {
            return None;
        }
        let (batch, mut blocked) = self.flags(n, past);
        if [rows, keys] != [n, past + n] {
            blocked = padded(&blocked, n, past + n, [rows, keys]);
        }
        if !blocked.contains(&true) {
            return None;
        }
        Some(Tensor::from_data(TensorData::new(blocked, [batch, 1, rows, keys]), device))
    }

    /// The number of sequences, and of each of them `[n][past + n]`, true = blocked.
    fn flags(&self, n: usize, past: usize) -> (usize, Vec<bool>) {
        match self {
            Self::Causal => (1, (0..n).flat_map(|row| (0..past + n).map(move |key| key > past + row)).collect()),
            Self::Tree(sees) => {
                assert!(sees.len() == n && sees.iter().all(|row| row.len() == n), "a tree mask must be n x n");
                (1, sees.iter().flat_map(|row| tree_row(row, past)).collect())
            }
            Self::Full(sees) => {
                let fits = |rows: &Vec<Vec<bool>>| rows.len() == n && rows.iter().all(|row| row.len() == past + n);
                assert!(sees.iter().all(fits), "a full mask must be B x n x (past + n)");
                (sees.len(), sees.iter().flatten().flatten().map(|may_see| !may_see).collect())
            }
        }
    }
}

/// Flags `[..][n][width]` as `[..][rows][keys]`: blocked where there were none.
fn padded(blocked: &[bool], n: usize, width: usize, [rows, keys]: [usize; 2]) -> Vec<bool> {
    let mut all = Vec::with_capacity(blocked.len() / (n * width).max(1) * rows * keys);
    for sequence in blocked.chunks(n * width) {
        for row in sequence.chunks(width) {
            all.extend_from_slice(row);
            all.resize(all.len() + keys - width, true);
        }
        all.resize(all.len() + (rows - n) * keys, true);
    }
    all
}

fn tree_row(sees: &[bool], past: usize) -> impl Iterator<Item = bool> + '_ {
    std::iter::repeat_n(false, past).chain(sees.iter().map(|may_see| !may_see))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flags(mask: Option<Tensor<4, Bool>>) -> Vec<bool> {
        mask.expect("something is blocked").into_data().try_to_vec().expect("booleans")
    }

    #[test]
    fn causal_rows_see_the_cache_and_themselves() {
        let device = Device::flex();
        assert!(Mask::Causal.blocked(1, 5, &device).is_none());
        assert_eq!(flags(Mask::Causal.blocked(2, 1, &device)), [false, false, true, false, false, false]);
    }

    #[test]
    fn padding_sees_nothing_and_is_not_seen() {
        let sees = vec![vec![vec![true, true, false], vec![true, true, true]]; 2];
        let blocked = Mask::Full(sees).blocked_padded([2, 1], [3, 4], &Device::flex());
        let one = [false, false, true, true, false, false, false, true, true, true, true, true];
        assert_eq!(flags(blocked), [one, one].concat());
        assert_eq!(flags(Mask::Causal.blocked_padded([1, 1], [1, 3], &Device::flex())), [false, false, true]);
    }

    #[test]
    fn tree_rows_see_the_cache_and_their_ancestors() {
        let sees = vec![vec![true, false], vec![false, true]];
        let blocked = flags(Mask::Tree(sees).blocked(2, 2, &Device::flex()));
        assert_eq!(blocked, [false, false, false, true, false, false, true, false]);
    }
}
