//! The key/value cache: preallocated, grows in steps, gathered and truncated after verification.

use burn::tensor::{Bool, Device, Int, Tensor, TensorData};
use sightdraft_kernels::{PackedKv, Projected, attend};

use crate::pass_rows::padded_keys;

/// Rows by which the storage grows.
const STEP: usize = 256;

/// Keys and values of every layer, of which the first `len` rows are alive.
#[derive(Debug, Clone)]
pub struct KvCache {
    layers: Vec<Option<Stored>>,
    len: usize,
}

/// One layer's keys and values.
#[derive(Debug, Clone)]
enum Stored {
    /// `[B, kv_heads, capacity, head_dim]` each.
    Rows(Box<(Tensor<4>, Tensor<4>)>),
    /// As packed layers on the CPU read them.
    Packed(PackedKv),
}

impl KvCache {
    /// An empty cache of `layers` layers. The first append is kept as it comes where keys are not padded (a prompt is not
    /// copied); after it the storage grows to the next multiple of 256 rows.
    pub fn new(layers: usize) -> Self {
        Self { layers: vec![None; layers], len: 0 }
    }

    /// Rows alive.
    pub fn len(&self) -> usize {
        self.len
    }

    /// No rows alive.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Writes the new rows of `layer` `[B, kv_heads, n, head_dim]` behind the alive ones and returns all keys and values
    /// `[B, kv_heads, len + n, head_dim]`; on GPUs more of them, see [`pass_rows`](crate::pass_rows). `len` moves on once per
    /// pass, by [`KvCache::advance`]. Drop what was returned before the next pass: while it lives, the backend must copy the
    /// storage instead of writing in place.
    pub fn append(&mut self, layer: usize, k: Tensor<4>, v: Tensor<4>) -> (Tensor<4>, Tensor<4>) {
        let total = padded_keys(self.len + k.dims()[2], &k.device());
        // Taken out, so that the storage has one owner and is written in place.
        let (keys, values) = match self.layers[layer].take().filter(|_| self.len > 0) {
            None if k.dims()[2] == total => (k, v),
            None => (stored_anew(k), stored_anew(v)),
            Some(stored) => {
                let (keys, values) = stored.into_rows(self.len);
                (write(keys, k, self.len), write(values, v, self.len))
            }
        };
        let alive = (first(&keys, total), first(&values, total));
        self.layers[layer] = Some(Stored::Rows(Box::new((keys, values))));
        alive
    }

    /// Writes new rows of `layer` behind the alive ones and lets them attend, all in one go on the CPU: what they see, `[B, n,
    /// heads * head_dim]`. Rows are rotated by `angles`; `blocked` is `[B or 1, 1, n, len + n]`, true = blocked. `len` moves on
    /// once per pass, by [`KvCache::advance`].
    pub fn attend(
        &mut self,
        layer: usize,
        kv_heads: usize,
        new: Projected,
        angles: &(Tensor<4>, Tensor<4>),
        blocked: Option<Tensor<4, Bool>>,
    ) -> Tensor<3> {
        let [batch, _, width] = new.k.dims();
        let mut packed = match self.layers[layer].take().filter(|_| self.len > 0) {
            None => PackedKv::new(batch, kv_heads, width / kv_heads),
            Some(stored) => stored.into_packed(self.len),
        };
        let mixed = attend(&mut packed, self.len, new, angles, blocked);
        self.layers[layer] = Some(Stored::Packed(packed));
        mixed
    }

    /// Keys and values of the alive rows of `layer`, each `[B, kv_heads, len, head_dim]`; None before the first append.
    pub fn layer(&self, layer: usize) -> Option<(Tensor<4>, Tensor<4>)> {
        let (keys, values) = self.layers[layer].as_ref()?.clone().into_rows(self.len);
        Some((first(&keys, self.len), first(&values, self.len)))
    }

    /// Makes the `n` rows appended in this pass alive.
    pub fn advance(&mut self, n: usize) {
        self.len += n;
    }

