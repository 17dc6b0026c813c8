//! Checkpoints of a run in safetensors. A resumed run continues as if it had never stopped.
//!
//! Randomness depends on (seed, iteration, purpose) and the order of views on (seed, epoch), so that the state
//! consists of model, iteration and configuration.
//!
//! Values are stored in single precision. A run may therefore continue with or without `--optimize-memory`, on a GPU
//! or on the processor. Models are written and read in chunks of rows, and the host holds one chunk.

mod file;
mod keeper;
mod tensors;

use std::io;
use std::path::{Path, PathBuf};

use crate::config::{Config, ConfigError};
use crate::files::numbered;
use crate::memory::TrainingScale;
use crate::train::pace::{Paced, Passed};

pub use file::{StoredCheckpoint, is_checkpoint, is_timed};
pub use tensors::FaceState;

pub(super) use keeper::{BesideRows, CheckpointKeeper, row_bytes};
pub(super) use tensors::FACE_BYTES;

const FORMAT: &str = "splat checkpoint";

/// Format version. Raise it when the meaning of a tensor or metadata key changes.
const VERSION: &str = "1";

/// Metadata entry of a checkpoint by time.
const BY_TIME: (&str, &str) = ("written", "by time");

/// Metadata key of the training scale: the number of times that views were scaled by 0.9.
const TRAINING_SCALE: &str = "training_scale";

/// Metadata keys of [`Paced`]: images, iterations before the last step, and seconds of training.
const IMAGES: &str = "images";
const ITERATION_BEFORE: &str = "iteration_before";
const TRAINING_SECONDS: &str = "training_seconds";

/// Occasion of a checkpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Occasion {
    /// Requested by an option, or the end of the run.
    #[default]
    Requested,
    /// Written by time, and removed when newer checkpoints exist.
    Time,
}

/// State of a run without its model.
#[derive(Clone, Debug)]
pub struct Checkpoint {
    /// Finished iterations.
    pub iteration: u32,
    /// Resolved configuration.
    pub config: Config,
    /// Names of the training views, in order.
    pub train_views: Vec<String>,
    /// Occasion of the checkpoint.
    pub occasion: Occasion,
    /// Scale of the training views, below full size if memory was short.
    pub training_scale: TrainingScale,
    /// Progress of a run whose iterations differ from its images.
    pub paced: Option<Paced>,
}

impl Checkpoint {
    /// Returns the progress of the run.
    pub fn progress(&self) -> Passed {
        let iteration = self.iteration;
        let Some(Paced { images, seconds, .. }) = self.paced else {
            return Passed { iteration, images: iteration, seconds: 0.0 };
        };
        Passed { iteration, images, seconds: seconds.unwrap_or(0.0) }
    }
}

/// Error of a checkpoint that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    /// The file cannot be opened or read.
    #[error("{path}: the checkpoint cannot be read: {source}. Check its permissions")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Cause.
        source: io::Error,
    },
    /// The file is truncated or garbage.
    #[error("{path}: the checkpoint is damaged: {problem}")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Description of the fault.
        problem: String,
    },
    /// Another version of the program wrote it.
    #[error(
        "{path}: the checkpoint has version {found}, this program reads version {VERSION}. Resume \
         it with the program that wrote it"
    )]
    Version {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: String,
    },
    /// It holds fewer harmonics than requested.
    #[error(
        "{path}: has SH degree {found}, below --sh-degree {wanted}. Resume with --sh-degree {found} or less, or \
         train from the start"
    )]
    ShDegree {
        /// The file.
        path: PathBuf,
        /// Its degree.
        found: u32,
        /// Requested degree.
        wanted: u32,
    },
    /// The configuration inside cannot be read.
    #[error("{path}: the configuration in the checkpoint cannot be used: {source}")]
    Config {
        /// The file.
        path: PathBuf,
        /// Cause.
        source: Box<ConfigError>,
    },
}

/// Returns the path of the checkpoint of `iteration`.
pub fn path(model_path: &Path, iteration: u32) -> PathBuf {
    model_path.join("checkpoints").join(format!("chkpnt_{iteration}.safetensors"))
}

