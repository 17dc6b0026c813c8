//! Visible set of a view: splats, their triangles if they are faces, and tile lists.

use rayon::prelude::*;

use super::model::Model;
use super::primitive::{Drawable, DrawnView, Ellipsoid, Splat, density_field};
use super::stage::bin::{self, Bins, for_each_tile};
use super::stage::blend::{self, Canvas, CanvasGradient};
use super::stage::blend_triangles::{self, FaceLayers};
use super::stage::contribution::{self, ContributionSums, Judged};
use super::stage::project::{self, SeenFaces, Vertices};
use super::stage::{densify, loss, rays};
use crate::backend::settings::{TRANSMITTANCES, viewpoint};
use crate::backend::{
    Capability, DeviceError, DrawSettings, Footprint, Measured, RenderRequest, RenderSettings,
    Window,
};
use crate::dataset::{Image, View};
use crate::math::Real;
use crate::math::blend::ScreenGradient;
use crate::math::splat::{Shape, Triangle};
use crate::memory::Bytes;
use crate::model::Gaussians;

/// The visible set of a view.
pub(super) struct Seen<R> {
    /// Splats of rows, or of faces.
    pub(super) splats: Vec<Splat<R>>,
    /// Triangles of the splats; empty unless the splats are faces.
    triangles: Vec<Triangle<R>>,
    pub(super) bins: Bins,
    /// Error about the first row that was skipped because a value is not finite.
    pub(super) fault: Option<DeviceError>,
}

impl<R: Real> Seen<R> {
    pub(super) fn of<P: Drawable>(
        model: &Model<R, P>,
        view: &DrawnView<R>,
    ) -> Result<Self, DeviceError> {
        let size = view.viewpoint.size;
        let SeenFaces { splats, triangles, fault } = match view.footprint {
            Footprint::Ellipse { .. } | Footprint::Surfel => {
                let (splats, fault) = project::project(model, view);
                SeenFaces { splats, triangles: Vec::new(), fault }
            }
            Footprint::Triangle(window) => {
                let vertices = Vertices::of(model, view)?;
                project::faces(&model.faces.corners, vertices, size, &window)
            }
        };
        let bins = bin::bin(&splats, size);
        Ok(Self { splats, triangles, bins, fault })
    }

    /// Bins splats that were projected before.
    pub(super) fn of_splats(splats: Vec<Splat<R>>, size: [u32; 2]) -> Self {
        let bins = bin::bin(&splats, size);
        Self { splats, triangles: Vec::new(), bins, fault: None }
    }

    fn layers(&self, drawing: &DrawSettings, window: Window) -> FaceLayers<'_, R> {
        let Self { splats, triangles, bins, .. } = self;
        let background = drawing.background.map(R::of_f32);
        FaceLayers { splats, triangles, bins, window, background }
    }

    /// Blends the image.
    pub(super) fn blended(&self, size: [u32; 2], drawing: &DrawSettings) -> Canvas<R> {
        match drawing.footprint {
            Footprint::Ellipse { .. } | Footprint::Surfel => {
                blend::forward(&self.splats, &self.bins, size, drawing)
            }
            Footprint::Triangle(window) => {
                blend_triangles::forward(&self.layers(drawing, window), size, drawing)
            }
        }
    }

    /// Returns the visible rows and their screen-space gradients. Updates the statistics if the view is observed.
    pub(super) fn blended_bwd<P: Drawable>(
        &self,
        model: &mut Model<R, P>,
        view: &DrawnView<R>,
        drawing: &DrawSettings,
        canvas: &Canvas<R>,
        d_canvas: CanvasGradient<'_, R>,
    ) -> Result<(Vec<usize>, Vec<ScreenGradient<R>>), DeviceError> {
        let (splats, size) = (&self.splats, view.viewpoint.size);
        match drawing.footprint {
            Footprint::Ellipse { .. } | Footprint::Surfel => {
                let screen = blend::backward(splats, &self.bins, canvas, d_canvas);
                densify::observe(model, splats, &screen, size, drawing);
                Ok((splats.iter().map(|splat| splat.row).collect(), screen))
            }
            Footprint::Triangle(window) => {
                let vertices = Vertices::of(model, view)?;
                let layers = self.layers(drawing, window);
                let sums = blend_triangles::backward(&layers, size, d_canvas);
                let corners = &model.faces.corners;
                let per_face = project::backward(corners, &vertices, splats, &sums, &window);
                let gathered = project::gather(corners, &vertices, splats, &per_face);
                if drawing.observe.is_some() {
                    project::observe(model, &vertices, splats, &sums, &per_face);
                }
                Ok(gathered)
            }
        }
    }

    pub(super) fn bytes(&self) -> Bytes {
        Bytes::of::<Splat<R>>(self.splats.capacity())
            + Bytes::of::<Triangle<R>>(self.triangles.capacity())
            + self.bins.bytes()
    }
}

/// Size of a view's visible set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CountedView {
    /// Number of visible Gaussians.
    pub visible: u64,
    /// Number of pairs of a splat and a tile that it overlaps.
    pub instances: u64,
}

