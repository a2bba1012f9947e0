//! Memory for weights, on huge pages where the system has them.
//!
//! A pass reads gigabytes in order; with 4 KiB pages it would spend a good part of the time on address translation. A huge page
//! is 2 MiB, more than a small model's layer: layers are laid one after another in regions of many such pages.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use memmap2::{MmapMut, MmapRaw};

/// A huge page, in bytes, of most systems.
const HUGE_PAGE: usize = 2 << 20;
/// What small runs share. Pages are taken from the system when they are first written to, so a large region costs nothing.
const SHARED: usize = 128 << 20;
/// Runs begin at cache lines.
const LINE: usize = 64;

/// A run of 32-bit words, zeroed at first.
pub(crate) struct Words {
    region: Arc<Region>,
    /// In bytes.
    at: usize,
    len: usize,
}

/// The region that the next small run is put in, and how many of its bytes are given away. Freed with its last run.
static OPEN: Mutex<(Weak<Region>, usize)> = Mutex::new((Weak::new(), 0));

impl Words {
    /// `len` zeros.
    ///
    /// # Panics
    /// If the system has no memory left, as a `Vec` would.
    pub(crate) fn zeroed(len: usize) -> Self {
        let bytes = (len * 4).next_multiple_of(LINE);
        if bytes > SHARED / 8 {
            return Self { region: Arc::new(Region::new(bytes)), at: 0, len };
        }
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        let (region, at) = match open.0.upgrade() {
            Some(region) if open.1 + bytes <= SHARED => (region, open.1),
            _ => (Arc::new(Region::new(SHARED)), 0),
        };
        *open = (Arc::downgrade(&region), at + bytes);
        Self { region, at, len }
    }

    pub(crate) fn as_slice(&self) -> &[u32] {
        // SAFETY: the span lies in the region, begins at a cache line, was given to this run alone, and every bit is a word.
        unsafe { std::slice::from_raw_parts(self.start(), self.len) }
    }

    pub(crate) fn as_mut_slice(&mut self) -> &mut [u32] {
        // SAFETY: as above.
        unsafe { std::slice::from_raw_parts_mut(self.start(), self.len) }
    }

    fn start(&self) -> *mut u32 {
        self.region.map.as_mut_ptr().wrapping_add(self.region.first + self.at).cast()
    }
}

/// Zeroed memory from a huge page's border on.
struct Region {
    map: MmapRaw,
    /// Bytes before the border.
    first: usize,
}

impl Region {
    fn new(bytes: usize) -> Self {
        let map = MmapMut::map_anon(bytes + HUGE_PAGE).expect("no memory left for the weights");
        // Advice only: without huge pages the same bytes are just read more slowly.
        #[cfg(target_os = "linux")]
        let _ = map.advise(memmap2::Advice::HugePage);
        let map = MmapRaw::from(map);
        let first = map.as_ptr().align_offset(HUGE_PAGE);
        Self { map, first }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_zeroed_and_apart() {
        let mut runs: Vec<Words> = (0..40).map(|i| Words::zeroed(i * 100_003)).collect();
        for (i, run) in runs.iter_mut().enumerate() {
            assert!(run.as_slice().len() == i * 100_003 && run.as_slice().iter().all(|&word| word == 0));
            run.as_mut_slice().fill(i as u32);
        }
        for (i, run) in runs.iter().enumerate() {
            assert!(run.as_slice().iter().all(|&word| word == i as u32), "run {i} was written to by another");
            assert_eq!(run.as_slice().as_ptr().align_offset(LINE), 0);
        }
    }

    #[test]
    fn small_runs_share_huge_pages() {
        let pages = |run: &Words| run.as_slice().as_ptr() as usize / HUGE_PAGE;
        let runs: Vec<Words> = (0..64).map(|_| Words::zeroed(HUGE_PAGE / 64)).collect();
        let mut used: Vec<usize> = runs.iter().map(pages).collect();
        used.sort_unstable();
        used.dedup();
        // 4 MiB in all; other tests may take some of the region in between.
        assert!(used.len() < 32, "{} pages", used.len());
    }
}
