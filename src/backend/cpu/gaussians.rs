//! Gaussians as views see them: ellipsoids whose colour is a sum of spherical harmonics.

use super::ellipsoid::Ellipsoid;
use super::model::{Model, NotFinite, Parameter};
use super::primitive::{DensityField, Drawable};
use super::splat::{DrawnView, Splat};
use crate::math::blend::ScreenGradient;
use crate::math::field::GEOMETRY;
use crate::math::linalg::{Vec3, normalize, normalize_bwd, sub};
use crate::math::{Real, sh};
use crate::model::Gaussians;

/// The columns that decide where a Gaussian is seen, the first of all.
const GEOMETRY_COLUMNS: usize = 4;

impl Drawable for Gaussians {
    fn project<R: Real>(
        model: &Model<R>,
        row: usize,
        view: &DrawnView<R>,
    ) -> Result<Option<Splat<R>>, NotFinite> {
        model.check_finite(row, 0..GEOMETRY_COLUMNS)?;
        let Some(splat) = model.ellipsoid(row).splat(row, view) else { return Ok(None) };
        let color = raw_color(model, row, view);
        if let Some(value) = color.into_iter().find(|c| !c.is_finite()) {
            model.check_finite(row, GEOMETRY_COLUMNS..Parameter::ALL.len())?;
            // Finite coefficients, so large that their sum is not.
            return Err(NotFinite { column: Parameter::ShDc as usize, value: value.to_f64() });
        }
        Ok(Some(Splat { color: color.map(|c| c.max(R::ZERO)), ..splat }))
    }

    fn project_bwd<R: Real>(
        model: &Model<R>,
        row: usize,
        view: &DrawnView<R>,
        d_splat: &ScreenGradient<R>,
        d_row: &mut [R],
    ) {
        let ellipsoid = model.ellipsoid(row);
        let Some((geometry, sh)) = d_row.split_first_chunk_mut() else { return };
        let d_mean = color_bwd(model, row, view, d_splat.d_color, sh);
        for (sum, d) in geometry.iter_mut().zip(d_mean) {
            *sum += d;
        }
        ellipsoid.splat_bwd(view, d_splat, geometry);
    }

    fn density_field<R: Real>(model: &Model<R>) -> Option<&dyn DensityField<R>> {
        Some(model)
    }
}

impl<R: Real> DensityField<R> for Model<R> {
    fn ellipsoid(&self, row: usize) -> Ellipsoid<R> {
        let opacity_logit = self.row(Parameter::OpacityLogits, row)[0];
        Ellipsoid { shape: self.shape(row), opacity_logit }
    }

    fn ellipsoid_bwd(&self, d_ellipsoid: &[R; GEOMETRY], d_row: &mut [R]) {
        for (sum, &d) in d_row.iter_mut().zip(d_ellipsoid) {
            *sum += d;
        }
    }
}

/// Colour before it is held above 0: 0.5 + Σ `b_k(direction)` `sh_k`.
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

/// `d_mean` through the viewing direction; adds to the gradients of the coefficients, `[k][3]`.
///
/// A channel that was held at 0 takes no gradient.
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
