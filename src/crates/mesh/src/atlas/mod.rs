//! Texture atlases: where the faces of a mesh lie on a picture.

mod apart;
mod boxes;
mod charts;
mod packing;
mod raster;

#[cfg(test)]
mod tests;

use charts::Surface;
use raster::doubled_area_px;

use crate::mesh::Mesh;
use crate::mesh::{MeshError, check_mesh};
use crate::narrow::to_u32;
use crate::place::{corners, doubled_area};

pub use raster::{dilate, for_each_texel, texel_faces};

pub(crate) use raster::for_each_touched;

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
        Layout::Squares { side_px } => (packing::squares(faces, side_px, options.side_px)?, 0),
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

// Why there is no atlas.

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

// What an atlas is made by.

/// Greatest side of a picture in texels.
pub const MOST_SIDE_PX: u32 = 16_384;

/// How a surface is cut and laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// Charts that bend little, flattened; boxes for those that are crumpled.
    Charts,
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

// What an atlas is: faces with places on a picture.

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

// Whether an atlas is one: no texel claimed twice, no face turned over, all on the picture.

/// Area in square texels to which a face may be turned over by rounding.
const ROUNDING_PX2: f64 = 1e-3;

/// What is found of an atlas.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct AtlasCheck {
    /// Texels of the picture.
    pub texels: u64,
    /// Texels whose centre lies in a face.
    pub claimed: u64,
    /// How often a texel lies in a further face.
    pub claimed_twice: u64,
    /// Faces that run the other way round.
    pub flipped: usize,
    /// Faces with a corner that is no place on the picture.
    pub outside: usize,
}

impl AtlasCheck {
    /// Checks an atlas.
    pub fn of(atlas: &Atlas) -> Self {
        let (width, height) = (u64::from(atlas.width), u64::from(atlas.height));
        let mut check = Self { texels: width * height, ..Self::default() };
        let words = usize::try_from((width * height).div_ceil(64)).unwrap_or(0);
        let mut claims = vec![0_u64; words];
        for &face in &atlas.faces {
            let corners = atlas.corners_px(face);
            let is_place = |&place: &u32| (place as usize) < atlas.places_px.len();
            let is_inside = |[x, y]: &[f64; 2]| {
                (0.0..=width as f64).contains(x) && (0.0..=height as f64).contains(y)
            };
            if !(face.iter().all(is_place) && corners.iter().all(is_inside)) {
                check.outside += 1;
                continue;
            }
            check.flipped += usize::from(doubled_area_px(corners) < -2.0 * ROUNDING_PX2);
            for_each_texel(corners, [atlas.width, atlas.height], |x, y| {
                let at = u64::from(y) * width + u64::from(x);
                let word = usize::try_from(at / 64).ok().and_then(|word| claims.get_mut(word));
                if let Some(word) = word {
                    let bit = 1 << (at % 64);
                    check.claimed += u64::from(*word & bit == 0);
                    check.claimed_twice += u64::from(*word & bit != 0);
                    *word |= bit;
                }
            });
        }
        check
    }

    /// True if it can be baked on.
    pub fn is_sound(&self) -> bool {
        self.claimed_twice == 0 && self.flipped == 0 && self.outside == 0
    }

    /// Share of the picture that faces claim.
    pub fn claimed_share(&self) -> f64 {
        self.claimed as f64 / self.texels.max(1) as f64
    }
}
