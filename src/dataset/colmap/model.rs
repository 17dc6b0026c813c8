//! COLMAP's camera models: names, numbers and the meaning of their parameters.

use crate::dataset::camera::Camera;
use crate::dataset::lens::{Distortion, Lens, LensError};

/// A camera as COLMAP solved it.
#[derive(Clone, Debug, PartialEq)]
pub struct SolvedCamera {
    /// Its model.
    pub model: &'static CameraModel,
    /// Width and height in px.
    pub size: [u64; 2],
    /// Parameters in the model's order.
    pub params: Vec<f64>,
}

/// A camera model of COLMAP.
#[derive(Debug, PartialEq, Eq)]
pub struct CameraModel {
    /// Number in binary files.
    pub id: i32,
    /// Name in text files.
    pub name: &'static str,
    /// How many parameters it has.
    pub params: usize,
}

const fn model(id: i32, name: &'static str, params: usize) -> CameraModel {
    CameraModel { id, name, params }
}

/// Number of PINHOLE, which is what the writer writes.
pub(super) const PINHOLE: i32 = 1;

/// All models of COLMAP 4.2.
static MODELS: [CameraModel; 18] = [
    model(0, "SIMPLE_PINHOLE", 3),
    model(PINHOLE, "PINHOLE", 4),
    model(2, "SIMPLE_RADIAL", 4),
    model(3, "RADIAL", 5),
    model(4, "OPENCV", 8),
    model(5, "OPENCV_FISHEYE", 8),
    model(6, "FULL_OPENCV", 12),
    model(7, "FOV", 5),
    model(8, "SIMPLE_RADIAL_FISHEYE", 4),
    model(9, "RADIAL_FISHEYE", 5),
    model(10, "THIN_PRISM_FISHEYE", 12),
    model(11, "RAD_TAN_THIN_PRISM_FISHEYE", 16),
    model(12, "SIMPLE_DIVISION", 4),
    model(13, "DIVISION", 5),
    model(14, "SIMPLE_FISHEYE", 3),
    model(15, "FISHEYE", 4),
    model(16, "EUCM", 6),
    model(17, "EQUIRECTANGULAR", 2),
];

impl CameraModel {
    /// The model with this number.
    pub fn by_id(id: i32) -> Option<&'static Self> {
        MODELS.iter().find(|model| model.id == id)
    }

    /// The model with this name.
    pub fn by_name(name: &str) -> Option<&'static Self> {
        MODELS.iter().find(|model| model.name == name)
    }
}

impl SolvedCamera {
    /// The camera as a lens; none for models that cannot be straightened.
    pub fn lens(&self) -> Option<Result<Lens, LensError>> {
        let radial = |k: [f64; 6]| Distortion::brown(k, [0.0; 2]);
        let (focal_px, centre_px, distortion) = match (self.model.name, self.params.as_slice()) {
            ("SIMPLE_PINHOLE", &[f, cx, cy]) => ([f, f], [cx, cy], Distortion::NONE),
            ("PINHOLE", &[fx, fy, cx, cy]) => ([fx, fy], [cx, cy], Distortion::NONE),
            ("SIMPLE_RADIAL", &[f, cx, cy, k]) => {
                ([f, f], [cx, cy], radial([k, 0.0, 0.0, 0.0, 0.0, 0.0]))
            }
            ("RADIAL", &[f, cx, cy, k1, k2]) => {
                ([f, f], [cx, cy], radial([k1, k2, 0.0, 0.0, 0.0, 0.0]))
            }
            ("OPENCV", &[fx, fy, cx, cy, k1, k2, p1, p2]) => {
                let distortion = Distortion::brown([k1, k2, 0.0, 0.0, 0.0, 0.0], [p1, p2]);
                ([fx, fy], [cx, cy], distortion)
            }
            ("FULL_OPENCV", &[fx, fy, cx, cy, k1, k2, p1, p2, k3, k4, k5, k6]) => {
                let distortion = Distortion::brown([k1, k2, k3, k4, k5, k6], [p1, p2]);
                ([fx, fy], [cx, cy], distortion)
            }
            ("OPENCV_FISHEYE", &[fx, fy, cx, cy, k1, k2, k3, k4]) => {
                ([fx, fy], [cx, cy], Distortion::Fisheye([k1, k2, k3, k4]))
            }
            _ => return None,
        };
        // A size beyond u32 saturates to one that no photograph has, and is refused there.
        let [width, height] = self.size.map(|size| u32::try_from(size).unwrap_or(u32::MAX));
        Some(Lens::new(Camera { width, height, focal_px, centre_px }, distortion))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_are_unique() {
        for (index, model) in MODELS.iter().enumerate() {
            assert_eq!(CameraModel::by_id(model.id), Some(model));
            assert_eq!(CameraModel::by_name(model.name), Some(model));
            assert_eq!(usize::try_from(model.id), Ok(index));
        }
    }

    #[test]
    fn seven_models_have_a_lens_and_the_others_none() {
        let with_lens = MODELS.iter().filter(|model| {
            let params = vec![1.0; model.params];
            SolvedCamera { model, size: [3, 2], params }.lens().is_some()
        });
        let ids: Vec<i32> = with_lens.map(|model| model.id).collect();
        assert_eq!(ids, [0, 1, 2, 3, 4, 5, 6]);
    }
}
