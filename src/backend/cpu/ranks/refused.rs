//! What is done with drawn views alone, which rank 0 does like any processor, and what several ranks cannot do
//! together: of that the command line refuses what training could ask for before a run begins.

use std::sync::Arc;

use splat_mesh::tsdf::{Fusion, Space, Survey, SurveyedBricks};

use super::lead::RankedCpu;
use super::shard::ModelShare;
use crate::backend::cpu::frame::Frame;
use crate::backend::cpu::stage::gradients::Gradients;
use crate::backend::cpu::stage::lpips::LpipsModel;
use crate::backend::cpu::stage::neighbours::NearestLists;
use crate::backend::frame_state::{Compensated, Drawn, Scored, Shown};
use crate::backend::{
    Appearance, AppearanceTables, Bind, BoundState, BoundStep, DeviceError, FaceStatistics, Faces,
    Fuse, Held, Lpips, MaskedView, Measured, Neighbours, Remesh, RenderSettings, TableStep,
    Transmittances, Worth, Worths,
};
use crate::dataset::{Image, View};
use crate::memory::Bytes;
use crate::model::{BoundTopology, Gaussians};
use crate::perceptual::{LpipsInput, LpipsWeights};

/// What no value is ever made of.
#[derive(Clone, Copy, Debug)]
pub enum Impossible {}

impl Held for Impossible {
    fn bytes(&self) -> Bytes {
        match *self {}
    }
}

fn refused<T>(what: &'static str) -> Result<T, DeviceError> {
    Err(DeviceError::Unsupported { primitives: "Gaussians of several ranks", what })
}

const TABLES: &str = "tables of colours";
const TRIANGLES: &str = "triangles";
const VOXELS: &str = "fused depths";
const MESHES: &str = "mesh that they are bound to";
const WORTHS: &str = "worths";

impl Lpips<Gaussians> for RankedCpu {
    type Net = LpipsModel;

    fn load_lpips(&mut self, weights: &LpipsWeights) -> Result<LpipsModel, DeviceError> {
        self.shard.cpu.load_lpips(weights)
    }

    fn lpips(
        &mut self,
        net: &LpipsModel,
        frame: &Frame<f32, Shown>,
        target: &Arc<Image>,
        input: LpipsInput,
    ) -> Result<f64, DeviceError> {
        self.shard.cpu.lpips(net, frame, target, input)
    }
}

impl Neighbours<Gaussians> for RankedCpu {
    type Lists = NearestLists;

    fn neighbours(&mut self, _: &ModelShare, _: u32) -> Result<NearestLists, DeviceError> {
        refused("lists of neighbours")
    }

    fn read_neighbours(
        &mut self,
        lists: &NearestLists,
        rows: std::ops::Range<usize>,
    ) -> Result<Vec<u32>, DeviceError> {
        lists.read(&rows)
    }
}

impl Appearance<Gaussians> for RankedCpu {
    type Tables = Impossible;

    fn upload_tables(&mut self, _: &AppearanceTables) -> Result<Impossible, DeviceError> {
        refused(TABLES)
    }

    fn read_tables(&mut self, tables: &Impossible) -> Result<AppearanceTables, DeviceError> {
        match *tables {}
    }

    fn compensate(
        &mut self,
        tables: &mut Impossible,
        _: Frame<f32, Drawn>,
        _: &TableStep,
    ) -> Result<Frame<f32, Compensated>, DeviceError> {
        match *tables {}
    }

    fn learn(
        &mut self,
        tables: &mut Impossible,
        _: Frame<f32, Scored<Compensated>>,
        _: &TableStep,
    ) -> Result<Frame<f32, Scored<Drawn>>, DeviceError> {
        match *tables {}
    }

    fn correct(
        &mut self,
        frame: Frame<f32, Shown>,
        target: &Arc<Image>,
    ) -> Result<Frame<f32, Shown>, DeviceError> {
        self.shard.cpu.correct(frame, target)
    }
}

impl Transmittances<Gaussians> for RankedCpu {
    fn transmittances(
        &mut self,
        _: &ModelShare,
        _: &View,
        _: &RenderSettings,
        _: &[[f32; 3]],
    ) -> Result<Vec<f32>, DeviceError> {
        refused("transmittances between places")
    }
}

impl Worths<Gaussians> for RankedCpu {
    type WorthSums = Impossible;

    fn no_worths(&mut self, _: &ModelShare, _: &[bool]) -> Result<Impossible, DeviceError> {
        refused(WORTHS)
    }

    fn add_worths(
        &mut self,
        _: &ModelShare,
        _: &View,
        _: &RenderSettings,
        _: &Arc<Image>,
        sums: &mut Impossible,
    ) -> Result<Measured, DeviceError> {
        match *sums {}
    }

    fn read_worths(&mut self, sums: &Impossible) -> Result<Vec<Worth>, DeviceError> {
        match *sums {}
    }
}

impl Fuse<Gaussians> for RankedCpu {
    type BrickSurvey = Impossible;
    type FusedVoxels = Impossible;

    fn new_survey(&mut self, _: Space) -> Result<Impossible, DeviceError> {
        refused(VOXELS)
    }

    fn survey_depths(
        &mut self,
        survey: &mut Impossible,
        _: &Frame<f32, Shown>,
        _: MaskedView<'_>,
    ) -> Result<(), DeviceError> {
        match *survey {}
    }

    fn read_survey(&mut self, survey: Impossible) -> Result<Survey, DeviceError> {
        match survey {}
    }

    fn new_voxels(&mut self, _: &Arc<SurveyedBricks>) -> Result<Impossible, DeviceError> {
        refused(VOXELS)
    }

    fn fuse_depths(
        &mut self,
        voxels: &mut Impossible,
        _: &Frame<f32, Shown>,
        _: MaskedView<'_>,
    ) -> Result<(), DeviceError> {
        match *voxels {}
    }

    fn read_voxels(&mut self, voxels: Impossible) -> Result<Fusion, DeviceError> {
        match voxels {}
    }
}

impl Bind for RankedCpu {
    type Binding = Impossible;

    fn bind(
        &mut self,
        _: &mut ModelShare,
        _: &Arc<BoundTopology>,
        _: &BoundState,
    ) -> Result<Impossible, DeviceError> {
        refused(MESHES)
    }

    fn step_bound(
        &mut self,
        _: &mut ModelShare,
        binding: &mut Impossible,
        _: Gradients<f32>,
        _: &BoundStep,
    ) -> Result<(), DeviceError> {
        match *binding {}
    }

    fn read_binding(&mut self, binding: &Impossible) -> Result<BoundState, DeviceError> {
        match *binding {}
    }
}

impl Faces for RankedCpu {
    fn set_faces(&mut self, _: &mut ModelShare, _: &[[u32; 3]]) -> Result<(), DeviceError> {
        refused(TRIANGLES)
    }

    fn faces<'a>(&self, _: &'a ModelShare) -> &'a [[u32; 3]] {
        &[]
    }

    fn vertices(&mut self, _: &ModelShare) -> Result<Vec<[f32; 4]>, DeviceError> {
        refused(TRIANGLES)
    }

    fn face_statistics(&mut self, _: &ModelShare) -> Result<FaceStatistics, DeviceError> {
        Ok(FaceStatistics::zeros(0))
    }

    fn set_face_statistics(
        &mut self,
        _: &mut ModelShare,
        _: &FaceStatistics,
    ) -> Result<(), DeviceError> {
        refused(TRIANGLES)
    }

    fn remesh(&mut self, _: &mut ModelShare, _: &Remesh<'_>) -> Result<(), DeviceError> {
        refused(TRIANGLES)
    }
}
