//! What the training views show: depths, colours, and which pixels count.

use splat_mesh::Camera;
use splat_mesh::tsdf::DepthView;

use super::ExtractionError;
use crate::backend::{Look, RenderSettings, Rendered, TrainDevice};
use crate::dataset::{Image, View};
use crate::math::linalg::{Vec3, add, mul, mul_transposed, scale, sub};
use crate::train::Views;
use crate::train::event::Split;

/// The sum of the weights from which a pixel has a depth: half of what is behind is hidden.
const OPACITY_MIN: f32 = 0.5;

/// The share of the light that passes to a view from the surface's outer side.
const HALF: f32 = 0.5;

/// Places that the device is asked about at a time.
pub(super) const PLACES_AT_ONCE: usize = 1 << 22;

/// Host memory of a pixel of a drawn view: colours, depths and normals as the device gives them, and what is
/// made of them.
pub(super) const PIXEL_BYTES: u64 = 12 + 16 + 4 + (4 + 12 + 1);

/// Every view is drawn.
pub(super) const ALL_VIEWS: usize = 1;

/// Which depth of a pixel counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PixelDepth {
    /// The mean of the Gaussians' depths by their weights.
    Mean,
    /// That by which half of the light is stopped.
    Median,
}

/// A model on a device, and the views that it is drawn from.
pub struct DrawnModel<'a, 'd, B: TrainDevice> {
    /// The device.
    pub device: &'a mut B,
    /// The model there.
    pub model: &'a B::Model,
    /// The scene's views.
    pub views: &'a mut Views<'d>,
    /// How it is drawn: on black.
    pub settings: RenderSettings,
}

/// A view as the model shows it.
#[derive(Clone, Debug)]
pub(super) struct DrawnDepths {
    camera: Camera,
    /// [height, width], scene units along the view axis; 0 where there is none.
    depths: Vec<f32>,
    /// [height, width], sRGB.
    colors: Vec<[f32; 3]>,
    /// [height, width]: whether the photograph counts there.
    mask: Option<Vec<bool>>,
}

impl DrawnDepths {
    /// Pixels that show something and count.
    pub(super) fn pixels_with_depth(&self) -> impl Iterator<Item = usize> + '_ {
        let counts = |pixel: usize| self.mask.as_ref().is_none_or(|mask| mask[pixel]);
        (0..self.depths.len()).filter(move |&pixel| self.depths[pixel] > 0.0 && counts(pixel))
    }

    /// What a pixel shows, world space.
    pub(super) fn place(&self, pixel: usize) -> Vec3<f64> {
        let Camera { width, focal_px, centre_px, rotation, translation, .. } = self.camera;
        let depth = f64::from(self.depths[pixel]);
        let at_px = [(pixel % width) as f64 + 0.5, (pixel / width) as f64 + 0.5];
        let [x, y] = [0, 1].map(|axis| (at_px[axis] - centre_px[axis]) / focal_px[axis]);
        mul_transposed(&rotation, sub([x * depth, y * depth, depth], translation))
    }

    /// The colour of a pixel, sRGB.
    pub(super) fn color(&self, pixel: usize) -> [f32; 3] {
        self.colors[pixel]
    }

    /// What saw it, and from where.
    pub(super) fn camera(&self) -> Camera {
        self.camera
    }

    /// Where the camera stands, world space.
    pub(super) fn eye(&self) -> Vec3<f64> {
        scale(mul_transposed(&self.camera.rotation, self.camera.translation), -1.0)
    }

    /// As fusion takes it.
    pub(super) fn depth_view(&self) -> DepthView<'_> {
        DepthView {
            camera: self.camera,
            depths: &self.depths,
            normals: None,
            mask: self.mask.as_deref(),
            colors: &self.colors,
        }
    }
}

impl<B: TrainDevice> DrawnModel<'_, '_, B> {
    /// Draws the training views one after the other and hands them to `visit`. Views whose photograph
    /// has a mask count where the mask is white; those whose mask cannot be read are left out.
    pub(super) fn each(
        &mut self,
        depth: PixelDepth,
        visit: impl FnMut(&DrawnDepths) -> Result<(), ExtractionError>,
    ) -> Result<(), ExtractionError> {
        self.each_nth(ALL_VIEWS, depth, visit)
    }

