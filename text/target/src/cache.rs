//! The key/value cache: preallocated, grows in steps, gathered and truncated after verification.

use burn::tensor::{Int, Tensor, TensorData};

/// Rows by which the storage grows.
const STEP: usize = 256;

/// Keys and values of every layer, `[B, kv_heads, capacity, head_dim]` each, of which the first `len` rows are alive.
#[derive(Debug, Clone)]
pub struct KvCache {
    layers: Vec<Option<(Tensor<4>, Tensor<4>)>>,
    len: usize,
}

impl KvCache {
    /// An empty cache of `layers` layers. The first append is kept as it comes (a prompt is not copied); after it the
    /// storage grows to the next multiple of 256 rows.
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
    /// `[B, kv_heads, len + n, head_dim]`. `len` moves on once per pass, by [`KvCache::advance`]. Drop what was returned
    /// before the next pass: while it lives, the backend must copy the storage instead of writing in place.
    pub fn append(&mut self, layer: usize, k: Tensor<4>, v: Tensor<4>) -> (Tensor<4>, Tensor<4>) {
        let total = self.len + k.dims()[2];
        // Taken out, so that the storage has one owner and is written in place.
        let (keys, values) = match self.layers[layer].take() {
            Some((keys, values)) if self.len > 0 => (write(keys, k, self.len), write(values, v, self.len)),
            _ => (k, v),
        };
        let alive = (first(&keys, total), first(&values, total));
        self.layers[layer] = Some((keys, values));
        alive
    }

    /// Keys and values of the alive rows of `layer`, each `[B, kv_heads, len, head_dim]`; None before the first append.
    pub fn layer(&self, layer: usize) -> Option<(Tensor<4>, Tensor<4>)> {
        let (keys, values) = self.layers[layer].as_ref()?;
        Some((first(keys, self.len), first(values, self.len)))
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
        let moved: Vec<i64> = rows[stay..].iter().map(|row| (from + row) as i64).collect();
        self.len = from + rows.len();
        if moved.is_empty() {
            return;
        }
        for (keys, values) in self.layers.iter_mut().filter_map(Option::as_mut) {
            let index = Tensor::<1, Int>::from_data(TensorData::new(moved.clone(), [moved.len()]), &keys.device());
            for storage in [keys, values] {
                let picked = storage.clone().select(2, index.clone());
                storage.inplace(|storage| assign(storage, picked, from + stay));
            }
        }
    }
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
        let shape = [batch, heads, needed.next_multiple_of(STEP), width];
        assign(Tensor::zeros(shape, (&storage.device(), storage.dtype())), first(&storage, len), 0)
    } else {
        storage
    };
    assign(storage, new, len)
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
    fn an_append_writes_in_place() {
        let mut cache = cache_of(300, 100);
        let address = |cache: &KvCache| {
            let (keys, _) = cache.layers[0].as_ref().expect("appended");
            assert!(keys.can_mut(), "the cache must be the only owner between passes");
            keys.dims()[2]
        };
        assert_eq!(address(&cache), 512);
        drop(cache.append(0, numbered(300..301), numbered(300..301)));
        assert_eq!(address(&cache), 512);
    }
}
