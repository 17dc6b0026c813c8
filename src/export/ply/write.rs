//! Writing a model as a PLY file.

use std::borrow::Borrow;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use splat_formats::{MIP_COMMENT, SURFELS_COMMENT};
use splat_mesh::file::ply::NewPlyHeader;
use splat_mesh::narrow::round_u8;

use super::fields::{self, FACE_BYTES, Meaning, PlyField, PlyRows, StoredWindow};
use crate::dataset::Frame;
use crate::files::{NewFile, OutputError};
use crate::layout::Width;
use crate::math::{Real as _, sh};
use crate::model::{Gaussians, Group, TriangleMesh, unit_rotation};

/// Rows of a write: about a megabyte.
const ROWS_AT_ONCE: usize = 4096;
const BUFFER_BYTES: usize = 1 << 20;

/// Way in which Gaussians are meant to be drawn.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum RenderMode {
    /// Splats widened by 0.3 px².
    #[default]
    Dilated,
    /// Splats with the screen filter of Mip-Splatting.
    Mip,
    /// Discs with two scales in the file (2D Gaussian splatting).
    Surfels,
    /// Vertices of triangles, without scales and rotations.
    Triangles {
        /// Window of the triangles.
        window: StoredWindow,
        /// Number of triangles.
        faces: usize,
    },
}

impl RenderMode {
    fn describe(self, header: &mut NewPlyHeader) {
        match self {
            Self::Dilated => {}
            Self::Mip => _ = header.comment(MIP_COMMENT),
            Self::Surfels => _ = header.comment(SURFELS_COMMENT),
            Self::Triangles { window, .. } => window.describe(header),
        }
    }

    fn fields<P: PlyRows>(self) -> &'static [PlyField] {
        match (self, P::VERTEX) {
            (Self::Triangles { .. }, Some(vertex)) => vertex.fields,
            _ => P::FIELDS,
        }
    }

    /// Returns the names of a field's values in the file, for `harmonics` values of harmonics.
    fn names<P: PlyRows>(self, field: PlyField, harmonics: usize) -> Vec<String> {
        let mut names = field.names(harmonics);
        if self == Self::Surfels {
            names.retain(|name| P::FLAT.is_none_or(|flat| name != flat.name));
        }
        names
    }

    fn faces(self) -> usize {
        match self {
            Self::Triangles { faces, .. } => faces,
            Self::Dilated | Self::Mip | Self::Surfels => 0,
        }
    }
}

/// Format and coordinates of a PLY.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PlyStyle {
    /// Primitive of the rows.
    pub mode: RenderMode,
    /// Coordinates of the rows in memory. The file keeps their offset, named in a comment, and uses the scene's unit.
    pub frame: Frame,
}

impl From<RenderMode> for PlyStyle {
    fn from(mode: RenderMode) -> Self {
        Self { mode, frame: Frame::SCENE }
    }
}

/// Writes a model as binary little-endian PLY, all columns `float`. The columns of Gaussians are `x y z nx ny nz
/// f_dc_* f_rest_* opacity scale_* rot_*`: 62 at SH degree 3. Normals are zero, rotations of unit length.
///
/// Uses about two megabytes beyond the argument. A failure leaves the old file.
pub fn write_ply<P: PlyRows>(path: &Path, primitives: &P) -> Result<(), OutputError> {
    let (sh_degree, count) = (primitives.sh_degree(), primitives.len());
    let chunks = [Ok::<_, OutputError>(primitives)];
    write_ply_chunks::<P, _, _>(path, RenderMode::default(), sh_degree, count, chunks)
}

/// Writes a model of `count` rows as [`write_ply`] does, from chunks. Holds one chunk at a time.
pub fn write_ply_chunks<P: PlyRows, C: Borrow<P>, E: From<OutputError>>(
    path: &Path,
    style: impl Into<PlyStyle>,
    sh_degree: u32,
    count: usize,
    chunks: impl IntoIterator<Item = Result<C, E>>,
) -> Result<(), E> {
    NewPly::begin(path, style, sh_degree, count)?.write::<P, C, E>(chunks)
}

