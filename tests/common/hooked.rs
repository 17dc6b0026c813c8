//! A device whose calls can be watched, refused and answered in other ways.

use std::ops::Range;
use std::sync::Arc;

use splat::backend::frame_state::{Compensated, Drawn, FrameState, Scored, Shown, Trainable};
use splat::backend::{
    AdamStep, Adjust, Appearance, AppearanceTables, Bind, BoundState, BoundStep, Candidates,
    Device, DeviceError, DeviceInfo, DeviceMemory, Edit, EditRule, Edited, FaceStatistics, Faces,
    Filter3d, Fuse, Into, LadderState, Look, Lpips, MaskedView, Measured, ModelShape, Neighbours,
    Objective, Palettes, Peaks, Photo, Pick, Ranks, Remesh, Render, RenderSettings, Rendered, Rows,
    ScoreRule, Snapshot, Store, TableStep, TrainDevice, Transmittances, Wants, Worth, Worths,
};
use splat::dataset::View;
use splat::math::morton::Cube;
use splat::memory::{Bytes, TrainingScale};
use splat::model::{BoundTopology, Gaussians};
use splat::perceptual::{LpipsInput, LpipsWeights};
use splat_formats::{CellLists, NearRow};
use splat_mesh::tsdf::{Fusion, Space, Survey, SurveyedBricks};

/// A device with hooks.
pub struct Hooked<D, H> {
    pub device: D,
    pub hooks: H,
}

