//! Baking of a mesh's texture from the training views.

use std::time::Instant;

use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};
use splat_mesh::Mesh;
use splat_mesh::atlas::{
    Atlas, AtlasOptions, Layout, MOST_SIDE_PX, MadeAtlas, make_atlas, texture_side_px,
};
use splat_mesh::bake::{Bake, BakeFigures, Baked, ColorView, SeenAreas};
use splat_mesh::file::Picture;

use super::drawn::ALL_VIEWS;
use super::{DrawnModel, Exposures, ExtractionError};
use crate::backend::{PixelDepth, TrainDevice, camera_of};
use crate::memory::Bytes;
use crate::train::event::Split;
use crate::train::pictures::byte;

/// Largest default side of a texture, in texels: the limit of browsers without a GPU.
const MAX_DEFAULT_PX: u32 = 8192;

/// Minimum texels of a picture per face; charts fill about half of the picture.
const TEXELS_A_FACE: usize = 4;

/// Padding around each chart, texels.
const PADDING_PX: u32 = 2;

/// Passes over the photographs after the first; each removes outliers.
const ROUNDS: usize = 2;

/// Bytes per texel of a picture: colour, copy for the dilation, flags and PNG.
pub(super) const PICTURE_BYTES: u64 = 12;

/// A mesh's texture.
#[derive(Clone, Debug)]
pub struct MeshTexture {
    /// Layout of the faces on the texture.
    pub atlas: Atlas,
    /// The texture.
    pub picture: Picture,
    /// Figures of the baking.
    pub figures: TextureFigures,
}

/// Figures of a texture.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TextureFigures {
    /// Source of the colours.
    pub source: TextureSource,
    /// Kind of the layout.
    pub atlas: AtlasKind,
    /// Triangles that are too crumpled for charts and lie in boxes.
    pub boxed_triangles: usize,
    /// Charts of the layout.
    pub charts: u32,
    /// Width and height in texels.
    pub size: [u32; 2],
    /// Figures of the baked views.
    #[serde(flatten)]
    pub bake: BakeFigures,
    /// Seconds for the layout.
    pub atlas_seconds: f64,
    /// Seconds for the colours.
    pub bake_seconds: f64,
}

const TEXTURE: &str = "texture";

/// Bakes the texture of a checked mesh with outward faces, in at most `room` of the host's memory. Returns `None` if
/// no texture is requested. `exposures` belong to the training photographs.
pub fn texture<B: TrainDevice>(
    drawn: &mut DrawnModel<'_, '_, B>,
    mesh: &Mesh,
    options: &TextureOptions,
    exposures: &Exposures,
    room: Bytes,
) -> Result<Option<MeshTexture>, ExtractionError> {
    let texel_bytes = match options.texture {
        TextureSource::None => return Ok(None),
        TextureSource::Gaussians => Bake::PLAIN_BYTES,
        TextureSource::Photographs => Bake::JUDGED_BYTES,
    };
    let started = Instant::now();
    let side_px = side_px(drawn, mesh, options, texel_bytes as u64 + PICTURE_BYTES, room)?;
    let layout = AtlasOptions { layout: options.layout(), side_px, padding_px: PADDING_PX };
    let MadeAtlas { atlas, boxed } = make_atlas(mesh, &layout)?;
    if boxed > 0 {
        tracing::info!(
            "{boxed} of {} triangles are too crumpled for charts and lie in boxes on the texture",
            mesh.faces.len()
        );
    }
    let atlas_seconds = started.elapsed().as_secs_f64();
    let baked = match options.texture {
        TextureSource::Photographs => of_photographs(drawn, mesh, &atlas, exposures)?,
        _ => of_gaussians(drawn, mesh, &atlas)?,
    };
    let figures = TextureFigures {
        source: options.texture,
        atlas: options.atlas,
        boxed_triangles: boxed,
        charts: atlas.charts,
        size: [atlas.width, atlas.height],
        bake: baked.figures,
        atlas_seconds,
        bake_seconds: started.elapsed().as_secs_f64() - atlas_seconds,
    };
    Ok(Some(MeshTexture { atlas, picture: baked.picture, figures }))
}

