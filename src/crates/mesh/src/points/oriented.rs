//! Points with normals and colours.

use crate::vertices::keep_rows;

/// Points of a surface, world space; rows of equal number in each.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OrientedPoints {
    /// Places, scene units.
    pub places: Vec<[f32; 3]>,
    /// Outward normals, of any length but zero.
    pub normals: Vec<[f32; 3]>,
    /// Colours, sRGB, 0 to 1.
    pub colors: Vec<[f32; 3]>,
}

impl OrientedPoints {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Keeps the rows that `keep` names; returns how many went.
    pub fn retain(&mut self, keep: &[bool]) -> usize {
        let before = self.len();
        for column in [&mut self.places, &mut self.normals, &mut self.colors] {
            keep_rows(column, keep);
        }
        before - self.len()
    }
}
