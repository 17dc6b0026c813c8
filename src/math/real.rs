//! The trait of both floating-point precisions.

use std::fmt::Debug;
use std::iter::Sum;
use std::ops::{Add, AddAssign, Div, Mul, MulAssign, Neg, Sub, SubAssign};

/// `f32` or `f64`.
pub trait Real:
    Copy
    + Debug
    + Default
    + PartialOrd
    + Send
    + Sync
    + 'static
    + bytemuck::Pod
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + Neg<Output = Self>
    + AddAssign
    + SubAssign
    + MulAssign
    + Sum
{
    /// 0.
    const ZERO: Self;
    /// 1.
    const ONE: Self;
    /// 1/2.
    const HALF: Self;
    /// 2.
    const TWO: Self;

    /// Converts to the nearest value.
    fn of(x: f64) -> Self;
    /// Converts single precision to the nearest value.
    fn of_f32(x: f32) -> Self;
    /// Converts to double precision.
    fn to_f64(self) -> f64;
    /// Converts to single precision.
    fn to_f32(self) -> f32;
    /// Returns the integer below, clamped to the range of `i32`; NaN becomes 0.
    fn floor_i32(self) -> i32;
    /// Returns the integer above, clamped to the range of `i32`; NaN becomes 0.
    fn ceil_i32(self) -> i32;
    /// Returns this value times `a` plus `b`, rounded once.
    fn mul_add(self, a: Self, b: Self) -> Self;
    /// Returns the square root.
    fn sqrt(self) -> Self;
    /// Returns e to the power of this value.
    fn exp(self) -> Self;
    /// Returns the natural logarithm.
    fn ln(self) -> Self;
    /// Returns the absolute value.
    fn abs(self) -> Self;
    /// Returns the smaller of two values; `other` if this is NaN.
    fn min(self, other: Self) -> Self;
    /// Returns the larger of two values; `other` if this is NaN.
    fn max(self, other: Self) -> Self;
    /// True if neither infinite nor NaN.
    fn is_finite(self) -> bool;
}

macro_rules! real {
    ($real:ident) => {
        impl Real for $real {
            const ZERO: Self = 0.0;
            const ONE: Self = 1.0;
            const HALF: Self = 0.5;
            const TWO: Self = 2.0;

            #[inline]
            fn of(x: f64) -> Self {
                x as Self
            }
            #[inline]
            fn of_f32(x: f32) -> Self {
                Self::from(x)
            }
            #[inline]
            fn to_f64(self) -> f64 {
                f64::from(self)
            }
            #[inline]
            fn to_f32(self) -> f32 {
                self as f32
            }
            #[inline]
            fn floor_i32(self) -> i32 {
                self.floor() as i32
            }
            #[inline]
            fn ceil_i32(self) -> i32 {
                self.ceil() as i32
            }
            #[inline]
            fn mul_add(self, a: Self, b: Self) -> Self {
                self.mul_add(a, b)
            }
            #[inline]
            fn sqrt(self) -> Self {
                self.sqrt()
            }
            #[inline]
            fn exp(self) -> Self {
                self.exp()
            }
            #[inline]
            fn ln(self) -> Self {
                self.ln()
            }
            #[inline]
            fn abs(self) -> Self {
                self.abs()
            }
            #[inline]
            fn min(self, other: Self) -> Self {
                self.min(other)
            }
            #[inline]
            fn max(self, other: Self) -> Self {
                self.max(other)
            }
            #[inline]
            fn is_finite(self) -> bool {
                self.is_finite()
            }
        }
    };
}

#[allow(clippy::cast_possible_truncation, reason = "`as` saturates, which the trait documents")]
mod precisions {
    use super::Real;

    real!(f32);
    real!(f64);
}

/// Returns the opacity of a logit: 1 / (1 + e^-x).
#[inline]
pub fn sigmoid<R: Real>(x: R) -> R {
    R::ONE / (R::ONE + (-x).exp())
}

/// Returns `d_x` from the output `y = sigmoid(x)` and its gradient.
#[inline]
pub fn sigmoid_bwd<R: Real>(y: R, d_y: R) -> R {
    d_y * y * (R::ONE - y)
}

/// Returns the logit of an opacity: ln(y / (1 - y)).
#[inline]
pub fn inverse_sigmoid<R: Real>(y: R) -> R {
    (y / (R::ONE - y)).ln()
}
