//! Texture atlases: where the faces of a mesh lie on a picture.

mod boxes;
mod charts;
mod check;
mod dilate;
mod error;
mod instead;
mod options;
mod packing;
mod places;
mod raster;
mod squares;

pub use check::AtlasCheck;
pub use dilate::dilate;
pub use error::AtlasError;
pub use instead::Instead;
pub use options::{AtlasOptions, Layout, MOST_SIDE_PX};
pub use places::Atlas;
pub use raster::{for_each_texel, texel_faces};

use crate::check::check_mesh;
use crate::mesh::Mesh;
use crate::place::{corners, doubled_area};

/// An atlas, and why it is not of the layout that was asked for, if it is not.
#[derive(Clone, Debug, PartialEq)]
pub struct MadeAtlas {
    /// The atlas.
    pub atlas: Atlas,
    /// Why charts became boxes.
    pub instead: Option<Instead>,
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
    let instead = match options.layout {
        Layout::Squares { side_px } => {
            let atlas = squares::squares(faces, side_px, options.side_px)?;
            return Ok(MadeAtlas { atlas, instead: None });
        }
        Layout::Boxes => None,
        Layout::Charts => match charts::charts(mesh, options) {
            Ok(atlas) => return Ok(MadeAtlas { atlas, instead: None }),
            Err(reason) => Some(reason),
        },
    };
    Ok(MadeAtlas { atlas: boxes::boxes(mesh, options)?, instead })
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
