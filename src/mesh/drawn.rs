//! What the training views show: depths, colours, and which pixels count.

use splat_mesh::tsdf::{Camera, DepthView};

use super::ExtractionError;
use crate::backend::{Look, RenderSettings, Rendered, TrainDevice};
use crate::dataset::{Image, View};
use crate::math::linalg::{Vec3, mul_transposed, scale, sub};
use crate::train::Views;
use crate::train::event::Split;

/// The sum of the weights from which a pixel has a depth: half of what is behind is hidden.
const OPACITY_MIN: f32 = 0.5;

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
        mut visit: impl FnMut(&DrawnDepths) -> Result<(), ExtractionError>,
    ) -> Result<(), ExtractionError> {
        let mut drawn = 0;
        for &index in self.views.split(Split::Train) {
            let photograph = if self.views.may_have_mask(index) {
                match self.views.fetch(index) {
                    Some(photograph) => Some(photograph),
                    None => continue,
                }
            } else {
                None
            };
            let view = self.views.view(index);
            let rendered = {
                let look = match depth {
                    PixelDepth::Mean => Look::SURFACE,
                    PixelDepth::Median => Look::MEDIAN,
                };
                let frame = self.device.render(self.model, view, &self.settings, look)?;
                self.device.image(&frame)?
            };
            visit(&drawn_view(view, &rendered, photograph.as_deref()))?;
            drawn += 1;
        }
        if drawn == 0 {
            let reason = self.views.first_problem().unwrap_or("the scene has none").to_owned();
            return Err(ExtractionError::NoViews { reason });
        }
        Ok(())
    }
}

fn drawn_view(view: &View, rendered: &Rendered, photograph: Option<&Image>) -> DrawnDepths {
    let camera = view.camera;
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
        camera: Camera {
            width: camera.width as usize,
            height: camera.height as usize,
            focal_px: camera.focal_px,
            centre_px: camera.centre_px,
            rotation: view.pose.rotation,
            translation: view.pose.translation,
        },
        depths,
        colors: colors.iter().zip(sums).map(color).collect(),
        mask: photograph
            .and_then(|image| image.mask.as_ref())
            .map(|mask| mask.iter().map(|&counts| counts > 0).collect()),
    }
}
