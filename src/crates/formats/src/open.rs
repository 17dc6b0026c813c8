//! Reads any file of Gaussians and detects its format.

use std::fs::{self, File};
use std::io::{self, BufReader, Read, Seek};
use std::path::Path;

use splat_mesh::file::GLB_MAGIC;
use splat_mesh::file::ply::{LFS_MESSAGE, LFS_POINTER};

use crate::antimatter::parse_splat;
use crate::error::{FormatFault, SplatFileError};
use crate::folder::{FolderSource, ZipSource};
use crate::glb::parse_glb;
use crate::ksplat::parse_ksplat;
use crate::ply::parse_ply;
use crate::sog::{META_NAME, read_sog};
use crate::splats::{CheckedSplats, Splats};
use crate::spz::{GZIP_MAGIC, SPZ_MAGIC, SpzAxes, parse_spz};
use crate::streamed::{LOD_META_NAME, read_streamed};

/// Magic bytes of PLY and zip.
const PLY_MAGIC: &[u8] = b"ply";
const ZIP_MAGIC: &[u8] = b"PK";

const EMPTY_TEXT: &str = "is empty (0 bytes). Copy or export the file again";

const PAGE_TEXT: &str = "is a page for browsers, which is not read back. Give the file that it was \
                         exported from";

const BUFFER_BYTES: usize = 1 << 20;

/// Formats that can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SplatFileKind {
    /// PLY of 3D Gaussian splatting.
    Ply,
    /// `compressed.ply` of `PlayCanvas`.
    PackedPly,
    /// `.splat` of antimatter15.
    Splat,
    /// SPZ of Niantic.
    Spz,
    /// `.ksplat` of `GaussianSplats3D`.
    Ksplat,
    /// SOG of `PlayCanvas`, in a zip or a folder.
    Sog,
    /// Streamed SOG; only the finest level is read.
    StreamedSog,
    /// glTF with `KHR_gaussian_splatting`.
    Glb,
}

/// Gaussians from a file.
#[derive(Clone, Debug, PartialEq)]
pub struct ReadSplats {
    /// The Gaussians.
    pub splats: Splats,
    /// Format of the file.
    pub kind: SplatFileKind,
    /// Number of rows that were dropped because of a non-finite value or a zero rotation.
    pub dropped: usize,
    /// Messages for the user about content that `splats` does not hold.
    pub notes: Vec<String>,
}

/// Reads Gaussians from a file or folder. The format is detected by content, except for `.splat` and `.ksplat`, which
/// are detected by name.
pub fn read(path: &Path) -> Result<ReadSplats, SplatFileError> {
    read_with_axes(path, None)
}

/// Reads Gaussians like [`read()`]. `spz_axes` overrides the axes of an SPZ file.
pub fn read_with_axes(
    path: &Path,
    spz_axes: Option<SpzAxes>,
) -> Result<ReadSplats, SplatFileError> {
    let refused = |source| SplatFileError::unreadable(path, source);
    if fs::metadata(path).map_err(refused)?.is_dir() {
        return read_folder(path, path);
    }
    let mut file = File::open(path).map_err(refused)?;
    let length = file.metadata().map_err(refused)?.len();
    let mut start = Vec::new();
    (&mut file).take(LFS_POINTER.len() as u64).read_to_end(&mut start).map_err(refused)?;
    file.rewind().map_err(refused)?;
    let other = match start.as_slice() {
        [] => Some(EMPTY_TEXT),
        _ if start.starts_with(LFS_POINTER) => Some(LFS_MESSAGE),
        _ => is_page(path, &start).then_some(PAGE_TEXT),
    };
    if let Some(text) = other {
        return Err(SplatFileError::content(path, FormatFault::Unsupported(text.to_owned())));
    }
    let Some(kind) = kind_of(path, &start) else {
        return Err(SplatFileError::Unknown { path: path.to_owned() });
    };
    if kind == SplatFileKind::Sog && !start.starts_with(ZIP_MAGIC) {
        return read_folder(path, folder_of(path));
    }
    parse(kind, file, length, spz_axes).map_err(|fault| SplatFileError::content(path, fault))
}

