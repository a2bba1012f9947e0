//! The exponential function on vectors.

use pulp::Simd;

use crate::isa::mul_add;

/// Adding it to a small number leaves that number, rounded to an integer, in the low bits: 1.5 * 2^23.
const ROUND: f32 = 12_582_912.0;
/// ln 2, the first part with so few bits that its products with exponents are exact.
const LN_2: [f32; 2] = [0.693_359_4, -2.121_944_4e-4];
/// Taylor coefficients of `(exp r - 1 - r) / r^2`, highest first. At |r| <= ln 2 / 2 the next term is 5e-9.
const TAYLOR: [f32; 6] = [1.0 / 5040.0, 1.0 / 720.0, 1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5];

/// `exp(x)` for `x <= 0`, to 3e-7 relative; 1.65e-38 for everything below -87. A lane's result depends on that lane alone.
#[inline(always)]
pub(crate) fn exp<S: Simd>(simd: S, x: S::f32s) -> S::f32s {
    let x = simd.max_f32s(x, simd.splat_f32s(-87.0));
    let shifted = mul_add(simd, x, simd.splat_f32s(std::f32::consts::LOG2_E), simd.splat_f32s(ROUND));
    let exponent = simd.sub_f32s(shifted, simd.splat_f32s(ROUND));
    // Loops, not closures: those would be compiled without the vector instructions.
    let mut r = x;
    for part in LN_2 {
        r = mul_add(simd, exponent, simd.splat_f32s(-part), r);
    }
    let mut tail = simd.splat_f32s(TAYLOR[0]);
    for coefficient in &TAYLOR[1..] {
        tail = mul_add(simd, tail, r, simd.splat_f32s(*coefficient));
    }
    let power = simd.add_f32s(mul_add(simd, simd.mul_f32s(r, r), tail, r), simd.splat_f32s(1.0));
    // The low bits of `shifted` are the exponent; shifted into place, everything above them falls off.
    let scale = simd.wrapping_dyn_shl_u32s(simd.transmute_u32s_f32s(shifted), simd.splat_u32s(23));
    simd.transmute_f32s_u32s(simd.add_u32s(simd.transmute_u32s_f32s(power), scale))
}

#[cfg(test)]
mod tests {
    use pulp::WithSimd;

    use super::*;
    use crate::Isa;

    struct All<'a>(&'a mut [f32]);

    impl WithSimd for All<'_> {
        type Output = ();

        #[inline(always)]
        fn with_simd<S: Simd>(self, simd: S) {
            for x in S::as_mut_simd_f32s(self.0).0 {
                *x = exp(simd, *x);
            }
        }
    }

    #[test]
    fn close_to_the_library_function() {
        let xs: Vec<f32> = (0..87 * 64).map(|i| -(i as f32) / 64.0).collect();
        for isa in Isa::available() {
            let mut ys = xs.clone();
            isa.dispatch(All(&mut ys));
            assert_eq!(ys[0], 1.0);
            for (x, y) in xs.iter().zip(&ys) {
                let expected = f64::from(*x).exp();
                assert!((f64::from(*y) - expected).abs() <= 3e-7 * expected, "{isa:?}: exp({x}) = {y}");
            }
        }
    }
}
