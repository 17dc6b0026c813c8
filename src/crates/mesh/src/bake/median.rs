//! What most views agree on: medians of a few colours of each texel.

use crate::random::RandomStream;

/// Colours that are kept of a texel. Of more, each has the same chance to be kept.
const KEPT: usize = 8;

/// Greatest distance, in median distances, at which a colour is one of the others.
const MOST_DEVIATIONS: u16 = 3;

/// A median distance below this, in 1/255, counts as this: noise of cameras and of compression.
const LEAST_DEVIATION: u8 = 4;

/// Which colours are kept.
const STREAM: RandomStream = RandomStream::of_seed(17);

/// Some of the colours that views have of a texel.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SomeColors {
    seen: u16,
    kept: [[u8; 3]; KEPT],
}

impl SomeColors {
    /// Takes a further colour, or not; `texel` is the texel's number.
    #[inline]
    #[expect(
        clippy::cast_possible_truncation,
        reason = "below the number of colours that were seen"
    )]
    pub(super) fn take(&mut self, texel: usize, color: [u8; 3]) {
        let seen = usize::from(self.seen);
        if seen < KEPT {
            self.kept[seen] = color;
        } else {
            let bits = STREAM.bits((texel as u64) << 16 | seen as u64);
            if let Some(place) = self.kept.get_mut((bits % (seen as u64 + 1)) as usize) {
                *place = color;
            }
        }
        self.seen = self.seen.saturating_add(1);
    }

    /// What most of them agree on; nothing of none.
    pub(super) fn agreed(&self) -> AgreedColor {
        let kept = &self.kept[..KEPT.min(usize::from(self.seen))];
        if kept.is_empty() {
            return AgreedColor::ANY;
        }
        let color = std::array::from_fn(|channel| median(kept.iter().map(|color| color[channel])));
        let spread = median(kept.iter().map(|&other| distance(color, other)));
        AgreedColor { color, spread: spread.max(LEAST_DEVIATION) }
    }
}

/// The median of at most 8 values, of an even number between the middle two.
fn median(values: impl Iterator<Item = u8>) -> u8 {
    let mut sorted = [0; KEPT];
    let mut count = 0;
    for (place, value) in sorted.iter_mut().zip(values) {
        *place = value;
        count += 1;
    }
    let sorted = &mut sorted[..count];
    sorted.sort_unstable();
    if count == 0 { 0 } else { sorted[(count - 1) / 2].midpoint(sorted[count / 2]) }
}

/// The greatest difference of a channel.
fn distance(a: [u8; 3], b: [u8; 3]) -> u8 {
    (0..3).map(|channel| a[channel].abs_diff(b[channel])).fold(0, u8::max)
}

/// A colour that most views agree on, and how much they differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct AgreedColor {
    color: [u8; 3],
    /// The median distance.
    spread: u8,
}

impl AgreedColor {
    /// What every colour agrees with.
    pub(super) const ANY: Self = Self { color: [0; 3], spread: u8::MAX };

    #[inline]
    pub(super) fn allows(self, color: [u8; 3]) -> bool {
        u16::from(distance(self.color, color)) <= MOST_DEVIATIONS * u16::from(self.spread)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn agreed(colors: &[u8]) -> AgreedColor {
        let mut some = SomeColors::default();
        colors.iter().for_each(|&grey| some.take(5, [grey, 100, 50]));
        some.agreed()
    }

    #[test]
    fn a_colour_that_few_have_is_not_allowed() {
        let most = agreed(&[100, 102, 98, 250, 101, 240, 99]);
        assert!(most.allows([104, 100, 50]) && !most.allows([240, 100, 50]));
        assert!(!most.allows([100, 140, 50]));
        // Two that differ: neither is the odd one.
        let two = agreed(&[20, 220]);
        assert!(two.allows([20, 100, 50]) && two.allows([220, 100, 50]));
        assert_eq!(agreed(&[]), AgreedColor::ANY);
        assert!(AgreedColor::ANY.allows([255; 3]));
    }

    #[test]
    fn late_colours_are_kept_as_often_as_early_ones() {
        // 32 views, of which the last 24 agree: the median of what is kept is theirs in most texels.
        let mut theirs = 0;
        for texel in 0..1000 {
            let mut some = SomeColors::default();
            for view in 0..32 {
                some.take(texel, [if view < 8 { 10 } else { 200 }; 3]);
            }
            theirs += usize::from(some.agreed().allows([200; 3]));
        }
        assert!(theirs > 950, "{theirs}");
    }
}
