//! How dense the points lie, and the area that each stands for.
//!
//! `c_j = sum over points of phi_j(p)`. Over a surface with rho points an area,
//! `sum_j phi_j(p) c_j = rho h² 2/3` on average: the hats' products integrate to h² in the surface, and
//! to 2/3 across it, averaged over how the surface lies between two nodes.

use rayon::prelude::*;

use super::nodes::NodeField;
use super::sorted::SortedPoints;
use crate::narrow::to_f32;

/// Mean of the sum of the squares of the hats at a place, one axis.
const ACROSS: f64 = 2.0 / 3.0;

/// Points a part of a parallel loop over points takes.
pub(super) const POINTS_A_PART: usize = 4096;

/// The points' density.
pub(super) struct Density {
    field: NodeField<1>,
}

impl Density {
    /// Counts the points at the nodes of a level.
    pub(super) fn new(points: &SortedPoints, level: u32) -> Self {
        Self { field: NodeField::of_points(points, level, |_| [1.0]) }
    }

    /// Area that each point stands for, in units of the cube's face: 1 / rho.
    pub(super) fn areas(&self, points: &SortedPoints) -> Vec<f32> {
        let cells_a_face = 4.0_f64.powi(self.field.level().cast_signed());
        let mut areas = vec![0.0; points.len()];
        areas
            .par_chunks_mut(POINTS_A_PART)
            .zip(points.points.places.par_chunks(POINTS_A_PART))
            .for_each(|(areas, places)| {
                let mut reader = self.field.reader();
                for (area, &place) in areas.iter_mut().zip(places) {
                    let [density] = reader.at(points.cube.unit(place));
                    *area = to_f32(ACROSS / (density * cells_a_face));
                }
            });
        areas
    }

    /// Points a cell of level `depth` that the surface crosses squarely: rho h², at places in units of
    /// the cube.
    pub(super) fn points_a_cell(&self, units: &[[f64; 3]], depth: u32) -> Vec<f32> {
        let smaller = 4.0_f64.powi(self.field.level().cast_signed() - depth.cast_signed());
        let mut found = vec![0.0; units.len()];
        found.par_chunks_mut(POINTS_A_PART).zip(units.par_chunks(POINTS_A_PART)).for_each(
            |(found, units)| {
                let mut reader = self.field.reader();
                for (found, &unit) in found.iter_mut().zip(units) {
                    let [density] = reader.at(unit);
                    *found = to_f32(density / ACROSS * smaller);
                }
            },
        );
        found
    }
}
