//! Stage `bind`: moves Gaussians with the mesh that they are bound to, and maps their gradients to the mesh.
//! Each vertex sums its gradients in the order of its lists.

use std::sync::Arc;

use rayon::prelude::*;

use super::adam;
use super::gradients::Gradients;
use crate::backend::cpu::model::{Model, ModelColumn, Parameter, host, precise};
use crate::backend::{BoundState, BoundStep, DeviceError};
use crate::math::Real;
use crate::math::adam::AdamCoefficients;
use crate::math::bound::{
    BoundGradient, FlatForm, FlatGradient, Hinge, crease_bwd, place, place_bwd,
};
use crate::math::field::GEOMETRY;
use crate::math::linalg::{Vec3, add};
use crate::model::{BoundColumns, BoundTopology};

/// A mesh on the CPU and the shape of the Gaussians that are bound to it.
#[derive(Clone, Debug)]
pub struct Binding<R> {
    topology: Arc<BoundTopology>,
    vertices: ModelColumn<R>,
    log_scales: ModelColumn<R>,
    turns: ModelColumn<R>,
}

impl<R: Real> Binding<R> {
    /// Creates a binding from the host's state.
    pub(crate) fn new(topology: &Arc<BoundTopology>, state: &BoundState) -> Self {
        let parts = [&state.values, &state.first_moments, &state.second_moments];
        let [vertices, log_scales, turns] = [0, 1, 2].map(|column| {
            let [values, first_moments, second_moments] =
                parts.map(|part| precise(part.values()[column]).collect());
            let width = BoundColumns::WIDTHS[column];
            ModelColumn { width, values, first_moments, second_moments }
        });
        Self { topology: Arc::clone(topology), vertices, log_scales, turns }
    }

    /// Returns the learned state.
    pub(crate) fn read(&self) -> BoundState {
        let columns = [&self.vertices, &self.log_scales, &self.turns];
        let part = |of: fn(&ModelColumn<R>) -> &[R]| {
            let [vertices, log_scales, turns] = columns.map(|column| host(of(column)));
            BoundColumns { vertices, log_scales, turns }
        };
        BoundState {
            values: part(|column| &column.values),
            first_moments: part(|column| &column.first_moments),
            second_moments: part(|column| &column.second_moments),
        }
    }

    /// Updates the model's Gaussians from the mesh.
    pub(crate) fn place(&self, model: &mut Model<R>) {
        let log_thickness = R::of_f32(self.topology.log_thickness);
        let places: Vec<_> = (0..self.topology.gaussians())
            .into_par_iter()
            .map(|row| place(&self.corners(row), self.weights(row), &self.form(row)))
            .collect();
        let mut column =
            |parameter: Parameter, width: usize, of: &(dyn Fn(usize) -> [R; 4] + Sync)| {
                let values = &mut model.column_mut(parameter).values;
                values.par_chunks_mut(width).enumerate().for_each(|(row, values)| {
                    values.copy_from_slice(&of(row)[..width]);
                });
            };
        column(Parameter::Means, 3, &|row| {
            let [x, y, z] = places[row].mean;
            [x, y, z, R::ZERO]
        });
        column(Parameter::LogScales, 3, &|row| {
            let [first, second] = self.form(row).log_scales;
            [log_thickness, first, second, R::ZERO]
        });
        column(Parameter::Quats, 4, &|row| places[row].quat);
    }

    /// Takes a step of all learned values. `seed` determines the stochastic rounding of compact storage.
    pub(crate) fn step(
        &mut self,
        model: &mut Model<R>,
        gradients: &Gradients<R>,
        step: &BoundStep,
        seed: u64,
    ) -> Result<(), DeviceError> {
        let mut d_geometry = vec![R::ZERO; model.len() * GEOMETRY];
        adam::step(model, gradients, &step.of_gaussians(), seed, Some(&mut d_geometry))?;
        let flat = self.flat_gradients(model, &d_geometry);
        let per_hinge = step.per_hinge(self.topology.hinges.len());
        let d_vertices = self.vertex_gradients(&flat, R::of(per_hinge));
        let rates = step.adam.rates;
        let moved = |column: &mut ModelColumn<R>, rate, d: &(dyn Fn(usize) -> R + Sync)| {
            let coefficients = AdamCoefficients::new(&step.adam.moments, rate);
            let moments = column.first_moments.par_iter_mut().zip(&mut column.second_moments);
            column.values.par_iter_mut().zip(moments).enumerate().with_min_len(1024).for_each(
                |(at, (value, (first, second)))| coefficients.apply(value, first, second, d(at)),
            );
        };
        moved(&mut self.vertices, rates.means, &|at| d_vertices.as_flattened()[at]);
        moved(&mut self.log_scales, rates.log_scales, &|at| flat[at / 2].d_log_scales[at % 2]);
        moved(&mut self.turns, rates.quats, &|at| flat[at / 2].d_turn[at % 2]);
        self.check_finite()?;
        self.place(model);
        Ok(())
    }

