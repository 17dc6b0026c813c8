//! Snapshots of a run in safetensors, from which it goes on as if it had never stopped.
//!
//! Randomness is drawn from (seed, iteration, purpose) and the order of views from (seed, epoch),
//! so that the iteration and the configuration are all the state there is besides the model.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use safetensors::tensor::{Dtype, Metadata, TensorInfo};

use crate::backend::Snapshot;
use crate::config::{Config, ConfigError};
use crate::files::{OutputError, create_folder, write_atomically};
use crate::model::{Gaussians, Primitive};

/// What the files call themselves.
const FORMAT: &str = "splat checkpoint";

/// Raised when the meaning of a tensor or a metadata key changes.
const VERSION: &str = "1";

/// Longest header that is read; ours are a few kilobytes plus the names of the views.
const MAX_HEADER_BYTES: u64 = 100 << 20;

/// A run that stopped, or could have.
#[derive(Clone, Debug)]
pub struct Checkpoint {
    /// Finished iterations.
    pub iteration: u32,
    /// Everything resolved.
    pub config: Config,
    /// Names of the views that were trained on, in their order.
    pub train_views: Vec<String>,
    /// The model.
    pub snapshot: Snapshot<Gaussians>,
}

/// A checkpoint that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    /// The file cannot be opened or read.
    #[error("{path}: the checkpoint cannot be read: {source}")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The file is truncated or garbage.
    #[error(
        "{path}: the checkpoint is damaged: {problem}. Use an earlier one with --start-checkpoint"
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong.
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
    /// It holds harmonics of another degree than was asked for.
    #[error(
        "{path}: the checkpoint has SH degree {found}, but --sh-degree {wanted} is asked for. \
         Resume with --sh-degree {found}, or train from the start"
    )]
    ShDegree {
        /// The file.
        path: PathBuf,
        /// Its degree.
        found: u32,
        /// The degree asked for.
        wanted: u32,
    },
    /// The configuration inside cannot be read.
    #[error("{path}: the configuration in the checkpoint cannot be used: {source}")]
    Config {
        /// The file.
        path: PathBuf,
        /// Why.
        source: Box<ConfigError>,
    },
}

/// Where the checkpoint of `iteration` lies.
pub fn path(model_path: &Path, iteration: u32) -> PathBuf {
    model_path.join("checkpoints").join(format!("chkpnt_{iteration}.safetensors"))
}

/// The checkpoints of a model folder, newest first.
pub fn list(model_path: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(model_path.join("checkpoints")) else { return Vec::new() };
    let mut found: Vec<(u32, PathBuf)> = entries
        .filter_map(|entry| {
            let path = entry.ok()?.path();
            let name = path.file_name()?.to_str()?;
            let iteration =
                name.strip_prefix("chkpnt_")?.strip_suffix(".safetensors")?.parse().ok()?;
            Some((iteration, path))
        })
        .collect();
    found.sort_by_key(|&(iteration, _)| std::cmp::Reverse(iteration));
    found.into_iter().map(|(_, path)| path).collect()
}

/// The columns of a snapshot in the order of the file: name, values per row, bytes.
fn columns(snapshot: &Snapshot<Gaussians>) -> Vec<(String, Dtype, Vec<usize>, &[u8])> {
    let rows = snapshot.parameters.len();
    let mut columns = Vec::new();
    for (part, groups) in [
        ("parameters", snapshot.parameters.groups()),
        ("first_moments", snapshot.first_moments.groups()),
        ("second_moments", snapshot.second_moments.groups()),
    ] {
        for group in groups {
            let name = format!("{part}.{}", group.name);
            let bytes = bytemuck::cast_slice(group.values);
            columns.push((name, Dtype::F32, vec![rows, group.width], bytes));
        }
    }
    let sums = bytemuck::cast_slice(&snapshot.gradient_norm_sums);
    columns.push(("statistics.gradient_norm_sums".to_owned(), Dtype::F32, vec![rows], sums));
    let seen = bytemuck::cast_slice(&snapshot.views_seen);
    columns.push(("statistics.views_seen".to_owned(), Dtype::U32, vec![rows], seen));
    columns
}