fn with_kind(checked: CheckedSplats, kind: SplatFileKind) -> ReadSplats {
    let CheckedSplats { splats, dropped, notes } = checked;
    ReadSplats { splats, kind, dropped, notes }
}

fn has_end(path: &Path, end: &str) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name.to_ascii_lowercase().ends_with(end)
}

/// True if the file is HTML, by its first four bytes or its name.
fn is_page(path: &Path, start: &[u8]) -> bool {
    start.get(..4).is_some_and(|it| it.eq_ignore_ascii_case(b"<!do")) || has_end(path, ".html")
}

/// Detects a format. JSON by the name `meta.json` is a SOG.
fn kind_of(path: &Path, start: &[u8]) -> Option<SplatFileKind> {
    let ends = |end: &str| has_end(path, end);
    Some(match start {
        _ if start.starts_with(PLY_MAGIC) => SplatFileKind::Ply,
        _ if start.starts_with(&GLB_MAGIC) => SplatFileKind::Glb,
        _ if start.starts_with(&SPZ_MAGIC) || start.starts_with(&GZIP_MAGIC) => SplatFileKind::Spz,
        _ if start.starts_with(ZIP_MAGIC) || ends(META_NAME) => SplatFileKind::Sog,
        _ if ends(".splat") => SplatFileKind::Splat,
        _ if ends(".ksplat") => SplatFileKind::Ksplat,
        _ => return None,
    })
}

fn parse(
    kind: SplatFileKind,
    mut file: File,
    length: u64,
    spz_axes: Option<SpzAxes>,
) -> Result<ReadSplats, FormatFault> {
    let mut whole = || -> io::Result<Vec<u8>> {
        let mut bytes = Vec::with_capacity(usize::try_from(length).unwrap_or(0));
        file.read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    let checked = match kind {
        SplatFileKind::Ply | SplatFileKind::PackedPly => {
            let read = parse_ply(&mut BufReader::with_capacity(BUFFER_BYTES, file), length)?;
            let kind = if read.is_packed { SplatFileKind::PackedPly } else { SplatFileKind::Ply };
            return Ok(with_kind(read.checked, kind));
        }
        SplatFileKind::Sog | SplatFileKind::StreamedSog => {
            read_sog(&mut ZipSource::new(BufReader::new(file), length)?)?
        }
        SplatFileKind::Splat => parse_splat(&whole()?)?,
        SplatFileKind::Spz => parse_spz(&whole()?, spz_axes)?,
        SplatFileKind::Ksplat => parse_ksplat(&whole()?)?,
        SplatFileKind::Glb => parse_glb(&whole()?)?,
    };
    Ok(with_kind(checked, kind))
}

/// Reads a SOG from a folder; errors name `path`.
fn read_folder(path: &Path, folder: &Path) -> Result<ReadSplats, SplatFileError> {
    let mut parts =
        FolderSource::open(folder).map_err(|source| SplatFileError::unreadable(path, source))?;
    let is_there = |name: &str| folder.join(name).is_file();
    let is_streamed = match path.file_name().and_then(|name| name.to_str()) {
        Some(LOD_META_NAME) => true,
        Some(META_NAME) => false,
        _ => is_there(LOD_META_NAME),
    };
    let (kind, read) = if is_streamed {
        (SplatFileKind::StreamedSog, read_streamed(&mut parts))
    } else if is_there(META_NAME) {
        (SplatFileKind::Sog, read_sog(&mut parts))
    } else {
        return Err(SplatFileError::Unknown { path: path.to_owned() });
    };
    Ok(with_kind(read.map_err(|fault| SplatFileError::content(path, fault))?, kind))
}

/// Returns the folder of a file.
pub fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}
