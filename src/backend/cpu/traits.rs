//! What the traits of a device ask for, each handed to the file that does it.

use std::ops::Range;
use std::sync::Arc;

use super::Cpu;
use super::frame::{self, Frame, Ready};
use super::model::Model;
use super::stage::appearance::{self, ColorTables};
use super::stage::gradients::Gradients;
use super::stage::lpips::{self, LpipsModel};
use super::stage::neighbours::{self, NearestLists};
use super::stage::{adam, densify, loss, relocate, reorder, smooth};
use crate::backend::frame_state::{Compensated, Drawn, FrameState, Scored, Shown, Trainable};
use crate::backend::viewpoint::viewpoint;
use crate::backend::{
    AdamStep, Appearance, AppearanceTables, Densified, DensifyRule, Device, DeviceError,
    DeviceInfo, Drawing, Edit, Filter3d, Grant, Look, Lpips, Measured, ModelShape, Neighbours,
    Objective, Photo, RelocateRule, Render, RenderSettings, Rendered, Rows, ScreenFilter, Snapshot,
    Store, Survey, TableStep, Wants, check_rows, chunks,
};
use crate::dataset::{Image, View};
use crate::math::Real;
use crate::math::morton::Cube;
use crate::model::Gaussians;
use crate::perceptual::LpipsWeights;

impl<R: Real> Device for Cpu<R> {
    type Target = Arc<Image>;

    fn info(&self) -> DeviceInfo {
        let name = format!("CPU, {} threads", rayon::current_num_threads());
        DeviceInfo { name, uuid: None }
    }

    fn upload_target(&mut self, photo: Photo<'_>) -> Result<Arc<Image>, DeviceError> {
        Ok(Arc::clone(photo.image))
    }
}

impl<R: Real> Store<Gaussians> for Cpu<R> {
    type Model = Model<R>;

    fn upload(&mut self, host: &Gaussians) -> Result<Model<R>, DeviceError> {
        Ok(Model::new(host))
    }

    fn load<S: Rows<Gaussians>>(&mut self, source: &mut S) -> Result<Model<R>, S::Error>
    where
        S::Error: From<DeviceError>,
    {
        let count = source.len();
        let mut model = Model::with_room(&source.shape()?, count);
        for rows in chunks(count) {
            model.append(&source.read(rows)?);
        }
        Ok(model)
    }

    fn read_parameters(
        &mut self,
        model: &mut Model<R>,
        rows: Range<usize>,
    ) -> Result<Gaussians, DeviceError> {
        check_rows(&rows, model.len())?;
        Ok(model.read_parameters(rows))
    }

    fn read(
        &mut self,
        model: &mut Model<R>,
        rows: Range<usize>,
    ) -> Result<Snapshot<Gaussians>, DeviceError> {
        check_rows(&rows, model.len())?;
        Ok(model.read(rows))
    }

    fn sample(&mut self, model: &mut Model<R>, rows: &[usize]) -> Result<Gaussians, DeviceError> {
        Ok(model.sample(rows))
    }

    fn shape(&self, model: &Model<R>) -> ModelShape {
        let [parameters, optimizer] = model.bytes();
        ModelShape { rows: model.len(), optional: model.optional(), parameters, optimizer }
    }

    fn reorder(&mut self, model: &mut Model<R>, cube: &Cube) -> Result<(), DeviceError> {
        reorder::reorder(model, cube);
        Ok(())
    }
}

impl<R: Real> Neighbours<Gaussians> for Cpu<R> {
    type Lists = NearestLists;

    fn neighbours(&mut self, model: &Model<R>, count: u32) -> Result<NearestLists, DeviceError> {
        neighbours::neighbours(model, count)
    }

    fn read_neighbours(
        &mut self,
        lists: &NearestLists,
        rows: Range<usize>,
    ) -> Result<Vec<u32>, DeviceError> {
        lists.read(&rows)
    }
}

impl<R: Real> Render<Gaussians> for Cpu<R> {
    type Frame<S: FrameState> = Frame<R, S>;
    type Gradients = Gradients<R>;
    type Losses = Ready;

    fn render(
        &mut self,
        model: &Model<R>,
        view: &View,
        settings: &RenderSettings,
        look: Look,
    ) -> Result<Frame<R, Shown>, DeviceError> {
        Ok(frame::draw(model, view, Drawing::shown(settings, look)))
    }

