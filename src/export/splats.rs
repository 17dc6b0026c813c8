//! Conversion between splats of other formats and this program's Gaussians.

use rayon::prelude::*;
use splat_formats::{
    Antialiasing, CheckedSplats, SceneCamera, SplatColumns, SplatPrimitive, Splats, SplatsError,
};
use splat_mesh::Mesh;

use super::ply::RenderMode;
use crate::math::linalg::{dot, normalize, sub};
use crate::math::{Real as _, sh};
use crate::model::{Gaussians, TriangleMesh, sh_rest_count};

/// Converts splats to Gaussians, without the way to draw them.
pub fn gaussians_of(splats: Splats) -> Gaussians {
    let columns = splats.into_columns();
    Gaussians {
        sh_degree: columns.sh_degree,
        means: columns.means.into_flattened(),
        log_scales: columns.log_scales.into_flattened(),
        quats: columns.rotations.into_flattened(),
        opacity_logits: columns.opacity_logits,
        sh_dc: columns.sh_dc.into_flattened(),
        sh_rest: columns.sh_rest.into_flattened(),
    }
}

/// Converts Gaussians to splats, as reading a PLY of this mode would: with unit rotations, without rows that cannot
/// be drawn.
pub fn splats_of(gaussians: &Gaussians, mode: RenderMode) -> Result<CheckedSplats, SplatsError> {
    let antialiasing = if mode == RenderMode::Mip { Antialiasing::On } else { Antialiasing::Off };
    let primitive = match mode {
        RenderMode::Surfels => SplatPrimitive::Surfels,
        _ => SplatPrimitive::Gaussians,
    };
    Splats::from_columns(SplatColumns {
        sh_degree: gaussians.sh_degree,
        antialiasing,
        primitive,
        means: triples(&gaussians.means),
        log_scales: triples(&gaussians.log_scales),
        rotations: gaussians.quats.as_chunks().0.to_vec(),
        opacity_logits: gaussians.opacity_logits.clone(),
        sh_dc: triples(&gaussians.sh_dc),
        sh_rest: triples(&gaussians.sh_rest),
    })
}

fn triples(values: &[f32]) -> Vec<[f32; 3]> {
    values.as_chunks().0.to_vec()
}

/// Converts triangles to a mesh with the mean colours that these cameras see; without cameras the colours of degree
/// 0.
pub fn coloured_mesh(mesh: &TriangleMesh, cameras: &[SceneCamera]) -> Mesh {
    Mesh {
        vertices: mesh.vertices.means.as_chunks::<3>().0.to_vec(),
        faces: mesh.faces.clone(),
        colors: vertex_colors(&mesh.vertices, cameras),
        ..Mesh::default()
    }
}

/// Returns the mean colour of each vertex over the cameras with the vertex in their picture, ignoring occlusion; the
/// colour of degree 0 if there is none.
fn vertex_colors(vertices: &Gaussians, cameras: &[SceneCamera]) -> Vec<[f32; 3]> {
    let degree = vertices.sh_degree;
    let width = 3 * sh_rest_count(degree);
    let color_of = |row: usize| {
        let place = [0, 1, 2].map(|axis| f64::from(vertices.means[3 * row + axis]));
        let base = [0, 1, 2].map(|c| 0.5 + sh::C0 * f64::from(vertices.sh_dc[3 * row + c]));
        let rest = &vertices.sh_rest[row * width..][..width];
        let (mut sum, mut seen) = ([0.0; 3], 0);
        for direction in cameras.iter().filter_map(|camera| viewing_direction(camera, place)) {
            let basis = sh::basis(degree, direction);
            let shown: [f64; 3] = std::array::from_fn(|c| {
                let coefficients = rest.iter().skip(c).step_by(3).zip(&basis[1..]);
                base[c] + coefficients.map(|(&k, b)| f64::from(k) * b).sum::<f64>()
            });
            // Renders clamp colours below 0.
            sum = std::array::from_fn(|c| sum[c] + shown[c].max(0.0));
            seen += 1;
        }
        let color = if seen == 0 { base } else { sum.map(|it| it / f64::from(seen)) };
        color.map(|it| it.clamp(0.0, 1.0).to_f32())
    };
    (0..vertices.len()).into_par_iter().map(color_of).collect()
}

