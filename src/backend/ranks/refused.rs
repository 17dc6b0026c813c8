//! What is done with drawn views alone, which rank 0 does like any device, and what several ranks cannot do
//! together: of that the command line refuses what training could ask for before a run begins.

use std::sync::Arc;

use splat_formats::{CellLists, NearRow};
use splat_mesh::tsdf::{Fusion, Space, Survey, SurveyedBricks};

use super::lead::Ranked;
use super::shard::RankShard;
use crate::backend::frame_state::{Compensated, Drawn, Scored, Shown};
use crate::backend::{
    Appearance, AppearanceTables, Bind, BoundState, BoundStep, DeviceError, FaceStatistics, Faces,
    Fuse, Held, Lpips, MaskedView, Measured, Neighbours, Palettes, Remesh, RenderSettings,
    TableStep, Transmittances, Worth, Worths,
};
use crate::dataset::View;
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

pub(super) fn refused<T>(what: &'static str) -> Result<T, DeviceError> {
    Err(DeviceError::Unsupported { primitives: "Gaussians of several ranks", what })
}

const TABLES: &str = "tables of colours";
const TRIANGLES: &str = "triangles";
const VOXELS: &str = "fused depths";
const MESHES: &str = "mesh that they are bound to";
const WORTHS: &str = "worths";
const PALETTES: &str = "palettes";

impl<S: RankShard> Lpips<Gaussians> for Ranked<S> {
    type Net = <S::Device as Lpips<Gaussians>>::Net;

    fn load_lpips(&mut self, weights: &LpipsWeights) -> Result<Self::Net, DeviceError> {
        self.shard.device().load_lpips(weights)
    }

    fn lpips(
        &mut self,
        net: &Self::Net,
        frame: &Self::Frame<Shown>,
        target: &Self::Target,
        input: LpipsInput,
    ) -> Result<f64, DeviceError> {
        self.shard.device().lpips(net, frame, target, input)
    }
}

impl<S: RankShard> Neighbours<Gaussians> for Ranked<S> {
    type Lists = <S::Device as Neighbours<Gaussians>>::Lists;

    fn neighbours(&mut self, _: &S::Share, _: u32) -> Result<Self::Lists, DeviceError> {
        refused("lists of neighbours")
    }

    fn read_neighbours(
        &mut self,
        lists: &Self::Lists,
        rows: std::ops::Range<usize>,
    ) -> Result<Vec<u32>, DeviceError> {
        self.shard.device().read_neighbours(lists, rows)
    }
}

impl<S: RankShard> Appearance<Gaussians> for Ranked<S> {
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
        _: Self::Frame<Drawn>,
        _: &TableStep,
    ) -> Result<Self::Frame<Compensated>, DeviceError> {
        match *tables {}
    }

    fn learn(
        &mut self,
        tables: &mut Impossible,
        _: Self::Frame<Scored<Compensated>>,
        _: &TableStep,
    ) -> Result<Self::Frame<Scored<Drawn>>, DeviceError> {
        match *tables {}
    }

    fn correct(
        &mut self,
        frame: Self::Frame<Shown>,
        target: &Self::Target,
    ) -> Result<Self::Frame<Shown>, DeviceError> {
        self.shard.device().correct(frame, target)
    }
}

impl<S: RankShard> Transmittances<Gaussians> for Ranked<S> {
    fn transmittances(
        &mut self,
        _: &S::Share,
        _: &View,
        _: &RenderSettings,
        _: &[[f32; 3]],
    ) -> Result<Vec<f32>, DeviceError> {
        refused("transmittances between places")
    }
}

impl<S: RankShard> Worths<Gaussians> for Ranked<S> {
    type WorthSums = Impossible;

    fn no_worths(&mut self, _: &S::Share, _: &[bool]) -> Result<Impossible, DeviceError> {
        refused(WORTHS)
    }

    fn add_worths(
        &mut self,
        _: &S::Share,
        _: &View,
        _: &RenderSettings,
        _: &Self::Target,
        sums: &mut Impossible,
    ) -> Result<Measured, DeviceError> {
        match *sums {}
    }

    fn read_worths(&mut self, sums: &Impossible) -> Result<Vec<Worth>, DeviceError> {
        match *sums {}
    }
}

impl<S: RankShard> Palettes for Ranked<S> {
    type PaletteRows = Impossible;

    fn hold_rows(&mut self, _: &[f32], _: usize) -> Result<Impossible, DeviceError> {
        refused(PALETTES)
    }

    fn near_entries(
        &mut self,
        rows: &mut Impossible,
        _: &[f32],
        _: &CellLists<'_>,
    ) -> Result<Vec<NearRow>, DeviceError> {
        match *rows {}
    }

    fn near_cells(
        &mut self,
        rows: &mut Impossible,
        _: &[f32],
        _: usize,
    ) -> Result<Vec<u32>, DeviceError> {
        match *rows {}
    }
}

impl<S: RankShard> Fuse<Gaussians> for Ranked<S> {
    type BrickSurvey = Impossible;
    type FusedVoxels = Impossible;

    fn new_survey(&mut self, _: Space) -> Result<Impossible, DeviceError> {
        refused(VOXELS)
    }

    fn survey_depths(
        &mut self,
        survey: &mut Impossible,
        _: &Self::Frame<Shown>,
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
        _: &Self::Frame<Shown>,
        _: MaskedView<'_>,
    ) -> Result<(), DeviceError> {
        match *voxels {}
    }

    fn read_voxels(&mut self, voxels: Impossible) -> Result<Fusion, DeviceError> {
        match voxels {}
    }
}

impl<S: RankShard> Bind for Ranked<S> {
    type Binding = Impossible;

    fn bind(
        &mut self,
        _: &mut S::Share,
        _: &Arc<BoundTopology>,
        _: &BoundState,
    ) -> Result<Impossible, DeviceError> {
        refused(MESHES)
    }

    fn step_bound(
        &mut self,
        _: &mut S::Share,
        binding: &mut Impossible,
        _: Self::Gradients,
        _: &BoundStep,
    ) -> Result<(), DeviceError> {
        match *binding {}
    }

    fn read_binding(&mut self, binding: &Impossible) -> Result<BoundState, DeviceError> {
        match *binding {}
    }
}

impl<S: RankShard> Faces for Ranked<S> {
    fn set_faces(&mut self, _: &mut S::Share, _: &[[u32; 3]]) -> Result<(), DeviceError> {
        refused(TRIANGLES)
    }

    fn faces<'a>(&self, _: &'a S::Share) -> &'a [[u32; 3]] {
        &[]
    }

    fn vertices(&mut self, _: &S::Share) -> Result<Vec<[f32; 4]>, DeviceError> {
        refused(TRIANGLES)
    }

    fn face_statistics(&mut self, _: &S::Share) -> Result<FaceStatistics, DeviceError> {
        Ok(FaceStatistics::zeros(0))
    }

    fn set_face_statistics(
        &mut self,
        _: &mut S::Share,
        _: &FaceStatistics,
    ) -> Result<(), DeviceError> {
        refused(TRIANGLES)
    }

    fn remesh(&mut self, _: &mut S::Share, _: &Remesh<'_>) -> Result<(), DeviceError> {
        refused(TRIANGLES)
    }
}
