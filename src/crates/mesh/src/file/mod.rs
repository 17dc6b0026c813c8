//! Files of meshes: PLY, OBJ and GLB, read and written; of GLB, what is written here is read.
//!
//! Writers take a place to write to and fail as that fails, or with
//! [`InvalidInput`](std::io::ErrorKind::InvalidInput) where the mesh is none; whoever calls them
//! gives them a file that replaces the old one when all is written.

mod glb;
mod obj;
pub mod ply;

use std::io::{self, Cursor, Write};
use std::path::{Path, PathBuf};

use crate::mesh::{Mesh, MeshError, check_mesh};

pub use glb::{
    GLB_MAGIC, Glb, GlbChunks, GlbFault, MOST_GLB_BYTES, MeshPicture, PaintedMesh, glb_bytes,
    json_chunk, read_glb, write_chunks,
};
pub use obj::{ObjTexture, parse_obj, read_obj, write_mtl, write_obj};
pub use ply::{parse_ply, read_ply, write_ply};

/// Reads a mesh: OBJ where the name says so, else PLY. GLB is read by [`read_glb`].
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

/// A colour of 0 to 1 in 255 steps.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "`as` saturates")]
fn byte_of(channel: f32) -> u8 {
    (channel * 255.0).round() as u8
}

// Files that cannot be read as meshes, and meshes that no file can hold.

/// A file that cannot be read as a mesh, or a mesh that does not fit a file.
#[derive(Debug, thiserror::Error)]
pub enum MeshFileError {
    /// The system refuses it.
    #[error("{path}: cannot be read: {source}. Check the path and its permissions")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        #[source]
        source: io::Error,
    },
    /// A line of text, of a header or of an OBJ, is not what the format allows.
    #[error("{path}, line {line}: {found}. Export the mesh again, or name another file")]
    Line {
        /// The file.
        path: PathBuf,
        /// Line, from 1.
        line: usize,
        /// The fault there.
        found: String,
    },
    /// The content is not what the header announces.
    #[error("{path}, {element} {row}: {found}. Copy or export the mesh again")]
    Row {
        /// The file.
        path: PathBuf,
        /// Element of the header.
        element: String,
        /// Row of it, from 0.
        row: u64,
        /// The fault there.
        found: String,
    },
    /// There is no surface in it.
    #[error("{path}: holds no {what}: name a file with a surface, not points alone")]
    Nothing {
        /// The file.
        path: PathBuf,
        /// `faces` or `vertices`.
        what: &'static str,
    },
    /// A GLB where the mesh alone is wanted.
    #[error("{path}: a GLB is written here, but not read. Name the same mesh as PLY or OBJ")]
    UnreadGlb {
        /// The file.
        path: PathBuf,
    },
    /// A GLB that is not what this program writes.
    #[error("{path}: {found}. Name a GLB that splat mesh has written, or a PLY")]
    Glb {
        /// The file.
        path: PathBuf,
        /// The fault.
        found: String,
    },
    /// The content is no mesh.
    #[error("{path}: {source}")]
    Mesh {
        /// The file.
        path: PathBuf,
        /// The fault.
        #[source]
        source: MeshError,
    },
    /// A GLB counts its bytes in 32 bits.
    #[error(
        "a GLB holds {limit} bytes at most, but this mesh needs {needed}: decimate it, make its \
         texture smaller or write PLY or OBJ"
    )]
    TooLarge {
        /// Bytes of the file.
        needed: u64,
        /// Bytes that it may have.
        limit: u64,
    },
    /// Texture coordinates and faces do not match.
    #[error(
        "the atlas has {found} faces, the mesh {faces}: make the atlas of the mesh that is written"
    )]
    OtherAtlas {
        /// Faces of the atlas.
        found: usize,
        /// Faces of the mesh.
        faces: usize,
    },
    /// The mesh to be written is none.
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

// Textures as PNG.

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

/// Most texels that are read.
const MOST_TEXELS: usize = 1 << 28;

/// Why there is no PNG, or no picture of one.
#[derive(Debug, thiserror::Error)]
pub enum PictureError {
    /// Texels do not fill the picture.
    #[error(
        "{found} texels do not fill {width} x {height}: give one for each place of the picture"
    )]
    Size {
        /// Width in texels.
        width: u32,
        /// Height in texels.
        height: u32,
        /// Texels that were given.
        found: usize,
    },
    /// The decoder refuses.
    #[error("the PNG cannot be read: {0}")]
    Unreadable(#[from] png::DecodingError),
    /// Not what is written here.
    #[error("the PNG has not 8 bits of three channels each, or more than 16384 x 16384 texels")]
    OtherKind,
    /// The encoder refuses.
    #[error("the PNG cannot be written: {0}. Check the room on the disk and the picture's size")]
    Png(#[from] png::EncodingError),
}

impl Picture {
    /// A picture of one colour.
    pub fn plain(width: u32, height: u32, color: [u8; 3]) -> Self {
        Self { width, height, texels: vec![color; width as usize * height as usize] }
    }

    /// Writes the picture as PNG, marked as sRGB, its bytes as they are.
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

    /// The picture of a PNG of 8 bits and three channels, as this program writes them.
    pub fn from_png(bytes: &[u8]) -> Result<Self, PictureError> {
        let mut reader = png::Decoder::new(Cursor::new(bytes)).read_info()?;
        let (color, depth) = reader.output_color_type();
        if (color, depth) != (png::ColorType::Rgb, png::BitDepth::Eight) {
            return Err(PictureError::OtherKind);
        }
        let png::Info { width, height, .. } = *reader.info();
        let count = u64::from(width) * u64::from(height);
        let mut texels = match usize::try_from(count) {
            Ok(count) if count <= MOST_TEXELS => vec![[0; 3]; count],
            _ => return Err(PictureError::OtherKind),
        };
        reader.next_frame(bytemuck::cast_slice_mut(&mut texels))?;
        Ok(Self { width, height, texels })
    }

    /// The picture as the bytes of a PNG.
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
