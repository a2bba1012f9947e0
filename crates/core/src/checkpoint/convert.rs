//! From bytes on disk to the element type asked for.

use burn::tensor::{DType, Element, TensorData};
use half::{bf16, f16};

/// Element types that weight files hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stored {
    F64,
    F32,
    F16,
    Bf16,
    I64,
    I32,
    I16,
    I8,
    U64,
    U32,
    U16,
    U8,
    Bool,
}

impl Stored {
    /// Bytes of one element.
    pub(super) fn size(self) -> usize {
        match self {
            Self::F64 | Self::I64 | Self::U64 => 8,
            Self::F32 | Self::I32 | Self::U32 => 4,
            Self::F16 | Self::Bf16 | Self::I16 | Self::U16 => 2,
            Self::I8 | Self::U8 | Self::Bool => 1,
        }
    }
}

/// A float tensor as `dtype`.
pub(super) fn decode(bytes: &[u8], stored: Stored, shape: &[usize], dtype: DType) -> Result<TensorData, String> {
    match dtype {
        DType::F32 => Ok(TensorData::new(floats::<f32>(bytes, stored)?, shape.to_vec())),
        DType::F16 => Ok(TensorData::new(floats::<f16>(bytes, stored)?, shape.to_vec())),
        DType::BF16 => Ok(TensorData::new(floats::<bf16>(bytes, stored)?, shape.to_vec())),
        other => Err(format!("a request for {other:?}")),
    }
}

/// A float matrix `[rows, columns]` as `dtype`, transposed to `[columns, rows]`.
pub(super) fn decode_transposed(
    bytes: &[u8],
    stored: Stored,
    [rows, columns]: [usize; 2],
    dtype: DType,
) -> Result<TensorData, String> {
    let shape = [columns, rows];
    match dtype {
        DType::F32 => Ok(TensorData::new(floats_transposed::<f32>(bytes, stored, rows, columns)?, shape)),
        DType::F16 => Ok(TensorData::new(floats_transposed::<f16>(bytes, stored, rows, columns)?, shape)),
        DType::BF16 => Ok(TensorData::new(floats_transposed::<bf16>(bytes, stored, rows, columns)?, shape)),
        other => Err(format!("a request for {other:?}")),
    }
}

/// Integers and booleans, widened.
pub(super) fn integers(bytes: &[u8], stored: Stored) -> Result<Vec<i64>, String> {
    Ok(match stored {
        Stored::I64 => each(bytes, i64::from_le_bytes),
        Stored::U64 => each(bytes, |b| u64::from_le_bytes(b) as i64),
        Stored::I32 => each(bytes, |b| i32::from_le_bytes(b).into()),
        Stored::U32 => each(bytes, |b| u32::from_le_bytes(b).into()),
        Stored::I16 => each(bytes, |b| i16::from_le_bytes(b).into()),
        Stored::U16 => each(bytes, |b| u16::from_le_bytes(b).into()),
        Stored::I8 => each(bytes, |b| i8::from_le_bytes(b).into()),
        Stored::U8 | Stored::Bool => each(bytes, |[b]: [u8; 1]| b.into()),
        other => return Err(format!("{other:?} where integers or booleans belong")),
    })
}

/// An element that weights can be converted to.
pub(super) trait Float: Element {
    fn of(value: f32) -> Self;
}

impl Float for f32 {
    fn of(value: f32) -> Self {
        value
    }
}

impl Float for f16 {
    fn of(value: f32) -> Self {
        Self::from_f32(value)
    }
}

impl Float for bf16 {
    fn of(value: f32) -> Self {
        Self::from_f32(value)
    }
}

/// A float tensor, flat.
pub(super) fn floats<T: Float>(bytes: &[u8], stored: Stored) -> Result<Vec<T>, String> {
    Ok(match stored {
        Stored::F64 => each(bytes, |b| T::of(f64::from_le_bytes(b) as f32)),
        Stored::F32 => each(bytes, |b| T::of(f32::from_le_bytes(b))),
        Stored::F16 => each(bytes, |b| T::of(f16::from_le_bytes(b).to_f32())),
        Stored::Bf16 => each(bytes, |b| T::of(bf16::from_le_bytes(b).to_f32())),
        other => return Err(format!("{other:?} where floats belong")),
    })
}

fn each<const N: usize, T>(bytes: &[u8], convert: impl Fn([u8; N]) -> T) -> Vec<T> {
    bytes.as_chunks::<N>().0.iter().map(|chunk| convert(*chunk)).collect()
}

/// Rows are converted a strip at a time and scattered: a strip's target lines stay in the cache meanwhile.
fn floats_transposed<T: Float>(bytes: &[u8], stored: Stored, rows: usize, columns: usize) -> Result<Vec<T>, String> {
    const STRIP: usize = 16;
    let mut out = vec![T::of(0.0); rows * columns];
    for start in (0..rows).step_by(STRIP) {
        let height = STRIP.min(rows - start);
        let row_bytes = columns * stored.size();
        let strip = floats::<T>(&bytes[start * row_bytes..(start + height) * row_bytes], stored)?;
        for (column, line) in out.chunks_exact_mut(rows).enumerate() {
            for (row, cell) in line[start..start + height].iter_mut().enumerate() {
                *cell = strip[row * columns + column];
            }
        }
    }
    Ok(out)
}
