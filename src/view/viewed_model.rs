//! A model folder and what can be asked of it.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

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
use crate::dataset::points_ply::PointsPlyError;
use crate::files::{LockState, OutputError, create_folder, lock_state, write_text};
use crate::train::event::ControlAction;
use crate::train::live::{ControlRequest, LiveFolder};

/// Files are looked at again after this.
const FRESH: Duration = Duration::from_millis(250);

/// What is known of a model before anybody looks.
#[derive(Clone, Debug)]
pub struct ViewedSource {
    /// The model folder.
    pub model_path: PathBuf,
    /// What the page is called.
    pub title: String,
    /// What the model is made of.
    pub primitive: PrimitiveName,
    /// It is drawn with the filters of Mip-Splatting.
    pub antialiased: bool,
    /// Highest degree of harmonics.
    pub sh_degree: u32,
    /// Coordinates of everything on the page: those of the training.
    pub frame: Frame,
    /// Its cameras.
    pub cameras: KnownCameras,
    /// The photographs of these, where the scene is there.
    pub photographs: ShownPhotographs,
    /// Runs may be asked to pause, to write a checkpoint and to stop.
    pub accepts_control: bool,
    /// The command that continues a run that ended early.
    pub resume: String,
}

/// What a page is at, in the words of its JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum ShownState {
    None,
    Running,
    Paused,
    Finished,
    Interrupted,
    Ended,
}

/// The JSON of `/api/run`.
#[derive(Debug, Serialize)]
struct RunPage {
    state: ShownState,
    message: String,
    skipped_lines: usize,
    splats: Option<Generation>,
    control: bool,
    #[serde(flatten)]
    page: EventPage,
    events: Vec<Box<RawValue>>,
}

/// Why something is not given.
#[derive(Debug, thiserror::Error)]
pub(super) enum ViewError {
    /// There is no such thing, or no more.
    #[error("{0}")]
    Missing(String),
    /// It cannot be done now.
    #[error("{0}")]
    Conflict(String),
    /// It must not be done.
    #[error("{0}")]
    Forbidden(String),
    /// It is there and cannot be read, or written.
    #[error("{0}")]
    Failed(String),
}

/// What changes while a page is open.
#[derive(Debug)]
struct Followed {
    events: RunEvents,
    splats: ShownSplats,
    watching: Watching,
    /// Lock of a run that goes on.
    lock: LockState,
    /// It was said that the run cannot be told that somebody looks.
    has_complained: bool,
    refreshed: Option<Instant>,
}

/// A model folder that is looked at. Any number of pages may ask at once.
#[derive(Debug)]
pub struct ViewedModel {
    source: ViewedSource,
    followed: Mutex<Followed>,
    asked: AtomicU64,
}

impl ViewedModel {
    /// A model whose folder is there.
    pub fn new(source: ViewedSource) -> Self {
        let followed = Mutex::new(Followed {
            events: RunEvents::of_log(source.model_path.join("run.jsonl")),
            splats: ShownSplats::new(source.frame),
            watching: Watching::of(&source.model_path),
            lock: LockState::Free,
            has_complained: false,
            refreshed: None,
        });
        Self { source, followed, asked: AtomicU64::new(0) }
    }

    fn path(&self) -> &Path {
        &self.source.model_path
    }

