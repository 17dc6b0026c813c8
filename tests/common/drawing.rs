//! Drawing of views and training on them in tests.

use std::sync::Arc;

use splat::backend::{
    Compensation, DeviceError, Drawn, Extra, Footprint, Inputs, LossValues, MemoryEntry, Objective,
    Peaks, Photo, RenderRequest, RenderSettings, Rendered, Scored, Shown, Statistics, Stay, Terms,
    TrainDevice, TrainRequest, Trainable,
};
use splat::dataset::{Image, View};
use splat::math::Divisor;
use splat::memory::Bytes;

/// The purpose that a view is drawn for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pass {
    /// To be shown or measured.
    Eval,
    /// A picture with the Gaussians that each pixel is blended of.
    Picture,
    /// To be trained on.
    Train,
    /// A training pass that density control observes.
    Observe,
}

/// Settings and inputs of a drawn view.
#[expect(clippy::struct_excessive_bools, reason = "a set, of which any may be there")]
#[derive(Clone, Copy, Debug)]
pub struct DrawSettings {
    pub pass: Pass,
    pub sh_degree: u32,
    pub background: [f32; 3],
    pub near: f64,
    pub footprint: Footprint,
    pub statistics: Statistics,
    pub fade_depth: f64,
    pub inverse_depth: bool,
    /// Their squares, too, of a view that is trained on.
    pub inverse_squares: bool,
    pub surface: bool,
    pub median: bool,
    pub compensation: Option<Compensation>,
    /// By how much a view that is trained on is smaller than its photograph.
    pub divisor: Divisor,
}

impl DrawSettings {
    pub const DEFAULT: Self = Self {
        pass: Pass::Eval,
        sh_degree: RenderSettings::DEFAULT.sh_degree,
        background: RenderSettings::DEFAULT.background,
        near: RenderSettings::DEFAULT.near,
        footprint: RenderSettings::DEFAULT.footprint,
        statistics: Statistics::Norms,
        fade_depth: RenderSettings::DEFAULT.fade_depth,
        inverse_depth: false,
        inverse_squares: false,
        surface: false,
        median: false,
        compensation: None,
        divisor: Divisor::One,
    };

    pub fn settings(&self) -> RenderSettings {
        let &Self { sh_degree, background, near, footprint, fade_depth, .. } = self;
        RenderSettings { sh_degree, background, near, footprint, fade_depth, cuts_sides: false }
    }

    /// Returns the settings of a view that is shown.
    pub fn render_request(&self) -> RenderRequest {
        let (inverse_depths, surface, median) = (self.inverse_depth, self.surface, self.median);
        let extra = match self.pass {
            Pass::Picture => Extra::Counts,
            _ if inverse_depths || surface || median => {
                Extra::Maps { inverse_depths, surface, median }
            }
            _ => Extra::None,
        };
        RenderRequest { extra, corrects_colors: self.compensation.is_some() }
    }

    /// Returns the settings of a view that is trained on.
    pub fn train_request(&self) -> TrainRequest {
        let &Self { inverse_depth: inverse_depths, inverse_squares, surface: maps, median, .. } =
            self;
        let inputs = Inputs { inverse_depths, inverse_squares, maps, median, ..Inputs::default() };
        let observe = (self.pass == Pass::Observe).then_some(self.statistics);
        TrainRequest { observe, inputs, compensation: self.compensation, divisor: self.divisor }
    }
}

/// The values of the terms that compare with the photograph.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Loss {
    pub l1: f64,
    pub ssim: f64,
    pub depth_l1: Option<f64>,
    pub normals: Option<f64>,
    pub total: f64,
}

impl From<LossValues> for Loss {
    fn from(values: LossValues) -> Self {
        let get = |key| values.get(key).expect("the photometric term is on");
        let (l1, ssim) = (get("l1"), get("ssim"));
        let [depth_l1, normals] = ["depth_l1", "normals"].map(|key| values.get(key));
        Self { l1, ssim, depth_l1, normals, total: values.total }
    }
}

