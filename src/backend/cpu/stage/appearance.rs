//! Stage `appearance`: per-view colour compensation, its gradients and steps; and the fit of a render's colours
//! to a photograph.

use rayon::prelude::*;

use super::blend::Canvas;
use crate::backend::appearance::LazyTableStep;
use crate::backend::{AppearanceTables, Compensation, DeviceError, TableStep};
use crate::dataset::Image;
use crate::math::Real;
use crate::math::appearance::{
    AFFINE_WIDTH, Affine, FIT_SUMS, GridPlace, add_map_gradient, affine, affine_bwd, fit,
    fit_terms, total_variation_bwd,
};
use crate::math::linalg::{Vec3, add_to};

/// Rows of pixels whose gradients are summed separately, for results that do not depend on the thread count.
const ROWS: u32 = 16;

/// Table of one view.
struct TableRows<'a, R> {
    steps: &'a mut u32,
    values: &'a mut [R],
    first_moments: &'a mut [R],
    second_moments: &'a mut [R],
}

fn table<R>(
    tables: &mut AppearanceTables<R>,
    view: usize,
) -> Result<TableRows<'_, R>, DeviceError> {
    let (width, views) = (tables.kind.width(), tables.steps.len());
    let row = view * width..(view + 1) * width;
    let steps = tables.steps.get_mut(view).ok_or(DeviceError::NoSuchTable { view, views })?;
    Ok(TableRows {
        steps,
        values: &mut tables.values[row.clone()],
        first_moments: &mut tables.first_moments[row.clone()],
        second_moments: &mut tables.second_moments[row],
    })
}

/// Returns the compensated colours of a frame, `[height, width, 3]`. First advances the table by its momentum
/// over the steps that it skipped, as in dense Adam.
pub(crate) fn compensate<R: Real>(
    tables: &mut AppearanceTables<R>,
    canvas: &Canvas<R>,
    step: &TableStep,
) -> Result<Vec<R>, DeviceError> {
    let kind = tables.kind;
    let table = table(tables, step.view)?;
    let before = step.number.saturating_sub(1);
    if let Some(lazy_step) = LazyTableStep::<R>::new(&step.rule, *table.steps, before) {
        let moments = table.first_moments.iter_mut().zip(table.second_moments);
        for (value, (first, second)) in table.values.iter_mut().zip(moments) {
            *value -= lazy_step.drift * *first / (second.sqrt() + lazy_step.epsilon);
            *first *= lazy_step.decay_1;
            *second *= lazy_step.decay_2;
        }
        *table.steps = before;
    }
    let values = &*table.values;
    let size = canvas.size;
    let mut compensated = canvas.image.clone();
    let rows = compensated.par_chunks_mut(size[0] as usize * 3).zip(0..size[1]);
    rows.for_each(|(pixels, y)| {
        for (pixel, x) in pixels.chunks_exact_mut(3).zip(0..) {
            let rgb = triple(pixel);
            let map = match kind {
                Compensation::Exposure => map_of(values),
                Compensation::BilateralGrid => GridPlace::new([x, y], size, rgb).slice(values).map,
            };
            pixel.copy_from_slice(&affine(&map, rgb));
        }
    });
    Ok(compensated)
}

/// Updates the view's table, and replaces the gradient of the compensated image by that of the drawn image.
pub(crate) fn learn<R: Real>(
    tables: &mut AppearanceTables<R>,
    canvas: &Canvas<R>,
    d_image: &mut [R],
    step: &TableStep,
) -> Result<(), DeviceError> {
    let kind = tables.kind;
    let table = table(tables, step.view)?;
    let (size, values) = (canvas.size, &*table.values);
    let span = (ROWS * size[0]) as usize * 3;
    let sums: Vec<Vec<R>> = d_image
        .par_chunks_mut(span)
        .zip(canvas.image.par_chunks(span))
        .zip(0..size[1].div_ceil(ROWS))
        .map(|((d_pixels, pixels), block)| {
            let mut d_table = vec![R::ZERO; kind.width()];
            let first = block * ROWS;
            for ((d_pixel, pixel), i) in
                d_pixels.chunks_exact_mut(3).zip(pixels.chunks_exact(3)).zip(0..)
            {
                let (rgb, d_out) = (triple(pixel), triple(d_pixel));
                let d_rgb = match kind {
                    Compensation::Exposure => {
                        add_map_gradient(&mut d_table, R::ONE, rgb, d_out);
                        affine_bwd(&map_of(values), d_out)
                    }
                    Compensation::BilateralGrid => {
                        let place = GridPlace::new([i % size[0], first + i / size[0]], size, rgb);
                        place.add_grid_gradient(&mut d_table, rgb, d_out);
                        place.slice_bwd(values, rgb, d_out)
                    }
                };
                d_pixel.copy_from_slice(&d_rgb);
            }
            d_table
        })
        .collect();
    let mut d_table = vec![R::ZERO; kind.width()];
    for sum in sums {
        add_to(&mut d_table, &sum);
    }
    if kind == Compensation::BilateralGrid {
        let weight = R::of(step.rule.total_variation);
        for (k, d) in d_table.iter_mut().enumerate() {
            *d += weight * total_variation_bwd(values, k);
        }
    }
    // A repeated iteration must not move the table again.
    if *table.steps >= step.number {
        return Ok(());
    }
    let coefficients = step.coefficients();
    let moments = table.first_moments.iter_mut().zip(table.second_moments);
    for ((value, (first, second)), d) in table.values.iter_mut().zip(moments).zip(d_table) {
        coefficients.apply(value, first, second, d);
    }
    *table.steps = step.number;
    Ok(())
}

/// Returns the frame's colours, clamped to 0..1 and corrected by the affine map that fits the photograph best,
/// `[height, width, 3]`. Masked pixels do not affect the fit.
pub(crate) fn correct<R: Real>(canvas: &Canvas<R>, target: &Image) -> Result<Vec<R>, DeviceError> {
    let target_px = [target.width, target.height];
    if target_px != canvas.size {
        return Err(DeviceError::TargetSize { target_px, view_px: canvas.size });
    }
    let held = |pixel: &[R]| triple(pixel).map(|value| value.to_f64().clamp(0.0, 1.0));
    let counts = |i: usize| target.mask.as_ref().is_none_or(|mask| mask[i] != 0);
    let mut sums = [0.0; FIT_SUMS];
    for (i, (pixel, photo)) in
        canvas.image.chunks_exact(3).zip(target.rgb.chunks_exact(3)).enumerate()
    {
        if counts(i) {
            let photo = [photo[0], photo[1], photo[2]].map(|value| f64::from(value) / 255.0);
            add_to(&mut sums, &fit_terms(held(pixel), photo));
        }
    }
    let map = fit(&sums);
    let pixels = canvas.image.par_chunks_exact(3);
    Ok(pixels.flat_map_iter(|pixel| affine(&map, held(pixel)).map(R::of)).collect())
}

fn triple<R: Copy>(pixel: &[R]) -> Vec3<R> {
    [pixel[0], pixel[1], pixel[2]]
}

/// Returns the map of an exposure table.
fn map_of<R: Real>(values: &[R]) -> Affine<R> {
    std::array::from_fn::<_, AFFINE_WIDTH, _>(|k| values[k])
}
