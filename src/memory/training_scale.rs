//! Scale of training views when memory is short.

/// Factor of one reduction.
const FACTOR: f64 = 0.9;

/// Scale of training views and their photographs: 0.9 to the power of the number of steps that ran out of memory
/// ([`super::Rung::Resolution`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TrainingScale {
    times: u32,
}

impl TrainingScale {
    /// Full size.
    pub const FULL: Self = Self { times: 0 };

    /// Scale 0.53. Smaller views would show too little to learn from.
    pub const SMALLEST: Self = Self { times: 6 };

    /// Returns the scale after `times` reductions, at least [`Self::SMALLEST`].
    pub fn after(times: u32) -> Self {
        Self { times: times.min(Self::SMALLEST.times) }
    }

    /// Returns the number of reductions.
    pub fn times(self) -> u32 {
        self.times
    }

    /// Returns the next smaller scale; `None` at the smallest.
    pub fn smaller(self) -> Option<Self> {
        (self != Self::SMALLEST).then_some(Self { times: self.times + 1 })
    }

    /// Returns true if this scale is smaller than another.
    pub fn is_below(self, other: Self) -> bool {
        self.times > other.times
    }

    /// Returns the factor of a view's sides.
    pub fn factor(self) -> f64 {
        // Repeated multiplication: the last bit of a power function differs between machines.
        (0..self.times).fold(1.0, |factor, _| factor * FACTOR)
    }

    /// Returns the scaled size of a view, px.
    pub fn px(self, full: [u32; 2]) -> [u32; 2] {
        let factor = self.factor();
        full.map(|side| rounded(f64::from(side) * factor))
    }

    /// Returns all scales, the largest first.
    pub fn all() -> impl Iterator<Item = Self> {
        (0..=Self::SMALLEST.times).map(|times| Self { times })
    }
}

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
