//! Implementations of the device traits. Each method calls the stage that does the work.

use std::ops::Range;
use std::sync::Arc;

use splat_formats::{CellLists, NearRow};
use splat_mesh::tsdf::{Fusion, Space, Survey, SurveyedBricks};

use super::frame::{self, Frame, Ready};
use super::model::{Model, ModelFaces, Parameter, host, precise};
use super::primitive::{Drawable, density_field};
use super::stage::appearance;
use super::stage::bind::Binding;
use super::stage::contribution::ContributionSums;
use super::stage::gradients::Gradients;
use super::stage::lpips::{self, LpipsModel};
use super::stage::neighbours::{self, NearestLists, PaletteRows};
use super::stage::{adam, fuse, loss, reorder, smooth};
use super::{Cpu, seen};
use crate::backend::settings::viewpoint;
use crate::backend::{
    AdamStep, Appearance, AppearanceTables, Bind, BoundState, BoundStep, Capability, Compensated,
    Contribution, Contributions, Device, DeviceError, DeviceInfo, DrawSettings, Drawn,
    FaceStatistics, Faces, Filter3d, Footprint, FrameState, Fuse, Lpips, MaskedView, Measured,
    ModelShape, Neighbours, Objective, Palettes, Photo, Ranks, Remesh, Render, RenderRequest,
    RenderSettings, Rendered, Rows, Scored, Shown, Snapshot, Store, TableStep, TrainRequest,
    Trainable, Transmittances, check_absent, check_rows, chunks,
};
use crate::dataset::{Image, View};
use crate::math::Real;
use crate::math::adam::{log_sizes, mean_logit, raised_logit};
use crate::math::morton::Cube;
use crate::model::{BoundTopology, Gaussians};
use crate::perceptual::{LpipsInput, LpipsWeights};

impl<R: Real> Device for Cpu<R> {
    type Target = Arc<Image>;

    fn info(&self) -> DeviceInfo {
        let name = format!("CPU, {} threads", rayon::current_num_threads());
        DeviceInfo { name, uuid: None }
    }

    fn upload_target(&mut self, photo: Photo<'_>) -> Result<Arc<Image>, DeviceError> {
        Ok(Arc::clone(photo.image))
    }

    fn limit_rows(&mut self, most: usize) {
        self.most_rows = Some(most);
    }
}

impl<R: Real, P: Drawable> Store<P> for Cpu<R> {
    type Model = Model<R, P>;

    fn upload(&mut self, host: &P) -> Result<Model<R, P>, DeviceError> {
        Ok(Model::stored(host, self.storage))
    }

    fn load<S: Rows<P>>(&mut self, source: &mut S) -> Result<Model<R, P>, S::Error>
    where
        S::Error: From<DeviceError>,
    {
        let count = source.len();
        let mut model = Model::with_room(&source.shape()?, count, self.storage);
        if source.optional().filter_3d {
            density_field(&model, Capability::Filter3d)?;
        }
        for rows in chunks(count) {
            model.append(&source.read(rows)?);
        }
        Ok(model)
    }

    fn read_parameters(
        &mut self,
        model: &mut Model<R, P>,
        rows: Range<usize>,
    ) -> Result<P, DeviceError> {
        check_rows(&rows, model.len())?;
        Ok(model.read_parameters(rows))
    }

    fn read(
        &mut self,
        model: &mut Model<R, P>,
        rows: Range<usize>,
    ) -> Result<Snapshot<P>, DeviceError> {
        check_rows(&rows, model.len())?;
        Ok(model.read(rows))
    }

    fn sample(&mut self, model: &mut Model<R, P>, rows: &[usize]) -> Result<P, DeviceError> {
        Ok(model.sample(rows))
    }

    fn shape(&self, model: &Model<R, P>) -> ModelShape {
        let [parameters, optimizer] = model.bytes();
        ModelShape { rows: model.len(), optional: model.optional(), parameters, optimizer }
    }

    fn reorder(&mut self, model: &mut Model<R, P>, cube: &Cube) -> Result<(), DeviceError> {
        reorder::reorder(model, cube);
        Ok(())
    }

    fn grant_new_gaussians(
        &mut self,
        model: &mut Model<R, P>,
        requested: usize,
    ) -> Result<usize, DeviceError> {
        let Some(most) = self.most_rows else { return Ok(requested) };
        let granted = requested.min(most.saturating_sub(model.len()));
        if granted < requested && !self.is_limit_known {
            self.is_limit_known = true;
            tracing::warn!(
                "--host-limit leaves memory for {most} {}: density control adds none beyond that",
                P::SCHEMA.many()
            );
        }
        Ok(granted)
    }
}

impl<R: Real, P: Drawable> Neighbours<P> for Cpu<R> {
    type Lists = NearestLists<P>;

    fn neighbours(
        &mut self,
        model: &Model<R, P>,
        count: u32,
    ) -> Result<NearestLists<P>, DeviceError> {
        neighbours::neighbours(model, count)
    }

