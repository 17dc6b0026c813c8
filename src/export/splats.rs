//! Gaussians of other programs' formats as those that are trained.

use rayon::prelude::*;
use splat_formats::{
    Antialiasing, CheckedSplats, SceneCamera, SplatColumns, SplatPrimitive, Splats, SplatsError,
};
use splat_mesh::Mesh;

use super::ply::RenderMode;
use crate::math::linalg::{dot, normalize, sub};
use crate::math::{Real as _, sh};
use crate::model::{Gaussians, TriangleMesh, sh_rest_count};

/// The same Gaussians; how they are meant to be drawn is not kept.
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

/// The same the other way round, as they are read from a PLY that was written for this mode: rotations are
/// unit, and rows that cannot be drawn are left out.
pub fn splats_of(gaussians: &Gaussians, mode: RenderMode) -> Result<CheckedSplats, SplatsError> {
    let antialiasing = match mode {
        RenderMode::Mip => Antialiasing::On,
        RenderMode::Dilated | RenderMode::Surfels | RenderMode::Triangles { .. } => {
            Antialiasing::Off
        }
    };
    let primitive = match mode {
        RenderMode::Surfels => SplatPrimitive::Surfels,
        RenderMode::Dilated | RenderMode::Mip | RenderMode::Triangles { .. } => {
            SplatPrimitive::Gaussians
        }
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

// Triangles with one colour for each vertex, as programs draw them that know no harmonics.

/// The mesh, coloured by what these cameras see on average; with none, by the harmonics of degree 0.
pub fn coloured_mesh(mesh: &TriangleMesh, cameras: &[SceneCamera]) -> Mesh {
    Mesh {
        vertices: mesh.vertices.means.as_chunks::<3>().0.to_vec(),
        faces: mesh.faces.clone(),
        colors: vertex_colors(&mesh.vertices, cameras),
        ..Mesh::default()
    }
}

/// A colour of each vertex: the mean over the cameras that have it in their picture, whatever lies between;
/// of one that none has, that of degree 0.
fn vertex_colors(vertices: &Gaussians, cameras: &[SceneCamera]) -> Vec<[f32; 3]> {
    let degree = vertices.sh_degree;
    let width = 3 * sh_rest_count(degree);
    let color_of = |row: usize| {
        let place = [0, 1, 2].map(|axis| f64::from(vertices.means[3 * row + axis]));
        let base = [0, 1, 2].map(|c| 0.5 + sh::C0 * f64::from(vertices.sh_dc[3 * row + c]));
        let rest = &vertices.sh_rest[row * width..][..width];
        let (mut sum, mut seen) = ([0.0; 3], 0);
        for direction in cameras.iter().filter_map(|camera| seen_along(camera, place)) {
            let basis = sh::basis(degree, direction);
            let shown: [f64; 3] = std::array::from_fn(|c| {
                let coefficients = rest.iter().skip(c).step_by(3).zip(&basis[1..]);
                base[c] + coefficients.map(|(&k, b)| f64::from(k) * b).sum::<f64>()
            });
            // As views draw them.
            sum = std::array::from_fn(|c| sum[c] + shown[c].max(0.0));
            seen += 1;
        }
        let color = if seen == 0 { base } else { sum.map(|it| it / f64::from(seen)) };
        color.map(|it| it.clamp(0.0, 1.0).to_f32())
    };
    (0..vertices.len()).into_par_iter().map(color_of).collect()
}

/// The unit direction in which a camera sees a place; none of one that is not in its picture.
fn seen_along(camera: &SceneCamera, place: [f64; 3]) -> Option<[f64; 3]> {
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
    fn columns_keep_their_rows_and_the_order_of_their_values() {
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

    /// Looks along z from the origin at a picture of 8 px by 6.
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
    fn a_vertex_has_the_mean_colour_of_cameras_that_have_it_in_view() {
        // Both cameras have the first in their picture, and none has another.
        let vertices = Gaussians {
            sh_degree: 1,
            means: vec![0.0, 0.0, 2.0, 5.0, 0.0, 2.0, 0.0, 0.0, -9.0],
            sh_dc: vec![0.0; 9],
            // Of the first red grows along z, of the others with what they are not asked.
            sh_rest: [vec![0.0, 0.0, 0.0, 0.5, 0.0, 0.0, 0.0, 0.0, 0.0], vec![0.3; 18]].concat(),
            opacity_logits: vec![0.0; 3],
            log_scales: vec![0.0; 9],
            quats: vec![0.5; 12],
        };
        let straight = camera();
        // From the right along -x: to the left is its right.
        let aside = SceneCamera {
            position: [3.0, 0.0, 2.0],
            rotation: [[0.0, 0.0, -1.0], [0.0, 1.0, 0.0], [1.0, 0.0, 0.0]],
            ..straight.clone()
        };
        let colors = vertex_colors(&vertices, &[straight.clone(), aside]);
        // Y of degree 1 along z is 0.4886 z; the second camera looks across it.
        let red = 0.5 + 0.5 * 0.5 * 0.488_602_5;
        assert!((colors[0][0] - red).abs() < 1e-6, "{colors:?}");
        assert_eq!(colors[0][1..], [0.5, 0.5]);
        assert_eq!(colors[2], [0.5; 3]);
        assert!(seen_along(&straight, [5.0, 0.0, 2.0]).is_none());
        assert_eq!(vertex_colors(&vertices, &[])[0], [0.5; 3]);
    }
}
