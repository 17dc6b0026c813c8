//! Axis-aligned boxes in world space.

use std::fmt;
use std::str::FromStr;

use crate::dataset::Frame;
use crate::math::linalg::Vec3;

/// Corner of a box, world space, with the text form `X,Y,Z` or `(X, Y, Z)`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Corner(pub Vec3<f64>);

/// Error of a text that is no corner.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no place. Give three finite numbers: X,Y,Z")]
pub struct ParseCornerError(String);

impl FromStr for Corner {
    type Err = ParseCornerError;

    fn from_str(text: &str) -> Result<Self, ParseCornerError> {
        let fail = || ParseCornerError(text.to_owned());
        let bare = text.trim();
        let bare = bare.strip_prefix('(').and_then(|b| b.strip_suffix(')')).unwrap_or(bare);
        let numbers: Vec<f64> = bare
            .split(',')
            .map(|number| number.trim().parse().ok().filter(|n: &f64| n.is_finite()))
            .collect::<Option<_>>()
            .ok_or_else(fail)?;
        numbers.try_into().map(Self).map_err(|_other_count| fail())
    }
}

impl fmt::Display for Corner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [x, y, z] = self.0;
        let digits = f.precision().unwrap_or(4);
        write!(f, "{x:.digits$},{y:.digits$},{z:.digits$}")
    }
}

/// Axis-aligned box.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WorldBox {
    /// Least coordinates.
    pub low: Vec3<f64>,
    /// Greatest coordinates.
    pub high: Vec3<f64>,
}

impl WorldBox {
    /// Returns the box in other coordinates.
    #[must_use]
    pub fn converted(&self, from: &Frame, to: &Frame) -> Self {
        Self { low: from.to(to, self.low), high: from.to(to, self.high) }
    }

    /// Returns the cube with this centre and half side.
    pub fn cube(centre: Vec3<f64>, half_side: f64) -> Self {
        Self { low: centre.map(|x| x - half_side), high: centre.map(|x| x + half_side) }
    }

    /// Returns the box scaled about its centre.
    pub fn scaled(&self, factor: f64) -> Self {
        let centre = |axis: usize| 0.5 * (self.low[axis] + self.high[axis]);
        let half = |axis: usize| 0.5 * factor * (self.high[axis] - self.low[axis]);
        Self {
            low: std::array::from_fn(|axis| centre(axis) - half(axis)),
            high: std::array::from_fn(|axis| centre(axis) + half(axis)),
        }
    }

    /// Returns true if a point is strictly inside.
    pub fn holds(&self, place: Vec3<f64>) -> bool {
        (0..3).all(|axis| self.low[axis] < place[axis] && place[axis] < self.high[axis])
    }

    /// Returns the longest side.
    pub fn longest_side(&self) -> f64 {
        (0..3).map(|axis| self.high[axis] - self.low[axis]).fold(0.0, f64::max)
    }
}

/// Formats the box as the options that select it.
impl fmt::Display for WorldBox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (low, high) = (Corner(self.low), Corner(self.high));
        // At least four digits of the longest side.
        let side = self.longest_side();
        let mut digits = 4;
        while digits < 30 && side * 10_f64.powi(digits - 4) < 1.0 {
            digits += 1;
        }
        let digits = digits.unsigned_abs() as usize;
        write!(f, "--bbox-min {low:.digits$} --bbox-max {high:.digits$}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn corners_are_read_with_and_without_parentheses() {
        for text in ["1,-2,3.5", "(1, -2, 3.5)", " 1 , -2,3.5 "] {
            assert_eq!(text.parse(), Ok(Corner([1.0, -2.0, 3.5])), "{text}");
        }
        for text in ["", "1,2", "1,2,3,4", "1,2,x", "1,2,inf", "(1,2,3"] {
            assert!(text.parse::<Corner>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_box_is_shown_as_options() {
        let world_box = WorldBox::cube([0.5, 0.0, -1.0], 2.0);
        assert_eq!(
            world_box.to_string(),
            "--bbox-min -1.5000,-2.0000,-3.0000 --bbox-max 2.5000,2.0000,1.0000"
        );
        let tiny = WorldBox::cube([0.0; 3], 0.000_2);
        assert!(tiny.to_string().starts_with("--bbox-min -0.00020000,"), "{tiny}");
        assert!(world_box.holds([0.0; 3]) && !world_box.holds([2.5, 0.0, 0.0]));
        assert_eq!(world_box.longest_side(), 4.0);
    }
}
