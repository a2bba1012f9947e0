//! The draft's vocabulary as a subset of the target's.

use sightdraft_core::Result;

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

    /// From the `draft_vocab` most frequent ids; `counts[t]` is how often target id t is predicted under the loss mask.
    pub fn most_frequent(_counts: &[u64], _draft_vocab: usize) -> Self {
        todo!()
    }

    /// From d2t offsets.
    pub fn from_offsets(_d2t: &[i64], _target_vocab: usize) -> Result<Self> {
        todo!()
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
        self.to_draft[target as usize]
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
