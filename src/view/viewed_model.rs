//! A model folder and the requests that a page makes of it.

use std::error::Error;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use hyper::StatusCode;
use hyper::body::Bytes;
use serde::Serialize;
use serde_json::value::RawValue;

use super::run_events::{EventPage, LoggedState, RunEvents};
use super::scene_facts::{
    KnownCameras, PhotographError, SceneFacts, ShownPhotographs, UP, ViewedCamera, extent_of,
    measured, meshes_of, packed, points_of,
};
use super::shown_splats::{Generation, ShownSplats, SplatsError};
use crate::config::PrimitiveName;
use crate::dataset::Frame;
use crate::files::{LockState, OutputError, create_folder, lock_state, write_text};
use crate::train::event::ControlAction;
use crate::train::live::{ControlRequest, LiveFolder};

const REFRESH_INTERVAL: Duration = Duration::from_millis(250);

/// Facts of a model that do not change.
#[derive(Clone, Debug)]
pub struct ViewedSource {
    /// The model folder.
    pub model_path: PathBuf,
    /// Title of the page.
    pub title: String,
    /// Primitive of the model.
    pub primitive: PrimitiveName,
    /// True if the model is drawn with the filters of Mip-Splatting.
    pub antialiased: bool,
    /// Highest degree of harmonics.
    pub sh_degree: u32,
    /// Coordinates of everything on the page: the training's.
    pub frame: Frame,
    /// The cameras.
    pub cameras: KnownCameras,
    /// Photographs of the cameras, if the scene is available.
    pub photographs: ShownPhotographs,
    /// True if the page may pause and stop runs and request checkpoints.
    pub accepts_control: bool,
    /// Command that continues a run that ended early.
    pub resume: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum RunState {
    None,
    Running,
    Paused,
    Finished,
    Interrupted,
    Ended,
}

#[derive(Debug, Serialize)]
struct RunPage {
    state: RunState,
    message: String,
    skipped_lines: usize,
    splats: Option<Generation>,
    control: bool,
    #[serde(flatten)]
    page: EventPage,
    events: Vec<Box<RawValue>>,
}

/// The status and the reason of a refused request.
pub(super) type Refusal = (StatusCode, String);

#[derive(Debug)]
struct FolderState {
    events: RunEvents,
    splats: ShownSplats,
    signal: PageSignal,
    lock: LockState,
    /// True if the warning about an unreachable run was printed.
    has_warned: bool,
    refreshed: Option<Instant>,
}

/// A model folder that pages show. Any number of pages may send requests at once.
#[derive(Debug)]
pub struct ViewedModel {
    source: ViewedSource,
    folder_state: Mutex<FolderState>,
    request_count: AtomicU64,
}

impl ViewedModel {
    /// Creates a model of an existing folder.
    pub fn new(source: ViewedSource) -> Self {
        let folder_state = Mutex::new(FolderState {
            events: RunEvents::of_log(source.model_path.join("run.jsonl")),
            splats: ShownSplats::new(source.frame),
            signal: PageSignal::of(&source.model_path),
            lock: LockState::Free,
            has_warned: false,
            refreshed: None,
        });
        Self { source, folder_state, request_count: AtomicU64::new(0) }
    }

    fn path(&self) -> &Path {
        &self.source.model_path
    }

    fn folder_state(&self) -> MutexGuard<'_, FolderState> {
        self.folder_state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the current state. Reads the files if the last check is too old.
    fn refreshed(&self) -> Result<MutexGuard<'_, FolderState>, Refusal> {
        let mut folder_state = self.folder_state();
        if folder_state.refreshed.is_some_and(|at| at.elapsed() < REFRESH_INTERVAL) {
            return Ok(folder_state);
        }
        let FolderState { events, splats, signal, lock, refreshed, .. } = &mut *folder_state;
        *lock = lock_state(self.path());
        if *lock == LockState::Free {
            // A signal may remain if the run has ended or was killed.
            signal.folder.remove();
        }
        events.refresh().map_err(|error| {
            let log = self.path().join("run.jsonl");
            failed(format!("{}: cannot be read: {error}", log.display()))
        })?;
        let done = (*lock == LockState::Held).then_some(events.iteration);
        splats.refresh(self.path(), &signal.folder, done);
        *refreshed = Some(Instant::now());
        Ok(folder_state)
    }

