//! The processor: the executable specification of every stage, and what trains without a GPU.
//!
//! Generic over the precision: `Cpu<f32>` trains, `Cpu<f64>` is the oracle of the gradient tests.
//! Results do not depend on the number of threads: sums run in a fixed order.

mod count;
mod edit;
mod frame;
mod model;
mod stage;

use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;

pub use count::{Counted, count};
pub use edit::Selection;
pub use frame::Frame;
pub use model::{Model, ModelColumn, Parameter};
pub use stage::appearance::Appearance;
pub use stage::gradients::Gradients;
pub use stage::lpips::LpipsModel;
pub use stage::neighbours::Neighbours;
pub use stage::normals::ReadyMean;
pub use stage::project::ParameterGradient;

use self::stage::blend::{CanvasGradient, backward, forward};
use self::stage::depth::Compared;
use self::stage::depth_map::DepthMap;
use self::stage::gradients::ViewGradients;
use self::stage::project::Splat;
use self::stage::sampled_depths::Sampled;
use self::stage::{
    adam, appearance, bin, densify, depth, loss, lpips, neighbours, normals, project, reorder,
    sampled_depths, smooth, surface,
};
use super::viewpoint::viewpoint;
use super::{
    AdamStep, AppearanceStep, AppearanceTables, Backend, DeviceError, LossTerms, LossValue,
    Measured, NormalRule, Pass, Pending, Raster, RenderSettings, Rendered, Rows, ScreenFilter,
    Snapshot, Surface, SurfaceMaps, SurfaceRule, SurfaceTerms, check_rows, chunks,
};
use crate::dataset::{Image, View};
use crate::math::Real;
use crate::math::blend::ScreenGradient;
use crate::math::morton::Cube;
use crate::memory::Bytes;
use crate::memory::plan::OptionalColumns;
use crate::model::Gaussians;
use crate::perceptual::LpipsWeights;

/// The processor as a device.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cpu<R> {
    precision: PhantomData<R>,
}

impl<R: Real> Cpu<R> {
    /// Uses the threads of rayon's global pool.
    pub fn new() -> Self {
        Self { precision: PhantomData }
    }

    /// Gradients of all raw parameters of Gaussian `index`; what [`Raster::step`] consumes.
    pub fn parameter_gradient(
        &self,
        model: &Model<R>,
        gradients: &Gradients<R>,
        index: usize,
    ) -> ParameterGradient<R> {
        let slots = gradients.views.iter().map(|view| view.slots(model.len())).collect::<Vec<_>>();
        project::parameter_gradient(model, gradients, &slots, index)
    }
}

/// A value that is there already.
#[derive(Clone, Copy, Debug)]
pub struct Ready<T = LossValue>(T);

impl<T> Pending<T> for Ready<T> {
    fn is_ready(&self) -> bool {
        true
    }

    fn read(self) -> Result<T, DeviceError> {
        Ok(self.0)
    }
}

impl<R: Real> Backend for Cpu<R> {
    type Target = Arc<Image>;
    type Loss = Ready;

    fn name(&self) -> String {
        format!("CPU, {} threads", rayon::current_num_threads())
    }

    fn target(&mut self, _view: usize, image: &Arc<Image>) -> Result<Arc<Image>, DeviceError> {
        Ok(Arc::clone(image))
    }

    fn glance(&mut self, image: &Arc<Image>) -> Result<Arc<Image>, DeviceError> {
        Ok(Arc::clone(image))
    }
}

impl<R: Real> Raster<Gaussians> for Cpu<R> {
    type Model = Model<R>;
    type Frame = Frame<R>;
    type Gradients = Gradients<R>;
    type LpipsModel = LpipsModel;
    type Appearance = Appearance<R>;

