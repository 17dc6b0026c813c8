//! Checkpoints of a run on its disk: reserves space for one, and removes old ones that were written by time.

use std::fs;
use std::path::{Path, PathBuf};

use super::tensors::{
    CheckpointColumn, FACE_BYTES, FaceState, Tensor, VALUE_BYTES, columns, table_tensors,
};
use super::{Checkpoint, Occasion, is_timed, list};
use crate::backend::{AppearanceTables, Compensation, Rows};
use crate::config::Config;
use crate::files::{DiskReserve, free_space};
use crate::memory::Bytes;
use crate::memory::plan::OptionalColumns;
use crate::model::Primitive;
use crate::train::TrainError;
use crate::train::appearance::compensation;
use crate::train::event::Completion;

use super::tensors;

/// Space for the tensors' names and offsets, and for a few blocks of the file system.
const SLACK: u64 = 1 << 16;

/// Parts of a checkpoint besides the rows of the model.
#[derive(Clone, Debug, Default)]
pub(in crate::train) struct BesideRows {
    /// Learned colour tables.
    pub(in crate::train) appearance: Option<AppearanceTables>,
    /// Triangles between the rows.
    pub(in crate::train) faces: Option<FaceState>,
}

impl BesideRows {
    fn tensors(&self) -> Vec<Tensor<'_>> {
        let appearance = self.appearance.as_ref().map(table_tensors).unwrap_or_default();
        let faces = self.faces.as_ref().map(tensors::face_tensors).unwrap_or_default();
        appearance.into_iter().chain(faces).collect()
    }
}

/// Writer of a run's checkpoints.
pub(in crate::train) struct CheckpointKeeper {
    model_path: PathBuf,
    /// Number of newest checkpoints that stay.
    kept: usize,
    sh_degree: u32,
    /// Approximate size of a checkpoint without the model's rows, bytes.
    beside_rows: u64,
    reserve: Option<DiskReserve>,
    /// True if the user was warned that the disk has no space for the reserve.
    lacks_reserve: bool,
    /// True if the user was warned that the disk has no space for checkpoints by time.
    lacks_timed: bool,
    warnings: Vec<String>,
}

impl CheckpointKeeper {
    /// Prepares the writer for an existing model folder. Reserves no space yet.
    pub(in crate::train) fn new(
        model_path: &Path,
        config: &Config,
        train_views: &[String],
    ) -> Self {
        Self {
            model_path: model_path.to_owned(),
            kept: config.output.keep_checkpoints as usize,
            sh_degree: config.optimize.sh_degree,
            beside_rows: beside_rows(config, train_views),
            reserve: config
                .output
                .checkpoint_reserve
                .then(|| DiskReserve::on_disk_of(&folder_on_disk(model_path))),
            lacks_reserve: false,
            lacks_timed: false,
            warnings: Vec::new(),
        }
    }

    /// Reserves space for a checkpoint of this size, if the options ask for a reserve.
    pub(in crate::train) fn keep_room<P: Primitive>(
        &mut self,
        rows: usize,
        faces: usize,
        optional: OptionalColumns,
    ) {
        let bytes = self.bytes::<P>(rows, faces, optional);
        let Some(reserve) = &mut self.reserve else { return };
        if let Err(error) = reserve.grow(bytes.0)
            && !self.lacks_reserve
        {
            self.lacks_reserve = true;
            self.warnings.push(format!(
                "--checkpoint-reserve: no room can be kept for a checkpoint of {:.1} MiB, so a full \
                 disk can cost the run everything since the last one: {error}",
                bytes.mib()
            ));
        }
    }

