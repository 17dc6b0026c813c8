//! The depths and colours of a drawn view on the host, as meshing needs them.

use splat_mesh::Camera;
use splat_mesh::tsdf::DepthView;

use super::{RenderRequest, Rendered};
use crate::dataset::View;
use crate::math::Real as _;
use crate::math::linalg::{Vec3, mul_transposed, scale, sub};
use crate::math::normals::OPAQUE_MIN;

/// Definition of a pixel's depth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PixelDepth {
    /// Mean of the blended depths by their weights.
    Mean,
    /// Depth at which half of the light is stopped.
    Median,
}

impl PixelDepth {
    /// Returns the maps that a view with these depths is drawn with.
    pub(crate) const fn render_request(self) -> RenderRequest {
        match self {
            Self::Mean => RenderRequest::SURFACE,
            Self::Median => RenderRequest::MEDIAN,
        }
    }
}

/// A view and a mask of the pixels that count.
#[derive(Clone, Copy, Debug)]
pub struct MaskedView<'a> {
    /// The view.
    pub view: &'a View,
    /// `[height, width]`; 0 where a pixel does not count. All count without a mask.
    pub mask: Option<&'a [u8]>,
}

/// Depths and colours of a view of the model.
#[derive(Clone, Debug)]
pub struct DrawnDepths {
    camera: Camera,
    /// `[height, width]`, scene units along the view axis; 0 if there is none.
    depths: Vec<f32>,
    /// `[height, width]`, sRGB.
    colors: Vec<[f32; 3]>,
    /// `[height, width]`; true where the photograph counts.
    mask: Option<Vec<bool>>,
}

impl DrawnDepths {
    /// Takes a view that was drawn on black with [`RenderRequest::SURFACE`] or [`RenderRequest::MEDIAN`]. Uses the
    /// median depths if they were drawn, else the means of the Gaussians' depths.
    pub fn new(seen: MaskedView<'_>, rendered: &Rendered) -> Self {
        let opaque_min = OPAQUE_MIN.to_f32();
        let (sums, _) = rendered.surface.as_deref().unwrap_or_default().as_chunks::<4>();
        let mean = |&[depth, _, _, weight]: &[f32; 4]| {
            if weight >= opaque_min { depth / weight } else { 0.0 }
        };
        let depths = match &rendered.median_depths {
            Some(medians) => medians.clone(),
            None => sums.iter().map(mean).collect(),
        };
        let (colors, _) = rendered.rgb.as_chunks::<3>();
        // On black a pixel is darker the more light passes through it.
        let color = |(color, &[_, _, _, weight]): (&[f32; 3], &[f32; 4])| {
            let whole = weight.max(opaque_min);
            color.map(|channel| (channel / whole).clamp(0.0, 1.0))
        };
        Self {
            camera: camera_of(seen.view),
            depths,
            colors: colors.iter().zip(sums).map(color).collect(),
            mask: seen.mask.map(|mask| mask.iter().map(|&counts| counts > 0).collect()),
        }
    }

    /// Returns the pixels that have a depth and count.
    pub fn pixels_with_depth(&self) -> impl Iterator<Item = usize> + '_ {
        let counts = |pixel: usize| self.mask.as_ref().is_none_or(|mask| mask[pixel]);
        (0..self.depths.len()).filter(move |&pixel| self.depths[pixel] > 0.0 && counts(pixel))
    }

    /// Returns the point that a pixel shows, world space.
    pub fn place(&self, pixel: usize) -> Vec3<f64> {
        let Camera { width, focal_px, centre_px, rotation, translation, .. } = self.camera;
        let depth = f64::from(self.depths[pixel]);
        let at_px = [(pixel % width) as f64 + 0.5, (pixel / width) as f64 + 0.5];
        let [x, y] = [0, 1].map(|axis| (at_px[axis] - centre_px[axis]) / focal_px[axis]);
        mul_transposed(&rotation, sub([x * depth, y * depth, depth], translation))
    }

    /// Returns the colour of a pixel, sRGB.
    pub fn color(&self, pixel: usize) -> [f32; 3] {
        self.colors[pixel]
    }

    /// Returns the camera.
    pub fn camera(&self) -> Camera {
        self.camera
    }

    /// Returns the position of the camera, world space.
    pub fn eye(&self) -> Vec3<f64> {
        scale(mul_transposed(&self.camera.rotation, self.camera.translation), -1.0)
    }

    /// Returns the view as fusion takes it.
    pub fn depth_view(&self) -> DepthView<'_> {
        DepthView {
            camera: self.camera,
            depths: &self.depths,
            normals: None,
            mask: self.mask.as_deref(),
            colors: &self.colors,
        }
    }
}

/// Converts the camera and pose of a view.
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
