//! Stage `project`: projects rows to splats, and maps screen-space gradients to raw parameters.

use std::marker::PhantomData;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

use rayon::prelude::*;

use super::blend_triangles::FaceSums;
use super::gradients::{Gradients, UNSEEN};
use crate::backend::cpu::model::{Model, NotFinite, Parameter};
use crate::backend::cpu::primitive::{Drawable, DrawnView, Splat, vertex_rows};
use crate::backend::{DeviceError, Window};
use crate::math::Real;
use crate::math::blend::ScreenGradient;
use crate::math::splat::{
    Triangle, Vertex, VertexGradient, cover, reach_px, triangle, triangle_bwd,
};
use crate::model::{Gaussians, Primitive};

/// Returns the visible splats in row order, and an error about the first row that is not finite.
pub(crate) fn project<R: Real, P: Drawable>(
    model: &Model<R, P>,
    view: &DrawnView<R>,
) -> (Vec<Splat<R>>, Option<DeviceError>) {
    let first_broken = FirstBroken::new();
    let project_row = |row| P::project(model, row, view);
    let rows = (0..model.len()).into_par_iter();
    let splats = rows.filter_map(|row| first_broken.unless(row, project_row(row))).collect();
    (splats, first_broken.fault::<P, _>(project_row))
}

/// Concurrent minimum of the rows that are not finite.
pub(super) struct FirstBroken(AtomicUsize);

impl FirstBroken {
    pub(super) const fn new() -> Self {
        Self(AtomicUsize::new(usize::MAX))
    }

    /// Unwraps the projection of a row and records a failure.
    pub(super) fn unless<T>(&self, row: usize, seen: Result<Option<T>, NotFinite>) -> Option<T> {
        seen.unwrap_or_else(|_| {
            self.0.fetch_min(row, Ordering::Relaxed);
            None
        })
    }

    /// Projects the first failed row again for its error.
    pub(super) fn fault<P: Primitive, T>(
        self,
        project_row: impl Fn(usize) -> Result<T, NotFinite>,
    ) -> Option<DeviceError> {
        let row = self.0.into_inner();
        let fault = (row != usize::MAX).then(|| project_row(row).err()).flatten();
        fault.map(|fault| fault.of_row::<P>(row))
    }
}

/// Gradients of one row's raw parameters.
#[derive(Clone, Debug)]
pub struct ParameterGradient<R, P = Gaussians> {
    /// Values in schema order.
    values: Vec<R>,
    spans: Vec<Range<usize>>,
    primitive: PhantomData<P>,
}

impl<R: Real, P: Drawable> ParameterGradient<R, P> {
    /// Computes the gradients of row `index` as a step does.
    pub(crate) fn new(model: &Model<R, P>, gradients: &Gradients<R, P>, index: usize) -> Self {
        let splat_from_row = gradients.splat_from_row(model.len());
        let mut values = vec![R::ZERO; model.row_width()];
        parameter_gradient(model, gradients, &splat_from_row, index, &mut values);
        Self { values, spans: model.spans(), primitive: PhantomData }
    }

    /// Returns the gradient of one column, by its index in the schema.
    pub fn column(&self, column: usize) -> &[R] {
        &self.values[self.spans[column].clone()]
    }
}

impl<R: Real> ParameterGradient<R> {
    /// Returns the gradient of one parameter.
    pub fn row(&self, parameter: Parameter) -> &[R] {
        self.column(parameter as usize)
    }
}

/// Adds the gradients of a row to `d_row`, in schema order: the mean over the views, including the surface terms.
/// `splat_from_row[view][row]` is the index of the row's splat.
pub(crate) fn parameter_gradient<R: Real, P: Drawable>(
    model: &Model<R, P>,
    gradients: &Gradients<R, P>,
    splat_from_row: &[Vec<usize>],
    row: usize,
    d_row: &mut [R],
) {
    for (view, splat_from_row) in gradients.views.iter().zip(splat_from_row) {
        if splat_from_row[row] != UNSEEN {
            P::project_bwd(model, row, &view.view, &view.screen[splat_from_row[row]], d_row);
        }
    }
    if let Some(d_ellipsoid) = gradients.geometry.as_chunks().0.get(row) {
        // Only density models have geometry gradients.
        if let Some(field) = P::density_field(model) {
            field.ellipsoid_bwd(d_ellipsoid, d_row);
        }
    }
    if gradients.views.len() > 1 {
        let share = R::of(1.0 / gradients.views.len() as f64);
        for value in d_row {
            *value *= share;
        }
    }
}

// Stage `faces`: projects faces to splats, and maps their gradients to vertices.

/// Visible faces of a view, in order.
pub(crate) struct SeenFaces<R> {
    /// Bounding splat of each face; `row` is the face's index.
    pub(crate) splats: Vec<Splat<R>>,
    /// Triangle of each face.
    pub(crate) triangles: Vec<Triangle<R>>,
    /// Error about the first vertex that is not finite.
    pub(crate) fault: Option<DeviceError>,
}

/// Projects the faces and drops the invisible ones.
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

pub(crate) type CornerGradients<R> = [VertexGradient<R>; 3];

/// Returns the gradients of the corners of the visible faces.
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

/// Returns the vertices of visible faces, ascending, and their gradients.
pub(crate) fn gather<R: Real>(
    faces: &[[u32; 3]],
    vertices: &Vertices<R>,
    splats: &[Splat<R>],
    per_face: &[CornerGradients<R>],
) -> (Vec<usize>, Vec<ScreenGradient<R>>) {
    // A single thread adds in face order, so that sums do not depend on timing.
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

/// Adds a view to the statistics of the faces.
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
        // Skip a view whose gradient is not finite.
        if norms.is_finite() {
            faces.gradient_norms[face] += norms;
        }
        faces.weights[face] = faces.weights[face].max(sums.weight);
        if let Some(corners) = vertices.corners(faces.corners[face]) {
            faces.reaches_px[face] = faces.reaches_px[face].max(reach_px(&corners));
        }
    }
}

// Stage `vertices`: projects rows to vertices on the screen.

/// Projected vertices of a view, and the error about the first row that is not finite.
pub(crate) struct Vertices<R> {
    /// Vertex of each row, `[rows]`; `None` if in front of the near plane or not finite.
    pub(crate) seen: Vec<Option<Vertex<R>>>,
    pub(crate) fault: Option<DeviceError>,
}

impl<R: Real> Vertices<R> {
    pub(crate) fn of<P: Drawable>(
        model: &Model<R, P>,
        view: &DrawnView<R>,
    ) -> Result<Self, DeviceError> {
        let rows = vertex_rows(model)?;
        let first_broken = FirstBroken::new();
        let project_row = |row| rows.vertex(row, view);
        let numbers = (0..model.len()).into_par_iter();
        let seen = numbers.map(|row| first_broken.unless(row, project_row(row))).collect();
        Ok(Self { seen, fault: first_broken.fault::<P, _>(project_row) })
    }

    /// Returns the corners of a face if all are visible.
    pub(crate) fn corners(&self, face: [u32; 3]) -> Option<[Vertex<R>; 3]> {
        let [a, b, c] = face.map(|row| self.seen[row as usize]);
        Some([a?, b?, c?])
    }
}
