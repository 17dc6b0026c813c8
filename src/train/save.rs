//! Writing of a device's model to files, chunk by chunk.

use std::ops::Range;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};

use super::TrainError;
use super::event::{Completion, Saved};
use crate::backend::{
    AppearanceTables, Compensation, DeviceError, Rows, Snapshot, Store, Window, chunks,
};
use crate::config::{Config, PrimitiveName};
use crate::export::{NewPly, PlyRows, PlyStyle, RenderMode, StoredWindow};
use crate::files::{OutputError, create_folder};
use crate::memory::Bytes;
use crate::memory::plan::OptionalColumns;
use crate::model::Primitive;

/// Model on a device.
pub struct DeviceModel<'a, P: Primitive, B: Store<P>> {
    /// Device of the model.
    pub device: &'a mut B,
    /// Handle of the model.
    pub model: &'a mut B::Model,
}

impl<P: Primitive, B: Store<P>> Rows<P> for DeviceModel<'_, P, B> {
    type Error = DeviceError;

    fn len(&self) -> usize {
        self.device.len(self.model)
    }

    fn shape(&mut self) -> Result<P, DeviceError> {
        self.device.read_parameters(self.model, 0..0)
    }

    fn optional(&self) -> OptionalColumns {
        self.device.optional(self.model)
    }

    fn read(&mut self, rows: Range<usize>) -> Result<Snapshot<P>, DeviceError> {
        self.device.read(self.model, rows)
    }
}

/// Returns the path of an iteration's PLY in a model folder.
pub fn point_cloud_path(model_path: &Path, iteration: u32) -> PathBuf {
    model_path.join(format!("point_cloud/iteration_{iteration}/point_cloud.ply"))
}

/// Returns the path of an iteration's PLY, in a new folder.
pub fn new_point_cloud(model_path: &Path, iteration: u32) -> Result<PathBuf, OutputError> {
    let path = point_cloud_path(model_path, iteration);
    path.parent().map(create_folder).transpose()?;
    Ok(path)
}

/// Returns the render mode that readers of a run's PLY should use.
pub fn render_mode(config: &Config) -> RenderMode {
    match config.optimize.primitive {
        PrimitiveName::Surfels => RenderMode::Surfels,
        PrimitiveName::Gaussians if config.optimize.antialiasing => RenderMode::Mip,
        // `triangle_mode` holds the details of triangles.
        PrimitiveName::Gaussians | PrimitiveName::Triangles => RenderMode::Dilated,
    }
}

/// Returns the render mode of `faces` triangles with this window.
pub fn triangle_mode(window: Window, faces: usize) -> RenderMode {
    let Window { exponent, opacity_floor, .. } = window;
    RenderMode::Triangles { window: StoredWindow { exponent, opacity_floor }, faces }
}

/// Reads parameters as they are rendered, with the 3D filter applied if the model has one.
pub(super) fn drawn_rows<P: PlyRows, B: Store<P>>(
    device: &mut B,
    model: &mut B::Model,
    rows: Range<usize>,
) -> Result<P, DeviceError> {
    let Some(filter) = P::FILTER.filter(|_| device.optional(model).filter_3d) else {
        return device.read_parameters(model, rows);
    };
    let Snapshot { mut parameters, filter_3d, .. } = device.read(model, rows)?;
    (filter.fuse)(&mut parameters, &filter_3d);
    Ok(parameters)
}

/// Writes a PLY of the parameters, with the 3D filter applied if the model has one, and the triangles. The host holds
/// one chunk.
pub fn write_point_cloud<P: PlyRows, B: Store<P>>(
    path: &Path,
    style: impl Into<PlyStyle>,
    device: &mut B,
    model: &mut B::Model,
    triangles: &[[u32; 3]],
) -> Result<(), TrainError> {
    let sh_degree = device.read_parameters(model, 0..0)?.sh_degree();
    let count = device.len(model);
    let parameters = chunks(count).map(|rows| {
        let first = rows.start;
        let parameters = drawn_rows(device, model, rows)?;
        check_finite(&parameters, first)?;
        Ok(parameters)
    });
    NewPly::begin(path, style, sh_degree, count)?
        .write_triangles::<P, _, TrainError>(parameters, triangles)
}

// Checks of saved values.

/// Returns an error with the first value that is not finite. `first`: index of the first row in its model. Training
/// only checks visible rows, but files hold all rows.
pub(super) fn check_finite<P: Primitive>(rows: &P, first: usize) -> Result<(), DeviceError> {
    for (group, column) in rows.groups().iter().zip(P::SCHEMA.columns) {
        check_values(group.values, (group.width, first), P::SCHEMA.one(), column.words)?;
    }
    Ok(())
}

/// Checks the values of a checkpoint's rows, except for density statistics.
pub(super) fn check_snapshot<P: Primitive>(
    rows: &Snapshot<P>,
    first: usize,
) -> Result<(), DeviceError> {
    for part in [&rows.parameters, &rows.first_moments, &rows.second_moments] {
        check_finite(part, first)?;
    }
    check_values(&rows.filter_3d, (1, first), P::SCHEMA.one(), "3D filter")
}

/// Checks the learned colour tables.
pub(super) fn check_tables(tables: &AppearanceTables) -> Result<(), DeviceError> {
    let group = match tables.kind {
        Compensation::Exposure => "exposure",
        Compensation::BilateralGrid => "bilateral grid",
    };
    for values in [&tables.values, &tables.first_moments, &tables.second_moments] {
        check_values(values, (tables.kind.width(), 0), "training view", group)?;
    }
    Ok(())
}

