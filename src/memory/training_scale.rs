//! How much smaller training views are drawn where memory is short.

/// What a view's sides are multiplied by each time.
const FACTOR: f64 = 0.9;

/// Share of their size at which training views are drawn, and their photographs compared: 0.9 for each
/// time that memory was too short for a step ([`super::Rung::Resolution`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TrainingScale {
    times: u32,
}

impl TrainingScale {
    /// Their own size.
    pub const FULL: Self = Self { times: 0 };

    /// 0.53 of it: a view of half the width shows a quarter of what is there to learn.
    pub const SMALLEST: Self = Self { times: 6 };

    /// Multiplied so many times, or as often as may be.
    pub fn after(times: u32) -> Self {
        Self { times: times.min(Self::SMALLEST.times) }
    }

    /// How often it was multiplied.
    pub fn times(self) -> u32 {
        self.times
    }

    /// The next smaller one, if there is one.
    pub fn smaller(self) -> Option<Self> {
        (self != Self::SMALLEST).then_some(Self { times: self.times + 1 })
    }

    /// Whether views are smaller than by another.
    pub fn is_below(self, other: Self) -> bool {
        self.times > other.times
    }

    /// What a side is multiplied by.
    pub fn factor(self) -> f64 {
        // Not a power function: those of two machines differ in the last bit.
        (0..self.times).fold(1.0, |factor, _| factor * FACTOR)
    }

    /// The size of a view of this full size, px.
    pub fn px(self, full: [u32; 2]) -> [u32; 2] {
        let factor = self.factor();
        full.map(|side| rounded(f64::from(side) * factor))
    }

    /// All of them, the largest first.
    pub fn all() -> impl Iterator<Item = Self> {
        (0..=Self::SMALLEST.times).map(|times| Self { times })
    }
}

/// A side in px; at least 1.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "at most the side that it was"
)]
fn rounded(side: f64) -> u32 {
    (side.round_ties_even() as u32).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn views_get_smaller_down_to_half_their_size_and_no_further() {
        let factors: Vec<f64> = TrainingScale::all().map(TrainingScale::factor).collect();
        assert_eq!((factors.len(), factors[0], factors[1]), (7, 1.0, 0.9));
        assert!((factors[6] - 0.531_441).abs() < 1e-12);
        let second = TrainingScale::FULL.smaller().and_then(TrainingScale::smaller).unwrap();
        assert_eq!((second.times(), second), (2, TrainingScale::after(2)));
        assert_eq!(second.px([1000, 1]), [810, 1]);
        assert!(second.is_below(TrainingScale::FULL) && !second.is_below(second));
        assert_eq!(TrainingScale::after(99), TrainingScale::SMALLEST);
        assert_eq!(TrainingScale::SMALLEST.smaller(), None);
        assert_eq!(TrainingScale::FULL.px([37, 29]), [37, 29]);
    }
}
