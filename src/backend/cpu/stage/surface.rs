//! Stage `surface`: what has Gaussians lie on surfaces (SuGaR: Guédon and Lepetit 2024, section
//! 4.1), and its gradients of their geometry.

use rayon::prelude::*;

use super::gradients::Gradients;
use super::neighbours::NearestLists;
use super::sampler::{GeometryRow, Sampler};
use crate::abi::terms::{
    At, Inputs, Means, Terms, VALUE_DENSITY, VALUE_ENTROPY, VALUE_NORMAL, VALUE_SDF,
};
use crate::backend::cpu::model::Model;
use crate::backend::cpu::primitive::{DensityField, Drawable, density_field};
use crate::backend::{Capability, DeviceError, LossValues, check_inputs};
use crate::math::Real;
use crate::math::field::{GEOMETRY, entropy, entropy_bwd};

/// Adds the gradients of the terms at samples of the last view; returns the terms' values.
pub(crate) fn regularise<R: Real, P: Drawable>(
    model: &Model<R, P>,
    near: Option<&NearestLists<P>>,
    gradients: &mut Gradients<R, P>,
    terms: &Terms,
) -> Result<LossValues, DeviceError> {
    let field = density_field(model, Capability::Surfaces)?;
    let view = gradients.views.last_mut().ok_or(DeviceError::NoView)?;
    // By its name, before it spreads to its neighbours.
    view.fault.take().map_or(Ok(()), Err)?;
    check_inputs(
        terms,
        Inputs { inverse_depths: true, maps: true, median: true, other_view: true, ..Inputs::NONE },
        near.is_some(),
    )?;
    let near = near.filter(|_| terms.needs().samples);
    if let Some(near) = near {
        near.check(model)?;
    }
    let visible = &view.row_from_splat;
    let mut means = Means::default();
    let entropy_weight = terms.weight(VALUE_ENTROPY);
    if !visible.is_empty() {
        gradients.geometry.resize(model.len() * GEOMETRY, R::ZERO);
        let rows = gradients.geometry.as_chunks_mut().0;
        if entropy_weight != 0.0 {
            means[VALUE_ENTROPY as usize] =
                regularise_opacities(field, visible, entropy_weight, rows);
        }
        if let Some(near) = near {
            let map = view.depth_map.as_ref();
            let sampler = Sampler::new(model, near, visible.clone(), terms, map)?;
            let [density, normal, sdf] = sampler.run(rows);
            means[VALUE_DENSITY as usize] = density;
            means[VALUE_NORMAL as usize] = normal;
            means[VALUE_SDF as usize] = sdf;
        }
    }
    LossValues::of(terms.active_at(At::Samples), &means).checked()
}

/// Adds the gradients of the mean entropy of these opacities times `weight`; gives the mean.
fn regularise_opacities<R: Real>(
    field: &dyn DensityField<R>,
    visible: &[usize],
    weight: f64,
    rows: &mut [GeometryRow<R>],
) -> f64 {
    let count = visible.len() as f64;
    let d_entropy = R::of(weight / count);
    let each: Vec<(R, R)> = visible
        .par_iter()
        .map(|&row| {
            let logit = field.ellipsoid(row).opacity_logit;
            (entropy(logit), entropy_bwd(logit, d_entropy))
        })
        .collect();
    let mut sum = 0.0;
    for (&row, (value, d_logit)) in visible.iter().zip(each) {
        sum += value.to_f64();
        rows[row][GEOMETRY - 1] += d_logit;
    }
    sum / count
}
