//! The packed linear layer.

use std::cell::RefCell;
use std::fmt;
use std::marker::PhantomData;
use std::mem::MaybeUninit;

use half::bf16;

use crate::isa::Isa;
use crate::pages::Words;
use crate::pool;
use crate::rows::PackedRows;
use crate::tile::{Tile, group_limit};

/// How weights are kept. Products and sums are `f32` either way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Storage {
    /// Four bytes a weight, as given.
    F32,
    /// Two bytes a weight, rounded to the nearest `bf16` (ties to even).
    Bf16,
}

/// A linear layer `y = x W^T + b` for inference, its weights packed in the order in which they are read.
///
/// Made for few rows: up to some dozens the weights are read from memory once and cost what one row costs. More
/// rows (a prompt) are taken in blocks. A row's result does not depend, in any bit, on the rows beside it, nor on the number of
/// threads; it does depend on the instruction set.
///
/// The packed weights replace the plain ones: the layer takes [`bytes`](Self::bytes), outputs rounded up to whole tiles.
pub struct PackedLinear {
    inputs: usize,
    outputs: usize,
    storage: Storage,
    isa: Isa,
    /// Outputs in a tile.
    width: usize,
    /// `[tiles, inputs, words of a tile's inputs]`, see [`Tile`].
    words: Words,
    /// Padded with zeros to whole tiles.
    bias: Vec<f32>,
}

thread_local! {
    /// Packed input rows of the calls made from this thread, kept for the next one.
    static SCRATCH: RefCell<Vec<f32>> = const { RefCell::new(Vec::new()) };
    /// One tile's results for a block of rows, kept for the next tile.
    static SUMS: RefCell<Vec<f32>> = const { RefCell::new(Vec::new()) };
}

impl PackedLinear {
    /// Packs `weight`, row-major `[outputs, inputs]` as checkpoints have it.
    ///
    /// # Panics
    /// If `weight` has not `outputs * inputs` values, or `bias` not `outputs`.
    pub fn pack(weight: &[f32], outputs: usize, inputs: usize, bias: Option<&[f32]>, storage: Storage) -> Self {
        assert_eq!(weight.len(), outputs * inputs, "weight: expected {outputs} x {inputs} values");
        let fill =
            |output: usize, row: &mut [f32]| row.copy_from_slice(&weight[output * inputs..(output + 1) * inputs]);
        Self::pack_rows(outputs, inputs, bias, storage, fill)
    }

    /// Packs weights that `fill(output, row)` supplies, one output's `inputs` weights at a time, on all cores: no
    /// second copy is ever in memory, wherever they come from (a mapped file, another layout).
    ///
    /// # Panics
    /// If `bias` has not `outputs` values.
    pub fn pack_rows(
        outputs: usize,
        inputs: usize,
        bias: Option<&[f32]>,
        storage: Storage,
        fill: impl Fn(usize, &mut [f32]) + Sync,
    ) -> Self {
        Self::pack_rows_for(Isa::detect(), outputs, inputs, bias, storage, fill)
    }

    /// [`pack_rows`](Self::pack_rows) for given instructions.
    pub fn pack_rows_for(
        isa: Isa,
        outputs: usize,
        inputs: usize,
        bias: Option<&[f32]>,
        storage: Storage,
        fill: impl Fn(usize, &mut [f32]) + Sync,
    ) -> Self {
        let width = 2 * isa.shape().0;
        let tiles = outputs.div_ceil(width);
        let mut padded_bias = vec![0.0; tiles * width];
        if let Some(bias) = bias {
            assert_eq!(bias.len(), outputs, "bias: expected one value per output");
            padded_bias[..outputs].copy_from_slice(bias);
        }
        let mut words = Words::zeroed(tiles * inputs * words_per_input(storage, width));
        pack_tiles(words.as_mut_slice(), outputs, inputs, width, storage, &fill);
        Self { inputs, outputs, storage, isa, width, words, bias: padded_bias }
    }

    /// Values in an input row.
    pub fn inputs(&self) -> usize {
        self.inputs
    }

    /// Values in an output row.
    pub fn outputs(&self) -> usize {
        self.outputs
    }

    /// How the weights are kept.
    pub fn storage(&self) -> Storage {
        self.storage
    }

    /// Memory that the layer holds; a pass over few rows reads it once.
    pub fn bytes(&self) -> usize {
        (self.words.as_slice().len() + self.bias.len()) * 4
    }

    /// The weights as they are kept, row-major `[outputs, inputs]`.
    pub fn unpack(&self) -> Vec<f32> {
        let per_input = words_per_input(self.storage, self.width);
        let tile = self.inputs * per_input;
        let mut weight = Vec::with_capacity(self.outputs * self.inputs);
        for output in 0..self.outputs {
            let words = &self.words.as_slice()[output / self.width * tile..][..tile];
            weight.extend(unpack_column(words, output % self.width, per_input, self.storage));
        }
        weight
    }

