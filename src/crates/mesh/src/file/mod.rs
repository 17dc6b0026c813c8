//! Mesh files: PLY and OBJ, and GLB as this program writes it.
//!
//! A mesh that is not valid is an error of the kind [`InvalidInput`](std::io::ErrorKind::InvalidInput). The caller
//! replaces an old file after the whole new one is written.

mod glb;
mod obj;
pub mod ply;

use std::fs::File;
use std::io::{self, BufReader, Cursor, Write};
use std::path::{Path, PathBuf};

use crate::atlas::Atlas;
use crate::mesh::{Mesh, MeshError, check_mesh};
use crate::narrow::round_u8;

pub use glb::{
    GLB_MAGIC, GLTF_KINDS, Glb, GlbAttribute, GlbChunks, GlbFault, GlbVertices, MOST_GLB_BYTES,
    MeshPicture, PaintedMesh, component, glb_bytes, json_chunk, read_glb, write_chunks,
};
pub use obj::{ObjTexture, read_obj, write_mtl, write_obj};
pub use ply::{parse_ply, read_ply, write_ply};

/// Reads a mesh: OBJ if the extension says so, else PLY. [`read_glb`] reads GLB.
pub fn read_mesh(path: &Path) -> Result<Mesh, MeshFileError> {
    let is = |kind| path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case(kind));
    if is("glb") {
        return Err(MeshFileError::UnreadGlb { path: path.to_owned() });
    }
    if is("obj") { read_obj(path) } else { read_ply(path) }
}

/// Returns the mesh's fault as an error of writing.
fn valid(mesh: &Mesh) -> io::Result<()> {
    check_mesh(mesh).map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))
}

/// Returns a colour of 0 to 1 in 255 steps.
fn byte_of(channel: f32) -> u8 {
    round_u8((channel * 255.0).into())
}

fn open(path: &Path) -> Result<BufReader<File>, MeshFileError> {
    let file = File::open(path).map_err(|source| MeshFileError::unreadable(path, source))?;
    Ok(BufReader::with_capacity(1 << 20, file))
}

fn checked(path: &Path, mesh: Mesh) -> Result<Mesh, MeshFileError> {
    for (what, found) in [("vertices", mesh.vertices.len()), ("faces", mesh.faces.len())] {
        if found == 0 {
            return Err(MeshFileError::Nothing { path: path.to_owned(), what });
        }
    }
    check_mesh(&mesh).map_err(|source| MeshFileError::Mesh { path: path.to_owned(), source })?;
    Ok(mesh)
}

/// Checks that an atlas has the faces of a mesh.
fn check_atlas(atlas: &Atlas, mesh: &Mesh) -> Result<(), MeshFileError> {
    let (found, faces) = (atlas.faces.len(), mesh.faces.len());
    if found == faces { Ok(()) } else { Err(MeshFileError::OtherAtlas { found, faces }) }
}

/// A file that cannot be read as a mesh, or a mesh that does not fit a file.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages name the fields")]
pub enum MeshFileError {
    #[error("{path}: cannot be read: {source}. Check the path and its permissions")]
    Unreadable { path: PathBuf, source: io::Error },
    #[error("{path}, line {line}: {found}. Export the mesh again, or name another file")]
    Line { path: PathBuf, line: usize, found: String },
    #[error("{path}, {element} {row}: {found}. Copy or export the mesh again")]
    Row { path: PathBuf, element: String, row: u64, found: String },
    #[error("{path}: holds no {what}: name a file with a surface, not points alone")]
    Nothing { path: PathBuf, what: &'static str },
    #[error("{path}: a GLB is written here, but not read. Name the same mesh as PLY or OBJ")]
    UnreadGlb { path: PathBuf },
    #[error("{path}: {found}. Name a GLB that splat mesh has written, or a PLY")]
    Glb { path: PathBuf, found: String },
    #[error("{path}: {source}")]
    Mesh { path: PathBuf, source: MeshError },
    #[error(
        "a GLB holds {limit} bytes at most, but this mesh needs {needed}: decimate it, make its \
         texture smaller or write PLY or OBJ"
    )]
    TooLarge { needed: u64, limit: u64 },
    #[error(
        "the atlas has {found} faces, the mesh {faces}: make the atlas of the mesh that is written"
    )]
    OtherAtlas { found: usize, faces: usize },
    #[error("the mesh cannot be written: {0}")]
    Invalid(#[from] MeshError),
}

impl MeshFileError {
    fn unreadable(path: &Path, source: io::Error) -> Self {
        Self::Unreadable { path: path.to_owned(), source }
    }

    fn line(path: &Path, line: usize, found: String) -> Self {
        Self::Line { path: path.to_owned(), line, found }
    }
}

/// Fault of bytes that end too early.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("is truncated: {part} needs {needed} bytes, but there are {found}")]
#[expect(missing_docs, reason = "the message names the fields")]
pub struct Truncated {
    pub part: &'static str,
    pub needed: u64,
    pub found: u64,
}

/// Remaining bytes of an input of little-endian numbers; errors name the part that is read.
#[derive(Clone, Copy, Debug)]
pub struct ByteCursor<'a> {
    rest: &'a [u8],
}

impl<'a> ByteCursor<'a> {
    /// Starts at the first byte.
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// Returns the number of remaining bytes.
    pub const fn left(&self) -> usize {
        self.rest.len()
    }

