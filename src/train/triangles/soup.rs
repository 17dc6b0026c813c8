//! The triangles that training starts from: one for each point, none of which share a vertex.

use crate::config::OptimizeOptions;
use crate::dataset::PointCloud;
use crate::math::Real;
use crate::math::linalg::rotation;
use crate::math::morton::Cube;
use crate::math::random::{RandomStream, RandomUse};
use crate::model::{Gaussians, TriangleMesh, from_points};

/// Distance of a corner from the point, as a share of the scale that a Gaussian of the point has (Held et al. 2025).
const CORNER_DISTANCE: f64 = 2.23;

/// An equilateral triangle about each point, turned at random, of the point's colour. Points that are neighbours in
/// space become neighbours in memory.
pub fn soup(points: &PointCloud, options: &OptimizeOptions, cube: &Cube, seed: u64) -> TriangleMesh {
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
        for corner in 0..3 {
            let angle = f64::from(corner) * std::f64::consts::TAU / 3.0;
            let (sin, cos) = angle.sin_cos();
            let row = 3 * (3 * at + corner as usize);
            for axis in 0..3 {
                let offset = turn[axis][0] * cos + turn[axis][1] * sin;
                let moved = f64::from(place[axis]) + CORNER_DISTANCE * scale * offset;
                vertices.means[row + axis] = moved.to_f32();
            }
        }
    }
    let faces = (0..count).map(|at| [0, 1, 2].map(|corner| u32::try_from(3 * at + corner).unwrap_or(u32::MAX)));
    TriangleMesh { vertices, faces: faces.collect() }
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
