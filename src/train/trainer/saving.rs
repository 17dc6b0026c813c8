//! Files of a run: PLY, checkpoints, exposures; and the end of a run on a full disk.
//!
//! If the host has memory for a copy of the model, a thread writes it while training continues, one file of a kind at
//! a time. Otherwise training waits while the file is written in chunks. A checkpoint appears after all files and
//! logs that belong before it, so that a killed and resumed run lacks none of them.

use std::fs;
use std::ops::Range;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread::{ScopedJoinHandle, scope};
use std::time::Instant;

use super::Trainer;
use super::state::WritingMode;
use crate::backend::{
    AppearanceTables, CHUNK_ROWS, Compensation, DeviceError, Footprint, Peaks, Rows, Snapshot,
    TrainDevice, chunks,
};
use crate::config::Config;
use crate::export::{NewPly, PlyStyle, remove_exposure_json, write_exposure_json};
use crate::files::OutputError;
use crate::memory::plan::OptionalColumns;
use crate::memory::{Bytes, host_memory, peak_resident_memory};
use crate::model::{Gaussians, fuse};
use crate::train::appearance::{EarlierTables, compensation, tables};
use crate::train::checkpoint::{
    self, BesideRows, Checkpoint, CheckpointKeeper, FACE_BYTES, FaceState, Occasion, row_bytes,
};
use crate::train::event::{Completion, Event, Saved, Split};
use crate::train::report::offloaded;
use crate::train::save::{
    DeviceModel, FileResult, WrittenFile, check_finite, check_tables, new_point_cloud,
    point_cloud_path, render_mode, triangle_mode, write_point_cloud,
};
use crate::train::schedule::Milestones;
use crate::train::{MemoryFallbacks as _, TrainError};