    fn vertex(&self, vertex: u32) -> Vec3<R> {
        let values = &self.vertices.values[3 * vertex as usize..][..3];
        [values[0], values[1], values[2]]
    }

    fn corners(&self, row: usize) -> [Vec3<R>; 3] {
        let face = row / self.topology.per_triangle.count();
        self.topology.faces[face].map(|vertex| self.vertex(vertex))
    }

    fn weights(&self, row: usize) -> Vec3<R> {
        let all = self.topology.per_triangle.weights();
        all[row % all.len()].map(R::of)
    }

    fn form(&self, row: usize) -> FlatForm<R> {
        let pair = |column: &ModelColumn<R>| [0, 1].map(|i| column.values[2 * row + i]);
        FlatForm { log_scales: pair(&self.log_scales), turn: pair(&self.turns) }
    }

    /// Returns the gradients of the flat form of each Gaussian.
    fn flat_gradients(&self, model: &Model<R>, d_geometry: &[R]) -> Vec<FlatGradient<R>> {
        let flat = |(row, d): (usize, &[R])| {
            let quat = std::array::from_fn(|i| model.row(Parameter::Quats, row)[i]);
            let gradient = BoundGradient {
                d_mean: [d[0], d[1], d[2]],
                d_log_scale: [d[3], d[4], d[5]],
                d_quat: [d[6], d[7], d[8], d[9]],
            };
            place_bwd(&self.corners(row), self.weights(row), &self.form(row), quat, &gradient)
        };
        d_geometry.par_chunks(GEOMETRY).enumerate().map(flat).collect()
    }

    /// Returns the gradient of each vertex: the sum over the Gaussians of its faces, then over its hinges.
    fn vertex_gradients(&self, flat: &[FlatGradient<R>], per_hinge: R) -> Vec<Vec3<R>> {
        let BoundTopology { hinges, corners_of, hinges_of, .. } = &*self.topology;
        let gather = |vertex: usize| {
            let mut sum = [R::ZERO; 3];
            for &corner in corners_of.numbers_of(vertex) {
                let [face, place] = [corner / 3, corner % 3].map(|number| number as usize);
                for of_row in &flat[self.topology.rows_of(face)] {
                    sum = add(sum, of_row.d_corners[place]);
                }
            }
            if per_hinge != R::ZERO {
                for &number in hinges_of.numbers_of(vertex) {
                    let [hinge, place] = [number / 4, number % 4].map(|number| number as usize);
                    let hinge: Hinge<R> = hinges[hinge].map(|vertex| self.vertex(vertex));
                    sum = add(sum, crease_bwd(&hinge, per_hinge)[place]);
                }
            }
            sum
        };
        (0..self.topology.vertices()).into_par_iter().map(gather).collect()
    }

    /// Fails on a value that is not finite: images would spread it to all other values.
    fn check_finite(&self) -> Result<(), DeviceError> {
        let columns = [
            (&self.vertices, "vertex", "place"),
            (&self.log_scales, "Gaussian", "log-scale"),
            (&self.turns, "Gaussian", "rotation"),
        ];
        for (column, primitive, group) in columns {
            for values in [&column.values, &column.second_moments] {
                let found = values.par_iter().position_first(|value| !value.is_finite());
                if let Some(at) = found {
                    let (index, value) = (at / column.width, values[at].to_f64());
                    return Err(DeviceError::NotFinite { primitive, index, group, value });
                }
            }
        }
        Ok(())
    }
}
