//! The limit: how fast this machine reads memory.

use std::time::Instant;

use pulp::{Simd, WithSimd};

use crate::isa::Isa;
use crate::pages::Words;
use crate::pool;
use crate::tile::{Cache, LINE, ask_for};

/// Bytes of one task.
const PIECE: usize = 1 << 20;
/// How many bytes ahead memory is asked for. (Measured: from here into the first cache, reading alone is 5% faster than with what
/// serves multiplying best.)
const NEAR: usize = 2048;

/// A buffer that is read over and over, on all cores, with the same threads, pages and instructions as the
/// weights: the time below which no pass over as many bytes of weights can go.
pub struct ReadBandwidth {
    words: Words,
    isa: Isa,
}

impl ReadBandwidth {
    /// A buffer of about `bytes` (at least 1 MiB); to measure memory rather than a cache, as large as the weights in question.
    pub fn new(bytes: usize) -> Self {
        let mut words = Words::zeroed(bytes.max(PIECE) / 4);
        // Untouched pages are not memory yet.
        words.as_mut_slice().fill(1);
        Self { words, isa: Isa::detect() }
    }

    /// Bytes that one reading reads.
    pub fn bytes(&self) -> usize {
        self.words.as_slice().len() * 4
    }

    /// Reads everything once and returns the seconds taken.
    pub fn read(&self) -> f64 {
        let start = Instant::now();
        let words = self.words.as_slice();
        let pieces = words.len().div_ceil(PIECE / 4);
        pool::for_each(words.len(), pieces, &|i| {
            let piece = &words[i * (PIECE / 4)..words.len().min((i + 1) * (PIECE / 4))];
            std::hint::black_box(self.isa.dispatch(Read(piece)));
        });
        start.elapsed().as_secs_f64()
    }
}

struct Read<'a>(&'a [u32]);

impl WithSimd for Read<'_> {
    type Output = u32;

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> u32 {
        let (vectors, _) = S::as_simd_u32s(self.0).0.as_chunks::<8>();
        let mut sums = [simd.splat_u32s(0); 8];
        for vectors in vectors {
            let ahead = vectors.as_ptr().cast::<u8>().wrapping_add(NEAR);
            (0..size_of_val(vectors))
                .step_by(LINE)
                .for_each(|offset| ask_for(ahead.wrapping_add(offset), Cache::First));
            for (sum, vector) in sums.iter_mut().zip(vectors) {
                *sum = simd.xor_u32s(*sum, *vector);
            }
        }
        let sum = sums.into_iter().fold(simd.splat_u32s(0), |a, b| simd.xor_u32s(a, b));
        bytemuck::cast_slice::<_, u32>(&[sum]).iter().fold(0, |a, b| a ^ b)
    }
}
