//! What may be chosen of a mesh's texture.

use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};
use splat_mesh::atlas::{Layout, MOST_SIDE_PX};

use super::ExtractionError;

/// Smallest side of a texture, in texels.
const LEAST_SIDE_PX: u32 = 64;

/// Where the colours of a texture come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum TextureSource {
    /// No texture; vertices have colours
    None,
    /// The training views as the Gaussians show them
    Gaussians,
    /// The training photographs; what few of them show is left out
    Photographs,
}

/// How a mesh is cut and laid out on a texture.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum AtlasKind {
    /// Pieces that bend little, flattened; boxes where that fails
    Charts,
    /// Regions seen along one of 26 directions
    Boxes,
    /// Two triangles a square, all of one size, as SuGaR has them
    Squares,
}

/// How a mesh is textured.
#[derive(Args, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[command(next_help_heading = "Texture")]
pub struct TextureOptions {
    /// Source of a texture for GLB and OBJ; PLY has none
    #[arg(long, value_enum, default_value_t = Self::default().texture)]
    pub texture: TextureSource,

    /// Layout of the mesh on the picture
    #[arg(long, value_enum, default_value_t = Self::default().atlas)]
    pub atlas: AtlasKind,

    /// Most texels along the picture, 64 to 16384
    ///
    /// Without it the picture is as large as the training views show the mesh, and at most 8192.
    #[arg(long, value_name = "N")]
    pub texture_size: Option<u32>,

    /// Texels along a square of --atlas squares, 4 and more
    #[arg(long, value_name = "N", default_value_t = Self::default().square_size)]
    pub square_size: u32,
}

impl TextureOptions {
    /// An error where a value makes no texture.
    pub fn check(&self) -> Result<(), ExtractionError> {
        let size = self.texture_size.unwrap_or(LEAST_SIDE_PX);
        let rules = [
            (
                "texture-size",
                size,
                (LEAST_SIDE_PX..=MOST_SIDE_PX).contains(&size),
                "from 64 to 16384",
            ),
            ("square-size", self.square_size, self.square_size >= 4, "4 and more"),
        ];
        let broken = rules.into_iter().find(|&(_, _, holds, _)| !holds);
        broken.map_or(Ok(()), |(flag, value, _, allowed)| {
            Err(ExtractionError::OutOfRange { flag, value: f64::from(value), allowed })
        })
    }

    /// How it is laid out.
    pub(super) fn layout(&self) -> Layout {
        match self.atlas {
            AtlasKind::Charts => Layout::Charts,
            AtlasKind::Boxes => Layout::Boxes,
            AtlasKind::Squares => Layout::Squares { side_px: self.square_size },
        }
    }
}

impl Default for TextureOptions {
    fn default() -> Self {
        Self {
            texture: TextureSource::None,
            atlas: AtlasKind::Charts,
            texture_size: None,
            square_size: 10,
        }
    }
}