    /// Forgets every row from `len` on.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    /// Keeps rows `0..from`, then `from + rows[i]` in the order given: compaction after verification. `rows` ascending.
    pub fn gather(&mut self, from: usize, rows: &[usize]) {
        let stay = rows.iter().enumerate().take_while(|(i, row)| i == *row).count();
        let moved: Vec<usize> = rows[stay..].iter().map(|row| from + row).collect();
        self.len = from + rows.len();
        if moved.is_empty() {
            return;
        }
        for stored in self.layers.iter_mut().filter_map(Option::as_mut) {
            stored.gather(&moved, from + stay);
        }
    }

    /// Keeps the batch places `kept` alone, in that order. All differ, and no `kept[i]` is below i.
    pub fn keep(&mut self, kept: &[usize]) {
        self.layers.iter_mut().filter_map(Option::as_mut).for_each(|stored| stored.keep(kept));
    }
}

impl Stored {
    /// As tensors, of which the first `len` rows are alive.
    fn into_rows(self, len: usize) -> (Tensor<4>, Tensor<4>) {
        match self {
            Self::Rows(both) => *both,
            Self::Packed(packed) => {
                let shape = [packed.batch(), packed.kv_heads(), len, packed.dim()];
                let (keys, values) = packed.unpack(len);
                let send = |values| Tensor::from_data(TensorData::new(values, shape), &Device::flex());
                (send(keys), send(values))
            }
        }
    }

    /// As the kernels read them, the first `len` rows.
    fn into_packed(self, len: usize) -> PackedKv {
        match self {
            Self::Packed(packed) => packed,
            Self::Rows(both) => {
                let (keys, values) = *both;
                let [batch, heads, _, width] = keys.dims();
                let host = |rows: Tensor<4>| -> Vec<f32> {
                    first(&rows, len).swap_dims(1, 2).into_data().iter::<f32>().collect()
                };
                let mut packed = PackedKv::new(batch, heads, width);
                packed.write(0, len, &host(keys), &host(values));
                packed
            }
        }
    }

    /// Copies rows `from` to `to` and the rows after it.
    fn gather(&mut self, from: &[usize], to: usize) {
        match self {
            Self::Packed(packed) => packed.gather(from, to),
            Self::Rows(both) => {
                let (keys, values) = both.as_mut();
                let index = index(from, &keys.device());
                for storage in [keys, values] {
                    let picked = storage.clone().select(2, index.clone());
                    storage.inplace(|storage| assign(storage, picked, to));
                }
            }
        }
    }

    fn keep(&mut self, kept: &[usize]) {
        match self {
            Self::Packed(packed) => packed.keep(kept),
            Self::Rows(both) => {
                let (keys, values) = both.as_mut();
                let index = index(kept, &keys.device());
                for storage in [keys, values] {
                    storage.inplace(|storage| storage.select(0, index.clone()));
                }
            }
        }
    }
}

fn index(places: &[usize], device: &Device) -> Tensor<1, Int> {
    let places: Vec<i64> = places.iter().map(|&place| place as i64).collect();
    let count = places.len();
    Tensor::from_data(TensorData::new(places, [count]), device)
}

/// The first `len` rows, without a copy.
fn first(storage: &Tensor<4>, len: usize) -> Tensor<4> {
    storage.clone().narrow(2, 0, len)
}

/// `new` behind the first `len` rows of `storage`, which grows when it must.
fn write(storage: Tensor<4>, new: Tensor<4>, len: usize) -> Tensor<4> {
    let [batch, heads, capacity, width] = storage.dims();
    let needed = len + new.dims()[2];
    let storage = if needed > capacity {
        assign(zeros([batch, heads, needed, width], &storage), first(&storage, len), 0)
    } else {
        storage
    };
    assign(storage, new, len)
}

/// `rows` at the front of a storage with room behind them.
fn stored_anew(rows: Tensor<4>) -> Tensor<4> {
    assign(zeros(rows.dims(), &rows), rows, 0)
}