impl<B: TrainDevice> Trainer<'_, B> {
    /// Returns the occasion for a checkpoint after the last step, if any.
    pub(super) fn checkpoint_occasion(&self, is_requested: bool) -> Option<Occasion> {
        if is_requested {
            return Some(Occasion::Requested);
        }
        let minutes = self.setup.config.output.checkpoint_minutes;
        let is_time = minutes > 0.0 && self.saved_at.elapsed().as_secs_f64() >= 60.0 * minutes;
        // A resumed run finds its neighbours again, so a run with neighbours must not write a checkpoint.
        (is_time && !self.keeps_neighbours()).then_some(Occasion::Time)
    }

    /// Saves the Gaussians as PLY. On a full disk, stops the run with a checkpoint.
    pub(super) fn save_point_cloud(&mut self) -> Result<(), TrainError> {
        let what = Saved::PointCloud;
        self.wait_for_files(Some(what))?;
        self.sink.on(&Event::Saving { iteration: self.iteration, what })?;
        let started = Instant::now();
        let begun = self.with_memory_retry(Self::begin_point_cloud);
        self.times.saving_seconds += started.elapsed().as_secs_f64();
        self.settle_begun(what, begun)
    }

    /// Saves the PLY of a resumed run that stopped between its checkpoint and that PLY.
    pub(super) fn save_missing(&mut self, due: Milestones) -> Result<(), TrainError> {
        let checkpoint = checkpoint::path(self.setup.model_path, self.iteration);
        let point_cloud = point_cloud_path(self.setup.model_path, self.iteration);
        if due.save && checkpoint.exists() && !point_cloud.exists() {
            self.save_point_cloud()?;
        }
        Ok(())
    }

    pub(super) fn write_checkpoint(
        &mut self,
        occasion: Occasion,
        mode: WritingMode,
    ) -> Result<(), TrainError> {
        self.wait_for_files(Some(Saved::Checkpoint))?;
        let started = Instant::now();
        let begun = self.begin_checkpoint(occasion, mode);
        self.saved_at = Instant::now();
        self.times.saving_seconds += started.elapsed().as_secs_f64();
        self.settle_begun(Saved::Checkpoint, begun)
    }

    /// Reports the files that threads have written.
    pub(super) fn settle_written(&mut self) -> Result<(), TrainError> {
        let written = self.files.take_written();
        if written.is_empty() {
            return Ok(());
        }
        self.settle(written)?;
        self.reserve_checkpoint()
    }

    /// Waits for all files after an error, and reports the written ones.
    pub(super) fn end_files(&mut self) {
        for WrittenFile { what, iteration, result } in self.files.wait(None) {
            if let Ok(Some(path)) = result {
                // The run ends with the first error.
                self.sink.on(&Event::Saved { iteration, what, path }).ok();
            }
        }
    }

    /// Waits for the files of a kind, or for all, and reports them.
    pub(super) fn wait_for_files(&mut self, what: Option<Saved>) -> Result<(), TrainError> {
        let started = Instant::now();
        let written = self.files.wait(what);
        self.times.waiting_seconds += started.elapsed().as_secs_f64();
        if written.is_empty() { Ok(()) } else { self.settle(written) }
    }

    /// Reserves disk space for a checkpoint of the present model.
    pub(super) fn reserve_checkpoint(&mut self) -> Result<(), TrainError> {
        let (rows, optional) = (self.device.len(&self.model), self.device.optional(&self.model));
        let faces = self.device.faces(&self.model).len();
        // While a checkpoint is being written, this is skipped and repeated after its report.
        if let Some(mut keeper) = lock_if_free(&self.keeper) {
            keeper.keep_room::<Gaussians>(rows, faces, optional);
        }
        self.warn_about_checkpoints()
    }

    fn warn_about_checkpoints(&mut self) -> Result<(), TrainError> {
        let warnings =
            lock_if_free(&self.keeper).map_or_else(Vec::new, |mut keeper| keeper.take_warnings());
        for message in warnings {
            self.warn(message)?;
        }
        Ok(())
    }

    /// Starts a thread that writes the PLY, or writes it. Returns a file that is already written.
    fn begin_point_cloud(&mut self) -> Result<Option<WrittenFile>, TrainError> {
        let (what, iteration) = (Saved::PointCloud, self.iteration);
        let path = self.prepare_point_cloud()?;
        let copy = self.copy_for(what);
        let has_room = self.has_room_for_copy(copy);
        let triangles = self.device.faces(&self.model).to_vec();
        let file = if has_room { self.new_point_cloud(&path)? } else { None };
        let Some(file) = file else {
            let style = self.point_cloud_style();
            write_point_cloud(&path, style, self.device, &mut self.model, &triangles)?;
            return Ok(Some(WrittenFile { what, iteration, result: Ok(Some(path)) }));
        };
        let gaussians = self.fused()?;
        Ok(self.files.start(what, iteration, copy, move || {
            check_finite(&gaussians, 0)?;
            file.write_triangles::<Gaussians, _, TrainError>([Ok(&gaussians)], &triangles)?;
            Ok(Some(path))
        }))
    }

    /// Writes the files beside the PLY and creates its folder. Returns the path of the PLY.
    pub(super) fn prepare_point_cloud(&mut self) -> Result<PathBuf, TrainError> {
        let path = new_point_cloud(self.setup.model_path, self.iteration)?;
        match self.read_appearance()? {
            Some(AppearanceTables { kind: Compensation::Exposure, values, .. }) => {
                let names = self.feed.views.names(Split::Train);
                write_exposure_json(self.setup.model_path, &names, &values)?;
            }
            // An earlier part of the run may have written the file.
            Some(_) | None => remove_exposure_json(self.setup.model_path)?,
        }
        Ok(path)
    }

    /// Returns the style of the PLY: primitive and coordinates.
    pub(super) fn point_cloud_style(&self) -> PlyStyle {
        let config = self.setup.config;
        let mode = match self.shown_footprint() {
            Footprint::Triangle(window) => {
                triangle_mode(window, self.device.faces(&self.model).len())
            }
            Footprint::Ellipse { .. } | Footprint::Surfel => render_mode(config),
        };
        PlyStyle { mode, frame: self.setup.dataset.frame }
    }

    /// Creates a PLY with reserved disk space. `None` if the file system cannot reserve space. On a full disk, the
    /// run must stop before the iteration ends.
    pub(super) fn new_point_cloud(&mut self, path: &Path) -> Result<Option<NewPly>, TrainError> {
        let style = self.point_cloud_style();
        let sh_degree = self.device.read_parameters(&mut self.model, 0..0)?.sh_degree;
        let count = self.device.len(&self.model);
        let file = NewPly::with_room::<Gaussians>(path, style, sh_degree, count);
        Ok(file.inspect_err(|_full| {
            // The call fails, as intended, if the folder is not empty.
            path.parent().map(fs::remove_dir);
        })?)
    }

    /// Starts a thread that writes a checkpoint, or writes it. Returns a file that is already written.
    fn begin_checkpoint(
        &mut self,
        occasion: Occasion,
        mode: WritingMode,
    ) -> Result<Option<WrittenFile>, TrainError> {
        let (what, iteration) = (Saved::Checkpoint, self.iteration);
        let checkpoint = self.about_checkpoint(occasion);
        let beside = self.read_beside_rows()?;
        self.sink.on(&Event::Saving { iteration, what })?;
        let mut earlier = self.files.written();
        earlier.extend(self.sink.written());
        let keeper = Arc::clone(&self.keeper);
        let copy = self.copy_for(what);
        if mode == WritingMode::AtOnce || !self.has_room_for_copy(copy) {
            let mut model = DeviceModel { device: &mut *self.device, model: &mut self.model };
            let mut keeper = keeper.lock().unwrap_or_else(PoisonError::into_inner);
            let result = keeper.write(&checkpoint, &mut model, &beside, &earlier);
            return Ok(Some(WrittenFile { what, iteration, result }));
        }
        let mut rows = self.device.snapshot(&mut self.model)?;
        Ok(self.files.start(what, iteration, copy, move || {
            let mut keeper = keeper.lock().unwrap_or_else(PoisonError::into_inner);
            keeper.write(&checkpoint, &mut rows, &beside, &earlier)
        }))
    }

    /// Reads the parts of a checkpoint besides the rows of the model.
    pub(super) fn read_beside_rows(&mut self) -> Result<BesideRows, TrainError> {
        let appearance = self.read_appearance()?;
        let faces = self.device.faces(&self.model).to_vec();
        if faces.is_empty() {
            return Ok(BesideRows { appearance, faces: None });
        }
        let statistics = self.device.face_statistics(&self.model)?;
        Ok(BesideRows { appearance, faces: Some(FaceState { faces, statistics }) })
    }

    /// Describes the run for a checkpoint.
    pub(super) fn about_checkpoint(&self, occasion: Occasion) -> Checkpoint {
        Checkpoint {
            iteration: self.iteration,
            paced: self.pace.paced(self.last_step, self.clock.seconds()),
            config: self.setup.config.clone(),
            train_views: self.feed.views.names(Split::Train),
            occasion,
            training_scale: self.feed.views.training_scale(),
        }
    }

    /// Returns the memory of the copy that a thread writes to a file.
    fn copy_for(&self, what: Saved) -> Bytes {
        let sh_degree = self.setup.config.optimize.sh_degree;
        let (rows, optional) = (self.device.len(&self.model), self.device.optional(&self.model));
        let row = row_bytes::<Gaussians>(sh_degree, optional) as u64;
        let faces = (self.device.faces(&self.model).len() * FACE_BYTES) as u64;
        let values = match what {
            Saved::Checkpoint => rows as u64 * row + faces,
            // The 3D filter is read together with all other columns.
            Saved::PointCloud if optional.filter_3d => rows as u64 * row,
            Saved::PointCloud => rows as u64 * row.div_ceil(3) + faces,
        };
        Bytes(values)
    }

    fn settle_begun(
        &mut self,
        what: Saved,
        begun: Result<Option<WrittenFile>, TrainError>,
    ) -> Result<(), TrainError> {
        let failed =
            |error| Some(WrittenFile { what, iteration: self.iteration, result: Err(error) });
        match begun.unwrap_or_else(failed) {
            Some(written) => self.settle(vec![written]),
            None => Ok(()),
        }
    }

    /// Reports written files. The first failure ends the run, on a full disk with a checkpoint.
    pub(super) fn settle(&mut self, files: Vec<WrittenFile>) -> Result<(), TrainError> {
        let mut failed = None;
        for WrittenFile { what, iteration, result } in files {
            match result {
                Ok(Some(path)) => self.sink.on(&Event::Saved { iteration, what, path })?,
                Ok(None) => {}
                Err(error) => failed = failed.or(Some((what, error))),
            }
        }
        self.warn_about_checkpoints()?;
        match failed {
            None => Ok(()),
            Some((what, TrainError::Output(source))) if source.is_for_space() => match what {
                Saved::PointCloud => Err(self.stop_for_space(source)),
                Saved::Checkpoint => {
                    let checkpoint = checkpoint::list(self.setup.model_path).into_iter().next();
                    Err(TrainError::NoSpace { source, checkpoint })
                }
            },
            Some((_, error)) => Err(error),
        }
    }

    /// Writes a checkpoint and returns the error of a full disk.
    fn stop_for_space(&mut self, source: OutputError) -> TrainError {
        let written = self
            .report_pending()
            .and_then(|()| self.write_checkpoint(Occasion::Requested, WritingMode::AtOnce));
        match written {
            Ok(()) => {
                let path = checkpoint::path(self.setup.model_path, self.iteration);
                TrainError::NoSpace { source, checkpoint: Some(path) }
            }
            Err(TrainError::NoSpace { checkpoint, .. }) => {
                TrainError::NoSpace { source, checkpoint }
            }
            Err(error) => error,
        }
    }

    /// True if the host has memory for a copy of the model. Offloaded tables are added, because they do not count as
    /// resident.
    fn has_room_for_copy(&mut self, copy: Bytes) -> bool {
        let memory = self.device.memory(Peaks::Keep);
        let offloaded = memory.and_then(|memory| offloaded(&memory.entries)).unwrap_or_default();
        has_room(self.setup.config, copy + offloaded)
    }

    /// Writes both files. Returns false if memory or disk space is short, or if the file system cannot reserve space.
    pub(super) fn write_last_files(&mut self, occasion: Occasion) -> Result<bool, TrainError> {
        let sh_degree = self.setup.config.optimize.sh_degree;
        let row = row_bytes::<Gaussians>(sh_degree, self.device.optional(&self.model)) as u64;
        let chunk = row * CHUNK_ROWS.min(self.device.len(&self.model)) as u64;
        if !has_room(self.setup.config, Bytes(CHUNKS_HELD * chunk)) {
            return Ok(false);
        }
        self.wait_for_files(None)?;
        let started = Instant::now();
        // The fallback repeats what fails here, and handles its errors.
        let Ok(path) = self.prepare_point_cloud() else { return Ok(false) };
        let Ok(Some(ply)) = self.new_point_cloud(&path) else { return Ok(false) };
        self.sink.on(&Event::Saving { iteration: self.iteration, what: Saved::PointCloud })?;
        let written = self.write_both(path, ply, occasion);
        self.times.saving_seconds += started.elapsed().as_secs_f64();
        let [ply, checkpoint] = match written {
            Err(TrainError::Device(error)) if error.is_out_of_memory() => return Ok(false),
            written => written?,
        };
        self.settle(vec![ply])?;
        if checkpoint.result.as_ref().is_err_and(TrainError::lacks_space) {
            self.write_checkpoint(Occasion::Requested, WritingMode::AtOnce)?;
        } else {
            self.settle(vec![checkpoint])?;
        }
        Ok(true)
    }

    fn write_both(
        &mut self,
        path: PathBuf,
        ply: NewPly,
        occasion: Occasion,
    ) -> Result<[WrittenFile; 2], TrainError> {
        let iteration = self.iteration;
        let checkpoint = self.about_checkpoint(occasion);
        let beside = self.read_beside_rows()?;
        self.sink.on(&Event::Saving { iteration, what: Saved::Checkpoint })?;
        let (completes, ply_is_written) = Completion::new();
        let mut earlier = self.sink.written();
        earlier.push(ply_is_written);
        let keeper = Arc::clone(&self.keeper);
        let (to_ply, for_ply) = sync_channel(1);
        let (to_checkpoint, for_checkpoint) = sync_channel(1);
        let mut passed = PassedRows {
            rows: self.device.len(&self.model),
            shape: self.device.read_parameters(&mut self.model, 0..0)?,
            optional: self.device.optional(&self.model),
            chunks: for_checkpoint,
        };
        let beside = &beside;
        let [ply, checkpoint] = scope(|scope| {
            let ply = scope.spawn(move || {
                let _completes = completes;
                let triangles = beside.faces.as_ref().map_or(&[][..], |state| &state.faces);
                let rows = for_ply.into_iter().map(Ok);
                ply.write_triangles::<Gaussians, Gaussians, TrainError>(rows, triangles)?;
                Ok(Some(path))
            });
            let checkpoint = scope.spawn(move || {
                let keeper = keeper.lock().unwrap_or_else(PoisonError::into_inner);
                keeper.write_once(&checkpoint, &mut passed, beside, &earlier).map(Some)
            });
            let read = self.pass_rows(&to_ply, &to_checkpoint);
            // Closing the channels ends the waiting writers.
            drop((to_ply, to_checkpoint));
            let written = [ply, checkpoint].map(end);
            read.map(|()| written).map_err(TrainError::from)
        })?;
        Ok([
            WrittenFile { what: Saved::PointCloud, iteration, result: ply },
            WrittenFile { what: Saved::Checkpoint, iteration, result: checkpoint },
        ])
    }

    /// Reads the model and sends it to both writers. A writer that failed receives no more.
    fn pass_rows(
        &mut self,
        to_ply: &SyncSender<Gaussians>,
        to_checkpoint: &SyncSender<Snapshot<Gaussians>>,
    ) -> Result<(), DeviceError> {
        for rows in chunks(self.device.len(&self.model)) {
            let first = rows.start;
            let chunk = self.device.read(&mut self.model, rows)?;
            let mut parameters = chunk.parameters.clone();
            fuse(&mut parameters, &chunk.filter_3d);
            check_finite(&parameters, first)?;
            to_ply.send(parameters).ok();
            to_checkpoint.send(chunk).ok();
        }
        Ok(())
    }

    // Colour tables: from a checkpoint and to a checkpoint.

    /// Uploads the colour tables, if the run learns them: those of a checkpoint, or new ones.
    pub(super) fn begin_appearance(
        &mut self,
        stored: Option<EarlierTables<'_>>,
    ) -> Result<(), TrainError> {
        let kind = compensation(&self.setup.config.optimize);
        let lost = stored.is_some_and(|stored| Some(stored.tables.kind) != kind);
        if lost {
            self.warn(
                "what the checkpoint knows of the photographs' colours is left behind: it was \
                 trained with other options (--exposure, --bilateral-grid)",
            )?;
        }
        if let Some(kind) = kind {
            let views = self.feed.views.names(Split::Train);
            let tables = tables(kind, &views, stored);
            self.appearance = Some(self.device.upload_tables(&tables)?);
        }
        Ok(())
    }

    /// Reads the present tables. Returns an error if they are not finite.
    pub(super) fn read_appearance(&mut self) -> Result<Option<AppearanceTables>, TrainError> {
        let read = |tables| self.device.read_tables(tables);
        let tables = self.appearance.as_ref().map(read).transpose()?;
        tables.as_ref().map_or(Ok(()), check_tables)?;
        Ok(tables)
    }
}

