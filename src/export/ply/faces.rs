//! The triangles of a PLY, and what its comments say of how they are drawn.

use std::io::{self, Read, Write};
use std::path::Path;

use splat_mesh::file::ply::{NewPlyHeader, PlyElement, Scalar};

use super::error::{PlyError, PlyFacesError};
use crate::ply::{PlyFileError, VertexHeader, rows_within};

/// What lists of vertices are called.
const LISTS: [&str; 2] = ["vertex_indices", "vertex_index"];

/// The word of the comment `SplatRenderMode` for triangles.
pub(super) const RENDER_MODE: &str = "SplatRenderMode: triangles";

/// What begins the comments of [`StoredWindow`].
const EXPONENT: &str = "SplatWindowExponent: ";
const OPACITY_FLOOR: &str = "SplatOpacityFloor: ";

/// Bytes of a triangle as this program writes it: the number of its corners, and these.
pub(super) const FACE_BYTES: usize = 1 + 3 * size_of::<u32>();

/// Triangles that are laid out at a time: about a hundred kilobytes.
const FACES_AT_ONCE: usize = 8192;

/// How a file's triangles were drawn when it was saved.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StoredWindow {
    /// Exponent of their window: 1 is a pyramid, next to 0 a solid triangle.
    pub exponent: f64,
    /// The opacity that every vertex has at least: of a logit w it is floor + (1 - floor) sigmoid(w).
    pub opacity_floor: f64,
}

impl StoredWindow {
    /// That of a run that is over, which a file has that says nothing of it.
    pub const SOLID: Self = Self { exponent: 1e-4, opacity_floor: 0.9999 };

    /// Appends the comments that say it.
    pub(super) fn describe(self, header: &mut NewPlyHeader) {
        let Self { exponent, opacity_floor } = self;
        header.comment(RENDER_MODE);
        header.comment(format_args!("{EXPONENT}{exponent}"));
        header.comment(format_args!("{OPACITY_FLOOR}{opacity_floor}"));
    }

    fn of(path: &Path, header: &VertexHeader) -> Result<Self, PlyFacesError> {
        let number = |key: &'static str, allowed: &'static str, is: fn(f64) -> bool| {
            let said = header.header.comments.iter().find_map(|comment| comment.strip_prefix(key));
            let Some(value) = said else { return Ok(None) };
            value.parse().ok().filter(|&value| is(value)).map(Some).ok_or_else(|| {
                let (path, value) = (path.to_owned(), value.to_owned());
                PlyFacesError::Comment { path, key, value, allowed }
            })
        };
        let exponent = number(EXPONENT, "0 and more", |it| it >= 0.0 && it.is_finite())?;
        let floor = number(OPACITY_FLOOR, "0 and more, below 1", |it| (0.0..1.0).contains(&it))?;
        Ok(Self {
            exponent: exponent.unwrap_or(Self::SOLID.exponent),
            opacity_floor: floor.unwrap_or(Self::SOLID.opacity_floor),
        })
    }
}

/// The triangles of a file.
#[derive(Clone, Debug, PartialEq)]
pub struct PlyTriangles {
    /// Three rows of each.
    pub faces: Vec<[u32; 3]>,
    /// How they are drawn.
    pub window: StoredWindow,
}

/// True if a file holds triangles between its rows, and these have no scales.
pub(super) fn are_in(header: &VertexHeader) -> bool {
    let says_so = header.header.comments.iter().any(|comment| comment == RENDER_MODE);
    let has_faces = header.after().iter().any(|element| element.name == "face");
    says_so || (has_faces && !header.vertices().has("scale_0"))
}

/// Where the triangles of a file lie.
#[derive(Debug)]
pub(super) struct FaceLayout {
    window: StoredWindow,
    faces: usize,
    row_bytes: usize,
    /// Bytes of a row before the list.
    start: usize,
    /// The type of the number of corners.
    count: Scalar,
    /// The type of the corners.
    corner: Scalar,
}

