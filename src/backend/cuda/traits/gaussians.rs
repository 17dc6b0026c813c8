//! What is done with Gaussians alone.

use std::sync::Arc;

use splat_formats::{CellLists, NearRow};
use splat_mesh::tsdf::{Fusion, Space, Survey, SurveyedBricks};

use crate::backend::cuda::Cuda;
use crate::backend::cuda::frame::{self, Frame, Gradients};
use crate::backend::cuda::model::tables::Model;
use crate::backend::cuda::photos::Target;
use crate::backend::cuda::stage::appearance::ColorTables;
use crate::backend::cuda::stage::bind::{self, Binding};
use crate::backend::cuda::stage::fuse::{BrickSurvey, FusedVoxels};
use crate::backend::cuda::stage::lpips::LpipsModel;
use crate::backend::cuda::stage::palette::PaletteRows;
use crate::backend::cuda::stage::smooth;
use crate::backend::cuda::stage::worth::WorthSums;
use crate::backend::frame_state::{Compensated, Drawn, Scored, Shown};
use crate::backend::{
    Appearance, AppearanceTables, Bind, BoundState, BoundStep, DeviceError, Drawing, Filter3d,
    Fuse, Look, Lpips, MaskedView, Measured, Palettes, Ranks, RenderSettings, TableStep,
    Transmittances, Worth, Worths, check_absent,
};
use crate::dataset::View;
use crate::layout::BOUND_GRADIENTS;
use crate::model::{BoundTopology, Gaussians};
use crate::perceptual::{LpipsInput, LpipsWeights};

impl Ranks for Cuda {}

impl Filter3d for Cuda {
    fn update_filter_3d(
        &mut self,
        model: &mut Model,
        views: &[&View],
        sampled_from: f64,
    ) -> Result<(), DeviceError> {
        self.with_room(|session| smooth::smooth(session, model, views, sampled_from))
    }
}

impl Transmittances<Gaussians> for Cuda {
    fn transmittances(
        &mut self,
        model: &Model,
        view: &View,
        settings: &RenderSettings,
        places: &[[f32; 3]],
    ) -> Result<Vec<f32>, DeviceError> {
        let drawing = Drawing::shown(settings, Look::IMAGE);
        self.with_room(|session| frame::transmittances(session, model, view, &drawing, places))
    }
}

impl Palettes for Cuda {
    type PaletteRows = PaletteRows;

    fn hold_rows(&mut self, rows: &[f32], width: usize) -> Result<PaletteRows, DeviceError> {
        self.with_room(|session| PaletteRows::new(session, rows, width))
    }

    fn near_entries(
        &mut self,
        rows: &mut PaletteRows,
        centers: &[f32],
        cells: &CellLists<'_>,
    ) -> Result<Vec<NearRow>, DeviceError> {
        self.with_room(|session| rows.near_entries(session, centers, cells))
    }

    fn near_cells(
        &mut self,
        rows: &mut PaletteRows,
        centers: &[f32],
        count: usize,
    ) -> Result<Vec<u32>, DeviceError> {
        self.with_room(|session| rows.near_cells(session, centers, count))
    }
}

impl Worths<Gaussians> for Cuda {
    type WorthSums = WorthSums;

    fn no_worths(&mut self, model: &Model, absent: &[bool]) -> Result<WorthSums, DeviceError> {
        check_absent(absent, model.len())?;
        self.with_room(|session| WorthSums::new(session, absent))
    }

    fn add_worths(
        &mut self,
        model: &Model,
        view: &View,
        settings: &RenderSettings,
        target: &Target,
        sums: &mut WorthSums,
    ) -> Result<Measured, DeviceError> {
        let drawing = Drawing::shown(settings, Look::IMAGE);
        self.with_room(|session| frame::add_worths(session, model, view, &drawing, target, sums))
    }

    fn read_worths(&mut self, sums: &WorthSums) -> Result<Vec<Worth>, DeviceError> {
        sums.read(&self.session)
    }
}

impl Fuse<Gaussians> for Cuda {
    type BrickSurvey = BrickSurvey;
    type FusedVoxels = FusedVoxels;

