//! Writing a model as a PLY file.

use std::borrow::Borrow;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use super::fields::{PlyField, PlyRows};
use crate::files::{NewFile, OutputError};
use crate::layout::Width;
use crate::model::Group;

/// Rows that are laid out at a time: about a megabyte.
const ROWS_AT_ONCE: usize = 4096;

/// Bytes that reach the file at a time.
const BUFFER_BYTES: usize = 1 << 20;

/// How Gaussians are meant to be drawn, which viewers look for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RenderMode {
    /// Splats widened by 0.3 px².
    #[default]
    Dilated,
    /// With the screen filter of Mip-Splatting.
    Mip,
    /// As discs, of which the file has two scales (2D Gaussian splatting).
    Surfels,
}

impl RenderMode {
    /// The comment by which viewers know it, where there is one.
    fn comment(self) -> Option<&'static str> {
        match self {
            Self::Dilated => None,
            Self::Mip => Some("comment SplatRenderMode: mip\n"),
            Self::Surfels => Some("comment SplatRenderMode: 2dgs\n"),
        }
    }

    /// Names of a field's values in the file, where the harmonics have so many values.
    fn names<P: PlyRows>(self, field: PlyField, harmonics: usize) -> Vec<String> {
        let mut names = field.names(harmonics);
        if self == Self::Surfels {
            names.retain(|name| P::FLAT.is_none_or(|flat| name != flat.name));
        }
        names
    }
}

/// Writes a model as binary little-endian PLY, all columns `float`. Those of Gaussians are `x y z nx ny
/// nz f_dc_* f_rest_* opacity scale_* rot_*`: 62 at SH degree 3. Normals are zero.
///
/// Memory beyond the argument stays at about two megabytes. A failure leaves the old file.
pub fn write_ply<P: PlyRows>(path: &Path, primitives: &P) -> Result<(), OutputError> {
    let (sh_degree, count) = (primitives.sh_degree(), primitives.len());
    let chunks = [Ok::<_, OutputError>(primitives)];
    write_ply_chunks::<P, _, _>(path, RenderMode::default(), sh_degree, count, chunks)
}

/// The same of a model, of an SH degree and so many rows in all, that comes in chunks: no more than
/// one of them is held at a time.
pub fn write_ply_chunks<P: PlyRows, C: Borrow<P>, E: From<OutputError>>(
    path: &Path,
    mode: RenderMode,
    sh_degree: u32,
    count: usize,
    chunks: impl IntoIterator<Item = Result<C, E>>,
) -> Result<(), E> {
    let (path, file) = (path.to_owned(), NewFile::begin(path)?);
    NewPly { path, file, mode, sh_degree, count }.write::<P, C, E>(chunks)
}

/// A PLY that is to be written.
#[derive(Debug)]
pub struct NewPly {
    path: PathBuf,
    file: NewFile,
    mode: RenderMode,
    sh_degree: u32,
    /// Rows.
    count: usize,
}

impl NewPly {
    /// One that has its room on the disk, so that a full disk shows now; nothing where the file system
    /// keeps no room.
    pub fn with_room<P: PlyRows>(
        path: &Path,
        mode: RenderMode,
        sh_degree: u32,
        count: usize,
    ) -> Result<Option<Self>, OutputError> {
        let values: usize = fields::<P>(mode, sh_degree).iter().map(|it| it.values).sum();
        let header = header::<P>(mode, sh_degree, count).len();
        let bytes = (header + size_of::<f32>() * values * count) as u64;
        let file = NewFile::with_room(path, bytes)?;
        Ok(file.map(|file| Self { path: path.to_owned(), file, mode, sh_degree, count }))
    }