    fn render_train(
        &mut self,
        model: &Model<R>,
        view: &View,
        settings: &RenderSettings,
        wants: &Wants,
    ) -> Result<Frame<R, Drawn>, DeviceError> {
        Ok(frame::draw(model, view, Drawing::trained(settings, wants)))
    }

    fn objective<S: Trainable>(
        &mut self,
        model: &Model<R>,
        frame: Frame<R, S>,
        objective: &Objective<'_, Arc<Image>, NearestLists>,
    ) -> Result<(Frame<R, Scored<S>>, Ready), DeviceError> {
        frame.scored(model, objective)
    }

    fn backward(
        &mut self,
        model: &mut Model<R>,
        frame: Frame<R, Scored<Drawn>>,
        near: Option<&NearestLists>,
        gradients: &mut Gradients<R>,
    ) -> Result<Ready, DeviceError> {
        frame.backward(model, near, gradients)
    }

    fn step(
        &mut self,
        model: &mut Model<R>,
        gradients: Gradients<R>,
        step: &AdamStep,
    ) -> Result<(), DeviceError> {
        let moved = adam::step(model, &gradients, step);
        // What was left out has not harmed the others, but it never comes back by itself.
        gradients.views.into_iter().find_map(|view| view.fault).map_or(moved, Err)
    }

    fn measure<S: FrameState>(
        &mut self,
        frame: &Frame<R, S>,
        target: &Arc<Image>,
    ) -> Result<Measured, DeviceError> {
        loss::measure(frame.compared(), frame.canvas.size, target)
    }

    fn image<S: FrameState>(&mut self, frame: &Frame<R, S>) -> Result<Rendered, DeviceError> {
        Ok(frame.rendered())
    }
}

impl<R: Real> Edit<Gaussians> for Cpu<R> {
    fn survey(&mut self, model: &Model<R>, rule: &DensifyRule) -> Result<Survey, DeviceError> {
        Ok(densify::survey(model, rule))
    }

    fn densify(
        &mut self,
        model: &mut Model<R>,
        rule: &DensifyRule,
        grant: Grant,
    ) -> Result<Densified, DeviceError> {
        Ok(densify::densify(model, rule, grant))
    }

    fn relocate(
        &mut self,
        model: &mut Model<R>,
        rule: &RelocateRule,
    ) -> Result<usize, DeviceError> {
        Ok(relocate::relocate(model, rule))
    }

    fn multiply(
        &mut self,
        model: &mut Model<R>,
        rule: &RelocateRule,
        births: usize,
    ) -> Result<(), DeviceError> {
        relocate::multiply(model, rule, births);
        Ok(())
    }

    fn reset_opacity(&mut self, model: &mut Model<R>, ceiling: f64) -> Result<(), DeviceError> {
        if model.optional().filter_3d {
            smooth::reset_opacity(model, ceiling);
        } else {
            densify::reset_opacity(model, ceiling);
        }
        Ok(())
    }
}

impl<R: Real> Filter3d for Cpu<R> {
    fn update_filter_3d(
        &mut self,
        model: &mut Model<R>,
        views: &[&View],
        sampled_from: f64,
    ) -> Result<(), DeviceError> {
        // The screen's filter does not matter to it.
        let point = |view: &&View| viewpoint(view, sampled_from, ScreenFilter::DILATION);
        smooth::smooth(model, &views.iter().map(point).collect::<Vec<_>>());
        Ok(())
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
    ) -> Result<f64, DeviceError> {
        lpips::perceive(net, &frame.canvas, target)
    }
}

impl<R: Real> Appearance<Gaussians> for Cpu<R> {
    type Tables = ColorTables<R>;

    fn upload_tables(&mut self, tables: &AppearanceTables) -> Result<ColorTables<R>, DeviceError> {
        Ok(ColorTables::new(tables))
    }

    fn read_tables(&mut self, tables: &ColorTables<R>) -> Result<AppearanceTables, DeviceError> {
        Ok(tables.tables())
    }

    fn compensate(
        &mut self,
        tables: &mut ColorTables<R>,
        frame: Frame<R, Drawn>,
        step: &TableStep,
    ) -> Result<Frame<R, Compensated>, DeviceError> {
        let colors = appearance::compensate(tables, &frame.canvas, step)?;
        Ok(frame.compensated(colors))
    }

    fn learn(
        &mut self,
        tables: &mut ColorTables<R>,
        frame: Frame<R, Scored<Compensated>>,
        step: &TableStep,
    ) -> Result<Frame<R, Scored<Drawn>>, DeviceError> {
        frame.learned(|canvas, d_image| appearance::learn(tables, (canvas, d_image), step))
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
