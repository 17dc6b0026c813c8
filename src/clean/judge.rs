//! How much the training views look like their photographs without some Gaussians, and what each Gaussian
//! is worth in them.

use super::rule::CleanRule;
use crate::backend::{Photo, RenderSettings, Stay, TrainDevice, Worth};
use crate::model::Gaussians;
use crate::train::event::{Metrics, Split};
use crate::train::{TrainError, Views};

/// Draws all training views of one model.
pub(super) struct Judge<'a, 'v, B: TrainDevice> {
    device: &'a mut B,
    model: B::Model,
    views: &'a mut Views<'v>,
    settings: RenderSettings,
    /// How often they were drawn.
    pub(super) passes: u32,
}

/// What is known of a model without some of its Gaussians.
#[derive(Clone, Debug, Default)]
pub(super) struct Judgement {
    /// Mean over the training views, dB.
    pub(super) psnr: f64,
    /// Sum over their pixels and channels.
    pub(super) squared_error: f64,
    /// What each Gaussian is worth, gone or not.
    pub(super) worths: Vec<Worth>,
}

impl<'a, 'v, B: TrainDevice> Judge<'a, 'v, B> {
    pub(super) fn new(
        device: &'a mut B,
        gaussians: &Gaussians,
        views: &'a mut Views<'v>,
        settings: RenderSettings,
    ) -> Result<Self, TrainError> {
        let model = device.upload(gaussians)?;
        Ok(Self { device, model, views, settings, passes: 0 })
    }

    /// Without those that are gone. `None` where no view has an image.
    pub(super) fn judge(
        &mut self,
        gone: &[Option<CleanRule>],
    ) -> Result<Option<Judgement>, TrainError> {
        let Self { device, model, views, settings, passes } = self;
        *passes += 1;
        let absent: Vec<bool> = gone.iter().map(Option::is_some).collect();
        let mut sums = device.no_worths(model, &absent)?;
        let order = views.split(Split::Train);
        let sent: Vec<usize> =
            order.iter().copied().filter(|&index| !device.is_resident(index)).collect();
        views.schedule_decoding(&sent);
        let (mut psnr, mut squared_error, mut count) = (0.0, 0.0, 0_u32);
        for &index in order {
            let target = match device.resident(index) {
                Some(target) => target,
                None => match views.fetch(index) {
                    Some(image) => {
                        let stay = Stay::Resident(index);
                        device.upload_target(Photo { image: &image, stay })?
                    }
                    None => continue,
                },
            };
            views.release(*device, index);
            // Nothing of it would be compared.
            if views.is_hidden(index) {
                continue;
            }
            let view = views.view(index);
            let measured = device.add_worths(model, view, settings, &target, &mut sums)?;
            let [width, height] = [view.camera.width, view.camera.height].map(f64::from);
            squared_error += measured.mse * width * height * 3.0;
            psnr += Metrics::from(measured).psnr;
            count += 1;
        }
        if count == 0 {
            return Ok(None);
        }
        let worths = device.read_worths(&sums)?;
        Ok(Some(Judgement { psnr: psnr / f64::from(count), squared_error, worths }))
    }
}
