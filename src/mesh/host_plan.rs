//! Host memory of meshing beside the model, as far as it is known before anything is drawn.

use splat_mesh::bake::Bake;
use splat_mesh::poisson::Trim;

use super::drawn::{PIXEL_BYTES, PLACES_AT_ONCE};
use super::texture::PICTURE_BYTES;
use super::{MeshMethod, MeshOptions, TextureSource, poisson, tetrahedra, tsdf};
use crate::memory::Bytes;
use crate::memory::plan::{PlannedRow, SurfaceDrawing};

/// Cells along a brick.
const BRICK_SIDE: u32 = 8;

/// Bricks about each that a surface passes through: it has a width.
const LAYERS: u64 = 3;

/// Bytes of a triangle with its half of a vertex while it is cleaned and decimated.
const TRIANGLE_BYTES: u64 = 200;

/// Side of a texture whose size is not named, in texels: the largest that is made then.
const TEXTURE_PX: u64 = 8192;

/// What a mesh is made of.
#[derive(Clone, Copy, Debug)]
pub struct MeshedScene {
    /// Pixels of the largest training view.
    pub largest: u64,
    /// Pixels of all training views.
    pub pixels: u64,
    /// Gaussians of the model.
    pub gaussians: u64,
    /// Triangles of the mesh at the most.
    pub triangles: u64,
}

impl MeshOptions {
    /// What the method has drawn of the training views.
    pub fn drawing(&self) -> SurfaceDrawing {
        match self.method {
            MeshMethod::Tsdf => {
                // A node more than there are voxels.
                let along = (self.tsdf.resolution() / BRICK_SIDE).saturating_add(1);
                let filled = bricks(self.tsdf.resolution().into());
                SurfaceDrawing::FusedDepths { along: [along; 3], filled }
            }
            MeshMethod::Poisson => {
                let then_medians = self.poisson.trim() != Trim::Nothing;
                SurfaceDrawing::MeanDepths { then_medians }
            }
            MeshMethod::Tetrahedra => SurfaceDrawing::Places(PLACES_AT_ONCE as u64),
        }
    }
}

/// Maps of a view on the host.
pub fn view_maps(pixels: u64) -> Bytes {
    Bytes(pixels * PIXEL_BYTES)
}

/// What each part takes at most; not all do at once. How many bricks a surface fills is a guess: as many
/// as a ball that fills the box.
pub fn mesh_host_rows(options: &MeshOptions, scene: &MeshedScene) -> Vec<PlannedRow> {
    let row = |label, bytes| PlannedRow { label, bytes: Bytes(bytes) };
    let mut rows = vec![row("maps of a drawn view", view_maps(scene.largest).0)];
    match options.method {
        MeshMethod::Tsdf => {
            let bricks = bricks(options.tsdf.resolution().into());
            rows.push(row("bricks of fused depths", bricks * tsdf::BRICK_BYTES));
        }
        MeshMethod::Poisson => {
            let points = options.poisson.surface_points.min(scene.pixels);
            rows.push(row("points of the surface", points * poisson::POINT_BYTES));
            let cells = 1_u64.checked_shl(options.poisson.poisson_depth).unwrap_or(u64::MAX);
            // There are no more cells than points on it.
            let bricks = bricks(cells).min(points);
            rows.push(row("equations of the surface", bricks * poisson::BRICK_BYTES));
        }
        MeshMethod::Tetrahedra => {
            let points = scene.gaussians * tetrahedra::POINTS_A_GAUSSIAN as u64;
            rows.push(row("tetrahedra over the Gaussians", points * tetrahedra::POINT_BYTES));
        }
    }
    rows.push(row("the mesh", scene.triangles * TRIANGLE_BYTES));
    rows.extend(texture_row(options));
    rows
}

/// A texture with what is added up for it.
fn texture_row(options: &MeshOptions) -> Option<PlannedRow> {
    let texel = match options.texture.texture {
        TextureSource::None => return None,
        TextureSource::Gaussians => Bake::PLAIN_BYTES,
        TextureSource::Photographs => Bake::JUDGED_BYTES,
    };
    let side = options.texture.texture_size.map_or(TEXTURE_PX, u64::from);
    let bytes = Bytes(side * side * (texel as u64 + PICTURE_BYTES));
    Some(PlannedRow { label: "the texture", bytes })
}

/// Bricks that a ball's surface fills whose box has so many cells along its side.
fn bricks(cells: u64) -> u64 {
    let along = cells.div_ceil(BRICK_SIDE.into());
    // Pi d².
    along.saturating_mul(along).saturating_mul(22 * LAYERS) / 7
}

#[cfg(test)]
mod tests {
    use super::super::WorldBox;
    use super::*;

    #[test]
    fn each_method_has_its_own_row_and_a_small_scene_has_few_points() {
        let scene = MeshedScene { largest: 1000, pixels: 9000, gaussians: 500, triangles: 10 };
        let rows = |method| {
            let options = MeshOptions { method, ..MeshOptions::default() };
            let rows = mesh_host_rows(&options, &scene);
            rows.iter().map(|row| (row.label, row.bytes.0)).collect::<Vec<_>>()
        };
        let tsdf = rows(MeshMethod::Tsdf);
        assert_eq!(tsdf[0], ("maps of a drawn view", 49_000));
        assert_eq!(tsdf[1], ("bricks of fused depths", 128 * 128 * 66 / 7 * tsdf::BRICK_BYTES));
        assert_eq!(tsdf[2], ("the mesh", 2000));
        let poisson = rows(MeshMethod::Poisson);
        assert_eq!(poisson[1], ("points of the surface", 9000 * 108));
        assert_eq!(poisson[2].1, 9000 * poisson::BRICK_BYTES);
        let tetrahedra = rows(MeshMethod::Tetrahedra);
        assert_eq!(tetrahedra[1], ("tetrahedra over the Gaussians", 500 * 3 * 400));
        let drawing = MeshOptions::default().drawing();
        let expected = SurfaceDrawing::FusedDepths { along: [129; 3], filled: 128 * 128 * 66 / 7 };
        assert_eq!(drawing, expected);
    }

    #[test]
    fn a_voxels_side_says_how_many_there_are_along_the_box() {
        let mut options = MeshOptions::default();
        let world_box = WorldBox { low: [0.0; 3], high: [1.0, 3.0, 2.0] };
        assert_eq!(options.fitted_to(&world_box), options);
        let drawing = |options: &MeshOptions| options.fitted_to(&world_box).drawing();
        options.tsdf.voxel = Some(0.0625);
        let expected = SurfaceDrawing::FusedDepths { along: [7; 3], filled: 6 * 6 * 66 / 7 };
        assert_eq!(drawing(&options), expected);
        // No voxel is so small, and nothing overflows.
        options.tsdf.voxel = Some(1e-300);
        let most = 1 << 18;
        let expected = SurfaceDrawing::FusedDepths {
            along: [most + 1; 3],
            filled: u64::from(most).pow(2) * 66 / 7,
        };
        assert_eq!(drawing(&options), expected);
    }
}
