//! The Gaussians that a page shows: the newest of the model folder, packed.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use hyper::body::Bytes;
use serde::Serialize;
use splat_formats::{ScenePlacement, SpzOptions, pack_spz, parse_spz, read};

use super::scene_facts::newest_ply;
use crate::config::PrimitiveName;
use crate::dataset::Frame;
use crate::export::{frame_of_file, read_ply_primitive};
use crate::train::live::LiveFolder;

/// Version of the Gaussians that a page shows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Generation {
    /// Number that grows with each newer file.
    pub(super) generation: u64,
    pub(super) iteration: u32,
    pub(super) bytes: u64,
    /// True if a run wrote the file for the page, possibly without faint Gaussians.
    pub(super) live: bool,
}

/// State of a file of Gaussians at the last check.
#[derive(Clone, Debug, PartialEq, Eq)]
struct SplatsFile {
    path: PathBuf,
    iteration: u32,
    live: bool,
    bytes: u64,
    modified: Option<SystemTime>,
}

#[derive(Clone, Debug, thiserror::Error)]
pub(super) enum SplatsError {
    #[error("these Gaussians have been replaced by newer ones")]
    Replaced,
    #[error("{0}")]
    Unreadable(String),
}

#[derive(Debug, Default)]
pub(super) struct ShownSplats {
    seen: Option<SplatsFile>,
    generation: u64,
    /// The file as SPZ, after the first request.
    packed: Arc<Mutex<Option<Packed>>>,
    /// Coordinates of the page, and of live splats.
    frame: Frame,
}

type Packed = Result<Bytes, SplatsError>;

/// Gaussians to be packed, which may take seconds.
#[derive(Debug)]
pub(super) struct PackingJob {
    file: SplatsFile,
    packed: Arc<Mutex<Option<Packed>>>,
    frame: Frame,
}

impl ShownSplats {
    pub(super) fn new(frame: Frame) -> Self {
        Self { frame, ..Self::default() }
    }

    /// Looks for newer Gaussians. An active run has done `done` iterations; files of later iterations are from an
    /// earlier run.
    pub(super) fn refresh(&mut self, model_path: &Path, live: &LiveFolder, done: Option<u32>) {
        let saved = newest_ply(model_path, done)
            .and_then(|(iteration, ply)| SplatsFile::of(iteration, ply, false));
        let live =
            live.newest_splats().and_then(|(iteration, spz)| SplatsFile::of(iteration, spz, true));
        // For equal iterations the last one wins: the PLY, which has all Gaussians.
        let newest = [live, saved].into_iter().flatten().max_by_key(|file| file.iteration);
        if newest == self.seen {
            return;
        }
        self.packed = Arc::default();
        self.generation += 1;
        self.seen = newest;
    }

    /// Returns the newest Gaussians; `None` for a model of triangles.
    pub(super) fn newest(&self) -> Option<Generation> {
        let SplatsFile { iteration, bytes, live, .. } = *self.seen.as_ref()?;
        Some(Generation { generation: self.generation, iteration, bytes, live })
    }

    pub(super) fn job(&self, generation: u64) -> Result<PackingJob, SplatsError> {
        let seen = self.seen.clone().filter(|_| generation == self.generation);
        let file = seen.ok_or(SplatsError::Replaced)?;
        Ok(PackingJob { file, packed: Arc::clone(&self.packed), frame: self.frame })
    }
}

impl PackingJob {
    /// Returns the SPZ. The first caller packs it while others wait.
    pub(super) fn spz(&self) -> Result<Bytes, SplatsError> {
        let mut packed = self.packed.lock().unwrap_or_else(PoisonError::into_inner);
        packed.get_or_insert_with(|| self.file.spz(&self.frame).map(Bytes::from)).clone()
    }
}

impl SplatsFile {
    fn of(iteration: u32, path: PathBuf, live: bool) -> Option<Self> {
        let about = path.metadata().ok().filter(std::fs::Metadata::is_file)?;
        if !live && read_ply_primitive(&path).is_ok_and(|it| it == PrimitiveName::Triangles) {
            return None;
        }
        let (bytes, modified) = (about.len(), about.modified().ok());
        Some(Self { path, iteration, live, bytes, modified })
    }