    /// Answers `/api/scene`.
    pub(super) fn scene(&self) -> Result<String, Refusal> {
        let ViewedSource { title, cameras: KnownCameras { cameras, held_out }, .. } = &self.source;
        let points = points_of(self.path(), &self.source.frame).unwrap_or_else(|error| {
            tracing::warn!("{error}. The page has no points");
            None
        });
        let points = points.map_or_else(Vec::new, |points| points.positions);
        let (center, radius) = extent_of(&points, cameras);
        let viewed = cameras.iter().enumerate().map(|(index, camera)| ViewedCamera {
            camera: camera.clone(),
            has_photo: self.source.photographs.has(index),
            psnr: None,
        });
        let mut viewed: Vec<ViewedCamera> = viewed.collect();
        for (number, psnr) in measured(self.path()) {
            if let Some(&index) = held_out.get(number) {
                viewed[index].psnr = Some(psnr);
            }
        }
        json(&SceneFacts {
            title,
            primitive: self.source.primitive,
            antialiased: self.source.antialiased,
            sh_degree: self.source.sh_degree,
            center,
            radius,
            up: UP,
            cameras: viewed,
            points: points.len(),
            meshes: meshes_of(self.path()),
            read_only: !self.source.accepts_control,
        })
    }

    /// Answers `/api/run`: the state of the run and its events from a number on. Signals to the run that a page is
    /// open.
    pub(super) fn run(&self, from: usize) -> Result<String, Refusal> {
        let mut folder_state = self.refreshed()?;
        let state = folder_state.state();
        // A finished run holds the lock for a while and no longer removes signals.
        if folder_state.is_controllable()
            && let Err(error) = folder_state.signal.send()
            && !std::mem::replace(&mut folder_state.has_warned, true)
        {
            tracing::warn!("{error}. The run writes no Gaussians for the page");
        }
        let mut page = folder_state.events.from(from);
        let lines = std::mem::take(&mut page.lines);
        let events: Result<Vec<_>, _> = lines.into_iter().map(RawValue::from_string).collect();
        json(&RunPage {
            state,
            message: self.message(state, folder_state.events.iteration),
            skipped_lines: folder_state.events.skipped,
            splats: folder_state.splats.newest(),
            control: folder_state.is_controllable() && self.source.accepts_control,
            page,
            events: events.map_err(failed)?,
        })
    }

    fn message(&self, state: RunState, iteration: u32) -> String {
        let resume = &self.source.resume;
        match state {
            RunState::None => "No run has written into this folder yet.".to_owned(),
            RunState::Running | RunState::Paused | RunState::Finished => String::new(),
            RunState::Interrupted => format!(
                "The run was stopped after iteration {iteration}. Continue it with: {resume}"
            ),
            RunState::Ended if self.path().join("checkpoints").is_dir() => format!(
                "The run ended without a word after iteration {iteration} or later. Continue it from its \
                 last checkpoint with: {resume}"
            ),
            RunState::Ended => format!(
                "The run ended without a word after iteration {iteration} or later, before its first \
                 checkpoint: start it again"
            ),
        }
    }

    /// Packs the newest Gaussians before the first page asks for them.
    pub(super) fn prepare(&self) {
        let job = self.refreshed().ok().and_then(|folder_state| {
            let newest = folder_state.splats.newest()?;
            folder_state.splats.job(newest.generation).ok()
        });
        // A request for the Gaussians reports the error.
        job.map(|job| job.spz().ok());
    }

    /// Answers `/api/splats/G` with SPZ.
    pub(super) fn splats(&self, generation: u64) -> Result<Bytes, Refusal> {
        // Packing may take long; other requests need the lock.
        let job = self.refreshed()?.splats.job(generation);
        job.and_then(|job| job.spz()).map_err(|error| match error {
            SplatsError::Replaced => (StatusCode::NOT_FOUND, error.to_string()),
            SplatsError::Unreadable(why) => failed(why),
        })
    }

    /// Answers `/api/points`.
    pub(super) fn points(&self) -> Result<Vec<u8>, Refusal> {
        match points_of(self.path(), &self.source.frame) {
            Ok(Some(points)) => Ok(packed(&points)),
            Ok(None) => {
                Err((StatusCode::NOT_FOUND, "the model folder has no input.ply".to_owned()))
            }
            Err(error) => Err(failed(error)),
        }
    }

    /// Answers `/api/mesh/K` with glTF.
    pub(super) fn mesh(&self, index: usize) -> Result<Vec<u8>, Refusal> {
        let mesh = meshes_of(self.path()).into_iter().nth(index);
        let missing = || (StatusCode::NOT_FOUND, "there is no such mesh".to_owned());
        let mesh = mesh.ok_or_else(missing)?;
        mesh.glb(&self.source.cameras.cameras, &self.source.frame).map_err(failed)
    }

    /// Answers `/api/photo/I` with JPEG.
    pub(super) fn photo(&self, index: usize, width: u32) -> Result<Vec<u8>, Refusal> {
        self.source.photographs.jpeg(index, width).map_err(|error| match error {
            PhotographError::Missing => (StatusCode::NOT_FOUND, error.to_string()),
            other => failed(other),
        })
    }