impl Checkpoint {
    /// Writes the checkpoint into the model folder: to a temporary file, synced and renamed.
    pub fn write(&self, model_path: &Path) -> Result<PathBuf, OutputError> {
        let path = path(model_path, self.iteration);
        create_folder(&model_path.join("checkpoints"))?;
        let columns = columns(&self.snapshot);
        let header = self
            .header(&columns)
            .map_err(|error| OutputError::new(&path, io::Error::other(error)))?;
        write_atomically(&path, |out| {
            out.write_all(&(header.len() as u64).to_le_bytes())?;
            out.write_all(header.as_bytes())?;
            columns.iter().try_for_each(|(_, _, _, bytes)| out.write_all(bytes))
        })?;
        Ok(path)
    }

    fn header(
        &self,
        columns: &[(String, Dtype, Vec<usize>, &[u8])],
    ) -> Result<String, Box<dyn std::error::Error + Send + Sync>> {
        let about = HashMap::from([
            ("format".to_owned(), FORMAT.to_owned()),
            ("version".to_owned(), VERSION.to_owned()),
            ("iteration".to_owned(), self.iteration.to_string()),
            ("sh_degree".to_owned(), self.snapshot.parameters.sh_degree.to_string()),
            ("config".to_owned(), self.config.to_toml()?),
            ("train_views".to_owned(), serde_json::to_string(&self.train_views)?),
        ]);
        let mut end = 0;
        let tensors = columns
            .iter()
            .map(|(name, dtype, shape, bytes)| {
                let data_offsets = (end, end + bytes.len());
                end += bytes.len();
                (name.clone(), TensorInfo { dtype: *dtype, shape: shape.clone(), data_offsets })
            })
            .collect();
        // The metadata is a hash map: sorted, equal runs write equal files.
        let mut header = serde_json::to_value(Metadata::new(Some(about), tensors)?)?;
        header.sort_all_objects();
        let mut header = header.to_string();
        // Spaces align the data to 8 bytes, as the format asks.
        header.push_str(&" ".repeat(header.len().next_multiple_of(8) - header.len()));
        Ok(header)
    }

    /// Reads a checkpoint, one column at a time.
    pub fn read(path: &Path) -> Result<Self, CheckpointError> {
        let unreadable = |source| CheckpointError::Unreadable { path: path.to_owned(), source };
        let damaged = |problem: String| CheckpointError::Damaged { path: path.to_owned(), problem };
        let mut file = File::open(path).map_err(unreadable)?;
        let length = file.metadata().map_err(unreadable)?.len();
        let header = read_header(&mut file, length).map_err(&damaged)?;
        let about = header.metadata().clone().unwrap_or_default();
        let entry = |key: &str| {
            about.get(key).cloned().ok_or_else(|| damaged(format!("it has no `{key}`")))
        };
        if entry("format")? != FORMAT {
            return Err(damaged(format!("its format is `{}`", entry("format")?)));
        }
        if entry("version")? != VERSION {
            return Err(CheckpointError::Version {
                path: path.to_owned(),
                found: entry("version")?,
            });
        }
        let number = |key: &str| {
            let text = entry(key)?;
            text.parse::<u32>().map_err(|error| damaged(format!("`{key}` is `{text}`: {error}")))
        };
        let config = Config::from_toml(&path.display().to_string(), &entry("config")?).map_err(
            |source| CheckpointError::Config { path: path.to_owned(), source: Box::new(source) },
        )?;
        let train_views = serde_json::from_str(&entry("train_views")?)
            .map_err(|error| damaged(format!("`train_views` is not a list of names: {error}")))?;
        let (iteration, sh_degree) = (number("iteration")?, number("sh_degree")?);
        if sh_degree > 3 {
            return Err(damaged(format!("its SH degree is {sh_degree}")));
        }
        let data_start = length - header.data_len() as u64;
        let snapshot =
            read_snapshot(&mut file, &header, data_start, sh_degree).map_err(&damaged)?;
        Ok(Self { iteration, config, train_views, snapshot })
    }
}