    fn followed(&self) -> MutexGuard<'_, Followed> {
        self.followed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What changes, as it is now.
    fn refreshed(&self) -> Result<MutexGuard<'_, Followed>, ViewError> {
        let mut followed = self.followed();
        if followed.refreshed.is_some_and(|at| at.elapsed() < FRESH) {
            return Ok(followed);
        }
        let Followed { events, splats, watching, lock, refreshed, .. } = &mut *followed;
        *lock = lock_state(self.path());
        if *lock == LockState::Free {
            // A page may have told a run that somebody looks just when that ended, or was killed.
            watching.folder().remove();
        }
        events.refresh().map_err(|error| {
            let log = self.path().join("run.jsonl");
            ViewError::Failed(format!("{}: cannot be read: {error}", log.display()))
        })?;
        let done = (*lock == LockState::Held).then(|| events.iteration());
        splats.refresh(self.path(), watching.folder(), done);
        *refreshed = Some(Instant::now());
        Ok(followed)
    }

    /// `/api/scene`.
    pub(super) fn scene(&self) -> Result<String, ViewError> {
        let ViewedSource { title, cameras: KnownCameras { cameras, held_out }, .. } = &self.source;
        let points =
            points_of(self.path(), &self.source.frame).unwrap_or_else(|error: PointsPlyError| {
                tracing::warn!("{error}. The page has no points");
                None
            });
        let points = points.map_or_else(Vec::new, |points| points.positions);
        let (center, radius) = extent_of(&points, cameras);
        let mut viewed: Vec<ViewedCamera> = cameras
            .iter()
            .enumerate()
            .map(|(index, camera)| ViewedCamera {
                camera: camera.clone(),
                has_photo: self.source.photographs.has(index),
                psnr: None,
            })
            .collect();
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

    /// `/api/run`: what the run is at and its events from a number on. A run hears that somebody looks.
    pub(super) fn run(&self, from: usize) -> Result<String, ViewError> {
        let mut followed = self.refreshed()?;
        let state = followed.state();
        // A run that has logged its end holds the lock for a while, and removes nothing any more.
        if followed.obeys()
            && let Err(error) = followed.watching.tell()
            && !std::mem::replace(&mut followed.has_complained, true)
        {
            tracing::warn!("{error}. The run writes no Gaussians for the page");
        }
        let mut page = followed.events.from(from);
        let lines = std::mem::take(&mut page.lines);
        let events: Result<Vec<_>, _> = lines.into_iter().map(RawValue::from_string).collect();
        json(&RunPage {
            state,
            message: self.message(state, followed.events.iteration()),
            skipped_lines: followed.events.skipped(),
            splats: followed.splats.newest(),
            control: followed.obeys() && self.source.accepts_control,
            page,
            events: events.map_err(|error| ViewError::Failed(error.to_string()))?,
        })
    }

    fn message(&self, state: ShownState, iteration: u32) -> String {
        let resume = &self.source.resume;
        match state {
            ShownState::None => "No run has written into this folder yet.".to_owned(),
            ShownState::Running | ShownState::Paused | ShownState::Finished => String::new(),
            ShownState::Interrupted => {
                format!(
                    "The run was stopped after iteration {iteration}. Continue it with: {resume}"
                )
            }
            ShownState::Ended if self.path().join("checkpoints").is_dir() => format!(
                "The run ended without a word after iteration {iteration} or later. Continue it from its \
                 last checkpoint with: {resume}"
            ),
            ShownState::Ended => format!(
                "The run ended without a word after iteration {iteration} or later, before its first \
                 checkpoint: start it again"
            ),
        }
    }

    /// Packs the newest Gaussians, so that the first page does not wait for them.
    pub(super) fn prepare(&self) {
        let job = self.refreshed().ok().and_then(|followed| {
            let newest = followed.splats.newest()?;
            followed.splats.job(newest.generation).ok()
        });
        // Whoever asks hears what is wrong with them.
        job.map(|job| job.spz().ok());
    }

    /// `/api/splats/G`, SPZ.
    pub(super) fn splats(&self, generation: u64) -> Result<Bytes, ViewError> {
        // Packing may take long, and others want to know of the run.
        let job = self.refreshed()?.splats.job(generation);
        job.and_then(|job| job.spz()).map_err(|error| match error {
            SplatsError::Replaced => ViewError::Missing(error.to_string()),
            SplatsError::Unreadable(why) => ViewError::Failed(why),
        })
    }

    /// `/api/points`.
    pub(super) fn points(&self) -> Result<Vec<u8>, ViewError> {
        match points_of(self.path(), &self.source.frame) {
            Ok(Some(points)) => Ok(packed(&points)),
            Ok(None) => Err(ViewError::Missing("the model folder has no input.ply".to_owned())),
            Err(error) => Err(ViewError::Failed(error.to_string())),
        }
    }

    /// `/api/mesh/K`, glTF.
    pub(super) fn mesh(&self, index: usize) -> Result<Vec<u8>, ViewError> {
        let mesh = meshes_of(self.path()).into_iter().nth(index);
        let mesh = mesh.ok_or_else(|| ViewError::Missing("there is no such mesh".to_owned()))?;
        mesh.glb(&self.source.cameras.cameras, &self.source.frame).map_err(ViewError::Failed)
    }

    /// `/api/photo/I`, JPEG.
    pub(super) fn photo(&self, index: usize, width: u32) -> Result<Vec<u8>, ViewError> {
        self.source.photographs.jpeg(index, width).map_err(|error| match error {
            PhotographError::Missing => ViewError::Missing(error.to_string()),
            other => ViewError::Failed(other.to_string()),
        })
    }

    /// `/api/control`: asks the run for something; the name of the request.
    pub(super) fn control(&self, action: ControlAction) -> Result<String, ViewError> {
        if !self.source.accepts_control {
            return Err(ViewError::Forbidden(
                "this page may only look: the command was started with --read-only, or the run with \
                 --live-control=false"
                    .to_owned(),
            ));
        }
        // One that starts would not see it.
        if !self.refreshed()?.obeys() {
            return Err(ViewError::Conflict("no run trains in this folder now".to_owned()));
        }
        // Unlike those of an earlier start of this program.
        let since = SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let since = since.map_or(0, |since| since.as_millis());
        let id = format!("{since:015}-{:06}", self.asked.fetch_add(1, Ordering::Relaxed));
        let asked = self.followed().watching.ask(&id, action);
        asked.map_err(|error: OutputError| ViewError::Failed(error.to_string()))?;
        json(&serde_json::json!({ "id": id }))
    }
}