    fn upload(&mut self, host: &Gaussians) -> Result<Model<R>, DeviceError> {
        Ok(Model::new(host))
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

    fn sample(&mut self, model: &mut Model<R>, rows: &[usize]) -> Result<Gaussians, DeviceError> {
        Ok(model.sample(rows))
    }

    fn len(&self, model: &Model<R>) -> usize {
        model.len()
    }

    fn optional(&self, model: &Model<R>) -> OptionalColumns {
        model.optional()
    }

    fn model_bytes(&self, model: &Model<R>) -> [Bytes; 2] {
        model.bytes()
    }

    fn render(
        &mut self,
        model: &Model<R>,
        view: &View,
        settings: &RenderSettings,
    ) -> Result<Frame<R>, DeviceError> {
        let view = viewpoint(view, settings.near, settings.screen_filter);
        let (splats, fault) = project::project(model, &view, settings);
        let bins = bin::bin(&splats, view.size);
        let canvas = forward(&splats, &bins, view.size, settings);
        let (settings, d_image) = (*settings, Vec::new());
        Ok(Frame {
            view,
            settings,
            splats,
            bins,
            canvas,
            compensated: None,
            fault,
            d_image,
            depths: None,
            normals: None,
            sampled: None,
        })
    }

    fn compare_depths(
        &mut self,
        frame: &mut Frame<R>,
        target: &Arc<Image>,
        weight: f64,
    ) -> Result<(), DeviceError> {
        frame.depths = depth::compare(&frame.canvas, target, weight)?;
        Ok(())
    }

    fn loss(
        &mut self,
        frame: &mut Frame<R>,
        target: &Arc<Image>,
        terms: &LossTerms,
    ) -> Result<Ready, DeviceError> {
        let (mut value, d_image) = loss::loss(frame.compared(), frame.canvas.size, target, terms)?;
        if let Some(depths) = &frame.depths {
            value.depth_l1 = Some(depths.l1);
            value.total += depths.weight * depths.l1;
            if !value.total.is_finite() {
                return Err(DeviceError::LossNotFinite { value: value.total });
            }
        }
        frame.d_image = d_image;
        Ok(Ready(value))
    }

    fn measure(&mut self, frame: &Frame<R>, target: &Arc<Image>) -> Result<Measured, DeviceError> {
        loss::measure(frame.compared(), frame.canvas.size, target)
    }

    fn perceptual(&mut self, weights: &LpipsWeights) -> Result<LpipsModel, DeviceError> {
        Ok(LpipsModel::new(weights))
    }

    fn perceive(
        &mut self,
        net: &LpipsModel,
        frame: &Frame<R>,
        target: &Arc<Image>,
    ) -> Result<f64, DeviceError> {
        lpips::perceive(net, &frame.canvas, target)
    }

    fn gradients(&mut self, _model: &Model<R>) -> Result<Gradients<R>, DeviceError> {
        Ok(Gradients { views: Vec::new(), geometry: Vec::new() })
    }

    fn backward(
        &mut self,
        model: &mut Model<R>,
        frame: Frame<R>,
        gradients: &mut Gradients<R>,
    ) -> Result<(), DeviceError> {
        let (d_surface, d_through) =
            sampled_depths::gradients(frame.normals, frame.sampled.as_ref());
        let d_canvas = CanvasGradient {
            image: &frame.d_image,
            inverse_depths: frame.depths.as_ref().map_or(&[], |depths| &depths.d_inverse_depths),
            surface: &d_surface,
            through: &d_through,
        };
        let screen = backward(&frame.splats, &frame.bins, &frame.canvas, d_canvas);
        if frame.settings.pass == Pass::Observe {
            densify::observe(model, &frame.splats, &screen, (frame.view.size, &frame.settings));
        }
        gradients.views.push(ViewGradients {
            view: frame.view,
            sh_degree: frame.settings.sh_degree,
            gaussian_from_splat: frame.splats.iter().map(|splat| splat.gaussian).collect(),
            screen,
            depth_map: frame.sampled.map(|sampled| sampled.map),
            fault: frame.fault,
        });
        Ok(())
    }

    fn frame_bytes(&self, frame: &Frame<R>) -> Bytes {
        Bytes::of::<Splat<R>>(frame.splats.capacity())
            + Bytes::of::<R>(frame.d_image.capacity())
            + frame.depths.as_ref().map_or(Bytes(0), Compared::bytes)
            + frame.normals.as_ref().map_or(Bytes(0), normals::Compared::bytes)
            + frame.sampled.as_ref().map_or(Bytes(0), Sampled::bytes)
            + Bytes::of::<R>(frame.compensated.as_ref().map_or(0, Vec::capacity))
            + frame.bins.bytes()
            + frame.canvas.bytes()
    }

    fn gradient_bytes(&self, gradients: &Gradients<R>) -> Bytes {
        let views = gradients.views.iter().map(|view| {
            Bytes::of::<ScreenGradient<R>>(view.screen.capacity())
                + Bytes::of::<usize>(view.gaussian_from_splat.capacity())
                + view.depth_map.as_ref().map_or(Bytes(0), DepthMap::bytes)
        });
        views.sum::<Bytes>() + Bytes::of::<R>(gradients.geometry.capacity())
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

    fn reorder(&mut self, model: &mut Model<R>, cube: &Cube) -> Result<(), DeviceError> {
        reorder::reorder(model, cube);
        Ok(())
    }

    fn smooth(
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

    fn appearance(&mut self, tables: &AppearanceTables) -> Result<Appearance<R>, DeviceError> {
        Ok(Appearance::new(tables))
    }

    fn read_appearance(
        &mut self,
        appearance: &Appearance<R>,
    ) -> Result<AppearanceTables, DeviceError> {
        Ok(appearance.tables())
    }

    fn compensate(
        &mut self,
        appearance: &mut Appearance<R>,
        view: usize,
        frame: &mut Frame<R>,
        step: &AppearanceStep,
    ) -> Result<(), DeviceError> {
        frame.compensated = Some(appearance::compensate(appearance, view, &frame.canvas, step)?);
        Ok(())
    }

    fn learn_appearance(
        &mut self,
        appearance: &mut Appearance<R>,
        view: usize,
        frame: &mut Frame<R>,
        step: &AppearanceStep,
    ) -> Result<(), DeviceError> {
        if frame.d_image.is_empty() {
            return Err(DeviceError::NoLoss);
        }
        appearance::learn(appearance, view, (&frame.canvas, &mut frame.d_image), step)
    }

    fn correct_colors(
        &mut self,
        frame: &mut Frame<R>,
        target: &Arc<Image>,
    ) -> Result<(), DeviceError> {
        frame.compensated = Some(appearance::correct(&frame.canvas, target)?);
        Ok(())
    }

    fn image(&mut self, frame: &Frame<R>) -> Result<Rendered, DeviceError> {
        Ok(frame.canvas.rendered(frame.settings.pass))
    }
}

impl<R: Real> Surface for Cpu<R> {
    type Neighbours = Neighbours;
    type SurfaceLoss = Ready<SurfaceTerms>;

    fn neighbours(&mut self, model: &Model<R>, count: u32) -> Result<Neighbours, DeviceError> {
        neighbours::neighbours(model, count)
    }

    fn read_neighbours(
        &mut self,
        near: &Neighbours,
        rows: Range<usize>,
    ) -> Result<Vec<u32>, DeviceError> {
        near.read(&rows)
    }

    fn regularise(
        &mut self,
        model: &Model<R>,
        near: Option<&Neighbours>,
        gradients: &mut Gradients<R>,
        rule: &SurfaceRule,
    ) -> Result<Ready<SurfaceTerms>, DeviceError> {
        surface::regularise(model, near, gradients, rule).map(Ready)
    }
}

impl<R: Real> SurfaceMaps for Cpu<R> {
    type NormalLoss = ReadyMean;

    fn compare_normals(
        &mut self,
        frame: &mut Frame<R>,
        weight: f64,
        rule: NormalRule,
    ) -> Result<ReadyMean, DeviceError> {
        if !matches!(frame.settings.pass, Pass::Train | Pass::Observe) {
            return Err(DeviceError::NoSurfaceMaps);
        }
        let compared = normals::compare(&frame.canvas, &frame.view, (weight, rule))?;
        let mean = ReadyMean(compared.mean);
        (frame.normals, frame.sampled) = (Some(compared), None);
        Ok(mean)
    }

    fn compare_sampled_depths(
        &mut self,
        model: &Model<R>,
        frame: &mut Frame<R>,
        near: &Neighbours,
        rule: &SurfaceRule,
    ) -> Result<(), DeviceError> {
        frame.compare_sampled_depths(model, near, rule)
    }
}
