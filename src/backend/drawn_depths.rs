//! The depths and colours of a drawn view on the host, as geometry takes them.

use splat_mesh::Camera;
use splat_mesh::tsdf::DepthView;

use super::{Look, Rendered};
use crate::dataset::View;
use crate::math::Real as _;
use crate::math::linalg::{Vec3, mul_transposed, scale, sub};
use crate::math::normals::OPAQUE_MIN;

/// Which depth of a pixel counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PixelDepth {
    /// The mean of the depths of what is blended, by their weights.
    Mean,
    /// That by which half of the light is stopped.
    Median,
}

impl PixelDepth {
    /// What a view with these depths is drawn for.
    pub(crate) const fn look(self) -> Look {
        match self {
            Self::Mean => Look::SURFACE,
            Self::Median => Look::MEDIAN,
        }
    }
}

/// A view, and which of its pixels count.
#[derive(Clone, Copy, Debug)]
pub struct MaskedView<'a> {
    /// The view.
    pub view: &'a View,
    /// [height, width]: 0 where a pixel does not count; without it all do.
    pub mask: Option<&'a [u8]>,
}

/// A view as the model shows it.
#[derive(Clone, Debug)]
pub struct DrawnDepths {
    camera: Camera,
    /// [height, width], scene units along the view axis; 0 where there is none.
    depths: Vec<f32>,
    /// [height, width], sRGB.
    colors: Vec<[f32; 3]>,
    /// [height, width]: whether the photograph counts there.
    mask: Option<Vec<bool>>,
}

impl DrawnDepths {
    /// Of a view that was drawn on black with the maps of its surface: its median depths where they were
    /// drawn, else the means of the Gaussians' depths.
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
        // On black a colour is dark by what is seen through it.
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

    /// Pixels that show something and count.
    pub fn pixels_with_depth(&self) -> impl Iterator<Item = usize> + '_ {
        let counts = |pixel: usize| self.mask.as_ref().is_none_or(|mask| mask[pixel]);
        (0..self.depths.len()).filter(move |&pixel| self.depths[pixel] > 0.0 && counts(pixel))
    }

    /// What a pixel shows, world space.
    pub fn place(&self, pixel: usize) -> Vec3<f64> {
        let Camera { width, focal_px, centre_px, rotation, translation, .. } = self.camera;
        let depth = f64::from(self.depths[pixel]);
        let at_px = [(pixel % width) as f64 + 0.5, (pixel / width) as f64 + 0.5];
        let [x, y] = [0, 1].map(|axis| (at_px[axis] - centre_px[axis]) / focal_px[axis]);
        mul_transposed(&rotation, sub([x * depth, y * depth, depth], translation))
    }

    /// The colour of a pixel, sRGB.
    pub fn color(&self, pixel: usize) -> [f32; 3] {
        self.colors[pixel]
    }

    /// What saw it, and from where.
    pub fn camera(&self) -> Camera {
        self.camera
    }

    /// Where the camera stands, world space.
    pub fn eye(&self) -> Vec3<f64> {
        scale(mul_transposed(&self.camera.rotation, self.camera.translation), -1.0)
    }

    /// As fusion takes it.
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