    /// Writes the rows, in chunks, and lets the file appear. A failure leaves the old file.
    pub fn write<P: PlyRows, C: Borrow<P>, E: From<OutputError>>(
        self,
        chunks: impl IntoIterator<Item = Result<C, E>>,
    ) -> Result<(), E> {
        let Self { path, file, mode, sh_degree, count } = self;
        let fail = |source| OutputError::new(&path, source);
        file.finish(|file| {
            let mut out = BufWriter::with_capacity(BUFFER_BYTES, file);
            out.write_all(header::<P>(mode, sh_degree, count).as_bytes()).map_err(fail)?;
            let fields = fields::<P>(mode, sh_degree);
            let mut written = 0;
            for chunk in chunks {
                let chunk = chunk?;
                let rows: &P = chunk.borrow();
                check(rows, sh_degree).map_err(fail)?;
                write_rows(&mut out, rows, &fields).map_err(fail)?;
                written += rows.len();
            }
            if written != count {
                let problem = format!("{written} of {count} {} came", P::SCHEMA.many());
                return Err(fail(invalid(problem)).into());
            }
            out.flush().map_err(fail)?;
            Ok(())
        })
    }
}

fn invalid(problem: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, problem)
}

/// All columns have as many rows as there are primitives.
fn check<P: PlyRows>(primitives: &P, sh_degree: u32) -> io::Result<()> {
    let (n, found_degree, many) = (primitives.len(), primitives.sh_degree(), P::SCHEMA.many());
    if found_degree != sh_degree {
        return Err(invalid(format!(
            "{n} {many} of SH degree {found_degree} among those of degree {sh_degree}"
        )));
    }
    let groups = primitives.groups();
    if sh_degree <= 3 && groups.iter().all(|group| group.values.len() == n * group.width) {
        return Ok(());
    }
    let found: Vec<usize> = groups.iter().map(|group| group.values.len()).collect();
    Err(invalid(format!("{n} {many} of SH degree {sh_degree} have columns of {found:?}")))
}

/// Coefficients of a row above degree 0.
fn harmonics(sh_degree: u32) -> usize {
    // A degree above 3 is refused with the first rows.
    Width::ShRest.values(sh_degree.min(3)) as usize
}

fn header<P: PlyRows>(mode: RenderMode, sh_degree: u32, count: usize) -> String {
    let mut text = format!("ply\nformat binary_little_endian 1.0\nelement vertex {count}\n");
    text.extend(mode.comment());
    for name in P::FIELDS.iter().flat_map(|&field| mode.names::<P>(field, harmonics(sh_degree))) {
        text.push_str("property float ");
        text.push_str(&name);
        text.push('\n');
    }
    text.push_str("end_header\n");
    text
}

/// A field, and how many of its values a row of the file has.
struct WrittenField {
    field: PlyField,
    values: usize,
}

fn fields<P: PlyRows>(mode: RenderMode, sh_degree: u32) -> Vec<WrittenField> {
    let written = |&field: &PlyField| {
        let values = mode.names::<P>(field, harmonics(sh_degree)).len();
        WrittenField { field, values }
    };
    P::FIELDS.iter().map(written).collect()
}

fn write_rows<P: PlyRows>(
    out: &mut dyn Write,
    primitives: &P,
    fields: &[WrittenField],
) -> io::Result<()> {
    let (n, groups) = (primitives.len(), primitives.groups());
    let mut chunk = Vec::new();
    for start in (0..n).step_by(ROWS_AT_ONCE) {
        chunk.clear();
        for row in start..n.min(start + ROWS_AT_ONCE) {
            for field in fields {
                put(field, &groups, row, |value| chunk.extend_from_slice(&value.to_le_bytes()));
            }
        }
        out.write_all(&chunk)?;
    }
    Ok(())
}

/// Hands out the values of a field in a row in the order of the file.
fn put(written: &WrittenField, groups: &[Group<'_>], row: usize, mut to: impl FnMut(f32)) {
    let values = |column: usize| {
        let Group { width, values, .. } = groups[column];
        &values[row * width..][..written.values]
    };
    match written.field {
        PlyField::Zeros(names) => names.iter().for_each(|_| to(0.0)),
        PlyField::Values { column, .. } | PlyField::Rotation { column, .. } => {
            values(column).iter().copied().for_each(to);
        }
        PlyField::Harmonics { column, .. } => {
            for channel in 0..3 {
                values(column).iter().skip(channel).step_by(3).copied().for_each(&mut to);
            }
        }
    }
}
