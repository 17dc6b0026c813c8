//! Rotating, scaling and moving a scene.

use serde::{Deserialize, Serialize};
use splat_mesh::narrow::to_f32;
use splat_mesh::place::{add, cross, dot, mat_mul, mul, scale};

use crate::geometry::{self, HarmonicTurn, matrix, product};
use crate::splats::Splats;

/// A signed axis.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UpAxis {
    /// +x.
    X,
    /// +y.
    Y,
    /// +z.
    Z,
    /// -x.
    NegativeX,
    /// -y: up in COLMAP's axes.
    #[default]
    NegativeY,
    /// -z.
    NegativeZ,
}

impl UpAxis {
    /// Returns the unit vector.
    pub const fn direction(self) -> [f64; 3] {
        match self {
            Self::X => [1.0, 0.0, 0.0],
            Self::Y => [0.0, 1.0, 0.0],
            Self::Z => [0.0, 0.0, 1.0],
            Self::NegativeX => [-1.0, 0.0, 0.0],
            Self::NegativeY => [0.0, -1.0, 0.0],
            Self::NegativeZ => [0.0, 0.0, -1.0],
        }
    }

    /// Returns the shortest rotation to `target` as a unit quaternion (w, x, y, z). Half turns are about x, or about z
    /// for the axes ±x.
    pub fn rotation_to(self, target: Self) -> [f64; 4] {
        let (from, to) = (self.direction(), target.direction());
        let half = std::f64::consts::FRAC_1_SQRT_2;
        let across = cross(from, to);
        if across != [0.0; 3] {
            return [half, half * across[0], half * across[1], half * across[2]];
        }
        match (dot(from, to) > 0.0, from[0] != 0.0) {
            (true, _) => [1.0, 0.0, 0.0, 0.0],
            (false, true) => [0.0, 0.0, 0.0, 1.0],
            (false, false) => [0.0, 1.0, 0.0, 0.0],
        }
    }
}

/// A similarity transform: p becomes scale x rotation x p + translation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ScenePlacement {
    /// Rotation (w, x, y, z), of any nonzero length.
    pub rotation: [f64; 4],
    /// Scale factor, above 0.
    pub scale: f64,
    /// Translation in units of the placed scene, applied last.
    pub translation: [f64; 3],
}

impl Default for ScenePlacement {
    fn default() -> Self {
        Self { rotation: [1.0, 0.0, 0.0, 0.0], scale: 1.0, translation: [0.0; 3] }
    }
}

impl ScenePlacement {
    /// Validates the placement and returns the unit rotation.
    pub(crate) fn unit_rotation(&self) -> Result<[f64; 4], PlacementError> {
        if !(self.scale > 0.0 && self.scale.is_finite()) {
            return Err(PlacementError::Scale(self.scale));
        }
        if !self.translation.iter().all(|x| x.is_finite()) {
            return Err(PlacementError::Translation(self.translation));
        }
        let length = self.rotation.iter().map(|part| part * part).sum::<f64>().sqrt();
        if !(length > 0.0 && length.is_finite()) {
            return Err(PlacementError::Rotation(self.rotation));
        }
        Ok(self.rotation.map(|part| part / length))
    }

    /// Returns the inverse transform.
    pub fn inverse(&self) -> Result<Self, PlacementError> {
        let [w, x, y, z] = self.unit_rotation()?;
        let back =
            Self { rotation: [w, -x, -y, -z], scale: 1.0 / self.scale, translation: [0.0; 3] };
        let translation = back.point(&matrix(back.rotation), self.translation).map(|x| -x);
        Ok(Self { translation, ..back })
    }

    /// Transforms a point in double precision.
    pub fn place_point(&self, point: [f64; 3]) -> Result<[f64; 3], PlacementError> {
        Ok(self.point(&matrix(self.unit_rotation()?), point))
    }

    /// Transforms points. Results may be outside the range of f32.
    pub fn place_points(&self, points: &mut [[f32; 3]]) -> Result<(), PlacementError> {
        let rows = matrix(self.unit_rotation()?);
        for point in points {
            *point = self.point(&rows, point.map(f64::from)).map(to_f32);
        }
        Ok(())
    }

    /// Transforms a point; `rows` is the rotation matrix.
    pub(crate) fn point(&self, rows: &[[f64; 3]; 3], point: [f64; 3]) -> [f64; 3] {
        add(scale(mul(rows, point), self.scale), self.translation)
    }
}

