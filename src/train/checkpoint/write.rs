//! Writing a checkpoint: the header, then each chunk's part of every column in its place.

use std::collections::HashMap;
use std::error::Error;
use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use safetensors::tensor::{Metadata, TensorInfo};

use super::appearance::{Tensor, tensors};
use super::bound;
use super::columns::{CheckpointColumn, bytes, columns};
use super::faces::{self, FaceState};
use super::{
    BY_TIME, Checkpoint, FORMAT, IMAGES, ITERATION_BEFORE, Occasion, TRAINING_SCALE,
    TRAINING_SECONDS, VERSION, path,
};
use crate::backend::{AppearanceTables, BoundState, Rows, Snapshot, chunks};
use crate::files::{OutputError, create_folder, replace_file};
use crate::memory::TrainingScale;
use crate::model::Primitive;
use crate::train::TrainError;
use crate::train::event::Completion;
use crate::train::finite::check_snapshot;
use crate::train::passed::Paced;

impl Checkpoint {
    /// Writes the checkpoint of this model, and what was learned of the photographs' colours, into the
    /// model folder: to a temporary file, synced and renamed. Of a model that is not on the host it holds one
    /// chunk at a time.
    pub fn write<P: Primitive, S: Rows<P>>(
        &self,
        model_path: &Path,
        model: &mut S,
        appearance: Option<&AppearanceTables>,
    ) -> Result<PathBuf, TrainError>
    where
        TrainError: From<S::Error>,
    {
        let tables = appearance.map(tensors).unwrap_or_default();
        self.write_after(model_path, model, &tables, &[])
    }

    /// The same of vertices, with the triangles between them.
    pub fn write_with_faces<P: Primitive, S: Rows<P>>(
        &self,
        model_path: &Path,
        model: &mut S,
        appearance: Option<&AppearanceTables>,
        faces: &FaceState,
    ) -> Result<PathBuf, TrainError>
    where
        TrainError: From<S::Error>,
    {
        let mut tables = appearance.map(tensors).unwrap_or_default();
        tables.extend(faces::tensors(faces));
        self.write_after(model_path, model, &tables, &[])
    }

    /// The same of a model that is bound to a mesh.
    pub fn write_bound<P: Primitive, S: Rows<P>>(
        &self,
        model_path: &Path,
        model: &mut S,
        bound: &BoundState,
    ) -> Result<PathBuf, TrainError>
    where
        TrainError: From<S::Error>,
    {
        self.write_after(model_path, model, &bound::tensors(bound), &[])
    }