    /// Answers `/api/control`: sends a command to the run and returns the name of the request.
    pub(super) fn control(&self, action: ControlAction) -> Result<String, Refusal> {
        if !self.source.accepts_control {
            let why = "this page may only look: the command was started with --read-only, or the run \
                       with --live-control=false";
            return Err((StatusCode::FORBIDDEN, why.to_owned()));
        }
        // A run that is starting would not see the command.
        if !self.refreshed()?.is_controllable() {
            return Err((StatusCode::CONFLICT, "no run trains in this folder now".to_owned()));
        }
        // Differs from the names of an earlier server.
        let since = SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let since = since.map_or(0, |since| since.as_millis());
        let id = format!("{since:015}-{:06}", self.request_count.fetch_add(1, Ordering::Relaxed));
        self.folder_state().signal.ask(&id, action).map_err(failed)?;
        json(&serde_json::json!({ "id": id }))
    }
}

impl FolderState {
    fn state(&self) -> RunState {
        match (self.lock, self.events.state) {
            (LockState::Held, LoggedState::Paused) => RunState::Paused,
            (LockState::Held, _) => RunState::Running,
            // Without locks the log decides, so that nobody is told to start a second run.
            (LockState::Unknown, LoggedState::Begun) => RunState::Running,
            (LockState::Unknown, LoggedState::Paused) => RunState::Paused,
            (_, LoggedState::None) => RunState::None,
            (_, LoggedState::Begun | LoggedState::Paused) => RunState::Ended,
            (_, LoggedState::Finished) => RunState::Finished,
            (_, LoggedState::Interrupted) => RunState::Interrupted,
        }
    }

    fn is_controllable(&self) -> bool {
        let trains = matches!(self.events.state, LoggedState::Begun | LoggedState::Paused);
        self.lock != LockState::Free && trains
    }
}

fn failed(error: impl Into<Box<dyn Error>>) -> Refusal {
    (StatusCode::SERVICE_UNAVAILABLE, error.into().to_string())
}

fn json(value: &impl Serialize) -> Result<String, Refusal> {
    serde_json::to_string(value).map_err(failed)
}

// Signals to a run that a page is open, and sends its commands.

const SIGNAL_INTERVAL: Duration = Duration::from_secs(2);

/// The page's access to a run's live folder, which need not exist.
#[derive(Debug)]
struct PageSignal {
    folder: LiveFolder,
    sent: Option<Instant>,
}

impl PageSignal {
    fn of(model_path: &Path) -> Self {
        Self { folder: LiveFolder::of(model_path), sent: None }
    }

    /// Signals that a page is open.
    fn send(&mut self) -> Result<(), OutputError> {
        if self.sent.is_some_and(|at| at.elapsed() < SIGNAL_INTERVAL) {
            return Ok(());
        }
        self.sent = Some(Instant::now());
        self.open()?;
        let path = self.folder.watch();
        touch(&path).map_err(|source| OutputError::new(&path, source))
    }

    /// Creates the folder. Fails if a link is in its place.
    fn open(&self) -> Result<(), OutputError> {
        create_folder(self.folder.path())?;
        if self.folder.is_there() {
            return Ok(());
        }
        let why = "it is a link, and must be a folder of the model folder itself: remove it";
        Err(OutputError::new(self.folder.path(), io::Error::other(why)))
    }

    /// Sends a command. Commands are ordered by `id`.
    fn ask(&self, id: &str, action: ControlAction) -> Result<(), OutputError> {
        self.open()?;
        let path = self.folder.control(id);
        let text = serde_json::to_string(&ControlRequest { id: id.to_owned(), action });
        let text = text.map_err(|error| OutputError::new(&path, io::Error::other(error)))?;
        write_text(&path, &text)
    }
}

/// Creates a file or updates its time. Does not follow links.
fn touch(path: &Path) -> io::Result<()> {
    if fs::symlink_metadata(path).is_ok_and(|about| !about.is_file()) {
        return Err(io::Error::other("it is no file: remove it"));
    }
    let file = File::options().create(true).truncate(false).write(true).open(path)?;
    file.set_modified(SystemTime::now())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_and_commands_reach_the_run() {
        let model = tempfile::tempdir().unwrap();
        let mut signal = PageSignal::of(model.path());
        signal.send().unwrap();
        let touched = fs::metadata(signal.folder.watch()).unwrap().modified().unwrap();
        let age = touched.elapsed().unwrap();
        assert!(age < Duration::from_secs(2), "{age:?}");
        signal.ask("80", ControlAction::Pause).unwrap();
        signal.ask("7f", ControlAction::Checkpoint).unwrap();
        let requests = signal.folder.requests();
        let texts = requests.iter().map(|path| fs::read_to_string(path).unwrap());
        let expected = [r#"{"id":"7f","action":"checkpoint"}"#, r#"{"id":"80","action":"pause"}"#];
        assert_eq!(texts.collect::<Vec<_>>(), expected);
    }
}
