//! From where a brick is seen.

use crate::mesh::Vec3;
use crate::narrow::to_f32s;
use crate::vector::dot;

/// Directions that a brick tells apart.
pub const DIRECTIONS: usize = 6;

/// Cosine of the 5 degrees that two directions differ by at least.
const APART: f64 = 0.996_194_698_091_745_5;

/// Up to six directions, more than 5 degrees apart.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Directions {
    units: [[f32; 3]; DIRECTIONS],
    count: u8,
}

impl Directions {
    /// Of unit vectors, the first, and then each time the one that is farthest from those taken.
    pub(super) fn spread(units: &[Vec3]) -> Self {
        let mut taken = Self::default();
        // The cosine of each to the nearest that is taken.
        let mut nearest = vec![-2.0; units.len()];
        for number in 0..DIRECTIONS {
            let least = |a: &usize, b: &usize| f64::total_cmp(&nearest[*a], &nearest[*b]);
            let Some(next) = (0..units.len()).min_by(least).filter(|&n| nearest[n] < APART) else {
                break;
            };
            taken.units[number] = to_f32s(units[next]);
            taken.count += 1;
            for (nearest, &unit) in nearest.iter_mut().zip(units) {
                *nearest = dot(unit, units[next]).max(*nearest);
            }
        }
        taken
    }

    /// Unit vectors, of which the first that is nearest to another has its [`Self::number`].
    pub(super) fn padded(&self) -> [[f32; 3]; DIRECTIONS] {
        let count = usize::from(self.count);
        std::array::from_fn(|number| self.units[if number < count { number } else { 0 }])
    }

    /// The number of the direction that is nearest to a unit vector.
    pub(super) fn number(&self, unit: Vec3) -> usize {
        let mut nearest = (0, -2.0);
        for (number, taken) in self.units.iter().enumerate().take(usize::from(self.count)) {
            let cosine = dot(taken.map(f64::from), unit);
            if cosine > nearest.1 {
                nearest = (number, cosine);
            }
        }
        nearest.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directions_are_apart_and_the_nearest_is_found() {
        let unit = |degrees: f64| [degrees.to_radians().cos(), degrees.to_radians().sin(), 0.0];
        let close = Directions::spread(&[0.0, 1.0, 2.0, 4.0, 6.0].map(unit));
        assert_eq!(close.count, 2);
        assert_eq!(close.number(unit(2.5)), 0);
        assert_eq!(close.number(unit(4.0)), 1);
        let [first, second, ..] = close.padded();
        assert_eq!(close.padded(), [first, second, first, first, first, first]);
        let around: Vec<Vec3> = (0..360).map(|d| unit(f64::from(d))).collect();
        let all = Directions::spread(&around);
        assert_eq!(all.count, 6);
        let numbers: Vec<usize> = around.iter().map(|&u| all.number(u)).collect();
        assert!((0..6).all(|n| numbers.iter().filter(|&&m| m == n).count() > 30));
    }
}