/// Returns the checkpoints of a model folder, newest first.
pub fn list(model_path: &Path) -> Vec<PathBuf> {
    let number =
        |name: &str| name.strip_prefix("chkpnt_")?.strip_suffix(".safetensors")?.parse().ok();
    let found = numbered(&model_path.join("checkpoints"), number);
    found.into_iter().rev().map(|(_, path)| path).collect()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::ops::Range;

    use safetensors::SafeTensors;

    use super::*;
    use crate::backend::{CHUNK_ROWS, DeviceError, Rows, Snapshot};
    use crate::memory::plan::OptionalColumns;
    use crate::model::{Gaussians, Primitive};
    use crate::train::pace::Paced;

    /// Returns a model with mostly different values.
    fn model(sh_degree: u32, count: usize) -> Snapshot<Gaussians> {
        let mut value = 0_u16;
        let mut next = || {
            value = (value + 1) % 65_521;
            f32::from(value) * 0.25
        };
        let mut model: Snapshot<Gaussians> =
            Snapshot::zeros(sh_degree, count, OptionalColumns::NONE);
        for part in [&mut model.parameters, &mut model.first_moments, &mut model.second_moments] {
            part.groups_mut().into_iter().flatten().for_each(|value| *value = next());
        }
        model.gradient_norm_sums.fill_with(next);
        model.views_seen = (9..).take(count).collect();
        model
    }

    fn about(iteration: u32) -> Checkpoint {
        Checkpoint {
            paced: None,
            iteration,
            config: Config::default(),
            train_views: vec!["b.jpg".to_owned(), "left/ä \"1\".png".to_owned()],
            occasion: Occasion::Requested,
            training_scale: TrainingScale::FULL,
        }
    }

    /// Writes a model of five Gaussians of degree 2.
    fn written(model_path: &Path, iteration: u32) -> PathBuf {
        about(iteration).write(model_path, &mut model(2, 5), None).unwrap()
    }

    fn read_whole(path: &Path) -> Snapshot<Gaussians> {
        let mut stored = StoredCheckpoint::open(path).unwrap();
        let rows = 0..stored.len();
        stored.read(rows).unwrap()
    }

    #[test]
    fn a_checkpoint_is_read_as_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = written(folder.path(), 70);
        assert_eq!(read_whole(&path), model(2, 5));
        let stored = StoredCheckpoint::open(&path).unwrap();
        assert_eq!((stored.len(), stored.sh_degree()), (5, 2));
        assert_eq!(
            (stored.about.iteration, &stored.about.train_views),
            (70, &about(70).train_views)
        );
        assert_eq!(stored.about.config, Config::default());
        assert_eq!(stored.about.training_scale, TrainingScale::FULL);
        let smaller = Checkpoint { training_scale: TrainingScale::after(2), ..about(71) };
        let path_of_smaller = smaller.write(folder.path(), &mut model(2, 5), None).unwrap();
        let stored = StoredCheckpoint::open(&path_of_smaller).unwrap();
        assert_eq!(stored.about.training_scale, TrainingScale::after(2));
        for seconds in [None, Some(12.5)] {
            let paced = Some(Paced { images: 4000, before: 69, seconds });
            let run = Checkpoint { paced, ..about(72) };
            let path = run.write(folder.path(), &mut model(2, 5), None).unwrap();
            let stored = StoredCheckpoint::open(&path).unwrap();
            assert_eq!(stored.about.paced, paced);
            let passed = stored.about.progress();
            assert_eq!((passed.iteration, passed.images), (72, 4000));
            assert_eq!(passed.seconds, seconds.unwrap_or(0.0));
        }
        let empty = about(1).write(folder.path(), &mut model(3, 0), None).unwrap();
        assert!(StoredCheckpoint::open(&empty).unwrap().is_empty());
        assert_eq!(read_whole(&empty), model(3, 0));
        // Another reader of the format agrees, including the alignment of the data.
        let bytes = fs::read(&path).unwrap();
        let tensors = SafeTensors::deserialize(&bytes).unwrap();
        assert_eq!(tensors.tensor("parameters.sh_rest").unwrap().shape(), [5, 24]);
        assert_eq!(tensors.len(), 20);
        assert_eq!(u64::from_le_bytes(bytes[..8].try_into().unwrap()) % 8, 0);
    }

    #[test]
    fn optional_columns_are_in_the_file_if_the_model_has_them() {
        let folder = tempfile::tempdir().unwrap();
        let count = CHUNK_ROWS + 9;
        let column = || (0_u16..999).cycle().take(count).map(f32::from).collect::<Vec<_>>();
        let plain = model(1, count);
        let filtered = Snapshot { filter_3d: column(), ..plain.clone() };
        let both = Snapshot { absolute_norm_sums: column(), ..filtered.clone() };
        for (whole, tensors) in [(plain, 20), (filtered, 21), (both, 22)] {
            let path = about(3).write(folder.path(), &mut whole.clone(), None).unwrap();
            let bytes = fs::read(&path).unwrap();
            assert_eq!(SafeTensors::deserialize(&bytes).unwrap().len(), tensors);
            let stored = StoredCheckpoint::open(&path).unwrap();
            assert_eq!(Rows::optional(&stored), whole.optional());
            assert!(read_whole(&path) == whole);
        }
        let mut broken = model(0, 5);
        broken.filter_3d = vec![0.5; 5];
        let path = about(4).write(folder.path(), &mut broken, None).unwrap();
        overwrite(&path, "filter_3d", 2, f32::NAN);
        let error = StoredCheckpoint::open(&path).unwrap_err().to_string();
        assert!(error.contains("`filter_3d` is not finite at element 2"), "{error}");
    }

    #[test]
    fn columns_of_several_chunks_are_contiguous() {
        let folder = tempfile::tempdir().unwrap();
        let mut whole = model(0, 2 * CHUNK_ROWS + 77);
        let path = about(1).write(folder.path(), &mut whole, None).unwrap();
        let bytes = fs::read(&path).unwrap();
        let header_bytes =
            usize::try_from(u64::from_le_bytes(bytes[..8].try_into().unwrap())).unwrap();
        assert!(bytes[8 + header_bytes..] == tensors::bytes(&whole).concat());
        // Another reader finds each by its name.
        let tensors = SafeTensors::deserialize(&bytes).unwrap();
        let quats = tensors.tensor("second_moments.quats").unwrap();
        assert!(quats.data() == bytemuck::cast_slice::<_, u8>(&whole.second_moments.quats));
        // Any rows, across the chunks' ends too.
        let mut stored = StoredCheckpoint::open(&path).unwrap();
        for rows in [0..1, CHUNK_ROWS - 1..CHUNK_ROWS + 2, 70_000..70_000, 131_000..131_149] {
            assert!(stored.read(rows.clone()).unwrap() == whole.read(rows).unwrap());
        }
        let error = stored.read(131_149..131_150).unwrap_err().to_string();
        assert!(error.contains("row 131149"), "{error}");
    }

    /// Model that fails at one of its chunks and records the requested chunks.
    struct Fragile {
        whole: Snapshot<Gaussians>,
        asked_for: Vec<Range<usize>>,
        broken_from: usize,
    }

    impl Rows<Gaussians> for Fragile {
        type Error = DeviceError;

        fn len(&self) -> usize {
            self.whole.len()
        }

        fn shape(&mut self) -> Result<Gaussians, DeviceError> {
            self.whole.shape()
        }

        fn read(&mut self, rows: Range<usize>) -> Result<Snapshot<Gaussians>, DeviceError> {
            self.asked_for.push(rows.clone());
            if rows.end > self.broken_from {
                return Err(DeviceError::NoView);
            }
            self.whole.read(rows)
        }
    }

    #[test]
    fn rows_are_read_once_and_a_failure_keeps_the_old_file() {
        let folder = tempfile::tempdir().unwrap();
        let whole = model(0, CHUNK_ROWS + 5);
        let mut source = Fragile { whole, asked_for: Vec::new(), broken_from: usize::MAX };
        let path = about(9).write(folder.path(), &mut source, None).unwrap();
        assert_eq!(source.asked_for, [0..CHUNK_ROWS, CHUNK_ROWS..CHUNK_ROWS + 5]);
        let before = fs::read(&path).unwrap();
        let elsewhere = folder.path().join("whole");
        let of_whole = about(9).write(&elsewhere, &mut source.whole, None).unwrap();
        assert!(fs::read(of_whole).unwrap() == before, "chunks and the whole make the same file");
        source.broken_from = CHUNK_ROWS;
        let error = about(9).write(folder.path(), &mut source, None).unwrap_err();
        assert!(matches!(error, crate::train::TrainError::Device(_)), "{error}");
        assert!(fs::read(&path).unwrap() == before);
        assert_eq!(fs::read_dir(folder.path().join("checkpoints")).unwrap().count(), 1);
    }

    #[test]
    fn harmonics_above_a_lower_degree_are_left_out_with_their_moments() {
        let folder = tempfile::tempdir().unwrap();
        let path = about(5).write(folder.path(), &mut model(3, 40), None).unwrap();
        for degree in [0, 1, 2, 3] {
            let mut expected = model(3, 40);
            expected.parameters.lower_sh_degree(degree);
            expected.first_moments.lower_sh_degree(degree);
            expected.second_moments.lower_sh_degree(degree);
            let mut stored = StoredCheckpoint::open(&path).unwrap();
            stored.lower_sh_degree(degree).unwrap();
            assert_eq!((stored.sh_degree(), stored.shape().unwrap().sh_degree), (degree, degree));
            assert_eq!(stored.read(0..40).unwrap(), expected);
        }
        let path = written(folder.path(), 6);
        let error = StoredCheckpoint::open(&path).unwrap().lower_sh_degree(3).unwrap_err();
        assert!(matches!(error, CheckpointError::ShDegree { found: 2, wanted: 3, .. }), "{error}");
        assert!(error.to_string().contains("train from the start"), "{error}");
    }

    #[test]
    fn equal_runs_write_equal_files() {
        let folder = tempfile::tempdir().unwrap();
        let files: Vec<Vec<u8>> =
            (0..8).map(|_| fs::read(written(folder.path(), 70)).unwrap()).collect();
        assert!(files.iter().all(|file| *file == files[0]));
    }

    #[test]
    fn the_newest_checkpoint_is_listed_first_by_number() {
        let folder = tempfile::tempdir().unwrap();
        for iteration in [900, 1000, 70] {
            written(folder.path(), iteration);
        }
        fs::write(folder.path().join("checkpoints/notes.txt"), "not one").unwrap();
        let listed = list(folder.path());
        assert_eq!(listed, [1000, 900, 70].map(|i| path(folder.path(), i)));
    }

    #[test]
    fn every_truncation_is_damage_and_nothing_panics() {
        let folder = tempfile::tempdir().unwrap();
        let path = written(folder.path(), 5);
        let bytes = fs::read(&path).unwrap();
        let short = folder.path().join("short.safetensors");
        for length in (0..bytes.len()).step_by(37).chain([7, 8, 9, bytes.len() - 1]) {
            fs::write(&short, &bytes[..length]).unwrap();
            let error = StoredCheckpoint::open(&short).unwrap_err();
            assert!(matches!(error, CheckpointError::Damaged { .. }), "{length}: {error}");
            assert!(error.to_string().contains("short.safetensors"), "{error}");
        }
    }

    #[test]
    fn flipped_bytes_never_panic_and_a_broken_header_is_damage() {
        let folder = tempfile::tempdir().unwrap();
        let path = written(folder.path(), 5);
        let bytes = fs::read(&path).unwrap();
        for at in (0..bytes.len()).step_by(11) {
            let mut bytes = bytes.clone();
            bytes[at] ^= 0x41;
            fs::write(&path, &bytes).unwrap();
            let result = StoredCheckpoint::open(&path);
            if at < 8 {
                assert!(matches!(result, Err(CheckpointError::Damaged { .. })), "byte {at}");
            }
        }
    }

    #[test]
    fn another_version_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = written(folder.path(), 5);
        let mut bytes = fs::read(&path).unwrap();
        let at = bytes.windows(13).position(|w| w == br#""version":"1""#).unwrap();
        bytes[at + 11] = b'7';
        fs::write(&path, &bytes).unwrap();
        let error = StoredCheckpoint::open(&path).unwrap_err().to_string();
        assert!(error.contains("version 7") && error.contains("reads version 1"), "{error}");
    }

    /// Replaces an element of a tensor in the file.
    fn overwrite(path: &Path, tensor: &str, element: usize, value: f32) {
        let mut bytes = fs::read(path).unwrap();
        let tensors = SafeTensors::deserialize(&bytes).unwrap();
        let data = tensors.tensor(tensor).unwrap().data().as_ptr_range();
        let at = data.start.addr() - bytes.as_ptr().addr() + 4 * element;
        bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
        fs::write(path, bytes).unwrap();
    }

    #[test]
    fn values_that_are_not_finite_are_damage() {
        let folder = tempfile::tempdir().unwrap();
        let path = written(folder.path(), 6);
        overwrite(&path, "parameters.means", 4, f32::NAN);
        let error = StoredCheckpoint::open(&path).unwrap_err().to_string();
        assert!(error.contains("`parameters.means` is not finite at element 4"), "{error}");
        // This element lies beyond the first checked block.
        let path = about(7).write(folder.path(), &mut model(0, 120_000), None).unwrap();
        overwrite(&path, "second_moments.quats", 400_001, f32::INFINITY);
        let error = StoredCheckpoint::open(&path).unwrap_err().to_string();
        assert!(error.contains("`second_moments.quats` is not finite at element 400001"));
    }

    #[test]
    fn values_that_are_not_finite_are_not_written() {
        let folder = tempfile::tempdir().unwrap();
        let mut broken = model(2, CHUNK_ROWS + 5);
        broken.first_moments.quats[4 * (CHUNK_ROWS + 2) + 1] = f32::NAN;
        let error = about(6).write(folder.path(), &mut broken, None).unwrap_err().to_string();
        assert!(error.contains(&format!("Gaussian {}", CHUNK_ROWS + 2)), "{error}");
        let mut broken = model(2, 3);
        broken.filter_3d = vec![1.0, 1.0, f32::INFINITY];
        let error = about(6).write(folder.path(), &mut broken, None).unwrap_err().to_string();
        assert!(error.contains("Gaussian 2: its 3D filter"), "{error}");
        assert_eq!(fs::read_dir(folder.path().join("checkpoints")).unwrap().count(), 0);
    }
}
