//! Recognition of the files that `-c`, `--init` and `--start-checkpoint` take.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use super::exit::DataError;
use super::folder;
use super::output::shell_word;
use super::scene::absolute;
use crate::train::checkpoint;

/// First bytes of a zip archive, the format of `torch.save`.
const ZIP: &[u8] = b"PK\x03\x04";

/// Number of inspected bytes. The name of a zip's first entry lies within them.
const INSPECTED_BYTES: u64 = 1 << 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FileKind {
    Folder,
    /// PLY of any content.
    Ply,
    /// Checkpoint of this program.
    Checkpoint,
    /// File of `torch.save`.
    PyTorch,
    /// Other file, or none.
    Other,
}

impl FileKind {
    fn of(path: &Path) -> Self {
        if path.is_dir() {
            return Self::Folder;
        }
        let mut start = Vec::new();
        let opened =
            File::open(path).and_then(|file| file.take(INSPECTED_BYTES).read_to_end(&mut start));
        let extension = path.extension().and_then(OsStr::to_str).unwrap_or_default();
        let contains = |words: &[u8]| start.windows(words.len()).any(|window| window == words);
        match opened {
            Err(_) => Self::Other,
            Ok(_) if start.starts_with(b"ply") => Self::Ply,
            Ok(_) if checkpoint::is_checkpoint(path) => Self::Checkpoint,
            Ok(_) if start.starts_with(ZIP) && contains(b"/data.pkl") => Self::PyTorch,
            Ok(_) if ["pt", "pth", "ckpt"].contains(&extension) => Self::PyTorch,
            Ok(_) => Self::Other,
        }
    }
}

/// Rejects files that `-c` cannot read. It reads model folders and PLY files.
pub(super) fn check_coarse_model(path: &Path) -> Result<(), DataError> {
    match FileKind::of(path) {
        FileKind::PyTorch => Err(pytorch(path, "-c")),
        FileKind::Checkpoint => Err(DataError(format!(
            "-c {}: is a checkpoint. Continue its run with --start-checkpoint; to start a coarse stage, {}",
            path.display(),
            with_ply(path, "-c")
        ))),
        FileKind::Folder | FileKind::Ply | FileKind::Other => Ok(()),
    }
}

/// Returns the model folder of `--coarse-checkpoint`, and the iteration if the path is a point cloud in it.
pub(super) fn model_folder_of(path: &Path) -> Result<(PathBuf, Option<u32>), DataError> {
    let shown = path.display();
    let of_ply = path.ancestors().nth(3).map(parent_or_here).and_then(|folder| {
        let clouds = folder::point_clouds(&folder);
        let (iteration, _) = clouds.into_iter().find(|(_, ply)| absolute(ply) == absolute(path))?;
        Some((folder, Some(iteration)))
    });
    match (FileKind::of(path), of_ply) {
        (FileKind::Folder, _) => Ok((path.to_owned(), None)),
        (FileKind::PyTorch, _) => Err(pytorch(path, "--coarse-checkpoint")),
        (FileKind::Ply, Some(found)) => Ok(found),
        (FileKind::Ply, None) => Err(DataError(format!(
            "--coarse-checkpoint {shown}: lies in no model folder (MODEL/point_cloud/iteration_N), so its scene is unknown. \
             To train it further: -c {}",
            shell_word(path)
        ))),
        _ => Err(DataError(format!(
            "--coarse-checkpoint {shown}: is neither a model folder nor a PLY in one. Name the folder of a model"
        ))),
    }
}

/// Rejects files that `--init` cannot read. It reads PLY files.
pub(super) fn check_init(path: &Path) -> Result<(), DataError> {
    match FileKind::of(path) {
        FileKind::PyTorch => Err(pytorch(path, "--init")),
        FileKind::Checkpoint => Err(DataError(format!(
            "--init {}: is a checkpoint. Continue its run with --start-checkpoint; to start another, {}",
            path.display(),
            with_ply(path, "--init")
        ))),
        FileKind::Folder => Err(DataError(format!(
            "--init {}: is a folder, not a PLY. For a run from its Gaussians, {}; for SuGaR's coarse \
             stage, use -c {}",
            path.display(),
            with_ply_in(path, None, "--init"),
            shell_word(path)
        ))),
        FileKind::Ply | FileKind::Other => Ok(()),
    }
}

