//! Projection of Gaussians with SH colours, as ellipsoids or as triangle vertices.

use super::model::{Model, NotFinite, Parameter};
use super::primitive::{DensityField, Drawable, DrawnView, Ellipsoid, Splat, VertexRows};
use crate::backend::{Footprint, Window};
use crate::math::adam::{floored, floored_bwd};
use crate::math::blend::ScreenGradient;
use crate::math::field::GEOMETRY;
use crate::math::linalg::{Vec3, add, add_to, normalize, normalize_bwd, sub};
use crate::math::splat::{PlaceGradients, Vertex, place_vertex, place_vertex_bwd};
use crate::math::{Real, sh};
use crate::model::Gaussians;

/// Number of leading columns that determine visibility.
const GEOMETRY_COLUMNS: usize = 4;

impl Drawable for Gaussians {
    fn project<R: Real>(
        model: &Model<R>,
        row: usize,
        view: &DrawnView<R>,
    ) -> Result<Option<Splat<R>>, NotFinite> {
        model.check_finite(row, 0..GEOMETRY_COLUMNS)?;
        let Some(splat) = model.ellipsoid(row).splat(row, view) else { return Ok(None) };
        Ok(Some(Splat { color: color(model, row, view)?, ..splat }))
    }

    fn project_bwd<R: Real>(
        model: &Model<R>,
        row: usize,
        view: &DrawnView<R>,
        d_splat: &ScreenGradient<R>,
        d_row: &mut [R],
    ) {
        if let Footprint::Triangle(window) = view.footprint {
            return vertex_bwd(model, row, view, &window, d_splat, d_row);
        }
        let ellipsoid = model.ellipsoid(row);
        let Some((geometry, sh)) = d_row.split_first_chunk_mut::<GEOMETRY>() else { return };
        let d_mean = color_bwd(model, row, view, d_splat.d_color, sh);
        add_to(geometry, &d_mean);
        ellipsoid.splat_bwd(view, d_splat, geometry);
    }

    fn density_field<R: Real>(model: &Model<R>) -> Option<&dyn DensityField<R>> {
        Some(model)
    }

    fn vertex_rows<R: Real>(model: &Model<R>) -> Option<&dyn VertexRows<R>> {
        Some(model)
    }
}

impl<R: Real> VertexRows<R> for Model<R> {
    fn vertex(&self, row: usize, view: &DrawnView<R>) -> Result<Option<Vertex<R>>, NotFinite> {
        let Footprint::Triangle(Window { opacity_floor, .. }) = view.footprint else {
            return Ok(None);
        };
        for parameter in [Parameter::Means, Parameter::OpacityLogits] {
            self.check_finite(row, parameter as usize..parameter as usize + 1)?;
        }
        let place = place_vertex(&view.viewpoint, self.triple(Parameter::Means, row));
        let Some((px, inverse_depth)) = place else { return Ok(None) };
        let logit = self.row(Parameter::OpacityLogits, row)[0];
        let opacity = floored(logit, R::of(opacity_floor));
        Ok(Some(Vertex { px, inverse_depth, opacity, color: color(self, row, view)? }))
    }
}

/// Adds the gradients of a vertex's raw parameters; nothing if the view does not see the vertex.
fn vertex_bwd<R: Real>(
    model: &Model<R>,
    row: usize,
    view: &DrawnView<R>,
    window: &Window,
    d: &ScreenGradient<R>,
    d_row: &mut [R],
) {
    let world = model.triple(Parameter::Means, row);
    let (viewpoint, d_depth) = (&view.viewpoint, d.d_inverse_depth);
    let Some(d_place) = place_vertex_bwd(viewpoint, world, d.d_mean_px, d_depth) else { return };
    let Some((geometry, sh)) = d_row.split_first_chunk_mut::<GEOMETRY>() else { return };
    let d_direction = color_bwd(model, row, view, d.d_color, sh);
    let by_direction = match window.gradients {
        PlaceGradients::All => d_direction,
        PlaceGradients::EdgeDistances => [R::ZERO; 3],
    };
    add_to(geometry, &add(d_place, by_direction));
    let logit = model.row(Parameter::OpacityLogits, row)[0];
    geometry[GEOMETRY - 1] += floored_bwd(logit, R::of(window.opacity_floor), d.d_opacity);
}

impl<R: Real> DensityField<R> for Model<R> {
    fn ellipsoid(&self, row: usize) -> Ellipsoid<R> {
        let opacity_logit = self.row(Parameter::OpacityLogits, row)[0];
        Ellipsoid { shape: self.shape(row), opacity_logit }
    }

    fn ellipsoid_bwd(&self, d_ellipsoid: &[R; GEOMETRY], d_row: &mut [R]) {
        add_to(d_row, d_ellipsoid);
    }
}

/// Returns the colour, clamped to at least 0.
fn color<R: Real>(model: &Model<R>, row: usize, view: &DrawnView<R>) -> Result<Vec3<R>, NotFinite> {
    let color = raw_color(model, row, view);
    if let Some(value) = color.into_iter().find(|c| !c.is_finite()) {
        model.check_finite(row, GEOMETRY_COLUMNS..Parameter::ALL.len())?;
        // The coefficients are finite, but their sum is not.
        return Err(NotFinite { column: Parameter::ShDc as usize, value: value.to_f64() });
    }
    Ok(color.map(|c| c.max(R::ZERO)))
}

/// Returns the colour before clamping: 0.5 + Σ `b_k(direction)` `sh_k`.
fn raw_color<R: Real>(model: &Model<R>, row: usize, view: &DrawnView<R>) -> Vec3<R> {
    let sh_degree = view.sh_degree;
    let mean = model.triple(Parameter::Means, row);
    let direction = normalize(sub(mean, view.viewpoint.centre_world));
    let basis = sh::basis(sh_degree, direction);
    let [dc, rest @ ..] = model.coefficients(row);
    let mut color = dc.map(|c| R::HALF + c * basis[0]);
    for (&weight, coefficient) in basis[1..sh::coefficients(sh_degree)].iter().zip(&rest) {
        for (sum, &c) in color.iter_mut().zip(coefficient) {
            *sum += weight * c;
        }
    }
    color
}

/// Returns `d_mean` through the viewing direction and adds to the gradients of the SH coefficients, `[k][3]`.
///
/// A channel that was clamped to 0 has no gradient.
fn color_bwd<R: Real>(
    model: &Model<R>,
    row: usize,
    view: &DrawnView<R>,
    d_color: Vec3<R>,
    d_sh: &mut [R],
) -> Vec3<R> {
    let sh_degree = view.sh_degree;
    let color = raw_color(model, row, view);
    let d_color: Vec3<R> =
        std::array::from_fn(|c| if color[c] > R::ZERO { d_color[c] } else { R::ZERO });

    let offset = sub(model.triple(Parameter::Means, row), view.viewpoint.centre_world);
    let direction = normalize(offset);
    let basis = sh::basis(sh_degree, direction);
    let [_, rest @ ..] = model.coefficients(row);
    let mut d_basis = [R::ZERO; sh::MAX_COEFFICIENTS];
    let d_sh = d_sh.as_chunks_mut::<3>().0;
    for k in 0..sh::coefficients(sh_degree) {
        for c in 0..3 {
            d_sh[k][c] += basis[k] * d_color[c];
        }
        // The basis function of degree 0 does not depend on the direction.
        if k > 0 {
            d_basis[k] = (0..3).map(|c| rest[k - 1][c] * d_color[c]).sum();
        }
    }
    normalize_bwd(offset, sh::basis_bwd(sh_degree, direction, &d_basis))
}