    fn new_survey(&mut self, space: Space) -> Result<BrickSurvey, DeviceError> {
        self.with_room(|session| BrickSurvey::new(session, space))
    }

    fn survey_depths(
        &mut self,
        survey: &mut BrickSurvey,
        frame: &Frame<Shown>,
        seen: MaskedView<'_>,
    ) -> Result<(), DeviceError> {
        self.with_room(|session| survey.mark(session, &frame.canvas, seen))
    }

    fn read_survey(&mut self, survey: BrickSurvey) -> Result<Survey, DeviceError> {
        survey.read(&self.session)
    }

    fn new_voxels(&mut self, bricks: &Arc<SurveyedBricks>) -> Result<FusedVoxels, DeviceError> {
        self.with_room(|session| FusedVoxels::new(session, bricks))
    }

    fn fuse_depths(
        &mut self,
        voxels: &mut FusedVoxels,
        frame: &Frame<Shown>,
        seen: MaskedView<'_>,
    ) -> Result<(), DeviceError> {
        self.with_room(|session| voxels.fuse(session, &frame.canvas, seen))
    }

    fn read_voxels(&mut self, voxels: FusedVoxels) -> Result<Fusion, DeviceError> {
        voxels.read(&self.session)
    }
}

impl Lpips<Gaussians> for Cuda {
    type Net = LpipsModel;

    fn load_lpips(&mut self, weights: &LpipsWeights) -> Result<LpipsModel, DeviceError> {
        LpipsModel::upload(&self.session, weights)
    }

    fn lpips(
        &mut self,
        net: &LpipsModel,
        frame: &Frame<Shown>,
        target: &Target,
        input: LpipsInput,
    ) -> Result<f64, DeviceError> {
        frame.perceive(&self.session, net, target, input)
    }
}

impl Appearance<Gaussians> for Cuda {
    type Tables = ColorTables;

    fn upload_tables(&mut self, tables: &AppearanceTables) -> Result<ColorTables, DeviceError> {
        self.with_room(|session| ColorTables::new(session, tables))
    }

    fn read_tables(&mut self, tables: &ColorTables) -> Result<AppearanceTables, DeviceError> {
        tables.read(&self.session)
    }

    fn compensate(
        &mut self,
        tables: &mut ColorTables,
        frame: Frame<Drawn>,
        step: &TableStep,
    ) -> Result<Frame<Compensated>, DeviceError> {
        let px = frame.camera.size;
        let compensated = frame.compensate(&self.session, tables, step);
        self.note_refusal(px, compensated)
    }

    fn learn(
        &mut self,
        tables: &mut ColorTables,
        frame: Frame<Scored<Compensated>>,
        step: &TableStep,
    ) -> Result<Frame<Scored<Drawn>>, DeviceError> {
        let px = frame.camera.size;
        let learned = frame.learn(&self.session, tables, step);
        self.note_refusal(px, learned)
    }

    fn correct(
        &mut self,
        frame: Frame<Shown>,
        target: &Target,
    ) -> Result<Frame<Shown>, DeviceError> {
        frame.correct(&self.session, target)
    }
}

impl Bind for Cuda {
    type Binding = Binding;

    fn bind(
        &mut self,
        model: &mut Model,
        topology: &Arc<BoundTopology>,
        state: &BoundState,
    ) -> Result<Binding, DeviceError> {
        let binding = self.with_room(|session| Binding::new(session, topology, state))?;
        bind::place(&mut self.session, model, &binding)?;
        Ok(binding)
    }

    fn step_bound(
        &mut self,
        model: &mut Model,
        binding: &mut Binding,
        gradients: Gradients,
        step: &BoundStep,
    ) -> Result<(), DeviceError> {
        // Before anything moves.
        let sizes = binding.sizes();
        let mut d_geometry =
            self.with_room(|session| session.heap.take(&BOUND_GRADIENTS, &sizes))?;
        let adam = step.of_gaussians();
        gradients.step(&mut self.session, model, Some(&mut d_geometry), &adam)?;
        bind::step(&mut self.session, model, binding, &mut d_geometry, step)
    }

    fn read_binding(&mut self, binding: &Binding) -> Result<BoundState, DeviceError> {
        binding.read(&self.session)
    }
}
