//! What a checkpoint holds of a mesh that Gaussians are bound to: whole tensors, where they are.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};

use safetensors::tensor::{Dtype, Metadata};

use super::appearance::Tensor;
use super::columns::place;
use crate::backend::BoundState;
use crate::model::BoundColumns;

/// The tensors: of each column its values, then first and second moments.
const TENSORS: [[&str; 3]; 3] = [
    ["bound.values.vertices", "bound.values.log_scales", "bound.values.turns"],
    ["bound.first_moments.vertices", "bound.first_moments.log_scales", "bound.first_moments.turns"],
    [
        "bound.second_moments.vertices",
        "bound.second_moments.log_scales",
        "bound.second_moments.turns",
    ],
];

/// The tensors in the order of the file.
pub(super) fn tensors(state: &BoundState) -> Vec<Tensor<'_>> {
    let parts = [&state.values, &state.first_moments, &state.second_moments];
    let all = TENSORS
        .into_iter()
        .zip(parts)
        .flat_map(|(names, part)| names.into_iter().zip(part.values()).zip(BoundColumns::WIDTHS));
    all.map(|((name, values), width)| Tensor {
        name,
        dtype: Dtype::F32,
        shape: vec![values.len() / width, width],
        bytes: bytemuck::cast_slice(values),
    })
    .collect()
}

/// Where a file holds them.
#[derive(Debug)]
pub(super) struct StoredBound {
    /// Rows of each column.
    rows: [usize; 3],
    /// Where the tensors begin.
    places: [[u64; 3]; 3],
}

impl StoredBound {
    /// Finds them; nothing where the file has none.
    pub(super) fn find(header: &Metadata, data_start: u64) -> Result<Option<Self>, String> {
        let mut found = Self { rows: [0; 3], places: [[0; 3]; 3] };
        for (column, name) in TENSORS[0].into_iter().enumerate() {
            let Some(info) = header.info(name) else { return Ok(None) };
            found.rows[column] = info.shape.first().copied().unwrap_or(0);
        }
        for (part, names) in TENSORS.into_iter().enumerate() {
            for (column, name) in names.into_iter().enumerate() {
                let shape = [found.rows[column], BoundColumns::WIDTHS[column]];
                found.places[part][column] = place(header, data_start, name, Dtype::F32, &shape)?;
            }
        }
        Ok(Some(found))
    }

    /// Reads them; a value that is no number is damage.
    pub(super) fn read(&self, file: &mut File) -> io::Result<BoundState> {
        let mut state = BoundState::default();
        let parts = [&mut state.values, &mut state.first_moments, &mut state.second_moments];
        for (part, columns) in parts.into_iter().enumerate() {
            for (column, values) in columns.values_mut().into_iter().enumerate() {
                values.resize(self.rows[column] * BoundColumns::WIDTHS[column], 0.0);
                file.seek(SeekFrom::Start(self.places[part][column]))?;
                file.read_exact(bytemuck::cast_slice_mut(values))?;
                if let Some(at) = values.iter().position(|value| !value.is_finite()) {
                    let name = TENSORS[part][column];
                    let problem = format!("`{name}` is not finite at element {at}");
                    return Err(io::Error::new(io::ErrorKind::InvalidData, problem));
                }
            }
        }
        Ok(state)
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

    #[test]
    fn what_is_bound_is_read_as_it_was_written_and_no_number_is_damage() {
        let folder = tempfile::tempdir().unwrap();
        let (occasion, training_scale) = (Occasion::Asked, TrainingScale::FULL);
        let (config, train_views) = (Config::default(), Vec::new());
        let about =
            Checkpoint { iteration: 7, config, train_views, occasion, training_scale, paced: None };
        let zeros = Gaussians::zeros(1, 2);
        let mut model = Snapshot {
            parameters: zeros.clone(),
            first_moments: zeros.clone(),
            second_moments: zeros,
            gradient_norm_sums: vec![0.0; 2],
            views_seen: vec![0; 2],
            absolute_norm_sums: Vec::new(),
            filter_3d: Vec::new(),
        };
        let columns = |first: f32| BoundColumns {
            vertices: (0_u16..9).map(|i| first + f32::from(i)).collect(),
            log_scales: vec![first; 4],
            turns: vec![-first; 4],
        };
        let mut state = BoundState {
            values: columns(1.0),
            first_moments: columns(2.0),
            second_moments: columns(3.0),
        };
        let path = about.write_bound(folder.path(), &mut model, &state).unwrap();
        let mut stored = StoredCheckpoint::open(&path).unwrap();
        assert_eq!(stored.bound().unwrap(), Some(state.clone()));
        assert_eq!(stored.appearance().unwrap(), None);
        state.first_moments.turns[3] = f32::INFINITY;
        let path = about.write_bound(folder.path(), &mut model, &state).unwrap();
        let error = StoredCheckpoint::open(&path).unwrap_err().to_string();
        assert!(
            error.contains("`bound.first_moments.turns` is not finite at element 3"),
            "{error}"
        );
        let path = about.write(folder.path(), &mut model, None).unwrap();
        assert_eq!(StoredCheckpoint::open(&path).unwrap().bound().unwrap(), None);
    }
}