/// Writes triangles as binary little-endian PLY: their vertices as `x y z red green blue f_dc_* f_rest_*
/// opacity`, the colours in 8 bits for viewers, and the faces as lists of three.
pub fn write_ply_triangles(
    path: &Path,
    mesh: &TriangleMesh,
    window: StoredWindow,
) -> Result<(), OutputError> {
    let TriangleMesh { vertices, faces } = mesh;
    let mode = RenderMode::Triangles { window, faces: faces.len() };
    let ply = NewPly::begin(path, mode, vertices.sh_degree, vertices.len())?;
    ply.write_triangles::<Gaussians, _, OutputError>([Ok(vertices)], faces)
}

/// A PLY to be written.
#[derive(Debug)]
pub struct NewPly {
    path: PathBuf,
    file: NewFile,
    style: PlyStyle,
    sh_degree: u32,
    count: usize,
}

impl NewPly {
    /// Starts a file without reserving disk space.
    pub fn begin(
        path: &Path,
        style: impl Into<PlyStyle>,
        sh_degree: u32,
        count: usize,
    ) -> Result<Self, OutputError> {
        let (path, file) = (path.to_owned(), NewFile::begin(path)?);
        Ok(Self { path, file, style: style.into(), sh_degree, count })
    }

    /// Starts a file with all of its disk space, so that a full disk fails now. Returns `None` if the file system
    /// cannot reserve space.
    pub fn with_room<P: PlyRows>(
        path: &Path,
        style: impl Into<PlyStyle>,
        sh_degree: u32,
        count: usize,
    ) -> Result<Option<Self>, OutputError> {
        let style = style.into();
        let row: usize = fields::<P>(style.mode, sh_degree).iter().map(WrittenField::bytes).sum();
        let header = header::<P>(&style, sh_degree, count).len();
        let bytes = (header + row * count + FACE_BYTES * style.mode.faces()) as u64;
        let file = NewFile::with_room(path, bytes)?;
        Ok(file.map(|file| Self { path: path.to_owned(), file, style, sh_degree, count }))
    }

    /// Writes the rows from chunks and moves the file into place. A failure leaves the old file.
    pub fn write<P: PlyRows, C: Borrow<P>, E: From<OutputError>>(
        self,
        chunks: impl IntoIterator<Item = Result<C, E>>,
    ) -> Result<(), E> {
        self.write_triangles(chunks, &[])
    }

    /// Writes the rows and the triangles between them as [`Self::write`] does.
    pub fn write_triangles<P: PlyRows, C: Borrow<P>, E: From<OutputError>>(
        self,
        chunks: impl IntoIterator<Item = Result<C, E>>,
        triangles: &[[u32; 3]],
    ) -> Result<(), E> {
        let Self { path, file, style, sh_degree, count } = self;
        let PlyStyle { mode, frame } = style;
        let fail = |source| OutputError::new(&path, source);
        if triangles.len() != mode.faces() {
            let problem = format!("{} of {} triangles came", triangles.len(), mode.faces());
            return Err(fail(invalid(problem)).into());
        }
        file.finish(|file| {
            let mut out = BufWriter::with_capacity(BUFFER_BYTES, file);
            out.write_all(&header::<P>(&style, sh_degree, count)).map_err(fail)?;
            let fields = fields::<P>(mode, sh_degree);
            let mut written = 0;
            for chunk in chunks {
                let chunk = chunk?;
                let rows: &P = chunk.borrow();
                check(rows, sh_degree).map_err(fail)?;
                write_rows(&mut out, rows, &fields, &frame).map_err(fail)?;
                written += rows.len();
            }
            if written != count {
                let problem = format!("{written} of {count} {} came", P::SCHEMA.many());
                return Err(fail(invalid(problem)).into());
            }
            fields::write(&mut out, triangles, count).map_err(fail)?;
            out.flush().map_err(fail)?;
            Ok(())
        })
    }
}

