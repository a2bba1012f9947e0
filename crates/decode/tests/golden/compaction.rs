//! Compaction of the key/value cache after a verification pass.

use burn::prelude::*;
use sightdraft_fixtures::{Fixture, root};
use sightdraft_target::KvCache;

#[test]
fn fixture_compaction_is_the_same() {
    let device = Device::flex();
    let fixture = Fixture::open(&root().join("posterior/kv_compaction.safetensors"));
    let shape = fixture.shape("kv_before_first4");
    let slabs = |name: &str| -> Tensor<5> { fixture.tensor(name, &device) };
    let (before, after) = (slabs("kv_before_first4"), slabs("kv_after_first4"));
    let slab = |all: &Tensor<5>, index: usize| -> Tensor<4> { all.clone().narrow(0, index, 1).squeeze_dim(0) };
    let prefix = fixture.shape("input_ids")[1];
    let accepted = fixture.i64("accept_length")[0] as usize;
    let width = fixture.shape("retrieve_indices")[1];
    let best = fixture.i64("best_candidate")[0] as usize;
    let indices = fixture.i64("retrieve_indices");
    let path: Vec<usize> = indices[best * width..][..=accepted].iter().map(|&node| node as usize).collect();

    let mut cache = KvCache::new(shape[0] / 2);
    for layer in 0..shape[0] / 2 {
        cache.append(layer, slab(&before, 2 * layer), slab(&before, 2 * layer + 1));
    }
    cache.advance(shape[3]);
    cache.gather(prefix, &path);
    assert_eq!(cache.len() as i64, fixture.i64("current_length_after")[0]);
    for layer in 0..shape[0] / 2 {
        let (keys, values) = cache.layer(layer).unwrap();
        let expected = |index: usize| slab(&after, index).narrow(2, 0, cache.len()).into_data();
        keys.into_data().assert_eq(&expected(2 * layer), true);
        values.into_data().assert_eq(&expected(2 * layer + 1), true);
    }

    // The accepted nodes' hidden states are what the draft goes on with.
    let hidden: Tensor<3> = fixture.tensor("hidden_state_new", &device);
    let rows: Vec<i32> = path.iter().map(|&node| node as i32).collect();
    let found = hidden.select(1, Tensor::from_ints(rows.as_slice(), &device)).into_data();
    let expected = TensorData::new(fixture.f32("accepted_hidden"), fixture.shape("accepted_hidden"));
    found.assert_eq(&expected, true);
}