    /// The same with these tensors beside the model's; the checkpoint appears in its folder when other
    /// work is over.
    pub(super) fn write_after<P: Primitive, S: Rows<P>>(
        &self,
        model_path: &Path,
        model: &mut S,
        tables: &[Tensor<'_>],
        earlier: &[Completion],
    ) -> Result<PathBuf, TrainError>
    where
        TrainError: From<S::Error>,
    {
        let path = path(model_path, self.iteration);
        let fail = |source| OutputError::new(&path, source);
        create_folder(&model_path.join("checkpoints"))?;
        let (sh_degree, rows) = (model.shape()?.sh_degree(), model.len());
        let columns = columns(P::SCHEMA, sh_degree, model.optional());
        let header = self
            .header(&columns, sh_degree, rows, tables)
            .map_err(|error| fail(io::Error::other(error)))?;
        replace_file(&path, |file| -> Result<(), TrainError> {
            file.write_all(&(header.len() as u64).to_le_bytes()).map_err(fail)?;
            file.write_all(header.as_bytes()).map_err(fail)?;
            let mut places = ColumnOffsets::behind(8 + header.len() as u64, &columns, rows);
            if let Some(all) = model.whole() {
                check_snapshot(all, 0)?;
                places.fill(file, all).map_err(fail)?;
            } else {
                for chunk in chunks(rows) {
                    let first = chunk.start;
                    let rows = model.read(chunk)?;
                    check_snapshot(&rows, first)?;
                    places.fill(file, &rows).map_err(fail)?;
                }
            }
            let data: u64 = columns.iter().map(|column| (rows * column.row_bytes()) as u64).sum();
            file.seek(SeekFrom::Start(8 + header.len() as u64 + data)).map_err(fail)?;
            for table in tables {
                file.write_all(table.bytes).map_err(fail)?;
            }
            if !earlier.is_empty() {
                // The disk need not wait for the other work.
                file.sync_all().map_err(fail)?;
                earlier.iter().for_each(Completion::wait);
            }
            Ok(())
        })?;
        Ok(path)
    }

    fn header(
        &self,
        columns: &[CheckpointColumn],
        sh_degree: u32,
        rows: usize,
        tables: &[Tensor<'_>],
    ) -> Result<String, Box<dyn Error + Send + Sync>> {
        let mut about = HashMap::from([
            ("format".to_owned(), FORMAT.to_owned()),
            ("version".to_owned(), VERSION.to_owned()),
            ("iteration".to_owned(), self.iteration.to_string()),
            ("sh_degree".to_owned(), sh_degree.to_string()),
            ("config".to_owned(), self.config.to_toml()?),
            ("train_views".to_owned(), serde_json::to_string(&self.train_views)?),
        ]);
        if self.occasion == Occasion::Time {
            let (key, value) = BY_TIME;
            about.insert(key.to_owned(), value.to_owned());
        }
        if self.training_scale != TrainingScale::FULL {
            about.insert(TRAINING_SCALE.to_owned(), self.training_scale.times().to_string());
        }
        if let Some(Paced { images, before, seconds }) = self.paced {
            about.insert(IMAGES.to_owned(), images.to_string());
            about.insert(ITERATION_BEFORE.to_owned(), before.to_string());
            let seconds = seconds.map(|seconds| (TRAINING_SECONDS.to_owned(), seconds.to_string()));
            about.extend(seconds);
        }
        let mut end = 0;
        let mut tensors: Vec<(String, TensorInfo)> = columns
            .iter()
            .map(|column| {
                let data_offsets = (end, end + rows * column.row_bytes());
                end = data_offsets.1;
                let shape = column.shape(rows);
                (column.name.clone(), TensorInfo { dtype: column.dtype, shape, data_offsets })
            })
            .collect();
        for Tensor { name, dtype, shape, bytes } in tables {
            let data_offsets = (end, end + bytes.len());
            end = data_offsets.1;
            let info = TensorInfo { dtype: *dtype, shape: shape.clone(), data_offsets };
            tensors.push(((*name).to_owned(), info));
        }
        // The metadata is a hash map: sorted, equal runs write equal files.
        let mut header = serde_json::to_value(Metadata::new(Some(about), tensors)?)?;
        header.sort_all_objects();
        let mut header = header.to_string();
        // Spaces align the data to 8 bytes, as the format asks.
        header.push_str(&" ".repeat(header.len().next_multiple_of(8) - header.len()));
        Ok(header)
    }
}

/// Where the next rows of each column go.
struct ColumnOffsets(Vec<u64>);

impl ColumnOffsets {
    /// Columns one behind the other from here on.
    fn behind(start: u64, columns: &[CheckpointColumn], rows: usize) -> Self {
        let mut next = start;
        let place = |column: &CheckpointColumn| {
            let place = next;
            next += rows as u64 * column.row_bytes() as u64;
            place
        };
        Self(columns.iter().map(place).collect())
    }

    fn fill<P: Primitive>(&mut self, file: &mut File, chunk: &Snapshot<P>) -> io::Result<()> {
        for (place, bytes) in self.0.iter_mut().zip(bytes(chunk)) {
            file.seek(SeekFrom::Start(*place))?;
            file.write_all(bytes)?;
            *place += bytes.len() as u64;
        }
        Ok(())
    }
}