/// Returns the unit direction from a camera to a point; `None` if the point is outside the picture.
fn viewing_direction(camera: &SceneCamera, place: [f64; 3]) -> Option<[f64; 3]> {
    let away = sub(place, camera.position);
    // Columns of the rotation are the camera's axes.
    let axis = |k: usize| [0, 1, 2].map(|row| camera.rotation[row][k]);
    let [x, y, z] = [0, 1, 2].map(|k| dot(axis(k), away));
    if z <= 0.0 {
        return None;
    }
    let is_inside = [x, y].into_iter().enumerate().all(|(k, across)| {
        let px = camera.focal_px[k] * across / z + camera.principal_px[k];
        (0.0..=f64::from(camera.size_px[k])).contains(&px)
    });
    is_inside.then(|| normalize(away))
}

#[cfg(test)]
mod tests {
    use splat_formats::CameraSplit;

    use super::*;

    #[test]
    fn conversion_keeps_rows_and_the_order_of_values() {
        let columns = SplatColumns {
            sh_degree: 1,
            means: vec![[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]],
            log_scales: vec![[-1.0, -2.0, -3.0]; 2],
            rotations: vec![[1.0, 0.0, 0.0, 0.0], [0.0, 1.0, 0.0, 0.0]],
            opacity_logits: vec![0.5, -0.5],
            sh_dc: vec![[0.1, 0.2, 0.3]; 2],
            sh_rest: vec![[1.0; 3], [2.0; 3], [3.0; 3], [4.0; 3], [5.0; 3], [6.0; 3]],
            ..SplatColumns::default()
        };
        let gaussians = gaussians_of(Splats::from_columns(columns).unwrap().splats);
        assert_eq!(gaussians.means, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
        assert_eq!(gaussians.quats[4..], [0.0, 1.0, 0.0, 0.0]);
        // Three coefficients a row, each of three channels.
        assert_eq!(gaussians.sh_rest[..9], [1.0, 1.0, 1.0, 2.0, 2.0, 2.0, 3.0, 3.0, 3.0]);
        assert_eq!((gaussians.len(), gaussians.sh_degree), (2, 1));
        let back = splats_of(&gaussians, RenderMode::Mip).unwrap().splats;
        assert_eq!(back.columns().antialiasing, Antialiasing::On);
        assert_eq!(gaussians_of(back), gaussians);
    }

    /// Returns a camera at the origin that looks along z, with a picture of 8 by 6 px.
    fn camera() -> SceneCamera {
        SceneCamera {
            name: String::new(),
            position: [0.0; 3],
            rotation: [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]],
            focal_px: [4.0, 4.0],
            principal_px: [4.0, 3.0],
            size_px: [8, 6],
            split: CameraSplit::Training,
        }
    }

    #[test]
    fn a_vertex_has_the_mean_colour_of_the_cameras_that_see_it() {
        // Only the first vertex is in a picture, and it is in both.
        let vertices = Gaussians {
            sh_degree: 1,
            means: vec![0.0, 0.0, 2.0, 5.0, 0.0, 2.0, 0.0, 0.0, -9.0],
            sh_dc: vec![0.0; 9],
            // The first red grows along z; the other coefficients must not be used.
            sh_rest: [vec![0.0, 0.0, 0.0, 0.5, 0.0, 0.0, 0.0, 0.0, 0.0], vec![0.3; 18]].concat(),
            opacity_logits: vec![0.0; 3],
            log_scales: vec![0.0; 9],
            quats: vec![0.5; 12],
        };
        let straight = camera();
        // Looks along -x from the right.
        let aside = SceneCamera {
            position: [3.0, 0.0, 2.0],
            rotation: [[0.0, 0.0, -1.0], [0.0, 1.0, 0.0], [1.0, 0.0, 0.0]],
            ..straight.clone()
        };
        let colors = vertex_colors(&vertices, &[straight.clone(), aside]);
        // Y of degree 1 along z is 0.4886 z; the second camera looks across z.
        let red = 0.5 + 0.5 * 0.5 * 0.488_602_5;
        assert!((colors[0][0] - red).abs() < 1e-6, "{colors:?}");
        assert_eq!(colors[0][1..], [0.5, 0.5]);
        assert_eq!(colors[2], [0.5; 3]);
        assert!(viewing_direction(&straight, [5.0, 0.0, 2.0]).is_none());
        assert_eq!(vertex_colors(&vertices, &[])[0], [0.5; 3]);
    }
}
