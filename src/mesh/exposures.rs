//! What a run learned of its cameras' exposures, undone: photographs as the model would show them.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use crate::math::linalg::{Mat3, Vec3, cross, dot, mul, sub};
use crate::train::pictures::byte;

/// The file in the model folder.
const FILE: &str = "exposure.json";

/// Least determinant of a map that can be undone.
const LEAST_DETERMINANT: f64 = 1e-3;

/// The maps from colours of the model to those of each photograph, undone.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Exposures {
    /// By the name of the photograph.
    undone: BTreeMap<String, UndoneExposure>,
}

/// An exposure file that cannot be read.
#[derive(Debug, thiserror::Error)]
#[error(
    "{path}: {source}. Write the exposures of the run again with splat train --resume, or use the \
     colours of the model instead"
)]
pub struct ExposureFileError {
    path: PathBuf,
    #[source]
    source: io::Error,
}

/// c = A^-1 (p - b), with p a photograph's colour.
#[derive(Clone, Copy, Debug, PartialEq)]
struct UndoneExposure {
    inverse: Mat3<f64>,
    offset: Vec3<f64>,
}

impl Exposures {
    /// Those that a model folder has, as [`crate::export::write_exposure_json`] writes them.
    pub fn read(model_path: &Path) -> Result<Self, ExposureFileError> {
        let path = model_path.join(FILE);
        let fail = |source| ExposureFileError { path: path.clone(), source };
        let text = std::fs::read(&path).map_err(fail)?;
        let maps: BTreeMap<String, [[f64; 4]; 3]> =
            serde_json::from_slice(&text).map_err(|error| fail(error.into()))?;
        let undone = maps.into_iter().filter_map(|(name, rows)| {
            // The file has the transposed matrix, what is added last in each row.
            let matrix = std::array::from_fn(|row| std::array::from_fn(|column| rows[column][row]));
            let inverse = inverse(&matrix)?;
            Some((name, UndoneExposure { inverse, offset: rows.map(|row| row[3]) }))
        });
        Ok(Self { undone: undone.collect() })
    }

    /// Whether the photograph of this name has one.
    pub(super) fn knows(&self, name: &str) -> bool {
        self.undone.contains_key(name)
    }

    /// Colours of a photograph as the model would show them; as they are where nothing was learned of it.
    pub(super) fn undo(&self, name: &str, colors: &[[u8; 3]]) -> Vec<[u8; 3]> {
        let Some(UndoneExposure { inverse, offset }) = self.undone.get(name) else {
            return colors.to_vec();
        };
        let undo = |color: &[u8; 3]| {
            let shifted = sub(color.map(|channel| f64::from(channel) / 255.0), *offset);
            mul(inverse, shifted).map(byte)
        };
        colors.iter().map(undo).collect()
    }
}

/// The inverse of a matrix; none where it hardly has one.
fn inverse(matrix: &Mat3<f64>) -> Option<Mat3<f64>> {
    let [a, b, c] = *matrix;
    let determinant = dot(a, cross(b, c));
    if !determinant.is_finite() || determinant.abs() < LEAST_DETERMINANT {
        return None;
    }
    // The columns of the adjugate are the cross products of the rows.
    let columns = [cross(b, c), cross(c, a), cross(a, b)];
    Some(std::array::from_fn(|row| columns.map(|column| column[row] / determinant)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::export::write_exposure_json;

    #[test]
    fn what_was_learned_is_undone() {
        let folder = tempfile::tempdir().unwrap();
        let map = [0.8, 0.1, 0.0, 0.02, 0.05, 0.9, 0.0, -0.01, 0.0, 0.2, 0.7, 0.03_f32];
        let none = [0.0; 12];
        let names = ["a".to_owned(), "b".to_owned()];
        write_exposure_json(folder.path(), &names, &[map, none].concat()).unwrap();
        let exposures = Exposures::read(folder.path()).unwrap();
        let color = [0.3_f32, 0.6, 0.5];
        let shown = crate::math::appearance::affine(&map, color).map(|c| byte(f64::from(c)));
        let undone = exposures.undo("a", &[shown])[0];
        for (found, expected) in undone.into_iter().zip(color) {
            assert!((f32::from(found) - 255.0 * expected).abs() < 1.5, "{undone:?}");
        }
        // A map that loses colours cannot be undone, nor one that is not there.
        assert!(exposures.knows("a") && !exposures.knows("b") && !exposures.knows("c"));
        assert_eq!(exposures.undo("b", &[[1, 2, 3]]), [[1, 2, 3]]);
        std::fs::write(folder.path().join(FILE), "{").unwrap();
        let error = Exposures::read(folder.path()).unwrap_err().to_string();
        assert!(error.contains("exposure.json") && error.contains("--resume"), "{error}");
    }
}
