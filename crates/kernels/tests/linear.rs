//! The packed layer against the plain product, over shapes of all kinds.

use burn::tensor::{Device, Tensor, TensorData};
use half::bf16;
use proptest::prelude::*;
use sightdraft_kernels::{Isa, PackedLinear, Storage};

/// Values in -1..1, the same for the same seed.
fn noise(len: usize, seed: u32) -> Vec<f32> {
    let mut state = seed.wrapping_mul(2_654_435_761).wrapping_add(1);
    (0..len)
        .map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as f32 / (1 << 23) as f32 - 1.0
        })
        .collect()
}

/// The product in double precision, and the sum of its terms' sizes, of which errors are a fraction.
fn reference(x: &[f32], weight: &[f32], inputs: usize, bias: f32) -> (f64, f64) {
    let terms = (0..inputs).map(|k| f64::from(x[k]) * f64::from(weight[k]));
    terms.chain([f64::from(bias)]).fold((0.0, 0.0), |(sum, size), t| (sum + t, size + t.abs()))
}

fn pack(isa: Isa, weight: &[f32], outputs: usize, inputs: usize, bias: &[f32], storage: Storage) -> PackedLinear {
    PackedLinear::pack_rows_for(isa, outputs, inputs, Some(bias), storage, |output, row| {
        row.copy_from_slice(&weight[output * inputs..][..inputs]);
    })
}

fn multiply(layer: &PackedLinear, x: &[f32], rows: usize) -> Vec<f32> {
    // What was there must not matter.
    let mut y = vec![f32::NAN; rows * layer.outputs()];
    layer.matmul(x, rows, &mut y);
    y
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, rng_seed: proptest::test_runner::RngSeed::Fixed(7), ..Default::default() })]

    #[test]
    fn results_are_right(
        rows in prop_oneof![0usize..20, 20usize..300],
        inputs in 0usize..700,
        outputs in 0usize..150,
        half_size in any::<bool>(),
        seed in any::<u32>(),
    ) {
        let mut weight = noise(outputs * inputs, seed);
        let (x, bias) = (noise(rows * inputs, seed ^ 1), noise(outputs, seed ^ 2));
        let storage = if half_size { Storage::Bf16 } else { Storage::F32 };
        for isa in Isa::available() {
            let layer = pack(isa, &weight, outputs, inputs, &bias, storage);
            if half_size {
                weight.iter_mut().for_each(|w| *w = bf16::from_f32(*w).to_f32());
            }
            prop_assert_eq!(&layer.unpack(), &weight, "{:?}", isa);
            let y = multiply(&layer, &x, rows);
            for (i, y) in y.iter().enumerate() {
                let (row, output) = (i / outputs, i % outputs);
                let (expected, size) =
                    reference(&x[row * inputs..], &weight[output * inputs..], inputs, bias[output]);
                let error = (f64::from(*y) - expected).abs();
                prop_assert!(error <= 1e-6 * size, "{isa:?} [{row}, {output}]: {y} for {expected}");
            }
        }
    }

    #[test]
    fn a_row_does_not_depend_on_its_neighbours(
        inputs in 1usize..600,
        outputs in 1usize..100,
        first in 0usize..139,
        count in 1usize..70,
        half_size in any::<bool>(),
    ) {
        let rows = 140;
        let count = count.min(rows - first);
        let (weight, bias, x) = (noise(outputs * inputs, 3), noise(outputs, 4), noise(rows * inputs, 5));
        let storage = if half_size { Storage::Bf16 } else { Storage::F32 };
        for isa in Isa::available() {
            let layer = pack(isa, &weight, outputs, inputs, &bias, storage);
            let all = multiply(&layer, &x, rows);
            let some = multiply(&layer, &x[first * inputs..(first + count) * inputs], count);
            let same = all[first * outputs..(first + count) * outputs].iter().zip(&some).all(|(a, b)| a.to_bits() == b.to_bits());
            prop_assert!(same, "{isa:?}: rows {first}+{count} of {rows} differ from themselves alone");
        }
    }
}

#[test]
fn layers_that_read_the_same_rows_give_what_each_gives() {
    let layers = [(70, 1), (1, 2), (0, 3), (33, 4)].map(|(outputs, seed)| {
        let bias = noise(outputs, seed ^ 8);
        PackedLinear::pack(&noise(outputs * 50, seed), outputs, 50, Some(&bias), Storage::F32)
    });
    for rows in [0, 1, 5, 200] {
        let x = noise(rows * 50, 9);
        let mut ys = layers.each_ref().map(|layer| vec![f32::NAN; rows * layer.outputs()]);
        PackedLinear::matmul_all(layers.each_ref(), &x, rows, ys.each_mut().map(Vec::as_mut_slice));
        for (layer, y) in layers.iter().zip(&ys) {
            assert_eq!(*y, multiply(layer, &x, rows), "{layer:?}, {rows} rows");
        }
    }
}

#[test]
fn weights_take_the_room_that_their_storage_says() {
    let weight = noise(256 * 100, 1);
    let [full, half] = [Storage::F32, Storage::Bf16].map(|s| PackedLinear::pack(&weight, 256, 100, None, s).bytes());
    assert_eq!((full, half), (256 * 100 * 4 + 256 * 4, 256 * 100 * 2 + 256 * 4));
}

#[test]
fn tensors_give_what_burn_gives() {
    let device = Device::flex();
    let tensor = |len: usize, seed| Tensor::<1>::from_data(TensorData::new(noise(len, seed), [len]), &device);
    let (weight, bias) = (tensor(40 * 33, 1).reshape([40, 33]), tensor(33, 2));
    let x = tensor(2 * 5 * 40, 3).reshape([2, 5, 40]);
    let layer = PackedLinear::from_tensors(weight.clone(), Some(bias.clone()), Storage::F32);
    let plain = |x: Tensor<3>| x.matmul(weight.clone().unsqueeze()) + bias.clone().unsqueeze();
    // As it is, as a view that starts late, and as one that jumps about.
    let odd = tensor(5 * 2 * 40, 4).reshape([5, 2, 40]).swap_dims(0, 1);
    for x in [x.clone(), x.slice([1..2, 1..4]), odd] {
        let (y, expected) = (layer.forward(x.clone()), plain(x));
        assert_eq!(y.dims(), expected.dims());
        let difference = (y - expected).abs().max().into_scalar::<f32>();
        assert!(difference < 1e-5, "differs by {difference}");
    }
}

#[test]
#[should_panic(expected = "expected rows of 40 values")]
fn a_wrong_width_is_named() {
    let layer = PackedLinear::pack(&noise(40, 1), 1, 40, None, Storage::F32);
    layer.forward(Tensor::<2>::zeros([2, 39], &Device::flex()));
}
