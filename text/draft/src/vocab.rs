//! The draft's vocabulary as a subset of the target's.

use sightdraft_core::{Error, Result};

/// `to_target[d]` is the target id of draft id d, ascending. Stored on disk as d2t offsets and the t2d mask.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VocabMap {
    to_target: Vec<u32>,
    to_draft: Vec<Option<u32>>,
}

impl VocabMap {
    /// All of a vocabulary of `size`.
    pub fn identity(size: usize) -> Self {
        Self { to_target: (0..size as u32).collect(), to_draft: (0..size as u32).map(Some).collect() }
    }

    /// From ascending target ids.
    pub fn new(to_target: Vec<u32>, target_vocab: usize) -> Self {
        let mut to_draft = vec![None; target_vocab];
        for (d, &t) in to_target.iter().enumerate() {
            to_draft[t as usize] = Some(d as u32);
        }
        Self { to_target, to_draft }
    }

    /// From the `draft_vocab` most frequent ids (the lower id where counts tie); `counts[t]` is how often target id t is
    /// predicted under the loss mask.
    pub fn most_frequent(counts: &[u64], draft_vocab: usize) -> Self {
        let mut ids: Vec<u32> = (0..counts.len() as u32).collect();
        ids.sort_by_key(|&id| std::cmp::Reverse(counts[id as usize]));
        ids.truncate(draft_vocab);
        ids.sort_unstable();
        Self::new(ids, counts.len())
    }

    /// From d2t offsets.
    ///
    /// # Errors
    /// Offsets that do not lead to ascending ids of the target's vocabulary.
    pub fn from_offsets(d2t: &[i64], target_vocab: usize) -> Result<Self> {
        let mut to_target = Vec::with_capacity(d2t.len());
        for (draft, offset) in d2t.iter().enumerate() {
            let target = draft as i64 + offset;
            let ascends = to_target.last().is_none_or(|&last| i64::from(last) < target);
            if target < 0 || target >= target_vocab as i64 || !ascends {
                let expected = format!("offsets that lead to ascending ids below {target_vocab}");
                let found = format!("draft id {draft} leading to {target}");
                return Err(Error::invalid("d2t", expected, found, "use the draft that was trained for this target"));
            }
            to_target.push(target as u32);
        }
        Ok(Self::new(to_target, target_vocab))
    }

    /// The t2d mask: whether the draft can say each target id, `[V]`.
    pub fn known(&self) -> Vec<bool> {
        self.to_draft.iter().map(Option::is_some).collect()
    }

    /// V.
    pub fn target_len(&self) -> usize {
        self.to_draft.len()
    }

    /// d2t offsets: target id minus draft id.
    pub fn offsets(&self) -> Vec<i64> {
        self.to_target.iter().enumerate().map(|(d, &t)| t as i64 - d as i64).collect()
    }

    /// Target id of a draft id.
    pub fn target(&self, draft: u32) -> u32 {
        self.to_target[draft as usize]
    }

    /// Draft id of a target id, if the draft can say it.
    pub fn draft(&self, target: u32) -> Option<u32> {
        self.to_draft.get(target as usize).copied().flatten()
    }

    /// Target ids of all draft ids, ascending.
    pub fn targets(&self) -> &[u32] {
        &self.to_target
    }

    /// D.
    pub fn len(&self) -> usize {
        self.to_target.len()
    }

    /// No ids at all.
    pub fn is_empty(&self) -> bool {
        self.to_target.is_empty()
    }

    /// Whether D == V.
    pub fn is_identity(&self) -> bool {
        self.to_target.len() == self.to_draft.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_map_is_stored_as_offsets() {
        let map = VocabMap::new(vec![0, 5, 9], 12);
        assert_eq!(map.offsets(), [0, 4, 7]);
        assert_eq!(VocabMap::from_offsets(&[0, 4, 7], 12).unwrap(), map);
        assert_eq!((map.draft(5), map.draft(6), map.target(2)), (Some(1), None, 9));
        assert_eq!(map.known().iter().filter(|&&known| known).count(), 3);
    }

    #[test]
    fn offsets_out_of_range_or_order_are_refused() {
        for wrong in [[0, 4, 10], [0, 4, 3], [-1, 4, 7]] {
            assert!(VocabMap::from_offsets(&wrong, 12).unwrap_err().to_string().contains("d2t"), "{wrong:?}");
        }
    }

    #[test]
    fn the_most_frequent_ids_in_ascending_order() {
        assert_eq!(VocabMap::most_frequent(&[1, 7, 3, 3, 9], 3).targets(), [1, 2, 4]);
    }
}