    fn read_neighbours(
        &mut self,
        lists: &NearestLists<P>,
        rows: Range<usize>,
    ) -> Result<Vec<u32>, DeviceError> {
        lists.read(&rows)
    }
}

impl<R: Real, P: Drawable> Render<P> for Cpu<R> {
    type Frame<S: FrameState> = Frame<R, S, P>;
    type Gradients = Gradients<R, P>;
    type Losses = Ready;

    fn render(
        &mut self,
        model: &Model<R, P>,
        view: &View,
        settings: &RenderSettings,
        request: RenderRequest,
    ) -> Result<Frame<R, Shown, P>, DeviceError> {
        frame::draw(model, view, DrawSettings::shown(settings, request))
    }

    fn render_train(
        &mut self,
        model: &Model<R, P>,
        view: &View,
        settings: &RenderSettings,
        request: &TrainRequest,
    ) -> Result<Frame<R, Drawn, P>, DeviceError> {
        frame::draw(model, view, DrawSettings::trained(settings, request))
    }

    fn objective<S: Trainable>(
        &mut self,
        model: &Model<R, P>,
        frame: Frame<R, S, P>,
        objective: &Objective<'_, Arc<Image>, NearestLists<P>>,
    ) -> Result<(Frame<R, Scored<S>, P>, Ready), DeviceError> {
        frame.scored(model, objective)
    }

    fn backward(
        &mut self,
        model: &mut Model<R, P>,
        frame: Frame<R, Scored<Drawn>, P>,
        near: Option<&NearestLists<P>>,
        gradients: &mut Gradients<R, P>,
    ) -> Result<Ready, DeviceError> {
        frame.backward(model, near, gradients)
    }

    fn step(
        &mut self,
        model: &mut Model<R, P>,
        gradients: Gradients<R, P>,
        step: &AdamStep,
    ) -> Result<(), DeviceError> {
        let moved = adam::step(model, &gradients, step, self.seed, None);
        // A skipped row does not affect other rows, but its values stay broken.
        gradients.views.into_iter().find_map(|view| view.fault).map_or(moved, Err)
    }

    fn measure<S: FrameState>(
        &mut self,
        frame: &Frame<R, S, P>,
        target: &Arc<Image>,
    ) -> Result<Measured, DeviceError> {
        loss::measure(frame.compared(), frame.canvas.size, target)
    }

    fn image<S: FrameState>(&mut self, frame: &Frame<R, S, P>) -> Result<Rendered, DeviceError> {
        Ok(frame.rendered())
    }
}

impl<R: Real> Ranks for Cpu<R> {}

impl<R: Real> Filter3d for Cpu<R> {
    fn update_filter_3d(
        &mut self,
        model: &mut Model<R>,
        views: &[&View],
        sampled_from: f64,
    ) -> Result<(), DeviceError> {
        // The 3D filter does not depend on the footprint.
        let point = |view: &&View| viewpoint(view, sampled_from, Footprint::DILATED);
        smooth::smooth(model, &views.iter().map(point).collect::<Vec<_>>());
        Ok(())
    }
}

impl<R: Real> Transmittances<Gaussians> for Cpu<R> {
    fn transmittances(
        &mut self,
        model: &Model<R>,
        view: &View,
        settings: &RenderSettings,
        places: &[[f32; 3]],
    ) -> Result<Vec<f32>, DeviceError> {
        seen::transmittances(model, view, settings, places)
    }
}

impl<R: Real> Contributions<Gaussians> for Cpu<R> {
    type ContributionSums = ContributionSums<R>;

    fn no_contributions(
        &mut self,
        model: &Model<R>,
        absent: &[bool],
    ) -> Result<ContributionSums<R>, DeviceError> {
        check_absent(absent, model.len())?;
        Ok(ContributionSums::new(absent))
    }

    fn add_contributions(
        &mut self,
        model: &Model<R>,
        view: &View,
        settings: &RenderSettings,
        target: &Arc<Image>,
        sums: &mut ContributionSums<R>,
    ) -> Result<Measured, DeviceError> {
        seen::add_contributions(model, view, settings, target, sums)
    }

    fn read_contributions(
        &mut self,
        sums: &ContributionSums<R>,
    ) -> Result<Vec<Contribution>, DeviceError> {
        Ok(sums.read())
    }
}

impl<R: Real> Fuse<Gaussians> for Cpu<R> {
    type BrickSurvey = Survey;
    type FusedVoxels = Fusion;

    fn new_survey(&mut self, space: Space) -> Result<Survey, DeviceError> {
        Ok(Survey::new(space))
    }

    fn survey_depths(
        &mut self,
        survey: &mut Survey,
        frame: &Frame<R, Shown>,
        seen: MaskedView<'_>,
    ) -> Result<(), DeviceError> {
        Ok(fuse::survey(survey, &frame.depths(seen)?)?)
    }

    fn read_survey(&mut self, survey: Survey) -> Result<Survey, DeviceError> {
        Ok(survey)
    }

    fn new_voxels(&mut self, bricks: &Arc<SurveyedBricks>) -> Result<Fusion, DeviceError> {
        Ok(Fusion::new(Arc::clone(bricks)))
    }