/// Returns the side of the picture in texels, as far as memory allows.
fn side_px<B: TrainDevice>(
    drawn: &DrawnModel<'_, '_, B>,
    mesh: &Mesh,
    options: &TextureOptions,
    texel_bytes: u64,
    room: Bytes,
) -> Result<u32, ExtractionError> {
    let fits = u32::try_from((room.0 / texel_bytes).isqrt()).unwrap_or(u32::MAX) / 4 * 4;
    if let Some(requested) = options.texture_size {
        if requested > fits {
            return Err(ExtractionError::TextureMemory { requested, fits });
        }
        return Ok(requested);
    }
    let wanted = match options.atlas {
        // The squares determine the size.
        AtlasKind::Squares => MOST_SIDE_PX,
        AtlasKind::Charts | AtlasKind::Boxes => {
            let mut areas = SeenAreas::new(mesh);
            for &index in drawn.views.split(Split::Train) {
                areas.add(mesh, camera_of(drawn.views.view(index)), drawn.settings.near);
            }
            // With fewer texels than faces a picture is worse than vertex colours.
            texture_side_px(&areas.areas_px2, MAX_DEFAULT_PX).max(least_side_px(mesh))
        }
    };
    if wanted > fits && options.atlas != AtlasKind::Squares {
        tracing::warn!(
            "the texture has {fits} texels along its side and not {wanted}, for which --host-limit leaves \
             no memory"
        );
    }
    Ok(wanted.min(fits))
}

/// Returns the smallest side with [`TEXELS_A_FACE`] texels per face.
fn least_side_px(mesh: &Mesh) -> u32 {
    let texels = TEXELS_A_FACE * mesh.faces.len();
    let side = u32::try_from(texels.isqrt()).unwrap_or(u32::MAX);
    side.next_multiple_of(4).min(MAX_DEFAULT_PX)
}

/// Bakes a texture from the drawn training views.
fn of_gaussians<B: TrainDevice>(
    drawn: &mut DrawnModel<'_, '_, B>,
    mesh: &Mesh,
    atlas: &Atlas,
) -> Result<Baked, ExtractionError> {
    let near = drawn.settings.near;
    let mut bake = Bake::new(mesh, atlas, false);
    drawn.each(TEXTURE, ALL_VIEWS, PixelDepth::Mean, |view| {
        let pixels = view.camera().width * view.camera().height;
        let color = |pixel| view.color(pixel).map(|channel| byte(f64::from(channel)));
        let colors: Vec<[u8; 3]> = (0..pixels).map(color).collect();
        let mut counts = vec![false; pixels];
        view.pixels_with_depth().for_each(|pixel| counts[pixel] = true);
        let camera = view.camera();
        bake.add(&ColorView { camera, near, colors: &colors, counts: Some(&counts) });
        Ok(())
    })?;
    Ok(bake.finish())
}

/// Bakes a texture from the training photographs, in several passes.
fn of_photographs<B: TrainDevice>(
    drawn: &mut DrawnModel<'_, '_, B>,
    mesh: &Mesh,
    atlas: &Atlas,
    exposures: &Exposures,
) -> Result<Baked, ExtractionError> {
    let near = drawn.settings.near;
    let views = &mut *drawn.views;
    let mut bake = Bake::new(mesh, atlas, true);
    for round in 0..=ROUNDS {
        if round > 0 {
            bake.next_round();
        }
        let order = views.split(Split::Train);
        views.schedule_decoding(order);
        let mut seen = 0;
        let rounds = (ROUNDS + 1) as f64;
        for (done, &index) in order.iter().enumerate() {
            let of_round = done as f64 / order.len() as f64;
            (drawn.on_progress)(TEXTURE, (round as f64 + of_round) / rounds);
            let Some(photograph) = views.fetch(index) else { continue };
            let view = views.view(index);
            let (colors, _) = photograph.rgb.as_chunks::<3>();
            let undone = exposures.knows(&view.name).then(|| exposures.undo(&view.name, colors));
            let mask = photograph.mask.as_ref();
            let counts: Option<Vec<bool>> =
                mask.map(|mask| mask.iter().map(|&counts| counts > 0).collect());
            bake.add(&ColorView {
                camera: camera_of(view),
                near,
                colors: undone.as_deref().unwrap_or(colors),
                counts: counts.as_deref(),
            });
            seen += 1;
        }
        if seen == 0 {
            let reason = views.first_problem().unwrap_or("the scene has none").to_owned();
            return Err(ExtractionError::NoViews { reason });
        }
    }
    Ok(bake.finish())
}

const MIN_SIDE_PX: u32 = 64;

/// Source of a texture's colours.
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

/// Layout of a mesh on a texture.
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

/// Options of a texture.
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
    /// Returns an error if a value is out of range.
    pub fn check(&self) -> Result<(), ExtractionError> {
        let size = self.texture_size.unwrap_or(MIN_SIDE_PX);
        let rules = [
            (
                "texture-size",
                size,
                (MIN_SIDE_PX..=MOST_SIDE_PX).contains(&size),
                "from 64 to 16384",
            ),
            ("square-size", self.square_size, self.square_size >= 4, "4 and more"),
        ];
        let broken = rules.into_iter().find(|&(_, _, holds, _)| !holds);
        broken.map_or(Ok(()), |(flag, value, _, allowed)| {
            Err(ExtractionError::OutOfRange { flag, value: f64::from(value), allowed })
        })
    }

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