    /// The same with every n-th training view.
    pub(super) fn each_nth(
        &mut self,
        every: usize,
        depth: PixelDepth,
        mut visit: impl FnMut(&DrawnDepths) -> Result<(), ExtractionError>,
    ) -> Result<(), ExtractionError> {
        let settings = self.settings;
        self.each_view(every, |device, model, view, photograph| {
            let look = match depth {
                PixelDepth::Mean => Look::SURFACE,
                PixelDepth::Median => Look::MEDIAN,
            };
            let rendered = {
                let frame = device.render(model, view, &settings, look)?;
                device.image(&frame)?
            };
            visit(&drawn_view(view, &rendered, photograph))
        })
    }

    /// Pixels of all training views.
    pub(super) fn pixels(&self) -> u64 {
        let pixels = |&index: &usize| {
            let camera = self.views.view(index).camera;
            u64::from(camera.width) * u64::from(camera.height)
        };
        self.views.split(Split::Train).iter().map(pixels).sum()
    }

    /// Which places (world units) are inside: those from which less than half of the light passes to all
    /// training views that see them, or that none sees.
    pub(super) fn inside(&mut self, places: &[Vec3<f64>]) -> Result<Vec<bool>, ExtractionError> {
        let settings = self.settings;
        // Those that no view has seen to be outside yet.
        let mut open: Vec<usize> = (0..places.len()).collect();
        self.each_view(ALL_VIEWS, |device, model, view, photograph| {
            let mask = photograph.and_then(|image| image.mask.as_deref());
            let mut still_open = Vec::with_capacity(open.len());
            for asked in open.chunks(PLACES_AT_ONCE) {
                let narrow: Vec<[f32; 3]> =
                    asked.iter().map(|&index| splat_mesh::narrow::to_f32s(places[index])).collect();
                let passes = device.transmittances(model, view, &settings, &narrow)?;
                let is_outside = |(&index, &passed): (&usize, &f32)| {
                    passed >= HALF && mask.is_none_or(|mask| counts(view, mask, places[index]))
                };
                let kept = asked.iter().zip(&passes).filter(|&pair| !is_outside(pair));
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

    /// Visits every n-th of the training views with their photographs where these may have a mask; those whose mask
    /// cannot be read are left out.
    fn each_view(
        &mut self,
        every: usize,
        mut visit: impl FnMut(&mut B, &B::Model, &View, Option<&Image>) -> Result<(), ExtractionError>,
    ) -> Result<(), ExtractionError> {
        let mut visited = 0;
        for &index in self.views.split(Split::Train).iter().step_by(every.max(1)) {
            let photograph = if self.views.may_have_mask(index) {
                match self.views.fetch(index) {
                    Some(photograph) => Some(photograph),
                    None => continue,
                }
            } else {
                None
            };
            visit(self.device, self.model, self.views.view(index), photograph.as_deref())?;
            visited += 1;
        }
        if visited == 0 {
            let reason = self.views.first_problem().unwrap_or("the scene has none").to_owned();
            return Err(ExtractionError::NoViews { reason });
        }
        Ok(())
    }
}

/// Whether a view's photograph counts where it sees a place (world units).
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

/// The camera of a view, as geometry takes it.
pub fn camera_of(view: &View) -> Camera {
    let camera = view.camera;
    Camera {
        width: camera.width as usize,
        height: camera.height as usize,
        focal_px: camera.focal_px,
        centre_px: camera.centre_px,
        rotation: view.pose.rotation,
        translation: view.pose.translation,
    }
}

fn drawn_view(view: &View, rendered: &Rendered, photograph: Option<&Image>) -> DrawnDepths {
    let (sums, _) = rendered.surface.as_deref().unwrap_or_default().as_chunks::<4>();
    let mean = |&[depth, _, _, weight]: &[f32; 4]| {
        if weight >= OPACITY_MIN { depth / weight } else { 0.0 }
    };
    let depths = match &rendered.median_depths {
        Some(medians) => medians.clone(),
        None => sums.iter().map(mean).collect(),
    };
    let (colors, _) = rendered.rgb.as_chunks::<3>();
    // On black a colour is dark by what is seen through it.
    let color = |(color, &[_, _, _, weight]): (&[f32; 3], &[f32; 4])| {
        let whole = weight.max(OPACITY_MIN);
        color.map(|channel| (channel / whole).clamp(0.0, 1.0))
    };
    DrawnDepths {
        camera: camera_of(view),
        depths,
        colors: colors.iter().zip(sums).map(color).collect(),
        mask: photograph
            .and_then(|image| image.mask.as_ref())
            .map(|mask| mask.iter().map(|&counts| counts > 0).collect()),
    }
}
