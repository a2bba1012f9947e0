//! Which vector instructions run.

use std::any::TypeId;
use std::sync::OnceLock;

#[cfg(target_arch = "aarch64")]
use pulp::aarch64::Neon;
#[cfg(target_arch = "x86_64")]
use pulp::x86::{V3, V4};
use pulp::{Scalar128b, Simd, WithSimd};

/// `a * b + c`: fused where the instructions have it, in two roundings in portable code, where fusing would be a call to a
/// library.
#[inline(always)]
pub(crate) fn mul_add<S: Simd>(simd: S, a: S::f32s, b: S::f32s, c: S::f32s) -> S::f32s {
    if TypeId::of::<S>() == TypeId::of::<Scalar128b>() {
        simd.add_f32s(simd.mul_f32s(a, b), c)
    } else {
        simd.mul_add_e_f32s(a, b, c)
    }
}

/// The vector instructions that a kernel uses.
#[derive(Clone, Copy, Debug)]
pub enum Isa {
    /// AVX-512 F, BW, CD, DQ and VL.
    #[cfg(target_arch = "x86_64")]
    Avx512(V4),
    /// AVX2 and FMA.
    #[cfg(target_arch = "x86_64")]
    Avx2(V3),
    /// NEON.
    #[cfg(target_arch = "aarch64")]
    Neon(Neon),
    /// Plain code on four lanes, which compilers turn into whatever the target's baseline has.
    Portable,
}

impl Isa {
    /// The best that this processor has.
    pub fn detect() -> Self {
        static BEST: OnceLock<Isa> = OnceLock::new();
        *BEST.get_or_init(|| Self::available()[0])
    }

    /// Everything that this processor can run, best first.
    pub fn available() -> Vec<Self> {
        let mut all = Vec::new();
        #[cfg(target_arch = "x86_64")]
        {
            all.extend(V4::try_new().map(Self::Avx512));
            all.extend(V3::try_new().map(Self::Avx2));
        }
        #[cfg(target_arch = "aarch64")]
        all.extend(Neon::try_new().map(Self::Neon));
        all.push(Self::Portable);
        all
    }

    /// Runs `op` compiled for these instructions.
    pub(crate) fn dispatch<Op: WithSimd>(self, op: Op) -> Op::Output {
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Avx512(simd) => Simd::vectorize(simd, op),
            #[cfg(target_arch = "x86_64")]
            Self::Avx2(simd) => Simd::vectorize(simd, op),
            #[cfg(target_arch = "aarch64")]
            Self::Neon(simd) => Simd::vectorize(simd, op),
            Self::Portable => Simd::vectorize(Scalar128b, op),
        }
    }

    /// `f32` values in a vector, and vector registers.
    pub(crate) fn shape(self) -> (usize, usize) {
        struct Shape;
        impl WithSimd for Shape {
            type Output = (usize, usize);
            fn with_simd<S: Simd>(self, _: S) -> Self::Output {
                (S::F32_LANES, S::REGISTER_COUNT)
            }
        }
        self.dispatch(Shape)
    }
}
