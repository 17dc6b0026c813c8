//! Stage `reorder`: neighbours in space become neighbours in memory.

use crate::backend::cpu::model::{Model, ModelColumn};
use crate::math::Real;
use crate::math::morton::Cube;
use crate::model::Primitive;

/// Puts the rows in the order of their centres' keys; rows of one key keep their order. Rows that are
/// nowhere stay as they are.
pub(crate) fn reorder<R: Real, P: Primitive>(model: &mut Model<R, P>, cube: &Cube) {
    let Some(places) = P::SCHEMA.places() else { return };
    model.invalidate_rows();
    let mut row_from_place: Vec<usize> = (0..model.len()).collect();
    row_from_place.sort_by_cached_key(|&row| {
        let place = model.values(places, row);
        cube.key([0, 1, 2].map(|axis| place[axis].to_f32()))
    });
    for ModelColumn { width, values, first_moments, second_moments } in &mut model.columns {
        for column in [values, first_moments, second_moments] {
            *column = gathered(column, *width, &row_from_place);
        }
    }
    model.gradient_norm_sums = gathered(&model.gradient_norm_sums, 1, &row_from_place);
    model.views_seen = gathered(&model.views_seen, 1, &row_from_place);
    for column in [&mut model.absolute_norm_sums, &mut model.filter_3d] {
        if !column.is_empty() {
            *column = gathered(column, 1, &row_from_place);
        }
    }
}

/// The rows of a column in another order, in exactly as much memory as they need.
fn gathered<T: Copy>(values: &[T], width: usize, row_from_place: &[usize]) -> Vec<T> {
    let mut gathered = Vec::with_capacity(values.len());
    for row in row_from_place {
        gathered.extend_from_slice(&values[row * width..(row + 1) * width]);
    }
    gathered
}
