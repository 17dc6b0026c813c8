//! Meshes on the processor: triangles between the rows of a model.

use super::Cpu;
use super::model::{Model, Parameter, host, precise};
use super::model_faces::ModelFaces;
use crate::backend::{DeviceError, FaceStatistics, Faces, Remesh};
use crate::math::Real;
use crate::math::adam::{log_sizes, mean_logit, raised_logit};

/// Fails where one of these is not below `len`.
fn check_exist<'a>(rows: impl IntoIterator<Item = &'a u32>, len: usize) -> Result<(), DeviceError> {
    let largest = rows.into_iter().max().map_or(0, |&row| row as usize + 1);
    match largest <= len {
        true => Ok(()),
        false => Err(DeviceError::NoSuchRow { row: largest - 1, len }),
    }
}

impl<R: Real> Faces for Cpu<R> {
    fn set_faces(&mut self, model: &mut Model<R>, faces: &[[u32; 3]]) -> Result<(), DeviceError> {
        check_exist(faces.as_flattened(), model.len())?;
        model.faces = ModelFaces::new(faces);
        model.invalidate_rows();
        Ok(())
    }

    fn faces<'a>(&self, model: &'a Model<R>) -> &'a [[u32; 3]] {
        &model.faces.corners
    }

    fn vertices(&mut self, model: &Model<R>) -> Result<Vec<[f32; 4]>, DeviceError> {
        let vertex = |row: usize| {
            let [x, y, z] = model.triple(Parameter::Means, row).map(Real::to_f32);
            [x, y, z, model.row(Parameter::OpacityLogits, row)[0].to_f32()]
        };
        Ok((0..model.len()).map(vertex).collect())
    }

    fn face_statistics(&mut self, model: &Model<R>) -> Result<FaceStatistics, DeviceError> {
        let ModelFaces { weights, reaches_px, gradient_norms, .. } = &model.faces;
        Ok(FaceStatistics {
            weights: host(weights),
            reaches_px: host(reaches_px),
            gradient_norms: host(gradient_norms),
        })
    }

    fn set_face_statistics(
        &mut self,
        model: &mut Model<R>,
        statistics: &FaceStatistics,
    ) -> Result<(), DeviceError> {
        let faces = model.faces.corners.len();
        let columns = statistics.columns();
        if let Some(other) = columns.iter().find(|column| column.len() != faces) {
            return Err(DeviceError::OtherFaces { found: other.len(), faces });
        }
        let ModelFaces { weights, reaches_px, gradient_norms, .. } = &mut model.faces;
        [*weights, *reaches_px, *gradient_norms] = columns.map(|column| precise(column).collect());
        Ok(())
    }

    fn remesh(&mut self, model: &mut Model<R>, change: &Remesh<'_>) -> Result<(), DeviceError> {
        let &Remesh { kept, midpoints, faces } = change;
        let before = model.len();
        check_exist(kept.iter().chain(midpoints.as_flattened()), before)?;
        check_exist(faces.as_flattened(), kept.len() + midpoints.len())?;
        if !kept.is_sorted_by(|a, b| a < b) {
            return Err(DeviceError::KeptNotAscending);
        }
        model.reserve_rows(midpoints.len());
        for &ends in midpoints {
            let ends = ends.map(|row| row as usize);
            let logits = ends.map(|row| model.row(Parameter::OpacityLogits, row)[0]);
            model.append_mean(ends);
            let column = &mut model.column_mut(Parameter::OpacityLogits).values;
            if let Some(logit) = column.last_mut() {
                *logit = mean_logit(logits);
            }
        }
        let mut keep = vec![false; before];
        for &row in kept {
            keep[row as usize] = true;
        }
        keep.resize(before + midpoints.len(), true);
        model.retain_rows(&keep);
        model.faces = ModelFaces::new(faces);
        size_vertices(model);
        model.forget_statistics();
        model.invalidate_rows();
        Ok(())
    }
}

/// Has the scales of each vertex say how large its triangles are.
fn size_vertices<R: Real>(model: &mut Model<R>) {
    let place = |row: usize| model.triple(Parameter::Means, row);
    let sizes = log_sizes(model.len(), &model.faces.corners, place);
    model.column_mut(Parameter::LogScales).values =
        sizes.into_iter().flat_map(|size| [size; 3]).collect();
}

/// Raises the opacity that every vertex has at least.
pub(super) fn raise_opacity_floor<R: Real>(model: &mut Model<R>, before: f64, after: f64) {
    // In double precision: next to 1 single precision has few opacities.
    for logit in &mut model.column_mut(Parameter::OpacityLogits).values {
        *logit = R::of(raised_logit(logit.to_f64(), before, after));
    }
}