/// Rejects files that `--start-checkpoint` cannot read. It reads this program's checkpoints.
pub(super) fn check_checkpoint(path: &Path) -> Result<(), DataError> {
    let shown = path.display();
    match FileKind::of(path) {
        FileKind::PyTorch => Err(pytorch(path, "--start-checkpoint")),
        FileKind::Ply => Err(DataError(format!(
            "--start-checkpoint {shown}: is a PLY, not a checkpoint. Use --init {}, or -c for SuGaR's coarse stage",
            shell_word(path)
        ))),
        FileKind::Folder => Err(DataError(match checkpoint::list(path).first() {
            Some(newest) => format!(
                "--start-checkpoint {shown}: is a folder. To continue its run, use --resume -m {}; to start \
                 another from its newest checkpoint, --start-checkpoint {}",
                shell_word(path),
                shell_word(newest)
            ),
            None => format!(
                "--start-checkpoint {shown}: is a folder, not a checkpoint. Name a \
                 MODEL/checkpoints/chkpnt_N.safetensors"
            ),
        })),
        FileKind::Checkpoint | FileKind::Other => Ok(()),
    }
}

fn pytorch(path: &Path, flag: &str) -> DataError {
    let wanted = if flag == "-c" || flag == "--coarse-checkpoint" { "-c" } else { "--init" };
    DataError(format!(
        "{flag} {}: is a PyTorch checkpoint, which this program does not read. Start from the PLY of its run: {}",
        path.display(),
        with_ply(path, wanted)
    ))
}

/// Returns advice to use the PLY of a checkpoint's run, of the same iteration if possible.
pub(super) fn with_ply(checkpoint: &Path, flag: &str) -> String {
    let name = checkpoint.file_stem().and_then(OsStr::to_str).unwrap_or_default();
    let digits: String = name.chars().filter(char::is_ascii_digit).collect();
    // Checkpoints of the reference lie in the model folder, those of this program one folder below.
    let folders = checkpoint.ancestors().skip(1).take(2);
    let model = folders.map(parent_or_here).find(|folder| !folder::point_clouds(folder).is_empty());
    with_ply_in(&model.unwrap_or_default(), digits.parse().ok(), flag)
}

/// Returns advice to use a PLY of this model folder, of the iteration or else the last.
fn with_ply_in(model: &Path, iteration: Option<u32>, flag: &str) -> String {
    let found = folder::point_clouds(model);
    let same = found.iter().find(|(saved, _)| Some(*saved) == iteration);
    match same.or(found.last()) {
        Some((_, ply)) => format!("use {flag} {}", shell_word(ply)),
        None => format!("use {flag} MODEL/point_cloud/iteration_N/point_cloud.ply"),
    }
}

fn parent_or_here(folder: &Path) -> PathBuf {
    if folder.as_os_str().is_empty() { PathBuf::from(".") } else { folder.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_kinds_are_recognised_by_content() {
        let folder = tempfile::tempdir().unwrap();
        let kind = |name: &str, content: &[u8]| {
            let path = folder.path().join(name);
            std::fs::write(&path, content).unwrap();
            FileKind::of(&path)
        };
        let zip = b"PK\x03\x04\0\0\0\0archive/data.pkl";
        assert_eq!(kind("a.zip", zip), FileKind::PyTorch);
        assert_eq!(kind("a.pth", b"\x80\x02\x8a"), FileKind::PyTorch);
        assert_eq!(kind("a.pt", b"ply\nformat"), FileKind::Ply);
        assert_eq!(kind("b.zip", b"PK\x03\x04photographs"), FileKind::Other);
        assert_eq!(kind("a.safetensors", b"\x02\0\0\0\0\0\0\0{}"), FileKind::Other);
        assert_eq!(FileKind::of(folder.path()), FileKind::Folder);
        assert_eq!(FileKind::of(&folder.path().join("nothing.pt")), FileKind::Other);
    }
}
