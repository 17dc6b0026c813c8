//! Divisors of the sides of an image.

use serde::{Deserialize, Serialize};

/// Smallest side of a reduced image, px.
const SIDE_MIN_PX: u32 = 8;

/// Number of pixels along each axis that become one.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub enum Divisor {
    /// Full size.
    #[default]
    One,
    /// Half the sides.
    Two,
    /// A quarter of the sides.
    Four,
}

impl Divisor {
    /// All divisors, largest first.
    pub const ALL: [Self; 3] = [Self::Four, Self::Two, Self::One];

    /// Returns the divisor as a number.
    pub const fn get(self) -> u32 {
        match self {
            Self::One => 1,
            Self::Two => 2,
            Self::Four => 4,
        }
    }

    /// Returns the nearest divisor to a number; of two equally near, the larger.
    pub fn nearest(number: f64) -> Self {
        Self::first(|divisor| match divisor {
            Self::Four => number >= 3.0,
            Self::Two => number >= 1.5,
            Self::One => true,
        })
    }

    /// Returns this divisor, or the largest smaller one that leaves sides of at least 8 px.
    pub fn within(self, px: [u32; 2]) -> Self {
        Self::first(|divisor| {
            let leaves_enough = px.iter().all(|side| side / divisor.get() >= SIDE_MIN_PX);
            divisor.get() <= self.get() && leaves_enough
        })
    }

    /// Returns the reduced size. Pixels at the right and bottom edges that fill no square are dropped.
    pub fn px(self, full: [u32; 2]) -> [u32; 2] {
        full.map(|side| side / self.get())
    }

    fn first(is_wanted: impl Fn(Self) -> bool) -> Self {
        Self::ALL.into_iter().find(|&divisor| is_wanted(divisor)).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearest_divisor_is_chosen() {
        let numbers = [0.5, 1.0, 1.49, 1.5, 2.99, 3.0, 9.0];
        assert_eq!(numbers.map(|number| Divisor::nearest(number).get()), [1, 1, 1, 2, 2, 4, 4]);
    }

    #[test]
    fn small_images_keep_the_minimum_side() {
        for (px, expected) in [([400, 32], 4), ([31, 400], 2), ([15, 400], 1), ([1, 1], 1)] {
            assert_eq!(Divisor::Four.within(px).get(), expected, "{px:?}");
        }
        assert_eq!(Divisor::Two.within([400, 400]), Divisor::Two);
        assert_eq!(Divisor::Four.px([47, 36]), [11, 9]);
    }
}