fn invalid(problem: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, problem)
}

/// Fails unless all columns have a value for each primitive.
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

/// Returns the number of values of a row above degree 0.
fn harmonics(sh_degree: u32) -> usize {
    // `check` refuses a degree above 3.
    Width::ShRest.values(sh_degree.min(3)) as usize
}

fn header<P: PlyRows>(style: &PlyStyle, sh_degree: u32, count: usize) -> Vec<u8> {
    let mode = style.mode;
    let mut header = NewPlyHeader::default();
    header.element("vertex", count);
    mode.describe(&mut header);
    header.offset(style.frame.offset);
    for &field in mode.fields::<P>() {
        header.properties(field.scalar(), mode.names::<P>(field, harmonics(sh_degree)));
    }
    if let RenderMode::Triangles { faces, .. } = mode {
        header.triangles(faces);
    }
    header.end()
}

struct WrittenField {
    field: PlyField,
    values: usize,
}

impl WrittenField {
    fn bytes(&self) -> usize {
        self.values * self.field.scalar().bytes()
    }
}

fn fields<P: PlyRows>(mode: RenderMode, sh_degree: u32) -> Vec<WrittenField> {
    let written = |&field: &PlyField| {
        let values = mode.names::<P>(field, harmonics(sh_degree)).len();
        WrittenField { field, values }
    };
    mode.fields::<P>().iter().map(written).collect()
}

fn write_rows<P: PlyRows>(
    out: &mut dyn Write,
    primitives: &P,
    fields: &[WrittenField],
    frame: &Frame,
) -> io::Result<()> {
    let (n, groups) = (primitives.len(), primitives.groups());
    let mut chunk = Vec::new();
    for start in (0..n).step_by(ROWS_AT_ONCE) {
        chunk.clear();
        for row in start..n.min(start + ROWS_AT_ONCE) {
            for field in fields {
                put(field, &groups, row, frame, &mut chunk);
            }
        }
        out.write_all(&chunk)?;
    }
    Ok(())
}

/// Appends a row's values of a field in the order of the file.
fn put(written: &WrittenField, groups: &[Group<'_>], row: usize, frame: &Frame, to: &mut Vec<u8>) {
    let values = |column: usize| {
        let Group { width, values, .. } = groups[column];
        &values[row * width..][..written.values]
    };
    let mut put = |value: f32| to.extend_from_slice(&value.to_le_bytes());
    match written.field {
        PlyField::Zeros(names) => names.iter().for_each(|_| put(0.0)),
        PlyField::Colors { column, .. } => {
            let color = |harmonic: &f32| (0.5 + harmonic * sh::C0.to_f32()).clamp(0.0, 1.0) * 255.0;
            to.extend(values(column).iter().map(|harmonic| round_u8(color(harmonic).into())));
        }
        PlyField::Values { column, meaning, .. } => match (meaning, values(column)) {
            (Meaning::Position, &[x, y, z]) if frame.unit != 1.0 => {
                let place = frame.to(&frame.file(), [x, y, z].map(f64::from));
                place.into_iter().for_each(|x| put(x.to_f32()));
            }
            (Meaning::LogLength, lengths) if frame.unit != 1.0 => {
                let log_unit = frame.unit_in(&frame.file()).ln();
                lengths.iter().for_each(|&it| put((f64::from(it) + log_unit).to_f32()));
            }
            (_, values) => values.iter().copied().for_each(put),
        },
        PlyField::Rotation { column, .. } => match values(column).first_chunk() {
            Some(&quat) => unit_rotation(quat).into_iter().for_each(put),
            None => values(column).iter().copied().for_each(put),
        },
        PlyField::Harmonics { column, .. } => {
            for channel in 0..3 {
                values(column).iter().skip(channel).step_by(3).copied().for_each(&mut put);
            }
        }
    }
}
