//! Texture atlases: where the faces of a mesh lie on a picture.

mod boxes;
mod check;
mod dilate;
mod packing;
mod raster;
mod squares;

pub use check::AtlasCheck;
pub use dilate::dilate;
pub use raster::{for_each_texel, texel_faces};

use super::check::{MeshError, check_mesh};
use crate::mesh::Mesh;
use crate::place::{corners, doubled_area};

/// Places of a mesh's faces on one picture.
#[derive(Clone, Debug, PartialEq)]
pub struct Atlas {
    /// Width of the picture in texels.
    pub width: u32,
    /// Height of the picture in texels.
    pub height: u32,
    /// Places in texels, from the outer corner of the top left texel, whose centre is (0.5, 0.5); v
    /// runs down.
    pub places_px: Vec<[f32; 2]>,
    /// Three places of each face of the mesh, in the faces' order. All faces have the same sense.
    pub faces: Vec<[u32; 3]>,
    /// Connected pieces that the surface is cut into.
    pub charts: u32,
}

impl Atlas {
    /// A place as shares of width and height, v down; the origin where there is no such place.
    pub fn uv(&self, place: usize) -> [f32; 2] {
        let [x, y] = self.places_px.get(place).copied().unwrap_or_default();
        [x / self.width.max(1) as f32, y / self.height.max(1) as f32]
    }

    /// The places of a face in texels; the origin where there are none.
    pub fn corners_px(&self, face: [u32; 3]) -> [[f64; 2]; 3] {
        face.map(|place| {
            self.places_px.get(place as usize).copied().unwrap_or_default().map(f64::from)
        })
    }
}

/// How a surface is cut and laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// Regions seen along one of 26 directions, in rows.
    Boxes,
    /// Two faces a square of this side, whatever their size.
    Squares {
        /// Side in texels, 4 or more.
        side_px: u32,
    },
}

/// What an atlas is made by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AtlasOptions {
    /// How the surface is cut.
    pub layout: Layout,
    /// Width and greatest height of the picture in texels.
    pub side_px: u32,
    /// Texels about each chart that no other has.
    pub padding_px: u32,
}

/// Why there is no atlas.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum AtlasError {
    /// It is no mesh.
    #[error(transparent)]
    Mesh(#[from] MeshError),
    /// There is nothing to lay out.
    #[error("no atlas of a mesh of {faces} faces without area: extract a surface first")]
    NoArea {
        /// Its faces.
        faces: usize,
    },
    /// The picture is too large.
    #[error("a texture of {found} x {found} texels: {most} x {most} is the most that is made")]
    TooLarge {
        /// Side that was asked for, in texels.
        found: u32,
        /// Greatest side, in texels.
        most: u32,
    },
    /// The picture is too small.
    #[error(
        "{charts} charts do not fit a texture of {side_px} x {side_px}: take a larger texture or \
         decimate the mesh"
    )]
    TooSmall {
        /// Pieces to be laid out.
        charts: usize,
        /// Side of the picture in texels.
        side_px: u32,
    },
    /// Squares leave nothing of a face.
    #[error("squares of {found} texels: a face needs a square of 4 or more")]
    Square {
        /// What was given.
        found: u32,
    },
    /// Regions fold over themselves.
    #[error("the {charts} regions still overlap after {rounds} rounds: clean or decimate the mesh")]
    Overlap {
        /// Regions.
        charts: usize,
        /// Rounds of parting them.
        rounds: usize,
    },
}

/// Greatest side of a picture in texels.
pub const MOST_SIDE_PX: u32 = 16_384;

/// Lays the faces of a mesh out on a picture: no texel is claimed twice, no face turned over.
pub fn make_atlas(mesh: &Mesh, options: &AtlasOptions) -> Result<Atlas, AtlasError> {
    check_mesh(mesh)?;
    if options.side_px > MOST_SIDE_PX {
        return Err(AtlasError::TooLarge { found: options.side_px, most: MOST_SIDE_PX });
    }
    let faces = mesh.faces.len();
    if !mesh.faces.iter().any(|&face| doubled_area(corners(mesh, face)) != [0.0; 3]) {
        return Err(AtlasError::NoArea { faces });
    }
    match options.layout {
        Layout::Squares { side_px } => squares::squares(faces, side_px, options.side_px),
        Layout::Boxes => boxes::boxes(mesh, options),
    }
}

/// Side of a texture in texels: the next multiple of 4 of √(2 A), A the sum over the faces of the
/// largest area in px² that any view shows them at, and no more than `most_px`.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "`as` saturates")]
pub fn texture_side_px(face_areas_px2: &[f64], most_px: u32) -> u32 {
    let sum: f64 = face_areas_px2.iter().sum();
    let side = (2.0 * sum).sqrt().ceil() as u32;
    side.min(most_px).div_ceil(4).saturating_mul(4).clamp(64, most_px.max(64))
}

#[cfg(test)]
mod tests;