/// True if the host has memory for `bytes` more than its peak so far.
pub(super) fn has_room(config: &Config, bytes: Bytes) -> bool {
    let Some((host, most)) = host_memory().zip(peak_resident_memory()) else { return false };
    most + bytes <= config.memory.host_limit.on(host.total)
}

/// Returns the keeper, unless it is writing a checkpoint.
fn lock_if_free(keeper: &Mutex<CheckpointKeeper>) -> Option<MutexGuard<'_, CheckpointKeeper>> {
    match keeper.try_lock() {
        Ok(keeper) => Some(keeper),
        Err(TryLockError::Poisoned(keeper)) => Some(keeper.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

// PLY and checkpoint of a run's last step. Nothing changes the model any more, so threads write both while it is
// read, and the host holds a few chunks instead of a copy.

/// Chunks of a model that the host holds at once: one being read, one waiting and one being written, and the
/// parameters of as many for the PLY.
const CHUNKS_HELD: u64 = 4;

/// Rows from another thread, each once and in order.
struct PassedRows {
    rows: usize,
    /// Empty model with the right widths.
    shape: Gaussians,
    optional: OptionalColumns,
    chunks: Receiver<Snapshot<Gaussians>>,
}

impl Rows<Gaussians> for PassedRows {
    type Error = DeviceError;

    fn len(&self) -> usize {
        self.rows
    }

    fn shape(&mut self) -> Result<Gaussians, DeviceError> {
        Ok(self.shape.clone())
    }

    fn optional(&self) -> OptionalColumns {
        self.optional
    }

    fn read(&mut self, rows: Range<usize>) -> Result<Snapshot<Gaussians>, DeviceError> {
        // The channel is closed only after a device error, which ends the run.
        self.chunks
            .recv()
            .map_err(|_none| DeviceError::NoSuchRow { row: rows.start, len: self.rows })
    }
}

fn end(thread: ScopedJoinHandle<'_, FileResult>) -> FileResult {
    thread.join().unwrap_or_else(|panic| resume_unwind(panic))
}
