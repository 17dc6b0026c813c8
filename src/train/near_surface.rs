//! How near Gaussians lie to the surface that they draw together, and how thin they are.

use crate::backend::Rendered;
use crate::dataset::View;
use crate::math::field::{deviation_towards, is_near_surface};
use crate::math::linalg::{Vec3, add, mul};
use crate::model::Field;

/// Opacity above which a pixel shows a surface.
const OPACITY_MIN: f64 = 0.5;

/// Channels of a pixel of [`Rendered::surface`], and which of them are depth and opacity.
const CHANNELS: usize = 4;
const DEPTH: usize = 0;
const OPACITY: usize = 3;

/// Of the Gaussians whose centres lie where the view shows a surface, the share of those that lie at
/// it, as SuGaR's SDF term has it: |z - drawn depth| is below 2 |s Rᵀ d|, with d the direction to the
/// camera. One that is hidden behind the surface lies far from it.
///
/// `drawn` is the whole model in this view, from depth `near` (world units) on. `None` where it has no
/// maps of this view's size, or nothing of the sample lies where a surface is.
pub fn share_near_surface(
    sample: &impl Field,
    view: &View,
    near: f64,
    drawn: &Rendered,
) -> Option<f64> {
    let maps = ViewMaps::of(drawn, view)?;
    let camera_world = view.pose.centre_world();
    let (mut there, mut close) = (0_u32, 0_u32);
    for kernel in sample.density_kernels() {
        let mean_cam = add(mul(&view.pose.rotation, kernel.mean_world), view.pose.translation);
        if mean_cam[2] <= near {
            continue;
        }
        let Some(depth) = maps.depth_at(mean_cam, view) else { continue };
        let deviation = deviation_towards(&kernel, camera_world);
        there += 1;
        close += u32::from(is_near_surface(mean_cam[2] - depth, deviation));
    }
    (there > 0).then(|| f64::from(close) / f64::from(there))
}

/// Mean of the smallest scales, world units; `None` of none.
pub fn mean_thickness(sample: &impl Field) -> Option<f64> {
    let (sum, count) = sample
        .density_kernels()
        .fold((0.0, 0_u32), |(sum, count), kernel| (sum + kernel.thickness(), count + 1));
    (count > 0).then(|| sum / f64::from(count))
}

/// The drawn depths and opacities of a view, [height, width, 4].
struct ViewMaps<'a> {
    size: [u32; 2],
    pixels: &'a [[f32; CHANNELS]],
}

impl<'a> ViewMaps<'a> {
    fn of(drawn: &'a Rendered, view: &View) -> Option<Self> {
        let size = [drawn.width, drawn.height];
        let pixels = drawn.surface.as_deref()?.as_chunks().0;
        (size == [view.camera.width, view.camera.height]).then_some(Self { size, pixels })
    }