    fn spz(&self, frame: &Frame) -> Result<Vec<u8>, SplatsError> {
        let unreadable = |why: &dyn ToString| SplatsError::Unreadable(why.to_string());
        if self.live {
            let bytes = std::fs::read(&self.path).map_err(|error| match error.kind() {
                std::io::ErrorKind::NotFound => SplatsError::Replaced,
                _ => SplatsError::Unreadable(format!("{}: {error}", self.path.display())),
            })?;
            // Other files must not be sent, whoever put them there.
            let read = parse_spz(&bytes, None);
            let why = |fault| format!("{}: {fault}", self.path.display());
            return read.map(|_| bytes).map_err(|fault| SplatsError::Unreadable(why(fault)));
        }
        let mut splats = read(&self.path).map_err(|error| unreadable(&error))?.splats;
        let file = frame_of_file(&self.path).map_err(|error| unreadable(&error))?;
        if file != *frame {
            let placement = ScenePlacement {
                scale: file.unit_in(frame),
                translation: file.to(frame, [0.0; 3]),
                ..ScenePlacement::default()
            };
            splats.place(&placement).map_err(|error| unreadable(&error))?;
        }
        pack_spz(&splats, &SpzOptions::for_page()).map_err(|error| unreadable(&error))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use splat_formats::{SplatFormat, parse_spz, write};

    use super::*;

    struct Model {
        folder: tempfile::TempDir,
        live: LiveFolder,
        shown: ShownSplats,
        done: Option<u32>,
    }

    impl Model {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            let live = LiveFolder::of(folder.path());
            Self { folder, live, shown: ShownSplats::default(), done: None }
        }

        fn save(&self, name: &str, count: usize, format: &SplatFormat) {
            let path = self.folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            // Position, scale, colour and rotation.
            let row = [vec![0; 12], 1.0_f32.to_le_bytes().repeat(3), vec![128; 4], vec![255; 4]];
            let bytes = row.concat().repeat(count);
            let splats = splat_formats::parse_splat(&bytes).unwrap().splats;
            write(&path, &splats, format).unwrap();
        }

        fn save_ply(&self, iteration: u32, count: usize) {
            let name = format!("point_cloud/iteration_{iteration}/point_cloud.ply");
            self.save(&name, count, &SplatFormat::Ply);
        }

        fn newest(&mut self) -> Option<(u64, u32, bool)> {
            self.shown.refresh(self.folder.path(), &self.live, self.done);
            self.shown.newest().map(|it| (it.generation, it.iteration, it.live))
        }

        fn count(&mut self, generation: u64) -> usize {
            let bytes = self.shown.job(generation).unwrap().spz().unwrap();
            parse_spz(&bytes, None).unwrap().splats.columns().means.len()
        }
    }

    #[test]
    fn the_newest_gaussians_are_shown() {
        let mut model = Model::new();
        assert_eq!(model.newest(), None);
        model.save_ply(700, 3);
        let (first, iteration, live) = model.newest().unwrap();
        assert_eq!((iteration, live, model.count(first)), (700, false, 3));
        assert_eq!(model.newest(), Some((first, 700, false)));
        let spz = SplatFormat::Spz(SpzOptions::for_page());
        model.save("live/splats_900.spz", 2, &spz);
        let (second, iteration, live) = model.newest().unwrap();
        assert_eq!((iteration, live, model.count(second)), (900, true, 2));
        assert!(second > first);
        assert!(matches!(model.shown.job(first), Err(SplatsError::Replaced)));
        // A saved file has all Gaussians of its iteration.
        model.save_ply(900, 4);
        let (third, iteration, live) = model.newest().unwrap();
        assert_eq!((iteration, live, model.count(third)), (900, false, 4));
        // The live file vanishes before it is requested.
        model.save("live/splats_1000.spz", 2, &spz);
        let (fourth, ..) = model.newest().unwrap();
        let job = model.shown.job(fourth).unwrap();
        fs::remove_file(model.folder.path().join("live/splats_1000.spz")).unwrap();
        assert!(matches!(job.spz(), Err(SplatsError::Replaced)));
        assert_eq!(model.newest(), Some((fourth + 1, 900, false)));
    }

    #[test]
    fn files_of_an_earlier_run_are_not_shown() {
        let mut model = Model::new();
        model.save_ply(400, 2);
        model.save_ply(9000, 3);
        assert_eq!(model.newest().unwrap().1, 9000);
        model.done = Some(420);
        assert_eq!(model.newest().unwrap().1, 400);
        model.save("live/splats_450.spz", 2, &SplatFormat::Spz(SpzOptions::for_page()));
        assert_eq!(model.newest().unwrap().1, 450);
    }

    #[test]
    fn other_and_unreadable_files_are_named_and_not_sent() {
        for (name, text) in [
            ("live/splats_5.spz", "a secret"),
            ("point_cloud/iteration_1/point_cloud.ply", "ply\nformat"),
        ] {
            let mut model = Model::new();
            let path = model.folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, text).unwrap();
            let (generation, ..) = model.newest().unwrap();
            let refused = model.shown.job(generation).unwrap().spz().unwrap_err();
            assert!(refused.to_string().contains(path.to_str().unwrap()), "{refused}");
        }
    }
}
