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
        let mut header = serde_json::to_string(&Metadata::new(Some(about), tensors)?)?;
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
