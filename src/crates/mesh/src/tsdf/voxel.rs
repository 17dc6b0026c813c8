//! What a voxel keeps, in eight bytes.

use super::fuse::DIRECTIONS;
use crate::narrow::{floor_u32, to_f32};

/// Steps of a distance of 1.
pub const DISTANCE_STEPS: f32 = 32767.0;

/// The least weight that is kept: the least normal half-precision number.
pub const LEAST_WEIGHT: f32 = 1.0 / 16384.0;

/// The largest weight: half precision ends at 65,504.
pub const MOST_WEIGHT: f32 = 65504.0;

/// Views that a voxel needs before its distance counts.
const VALID_FROM: u8 = 2;

/// Directions from which a voxel has to be seen free before it is, whatever a view says.
const FREE_FROM: u32 = 3;

/// A truncated signed distance, averaged by weight, and the colour of what is near: a word of eight bytes,
/// in which its fields lie as they stand here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C, align(8))]
pub struct Voxel {
    /// In 1/32767 of the truncation; above zero in front of the surface.
    distance: i16,
    /// Half precision, without a sign; 0 before the first view.
    weight: u16,
    /// sRGB; all zero before the first colour, black is 1.
    color: [u8; 3],
    /// Views in the lowest two bits, up to 3; above, a bit a direction from which it is seen free.
    seen: u8,
}

/// What a view says of a voxel.
pub(super) struct DepthSample {
    /// Distance over truncation, not below -1.
    pub(super) distance: f64,
    /// Its weight, above zero.
    pub(super) weight: f64,
    /// sRGB, 0 to 1.
    pub(super) color: [f32; 3],
    /// Which of the brick's directions the view looks from.
    pub(super) direction: usize,
}

impl Voxel {
    /// Takes a view's sample into the mean: D <- (D W + w min(1, s)) / (W + w).
    pub(super) fn add(&mut self, sample: &DepthSample) {
        let before = decoded(self.weight);
        let weight = to_f32(sample.weight).clamp(LEAST_WEIGHT, MOST_WEIGHT);
        let share = weight / (before + weight);
        let distance = to_f32(sample.distance.min(1.0));
        let mean = self.mean();
        self.distance = steps(mean + share * (distance - mean));
        if sample.distance < 1.0 {
            let share = if self.color == [0; 3] { 1.0 } else { share };
            for (own, new) in self.color.iter_mut().zip(sample.color) {
                let mixed =
                    f32::from(*own) + share * (255.0 * new.clamp(0.0, 1.0) - f32::from(*own));
                *own = floor_u32(f64::from(mixed) + 0.5).to_le_bytes()[0];
            }
            if self.color == [0; 3] {
                self.color = [1; 3];
            }
        } else {
            self.seen |= 4 << sample.direction.min(DIRECTIONS - 1);
        }
        self.weight = encoded((before + weight).min(MOST_WEIGHT));
        self.seen += u8::from(self.seen & 3 < 3);
    }

    fn mean(&self) -> f32 {
        f32::from(self.distance) / DISTANCE_STEPS
    }

    /// The distance over the truncation; NaN where too few views saw the voxel.
    pub(super) fn distance(&self) -> f32 {
        if (self.seen >> 2).count_ones() >= FREE_FROM {
            1.0
        } else if self.seen & 3 >= VALID_FROM {
            self.mean()
        } else {
            f32::NAN
        }
    }

    /// sRGB, 0 to 1; none where every view saw it far from a surface.
    pub(super) fn color(&self) -> Option<[f32; 3]> {
        (self.color != [0; 3]).then(|| self.color.map(|c| f32::from(c) / 255.0))
    }
}

/// The nearest step of a distance from -1 to 1.
fn steps(distance: f32) -> i16 {
    let steps = floor_u32(f64::from((distance.clamp(-1.0, 1.0) + 1.0) * DISTANCE_STEPS) + 0.5);
    i16::try_from(i64::from(steps) - 32767).unwrap_or(i16::MAX)
}

/// The upper bits of half precision, which has no sign here; the value is within its normal numbers.
fn encoded(weight: f32) -> u16 {
    // Ties go up: half a step is added before the lower bits go.
    let bits = weight.to_bits() + (1 << 12);
    u16::try_from((bits >> 13).saturating_sub(112 << 10)).unwrap_or(u16::MAX)
}

fn decoded(half: u16) -> f32 {
    if half == 0 { 0.0 } else { f32::from_bits((u32::from(half) + (112 << 10)) << 13) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sample(distance: f64, weight: f64, direction: usize) -> DepthSample {
        DepthSample { distance, weight, color: [1.0, 0.5, 0.0], direction }
    }

    proptest! {
        #[test]
        fn weights_keep_eleven_bits(weight in LEAST_WEIGHT..MOST_WEIGHT) {
            prop_assert!((decoded(encoded(weight)) / weight - 1.0).abs() <= 1.0 / 2048.0);
        }

        #[test]
        fn distances_keep_sixteen_bits(distance in -1.0_f32..1.0) {
            // Half a step and the rounding of f32.
            prop_assert!((f32::from(steps(distance)) / DISTANCE_STEPS - distance).abs() < 1.6e-5);
        }
    }

    #[test]
    fn a_voxel_averages_by_weight_and_counts_from_the_second_view() {
        let mut voxel = Voxel::default();
        voxel.add(&sample(0.2, 0.5, 0));
        assert!(voxel.distance().is_nan());
        voxel.add(&sample(0.6, 0.25, 0));
        // Steps of distance and of weight.
        assert!((voxel.distance() - 1.0 / 3.0).abs() < 1e-4);
        assert_eq!(voxel.color, [255, 128, 0]);
    }

    #[test]
    fn three_directions_free_a_voxel_and_one_does_not() {
        let mut voxel = Voxel::default();
        voxel.add(&sample(-0.9, 1.0, 0));
        for _ in 0..5 {
            voxel.add(&sample(2.0, 0.01, 1));
        }
        assert!(voxel.distance() < -0.7);
        voxel.add(&sample(2.0, 0.01, 5));
        assert!(voxel.distance() < -0.7);
        voxel.add(&sample(2.0, 0.01, 0));
        assert_eq!(voxel.distance().to_bits(), 1.0_f32.to_bits());
    }
}
