//! What a checkpoint holds of the triangles between a model's rows: whole tensors, where there are any.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};

use safetensors::tensor::{Dtype, Metadata};

use super::appearance::Tensor;
use super::columns::{VALUE_BYTES, place};
use crate::backend::FaceStatistics;

/// The three rows of each triangle.
const CORNERS: &str = "faces.corners";

/// What views have shown of them, in the order of [`FaceStatistics::columns`].
const STATISTICS: [&str; 3] = ["faces.weights", "faces.reaches_px", GRADIENT_NORMS];

/// Absent from files older than `--split-by`.
const GRADIENT_NORMS: &str = "faces.gradient_norms";

/// Values of a triangle: its corners, and a value of each of the statistics.
const ROW_VALUES: usize = 3 + STATISTICS.len();

/// Bytes that a checkpoint has of a triangle.
pub(in crate::train) const FACE_BYTES: usize = ROW_VALUES * VALUE_BYTES;

/// The triangles of a model, and what views have shown of them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FaceState {
    /// Three rows of each.
    pub faces: Vec<[u32; 3]>,
    /// What views have shown, of as many.
    pub statistics: FaceStatistics,
}

/// The tensors in the order of the file.
pub(super) fn tensors(state: &FaceState) -> Vec<Tensor<'_>> {
    let FaceState { faces, statistics } = state;
    let corners = Tensor {
        name: CORNERS,
        dtype: Dtype::U32,
        shape: vec![faces.len(), 3],
        bytes: bytemuck::cast_slice(faces),
    };
    let columns = STATISTICS.into_iter().zip(statistics.columns());
    let statistics = columns.map(|(name, values)| Tensor {
        name,
        dtype: Dtype::F32,
        shape: vec![values.len()],
        bytes: bytemuck::cast_slice(values),
    });
    [corners].into_iter().chain(statistics).collect()
}

/// Where a file holds them.
#[derive(Debug)]
pub(super) struct StoredFaces {
    faces: usize,
    /// Rows that they are between.
    rows: usize,
    corners: u64,
    /// Where each of the statistics is; none where the file lacks it, whose values are then 0.
    statistics: [Option<u64>; 3],
}

impl StoredFaces {
    /// Finds those between so many rows; nothing where the file has none.
    pub(super) fn find(
        header: &Metadata,
        data_start: u64,
        rows: usize,
    ) -> Result<Option<Self>, String> {
        let Some(info) = header.info(CORNERS) else { return Ok(None) };
        let faces = info.shape.first().copied().unwrap_or(0);
        let corners = place(header, data_start, CORNERS, Dtype::U32, &[faces, 3])?;
        let mut statistics = [None; 3];
        for (name, found) in STATISTICS.into_iter().zip(&mut statistics) {
            if name != GRADIENT_NORMS || header.info(name).is_some() {
                *found = Some(place(header, data_start, name, Dtype::F32, &[faces])?);
            }
        }
        Ok(Some(Self { faces, rows, corners, statistics }))
    }

