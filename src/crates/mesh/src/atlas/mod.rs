//! Texture atlases: where the faces of a mesh lie on a picture.

mod apart;
mod boxes;
mod charts;
mod check;
mod dilate;
mod error;
mod flat;
mod growth;
mod options;
mod packing;
mod places;
mod raster;
mod rectangle;
mod rigid;
mod squares;
mod surface;

pub use check::AtlasCheck;
pub use dilate::dilate;
pub use error::AtlasError;
pub use options::{AtlasOptions, Layout, MOST_SIDE_PX};
pub use places::Atlas;
pub(crate) use raster::for_each_touched;
pub use raster::{for_each_texel, texel_faces};

use crate::check::check_mesh;
use crate::mesh::Mesh;
use crate::narrow::to_u32;
use crate::place::{corners, doubled_area};
use surface::Surface;

/// An atlas and how it was made.
#[derive(Clone, Debug, PartialEq)]
pub struct MadeAtlas {
    /// The atlas.
    pub atlas: Atlas,
    /// Faces that lie in boxes, because the charts that they were cut into are too crumpled to be flattened.
    pub boxed: usize,
}

/// Lays the faces of a mesh out on a picture: no texel is claimed twice, no face turned over.
pub fn make_atlas(mesh: &Mesh, options: &AtlasOptions) -> Result<MadeAtlas, AtlasError> {
    check_mesh(mesh)?;
    if options.side_px > MOST_SIDE_PX {
        return Err(AtlasError::TooLarge { found: options.side_px, most: MOST_SIDE_PX });
    }
    let faces = mesh.faces.len();
    if !mesh.faces.iter().any(|&face| doubled_area(corners(mesh, face)) != [0.0; 3]) {
        return Err(AtlasError::NoArea { faces });
    }
    let surface = || Surface::of(mesh);
    let (atlas, boxed) = match options.layout {
        Layout::Squares { side_px } => (squares::squares(faces, side_px, options.side_px)?, 0),
        Layout::Boxes => {
            let surface = surface();
            let all: Vec<u32> = (0..to_u32(faces)).collect();
            (apart::lay_out(&surface, boxes::boxes(&surface, &all), options)?, 0)
        }
        Layout::Charts => {
            let surface = surface();
            let cut = charts::charts(&surface);
            (apart::lay_out(&surface, cut.charts, options)?, cut.boxed)
        }
    };
    Ok(MadeAtlas { atlas, boxed })
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