/// A view as it is drawn, with its photograph and the terms that compare them.
pub struct Seen<'a, B: TrainDevice> {
    pub view: &'a View,
    pub drawing: &'a DrawSettings,
    pub target: &'a B::Target,
    pub terms: &'a Terms,
    pub near: Option<&'a B::Lists>,
}

/// A device as tests use it.
pub trait Steps: TrainDevice {
    /// The photograph of a view, to be trained on.
    fn target(&mut self, view: usize, image: &Arc<Image>) -> Result<Self::Target, DeviceError> {
        self.upload_target(Photo { image, stay: Stay::Resident(view) })
    }

    /// A photograph to be looked at.
    fn glance(&mut self, image: &Arc<Image>) -> Result<Self::Target, DeviceError> {
        self.upload_target(Photo { image, stay: Stay::Transient })
    }

    fn show(
        &mut self,
        model: &Self::Model,
        view: &View,
        drawing: &DrawSettings,
    ) -> Result<Self::Frame<Shown>, DeviceError> {
        self.render(model, view, &drawing.settings(), drawing.render_request())
    }

    fn draw(
        &mut self,
        model: &Self::Model,
        view: &View,
        drawing: &DrawSettings,
    ) -> Result<Self::Frame<Drawn>, DeviceError> {
        self.render_train(model, view, &drawing.settings(), &drawing.train_request())
    }

    /// Entries of the device's memory.
    fn entries(&mut self) -> Vec<MemoryEntry> {
        self.memory(Peaks::Keep).map(|memory| memory.entries).unwrap_or_default()
    }

    /// Bytes of the parameters, and of the moments and statistics.
    fn model_bytes(&self, model: &Self::Model) -> [Bytes; 2] {
        let shape = self.shape(model);
        [shape.parameters, shape.optimizer]
    }

    /// Compares a frame by terms that need no neighbours.
    #[expect(clippy::type_complexity, reason = "a frame and its values, of associated types")]
    fn compare<S: Trainable>(
        &mut self,
        model: &Self::Model,
        frame: Self::Frame<S>,
        target: &Self::Target,
        terms: &Terms,
    ) -> Result<(Self::Frame<Scored<S>>, Self::Losses), DeviceError> {
        self.objective(model, frame, &Objective { target, terms, near: None, other: None })
    }

    /// Adds the gradients of a view; gives the values of the terms at pixels and at samples.
    fn add_seen(
        &mut self,
        model: &mut Self::Model,
        seen: &Seen<'_, Self>,
        gradients: &mut Self::Gradients,
    ) -> Result<[Self::Losses; 2], DeviceError> {
        let &Seen { view, drawing, target, terms, near } = seen;
        let frame = self.draw(model, view, drawing)?;
        let objective = Objective { target, terms, near, other: None };
        let (frame, pixels) = self.objective(model, frame, &objective)?;
        Ok([pixels, self.backward(model, frame, near, gradients)?])
    }

    /// Trains by terms that need no neighbours; gives the values of those at pixels.
    fn add_view(
        &mut self,
        model: &mut Self::Model,
        (view, drawing): (&View, &DrawSettings),
        (target, terms): (&Self::Target, &Terms),
        gradients: &mut Self::Gradients,
    ) -> Result<Self::Losses, DeviceError> {
        let seen = Seen { view, drawing, target, terms, near: None };
        let [pixels, _] = self.add_seen(model, &seen, gradients)?;
        Ok(pixels)
    }
}

impl<B: TrainDevice> Steps for B {}

/// A device's picture of a view, to be shown or to be trained on.
pub fn drawn_either<B: TrainDevice>(
    device: &mut B,
    model: &B::Model,
    (view, drawing): (&View, &DrawSettings),
) -> Rendered {
    match drawing.pass {
        Pass::Eval | Pass::Picture => {
            let frame = device.show(model, view, drawing).unwrap();
            device.image(&frame).unwrap()
        }
        Pass::Train | Pass::Observe => {
            let frame = device.draw(model, view, drawing).unwrap();
            device.image(&frame).unwrap()
        }
    }
}
