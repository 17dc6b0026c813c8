//! Forecast of the host memory of meshing, without the model.

use splat_mesh::bake::Bake;
use splat_mesh::poisson::Trim;

use super::drawn::{PIXEL_BYTES, PLACES_AT_ONCE};
use super::texture::PICTURE_BYTES;
use super::{MeshMethod, MeshOptions, TextureSource, poisson, tetrahedra, tsdf};
use crate::memory::Bytes;
use crate::memory::plan::{PlannedRow, SurfaceDrawing};

/// Cells along a brick.
const BRICK_SIDE: u32 = 8;

/// Layers of bricks on a surface: truncated distances have a width.
const LAYERS: u64 = 3;

/// Bytes of a triangle and half a vertex during cleaning and decimation.
const TRIANGLE_BYTES: u64 = 200;

/// Default side of a texture in a plan, in texels: the largest without an option.
const TEXTURE_PX: u64 = 8192;

/// Sizes of a scene and its mesh.
#[derive(Clone, Copy, Debug)]
pub struct MeshedScene {
    /// Pixels of the largest training view.
    pub largest: u64,
    /// Pixels of all training views.
    pub pixels: u64,
    /// Gaussians of the model.
    pub gaussians: u64,
    /// Maximum number of triangles of the mesh.
    pub triangles: u64,
}

impl MeshOptions {
    /// Returns the views that the method draws.
    pub fn drawing(&self) -> SurfaceDrawing {
        match self.method {
            MeshMethod::Tsdf => {
                // One more node than voxels.
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

/// Returns the bytes of a view's maps on the host.
pub fn view_maps(pixels: u64) -> Bytes {
    Bytes(pixels * PIXEL_BYTES)
}

/// Returns the peak of each part, at different times. The number of filled bricks is estimated from a sphere that
/// fills the box.
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
            // There are no more cells than points on the surface.
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

/// Returns the row of a texture and its accumulators.
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

/// Returns the number of bricks on the surface of a sphere in a box with this number of cells along a side.
fn bricks(cells: u64) -> u64 {
    let along = cells.div_ceil(BRICK_SIDE.into());
    // The area is π d².
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
    fn the_side_of_a_voxel_sets_the_resolution() {
        let mut options = MeshOptions::default();
        let world_box = WorldBox { low: [0.0; 3], high: [1.0, 3.0, 2.0] };
        assert_eq!(options.fitted_to(&world_box), options);
        let drawing = |options: &MeshOptions| options.fitted_to(&world_box).drawing();
        options.tsdf.voxel = Some(0.0625);
        let expected = SurfaceDrawing::FusedDepths { along: [7; 3], filled: 6 * 6 * 66 / 7 };
        assert_eq!(drawing(&options), expected);
        // The number of voxels is limited, and nothing overflows.
        options.tsdf.voxel = Some(1e-300);
        let most = 1 << 18;
        let expected = SurfaceDrawing::FusedDepths {
            along: [most + 1; 3],
            filled: u64::from(most).pow(2) * 66 / 7,
        };
        assert_eq!(drawing(&options), expected);
    }
}
