//! The checkpoint file: reads and writes its model in chunks.

use std::collections::HashMap;
use std::error::Error;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::marker::PhantomData;
use std::ops::Range;
use std::path::{Path, PathBuf};

use safetensors::tensor::{Metadata, TensorInfo};

use super::tensors::{
    self, ABSOLUTE_NORM_SUMS, CheckpointColumn, FILTER_3D, FaceState, StoredBound, StoredFaces,
    StoredTables, Tensor, bytes, bytes_mut, columns, counting_column, place, table_tensors,
};
use super::{
    BY_TIME, Checkpoint, CheckpointError, FORMAT, IMAGES, ITERATION_BEFORE, Occasion,
    TRAINING_SCALE, TRAINING_SECONDS, VERSION, path,
};
use crate::backend::{AppearanceTables, BoundState, Rows, Snapshot, check_rows, chunks};
use crate::config::Config;
use crate::files::{OutputError, create_folder, replace_file};
use crate::layout::Schema;
use crate::memory::TrainingScale;
use crate::memory::plan::OptionalColumns;
use crate::model::{Gaussians, Primitive};
use crate::train::TrainError;
use crate::train::event::Completion;
use crate::train::pace::Paced;
use crate::train::save::check_snapshot;

/// Longest header that is read. Usual headers hold a few kilobytes and the names of the views.
const MAX_HEADER_BYTES: u64 = 100 << 20;

/// Number of values that are checked at a time: one megabyte.
const CHUNK_VALUES: usize = 1 << 18;

/// Checkpoint that passed all checks.
#[derive(Debug)]
pub struct StoredCheckpoint<P = Gaussians> {
    /// Description of the run.
    pub about: Checkpoint,
    path: PathBuf,
    file: File,
    /// Degree of the harmonics in the file.
    stored_degree: u32,
    /// Degree of the harmonics that are read.
    sh_degree: u32,
    rows: usize,
    /// Columns that not every model has.
    optional: OptionalColumns,
    /// Offset of each column.
    places: Vec<u64>,
    /// Location of the colour tables.
    tables: Option<StoredTables>,
    /// Location of the bound mesh.
    bound: Option<StoredBound>,
    /// Location of the triangles.
    faces: Option<StoredFaces>,
    primitive: PhantomData<P>,
}

impl StoredCheckpoint {
    /// Opens a checkpoint of Gaussians.
    pub fn open(path: &Path) -> Result<Self, CheckpointError> {
        Self::open_of_kind(path)
    }
}

