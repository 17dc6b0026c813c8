//! Depths, colours and masks of drawn training views.

use super::ExtractionError;
use crate::backend::{
    DeviceError, DrawnDepths, MaskedView, PixelDepth, RenderRequest, RenderSettings, Shown,
    TrainDevice,
};
use crate::dataset::View;
use crate::math::linalg::{Vec3, add, mul};
use crate::train::Views;
use crate::train::event::Split;

/// Transmittance to a view from the outer side of the surface.
const HALF: f32 = 0.5;

/// Points per call of the device.
pub(super) const PLACES_AT_ONCE: usize = 1 << 22;

/// Host memory of a pixel of a drawn view: colours, depths and normals from the device, and the maps derived from
/// them.
pub(super) const PIXEL_BYTES: u64 = 12 + 16 + 4 + (4 + 12 + 1);

/// Step that draws every view.
pub(super) const ALL_VIEWS: usize = 1;

/// A model on a device, and the views that it is drawn from.
pub struct DrawnModel<'a, 'd, B: TrainDevice> {
    /// The device.
    pub device: &'a mut B,
    /// The model there.
    pub model: &'a B::Model,
    /// Views of the scene.
    pub views: &'a mut Views<'d>,
    /// Settings of the drawing, with a black background.
    pub settings: RenderSettings,
    /// Callback that receives a stage's name and the finished share, 0 to 1.
    pub on_progress: &'a (dyn Fn(&'static str, f64) + Sync),
}

#[derive(Clone, Copy)]
pub(super) struct Pass {
    stage: &'static str,
    done: u32,
    count: u32,
}

impl Pass {
    /// Returns the first of `count` passes of a stage.
    pub(super) fn first(stage: &'static str, count: u32) -> Self {
        Self { stage, done: 0, count }
    }

    pub(super) fn next(self) -> Self {
        Self { done: self.done + 1, ..self }
    }

    /// Returns the share of the stage that is done after `share` of this pass.
    fn of_stage(self, share: f64) -> f64 {
        ((f64::from(self.done) + share) / f64::from(self.count)).min(1.0)
    }
}

impl<B: TrainDevice> DrawnModel<'_, '_, B> {
    /// Draws every n-th training view and passes each to `visit`. If a photograph has a mask, only the white pixels
    /// count. Views whose mask cannot be read are skipped.
    pub(super) fn each(
        &mut self,
        stage: &'static str,
        every: usize,
        depth: PixelDepth,
        mut visit: impl FnMut(&DrawnDepths) -> Result<(), ExtractionError>,
    ) -> Result<(), ExtractionError> {
        let request = depth.render_request();
        let settings = self.settings;
        self.each_view(Pass::first(stage, 1), every, |device, model, seen| {
            let frame = device.render(model, seen.view, &settings, request)?;
            let rendered = device.image(&frame)?;
            drop(frame);
            visit(&DrawnDepths::new(seen, &rendered))
        })
    }

    /// Draws all training views with median depths and passes the frames, which stay on the device, to `visit`.
    pub(super) fn each_frame(
        &mut self,
        stage: &'static str,
        mut visit: impl FnMut(&mut B, &B::Frame<Shown>, MaskedView<'_>) -> Result<(), DeviceError>,
    ) -> Result<(), ExtractionError> {
        let settings = self.settings;
        self.each_view(Pass::first(stage, 1), ALL_VIEWS, |device, model, seen| {
            let frame = device.render(model, seen.view, &settings, RenderRequest::MEDIAN)?;
            Ok(visit(device, &frame, seen)?)
        })
    }

    /// Returns the number of pixels of all training views.
    pub(super) fn pixels(&self) -> u64 {
        let pixels = |&index: &usize| {
            let camera = self.views.view(index).camera;
            u64::from(camera.width) * u64::from(camera.height)
        };
        self.views.split(Split::Train).iter().map(pixels).sum()
    }

    /// Returns for each point (world units) whether it is inside: less than half of the light passes to every
    /// training view that sees the point.
    pub(super) fn inside(
        &mut self,
        pass: Pass,
        places: &[Vec3<f64>],
    ) -> Result<Vec<bool>, ExtractionError> {
        let settings = self.settings;
        // Points that no view has found to be outside yet.
        let mut open: Vec<usize> = (0..places.len()).collect();
        self.each_view(pass, ALL_VIEWS, |device, model, MaskedView { view, mask }| {
            let mut still_open = Vec::with_capacity(open.len());
            for chunk in open.chunks(PLACES_AT_ONCE) {
                let narrow: Vec<[f32; 3]> =
                    chunk.iter().map(|&index| splat_mesh::narrow::to_f32s(places[index])).collect();
                let passes = device.transmittances(model, view, &settings, &narrow)?;
                let is_outside = |(&index, &passed): (&usize, &f32)| {
                    passed >= HALF && mask.is_none_or(|mask| counts(view, mask, places[index]))
                };
                let kept = chunk.iter().zip(&passes).filter(|&pair| !is_outside(pair));
                still_open.extend(kept.map(|(&index, _)| index));
            }
            open = still_open;
            Ok(())
        })?;
        let mut inside = vec![false; places.len()];
        for index in open {
            inside[index] = true;
        }
        Ok(inside)
    }

    /// Visits every n-th training view with the mask of its photograph. Views whose mask cannot be read are skipped.
    fn each_view(
        &mut self,
        pass: Pass,
        every: usize,
        mut visit: impl FnMut(&mut B, &B::Model, MaskedView<'_>) -> Result<(), ExtractionError>,
    ) -> Result<(), ExtractionError> {
        let mut visited = 0;
        let order = self.views.split(Split::Train);
        let drawn = order.len().div_ceil(every.max(1));
        for (done, &index) in order.iter().step_by(every.max(1)).enumerate() {
            (self.on_progress)(pass.stage, pass.of_stage(done as f64 / drawn as f64));
            let photograph = if self.views.may_have_mask(index) {
                match self.views.fetch(index) {
                    Some(photograph) => Some(photograph),
                    None => continue,
                }
            } else {
                None
            };
            let mask = photograph.as_deref().and_then(|image| image.mask.as_deref());
            visit(self.device, self.model, MaskedView { view: self.views.view(index), mask })?;
            visited += 1;
        }
        if visited == 0 {
            let reason = self.views.first_problem().unwrap_or("the scene has none").to_owned();
            return Err(ExtractionError::NoViews { reason });
        }
        Ok(())
    }
}

/// Returns true if the mask keeps the pixel in which the view sees a point (world units).
fn counts(view: &View, mask: &[u8], place: Vec3<f64>) -> bool {
    let camera = view.camera;
    let cam = add(mul(&view.pose.rotation, place), view.pose.translation);
    let pixel = [0, 1].map(|axis| {
        let at_px = camera.focal_px[axis] * cam[axis] / cam[2] + camera.centre_px[axis];
        splat_mesh::narrow::floor_u32(at_px) as usize
    });
    let [width, height] = [camera.width, camera.height].map(|side| side as usize);
    let [x, y] = [pixel[0].min(width.saturating_sub(1)), pixel[1].min(height.saturating_sub(1))];
    mask.get(y * width + x).is_none_or(|&counts| counts > 0)
}