impl FaceLayout {
    /// Finds them behind so many bytes, the last of the vertices.
    pub(super) fn of(
        path: &Path,
        header: &VertexHeader,
        vertices_end: u64,
        file_bytes: u64,
    ) -> Result<Self, PlyError> {
        let window = StoredWindow::of(path, header)?;
        // What lies between is of a length that its own reader knows.
        let element = header.after().first().filter(|element| element.name == "face");
        let element = element.ok_or_else(|| PlyFacesError::Missing { path: path.to_owned() })?;
        let (mut list, mut row_bytes) = (None, 0);
        for property in &element.properties {
            match property.list {
                None => row_bytes += property.scalar.bytes(),
                Some(count)
                    if LISTS.contains(&property.name.as_str())
                        && list.is_none()
                        && !property.scalar.is_float() =>
                {
                    list = Some((row_bytes, count, property.scalar));
                    row_bytes += count.bytes() + 3 * property.scalar.bytes();
                }
                Some(_) => {
                    let (path, found) = (path.to_owned(), format!("property {property}"));
                    return Err(PlyFacesError::Property { path, found }.into());
                }
            }
        }
        let Some((start, count, corner)) = list else {
            let (path, found) = (path.to_owned(), "no list of vertices".to_owned());
            return Err(PlyFacesError::Property { path, found }.into());
        };
        let &PlyElement { rows, .. } = element;
        let faces = rows_within(path, rows, row_bytes, file_bytes.saturating_sub(vertices_end))?;
        Ok(Self { window, faces, row_bytes, start, count, corner })
    }

    /// Bytes of all rows.
    pub(super) fn bytes(&self) -> u64 {
        (self.faces as u64).saturating_mul(self.row_bytes as u64)
    }

    /// Reads them from where they begin, of so many vertices.
    pub(super) fn read(
        &self,
        path: &Path,
        input: &mut impl Read,
        vertices: usize,
    ) -> Result<PlyTriangles, PlyError> {
        let mut faces = Vec::with_capacity(self.faces);
        let mut chunk = vec![0; FACES_AT_ONCE.min(self.faces) * self.row_bytes];
        while faces.len() < self.faces {
            let rows = FACES_AT_ONCE.min(self.faces - faces.len());
            let chunk = &mut chunk[..rows * self.row_bytes];
            input.read_exact(chunk).map_err(|source| PlyFileError::unreadable(path, source))?;
            for row in chunk.chunks_exact(self.row_bytes) {
                let face = self
                    .face(row, vertices)
                    .map_err(|fault| fault.at(path, faces.len(), vertices))?;
                faces.push(face);
            }
        }
        Ok(PlyTriangles { faces, window: self.window })
    }

    fn face(&self, row: &[u8], vertices: usize) -> Result<[u32; 3], FaceFault> {
        let value = |scalar: Scalar, at: usize| scalar.value(&row[at..]).unwrap_or(f64::NAN);
        let corners = value(self.count, self.start);
        if corners != 3.0 {
            return Err(FaceFault::Corners(corners));
        }
        let first = self.start + self.count.bytes();
        let mut face = [0; 3];
        for (i, corner) in face.iter_mut().enumerate() {
            let vertex = value(self.corner, first + i * self.corner.bytes());
            if !(0.0..vertices as f64).contains(&vertex) {
                return Err(FaceFault::NoVertex(vertex));
            }
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "a whole number of 32 bits that is not below 0"
            )]
            let vertex = vertex as u32;
            *corner = vertex;
        }
        Ok(face)
    }
}

/// What is wrong with a face.
enum FaceFault {
    Corners(f64),
    NoVertex(f64),
}

impl FaceFault {
    fn at(self, path: &Path, face: usize, vertices: usize) -> PlyFacesError {
        let path = path.to_owned();
        match self {
            Self::Corners(corners) => PlyFacesError::Corners { path, face, corners },
            Self::NoVertex(vertex) => PlyFacesError::NoVertex { path, face, vertex, vertices },
        }
    }
}

/// Writes triangles, all of whose corners are among so many vertices.
pub(super) fn write(out: &mut dyn Write, faces: &[[u32; 3]], vertices: usize) -> io::Result<()> {
    let invalid = |problem| io::Error::new(io::ErrorKind::InvalidInput, problem);
    if i32::try_from(vertices).is_err() {
        let problem = format!("{vertices} vertices, of which faces can name 2,147,483,647");
        return Err(invalid(problem));
    }
    let mut bytes = Vec::with_capacity(FACE_BYTES * FACES_AT_ONCE.min(faces.len()));
    for (part, faces) in faces.chunks(FACES_AT_ONCE).enumerate() {
        bytes.clear();
        for (at, face) in faces.iter().enumerate() {
            if let Some(vertex) = face.iter().find(|&&vertex| vertex as usize >= vertices) {
                let face = part * FACES_AT_ONCE + at;
                return Err(invalid(format!("face {face} names vertex {vertex} of {vertices}")));
            }
            bytes.push(3);
            face.iter().for_each(|vertex| bytes.extend_from_slice(&vertex.to_le_bytes()));
        }
        out.write_all(&bytes)?;
    }
    Ok(())
}
