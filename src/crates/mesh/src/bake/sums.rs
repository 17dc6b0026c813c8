//! What is added up for each texel.

use super::median::{AgreedColor, SomeColors};

/// The weight of a colour that may be that of something else.
pub(super) const DOUBTFUL: u8 = 1;

/// The least weight of any other.
pub(super) const LEAST_WEIGHT: u8 = 16;

/// What the views' colours of a texel come to.
pub(super) trait TexelState: Copy + Default + Send + Sync {
    /// Takes a colour with a weight of 1 to 255, or leaves it out; whether it is taken. `texel` is the texel's
    /// number. One of [`DOUBTFUL`] weight matters where there is no other.
    fn take(&mut self, texel: usize, color: [u8; 3], weight: u8) -> bool;

    /// The sums of the round.
    fn sums(&self) -> &TexelSums;

    /// Begins another round.
    fn next_round(&mut self);
}

/// The weighted sum of a texel's colours and of their weights, in whole numbers, so that no order of the
/// views changes it. 65,000 views do not exceed them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct TexelSums {
    pub(super) color: [u32; 3],
    pub(super) weight: u32,
}

impl TexelState for TexelSums {
    #[inline]
    fn take(&mut self, _texel: usize, color: [u8; 3], weight: u8) -> bool {
        for (sum, channel) in self.color.iter_mut().zip(color) {
            *sum = sum.saturating_add(u32::from(channel) * u32::from(weight));
        }
        self.weight = self.weight.saturating_add(u32::from(weight));
        true
    }

    fn sums(&self) -> &TexelSums {
        self
    }

    fn next_round(&mut self) {
        *self = Self::default();
    }
}

/// Sums from which colours that differ from most are left out.
#[derive(Clone, Copy, Debug)]
pub(super) struct JudgedTexel {
    sums: TexelSums,
    /// Of the round before.
    agreed: AgreedColor,
    /// Of those that are taken in this round.
    some: SomeColors,
}

impl Default for JudgedTexel {
    fn default() -> Self {
        Self { sums: TexelSums::default(), agreed: AgreedColor::ANY, some: SomeColors::default() }
    }
}

impl TexelState for JudgedTexel {
    #[inline]
    fn take(&mut self, texel: usize, color: [u8; 3], weight: u8) -> bool {
        let is_taken = self.agreed.allows(color);
        if is_taken {
            self.sums.take(texel, color, weight);
            if weight > DOUBTFUL {
                self.some.take(texel, color);
            }
        }
        is_taken
    }

    fn sums(&self) -> &TexelSums {
        &self.sums
    }

    fn next_round(&mut self) {
        *self = Self { agreed: self.some.agreed(), ..Self::default() };
    }
}