impl Followed {
    fn state(&self) -> ShownState {
        match (self.lock, self.events.state()) {
            (LockState::Held, LoggedState::Paused) => ShownState::Paused,
            (LockState::Held, _) => ShownState::Running,
            // Without locks, the log has the last word, and nobody is told to start a second run.
            (LockState::Unknown, LoggedState::Begun) => ShownState::Running,
            (LockState::Unknown, LoggedState::Paused) => ShownState::Paused,
            (_, LoggedState::None) => ShownState::None,
            (_, LoggedState::Begun | LoggedState::Paused) => ShownState::Ended,
            (_, LoggedState::Finished) => ShownState::Finished,
            (_, LoggedState::Interrupted) => ShownState::Interrupted,
        }
    }

    /// True if a run trains that looks for what it is asked.
    fn obeys(&self) -> bool {
        let trains = matches!(self.events.state(), LoggedState::Begun | LoggedState::Paused);
        self.lock != LockState::Free && trains
    }
}

fn json(value: &impl Serialize) -> Result<String, ViewError> {
    serde_json::to_string(value).map_err(|error| ViewError::Failed(error.to_string()))
}

// Says to a run that somebody looks at its page, and what they ask for.

/// While somebody looks, the run hears of it this often.
const BETWEEN: Duration = Duration::from_secs(2);

/// The page's side of a run's folder, which need not be there.
#[derive(Debug)]
pub(super) struct Watching {
    folder: LiveFolder,
    told: Option<Instant>,
}

impl Watching {
    pub(super) fn of(model_path: &Path) -> Self {
        Self { folder: LiveFolder::of(model_path), told: None }
    }

    pub(super) fn folder(&self) -> &LiveFolder {
        &self.folder
    }

    /// Says that somebody looks.
    pub(super) fn tell(&mut self) -> Result<(), OutputError> {
        if self.told.is_some_and(|at| at.elapsed() < BETWEEN) {
            return Ok(());
        }
        self.told = Some(Instant::now());
        self.open()?;
        let path = self.folder.watch();
        touch(&path).map_err(|source| OutputError::new(&path, source))
    }

    /// Makes the folder. A link in its place is not followed.
    fn open(&self) -> Result<(), OutputError> {
        create_folder(self.folder.path())?;
        if self.folder.is_there() {
            return Ok(());
        }
        let why = "it is a link, and must be a folder of the model folder itself: remove it";
        Err(OutputError::new(self.folder.path(), io::Error::other(why)))
    }

    /// Asks for something, after what was asked for before.
    pub(super) fn ask(&self, id: &str, action: ControlAction) -> Result<(), OutputError> {
        self.open()?;
        let path = self.folder.control(id);
        let text = serde_json::to_string(&ControlRequest { id: id.to_owned(), action });
        let text = text.map_err(|error| OutputError::new(&path, io::Error::other(error)))?;
        write_text(&path, &text)
    }
}

/// Makes a file, or makes it young. What a link leads to is not touched.
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
    fn a_run_is_told_that_somebody_looks_and_what_is_wanted() {
        let model = tempfile::tempdir().unwrap();
        let mut watching = Watching::of(model.path());
        watching.tell().unwrap();
        let touched = fs::metadata(watching.folder().watch()).unwrap().modified().unwrap();
        let age = touched.elapsed().unwrap();
        assert!(age < Duration::from_secs(2), "{age:?}");
        watching.ask("80", ControlAction::Pause).unwrap();
        watching.ask("7f", ControlAction::Checkpoint).unwrap();
        let asked = watching.folder().requests();
        let texts = asked.iter().map(|path| fs::read_to_string(path).unwrap());
        let expected = [r#"{"id":"7f","action":"checkpoint"}"#, r#"{"id":"80","action":"pause"}"#];
        assert_eq!(texts.collect::<Vec<_>>(), expected);
    }
}
