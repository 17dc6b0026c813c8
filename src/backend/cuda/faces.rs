//! Meshes on a GPU.

use super::Cuda;
use super::model::catch_up::catch_up;
use super::model::faces::FaceTables;
use super::model::tables::Model;
use super::stage::remesh;
use crate::backend::{DeviceError, FaceStatistics, Faces, Remesh};

impl Faces for Cuda {
    fn set_faces(&mut self, model: &mut Model, faces: &[[u32; 3]]) -> Result<(), DeviceError> {
        let vertices = model.len();
        // The old ones go first.
        model.faces = None;
        let tables = self.with_room(|session| FaceTables::new(session, faces, vertices))?;
        model.invalidate_rows();
        model.faces = Some(tables);
        Ok(())
    }

    fn faces<'a>(&self, model: &'a Model) -> &'a [[u32; 3]] {
        model.faces.as_ref().map_or(&[], FaceTables::host)
    }

    fn vertices(&mut self, model: &Model) -> Result<Vec<[f32; 4]>, DeviceError> {
        remesh::vertices(&self.session, model)
    }

    fn face_statistics(&mut self, model: &Model) -> Result<FaceStatistics, DeviceError> {
        let tables = model.faces.as_ref();
        tables.map_or(Ok(FaceStatistics::default()), |tables| tables.statistics(&self.session))
    }

    fn set_face_statistics(
        &mut self,
        model: &mut Model,
        statistics: &FaceStatistics,
    ) -> Result<(), DeviceError> {
        match &mut model.faces {
            Some(tables) => tables.set_statistics(&self.session, statistics),
            None => Ok(()),
        }
    }

    fn remesh(&mut self, model: &mut Model, change: &Remesh<'_>) -> Result<(), DeviceError> {
        // Rows get other numbers: the one that a fault names would be another afterwards.
        self.session.check_faults()?;
        catch_up(&self.session, model)?;
        self.with_room(|session| remesh::remesh(session, model, change))
    }
}
