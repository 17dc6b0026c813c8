//! Stage `faces`: faces to splats, and their gradients back to those of the vertices.

use rayon::prelude::*;

use super::blend_triangles::FaceSums;
use super::vertices::Vertices;
use crate::backend::cpu::model::Model;
use crate::backend::cpu::splat::Splat;
use crate::backend::{DeviceError, Window};
use crate::math::Real;
use crate::math::blend::ScreenGradient;
use crate::math::splat::{Triangle, VertexGradient, cover, reach_px, triangle, triangle_bwd};
use crate::model::Primitive;

/// The faces that a view sees, in their order.
pub(crate) struct SeenFaces<R> {
    /// What covers each; its row is the face.
    pub(crate) splats: Vec<Splat<R>>,
    /// The triangles themselves.
    pub(crate) triangles: Vec<Triangle<R>>,
    /// What is wrong with the first vertex that is broken.
    pub(crate) fault: Option<DeviceError>,
}

/// The faces between these vertices that can be seen.
pub(crate) fn faces<R: Real>(
    faces: &[[u32; 3]],
    vertices: Vertices<R>,
    size: [u32; 2],
    window: &Window,
) -> SeenFaces<R> {
    let inradius_min_px = R::of(window.inradius_min_px);
    let see = |(row, &face): (usize, &[u32; 3])| {
        let corners = vertices.corners(face)?;
        let triangle = triangle(&corners, inradius_min_px)?;
        let (ellipse, bounds) = cover(&corners, size)?;
        let splat = Splat {
            row,
            ellipse,
            surfel: None,
            opacity: triangle.opacity,
            color: triangle.color[0],
            surface: [R::ZERO; 3],
            pixels: bounds.pixels,
            exponent_min: bounds.exponent_min,
        };
        Some((splat, triangle))
    };
    let (splats, triangles) = faces.par_iter().enumerate().filter_map(see).unzip();
    SeenFaces { splats, triangles, fault: vertices.fault }
}

/// Gradients of the corners of a face.
pub(crate) type CornerGradients<R> = [VertexGradient<R>; 3];

/// The gradients of the corners of the faces that are seen.
pub(crate) fn backward<R: Real>(
    faces: &[[u32; 3]],
    vertices: &Vertices<R>,
    splats: &[Splat<R>],
    sums: &[FaceSums<R>],
    window: &Window,
) -> Vec<CornerGradients<R>> {
    let inradius_min_px = R::of(window.inradius_min_px);
    let of_face = |(splat, sums): (&Splat<R>, &FaceSums<R>)| {
        let corners = vertices.corners(faces[splat.row])?;
        triangle_bwd(&corners, inradius_min_px, window.gradients, &sums.gradient)
    };
    let all = splats.par_iter().zip(sums).map(|pair| of_face(pair).unwrap_or_default());
    all.collect()
}

/// The vertices of the faces that are seen, ascending, and their gradients.
pub(crate) fn gather<R: Real>(
    faces: &[[u32; 3]],
    vertices: &Vertices<R>,
    splats: &[Splat<R>],
    per_face: &[CornerGradients<R>],
) -> (Vec<usize>, Vec<ScreenGradient<R>>) {
    // One thread adds in the order of the faces, so that the sums never depend on timing.
    let mut per_row: Vec<Option<ScreenGradient<R>>> = vec![None; vertices.seen.len()];
    for (splat, d_corners) in splats.iter().zip(per_face) {
        for (row, d) in faces[splat.row].into_iter().zip(d_corners) {
            per_row[row as usize].get_or_insert_default().add(&ScreenGradient {
                d_mean_px: d.d_px,
                d_opacity: d.d_opacity,
                d_color: d.d_color,
                d_inverse_depth: d.d_inverse_depth,
                ..ScreenGradient::default()
            });
        }
    }
    let seen = per_row.into_iter().enumerate();
    seen.filter_map(|(row, d)| Some((row, d?))).unzip()
}

/// Adds a view to what views have shown of the faces.
pub(crate) fn observe<R: Real, P: Primitive>(
    model: &mut Model<R, P>,
    vertices: &Vertices<R>,
    splats: &[Splat<R>],
    sums: &[FaceSums<R>],
    per_face: &[CornerGradients<R>],
) {
    let faces = &mut model.faces;
    for ((splat, sums), d_corners) in splats.iter().zip(sums).zip(per_face) {
        let face = splat.row;
        let norm = |d: &VertexGradient<R>| (d.d_px[0] * d.d_px[0] + d.d_px[1] * d.d_px[1]).sqrt();
        let norms: R = d_corners.iter().map(norm).sum();
        // A view whose gradient is no number does not spoil the sum.
        if norms.is_finite() {
            faces.gradient_norms[face] += norms;
        }
        faces.weights[face] = faces.weights[face].max(sums.weight);
        if let Some(corners) = vertices.corners(faces.corners[face]) {
            faces.reaches_px[face] = faces.reaches_px[face].max(reach_px(&corners));
        }
    }
}
