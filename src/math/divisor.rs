//! By what the sides of an image are divided where it is made smaller.

use serde::{Deserialize, Serialize};

/// Sides that no image is made shorter than, px.
const SIDE_MIN_PX: u32 = 8;

/// A whole number of pixels, along both axes, that become one.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub enum Divisor {
    /// The image as it is.
    #[default]
    One,
    /// Half its sides.
    Two,
    /// A quarter of its sides.
    Four,
}

impl Divisor {
    /// All of them, the largest first.
    pub const ALL: [Self; 3] = [Self::Four, Self::Two, Self::One];

    /// The number.
    pub const fn get(self) -> u32 {
        match self {
            Self::One => 1,
            Self::Two => 2,
            Self::Four => 4,
        }
    }

    /// The one that is nearest to this number; of two, the larger.
    pub fn nearest(number: f64) -> Self {
        Self::first(|divisor| match divisor {
            Self::Four => number >= 3.0,
            Self::Two => number >= 1.5,
            Self::One => true,
        })
    }

    /// Itself, or the largest smaller one that leaves an image of this size sides of 8 px.
    pub fn within(self, px: [u32; 2]) -> Self {
        Self::first(|divisor| {
            let leaves_enough = px.iter().all(|side| side / divisor.get() >= SIDE_MIN_PX);
            divisor.get() <= self.get() && leaves_enough
        })
    }

    /// The size of an image of this size, made smaller: the pixels at its right and bottom edges that
    /// fill no square are dropped.
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
    fn a_divisor_is_the_nearest_to_what_is_asked_for() {
        let numbers = [0.5, 1.0, 1.49, 1.5, 2.99, 3.0, 9.0];
        assert_eq!(numbers.map(|number| Divisor::nearest(number).get()), [1, 1, 1, 2, 2, 4, 4]);
    }

    #[test]
    fn small_images_keep_eight_pixels_a_side() {
        for (px, expected) in [([400, 32], 4), ([31, 400], 2), ([15, 400], 1), ([1, 1], 1)] {
            assert_eq!(Divisor::Four.within(px).get(), expected, "{px:?}");
        }
        assert_eq!(Divisor::Two.within([400, 400]), Divisor::Two);
        assert_eq!(Divisor::Four.px([47, 36]), [11, 9]);
    }
}