impl<P> StoredCheckpoint<P> {
    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl<P: Primitive> StoredCheckpoint<P> {
    /// Opens a checkpoint and reads it once, to reject damaged files before a run begins.
    pub fn open_of_kind(path: &Path) -> Result<Self, CheckpointError> {
        let unreadable = |source| CheckpointError::Unreadable { path: path.to_owned(), source };
        let damaged = |problem: String| CheckpointError::Damaged { path: path.to_owned(), problem };
        let mut file = File::open(path).map_err(unreadable)?;
        let length = file.metadata().map_err(unreadable)?.len();
        let header = read_header(&mut file, length).map_err(&damaged)?;
        let (about, sh_degree) = read_about(path, &header)?;
        let data_start = length - header.data_len() as u64;
        let there = |name| header.info(name).is_some();
        let optional = OptionalColumns {
            filter_3d: there(FILTER_3D),
            absolute_norm_sums: there(ABSOLUTE_NORM_SUMS),
        };
        let columns = columns(P::SCHEMA, sh_degree, optional);
        let (rows, places) = places(&header, data_start, P::SCHEMA, &columns).map_err(&damaged)?;
        let views = about.train_views.len();
        let tables = StoredTables::find(&header, data_start, views).map_err(&damaged)?;
        let bound = StoredBound::find(&header, data_start).map_err(&damaged)?;
        let faces = StoredFaces::find(&header, data_start, rows).map_err(&damaged)?;
        let mut stored = Self {
            about,
            path: path.to_owned(),
            file,
            stored_degree: sh_degree,
            sh_degree,
            rows,
            optional,
            places,
            tables,
            bound,
            faces,
            primitive: PhantomData,
        };
        stored.check_values().map_err(&damaged)?;
        let read = stored.read_tables().and_then(|_| stored.read_bound().map(drop));
        let read = read.and_then(|()| stored.read_faces().map(drop));
        read.map_err(|error| damaged(error.to_string()))?;
        Ok(stored)
    }

    /// Reads the colour tables in the order of [`Checkpoint::train_views`]. `None` without tables.
    pub fn appearance(&mut self) -> Result<Option<AppearanceTables>, CheckpointError> {
        let read = self.read_tables();
        read.map_err(|source| CheckpointError::Unreadable { path: self.path.clone(), source })
    }

    /// True if the model is bound to a mesh.
    pub fn is_bound(&self) -> bool {
        self.bound.is_some()
    }

    /// Reads the bound mesh. `None` if the model is not bound to one.
    pub fn bound(&mut self) -> Result<Option<BoundState>, CheckpointError> {
        let read = self.read_bound();
        read.map_err(|source| CheckpointError::Unreadable { path: self.path.clone(), source })
    }

    /// Reads the triangles and their statistics. `None` without triangles.
    pub fn faces(&mut self) -> Result<Option<FaceState>, CheckpointError> {
        let read = self.read_faces();
        read.map_err(|source| CheckpointError::Unreadable { path: self.path.clone(), source })
    }

    fn read_faces(&mut self) -> io::Result<Option<FaceState>> {
        self.faces.as_ref().map(|faces| faces.read(&mut self.file)).transpose()
    }

    fn read_bound(&mut self) -> io::Result<Option<BoundState>> {
        self.bound.as_ref().map(|bound| bound.read(&mut self.file)).transpose()
    }

    fn read_tables(&mut self) -> io::Result<Option<AppearanceTables>> {
        self.tables.as_ref().map(|tables| tables.read(&mut self.file)).transpose()
    }

    /// Returns the degree of the harmonics that are read.
    pub fn sh_degree(&self) -> u32 {
        self.sh_degree
    }

    /// Drops harmonics above this degree, and their moments, from what is read. Returns an error if
    /// the file has fewer.
    pub fn lower_sh_degree(&mut self, wanted: u32) -> Result<(), CheckpointError> {
        if wanted > self.stored_degree {
            let (path, found) = (self.path.clone(), self.stored_degree);
            return Err(CheckpointError::ShDegree { path, found, wanted });
        }
        self.sh_degree = wanted;
        Ok(())
    }

    /// Checks that all parameters and moments are finite.
    fn check_values(&mut self) -> Result<(), String> {
        let mut values = vec![0.0_f32; CHUNK_VALUES];
        let columns = columns(P::SCHEMA, self.stored_degree, self.optional);
        for (column, &place) in columns.iter().zip(&self.places) {
            if !column.is_of_training {
                continue;
            }
            let name = &column.name;
            self.file.seek(SeekFrom::Start(place)).map_err(|error| error.to_string())?;
            let count = self.rows * column.row_values();
            for first in (0..count).step_by(CHUNK_VALUES) {
                let values = &mut values[..CHUNK_VALUES.min(count - first)];
                let read = self.file.read_exact(bytemuck::cast_slice_mut(values));
                read.map_err(|error| format!("`{name}`: {error}"))?;
                if let Some(at) = values.iter().position(|value| !value.is_finite()) {
                    return Err(format!("`{name}` is not finite at element {}", first + at));
                }
            }
        }
        Ok(())
    }

    fn read_rows(&mut self, rows: &Range<usize>) -> io::Result<Snapshot<P>> {
        let mut chunk = Snapshot::zeros(self.stored_degree, rows.len(), self.optional);
        let columns = columns(P::SCHEMA, self.stored_degree, self.optional);
        for ((column, &place), bytes) in columns.iter().zip(&self.places).zip(bytes_mut(&mut chunk))
        {
            let before = rows.start as u64 * column.row_bytes() as u64;
            self.file.seek(SeekFrom::Start(place + before))?;
            self.file.read_exact(bytes)?;
        }
        Ok(chunk)
    }
}

impl<P: Primitive> Rows<P> for StoredCheckpoint<P> {
    type Error = TrainError;

    fn len(&self) -> usize {
        self.rows
    }

    fn shape(&mut self) -> Result<P, TrainError> {
        Ok(P::empty(self.sh_degree))
    }

    fn optional(&self) -> OptionalColumns {
        self.optional
    }