/// Counts the splats and the splat-tile pairs of a view, drawn beyond depth `near` with this footprint. All devices
/// agree except for rounding. Rows that are not finite are skipped.
pub fn count(gaussians: &Gaussians, view: &View, near: f64, footprint: Footprint) -> CountedView {
    let viewpoint = viewpoint(view, near, footprint);
    let view = DrawnView { viewpoint, sh_degree: 0, surface: false, footprint };
    let count_one = |index: usize| {
        let shape = Shape {
            mean_world: gaussians.means.as_chunks().0[index],
            log_scale: gaussians.log_scales.as_chunks().0[index],
            quat: gaussians.quats.as_chunks().0[index],
            smoothing: 0.0,
        };
        let ellipsoid = Ellipsoid { shape, opacity_logit: gaussians.opacity_logits[index] };
        let splat = ellipsoid.splat(index, &view)?;
        let mut instances = 0;
        for_each_tile(&splat, view.viewpoint.size, |_, _| instances += 1);
        Some(CountedView { visible: 1, instances })
    };
    let sum = |a: CountedView, b: CountedView| CountedView {
        visible: a.visible + b.visible,
        instances: a.instances + b.instances,
    };
    let counts = (0..gaussians.len()).into_par_iter().filter_map(count_one);
    counts.reduce(CountedView::default, sum)
}

/// Returns the transmittance between the view's camera and each point; `NOT_SEEN` outside the view.
pub(super) fn transmittances<R: Real, P: Drawable>(
    model: &Model<R, P>,
    view: &View,
    settings: &RenderSettings,
    places: &[[f32; 3]],
) -> Result<Vec<f32>, DeviceError> {
    let field = density_field(model, Capability::Surfaces)?;
    settings.footprint.require_volumes(TRANSMITTANCES)?;
    let drawing = DrawSettings::shown(settings, RenderRequest::IMAGE);
    let viewpoint = drawing.viewpoint(view);
    let (splats, _) = project::project(model, &DrawnView::new(viewpoint, &drawing));
    let bins = bin::bin(&splats, viewpoint.size);
    let rays = rays::rays(field, &viewpoint, &splats);
    Ok(rays::transmittances(&rays, &bins, &viewpoint, places))
}

/// Draws a view without the absent Gaussians, adds each Gaussian's contribution to `sums`, and measures the image.
pub(super) fn add_contributions<R: Real, P: Drawable>(
    model: &Model<R, P>,
    view: &View,
    settings: &RenderSettings,
    target: &Image,
    sums: &mut ContributionSums<R>,
) -> Result<Measured, DeviceError> {
    settings.footprint.require_gaussians("worths")?;
    let drawing = DrawSettings::shown(settings, RenderRequest::IMAGE);
    let viewpoint = drawing.viewpoint(view);
    let (splats, _) = project::project(model, &DrawnView::new(viewpoint, &drawing));
    let bins = bin::bin(&splats, viewpoint.size);
    let drawn = contribution::drawn(&splats, &sums.absent);
    let canvas = blend::forward(&drawn, &bins, viewpoint.size, &drawing);
    let measured = loss::measure(&canvas.image, viewpoint.size, target)?;
    let background = drawing.background.map(R::of_f32);
    let judged = Judged { image: &canvas.image, background, target };
    let shares = contribution::shares(&splats, &bins, &sums.absent, judged);
    sums.add(&splats, &shares);
    Ok(measured)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::cpu::Cpu;
    use crate::backend::cpu::stage::{bin, project};
    use crate::backend::{DrawSettings, Store as _};
    use crate::dataset::{Camera, Pose};
    use crate::math::Real;
    use crate::math::random::{RandomStream, RandomUse};

    #[test]
    fn count_matches_the_drawn_splats() {
        let stream = RandomStream::new(7, 0, RandomUse::Sample);
        let draw = |i: usize, low: f64, high: f64| {
            (low + (high - low) * stream.uniform(i as u64)).to_f32()
        };
        let count_of = 2000;
        let mut gaussians = Gaussians::zeros(0, count_of);
        // Includes Gaussians behind the camera, beside the image, and invisible ones.
        let columns: [(&mut Vec<f32>, f64, f64); 4] = [
            (&mut gaussians.means, -3.0, 3.0),
            (&mut gaussians.log_scales, -5.0, -1.0),
            (&mut gaussians.quats, 0.1, 1.0),
            (&mut gaussians.opacity_logits, -8.0, 4.0),
        ];
        for (first, (column, low, high)) in columns.into_iter().enumerate() {
            for (i, value) in column.iter_mut().enumerate() {
                *value = draw(first * 100_000 + i, low, high);
            }
        }
        let view = View {
            name: "view.png".to_owned(),
            camera: Camera {
                width: 203,
                height: 147,
                focal_px: [140.0, 150.0],
                centre_px: [99.0, 75.0],
            },
            pose: Pose {
                rotation: [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]],
                translation: [0.1, -0.2, 1.0],
            },
        };
        let model = Cpu::<f32>::new().upload(&gaussians).unwrap();
        let mip = Footprint::Ellipse { variance_px2: 0.1, compensates: true };
        let counts = [Footprint::DILATED, mip].map(|footprint| {
            let point = viewpoint::<f32>(&view, 0.01, footprint);
            let drawn = DrawnView::new(point, &DrawSettings::DEFAULT);
            let (splats, _) = project::project(&model, &drawn);
            let bins = bin::bin(&splats, point.size);
            let counted = count(&gaussians, &view, 0.01, footprint);
            assert_eq!(counted.visible, splats.len() as u64);
            assert_eq!(counted.instances, bins.splat_from_instance.len() as u64);
            assert!((100..1900).contains(&splats.len()) && counted.instances > counted.visible);
            counted.instances
        });
        assert!(counts[1] < counts[0], "narrower splats reach fewer tiles: {counts:?}");
    }
}
