//! Stage `reorder`: sorts rows so that neighbours in space are close in memory.

use crate::backend::cpu::model::Model;
use crate::math::Real;
use crate::math::morton::Cube;
use crate::model::Primitive;

/// Sorts the rows by the keys of their centres. The sort is stable. Models without centres do not change.
pub(crate) fn reorder<R: Real, P: Primitive>(model: &mut Model<R, P>, cube: &Cube) {
    let Some(places) = P::SCHEMA.places() else { return };
    let mut row_from_place: Vec<usize> = (0..model.len()).collect();
    row_from_place.sort_by_cached_key(|&row| {
        let place = model.values(places, row);
        cube.key([0, 1, 2].map(|axis| place[axis].to_f32()))
    });
    model.reorder_rows(&row_from_place);
}