/// Checks rows of `width` values, the first of which has index `first`.
fn check_values(
    values: &[f32],
    (width, first): (usize, usize),
    primitive: &'static str,
    group: &'static str,
) -> Result<(), DeviceError> {
    let Some(at) = first_not_finite(values) else { return Ok(()) };
    let (index, value) = (first + at / width, f64::from(values[at]));
    Err(DeviceError::NotFinite { primitive, index, group, value })
}

/// Returns the position of the first value that is infinite or NaN.
fn first_not_finite(values: &[f32]) -> Option<usize> {
    // Without an early exit the inner loop is vectorised.
    let is_finite = |part: &[f32]| part.iter().fold(true, |all, value| all & value.is_finite());
    let part = values.chunks(4096).position(|part| !is_finite(part))?;
    let first = 4096 * part;
    values[first..].iter().position(|value| !value.is_finite()).map(|at| first + at)
}

// Files that threads write during training.

/// Path of a written file. `None` if it was left out.
pub(super) type FileResult = Result<Option<PathBuf>, TrainError>;

pub(super) struct WrittenFile {
    pub(super) what: Saved,
    /// Iteration of the model in the file.
    pub(super) iteration: u32,
    pub(super) result: FileResult,
}

/// File that is being written.
struct Writing {
    what: Saved,
    iteration: u32,
    /// Memory of the thread's copy of the model.
    copy: Bytes,
    over: Completion,
    thread: JoinHandle<FileResult>,
}

impl Writing {
    fn end(self) -> WrittenFile {
        let result = self.thread.join().unwrap_or_else(|panic| resume_unwind(panic));
        WrittenFile { what: self.what, iteration: self.iteration, result }
    }
}

/// Files that are being written. Dropping waits for them.
#[derive(Default)]
pub(super) struct BackgroundFiles {
    writing: Vec<Writing>,
}

impl BackgroundFiles {
    /// Starts a thread that writes a file and holds `copy` bytes. If no thread can start, writes at once and returns
    /// the outcome.
    pub(super) fn start(
        &mut self,
        what: Saved,
        iteration: u32,
        copy: Bytes,
        write: impl FnOnce() -> FileResult + Send + 'static,
    ) -> Option<WrittenFile> {
        let (completes, over) = Completion::new();
        // The closure is shared, because a thread that fails to start drops what it owns.
        let job = Arc::new(Mutex::new(Some(write)));
        let job_of_thread = Arc::clone(&job);
        let run = move || {
            let _completes = completes;
            take(&job_of_thread).map_or(Ok(None), |write| write())
        };
        if let Ok(thread) = Builder::new().name("files".to_owned()).spawn(run) {
            self.writing.push(Writing { what, iteration, copy, over, thread });
            return None;
        }
        let write = take(&job)?;
        Some(WrittenFile { what, iteration, result: write() })
    }

    /// Returns completions of the files that are being written.
    pub(super) fn written(&self) -> Vec<Completion> {
        self.writing.iter().map(|writing| writing.over.clone()).collect()
    }

    /// Returns the memory of the model that threads hold.
    pub(super) fn held(&self) -> Bytes {
        let unfinished = self.writing.iter().filter(|writing| !writing.thread.is_finished());
        unfinished.map(|writing| writing.copy).sum()
    }

    /// Returns the files that were completed since the last call.
    pub(super) fn take_written(&mut self) -> Vec<WrittenFile> {
        let done = self.writing.extract_if(.., |writing| writing.thread.is_finished());
        done.map(Writing::end).collect()
    }

    /// Waits for the files of a kind, or for all.
    pub(super) fn wait(&mut self, what: Option<Saved>) -> Vec<WrittenFile> {
        let wanted =
            self.writing.extract_if(.., |writing| what.is_none_or(|what| writing.what == what));
        wanted.map(Writing::end).collect()
    }
}

impl Drop for BackgroundFiles {
    fn drop(&mut self) {
        for writing in self.writing.drain(..) {
            // The run has already ended with an error.
            writing.thread.join().ok();
        }
    }
}

fn take<T>(job: &Mutex<Option<T>>) -> Option<T> {
    job.lock().unwrap_or_else(PoisonError::into_inner).take()
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;
    use crate::model::Gaussians;

    #[test]
    fn the_first_value_that_is_not_finite_is_named() {
        let mut rows = Gaussians::zeros(1, 5);
        check_finite(&rows, 0).unwrap();
        rows.log_scales[3 * 4 + 1] = f32::INFINITY;
        rows.sh_rest[7] = f32::NAN;
        let error = check_finite(&rows, 100).unwrap_err().to_string();
        assert!(error.contains("104") && error.contains("inf"), "{error}");
    }

    #[test]
    fn files_are_reported_when_they_are_written() {
        let mut files = BackgroundFiles::default();
        let (go, wait) = channel::<()>();
        let slow = move || {
            wait.recv().ok();
            Ok(Some(PathBuf::from("a")))
        };
        assert!(files.start(Saved::Checkpoint, 7, Bytes(3), slow).is_none());
        assert!(files.start(Saved::PointCloud, 8, Bytes(1), || Ok(None)).is_none());
        let first = files.wait(Some(Saved::PointCloud));
        assert_eq!((first.len(), first[0].iteration), (1, 8));
        assert!(files.take_written().is_empty());
        assert_eq!(files.held(), Bytes(3));
        let over = files.written();
        go.send(()).unwrap();
        over.iter().for_each(Completion::wait);
        let second = files.wait(None);
        assert_eq!((second.len(), second[0].iteration), (1, 7));
        assert!(matches!(&second[0].result, Ok(Some(path)) if path.ends_with("a")));
        assert!(files.wait(None).is_empty() && files.held() == Bytes(0));
    }
}