/// A call that hooks see before the device does.
#[derive(Clone, Copy, Debug)]
pub enum Call<'a> {
    Read,
    Render(&'a RenderSettings),
    /// This view is drawn to be trained on; a [`Self::Render`] follows.
    Train(&'a View),
    /// This view is to be drawn after the coming step.
    Expect(&'a View),
    /// A round with so many births.
    Grow(usize),
    Neighbours(u32),
    LoadLpips,
}

/// What is done in place of a device, or before it.
pub trait Hooks<D: TrainDevice> {
    fn before(&mut self, _call: Call<'_>) -> Result<(), DeviceError> {
        Ok(())
    }

    fn upload_target(
        &mut self,
        device: &mut D,
        photo: Photo<'_>,
    ) -> Result<D::Target, DeviceError> {
        device.upload_target(photo)
    }

    fn resident(&mut self, device: &mut D, view: usize) -> Option<D::Target> {
        device.resident(view)
    }

    fn is_resident(&self, device: &D, view: usize) -> bool {
        device.is_resident(view)
    }

    fn take_changes(&mut self, device: &mut D) -> Option<LadderState> {
        device.take_changes()
    }

    fn relieve(
        &mut self,
        device: &mut D,
        model: &mut D::Model,
        error: &DeviceError,
    ) -> Result<bool, DeviceError> {
        device.relieve(model, error)
    }

    fn births(&mut self, granted: usize) -> usize {
        granted
    }

    fn max_neighbours(&self, device: &D) -> u32 {
        device.max_neighbours()
    }

    fn training_scale(&self, device: &D) -> TrainingScale {
        device.training_scale()
    }

    fn use_training_scale(
        &mut self,
        device: &mut D,
        scale: TrainingScale,
    ) -> Result<(), DeviceError> {
        device.use_training_scale(scale)
    }
}

impl<D: TrainDevice, H: Hooks<D>> Device for Hooked<D, H> {
    type Target = D::Target;

    fn info(&self) -> DeviceInfo {
        self.device.info()
    }
    fn upload_target(&mut self, photo: Photo<'_>) -> Result<D::Target, DeviceError> {
        self.hooks.upload_target(&mut self.device, photo)
    }
    fn resident(&mut self, view: usize) -> Option<D::Target> {
        self.hooks.resident(&mut self.device, view)
    }
    fn is_resident(&self, view: usize) -> bool {
        self.hooks.is_resident(&self.device, view)
    }
    fn synchronize(&mut self) -> Result<(), DeviceError> {
        self.device.synchronize()
    }
    fn memory(&mut self, peaks: Peaks) -> Option<DeviceMemory> {
        self.device.memory(peaks)
    }
    fn take_peak(&mut self) -> Option<Bytes> {
        self.device.take_peak()
    }
    fn aim_below(&mut self, aim: Option<Bytes>) -> Result<(), DeviceError> {
        self.device.aim_below(aim)
    }
    fn training_scale(&self) -> TrainingScale {
        self.hooks.training_scale(&self.device)
    }
    fn use_training_scale(&mut self, scale: TrainingScale) -> Result<(), DeviceError> {
        self.hooks.use_training_scale(&mut self.device, scale)
    }
    fn take_changes(&mut self) -> Option<LadderState> {
        self.hooks.take_changes(&mut self.device)
    }
}

impl<D: TrainDevice, H: Hooks<D>> Store<Gaussians> for Hooked<D, H> {
    type Model = D::Model;

    fn upload(&mut self, host: &Gaussians) -> Result<D::Model, DeviceError> {
        self.device.upload(host)
    }
    fn load<S: Rows<Gaussians>>(&mut self, source: &mut S) -> Result<D::Model, S::Error>
    where
        S::Error: From<DeviceError>,
    {
        self.device.load(source)
    }
    fn read_parameters(
        &mut self,
        model: &mut D::Model,
        rows: Range<usize>,
    ) -> Result<Gaussians, DeviceError> {
        self.hooks.before(Call::Read)?;
        self.device.read_parameters(model, rows)
    }
    fn read(
        &mut self,
        model: &mut D::Model,
        rows: Range<usize>,
    ) -> Result<Snapshot<Gaussians>, DeviceError> {
        self.hooks.before(Call::Read)?;
        self.device.read(model, rows)
    }
    fn sample(&mut self, model: &mut D::Model, rows: &[usize]) -> Result<Gaussians, DeviceError> {
        self.device.sample(model, rows)
    }
    fn shape(&self, model: &D::Model) -> ModelShape {
        self.device.shape(model)
    }
    fn reorder(&mut self, model: &mut D::Model, cube: &Cube) -> Result<(), DeviceError> {
        self.device.reorder(model, cube)
    }
    fn govern(&mut self, model: &mut D::Model, iteration: u32) -> Result<(), DeviceError> {
        self.device.govern(model, iteration)
    }
    fn relieve(&mut self, model: &mut D::Model, error: &DeviceError) -> Result<bool, DeviceError> {
        self.hooks.relieve(&mut self.device, model, error)
    }
    fn grant_births(
        &mut self,
        model: &mut D::Model,
        requested: usize,
    ) -> Result<usize, DeviceError> {
        Ok(self.hooks.births(self.device.grant_births(model, requested)?))
    }
}

impl<D: TrainDevice, H: Hooks<D>> Neighbours<Gaussians> for Hooked<D, H> {
    type Lists = D::Lists;

    fn neighbours(&mut self, model: &D::Model, count: u32) -> Result<D::Lists, DeviceError> {
        self.hooks.before(Call::Neighbours(count))?;
        self.device.neighbours(model, count)
    }
    fn read_neighbours(
        &mut self,
        lists: &D::Lists,
        rows: Range<usize>,
    ) -> Result<Vec<u32>, DeviceError> {
        self.device.read_neighbours(lists, rows)
    }
    fn max_neighbours(&self) -> u32 {
        self.hooks.max_neighbours(&self.device)
    }
}

impl<D: TrainDevice, H: Hooks<D>> Render<Gaussians> for Hooked<D, H> {
    type Frame<S: FrameState> = D::Frame<S>;
    type Gradients = D::Gradients;
    type Losses = D::Losses;

    fn render(
        &mut self,
        model: &D::Model,
        view: &View,
        settings: &RenderSettings,
        look: Look,
    ) -> Result<D::Frame<Shown>, DeviceError> {
        self.hooks.before(Call::Render(settings))?;
        self.device.render(model, view, settings, look)
    }
    fn render_train(
        &mut self,
        model: &D::Model,
        view: &View,
        settings: &RenderSettings,
        wants: &Wants,
    ) -> Result<D::Frame<Drawn>, DeviceError> {
        self.hooks.before(Call::Train(view))?;
        self.hooks.before(Call::Render(settings))?;
        self.device.render_train(model, view, settings, wants)
    }
    fn objective<S: Trainable>(
        &mut self,
        model: &D::Model,
        frame: D::Frame<S>,
        objective: &Objective<'_, D::Target, D::Lists>,
    ) -> Result<(D::Frame<Scored<S>>, D::Losses), DeviceError> {
        self.device.objective(model, frame, objective)
    }
    fn backward(
        &mut self,
        model: &mut D::Model,
        frame: D::Frame<Scored<Drawn>>,
        near: Option<&D::Lists>,
        gradients: &mut D::Gradients,
    ) -> Result<D::Losses, DeviceError> {
        self.device.backward(model, frame, near, gradients)
    }
    fn expect(
        &mut self,
        model: &mut D::Model,
        view: &View,
        settings: &RenderSettings,
    ) -> Result<(), DeviceError> {
        self.hooks.before(Call::Expect(view))?;
        self.device.expect(model, view, settings)
    }
    fn step(
        &mut self,
        model: &mut D::Model,
        gradients: D::Gradients,
        step: &AdamStep,
    ) -> Result<(), DeviceError> {
        self.device.step(model, gradients, step)
    }
    fn measure<S: FrameState>(
        &mut self,
        frame: &D::Frame<S>,
        target: &D::Target,
    ) -> Result<Measured, DeviceError> {
        self.device.measure(frame, target)
    }
    fn image<S: FrameState>(&mut self, frame: &D::Frame<S>) -> Result<Rendered, DeviceError> {
        self.device.image(frame)
    }
}

impl<D: TrainDevice, H: Hooks<D>> Edit<Gaussians> for Hooked<D, H> {
    type Selection = D::Selection;

    fn weigh(
        &mut self,
        model: &mut D::Model,
        views: &[&View],
        settings: &RenderSettings,
    ) -> Result<(), DeviceError> {
        self.device.weigh(model, views, settings)
    }
    fn read_weights(&mut self, model: &D::Model) -> Result<Vec<f32>, DeviceError> {
        self.device.read_weights(model)
    }
    fn score(&mut self, model: &D::Model, rule: &ScoreRule) -> Result<Candidates, DeviceError> {
        self.device.score(model, rule)
    }
    fn select(
        &mut self,
        model: &mut D::Model,
        candidates: &Candidates,
        pick: Pick,
    ) -> Result<D::Selection, DeviceError> {
        if let Pick::Best(births) | Pick::WithReplacement { into: Into::NewRows(births), .. } = pick
        {
            self.hooks.before(Call::Grow(births))?;
        }
        self.device.select(model, candidates, pick)
    }
    fn edit(
        &mut self,
        model: &mut D::Model,
        selection: D::Selection,
        rule: &EditRule,
    ) -> Result<Edited, DeviceError> {
        self.device.edit(model, selection, rule)
    }
    fn adjust(&mut self, model: &mut D::Model, adjust: &Adjust) -> Result<(), DeviceError> {
        self.device.adjust(model, adjust)
    }
}

impl<D: TrainDevice, H: Hooks<D>> Filter3d for Hooked<D, H> {
    fn update_filter_3d(
        &mut self,
        model: &mut D::Model,
        views: &[&View],
        sampled_from: f64,
    ) -> Result<(), DeviceError> {
        self.device.update_filter_3d(model, views, sampled_from)
    }
}

impl<D: TrainDevice, H: Hooks<D>> Transmittances<Gaussians> for Hooked<D, H> {
    fn transmittances(
        &mut self,
        model: &D::Model,
        view: &View,
        settings: &RenderSettings,
        places: &[[f32; 3]],
    ) -> Result<Vec<f32>, DeviceError> {
        self.device.transmittances(model, view, settings, places)
    }
}

impl<D: TrainDevice, H: Hooks<D>> Worths<Gaussians> for Hooked<D, H> {
    type WorthSums = D::WorthSums;

    fn no_worths(
        &mut self,
        model: &D::Model,
        absent: &[bool],
    ) -> Result<D::WorthSums, DeviceError> {
        self.device.no_worths(model, absent)
    }
    fn add_worths(
        &mut self,
        model: &D::Model,
        view: &View,
        settings: &RenderSettings,
        target: &D::Target,
        sums: &mut D::WorthSums,
    ) -> Result<Measured, DeviceError> {
        self.device.add_worths(model, view, settings, target, sums)
    }
    fn read_worths(&mut self, sums: &D::WorthSums) -> Result<Vec<Worth>, DeviceError> {
        self.device.read_worths(sums)
    }
}

impl<D: TrainDevice, H: Hooks<D>> Palettes for Hooked<D, H> {
    type PaletteRows = D::PaletteRows;

    fn hold_rows(&mut self, rows: &[f32], width: usize) -> Result<D::PaletteRows, DeviceError> {
        self.device.hold_rows(rows, width)
    }
    fn near_entries(
        &mut self,
        rows: &mut D::PaletteRows,
        centers: &[f32],
        cells: &CellLists<'_>,
    ) -> Result<Vec<NearRow>, DeviceError> {
        self.device.near_entries(rows, centers, cells)
    }
    fn near_cells(
        &mut self,
        rows: &mut D::PaletteRows,
        centers: &[f32],
        count: usize,
    ) -> Result<Vec<u32>, DeviceError> {
        self.device.near_cells(rows, centers, count)
    }
}

impl<D: TrainDevice, H: Hooks<D>> Fuse<Gaussians> for Hooked<D, H> {
    type BrickSurvey = D::BrickSurvey;
    type FusedVoxels = D::FusedVoxels;

    fn new_survey(&mut self, space: Space) -> Result<D::BrickSurvey, DeviceError> {
        self.device.new_survey(space)
    }
    fn survey_depths(
        &mut self,
        survey: &mut D::BrickSurvey,
        frame: &D::Frame<Shown>,
        seen: MaskedView<'_>,
    ) -> Result<(), DeviceError> {
        self.device.survey_depths(survey, frame, seen)
    }
    fn read_survey(&mut self, survey: D::BrickSurvey) -> Result<Survey, DeviceError> {
        self.device.read_survey(survey)
    }
    fn new_voxels(&mut self, bricks: &Arc<SurveyedBricks>) -> Result<D::FusedVoxels, DeviceError> {
        self.device.new_voxels(bricks)
    }
    fn fuse_depths(
        &mut self,
        voxels: &mut D::FusedVoxels,
        frame: &D::Frame<Shown>,
        seen: MaskedView<'_>,
    ) -> Result<(), DeviceError> {
        self.device.fuse_depths(voxels, frame, seen)
    }
    fn read_voxels(&mut self, voxels: D::FusedVoxels) -> Result<Fusion, DeviceError> {
        self.device.read_voxels(voxels)
    }
}

impl<D: TrainDevice, H: Hooks<D>> Lpips<Gaussians> for Hooked<D, H> {
    type Net = D::Net;

    fn load_lpips(&mut self, weights: &LpipsWeights) -> Result<D::Net, DeviceError> {
        self.hooks.before(Call::LoadLpips)?;
        self.device.load_lpips(weights)
    }
    fn lpips(
        &mut self,
        net: &D::Net,
        frame: &D::Frame<Shown>,
        target: &D::Target,
        input: LpipsInput,
    ) -> Result<f64, DeviceError> {
        self.device.lpips(net, frame, target, input)
    }
}

impl<D: TrainDevice, H: Hooks<D>> Appearance<Gaussians> for Hooked<D, H> {
    type Tables = D::Tables;

    fn upload_tables(&mut self, tables: &AppearanceTables) -> Result<D::Tables, DeviceError> {
        self.device.upload_tables(tables)
    }
    fn read_tables(&mut self, tables: &D::Tables) -> Result<AppearanceTables, DeviceError> {
        self.device.read_tables(tables)
    }
    fn compensate(
        &mut self,
        tables: &mut D::Tables,
        frame: D::Frame<Drawn>,
        step: &TableStep,
    ) -> Result<D::Frame<Compensated>, DeviceError> {
        self.device.compensate(tables, frame, step)
    }
    fn learn(
        &mut self,
        tables: &mut D::Tables,
        frame: D::Frame<Scored<Compensated>>,
        step: &TableStep,
    ) -> Result<D::Frame<Scored<Drawn>>, DeviceError> {
        self.device.learn(tables, frame, step)
    }
    fn correct(
        &mut self,
        frame: D::Frame<Shown>,
        target: &D::Target,
    ) -> Result<D::Frame<Shown>, DeviceError> {
        self.device.correct(frame, target)
    }
}

impl<D: TrainDevice, H: Hooks<D>> Ranks for Hooked<D, H> {}

impl<D: TrainDevice, H: Hooks<D>> Faces for Hooked<D, H> {
    fn set_faces(&mut self, model: &mut D::Model, faces: &[[u32; 3]]) -> Result<(), DeviceError> {
        self.device.set_faces(model, faces)
    }

    fn faces<'a>(&self, model: &'a D::Model) -> &'a [[u32; 3]] {
        self.device.faces(model)
    }

    fn vertices(&mut self, model: &D::Model) -> Result<Vec<[f32; 4]>, DeviceError> {
        self.device.vertices(model)
    }

    fn face_statistics(&mut self, model: &D::Model) -> Result<FaceStatistics, DeviceError> {
        self.device.face_statistics(model)
    }

    fn set_face_statistics(
        &mut self,
        model: &mut D::Model,
        statistics: &FaceStatistics,
    ) -> Result<(), DeviceError> {
        self.device.set_face_statistics(model, statistics)
    }

    fn remesh(&mut self, model: &mut D::Model, change: &Remesh<'_>) -> Result<(), DeviceError> {
        self.device.remesh(model, change)
    }
}

impl<D: TrainDevice, H: Hooks<D>> Bind for Hooked<D, H> {
    type Binding = D::Binding;

    fn bind(
        &mut self,
        model: &mut D::Model,
        topology: &Arc<BoundTopology>,
        state: &BoundState,
    ) -> Result<D::Binding, DeviceError> {
        self.device.bind(model, topology, state)
    }
    fn step_bound(
        &mut self,
        model: &mut D::Model,
        binding: &mut D::Binding,
        gradients: D::Gradients,
        step: &BoundStep,
    ) -> Result<(), DeviceError> {
        self.device.step_bound(model, binding, gradients, step)
    }
    fn read_binding(&mut self, binding: &D::Binding) -> Result<BoundState, DeviceError> {
        self.device.read_binding(binding)
    }
}
