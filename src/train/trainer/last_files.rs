//! The PLY and the checkpoint of a run's last step. Nothing changes the model any more, so threads write
//! both while it is read: the host holds a few chunks of it, and no copy.

use std::ops::Range;
use std::panic::resume_unwind;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, PoisonError};
use std::thread::{ScopedJoinHandle, scope};
use std::time::Instant;

use super::Trainer;
use super::saving::has_room;
use crate::backend::{CHUNK_ROWS, DeviceError, Rows, Snapshot, TrainDevice, chunks};
use crate::export::NewPly;
use crate::memory::Bytes;
use crate::memory::plan::OptionalColumns;
use crate::model::{Gaussians, fuse};
use crate::train::TrainError;
use crate::train::background_files::{FileResult, WrittenFile};
use crate::train::checkpoint::{Occasion, row_bytes};
use crate::train::event::{Completion, Event, Saved};
use crate::train::finite::check_finite;

/// Chunks of a model that the host holds at once: one that is read, one that waits and one that is
/// written, and the parameters of as many for the PLY.
const CHUNKS_HELD: u64 = 4;

impl<B: TrainDevice> Trainer<'_, B> {
    /// Writes both files; false where that takes memory or space that is not there, or a file system that
    /// keeps no room for a file.
    pub(super) fn write_last_files(&mut self, occasion: Occasion) -> Result<bool, TrainError> {
        if !has_room(self.setup.config, self.bytes_of_chunks()) {
            return Ok(false);
        }
        self.wait_for_files(None)?;
        let started = Instant::now();
        // What fails here fails again where there is an answer to it.
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
        if lacks_space(&checkpoint.result) {
            self.write_checkpoint_now()?;
        } else {
            self.settle(vec![checkpoint])?;
        }
        Ok(true)
    }

    fn bytes_of_chunks(&self) -> Bytes {
        let sh_degree = self.setup.config.optimize.sh_degree;
        let row = row_bytes::<Gaussians>(sh_degree, self.device.optional(&self.model)) as u64;
        Bytes(CHUNKS_HELD * row * CHUNK_ROWS.min(self.device.len(&self.model)) as u64)
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
            // What waits for more ends.
            drop((to_ply, to_checkpoint));
            let written = [ply, checkpoint].map(end);
            read.map(|()| written).map_err(TrainError::from)
        })?;
        Ok([
            WrittenFile { what: Saved::PointCloud, iteration, result: ply },
            WrittenFile { what: Saved::Checkpoint, iteration, result: checkpoint },
        ])
    }

    /// Reads the model for those who write it. One who failed takes no more of it.
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
}

/// Rows that come from another thread, each once and in their order.
struct PassedRows {
    rows: usize,
    /// No rows, but of the widths that these have.
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
        // None comes after an error of the device, which ends the run.
        self.chunks
            .recv()
            .map_err(|_none| DeviceError::NoSuchRow { row: rows.start, len: self.rows })
    }
}

fn end(thread: ScopedJoinHandle<'_, FileResult>) -> FileResult {
    thread.join().unwrap_or_else(|panic| resume_unwind(panic))
}

fn lacks_space(result: &FileResult) -> bool {
    matches!(result, Err(TrainError::Output(error)) if error.is_for_space())
}