    /// Writes a checkpoint. On a full disk, older checkpoints by time are removed, and then the reserve is released
    /// for a requested checkpoint. Returns `None` with a warning if a checkpoint by time finds no space. The file
    /// appears after `earlier` is complete.
    pub(in crate::train) fn write<P: Primitive, S: Rows<P, Error: Into<TrainError>>>(
        &mut self,
        checkpoint: &Checkpoint,
        model: &mut S,
        beside: &BesideRows,
        earlier: &[Completion],
    ) -> Result<Option<PathBuf>, TrainError> {
        let model_path = self.model_path.clone();
        let tables = beside.tensors();
        let faces = beside.faces.as_ref().map_or(0, |state| state.faces.len());
        let bytes = self.bytes::<P>(model.len(), faces, model.optional());
        let mut write = || checkpoint.write_after(&model_path, model, &tables, earlier);
        let is_requested = checkpoint.occasion == Occasion::Requested;
        self.make_room(bytes);
        let mut written = write();
        if written.as_ref().is_err_and(TrainError::lacks_space) && self.remove_timed(1) {
            written = write();
        }
        if written.as_ref().is_err_and(TrainError::lacks_space) && is_requested && self.release() {
            written = write();
        }
        match written {
            Ok(path) => {
                self.remove_timed(self.kept);
                Ok(Some(path))
            }
            Err(TrainError::Output(error)) if error.is_for_space() && !is_requested => {
                if !self.lacks_timed {
                    self.lacks_timed = true;
                    self.warnings.push(format!(
                        "{error}. Training continues without this checkpoint (--checkpoint-minutes)"
                    ));
                }
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Writes rows that can be read only once. A full disk is an error.
    pub(in crate::train) fn write_once<P: Primitive, S: Rows<P, Error: Into<TrainError>>>(
        &self,
        checkpoint: &Checkpoint,
        model: &mut S,
        beside: &BesideRows,
        earlier: &[Completion],
    ) -> Result<PathBuf, TrainError> {
        let tables = beside.tensors();
        let faces = beside.faces.as_ref().map_or(0, |state| state.faces.len());
        self.make_room(self.bytes::<P>(model.len(), faces, model.optional()));
        let path = checkpoint.write_after(&self.model_path, model, &tables, earlier)?;
        self.remove_timed(self.kept);
        Ok(path)
    }

    /// Returns the approximate size of a checkpoint.
    fn bytes<P: Primitive>(&self, rows: usize, faces: usize, optional: OptionalColumns) -> Bytes {
        let row = row_bytes::<P>(self.sh_degree, optional);
        Bytes((rows * row + faces * FACE_BYTES) as u64 + self.beside_rows)
    }

    /// Returns the warnings since the last call.
    pub(in crate::train) fn take_warnings(&mut self) -> Vec<String> {
        std::mem::take(&mut self.warnings)
    }

    /// Releases the reserve. Returns true if there was one.
    fn release(&mut self) -> bool {
        let bytes = Bytes(self.reserve.as_mut().map_or(0, DiskReserve::release));
        if bytes > Bytes(0) {
            self.warnings.push(format!(
                "the disk is full: the {:.1} MiB that were kept for a checkpoint are released \
                 (--checkpoint-reserve)",
                bytes.mib()
            ));
        }
        bytes > Bytes(0)
    }

    /// Removes older checkpoints by time before the disk is full, because a full disk would also stop the run's logs.
    fn make_room(&self, bytes: Bytes) {
        if free_space(&folder_on_disk(&self.model_path)).is_some_and(|free| free < bytes.0) {
            self.remove_timed(1);
        }
    }

    /// Removes checkpoints by time that are not among the `newest`. Returns true if there were any.
    fn remove_timed(&self, newest: usize) -> bool {
        let older = list(&self.model_path).into_iter().skip(newest);
        older.filter(|path| is_timed(path) && fs::remove_file(path).is_ok()).count() > 0
    }
}

/// Returns the size of a row of the model in a checkpoint, bytes.
pub(in crate::train) fn row_bytes<P: Primitive>(
    sh_degree: u32,
    optional: OptionalColumns,
) -> usize {
    columns(P::SCHEMA, sh_degree, optional).iter().map(CheckpointColumn::row_bytes).sum()
}

/// Returns the size of the header and the colour tables, with slack for the file system, bytes.
fn beside_rows(config: &Config, train_views: &[String]) -> u64 {
    let text = config.to_toml().map_or(0, |text| text.len());
    let names: usize = train_views.iter().map(|name| name.len() + 4).sum();
    // Values, two moments and a step count.
    let table = |kind: Compensation| (3 * kind.width() + 1) * VALUE_BYTES;
    let tables = compensation(&config.optimize).map_or(0, table) * train_views.len();
    // Quotes and line ends take two bytes.
    (2 * (text + names) + tables) as u64 + SLACK
}

/// Returns the checkpoint folder, or the model folder if it does not exist. The former may be a link to another disk.
fn folder_on_disk(model_path: &Path) -> PathBuf {
    let folder = model_path.join("checkpoints");
    if folder.is_dir() { folder } else { model_path.to_owned() }
}