    /// Depth of the surface that is drawn where this place is seen, world units.
    fn depth_at(&self, [x, y, z]: Vec3<f64>, view: &View) -> Option<f64> {
        let camera = &view.camera;
        let pixel = |axis: usize, along: f64| {
            let at = along / z * camera.focal_px[axis] + camera.centre_px[axis];
            let inside = at >= 0.0 && at < f64::from(self.size[axis]);
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "inside of the image"
            )]
            let pixel = at as usize;
            inside.then_some(pixel)
        };
        let (column, row) = (pixel(0, x)?, pixel(1, y)?);
        let pixel = self.pixels.get(row * self.size[0] as usize + column)?;
        let opacity = f64::from(pixel[OPACITY]);
        (opacity > OPACITY_MIN).then(|| f64::from(pixel[DEPTH]) / opacity)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::cpu::Cpu;
    use crate::backend::{Look, Render as _, RenderSettings, Store as _};
    use crate::dataset::{Camera, Pose};
    use crate::model::Gaussians;

    /// A camera that looks from (0.5, 0, 0) along the world's x: a quarter turn about y.
    fn view() -> View {
        let camera =
            Camera { width: 40, height: 30, focal_px: [40.0, 41.0], centre_px: [19.0, 16.0] };
        let pose = Pose {
            rotation: [[0.0, 0.0, -1.0], [0.0, 1.0, 0.0], [1.0, 0.0, 0.0]],
            translation: [0.0, 0.0, -0.5],
        };
        View { name: "a.jpg".to_owned(), camera, pose }
    }

    /// One that is thin along the world's x and lies at this depth of [`view`].
    fn disc(depth: f32, [y, z]: [f32; 2]) -> [f32; 3] {
        [0.5 + depth, y, z]
    }

    fn discs(means: &[[f32; 3]]) -> Gaussians {
        let mut discs = Gaussians::zeros(0, means.len());
        discs.means = means.as_flattened().to_vec();
        let scales = [0.02_f32, 0.3, 0.4].map(f32::ln);
        discs.log_scales = scales.repeat(means.len());
        // Of any length: it turns nothing.
        discs.quats = [2.0, 0.0, 0.0, 0.0].repeat(means.len());
        discs.opacity_logits = vec![6.0; means.len()];
        discs
    }

    /// Maps of a plane at depth 3, but for the left half of the image, which is too transparent.
    fn plane() -> Rendered {
        let pixel = |i: usize| {
            let opacity = if i % 40 < 20 { 0.5 } else { 0.8 };
            [3.0 * opacity, 0.0, 0.0, opacity]
        };
        Rendered {
            width: 40,
            height: 30,
            rgb: vec![0.0; 40 * 30 * 3],
            blended: None,
            inverse_depths: None,
            inverse_squares: None,
            surface: Some((0..40 * 30).flat_map(pixel).collect()),
            median_depths: None,
        }
    }

    fn share(sample: &Gaussians) -> Option<f64> {
        share_near_surface(sample, &view(), 0.1, &plane())
    }

    #[test]
    fn near_is_within_two_sigmas_along_the_line_of_sight() {
        // A little beside the axis, where the longer scales have a small say: 2 sigma is 0.051.
        let at = [0.0, -0.12];
        for (depth, near) in [(2.97, 1.0), (3.03, 1.0), (2.93, 0.0), (3.07, 0.0)] {
            assert_eq!(share(&discs(&[disc(depth, at)])), Some(near), "{depth}");
        }
        // Turned by a quarter about y the long axis looks at the camera: sigma is 0.4.
        let mut long = discs(&[disc(3.7, at), disc(3.9, at)]);
        let root = 0.5_f32.sqrt();
        long.quats = [root, 0.0, root, 0.0].repeat(2);
        assert_eq!(share(&long), Some(0.5));
    }

    #[test]
    fn only_what_lies_where_a_surface_is_drawn_counts() {
        let seen = disc(3.0, [0.0, -0.2]);
        let transparent = disc(3.0, [0.0, 0.2]);
        let beside = disc(3.0, [0.0, -9.0]);
        let (above, behind) = (disc(3.0, [-9.0, -0.2]), disc(-3.0, [0.0, 0.2]));
        let hidden = disc(4.0, [0.0, -0.2]);
        let broken = [f32::NAN; 3];
        assert_eq!(share(&discs(&[transparent, beside, above, behind, broken])), None);
        assert_eq!(share(&discs(&[seen, transparent, beside, above, behind, broken])), Some(1.0));
        assert_eq!(share(&discs(&[seen, seen, hidden, beside])), Some(2.0 / 3.0));
        assert_eq!(share(&discs(&[])), None);
        let without_maps = Rendered { surface: None, ..plane() };
        let of_another_size = Rendered { width: 30, height: 40, ..plane() };
        for drawn in [without_maps, of_another_size] {
            assert_eq!(share_near_surface(&discs(&[seen]), &view(), 0.1, &drawn), None);
        }
    }

    #[test]
    fn a_wall_lies_at_its_drawn_depths_and_floaters_do_not() {
        let places = (-9_i16..=9).flat_map(|y| (-9_i16..=9).map(move |z| [y, z]));
        let at = |[y, z]: [i16; 2]| [0.2 * f32::from(y), 0.2 * f32::from(z)];
        let mut wall = discs(&places.map(|place| disc(3.0, at(place))).collect::<Vec<_>>());
        let drawn = |gaussians: &Gaussians| {
            let mut device = Cpu::<f32>::new();
            let model = device.upload(gaussians).unwrap();
            let settings = RenderSettings::DEFAULT;
            let frame = device.render(&model, &view(), &settings, Look::SURFACE).unwrap();
            device.image(&frame).unwrap()
        };
        assert_eq!(share_near_surface(&wall, &view(), 0.1, &drawn(&wall)), Some(1.0));
        // Every other one comes nearer where it is seen, and too transparent to be a surface.
        for (mean, logit) in wall.means.chunks_exact_mut(3).zip(&mut wall.opacity_logits).step_by(2)
        {
            mean[0] -= 0.5;
            mean.iter_mut().for_each(|coordinate| *coordinate *= 2.0 / 3.0);
            mean[0] += 0.5;
            *logit = -7.0;
        }
        let share = share_near_surface(&wall, &view(), 0.1, &drawn(&wall)).unwrap();
        assert!((0.4..0.6).contains(&share), "{share}");
    }

    #[test]
    fn thickness_is_the_mean_of_the_smallest_scales() {
        let mut two = discs(&[[0.0; 3]; 2]);
        two.log_scales[3..].copy_from_slice(&[1.0, 0.5, 0.06_f32.ln()]);
        let mean = mean_thickness(&two).unwrap();
        assert!((mean - 0.04).abs() < 1e-7, "{mean}");
        assert_eq!(mean_thickness(&discs(&[])), None);
    }
}