/// The header, checked against the length of the file.
fn read_header(file: &mut File, length: u64) -> Result<Metadata, String> {
    let mut prefix = [0; 8];
    file.read_exact(&mut prefix).map_err(|error| format!("it is {length} bytes long: {error}"))?;
    let header_length = u64::from_le_bytes(prefix);
    if header_length > MAX_HEADER_BYTES || header_length > length - 8 {
        return Err(format!("its header claims {header_length} bytes of {length}"));
    }
    let mut header = Vec::new();
    file.take(header_length).read_to_end(&mut header).map_err(|error| error.to_string())?;
    // Checks on the way that the tensors follow each other without gaps and are as large as their
    // shapes say; the crate's own entry point wants the whole file in memory.
    let metadata: Metadata =
        serde_json::from_slice(&header).map_err(|error| format!("its header: {error}"))?;
    let expected = (metadata.data_len() as u64).saturating_add(8 + header_length);
    if expected != length {
        return Err(format!("it is {length} bytes long instead of {expected}"));
    }
    Ok(metadata)
}

fn read_snapshot(
    file: &mut File,
    header: &Metadata,
    data_start: u64,
    sh_degree: u32,
) -> Result<Snapshot<Gaussians>, String> {
    let mut column = |name: &str, dtype: Dtype, shape: &[usize]| -> Result<Vec<u8>, String> {
        let info = header.info(name).ok_or_else(|| format!("it has no tensor `{name}`"))?;
        if info.dtype != dtype || info.shape != shape {
            return Err(format!(
                "`{name}` is {:?} {:?} instead of {dtype:?} {shape:?}",
                info.dtype, info.shape
            ));
        }
        let (start, end) = info.data_offsets;
        file.seek(SeekFrom::Start(data_start + start as u64)).map_err(|e| e.to_string())?;
        let mut bytes = vec![0; end - start];
        file.read_exact(&mut bytes).map_err(|error| format!("`{name}`: {error}"))?;
        Ok(bytes)
    };
    let rows = header
        .info("parameters.opacity_logits")
        .and_then(|info| info.shape.first().copied())
        .ok_or("it has no tensor `parameters.opacity_logits`")?;
    let mut gaussians = |part: &str| -> Result<Gaussians, String> {
        let mut host = Gaussians::zeros(sh_degree, 0);
        let layout: Vec<_> = host.groups().iter().map(|g| (g.name, g.width)).collect();
        for (values, (name, width)) in host.groups_mut().into_iter().zip(layout) {
            let bytes = column(&format!("{part}.{name}"), Dtype::F32, &[rows, width])?;
            *values = bytemuck::pod_collect_to_vec(&bytes);
            if let Some(at) = values.iter().position(|value| !value.is_finite()) {
                return Err(format!("`{part}.{name}` is not finite at element {at}"));
            }
        }
        Ok(host)
    };
    Ok(Snapshot {
        parameters: gaussians("parameters")?,
        first_moments: gaussians("first_moments")?,
        second_moments: gaussians("second_moments")?,
        gradient_norm_sums: bytemuck::pod_collect_to_vec(&column(
            "statistics.gradient_norm_sums",
            Dtype::F32,
            &[rows],
        )?),
        views_seen: bytemuck::pod_collect_to_vec(&column(
            "statistics.views_seen",
            Dtype::U32,
            &[rows],
        )?),
    })
}

#[cfg(test)]
mod tests {
    use safetensors::SafeTensors;

    use super::*;

    fn checkpoint(iteration: u32) -> Checkpoint {
        let mut value = 0.0;
        let mut fill = || {
            let mut host = Gaussians::zeros(2, 5);
            for column in host.groups_mut() {
                for v in column {
                    value += 0.25;
                    *v = value;
                }
            }
            host
        };
        Checkpoint {
            iteration,
            config: Config::default(),
            train_views: vec!["b.jpg".to_owned(), "left/ä \"1\".png".to_owned()],
            snapshot: Snapshot {
                parameters: fill(),
                first_moments: fill(),
                second_moments: fill(),
                gradient_norm_sums: vec![1.0, 2.0, 3.0, 4.0, 5.5],
                views_seen: vec![9, 8, 7, 6, 5],
            },
        }
    }