/// Error of an invalid placement.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages name the fields")]
pub enum PlacementError {
    #[error("the scale is {0}: give a number above 0")]
    Scale(f64),
    #[error("the rotation {0:?} has no direction: give four numbers that are not all 0")]
    Rotation([f64; 4]),
    #[error("the translation {0:?} is not finite: give three numbers")]
    Translation([f64; 3]),
}

impl Splats {
    /// Multiplies the scene's axes by signs, including view-dependent colours. Mirrors the scene if their product is
    /// negative.
    pub(crate) fn mirror(&mut self, signs: [f32; 3]) {
        let handedness: f32 = signs.iter().product();
        let columns = self.columns_mut();
        let flip = |values: &mut [f32]| {
            values.iter_mut().zip(signs).for_each(|(value, sign)| *value *= sign);
        };
        columns.means.iter_mut().for_each(|mean| flip(mean));
        for [_, axis @ ..] in &mut columns.rotations {
            // The axis of a rotation is a pseudovector.
            flip(axis);
            axis.iter_mut().for_each(|part| *part *= handedness);
        }
        columns.rest_rows_mut().for_each(|rest| geometry::mirror(rest, signs));
    }

    /// Transforms the scene, including view-dependent colours.
    ///
    /// Drops rows that leave the range of f32 and returns their number.
    pub fn place(&mut self, to: &ScenePlacement) -> Result<usize, PlacementError> {
        let rotation = to.unit_rotation()?;
        let rows = matrix(rotation);
        let is_turned = rotation[1..] != [0.0; 3];
        let columns = self.columns_mut();
        for mean in &mut columns.means {
            *mean = to.point(&rows, mean.map(f64::from)).map(to_f32);
        }
        let longer = to_f32(to.scale.ln());
        columns.log_scales.iter_mut().flatten().for_each(|scale| *scale += longer);
        if is_turned {
            for quat in &mut columns.rotations {
                *quat = product(rotation, quat.map(f64::from)).map(to_f32);
            }
            let turn = HarmonicTurn::of(&rows);
            columns.rest_rows_mut().for_each(|rest| turn.turn(rest));
        }
        Ok(self.retain(|columns, row| columns.means[row].iter().all(|x| x.is_finite())))
    }
}

// Cameras of a scene.

/// A camera of a scene, in COLMAP's axes: x right, y down, z forward.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SceneCamera {
    /// Name, such as that of the photograph.
    pub name: String,
    /// Centre, scene units.
    pub position: [f64; 3],
    /// Rotation from the camera to the scene, row by row, as in Inria's `cameras.json`.
    pub rotation: [[f64; 3]; 3],
    /// Focal lengths along x and y, pixels.
    pub focal_px: [f64; 2],
    /// Principal point from the upper left corner, pixels.
    pub principal_px: [f64; 2],
    /// Width and height of the picture, pixels.
    pub size_px: [u32; 2],
    /// Role of the camera.
    pub split: CameraSplit,
}

/// Role of a camera.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CameraSplit {
    /// Used for training.
    #[default]
    Training,
    /// Held out for evaluation.
    HeldOut,
}

impl SceneCamera {
    /// Transforms the camera with its scene. Pixel values stay.
    pub fn place(&mut self, to: &ScenePlacement) -> Result<(), PlacementError> {
        let rows = matrix(to.unit_rotation()?);
        self.position = to.point(&rows, self.position);
        self.rotation = mat_mul(&rows, &self.rotation);
        Ok(())
    }

