//! Stage `remesh`: other vertices and triangles. Whatever may be refused is asked for before anything changes.

use rayon::prelude::*;

use super::densify::DensifyWork;
use crate::abi::{GEOMETRY_WIDTH, MidpointsArgs, RaiseFloorArgs, VertexSizesArgs};
use crate::backend::cuda::device::error::count_u32;
use crate::backend::cuda::memory::heap::Buffer;
use crate::backend::cuda::model::faces::FaceTables;
use crate::backend::cuda::model::lanes::{LANES, table_len};
use crate::backend::cuda::model::tables::{GEOMETRY, Model, SH, pointers};
use crate::backend::cuda::session::Session;
use crate::backend::{DeviceError, Remesh};
use crate::layout::{MIDPOINTS, RowForm};
use crate::math::Real;

/// Changes vertices and triangles. Colours have caught up.
pub(crate) fn remesh(
    session: &Session,
    model: &mut Model,
    change: &Remesh<'_>,
) -> Result<(), DeviceError> {
    let &Remesh { kept, midpoints, faces } = change;
    let before = model.len();
    if !kept.is_sorted_by(|a, b| a < b) {
        return Err(DeviceError::KeptNotAscending);
    }
    let ends = kept.iter().chain(midpoints.as_flattened());
    if let Some(&row) = ends.into_iter().find(|&&row| row as usize >= before) {
        return Err(DeviceError::NoSuchRow { row: row as usize, len: before });
    }
    let tables = FaceTables::new(session, faces, kept.len() + midpoints.len())?;
    change_rows(session, model, midpoints, |work, model| work.keep(session, model, kept, before))?;
    model.forget_statistics(session)?;
    model.invalidate_rows();
    model.faces = Some(tables);
    size_vertices(session, model)
}

/// Splits this number of edges and removes a vertex, on a device that does no work.
pub(crate) fn dry(session: &Session, model: &mut Model, births: usize) -> Result<(), DeviceError> {
    let midpoints = vec![[0; 2]; births];
    change_rows(session, model, &midpoints, |work, model| work.remove_one(session, model))
}

/// Adds vertices in the middle of edges, and removes others.
fn change_rows(
    session: &Session,
    model: &mut Model,
    midpoints: &[[u32; 2]],
    remove: impl FnOnce(&mut DensifyWork, &mut Model) -> Result<(), DeviceError>,
) -> Result<(), DeviceError> {
    let before = model.len();
    let mut work = DensifyWork::for_births(session, model, midpoints.len())?;
    if !midpoints.is_empty() {
        let mut ends = session.heap.take(&MIDPOINTS, &(midpoints.len() as u64))?;
        ends.upload(&session.stream, 0, midpoints.as_flattened())?;
        model.grow(session, midpoints.len())?;
        let form = model.size().forms().nth(SH).unwrap_or(RowForm::Floats);
        let sh_words = model.kernel_widths()[SH];
        let pointers = model.tables();
        let args = MidpointsArgs {
            midpoints: ends.read(),
            geometry: pointers[GEOMETRY].floats(),
            sh: pointers[SH],
            count: count_u32(midpoints.len())?,
            rows_before: count_u32(before)?,
            sh_words,
            sh_in_halves: u32::from(form == RowForm::Halves),
        };
        let words = GEOMETRY_WIDTH as usize + sh_words as usize;
        let threads = midpoints.len().next_multiple_of(LANES) * words;
        session.kernels.add_midpoints.over(&session.stream, threads, &args)?;
    }
    remove(&mut work, model)
}

/// Has the scales of each vertex say how large its triangles are.
fn size_vertices(session: &Session, model: &mut Model) -> Result<(), DeviceError> {
    let rows = model.len();
    let Some(tables) = &model.faces else { return Ok(()) };
    let args = VertexSizesArgs {
        faces: tables.faces.read(),
        geometry: pointers(&mut model.tables)[GEOMETRY].floats(),
        faces_len: count_u32(tables.len())?,
        n: count_u32(rows)?,
    };
    let (kernels, stream) = (&session.kernels, &session.stream);
    kernels.clear_vertex_sizes.over(stream, rows, &args)?;
    kernels.add_face_areas.over(stream, tables.len(), &args)?;
    kernels.set_vertex_sizes.over(stream, rows, &args)
}

/// Place and opacity logit of each vertex. Waits for the device.
pub(crate) fn vertices(session: &Session, model: &Model) -> Result<Vec<[f32; 4]>, DeviceError> {
    let width = GEOMETRY_WIDTH as usize;
    let mut words = vec![0_u32; table_len(model.len(), width)];
    model.tables[GEOMETRY].download(&session.stream, 0, &mut words)?;
    let vertex = |row: usize| {
        let lane = row / LANES * LANES * width + row % LANES;
        [0, 1, 2, width - 1].map(|value| f32::from_bits(words[lane + value * LANES]))
    };
    Ok((0..model.len()).into_par_iter().map(vertex).collect())
}

/// The same opacities under another floor.
pub(crate) fn raise_opacity_floor(
    session: &Session,
    model: &mut Model,
    before: f64,
    after: f64,
) -> Result<(), DeviceError> {
    let rows = model.len();
    let args = RaiseFloorArgs {
        geometry: model.tables()[GEOMETRY].floats(),
        n: count_u32(rows)?,
        before: f32::of(before),
        after: f32::of(after),
        reserved: 0,
    };
    session.kernels.raise_opacity_floor.over(&session.stream, rows, &args)
}
