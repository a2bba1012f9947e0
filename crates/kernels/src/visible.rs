//! Which keys each row sees, as runs.

use std::ops::Range;

/// The keys that rows see, found once per call and shared by all heads.
pub(crate) struct Visible {
    runs: Vec<Range<usize>>,
    /// Where each row's runs begin in `runs`; one more than there are rows.
    starts: Vec<usize>,
}

impl Visible {
    /// From a mask `[rows, alive]`, not 0 where a row must not look; `None`: all see all.
    pub(crate) fn new(blocked: Option<&[u8]>, rows: usize, alive: usize) -> Self {
        let mut visible = Self { runs: Vec::with_capacity(rows), starts: vec![0] };
        for row in 0..rows {
            match blocked {
                Some(blocked) => visible.push_runs(&blocked[row * alive..(row + 1) * alive]),
                None if alive > 0 => visible.runs.push(0..alive),
                None => {}
            }
            visible.starts.push(visible.runs.len());
        }
        visible
    }

    fn push_runs(&mut self, blocked: &[u8]) {
        let mut at = 0;
        while at < blocked.len() {
            let start = at + length(&blocked[at..], |b| b != 0);
            at = start + length(&blocked[start..], |b| b == 0);
            if start < at {
                self.runs.push(start..at);
            }
        }
    }

    /// The runs of one row, in order.
    pub(crate) fn of(&self, row: usize) -> &[Range<usize>] {
        &self.runs[self.starts[row]..self.starts[row + 1]]
    }

    /// The keys that every row of `rows` sees and that come first for each of them; empty where there are none.
    pub(crate) fn common(&self, rows: Range<usize>) -> Range<usize> {
        let mut firsts = rows.map(|row| self.of(row).first().cloned().unwrap_or(0..0));
        let Some(mut common) = firsts.next() else { return 0..0 };
        for first in firsts {
            if first.start != common.start {
                return 0..0;
            }
            common.end = common.end.min(first.end);
        }
        common
    }

    /// One past the last key that any row of `rows` sees.
    pub(crate) fn end(&self, rows: Range<usize>) -> usize {
        rows.filter_map(|row| self.of(row).last().map(|run| run.end)).max().unwrap_or(0)
    }
}

/// How many values from the first on are `wanted`. Sixteen at a time: a mask is mostly one long run.
fn length(values: &[u8], wanted: impl Fn(u8) -> bool) -> usize {
    let (chunks, _) = values.as_chunks::<16>();
    let whole = chunks.iter().take_while(|chunk| chunk.iter().fold(true, |all, value| all & wanted(*value))).count();
    let rest = &values[whole * 16..];
    whole * 16 + rest.iter().position(|value| !wanted(*value)).unwrap_or(rest.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_what_the_mask_says() {
        let mut mask = vec![0u8; 3 * 50];
        [3, 4, 20, 49].iter().for_each(|key| mask[*key] = 1);
        mask[50..60].fill(1);
        mask[100..150].fill(1);
        let visible = Visible::new(Some(&mask), 3, 50);
        assert_eq!(visible.of(0), [0..3, 5..20, 21..49]);
        assert_eq!(visible.of(1), [10..50; 1]);
        assert!(visible.of(2).is_empty());
        assert_eq!(visible.common(0..1), 0..3);
        assert_eq!(visible.common(0..2), 0..0);
        assert_eq!((visible.end(0..1), visible.end(2..3)), (49, 0));
    }

    #[test]
    fn rows_behind_the_same_padding_have_keys_in_common() {
        let mask = [1, 0, 0, 1, 1, 0, 0, 0];
        let visible = Visible::new(Some(&mask), 2, 4);
        assert_eq!(visible.common(0..2), 1..3);
        assert_eq!(Visible::new(None, 2, 4).common(0..2), 0..4);
    }
}