    /// Takes the next `count` bytes.
    pub fn take(&mut self, part: &'static str, count: usize) -> Result<&'a [u8], Truncated> {
        let (needed, found) = (count as u64, self.rest.len() as u64);
        let (taken, rest) =
            self.rest.split_at_checked(count).ok_or(Truncated { part, needed, found })?;
        self.rest = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self, part: &'static str) -> Result<[u8; N], Truncated> {
        let taken = self.take(part, N)?;
        Ok(taken.first_chunk().copied().unwrap_or([0; N]))
    }

    /// Takes a byte.
    pub fn u8(&mut self, part: &'static str) -> Result<u8, Truncated> {
        self.array(part).map(u8::from_le_bytes)
    }

    /// Takes a number of four bytes.
    pub fn u32(&mut self, part: &'static str) -> Result<u32, Truncated> {
        self.array(part).map(u32::from_le_bytes)
    }

    /// Takes a number of eight bytes.
    pub fn u64(&mut self, part: &'static str) -> Result<u64, Truncated> {
        self.array(part).map(u64::from_le_bytes)
    }
}

/// A picture of 8-bit sRGB.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Picture {
    /// Width in texels.
    pub width: u32,
    /// Height in texels.
    pub height: u32,
    /// Rows from the top, texels from the left, sRGB.
    pub texels: Vec<[u8; 3]>,
}

const MAX_TEXELS: usize = 1 << 28;

/// Fault of a PNG or of its picture.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages name the fields")]
pub enum PictureError {
    #[error(
        "{found} texels do not fill {width} x {height}: give one for each place of the picture"
    )]
    Size { width: u32, height: u32, found: usize },
    #[error("the PNG cannot be read: {0}")]
    Unreadable(#[from] png::DecodingError),
    #[error("the PNG has not 8 bits of three channels each, or more than 16384 x 16384 texels")]
    OtherKind,
    #[error("the PNG cannot be written: {0}. Check the room on the disk and the picture's size")]
    Png(#[from] png::EncodingError),
}

impl Picture {
    /// Returns a picture of one colour.
    pub fn plain(width: u32, height: u32, color: [u8; 3]) -> Self {
        Self { width, height, texels: vec![color; width as usize * height as usize] }
    }

    /// Writes the picture as PNG, marked as sRGB, without converting its values.
    pub fn write_png(&self, out: &mut dyn Write) -> Result<(), PictureError> {
        let &Self { width, height, ref texels } = self;
        if texels.len() as u64 != u64::from(width) * u64::from(height) {
            return Err(PictureError::Size { width, height, found: texels.len() });
        }
        let mut encoder = png::Encoder::new(out, width, height);
        encoder.set_color(png::ColorType::Rgb);
        encoder.set_depth(png::BitDepth::Eight);
        encoder.set_compression(png::Compression::Fast);
        encoder.set_source_srgb(png::SrgbRenderingIntent::Perceptual);
        let mut writer = encoder.write_header()?;
        writer.write_image_data(bytemuck::cast_slice(texels))?;
        Ok(writer.finish()?)
    }

    /// Decodes a PNG of 8 bits and three channels, as this program writes them.
    pub fn from_png(bytes: &[u8]) -> Result<Self, PictureError> {
        let mut reader = png::Decoder::new(Cursor::new(bytes)).read_info()?;
        let (color, depth) = reader.output_color_type();
        if (color, depth) != (png::ColorType::Rgb, png::BitDepth::Eight) {
            return Err(PictureError::OtherKind);
        }
        let png::Info { width, height, .. } = *reader.info();
        let count = u64::from(width) * u64::from(height);
        let mut texels = match usize::try_from(count) {
            Ok(count) if count <= MAX_TEXELS => vec![[0; 3]; count],
            _ => return Err(PictureError::OtherKind),
        };
        reader.next_frame(bytemuck::cast_slice_mut(&mut texels))?;
        Ok(Self { width, height, texels })
    }

    /// Returns the bytes of the picture as a PNG.
    pub fn png(&self) -> Result<Vec<u8>, PictureError> {
        let mut bytes = Cursor::new(Vec::new());
        self.write_png(&mut bytes)?;
        Ok(bytes.into_inner())
    }
}

impl From<PictureError> for io::Error {
    fn from(error: PictureError) -> Self {
        match error {
            PictureError::Png(png::EncodingError::IoError(source)) => source,
            other => Self::new(io::ErrorKind::InvalidInput, other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texels_come_back_as_they_were_marked_as_srgb() {
        let mut picture = Picture::plain(5, 3, [1, 2, 3]);
        picture.texels[7] = [250, 0, 128];
        let bytes = picture.png().unwrap();
        let mut reader = png::Decoder::new(Cursor::new(bytes)).read_info().unwrap();
        let mut texels = vec![0; 45];
        reader.next_frame(&mut texels).unwrap();
        assert_eq!(texels, bytemuck::cast_slice::<_, u8>(&picture.texels));
        assert_eq!((reader.info().width, reader.info().height), (5, 3));
        assert!(reader.info().srgb.is_some());
        assert_eq!(Picture::from_png(&picture.png().unwrap()).unwrap(), picture);
        assert!(Picture::from_png(&[1, 2, 3]).is_err());
        picture.texels.pop();
        let error = picture.png().unwrap_err().to_string();
        assert!(error.contains("14 texels do not fill 5 x 3"), "{error}");
    }
}