    fn read(&mut self, rows: Range<usize>) -> Result<Snapshot<P>, TrainError> {
        check_rows(&rows, self.rows)?;
        let mut chunk = self
            .read_rows(&rows)
            .map_err(|source| CheckpointError::Unreadable { path: self.path.clone(), source })?;
        for part in [&mut chunk.parameters, &mut chunk.first_moments, &mut chunk.second_moments] {
            part.lower_sh_degree(self.sh_degree);
        }
        Ok(chunk)
    }
}

/// True if a file begins like a checkpoint. The rest may be missing.
pub fn is_checkpoint(path: &Path) -> bool {
    let header = File::open(path).and_then(|mut file| {
        // Length of the header and its first byte.
        let mut prefix = [0; 9];
        file.read_exact(&mut prefix)?;
        let [length @ .., first] = prefix;
        let mut header = Vec::new();
        if first == b'{' {
            let length = u64::from_le_bytes(length).min(MAX_HEADER_BYTES);
            file.take(length).read_to_end(&mut header)?;
        }
        Ok(header)
    });
    let format = format!("\"{FORMAT}\"");
    header.is_ok_and(|header| header.windows(format.len()).any(|part| part == format.as_bytes()))
}

/// True if the checkpoint was written by time. Reads only the header.
pub fn is_timed(path: &Path) -> bool {
    let Ok(mut file) = File::open(path) else { return false };
    let header = file
        .metadata()
        .map_err(|error| error.to_string())
        .and_then(|about| read_header(&mut file, about.len()));
    header.is_ok_and(|header| {
        header.metadata().as_ref().is_some_and(|about| occasion(about) == Occasion::Time)
    })
}

fn occasion(about: &HashMap<String, String>) -> Occasion {
    let (key, value) = BY_TIME;
    if about.get(key).is_some_and(|found| found == value) {
        Occasion::Time
    } else {
        Occasion::Requested
    }
}

/// Reads the header and checks it against the length of the file.
fn read_header(file: &mut File, length: u64) -> Result<Metadata, String> {
    let mut prefix = [0; 8];
    file.read_exact(&mut prefix).map_err(|error| format!("it is {length} bytes long: {error}"))?;
    let header_length = u64::from_le_bytes(prefix);
    if header_length > MAX_HEADER_BYTES || header_length > length - 8 {
        return Err(format!("its header claims {header_length} bytes of {length}"));
    }
    let mut header = Vec::new();
    file.take(header_length).read_to_end(&mut header).map_err(|error| error.to_string())?;
    // Deserializing checks that the tensors follow each other without gaps and match their shapes. The crate's own
    // entry point needs the whole file in memory.
    let metadata: Metadata =
        serde_json::from_slice(&header).map_err(|error| format!("its header: {error}"))?;
    let expected = (metadata.data_len() as u64).saturating_add(8 + header_length);
    if expected != length {
        return Err(format!("it is {length} bytes long instead of {expected}"));
    }
    Ok(metadata)
}

/// Reads the run's description and the degree of the harmonics from the header.
fn read_about(path: &Path, header: &Metadata) -> Result<(Checkpoint, u32), CheckpointError> {
    let damaged = |problem: String| CheckpointError::Damaged { path: path.to_owned(), problem };
    let about: HashMap<String, String> = header.metadata().clone().unwrap_or_default();
    let entry =
        |key: &str| about.get(key).cloned().ok_or_else(|| damaged(format!("it has no `{key}`")));
    if entry("format")? != FORMAT {
        return Err(damaged(format!("its format is `{}`", entry("format")?)));
    }
    if entry("version")? != VERSION {
        return Err(CheckpointError::Version { path: path.to_owned(), found: entry("version")? });
    }
    let number = |key: &str| {
        let text = entry(key)?;
        text.parse::<u32>().map_err(|error| damaged(format!("`{key}` is `{text}`: {error}")))
    };
    let config =
        Config::from_toml(&path.display().to_string(), &entry("config")?).map_err(|source| {
            CheckpointError::Config { path: path.to_owned(), source: Box::new(source) }
        })?;
    let train_views = serde_json::from_str(&entry("train_views")?)
        .map_err(|error| damaged(format!("`train_views` is not a list of names: {error}")))?;
    let (iteration, sh_degree) = (number("iteration")?, number("sh_degree")?);
    if sh_degree > 3 {
        return Err(damaged(format!("its SH degree is {sh_degree}")));
    }
    let occasion = occasion(&about);
    let times = if about.contains_key(TRAINING_SCALE) { number(TRAINING_SCALE)? } else { 0 };
    let training_scale = TrainingScale::after(times);
    let paced = paced(&about).map_err(damaged)?;
    let about = Checkpoint { iteration, config, train_views, occasion, training_scale, paced };
    Ok((about, sh_degree))
}

/// Reads the progress of a run whose iterations differ from its images.
fn paced(about: &HashMap<String, String>) -> Result<Option<Paced>, String> {
    let Some(images) = about.get(IMAGES) else { return Ok(None) };
    let wrong = |key: &str, text: &str| format!("`{key}` is `{text}`");
    let images = images.parse().ok().ok_or_else(|| wrong(IMAGES, images))?;
    let before = about.get(ITERATION_BEFORE).map_or("", String::as_str);
    let before = before.parse().ok().ok_or_else(|| wrong(ITERATION_BEFORE, before))?;
    let seconds = about.get(TRAINING_SECONDS).map(|text| {
        let seconds =
            text.parse().ok().filter(|seconds: &f64| seconds.is_finite() && *seconds >= 0.0);
        seconds.ok_or_else(|| wrong(TRAINING_SECONDS, text))
    });
    Ok(Some(Paced { images, before, seconds: seconds.transpose()? }))
}

/// Returns the number of rows and the offset of each column.
fn places(
    header: &Metadata,
    data_start: u64,
    schema: &Schema,
    columns: &[CheckpointColumn],
) -> Result<(usize, Vec<u64>), String> {
    let counted = counting_column(schema);
    let rows = header
        .info(&counted)
        .and_then(|info| info.shape.first().copied())
        .ok_or_else(|| format!("it has no tensor `{counted}`"))?;
    let place = |column: &CheckpointColumn| {
        place(header, data_start, &column.name, column.dtype, &column.shape(rows))
    };
    let places = columns.iter().map(place).collect::<Result<_, _>>()?;
    Ok((rows, places))
}

// Writing: the header, then each chunk's part of every column at its offset.

impl Checkpoint {
    /// Writes the checkpoint of a model and its colour tables into the model folder, through a synced and renamed
    /// temporary file. A model on a device is read in chunks.
    pub fn write<P: Primitive, S: Rows<P, Error: Into<TrainError>>>(
        &self,
        model_path: &Path,
        model: &mut S,
        appearance: Option<&AppearanceTables>,
    ) -> Result<PathBuf, TrainError> {
        let tables = appearance.map(table_tensors).unwrap_or_default();
        self.write_after(model_path, model, &tables, &[])
    }

