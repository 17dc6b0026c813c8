//! What can be cut from Gaussians: by place, by opacity.

use crate::opacity::sigmoid;
use crate::splats::Splats;

/// A box in the scene's axes, its sides included.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CropBox {
    /// Least x, y and z, scene units.
    pub low: [f64; 3],
    /// Greatest x, y and z, scene units.
    pub high: [f64; 3],
}

impl CropBox {
    /// Whether a place lies in it.
    pub fn contains(&self, place: [f32; 3]) -> bool {
        let inside = |i: usize| (self.low[i]..=self.high[i]).contains(&f64::from(place[i]));
        (0..3).all(inside)
    }
}

/// A ball, its surface included.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CropSphere {
    /// Centre, scene units.
    pub center: [f64; 3],
    /// Radius, scene units.
    pub radius: f64,
}

impl CropSphere {
    /// Whether a place lies in it.
    pub fn contains(&self, place: [f32; 3]) -> bool {
        let squares = place.iter().zip(self.center).map(|(&x, c)| (f64::from(x) - c).powi(2));
        squares.sum::<f64>() <= self.radius * self.radius
    }
}

impl Splats {
    /// Keeps Gaussians whose centre is in any of the boxes; all where there is no box. How many
    /// went.
    pub fn crop_boxes(&mut self, boxes: &[CropBox]) -> usize {
        if boxes.is_empty() {
            return 0;
        }
        self.retain(|columns, row| boxes.iter().any(|it| it.contains(columns.means[row])))
    }

    /// Keeps Gaussians whose centre is in the ball. How many went.
    pub fn crop_sphere(&mut self, sphere: CropSphere) -> usize {
        self.retain(|columns, row| sphere.contains(columns.means[row]))
    }

    /// Keeps Gaussians of this opacity, 0 to 1, or more. How many went.
    pub fn drop_faint(&mut self, min_opacity: f64) -> usize {
        self.retain(|columns, row| sigmoid(columns.opacity_logits[row]) >= min_opacity)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::known_splats::splats_at;
    use crate::opacity::logit;

    #[test]
    fn boxes_keep_what_any_of_them_holds() {
        let mut splats = splats_at(&[[0.0; 3], [1.0, 1.0, 1.0], [5.0, 0.0, 0.0], [9.0, 0.0, 0.0]]);
        let unit = CropBox { low: [0.0; 3], high: [1.0; 3] };
        let far = CropBox { low: [8.0, -1.0, -1.0], high: [10.0, 1.0, 1.0] };
        assert_eq!(splats.crop_boxes(&[]), 0);
        assert_eq!(splats.crop_boxes(&[unit, far]), 1);
        assert_eq!(splats.columns().means, [[0.0; 3], [1.0; 3], [9.0, 0.0, 0.0]]);
    }

    #[test]
    fn a_sphere_keeps_what_is_within_its_radius() {
        let mut splats = splats_at(&[[1.0, 0.0, 0.0], [4.0, 0.0, 0.0], [1.0, 2.1, 0.0]]);
        assert_eq!(splats.crop_sphere(CropSphere { center: [1.0, 0.0, 0.0], radius: 2.0 }), 2);
        assert_eq!(splats.columns().means, [[1.0, 0.0, 0.0]]);
    }

    #[test]
    fn faint_ones_go() {
        let mut splats = splats_at(&[[0.0; 3]; 3]);
        splats.columns_mut().opacity_logits = vec![logit(0.1), logit(0.3), logit(0.004)];
        assert_eq!(splats.drop_faint(0.1 - 1e-6), 1);
        assert_eq!(splats.len(), 2);
    }
}
