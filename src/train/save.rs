//! What a device holds of a model goes to files, chunk by chunk.

use std::ops::Range;
use std::path::Path;

use super::TrainError;
use super::finite::check_finite;
use crate::backend::{DeviceError, Rows, Snapshot, Store, Window, chunks};
use crate::config::{Config, PrimitiveName};
use crate::export::{NewPly, PlyRows, PlyStyle, RenderMode, StoredWindow};
use crate::memory::plan::OptionalColumns;
use crate::model::Primitive;

/// A model where it is.
pub struct DeviceModel<'a, P: Primitive, B: Store<P>> {
    /// Its device.
    pub device: &'a mut B,
    /// The model.
    pub model: &'a mut B::Model,
}

impl<P: Primitive, B: Store<P>> Rows<P> for DeviceModel<'_, P, B> {
    type Error = DeviceError;

    fn len(&self) -> usize {
        self.device.len(self.model)
    }

    fn shape(&mut self) -> Result<P, DeviceError> {
        self.device.read_parameters(self.model, 0..0)
    }

    fn optional(&self) -> OptionalColumns {
        self.device.optional(self.model)
    }

    fn read(&mut self, rows: Range<usize>) -> Result<Snapshot<P>, DeviceError> {
        self.device.read(self.model, rows)
    }
}

/// How readers are to draw what a run saves.
pub fn render_mode(config: &Config) -> RenderMode {
    match config.optimize.primitive {
        PrimitiveName::Surfels => RenderMode::Surfels,
        PrimitiveName::Gaussians if config.optimize.antialiasing => RenderMode::Mip,
        // Of triangles `triangle_mode` says more.
        PrimitiveName::Gaussians | PrimitiveName::Triangles => RenderMode::Dilated,
    }
}

/// The same of so many triangles that are drawn with this window.
pub fn triangle_mode(window: Window, faces: usize) -> RenderMode {
    let Window { exponent, opacity_floor, .. } = window;
    RenderMode::Triangles { window: StoredWindow { exponent, opacity_floor }, faces }
}

/// The parameters of these rows as they are drawn: with the 3D filter baked in where the model has one.
pub(super) fn drawn_rows<P: PlyRows, B: Store<P>>(
    device: &mut B,
    model: &mut B::Model,
    rows: Range<usize>,
) -> Result<P, DeviceError> {
    let Some(filter) = P::FILTER.filter(|_| device.optional(model).filter_3d) else {
        return device.read_parameters(model, rows);
    };
    let Snapshot { mut parameters, filter_3d, .. } = device.read(model, rows)?;
    (filter.fuse)(&mut parameters, &filter_3d);
    Ok(parameters)
}

/// Writes the parameters as a PLY, with the 3D filter baked in where the model has one; the host holds
/// one chunk of them. Triangles between them follow.
pub fn write_point_cloud<P: PlyRows, B: Store<P>>(
    path: &Path,
    style: impl Into<PlyStyle>,
    device: &mut B,
    model: &mut B::Model,
    triangles: &[[u32; 3]],
) -> Result<(), TrainError> {
    let sh_degree = device.read_parameters(model, 0..0)?.sh_degree();
    let count = device.len(model);
    let parameters = chunks(count).map(|rows| {
        let first = rows.start;
        let parameters = drawn_rows(device, model, rows)?;
        check_finite(&parameters, first)?;
        Ok(parameters)
    });
    NewPly::begin(path, style, sh_degree, count)?
        .write_triangles::<P, _, TrainError>(parameters, triangles)
}
