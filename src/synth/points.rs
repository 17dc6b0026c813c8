//! Points on the surfaces that the cameras see, as structure from motion would find them.

use rayon::prelude::*;
use splat_mesh::Mesh;
use splat_mesh::compare::SurfaceSamples;
use splat_mesh::place::{corners, doubled_area};

use super::cameras::{project, ray_through};
use super::light::{Finish, Light, encode_srgb, quantise};
use super::nearest::Ray;
use super::options::SynthOptions;
use super::scene::Scenery;
use crate::dataset::View;
use crate::dataset::colmap::{Observation, TrackedPoint};
use crate::math::linalg::{Vec3, add, length, normalize, scale, sub};
use crate::math::random::{RandomStream, RandomUse};

/// Standard deviation of a point's position in each axis, world units: a seventh of a pixel of the
/// default scene.
const NOISE: f64 = 0.004;

/// How far in front of a point a surface may be met for the point to count as seen.
const SEEN_WITHIN: f64 = 0.02;

/// Darkest channel sum of a point, of 3: no feature points are found in the black of the rim.
const DARKEST: f64 = 0.25;

/// Points of which it is noted which views see them. Of more that would take days, and files without are COLMAP's, too.
const MOST_TRACKED: u32 = 1_000_000;

/// Rays spent on one point before it is given up, which no scene comes near.
const ATTEMPTS: u64 = 64;

/// Random points of random photographs, carried to the surface that is seen there.
pub(super) fn sample_points(
    scene: &dyn Scenery,
    light: &Light,
    views: &[View],
    options: &SynthOptions,
) -> Vec<TrackedPoint> {
    let stream = RandomStream::new(options.seed, 2, RandomUse::Synthesise);
    let noise = RandomStream::new(options.seed, 3, RandomUse::Synthesise);
    (0..u64::from(options.points))
        .into_par_iter()
        .filter_map(|index| {
            let (surface, color) = (0..ATTEMPTS).find_map(|attempt| {
                let draw = |i: u64| stream.uniform((index * ATTEMPTS + attempt) * 4 + i);
                let view = &views[stream.below((index * ATTEMPTS + attempt) * 4 + 2, views.len())];
                let size = [view.camera.width, view.camera.height].map(f64::from);
                let hit =
                    scene.trace(&ray_through(view, [draw(0) * size[0], draw(1) * size[1]]))?;
                let color = light.shade_matt(scene, &hit).map(encode_srgb);
                (color.iter().sum::<f64>() > DARKEST).then_some((hit.position, color))
            })?;
            let offset = std::array::from_fn(|i| NOISE * noise.normal(index * 3 + i as u64));
            let (position, color) = (add(surface, offset), quantise(color));
            Some(match options.points {
                ..=MOST_TRACKED => observed(scene, views, surface, position, color),
                _ => TrackedPoint { position, color, error_px: 0.0, track: Vec::new() },
            })
        })
        .collect()
}

/// The point with all views that see it; its error is the mean distance of where it projects to
/// from where it was seen.
fn observed(
    scene: &dyn Scenery,
    views: &[View],
    surface: Vec3<f64>,
    position: Vec3<f64>,
    color: [u8; 3],
) -> TrackedPoint {
    let mut track = Vec::new();
    let mut error_px = 0.0;
    for (index, view) in views.iter().enumerate() {
        let (Some(seen), Some(put)) = (project(view, surface), project(view, position)) else {
            continue;
        };
        if !is_seen(scene, view, surface) {
            continue;
        }
        error_px += (seen[0] - put[0]).hypot(seen[1] - put[1]);
        track.push(Observation { view: index, at_px: seen });
    }
    error_px /= track.len().max(1) as f64;
    TrackedPoint { position, color, error_px, track }
}

/// True if nothing stands between the view's camera and a point of a surface.
fn is_seen(scene: &dyn Scenery, view: &View, surface: Vec3<f64>) -> bool {
    let origin = view.pose.centre_world();
    let way = sub(surface, origin);
    let distance = length(way);
    let ray = Ray { origin, direction: scale(way, 1.0 / distance) };
    scene.trace(&ray).is_some_and(|hit| hit.distance > distance - SEEN_WITHIN)
}

// Places on the true surfaces with their colours: what a perfect model would be made of.

/// How far above a surface the ray starts that finds its colour, world units.
const ABOVE: f64 = 1e-3;

/// A flat piece of a surface.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SurfaceDisc {
    /// Its middle, world units.
    pub position: Vec3<f64>,
    /// Direction out of what is solid, of length 1.
    pub normal: Vec3<f64>,
    /// Its share of the surfaces, square world units.
    pub area: f64,
    /// Colour without highlights, sRGB, 0 to 1.
    pub color: Vec3<f64>,
}

/// So many pieces, spread evenly over a scene's true mesh.
pub(super) fn sample_surfels(
    scenery: &dyn Scenery,
    truth: &Mesh,
    count: usize,
    options: &SynthOptions,
) -> Vec<SurfaceDisc> {
    let light = Light::new(Finish::Glossy);
    let samples = SurfaceSamples::new(truth, |_| count, options.seed);
    let area = SurfaceSamples::area(truth) / count.max(1) as f64;
    (0..samples.len())
        .into_par_iter()
        .map(|index| {
            let sample_surfels = samples.get(index);
            let face = truth.faces[sample_surfels.face as usize];
            let normal = normalize(doubled_area(corners(truth, face)));
            let color = color_at(scenery, &light, sample_surfels.place, normal);
            SurfaceDisc { position: sample_surfels.place, normal, area, color }
        })
        .collect()
}

/// What is seen of a surface from straight above it; black where that is nothing.
fn color_at(
    scenery: &dyn Scenery,
    light: &Light,
    position: Vec3<f64>,
    normal: Vec3<f64>,
) -> Vec3<f64> {
    let origin = add(position, scale(normal, ABOVE));
    let hit = scenery.trace(&Ray { origin, direction: scale(normal, -1.0) });
    let near = hit.filter(|hit| hit.distance < 3.0 * ABOVE);
    near.map_or([0.0; 3], |hit| light.shade_matt(scenery, &hit).map(encode_srgb))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synth::cameras::dome;
    use crate::synth::light::Finish;
    use crate::synth::photograph;
    use crate::synth::scene::Scene;

    #[test]
    fn points_project_into_the_views_onto_pixels_of_their_color() {
        let options = SynthOptions { views: 6, points: 300, ..SynthOptions::default() };
        let (scene, light, views) = (Scene::new(0), Light::new(Finish::Glossy), dome(&options));
        let points = sample_points(&scene, &light, &views, &options);
        assert_eq!(points.len(), 300);
        let images: Vec<_> = views.iter().map(|view| photograph(&scene, &light, view)).collect();
        let mut differences = Vec::new();
        for point in &points {
            assert!(!point.track.is_empty(), "the view that found it sees it");
            // NOISE is a seventh of a pixel at the mean distance; five times that is an outlier.
            assert!(point.error_px < 1.0, "{}", point.error_px);
            for &Observation { view, at_px } in &point.track {
                #[allow(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    reason = "projected points lie inside of the image"
                )]
                let [x, y] = at_px.map(|at| at as usize);
                let pixel = &images[view][(y * 160 + x) * 3..][..3];
                differences.extend((0..3).map(|i| pixel[i].abs_diff(point.color[i])));
            }
        }
        differences.sort_unstable();
        // A pixel is the mean of its area and may hold a highlight; half of them differ by less
        // than 6 of 255.
        assert!(differences[differences.len() / 2] < 6, "{}", differences[differences.len() / 2]);
    }
}
