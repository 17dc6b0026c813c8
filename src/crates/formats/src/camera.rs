//! Cameras from which a scene was seen.

use serde::{Deserialize, Serialize};

use crate::geometry::matrix;
use crate::place::{PlacementError, ScenePlacement};

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
    /// What the camera was for.
    pub split: CameraSplit,
}

/// What a camera was for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CameraSplit {
    /// The model was trained with it.
    #[default]
    Training,
    /// It was kept for evaluation.
    HeldOut,
}

impl SceneCamera {
    /// Goes where a scene goes. Pixels stay.
    pub fn place(&mut self, to: &ScenePlacement) -> Result<(), PlacementError> {
        let rows = matrix(to.unit_rotation()?);
        self.position = to.point(&rows, self.position);
        let before = self.rotation;
        self.rotation = rows.map(|row| {
            std::array::from_fn(|k| row.iter().zip(before).map(|(r, axes)| r * axes[k]).sum())
        });
        Ok(())
    }

    /// True if a picture can be drawn from it.
    pub fn is_usable(&self) -> bool {
        let values = [self.position.as_slice(), self.rotation.as_flattened(), &self.principal_px];
        values.into_iter().flatten().all(|value| value.is_finite())
            && self.focal_px.iter().all(|&focal| focal.is_finite() && focal > 0.0)
            && self.size_px.iter().all(|&size| size > 0)
    }
}