    /// `y = x W^T + b`.
    ///
    /// # Shapes
    /// - x: `[rows, inputs]`, row-major
    /// - y: `[rows, outputs]`, row-major; overwritten
    ///
    /// # Panics
    /// If a length does not fit.
    pub fn matmul(&self, x: &[f32], rows: usize, y: &mut [f32]) {
        Self::matmul_all([self], x, rows, [y]);
    }

    /// [`matmul`](Self::matmul) of several layers that read the same rows, which are laid out and handed to the cores once.
    ///
    /// # Panics
    /// If a length does not fit, or the layers take different rows or were packed for different instructions.
    pub fn matmul_all<const N: usize>(layers: [&Self; N], x: &[f32], rows: usize, ys: [&mut [f32]; N]) {
        Self::write_all(layers, x, rows, ys.map(as_uninit));
    }

    /// [`matmul_all`](Self::matmul_all) to memory that may never have been written to. Every value is.
    pub(crate) fn write_all<const N: usize>(
        layers: [&Self; N],
        x: &[f32],
        rows: usize,
        ys: [&mut [MaybeUninit<f32>]; N],
    ) {
        let Some(first) = layers.first() else { return };
        let (inputs, width) = (first.inputs, first.width);
        assert_eq!(x.len(), rows * inputs, "x: expected {rows} rows of {inputs}");
        for (layer, y) in layers.iter().zip(&ys) {
            assert!(
                layer.inputs == inputs && layer.width == width,
                "layers: expected all of {inputs} inputs and one kind"
            );
            assert_eq!(y.len(), rows * layer.outputs, "y: expected {rows} rows of {}", layer.outputs);
        }
        if x.is_empty() {
            // No row, or rows of nothing: the bias is all there is.
            for (layer, y) in layers.iter().zip(ys) {
                for y in y.chunks_exact_mut(layer.outputs.max(1)) {
                    y.write_copy_of_slice(&layer.bias[..layer.outputs]);
                }
            }
            return;
        }
        let mut ys = ys.into_iter();
        let outputs = layers.map(|layer| {
            let y = ys.next().expect("one for each layer");
            Output { layer, columns: Columns::new(y, rows, layer.outputs) }
        });
        let block = rows_per_block(inputs);
        for start in (0..rows).step_by(block) {
            let rows = start..(start + block).min(rows);
            // Taken out for the time of the call, so that a task that calls this layer again finds an empty one.
            let mut scratch = SCRATCH.take();
            let values = &x[rows.start * inputs..rows.end * inputs];
            let packed = PackedRows::new(values, rows.len(), inputs, group_limit(first.isa.shape().1), &mut scratch);
            Self::block(&outputs, start, &packed);
            SCRATCH.set(scratch);
        }
    }

    /// All tiles of all layers for one block of rows, of which `start` is the first. A task is a run of neighbouring tiles, so
    /// that what is fetched ahead is used.
    fn block<const N: usize>(outputs: &[Output<'_>; N], start: usize, rows: &PackedRows<'_>) {
        let tiles: usize = outputs.iter().map(Output::tiles).sum();
        if tiles == 0 {
            return;
        }
        let weights: usize = outputs.iter().map(|output| output.layer.inputs * output.layer.outputs).sum();
        let values = weights * rows.rows().div_ceil(ROWS_PER_READ);
        let run = tiles.div_ceil(pool::threads_for(values) * TASKS_PER_THREAD);
        pool::for_each(values, tiles.div_ceil(run), &|task| {
            let mut sums = SUMS.take();
            for index in task * run..((task + 1) * run).min(tiles) {
                let mut tile = index;
                let mut which = 0;
                while tile >= outputs[which].tiles() {
                    tile -= outputs[which].tiles();
                    which += 1;
                }
                let layer = outputs[which].layer;
                sums.resize(rows.rows() * layer.width, 0.0);
                layer.tile(tile, rows, &mut sums);
                // SAFETY: each tile has its own columns, and each tile is in one task.
                unsafe { outputs[which].columns.write(start, tile * layer.width, &sums, layer.width) };
            }
            SUMS.set(sums);
        });
    }

    fn tile(&self, tile: usize, rows: &PackedRows<'_>, sums: &mut [f32]) {
        let bias = &self.bias[tile * self.width..][..self.width];
        sums.chunks_exact_mut(self.width).for_each(|row| row.copy_from_slice(bias));
        let words = self.inputs * words_per_input(self.storage, self.width);
        self.isa.dispatch(Tile {
            storage: self.storage,
            words: &self.words.as_slice()[tile * words..][..words],
            inputs: self.inputs,
            rows,
            sums,
        });
    }
}

impl fmt::Debug for PackedLinear {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PackedLinear")
            .field("inputs", &self.inputs)
            .field("outputs", &self.outputs)
            .field("storage", &self.storage)
            .field("isa", &self.isa)
            .finish_non_exhaustive()
    }
}

/// Enough tasks that a core which is disturbed does not hold up the others, and that small layers are dealt out evenly.
const TASKS_PER_THREAD: usize = 32;
/// Rows that take as long to multiply by a weight as the weight takes to read.
pub(crate) const ROWS_PER_READ: usize = 16;
/// Rows that are taken together at most.
const MOST_BLOCK: usize = 128;

