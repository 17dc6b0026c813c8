//! What a checkpoint holds of the photographs' colours: whole tensors, where the run learned them.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};

use safetensors::tensor::{Dtype, Metadata};

use super::columns::place;
use crate::backend::{AppearanceTables, Compensation};

/// Of values and moments, and of the number of steps behind them.
const TENSORS: [&str; 3] =
    ["appearance.values", "appearance.first_moments", "appearance.second_moments"];
const STEPS: &str = "appearance.steps";

/// A tensor as the file holds it.
pub(super) struct Tensor<'a> {
    pub(super) name: &'static str,
    pub(super) dtype: Dtype,
    pub(super) shape: Vec<usize>,
    pub(super) bytes: &'a [u8],
}

/// The tables' tensors, in the order of the file.
pub(super) fn tensors(tables: &AppearanceTables) -> Vec<Tensor<'_>> {
    let views = tables.steps.len();
    let parts = [&tables.values, &tables.first_moments, &tables.second_moments];
    let mut tensors: Vec<Tensor<'_>> = TENSORS
        .into_iter()
        .zip(parts)
        .map(|(name, values)| Tensor {
            name,
            dtype: Dtype::F32,
            shape: vec![views, tables.kind.width()],
            bytes: bytemuck::cast_slice(values),
        })
        .collect();
    let bytes = bytemuck::cast_slice(&tables.steps);
    tensors.push(Tensor { name: STEPS, dtype: Dtype::U32, shape: vec![views], bytes });
    tensors
}

/// Where a file holds tables.
#[derive(Debug)]
pub(super) struct StoredTables {
    kind: Compensation,
    views: usize,
    /// Where values and moments begin.
    places: [u64; 3],
    /// Where the numbers of steps begin.
    steps: u64,
}

impl StoredTables {
    /// Finds those of so many views; nothing where the file has none.
    pub(super) fn find(
        header: &Metadata,
        data_start: u64,
        views: usize,
    ) -> Result<Option<Self>, String> {
        let Some(info) = header.info(TENSORS[0]) else { return Ok(None) };
        let kinds = [Compensation::Exposure, Compensation::BilateralGrid];
        let width = info.shape.last().copied();
        let Some(kind) = kinds.into_iter().find(|kind| Some(kind.width()) == width) else {
            return Err(format!("`{}` is {:?}", TENSORS[0], info.shape));
        };
        let [values, first, second] =
            TENSORS.map(|name| place(header, data_start, name, Dtype::F32, &[views, kind.width()]));
        let places = [values?, first?, second?];
        let steps = place(header, data_start, STEPS, Dtype::U32, &[views])?;
        Ok(Some(Self { kind, views, places, steps }))
    }

    /// Reads them; a value that is no number is damage.
    pub(super) fn read(&self, file: &mut File) -> io::Result<AppearanceTables> {
        let mut tables = AppearanceTables::identity(self.kind, self.views);
        let parts = [&mut tables.values, &mut tables.first_moments, &mut tables.second_moments];
        for ((values, place), name) in parts.into_iter().zip(self.places).zip(TENSORS) {
            file.seek(SeekFrom::Start(place))?;
            file.read_exact(bytemuck::cast_slice_mut(values))?;
            if let Some(at) = values.iter().position(|value| !value.is_finite()) {
                let problem = format!("`{name}` is not finite at element {at}");
                return Err(io::Error::new(io::ErrorKind::InvalidData, problem));
            }
        }
        file.seek(SeekFrom::Start(self.steps))?;
        file.read_exact(bytemuck::cast_slice_mut(&mut tables.steps))?;
        Ok(tables)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::Snapshot;
    use crate::config::Config;
    use crate::memory::TrainingScale;
    use crate::model::Gaussians;
    use crate::train::checkpoint::{Checkpoint, Occasion, StoredCheckpoint};

    fn about(views: usize) -> Checkpoint {
        let train_views = (0..views).map(|view| format!("{view}.png")).collect();
        let config = Config::default();
        let (occasion, training_scale) = (Occasion::Asked, TrainingScale::FULL);
        Checkpoint { iteration: 7, config, train_views, occasion, training_scale, paced: None }
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

    fn tables(kind: Compensation, views: usize) -> AppearanceTables {
        let mut tables = AppearanceTables::identity(kind, views);
        let mut next = 0_u16;
        let parts = [&mut tables.values, &mut tables.first_moments, &mut tables.second_moments];
        for value in parts.into_iter().flatten() {
            next = (next + 1) % 65_521;
            *value = f32::from(next) * 0.25;
        }
        tables.steps = (3..).take(views).collect();
        tables
    }

    #[test]
    fn tables_are_read_as_they_were_written_and_the_model_stays_what_it_is() {
        let folder = tempfile::tempdir().unwrap();
        for kind in [Compensation::Exposure, Compensation::BilateralGrid] {
            let tables = tables(kind, 3);
            let path = about(3).write(folder.path(), &mut model(), Some(&tables)).unwrap();
            let mut stored = StoredCheckpoint::open(&path).unwrap();
            assert_eq!(stored.appearance().unwrap(), Some(tables));
            assert_eq!(crate::backend::Rows::read(&mut stored, 0..5).unwrap(), model());
            // As another reader of the format sees it.
            let bytes = std::fs::read(&path).unwrap();
            let tensors = safetensors::SafeTensors::deserialize(&bytes).unwrap();
            assert_eq!(tensors.tensor(TENSORS[1]).unwrap().shape(), [3, kind.width()]);
        }
        let path = about(3).write(folder.path(), &mut model(), None).unwrap();
        assert_eq!(StoredCheckpoint::open(&path).unwrap().appearance().unwrap(), None);
    }

    #[test]
    fn tables_of_other_views_and_values_that_are_no_numbers_are_damage() {
        let folder = tempfile::tempdir().unwrap();
        let mut broken = tables(Compensation::Exposure, 3);
        let path = about(2).write(folder.path(), &mut model(), Some(&broken)).unwrap();
        let error = StoredCheckpoint::open(&path).unwrap_err().to_string();
        assert!(
            error.contains("`appearance.values` is F32 [3, 12] instead of F32 [2, 12]"),
            "{error}"
        );
        broken.second_moments[31] = f32::NAN;
        let path = about(3).write(folder.path(), &mut model(), Some(&broken)).unwrap();
        let error = StoredCheckpoint::open(&path).unwrap_err().to_string();
        assert!(error.contains("second_moments` is not finite at element 31"), "{error}");
    }
}
