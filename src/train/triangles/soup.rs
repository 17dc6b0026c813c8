//! The triangles that training starts from: one for each point, none of which share a vertex.

use std::f64::consts::TAU;

use crate::config::OptimizeOptions;
use crate::dataset::PointCloud;
use crate::math::Real;
use crate::math::linalg::rotation;
use crate::math::morton::Cube;
use crate::math::random::{RandomStream, RandomUse};
use crate::model::{Gaussians, TriangleMesh, from_points};

/// Vertices of a triangle.
pub const SOUP_VERTICES: usize = 3;

/// Distance of a corner from the point, as a share of the scale that a Gaussian of the point has (Held et al. 2025).
const CORNER_DISTANCE: f64 = 2.23;

/// An equilateral triangle about each point, turned at random, of the point's colour. Points that are neighbours in
/// space become neighbours in memory.
pub fn soup(
    points: &PointCloud,
    options: &OptimizeOptions,
    cube: &Cube,
    seed: u64,
) -> TriangleMesh {
    let points = in_order(points, cube);
    let ellipsoids = from_points(&points, options, seed);
    let stream = RandomStream::new(seed, 0, RandomUse::Orient);
    let count = points.positions.len();
    let mut vertices = Gaussians::zeros(options.sh_degree, 3 * count);
    let thrice = |values: &[f32], width: usize| -> Vec<f32> {
        values.chunks_exact(width).flat_map(|row| row.repeat(3)).collect()
    };
    vertices.opacity_logits = thrice(&ellipsoids.opacity_logits, 1);
    vertices.sh_dc = thrice(&ellipsoids.sh_dc, 3);
    vertices.quats = [1.0, 0.0, 0.0, 0.0].repeat(3 * count);
    for (at, place) in points.positions.iter().enumerate() {
        let scale = f64::from(ellipsoids.log_scales[3 * at]).exp();
        // Numbers of a normal distribution make a uniform rotation; those of a cube nearly do.
        let turn = [0, 1, 2, 3].map(|k| 2.0 * stream.uniform(at as u64 * 4 + k) - 1.0);
        let turn = rotation(turn);
        for corner in 0..SOUP_VERTICES {
            let angle = corner as f64 * TAU / SOUP_VERTICES as f64;
            let (sin, cos) = angle.sin_cos();
            let row = 3 * (3 * at + corner);
            for axis in 0..3 {
                let offset = turn[axis][0] * cos + turn[axis][1] * sin;
                let moved = f64::from(place[axis]) + CORNER_DISTANCE * scale * offset;
                vertices.means[row + axis] = moved.to_f32();
            }
        }
    }
    let faces = (0..count)
        .map(|at| [0, 1, 2].map(|corner| u32::try_from(3 * at + corner).unwrap_or(u32::MAX)));
    let mut mesh = TriangleMesh { vertices, faces: faces.collect() };
    mesh.size_vertices();
    mesh
}

/// The points along the Z-curve around a cube.
fn in_order(points: &PointCloud, cube: &Cube) -> PointCloud {
    let mut order: Vec<usize> = (0..points.positions.len()).collect();
    order.sort_by_cached_key(|&at| cube.key(points.positions[at]));
    PointCloud {
        positions: order.iter().map(|&at| points.positions[at]).collect(),
        colors: order.iter().map(|&at| points.colors[at]).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::math::sigmoid;

    const CUBE: Cube = Cube { centre: [0.0; 3], half_side: 4.0 };

    /// Along the Z-curve, the second comes last.
    fn cloud() -> PointCloud {
        let positions = vec![[-1.0; 3], [3.0; 3], [-1.0, 1.0, -1.0]];
        PointCloud { positions, colors: vec![[255, 0, 51], [1, 2, 3], [4, 5, 6]] }
    }

    fn distance(a: [f32; 3], b: [f32; 3]) -> f32 {
        (0..3).map(|k| (a[k] - b[k]).powi(2)).sum::<f32>().sqrt()
    }

    #[test]
    fn a_point_becomes_an_equilateral_triangle_about_it() {
        let options =
            OptimizeOptions { sh_degree: 1, init_opacity: 0.28, ..OptimizeOptions::default() };
        let points = cloud();
        let TriangleMesh { vertices, faces } = soup(&points, &options, &CUBE, 5);
        assert_eq!(faces, [[0, 1, 2], [3, 4, 5], [6, 7, 8]]);
        // Of the first point, the squares of the distances to the others are 4 and 48.
        let radius = 2.23 * 26.0_f32.sqrt();
        let corners = *vertices.means.as_chunks::<3>().0.first_chunk::<3>().unwrap();
        // Rounding of single precision.
        for corner in corners {
            assert!((distance(corner, points.positions[0]) - radius).abs() < 1e-5);
        }
        for (a, b) in [(0, 1), (1, 2), (2, 0)] {
            let side = distance(corners[a], corners[b]);
            assert!((side - radius * 3.0_f32.sqrt()).abs() < 1e-5, "{side}");
        }
        let colors = vertices.sh_dc.as_chunks::<9>().0;
        assert!(colors.iter().all(|color| color[..3] == color[3..6] && color[..3] == color[6..]));
        let [.., last] = colors else { panic!("no colours") };
        let red = (last[0] - colors[1][0]) * crate::math::sh::C0.to_f32() * 255.0;
        assert!((red + 3.0).abs() < 1e-3, "the second point comes last: {red}");
        assert!(vertices.opacity_logits.iter().all(|&w| (sigmoid(w) - 0.28).abs() < 1e-6));
        assert_eq!(vertices.quats[32..], [1.0, 0.0, 0.0, 0.0]);
        assert_eq!(vertices.sh_rest.len(), 9 * 9);
        // Of an equilateral triangle about a circle: the area is 3 root(3) / 4 radii squared.
        let size = (0.75 * 3.0_f32.sqrt()).sqrt() * radius;
        let sizes = &vertices.log_scales[..9];
        assert!(sizes.iter().all(|found| (found - size.ln()).abs() < 1e-5), "{sizes:?}");
    }

    #[test]
    fn triangles_are_turned_by_the_seed_and_as_large_as_the_options_say() {
        let options = OptimizeOptions::default();
        let places =
            |options: &OptimizeOptions, seed| soup(&cloud(), options, &CUBE, seed).vertices.means;
        assert_eq!(places(&options, 5), places(&options, 5));
        assert_ne!(places(&options, 5), places(&options, 6));
        let half = OptimizeOptions { init_scale: 0.5, ..options.clone() };
        let (small, large) = (places(&half, 5), places(&options, 5));
        // The first corner, as seen from its point.
        assert!((0..3).all(|k| (2.0 * (small[k] + 1.0) - (large[k] + 1.0)).abs() < 1e-5));
    }
}