    /// Reads them; a corner that is no row, and a value that is no number, is damage.
    pub(super) fn read(&self, file: &mut File) -> io::Result<FaceState> {
        let damage = |problem| io::Error::new(io::ErrorKind::InvalidData, problem);
        let mut state = FaceState { faces: vec![[0; 3]; self.faces], ..FaceState::default() };
        file.seek(SeekFrom::Start(self.corners))?;
        file.read_exact(bytemuck::cast_slice_mut(&mut state.faces))?;
        let is_beyond = |face: &[u32; 3]| face.iter().any(|&row| row as usize >= self.rows);
        if let Some(at) = state.faces.iter().position(is_beyond) {
            let (face, rows) = (state.faces[at], self.rows);
            return Err(damage(format!(
                "`{CORNERS}` names {face:?} at row {at} of {rows} vertices"
            )));
        }
        state.statistics = FaceStatistics::zeros(self.faces);
        let FaceStatistics { weights, reaches_px, gradient_norms } = &mut state.statistics;
        let columns = [weights, reaches_px, gradient_norms];
        for ((name, values), place) in STATISTICS.into_iter().zip(columns).zip(self.statistics) {
            let Some(place) = place else { continue };
            file.seek(SeekFrom::Start(place))?;
            file.read_exact(bytemuck::cast_slice_mut(values))?;
            if let Some(at) = values.iter().position(|value| !value.is_finite()) {
                return Err(damage(format!("`{name}` is not finite at element {at}")));
            }
        }
        Ok(state)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use safetensors::SafeTensors;

    use super::*;
    use crate::backend::{AppearanceTables, Compensation, Rows as _, Snapshot};
    use crate::config::Config;
    use crate::memory::TrainingScale;
    use crate::model::Gaussians;
    use crate::train::checkpoint::{Checkpoint, Occasion, StoredCheckpoint};

    fn about(views: usize) -> Checkpoint {
        let train_views = (0..views).map(|view| format!("{view}.png")).collect();
        let (occasion, training_scale) = (Occasion::Asked, TrainingScale::FULL);
        Checkpoint {
            paced: None,
            iteration: 7,
            config: Config::default(),
            train_views,
            occasion,
            training_scale,
        }
    }

    fn model() -> Snapshot<Gaussians> {
        let zeros = Gaussians::zeros(1, 5);
        Snapshot {
            parameters: zeros.clone(),
            first_moments: zeros.clone(),
            second_moments: zeros,
            gradient_norm_sums: vec![0.0; 5],
            views_seen: vec![0; 5],
            absolute_norm_sums: Vec::new(),
            filter_3d: Vec::new(),
        }
    }

    fn state() -> FaceState {
        let statistics = FaceStatistics {
            weights: vec![0.25, 1e-30, 0.999],
            reaches_px: vec![3.5, 0.0, 1e6],
            gradient_norms: vec![0.0, 2e-9, 7.0],
        };
        FaceState { faces: vec![[0, 1, 2], [2, 1, 3], [4, 0, 2]], statistics }
    }

    #[test]
    fn triangles_are_read_as_they_were_written_beside_tables_of_colours() {
        let folder = tempfile::tempdir().unwrap();
        for tables in [None, Some(AppearanceTables::identity(Compensation::Exposure, 3))] {
            let written = about(3);
            let path = written
                .write_with_faces(folder.path(), &mut model(), tables.as_ref(), &state())
                .unwrap();
            let mut stored = StoredCheckpoint::open(&path).unwrap();
            assert_eq!(stored.faces().unwrap(), Some(state()));
            assert_eq!(stored.appearance().unwrap(), tables);
            assert_eq!(stored.read(0..5).unwrap(), model());
            // As another reader of the format sees it.
            let bytes = fs::read(&path).unwrap();
            let tensors = SafeTensors::deserialize(&bytes).unwrap();
            assert_eq!(tensors.tensor(CORNERS).unwrap().shape(), [3, 3]);
        }
        let path = about(3).write(folder.path(), &mut model(), None).unwrap();
        assert_eq!(StoredCheckpoint::open(&path).unwrap().faces().unwrap(), None);
        let none = FaceState::default();
        let path = about(3).write_with_faces(folder.path(), &mut model(), None, &none).unwrap();
        assert_eq!(StoredCheckpoint::open(&path).unwrap().faces().unwrap(), Some(none));
    }

    #[test]
    fn an_older_file_without_gradients_has_none_and_the_rest() {
        let folder = tempfile::tempdir().unwrap();
        let path = about(0).write_with_faces(folder.path(), &mut model(), None, &state()).unwrap();
        let mut bytes = fs::read(&path).unwrap();
        // The tensor under another name, which nobody asks for.
        let at = bytes.windows(GRADIENT_NORMS.len()).position(|w| w == GRADIENT_NORMS.as_bytes());
        bytes[at.unwrap()] = b'x';
        fs::write(&path, &bytes).unwrap();
        let found = StoredCheckpoint::open(&path).unwrap().faces().unwrap().unwrap();
        let mut expected = state();
        expected.statistics.gradient_norms = vec![0.0; 3];
        assert_eq!(found, expected);
    }

    #[test]
    fn corners_that_are_no_rows_and_values_that_are_no_numbers_are_damage() {
        let folder = tempfile::tempdir().unwrap();
        let refused = |broken: &FaceState| {
            let path =
                about(0).write_with_faces(folder.path(), &mut model(), None, broken).unwrap();
            StoredCheckpoint::open(&path).unwrap_err().to_string()
        };
        let mut broken = state();
        broken.faces[1][2] = 5;
        let error = refused(&broken);
        assert!(error.contains("`faces.corners` names [2, 1, 5] at row 1 of 5"), "{error}");
        let mut broken = state();
        broken.statistics.reaches_px[2] = f32::NAN;
        let error = refused(&broken);
        assert!(error.contains("`faces.reaches_px` is not finite at element 2"), "{error}");
        let mut broken = state();
        broken.statistics.weights.pop();
        let error = refused(&broken);
        assert!(error.contains("`faces.weights` is F32 [2] instead of F32 [3]"), "{error}");
    }

    #[test]
    fn every_truncation_is_damage() {
        let folder = tempfile::tempdir().unwrap();
        let path = about(2).write_with_faces(folder.path(), &mut model(), None, &state()).unwrap();
        let bytes = fs::read(&path).unwrap();
        for length in (1..bytes.len()).step_by(41).chain([bytes.len() - 1]) {
            fs::write(&path, &bytes[..length]).unwrap();
            let error = StoredCheckpoint::open(&path).unwrap_err().to_string();
            assert!(error.contains("damaged"), "{length}: {error}");
        }
    }
}