    fn fuse_depths(
        &mut self,
        voxels: &mut Fusion,
        frame: &Frame<R, Shown>,
        seen: MaskedView<'_>,
    ) -> Result<(), DeviceError> {
        Ok(fuse::fuse(voxels, &frame.depths(seen)?)?)
    }

    fn read_voxels(&mut self, voxels: Fusion) -> Result<Fusion, DeviceError> {
        Ok(voxels)
    }
}

impl<R: Real> Lpips<Gaussians> for Cpu<R> {
    type Net = LpipsModel;

    fn load_lpips(&mut self, weights: &LpipsWeights) -> Result<LpipsModel, DeviceError> {
        Ok(LpipsModel::new(weights))
    }

    fn lpips(
        &mut self,
        net: &LpipsModel,
        frame: &Frame<R, Shown>,
        target: &Arc<Image>,
        input: LpipsInput,
    ) -> Result<f64, DeviceError> {
        lpips::perceive(net, &frame.canvas, target, input)
    }
}

impl<R: Real> Appearance<Gaussians> for Cpu<R> {
    type Tables = AppearanceTables<R>;

    fn upload_tables(&mut self, tables: &AppearanceTables) -> Result<Self::Tables, DeviceError> {
        Ok(tables.cast(R::of_f32))
    }

    fn read_tables(&mut self, tables: &Self::Tables) -> Result<AppearanceTables, DeviceError> {
        Ok(tables.cast(R::to_f32))
    }

    fn compensate(
        &mut self,
        tables: &mut Self::Tables,
        frame: Frame<R, Drawn>,
        step: &TableStep,
    ) -> Result<Frame<R, Compensated>, DeviceError> {
        let colors = appearance::compensate(tables, &frame.canvas, step)?;
        Ok(frame.compensated(colors))
    }

    fn learn(
        &mut self,
        tables: &mut Self::Tables,
        frame: Frame<R, Scored<Compensated>>,
        step: &TableStep,
    ) -> Result<Frame<R, Scored<Drawn>>, DeviceError> {
        frame.learned(|canvas, d_image| appearance::learn(tables, canvas, d_image, step))
    }

    fn correct(
        &mut self,
        mut frame: Frame<R, Shown>,
        target: &Arc<Image>,
    ) -> Result<Frame<R, Shown>, DeviceError> {
        frame.compensated = Some(appearance::correct(&frame.canvas, target)?);
        Ok(frame)
    }
}

impl<R: Real> Bind for Cpu<R> {
    type Binding = Binding<R>;

    fn bind(
        &mut self,
        model: &mut Model<R>,
        topology: &Arc<BoundTopology>,
        state: &BoundState,
    ) -> Result<Binding<R>, DeviceError> {
        let binding = Binding::new(topology, state);
        binding.place(model);
        Ok(binding)
    }

    fn step_bound(
        &mut self,
        model: &mut Model<R>,
        binding: &mut Binding<R>,
        gradients: Gradients<R>,
        step: &BoundStep,
    ) -> Result<(), DeviceError> {
        let moved = binding.step(model, &gradients, step, self.seed);
        gradients.views.into_iter().find_map(|view| view.fault).map_or(moved, Err)
    }

    fn read_binding(&mut self, binding: &Binding<R>) -> Result<BoundState, DeviceError> {
        Ok(binding.read())
    }
}

// Meshes: triangles between the rows of a model.

/// Fails if an index is not below `len`.
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

/// Sets the scales of each vertex to the size of its triangles.
fn size_vertices<R: Real>(model: &mut Model<R>) {
    let place = |row: usize| model.triple(Parameter::Means, row);
    let sizes = log_sizes(model.len(), &model.faces.corners, place);
    model.column_mut(Parameter::LogScales).values =
        sizes.into_iter().flat_map(|size| [size; 3]).collect();
}

/// Raises the minimum opacity of all vertices from `before` to `after`.
pub(super) fn raise_opacity_floor<R: Real>(model: &mut Model<R>, before: f64, after: f64) {
    // Single precision resolves few opacities next to 1.
    for logit in &mut model.column_mut(Parameter::OpacityLogits).values {
        *logit = R::of(raised_logit(logit.to_f64(), before, after));
    }
}

// Nearest-neighbour search for palettes.

impl<R: Real> Palettes for Cpu<R> {
    type PaletteRows = PaletteRows;

    fn hold_rows(&mut self, rows: &[f32], width: usize) -> Result<PaletteRows, DeviceError> {
        Ok(PaletteRows::new(rows, width))
    }

    fn near_entries(
        &mut self,
        rows: &mut PaletteRows,
        centers: &[f32],
        cells: &CellLists<'_>,
    ) -> Result<Vec<NearRow>, DeviceError> {
        Ok(rows.held().nearest(centers, cells))
    }

    fn near_cells(
        &mut self,
        rows: &mut PaletteRows,
        centers: &[f32],
        count: usize,
    ) -> Result<Vec<u32>, DeviceError> {
        Ok(rows.held().near_cells(centers, count))
    }
}
