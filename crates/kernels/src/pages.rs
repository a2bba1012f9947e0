//! Memory for weights: page-aligned, on huge pages where the system has them.

use memmap2::MmapMut;

/// A zeroed run of 32-bit words. A pass reads gigabytes in order; with 4 KiB pages it would spend a good part of the time
/// on address translation, hence the advice for huge pages.
pub(crate) struct Words {
    map: MmapMut,
    len: usize,
}

impl Words {
    /// `len` zeros.
    ///
    /// # Panics
    /// If the system has no memory left, as a `Vec` would.
    pub(crate) fn zeroed(len: usize) -> Self {
        // An empty map is an error on most systems.
        let map = MmapMut::map_anon((len * 4).max(4)).expect("no memory left for the weights");
        // Advice only: without huge pages the same bytes are just read more slowly.
        #[cfg(target_os = "linux")]
        let _ = map.advise(memmap2::Advice::HugePage);
        Self { map, len }
    }

    pub(crate) fn as_slice(&self) -> &[u32] {
        &bytemuck::cast_slice(&self.map)[..self.len]
    }

    pub(crate) fn as_mut_slice(&mut self) -> &mut [u32] {
        &mut bytemuck::cast_slice_mut(&mut self.map)[..self.len]
    }
}
