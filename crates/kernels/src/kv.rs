//! The key/value cache of one attention layer, laid out as attention reads it.

use crate::isa::Isa;

/// Places by which the storage grows: a multiple of every tile's width.
const STEP: usize = 256;

/// Keys and values of one layer, written row by row and never packed again.
///
/// Keys lie in tiles of neighbouring places, one place in each lane; values in tiles of neighbouring dimensions, place after
/// place. That is the order in which [`attend`](Self::attend) reads both.
#[derive(Clone, Debug)]
pub struct PackedKv {
    pub(crate) batch: usize,
    pub(crate) kv_heads: usize,
    pub(crate) dim: usize,
    pub(crate) isa: Isa,
    /// Columns in a tile.
    pub(crate) width: usize,
    pub(crate) capacity: usize,
    /// `[batch, kv_heads, capacity / width, dim, width]`.
    keys: Vec<f32>,
    /// `[batch, kv_heads, dim / width rounded up, capacity, width]`.
    values: Vec<f32>,
}

impl PackedKv {
    /// An empty cache of `batch` sequences, each with `kv_heads` vectors of `dim` values per place.
    pub fn new(batch: usize, kv_heads: usize, dim: usize) -> Self {
        Self::new_for(Isa::detect(), batch, kv_heads, dim)
    }

    /// [`new`](Self::new) for given instructions.
    pub fn new_for(isa: Isa, batch: usize, kv_heads: usize, dim: usize) -> Self {
        let width = 2 * isa.shape().0;
        Self { batch, kv_heads, dim, isa, width, capacity: 0, keys: Vec::new(), values: Vec::new() }
    }

    /// Sequences.
    pub fn batch(&self) -> usize {
        self.batch
    }

    /// Key and value heads.
    pub fn kv_heads(&self) -> usize {
        self.kv_heads
    }

    /// Length of a head's vectors.
    pub fn dim(&self) -> usize {
        self.dim
    }

    /// Writes rows to the places from `at` on; what was there is gone. The storage grows when it must.
    ///
    /// # Shapes
    /// - k, v: `[batch, rows, kv_heads, dim]`
    ///
    /// # Panics
    /// If the lengths do not fit.
    pub fn write(&mut self, at: usize, rows: usize, k: &[f32], v: &[f32]) {
        let Self { batch, kv_heads, dim, .. } = *self;
        assert_eq!(k.len(), batch * rows * kv_heads * dim, "k: expected [{batch}, {rows}, {kv_heads}, {dim}]");
        assert_eq!(v.len(), k.len(), "v: expected [{batch}, {rows}, {kv_heads}, {dim}]");
        self.grow(at + rows);
        for (i, (k, v)) in k.chunks_exact(dim).zip(v.chunks_exact(dim)).enumerate() {
            let (sequence, row, head) = (i / (rows * kv_heads), i / kv_heads % rows, i % kv_heads);
            let head = sequence * kv_heads + head;
            self.put_key(head, at + row, k);
            self.put_value(head, at + row, v);
        }
    }

    /// Copies place `from[i]` to place `to + i` for every `i` in turn. `from` ascends and no `from[i]` is below `to + i`.
    pub fn gather(&mut self, from: &[usize], to: usize) {
        let (mut k, mut v) = (vec![0.0; self.dim], vec![0.0; self.dim]);
        for head in 0..self.batch * self.kv_heads {
            for (i, &place) in from.iter().enumerate().filter(|(i, place)| to + i != **place) {
                self.read(head, place, &mut k, &mut v);
                self.put_key(head, to + i, &k);
                self.put_value(head, to + i, &v);
            }
        }
    }

    /// Keeps the sequences `kept` alone, in that order, and moves only those whose place changes. All differ, and no `kept[i]` is
    /// below i.
    pub fn keep(&mut self, kept: &[usize]) {
        let (keys, values) = (self.kv_heads * self.keys_len(), self.kv_heads * self.values_len());
        for (all, each) in [(&mut self.keys, keys), (&mut self.values, values)] {
            for (to, &from) in kept.iter().enumerate().filter(|(to, from)| to != *from) {
                all.copy_within(from * each..(from + 1) * each, to * each);
            }
            all.truncate(kept.len() * each);
        }
        self.batch = kept.len();
    }

    /// Keys and values of the first `len` places, `[batch, kv_heads, len, dim]` each.
    pub fn unpack(&self, len: usize) -> (Vec<f32>, Vec<f32>) {
        let heads = self.batch * self.kv_heads;
        let (mut k, mut v) = (vec![0.0; heads * len * self.dim], vec![0.0; heads * len * self.dim]);
        for (i, (k, v)) in k.chunks_exact_mut(self.dim).zip(v.chunks_exact_mut(self.dim)).enumerate() {
            self.read(i / len, i % len, k, v);
        }
        (k, v)
    }

    /// One head's tiles of keys.
    pub(crate) fn keys(&self, head: usize) -> &[f32] {
        &self.keys[head * self.keys_len()..][..self.keys_len()]
    }