/// A storage for at least `[batch, heads, rows, width]`, like `other`.
fn zeros([batch, heads, rows, width]: [usize; 4], other: &Tensor<4>) -> Tensor<4> {
    Tensor::zeros([batch, heads, rows.next_multiple_of(STEP), width], (&other.device(), other.dtype()))
}

/// Writes `new` over the rows of `storage` from `start` on.
fn assign(storage: Tensor<4>, new: Tensor<4>, start: usize) -> Tensor<4> {
    let [batch, heads, rows, width] = new.dims();
    storage.slice_assign([0..batch, 0..heads, start..start + rows, 0..width], new)
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::Device;

    /// Rows that carry their number: `[1, 1, range, 1]`.
    fn numbered(range: std::ops::Range<usize>) -> Tensor<4> {
        let values: Vec<f32> = range.map(|i| i as f32).collect();
        Tensor::from_data(TensorData::new(values.clone(), [1, 1, values.len(), 1]), &Device::flex())
    }

    fn numbers(rows: Tensor<4>) -> Vec<f32> {
        rows.into_data().try_to_vec().expect("f32")
    }

    fn cache_of(rows: usize, step: usize) -> KvCache {
        let mut cache = KvCache::new(1);
        for start in (0..rows).step_by(step) {
            let end = (start + step).min(rows);
            cache.append(0, numbered(start..end), numbered(start..end));
            cache.advance(end - start);
        }
        cache
    }

    #[test]
    fn grows_past_a_step_and_keeps_what_was_there() {
        let cache = cache_of(600, 7);
        let (keys, values) = cache.layer(0).expect("appended");
        let expected: Vec<f32> = (0..600).map(|i| i as f32).collect();
        assert_eq!(numbers(keys), expected);
        assert_eq!(numbers(values), expected);
    }

    #[test]
    fn gather_keeps_the_prefix_and_the_accepted_rows() {
        let mut cache = cache_of(10, 5);
        cache.gather(5, &[0, 2, 4]);
        assert_eq!(cache.len(), 8);
        assert_eq!(numbers(cache.layer(0).expect("appended").0), [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 7.0, 9.0]);
    }

    #[test]
    fn truncated_rows_are_overwritten() {
        let mut cache = cache_of(10, 5);
        cache.truncate(3);
        let (keys, _) = cache.append(0, numbered(90..92), numbered(90..92));
        assert_eq!(numbers(keys), [0.0, 1.0, 2.0, 90.0, 91.0]);
    }

    #[test]
    fn rows_are_the_same_however_they_are_stored() {
        let mut rows = cache_of(300, 100);
        let mut packed = rows.clone();
        packed.layers[0] = packed.layers[0].take().map(|stored| Stored::Packed(stored.into_packed(300)));
        for cache in [&mut rows, &mut packed] {
            cache.gather(290, &[1, 5, 9]);
            cache.keep(&[0]);
        }
        let (packed_keys, packed_values) = packed.layer(0).expect("appended");
        let (keys, values) = rows.layer(0).expect("appended");
        assert_eq!(numbers(packed_keys), numbers(keys.clone()));
        assert_eq!(numbers(packed_values), numbers(values));
        packed.append(0, numbered(7..8), numbered(7..8));
        packed.advance(1);
        assert_eq!(numbers(packed.layer(0).expect("appended").0)[291..], [295.0, 299.0, 7.0]);
        assert_eq!(numbers(keys).len(), 293);
    }

    #[test]
    fn an_append_writes_in_place() {
        let mut cache = cache_of(300, 100);
        let address = |cache: &KvCache| {
            let Some(Stored::Rows(both)) = &cache.layers[0] else { panic!("appended") };
            let keys = &both.0;
            assert!(keys.can_mut(), "the cache must be the only owner between passes");
            keys.dims()[2]
        };
        assert_eq!(address(&cache), 512);
        drop(cache.append(0, numbered(300..301), numbered(300..301)));
        assert_eq!(address(&cache), 512);
    }
}
