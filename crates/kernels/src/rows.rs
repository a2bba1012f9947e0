//! Input rows in the order in which the tile kernel reads them.

use crate::pool;

/// Rows of a layer's input, in groups that go through a tile together. A group of `g` rows is stored as `g` neighbours for
/// each input: otherwise the rows, a power of two apart, would push each other out of the cache.
pub(crate) struct PackedRows<'a> {
    values: &'a [f32],
    rows: usize,
    width: usize,
    groups: usize,
}

impl<'a> PackedRows<'a> {
    /// Packs `x` (`[rows, width]`) into groups of at most `most` rows, in `scratch` where the order changes.
    pub(crate) fn new(x: &'a [f32], rows: usize, width: usize, most: usize, scratch: &'a mut Vec<f32>) -> Self {
        if rows == 1 {
            return Self { values: x, rows, width, groups: 1 };
        }
        scratch.resize(scratch.len().max(x.len()), 0.0);
        let scratch = &mut scratch[..x.len()];
        let mut packed = Self { values: &[], rows, width, groups: rows.div_ceil(most) };
        for g in 0..packed.groups {
            let (first, size) = packed.group_rows(g);
            let span = first * width..(first + size) * width;
            side_by_side(&x[span.clone()], width, &mut scratch[span], size);
        }
        packed.values = scratch;
        packed
    }

    /// Groups of at most `most` rows that `fill(first, size, group)` supplies in their order, `[width, size]` each, on all
    /// cores.
    pub(crate) fn fill(
        rows: usize,
        width: usize,
        most: usize,
        values: &'a mut [f32],
        fill: impl Fn(usize, usize, &mut [f32]) + Sync,
    ) -> Self {
        let mut packed = Self { values: &[], rows, width, groups: rows.div_ceil(most) };
        let mut rest = &mut *values;
        let groups = (0..packed.groups).map(|g| {
            let (first, size) = packed.group_rows(g);
            let (group, behind) = std::mem::take(&mut rest).split_at_mut(size * width);
            rest = behind;
            (first, size, group)
        });
        pool::share_out(groups, |(first, size, group)| fill(first, size, group));
        packed.values = values;
        packed
    }

    pub(crate) fn rows(&self) -> usize {
        self.rows
    }

    pub(crate) fn groups(&self) -> usize {
        self.groups
    }

    /// First row and number of rows of group `g`; sizes differ by at most one.
    pub(crate) fn group_rows(&self, g: usize) -> (usize, usize) {
        let first = g * self.rows / self.groups;
        (first, (g + 1) * self.rows / self.groups - first)
    }

    /// Group `g`'s values for the inputs `from..to`.
    pub(crate) fn group(&self, g: usize, from: usize, to: usize) -> &[f32] {
        let (first, size) = self.group_rows(g);
        let start = first * self.width;
        &self.values[start + from * size..start + to * size]
    }
}

/// [`interleave`] of as many rows as the places have room for, in one pass where they are few enough for that.
fn side_by_side(source: &[f32], length: usize, places: &mut [f32], rows: usize) {
    match rows {
        2 => few::<2>(source, length, places),
        3 => few::<3>(source, length, places),
        4 => few::<4>(source, length, places),
        5 => few::<5>(source, length, places),
        6 => few::<6>(source, length, places),
        7 => few::<7>(source, length, places),
        8 => few::<8>(source, length, places),
        9 => few::<9>(source, length, places),
        10 => few::<10>(source, length, places),
        11 => few::<11>(source, length, places),
        12 => few::<12>(source, length, places),
        _ => interleave(source, length, places, rows),
    }
}

fn few<const G: usize>(source: &[f32], length: usize, places: &mut [f32]) {
    let rows: [&[f32]; G] = std::array::from_fn(|r| &source[r * length..(r + 1) * length]);
    for (i, place) in places.as_chunks_mut::<G>().0.iter_mut().enumerate() {
        *place = std::array::from_fn(|r| rows[r][i]);
    }
}

/// Values that are moved together: a block of the source and its places both stay in the first cache.
const BLOCK: usize = 64;

/// Puts `source` (`[rows, length]`) into `places` (`[length, stride]`), row r at offset r.
pub(crate) fn interleave(source: &[f32], length: usize, places: &mut [f32], stride: usize) {
    for from in (0..length).step_by(BLOCK) {
        let to = (from + BLOCK).min(length);
        let block = &mut places[from * stride..to * stride];
        for (r, row) in source.chunks_exact(length).enumerate() {
            for (place, value) in block[r..].iter_mut().step_by(stride).zip(&row[from..to]) {
                *place = *value;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_is_where_its_group_says() {
        for rows in [1, 2, 5, 12, 13, 40] {
            let width = 7;
            let x: Vec<f32> = (0..rows * width).map(|i| i as f32).collect();
            let mut scratch = Vec::new();
            let packed = PackedRows::new(&x, rows, width, 12, &mut scratch);
            let mut seen = 0;
            for g in 0..packed.groups() {
                let (first, size) = packed.group_rows(g);
                assert!(first == seen && (1..=12).contains(&size));
                let values = packed.group(g, 2, 6);
                for r in 0..size {
                    for k in 2..6 {
                        assert_eq!(values[(k - 2) * size + r], x[(first + r) * width + k]);
                    }
                }
                seen += size;
            }
            assert_eq!(seen, rows);
        }
    }
}