    #[test]
    fn what_is_written_is_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let written = checkpoint(70);
        let path = written.write(folder.path()).unwrap();
        let read = Checkpoint::read(&path).unwrap();
        assert_eq!(read.snapshot, written.snapshot);
        assert_eq!((read.iteration, read.train_views), (70, written.train_views));
        assert_eq!(read.config, written.config);
        // Another reader of the format agrees, alignment of the data included.
        let bytes = fs::read(&path).unwrap();
        let tensors = SafeTensors::deserialize(&bytes).unwrap();
        assert_eq!(tensors.tensor("parameters.sh_rest").unwrap().shape(), [5, 24]);
        assert_eq!(tensors.len(), 20);
        assert_eq!(u64::from_le_bytes(bytes[..8].try_into().unwrap()) % 8, 0);
    }

    #[test]
    fn equal_runs_write_equal_files() {
        let folder = tempfile::tempdir().unwrap();
        let files: Vec<Vec<u8>> = (0..8)
            .map(|_| fs::read(checkpoint(70).write(folder.path()).unwrap()).unwrap())
            .collect();
        assert!(files.iter().all(|file| *file == files[0]));
    }

    #[test]
    fn a_checkpoint_of_no_gaussians_is_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let empty = Gaussians::zeros(3, 0);
        let snapshot = Snapshot {
            parameters: empty.clone(),
            first_moments: empty.clone(),
            second_moments: empty,
            gradient_norm_sums: Vec::new(),
            views_seen: Vec::new(),
        };
        let path = Checkpoint { snapshot, ..checkpoint(1) }.write(folder.path()).unwrap();
        assert!(Checkpoint::read(&path).unwrap().snapshot.parameters.is_empty());
    }

    #[test]
    fn the_newest_checkpoint_is_listed_first_by_number() {
        let folder = tempfile::tempdir().unwrap();
        for iteration in [900, 1000, 70] {
            checkpoint(iteration).write(folder.path()).unwrap();
        }
        fs::write(folder.path().join("checkpoints/notes.txt"), "not one").unwrap();
        let listed = list(folder.path());
        assert_eq!(listed, [1000, 900, 70].map(|i| path(folder.path(), i)));
    }

    #[test]
    fn every_truncation_is_damage_and_nothing_panics() {
        let folder = tempfile::tempdir().unwrap();
        let path = checkpoint(5).write(folder.path()).unwrap();
        let bytes = fs::read(&path).unwrap();
        let short = folder.path().join("short.safetensors");
        for length in (0..bytes.len()).step_by(37).chain([7, 8, 9, bytes.len() - 1]) {
            fs::write(&short, &bytes[..length]).unwrap();
            let error = Checkpoint::read(&short).unwrap_err();
            assert!(matches!(error, CheckpointError::Damaged { .. }), "{length}: {error}");
            assert!(error.to_string().contains("short.safetensors"), "{error}");
        }
    }

    #[test]
    fn flipped_bytes_never_panic_and_a_broken_header_is_damage() {
        let folder = tempfile::tempdir().unwrap();
        let path = checkpoint(5).write(folder.path()).unwrap();
        let bytes = fs::read(&path).unwrap();
        for at in (0..bytes.len()).step_by(11) {
            let mut bytes = bytes.clone();
            bytes[at] ^= 0x41;
            fs::write(&path, &bytes).unwrap();
            let result = Checkpoint::read(&path);
            if at < 8 {
                assert!(matches!(result, Err(CheckpointError::Damaged { .. })), "byte {at}");
            }
        }
    }

    #[test]
    fn another_version_is_named_and_values_that_are_no_numbers_are_damage() {
        let folder = tempfile::tempdir().unwrap();
        let path = checkpoint(5).write(folder.path()).unwrap();
        let text = String::from_utf8_lossy(&fs::read(&path).unwrap()).into_owned();
        assert!(text.contains(r#""version":"1""#));
        let mut bytes = fs::read(&path).unwrap();
        let at = bytes.windows(13).position(|w| w == br#""version":"1""#).unwrap();
        bytes[at + 11] = b'7';
        fs::write(&path, &bytes).unwrap();
        let error = Checkpoint::read(&path).unwrap_err().to_string();
        assert!(error.contains("version 7") && error.contains("reads version 1"), "{error}");

        let mut broken = checkpoint(6);
        broken.snapshot.parameters.means[4] = f32::NAN;
        let error = Checkpoint::read(&broken.write(folder.path()).unwrap()).unwrap_err();
        assert!(error.to_string().contains("`parameters.means` is not finite at element 4"));
    }
}
