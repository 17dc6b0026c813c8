//! Versions of NCCL.

use std::ffi::c_int;
use std::fmt;

/// A version of NCCL; it is written as `2.28.3`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version {
    /// The first number.
    pub major: u32,
    /// The second number.
    pub minor: u32,
    /// The third number.
    pub patch: u32,
}

impl Version {
    /// The oldest version that this crate works with.
    pub const OLDEST: Self = Self { major: 2, minor: 18, patch: 0 };

    /// By the library's number: 22803 is 2.28.3. Up to 2.8 the first number counted thousands.
    pub(crate) fn from_code(code: c_int) -> Self {
        let code = code.unsigned_abs();
        let major_unit = if code < 10_000 { 1000 } else { 10_000 };
        Self { major: code / major_unit, minor: code % major_unit / 100, patch: code % 100 }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}
