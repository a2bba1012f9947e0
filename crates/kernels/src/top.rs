//! The largest values of a row.

use burn::backend::{Autodiff, Flex};
use burn::prelude::*;
use burn::tensor::DType;

use crate::operation::slice;
use crate::pool;
use crate::tensor::contiguous;

/// Indices of the `k` largest finite values, largest first; of equal values the first comes first.
pub fn top_indices(values: &[f32], k: usize) -> Vec<usize> {
    let mut best: Vec<usize> = Vec::with_capacity(k.min(values.len()) + 1);
    for (index, &value) in values.iter().enumerate() {
        // Nearly every value of a vocabulary fails here, so the scan costs little more than reading it.
        let full = best.len() == k;
        if !value.is_finite() || (full && best.last().is_none_or(|&worst| value <= values[worst])) {
            continue;
        }
        best.insert(best.partition_point(|&other| values[other] >= value), index);
        best.truncate(k);
    }
    best
}

/// [`top_indices`] of every row, on all cores, for `f32` tensors of the `flex` device, under autodiff or not (no gradient flows);
/// Burn's own operator on anything else.
///
/// # Shapes
/// - rows: `[rows, width]`, all finite; k: at most `width`
/// - output: `[rows, k]`
pub fn top_rows(rows: &Tensor<2>, k: usize) -> Tensor<2, Int> {
    let [count, width] = rows.dims();
    let bare = || rows.clone().try_into_primitive::<Flex>().ok();
    let recorded = || Some(rows.clone().try_into_primitive::<Autodiff<Flex>>().ok()?.into_parts().0);
    let Some(here) = bare().or_else(recorded).filter(|here| here.dtype() == DType::F32 && count * k > 0) else {
        return rows.clone().topk_with_indices(k, 1).1;
    };
    let here = contiguous(here);
    let mut ids = vec![0i64; count * k];
    pool::share_out(ids.chunks_exact_mut(k).zip(slice(&here).chunks_exact(width)), |(ids, row)| {
        ids.iter_mut().zip(top_indices(row, k)).for_each(|(id, index)| *id = index as i64);
    });
    Tensor::from_data(TensorData::new(ids, [count, k]), &rows.device())
}

#[cfg(test)]
mod tests {
    use burn::tensor::Distribution;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn ties_go_to_the_first_and_nan_is_no_value() {
        assert_eq!(top_indices(&[1.0, 3.0, 3.0, f32::NAN, 2.0, 3.0], 3), [1, 2, 5]);
    }

    proptest! {
        #[test]
        fn top_indices_are_those_of_a_stable_sort(values in prop::collection::vec(-3i8..3, 0..30), k in 0usize..12) {
            let values: Vec<f32> = values.into_iter().map(f32::from).collect();
            let mut sorted: Vec<usize> = (0..values.len()).collect();
            sorted.sort_by(|&a, &b| values[b].total_cmp(&values[a]));
            sorted.truncate(k);
            prop_assert_eq!(top_indices(&values, k), sorted);
        }
    }

    #[test]
    fn rows_are_those_of_burn_with_gradients_or_without() {
        for device in [Device::flex(), Device::flex().autodiff()] {
            let rows = Tensor::<2>::random([70, 300], Distribution::Normal(0.0, 1.0), &device);
            let expected = rows.clone().topk_with_indices(10, 1).1.into_data();
            top_rows(&rows, 10).into_data().assert_eq(&expected, true);
            let turned = rows.transpose();
            let expected = turned.clone().topk_with_indices(3, 1).1.into_data();
            top_rows(&turned, 3).into_data().assert_eq(&expected, true);
        }
    }
}