    /// One head's tiles of values.
    pub(crate) fn values(&self, head: usize) -> &[f32] {
        &self.values[head * self.values_len()..][..self.values_len()]
    }

    /// Values that one head's keys take.
    fn keys_len(&self) -> usize {
        self.capacity * self.dim
    }

    /// Values that one head's values take.
    fn values_len(&self) -> usize {
        self.dim.next_multiple_of(self.width) * self.capacity
    }

    fn key_at(&self, head: usize, place: usize) -> usize {
        head * self.keys_len() + place / self.width * self.dim * self.width + place % self.width
    }

    fn put_key(&mut self, head: usize, place: usize, k: &[f32]) {
        let start = self.key_at(head, place);
        for (slot, k) in self.keys[start..].iter_mut().step_by(self.width).zip(k) {
            *slot = *k;
        }
    }

    fn put_value(&mut self, head: usize, place: usize, v: &[f32]) {
        let start = head * self.values_len() + place * self.width;
        for (t, v) in v.chunks(self.width).enumerate() {
            self.values[start + t * self.capacity * self.width..][..v.len()].copy_from_slice(v);
        }
    }

    fn read(&self, head: usize, place: usize, k: &mut [f32], v: &mut [f32]) {
        for (k, slot) in k.iter_mut().zip(self.keys[self.key_at(head, place)..].iter().step_by(self.width)) {
            *k = *slot;
        }
        let start = head * self.values_len() + place * self.width;
        for (t, v) in v.chunks_mut(self.width).enumerate() {
            v.copy_from_slice(&self.values[start + t * self.capacity * self.width..][..v.len()]);
        }
    }

    /// Makes room for `needed` places. The keys of a head stay as they lie; each tile of values moves apart.
    fn grow(&mut self, needed: usize) {
        if needed <= self.capacity {
            return;
        }
        let capacity = needed.next_multiple_of(STEP);
        let spread = |old: &[f32], block: usize, larger: usize| {
            let mut new = vec![0.0; old.len() / block * larger];
            for (old, new) in old.chunks_exact(block).zip(new.chunks_exact_mut(larger)) {
                new[..block].copy_from_slice(old);
            }
            new
        };
        let heads = self.batch * self.kv_heads;
        if self.keys.is_empty() {
            self.keys = vec![0.0; heads * capacity * self.dim];
            self.values = vec![0.0; heads * capacity * self.dim.next_multiple_of(self.width)];
        } else {
            self.keys = spread(&self.keys, self.capacity * self.dim, capacity * self.dim);
            self.values = spread(&self.values, self.capacity * self.width, capacity * self.width);
        }
        self.capacity = capacity;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows that carry their place: `[batch, rows, 2 heads, 3]`.
    fn rows(batch: usize, places: std::ops::Range<usize>) -> (Vec<f32>, Vec<f32>) {
        let mut k = Vec::new();
        for sequence in 0..batch {
            for place in places.clone() {
                k.extend((0..6).map(|i| (sequence * 10_000 + place * 10 + i) as f32));
            }
        }
        let v = k.iter().map(|k| -k).collect();
        (k, v)
    }

    fn filled(batch: usize, len: usize, step: usize) -> PackedKv {
        let mut kv = PackedKv::new(batch, 2, 3);
        for at in (0..len).step_by(step) {
            let n = step.min(len - at);
            let (k, v) = rows(batch, at..at + n);
            kv.write(at, n, &k, &v);
        }
        kv
    }

    #[test]
    fn grows_and_keeps_what_was_there() {
        for isa in Isa::available() {
            let mut kv = PackedKv::new_for(isa, 1, 2, 3);
            let (k, v) = rows(1, 0..300);
            kv.write(0, 200, &k[..1200], &v[..1200]);
            kv.write(200, 100, &k[1200..], &v[1200..]);
            let (unpacked, values) = kv.unpack(300);
            for place in 0..300 {
                assert_eq!(unpacked[place * 3..][..3], k[place * 6..][..3], "{isa:?}");
                assert_eq!(values[(300 + place) * 3..][..3], v[place * 6 + 3..][..3], "{isa:?}");
            }
        }
    }

    #[test]
    fn gathers_accepted_places_and_keeps_sequences() {
        let mut kv = filled(3, 40, 7);
        kv.gather(&[30, 33, 39], 30);
        kv.keep(&[2, 1]);
        let (k, v) = kv.unpack(33);
        assert_eq!(kv.batch(), 2);
        let first = |sequence: usize, place: usize| k[(sequence * 2 * 33 + place) * 3];
        assert_eq!([first(0, 29), first(0, 31), first(0, 32)], [20_290.0, 20_330.0, 20_390.0]);
        assert_eq!([first(1, 30), first(1, 31)], [10_300.0, 10_330.0]);
        assert!(k.iter().zip(&v).all(|(k, v)| *k == -v));
    }
}