    /// True if the camera can render: finite values, positive focal lengths and size.
    pub fn is_usable(&self) -> bool {
        let values = [self.position.as_slice(), self.rotation.as_flattened(), &self.principal_px];
        values.into_iter().flatten().all(|value| value.is_finite())
            && self.focal_px.iter().all(|&focal| focal.is_finite() && focal > 0.0)
            && self.size_px.iter().all(|&size| size > 0)
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::geometry::angle_degrees;
    use crate::splats::known_splats::random_splats;

    #[test]
    fn a_placed_scene_is_moved_turned_and_scaled() {
        let mut splats = random_splats(20, 3, 5);
        let before = splats.columns().clone();
        let quarter_about_z = [1.0, 0.0, 0.0, 1.0];
        let to =
            ScenePlacement { rotation: quarter_about_z, scale: 2.0, translation: [1.0, 0.0, -1.0] };
        let mut points = before.means.clone();
        to.place_points(&mut points).unwrap();
        assert_eq!(splats.place(&to), Ok(0));
        assert_eq!(points, splats.columns().means);
        let after = splats.columns();
        for row in 0..20 {
            let [x, y, z] = before.means[row];
            let expected = [1.0 - 2.0 * y, 2.0 * x, 2.0 * z - 1.0];
            for (found, expected) in after.means[row].iter().zip(expected) {
                // Some roundings of f32 at magnitudes of about 20.
                assert!((found - expected).abs() < 1e-5);
            }
            let longer = after.log_scales[row][1] - before.log_scales[row][1];
            assert!((longer - 2.0_f32.ln()).abs() < 1e-6);
            // The Gaussian's local x axis in the scene, before and after.
            let axis = |q: [f32; 4]| matrix(q.map(f64::from)).map(|row| row[0]);
            let ([bx, by, bz], turned) = (axis(before.rotations[row]), axis(after.rotations[row]));
            for (found, expected) in turned.iter().zip([-by, bx, bz]) {
                assert!((found - expected).abs() < 1e-6);
            }
        }
        // z is fixed, and so is its coefficient of degree 1.
        assert!((after.sh_rest[1][0] - before.sh_rest[1][0]).abs() < 1e-6);
    }

    #[test]
    fn a_placement_and_its_inverse_give_the_scene_back() {
        let placement = ScenePlacement {
            rotation: [0.5, -0.3, 2.0, 0.7],
            scale: 2.5,
            translation: [1.0, -2.0, 3.0],
        };
        let back = placement.inverse().unwrap();
        let mut splats = random_splats(20, 3, 6);
        let before = splats.columns().clone();
        splats.place(&placement).unwrap();
        splats.place(&back).unwrap();
        let after = splats.columns();
        let close = |a: &[[f32; 3]], b: &[[f32; 3]], most: f32| {
            a.as_flattened().iter().zip(b.as_flattened()).all(|(a, b)| (a - b).abs() < most)
        };
        assert!(close(&after.means, &before.means, 1e-5));
        assert!(close(&after.sh_rest, &before.sh_rest, 1e-6));
        let points = [[0.25, -1.5, 4.0], [0.0, 0.0, 0.0]];
        let mut placed = points;
        placement.place_points(&mut placed).unwrap();
        back.place_points(&mut placed).unwrap();
        // Two roundings to f32 at up to 15 units.
        assert!(close(&placed, &points, 2e-6), "{placed:?}");
        for (a, b) in after.rotations.iter().zip(&before.rotations) {
            assert!(angle_degrees(*a, *b) < 1e-4);
        }
    }

    #[rstest]
    fn up_axes_rotate_to_one_another(
        #[values(UpAxis::X, UpAxis::Y, UpAxis::Z, UpAxis::NegativeX, UpAxis::NegativeY)]
        from: UpAxis,
        #[values(UpAxis::X, UpAxis::Y, UpAxis::NegativeZ, UpAxis::NegativeX)] to: UpAxis,
    ) {
        let turned = matrix(from.rotation_to(to))
            .map(|row| row.iter().zip(from.direction()).map(|(a, b)| a * b).sum::<f64>());
        for (found, expected) in turned.iter().zip(to.direction()) {
            assert!((found - expected).abs() < 1e-12, "{turned:?}");
        }
    }

    #[test]
    fn invalid_placements_are_refused() {
        let mut splats = random_splats(2, 0, 7);
        let refused = |to: ScenePlacement| splats.clone().place(&to).unwrap_err().to_string();
        assert!(
            refused(ScenePlacement { scale: 0.0, ..Default::default() }).contains("scale is 0")
        );
        let rotation = [0.0; 4];
        assert!(refused(ScenePlacement { rotation, ..Default::default() }).contains("rotation"));
        let translation = [f64::NAN, 0.0, 0.0];
        assert!(refused(ScenePlacement { translation, ..Default::default() }).contains("NaN"));
        let far = ScenePlacement { translation: [1e39, 0.0, 0.0], ..Default::default() };
        assert_eq!(splats.place(&far), Ok(2));
    }
}
