//! Stage `vertices`: rows to vertices on the screen.

use rayon::prelude::*;

use super::project::FirstBroken;
use crate::backend::DeviceError;
use crate::backend::cpu::model::Model;
use crate::backend::cpu::primitive::{Drawable, vertex_rows};
use crate::backend::cpu::splat::DrawnView;
use crate::math::Real;
use crate::math::splat::Vertex;

/// Every row as the view sees it, and what is wrong with the first that is broken.
pub(crate) struct Vertices<R> {
    /// Nothing of a row that is not beyond the nearest depth, or broken; `[rows]`.
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
        let look = |row| rows.vertex(row, view);
        let numbers = (0..model.len()).into_par_iter();
        let seen = numbers.map(|row| first_broken.unless(row, look(row))).collect();
        Ok(Self { seen, fault: first_broken.fault::<P, _>(look) })
    }

    /// Those of a face, where all are seen.
    pub(crate) fn corners(&self, face: [u32; 3]) -> Option<[Vertex<R>; 3]> {
        let [a, b, c] = face.map(|row| self.seen[row as usize]);
        Some([a?, b?, c?])
    }
}