    /// Writes a checkpoint of a model that is bound to a mesh.
    pub fn write_bound<P: Primitive, S: Rows<P, Error: Into<TrainError>>>(
        &self,
        model_path: &Path,
        model: &mut S,
        bound: &BoundState,
    ) -> Result<PathBuf, TrainError> {
        self.write_after(model_path, model, &tensors::bound_tensors(bound), &[])
    }

    /// Writes a checkpoint with these additional tensors. The file appears in its folder after `earlier` is complete.
    pub(super) fn write_after<P: Primitive, S: Rows<P, Error: Into<TrainError>>>(
        &self,
        model_path: &Path,
        model: &mut S,
        tables: &[Tensor<'_>],
        earlier: &[Completion],
    ) -> Result<PathBuf, TrainError> {
        let path = path(model_path, self.iteration);
        let fail = |source| OutputError::new(&path, source);
        create_folder(&model_path.join("checkpoints"))?;
        let shape = model.shape().map_err(Into::<TrainError>::into)?;
        let (sh_degree, rows) = (shape.sh_degree(), model.len());
        let columns = columns(P::SCHEMA, sh_degree, model.optional());
        let header = self
            .header(&columns, sh_degree, rows, tables)
            .map_err(|error| fail(io::Error::other(error)))?;
        replace_file(&path, |file| -> Result<(), TrainError> {
            file.write_all(&(header.len() as u64).to_le_bytes()).map_err(fail)?;
            file.write_all(header.as_bytes()).map_err(fail)?;
            let mut end = 8 + header.len() as u64;
            // Offsets of the next rows of the columns.
            let mut offsets = Vec::with_capacity(columns.len());
            for column in &columns {
                offsets.push(end);
                end += rows as u64 * column.row_bytes() as u64;
            }
            let mut write = |chunk: &Snapshot<P>, first: usize| -> Result<(), TrainError> {
                check_snapshot(chunk, first)?;
                for (offset, bytes) in offsets.iter_mut().zip(bytes(chunk)) {
                    file.seek(SeekFrom::Start(*offset)).map_err(fail)?;
                    file.write_all(bytes).map_err(fail)?;
                    *offset += bytes.len() as u64;
                }
                Ok(())
            };
            if let Some(all) = model.whole() {
                write(all, 0)?;
            } else {
                for chunk in chunks(rows) {
                    let first = chunk.start;
                    write(&model.read(chunk).map_err(Into::<TrainError>::into)?, first)?;
                }
            }
            file.seek(SeekFrom::Start(end)).map_err(fail)?;
            for table in tables {
                file.write_all(table.bytes).map_err(fail)?;
            }
            if !earlier.is_empty() {
                // Syncing in parallel with the other work saves time.
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
        let mut table_tensors: Vec<(String, TensorInfo)> = columns
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
            table_tensors.push(((*name).to_owned(), info));
        }
        // The metadata is a hash map. Sorting makes equal runs write equal files.
        let mut header = serde_json::to_value(Metadata::new(Some(about), table_tensors)?)?;
        header.sort_all_objects();
        let mut header = header.to_string();
        // The format aligns data to 8 bytes by spaces.
        header.push_str(&" ".repeat(header.len().next_multiple_of(8) - header.len()));
        Ok(header)
    }
}