/// Rows taken together: their values stay in the second cache (1 MiB of it), from which each tile reads them again.
fn rows_per_block(inputs: usize) -> usize {
    (262_144 / inputs).clamp(48, MOST_BLOCK)
}

fn words_per_input(storage: Storage, width: usize) -> usize {
    match storage {
        Storage::F32 => width,
        Storage::Bf16 => width / 2,
    }
}

/// A layer and where its result goes.
struct Output<'a> {
    layer: &'a PackedLinear,
    columns: Columns<'a>,
}

impl Output<'_> {
    fn tiles(&self) -> usize {
        self.layer.outputs.div_ceil(self.layer.width)
    }
}

/// As memory that is only written to.
pub(crate) fn as_uninit(values: &mut [f32]) -> &mut [MaybeUninit<f32>] {
    // SAFETY: the same layout, and nobody puts anything but values there: `Columns::write` and `write_copy_of_slice`.
    unsafe { &mut *(std::ptr::from_mut(values) as *mut [MaybeUninit<f32>]) }
}

/// The result's memory, written to by several threads, each in its own columns.
pub(crate) struct Columns<'a> {
    start: *mut MaybeUninit<f32>,
    rows: usize,
    stride: usize,
    result: PhantomData<&'a mut [MaybeUninit<f32>]>,
}

// SAFETY: `write`'s contract keeps the threads apart.
unsafe impl Sync for Columns<'_> {}

impl<'a> Columns<'a> {
    /// Of `result`, `[rows, stride]`.
    pub(crate) fn new(result: &'a mut [MaybeUninit<f32>], rows: usize, stride: usize) -> Self {
        assert_eq!(result.len(), rows * stride, "result: expected {rows} x {stride} values");
        Self { start: result.as_mut_ptr(), rows, stride, result: PhantomData }
    }

    /// Writes `values` (`[some rows, width]`) to the rows from `row` and the columns from `first` on; columns past the last are
    /// dropped.
    ///
    /// # Safety
    /// No other thread touches these columns at the same time.
    pub(crate) unsafe fn write(&self, row: usize, first: usize, values: &[f32], width: usize) {
        let count = width.min(self.stride - first);
        for (row, values) in (row..self.rows).zip(values.chunks_exact(width)) {
            // SAFETY: row < rows and first + count <= stride, so the span lies inside the result; the caller has it alone.
            let target = unsafe { std::slice::from_raw_parts_mut(self.start.add(row * self.stride + first), count) };
            target.write_copy_of_slice(&values[..count]);
        }
    }

    /// [`write`](Self::write) of several tiles beside each other, each `[rows, width]`, from the first row on: row by row, so that
    /// memory is written in longer pieces.
    ///
    /// # Safety
    /// As [`write`](Self::write).
    pub(crate) unsafe fn write_beside(&self, first: usize, tiles: &[f32], width: usize) {
        for row in 0..self.rows {
            for (t, tile) in tiles.chunks_exact(self.rows * width).enumerate() {
                // SAFETY: what the caller promises.
                unsafe { self.write(row, first + t * width, &tile[row * width..(row + 1) * width], width) };
            }
        }
    }
}

/// Fills `words` tile by tile.
fn pack_tiles(
    words: &mut [u32],
    outputs: usize,
    inputs: usize,
    width: usize,
    storage: Storage,
    fill: &(impl Fn(usize, &mut [f32]) + Sync),
) {
    let per_input = words_per_input(storage, width);
    if words.is_empty() {
        return;
    }
    pool::share_out(words.chunks_exact_mut(inputs * per_input).enumerate(), |(tile, words)| {
        let mut row = vec![0.0; inputs];
        for column in 0..width.min(outputs - tile * width) {
            fill(tile * width + column, &mut row);
            pack_column(words, &row, column, per_input, storage);
        }
    });
}

/// Puts one output's weights in its place in a tile.
fn pack_column(words: &mut [u32], weights: &[f32], column: usize, per_input: usize, storage: Storage) {
    let (slot, shift) = place(column, per_input, storage);
    for (word, weight) in words[slot..].iter_mut().step_by(per_input).zip(weights) {
        *word |= match storage {
            Storage::F32 => weight.to_bits(),
            Storage::Bf16 => u32::from(bf16::from_f32(*weight).to_bits()) << shift,
        };
    }
}

/// One output's weights out of its tile.
fn unpack_column(
    words: &[u32],
    column: usize,
    per_input: usize,
    storage: Storage,
) -> impl Iterator<Item = f32> + use<'_> {
    let (slot, shift) = place(column, per_input, storage);
    words.iter().skip(slot).step_by(per_input).map(move |word| match storage {
        Storage::F32 => f32::from_bits(*word),
        Storage::Bf16 => bf16::from_bits((word >> shift) as u16).to_f32(),
    })
}

/// Which of an input's words holds an output's weight, and from which bit on.
fn place(column: usize, per_input: usize, storage: Storage) -> (usize, usize) {
    match storage {
        Storage::F32 => (column, 0),
        // The tile's first vector of outputs in the low halves, the second in the high ones.
        Storage::Bf16 => (column % per_input, 16 * (column / per_input)),
    }
}
