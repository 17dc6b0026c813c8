//! Points on visible surfaces, as from structure from motion.

use rayon::prelude::*;
use splat_mesh::Mesh;
use splat_mesh::compare::SurfaceSamples;
use splat_mesh::place::{corners, doubled_area};

use super::cameras::{SynthOptions, project, ray_through};
use super::nearest::Ray;
use super::scene::{Light, Scenery, encode_srgb, quantise};
use crate::dataset::View;
use crate::dataset::colmap::{Observation, TrackedPoint};
use crate::math::linalg::{Vec3, add, length, normalize, scale, sub};
use crate::math::random::{RandomStream, RandomUse};

/// Standard deviation of a point's position along each axis, world units: a seventh of a pixel of the default scene.
const NOISE: f64 = 0.004;

/// Tolerance of the visibility test: a hit at most this distance before a point counts as the point, world units.
const SEEN_WITHIN: f64 = 0.02;

/// Minimum channel sum of a point, of 3: feature detectors find no points in black regions.
const DARKEST: f64 = 0.25;

/// Maximum number of points with tracks. Tracks of more points would take days, and COLMAP files may omit tracks.
const MAX_TRACKED: u32 = 1_000_000;

/// Maximum number of rays per point.
const ATTEMPTS: u64 = 64;

/// Samples random pixels of random views and returns their surface points with noise.
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
                ..=MAX_TRACKED => observed(scene, views, surface, position, color),
                _ => TrackedPoint { position, color, error_px: 0.0, track: Vec::new() },
            })
        })
        .collect()
}

/// Returns the point with all views that see it. Its error is the mean reprojection distance, px.
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

/// Returns true if the point is not occluded in the view.
fn is_seen(scene: &dyn Scenery, view: &View, surface: Vec3<f64>) -> bool {
    let origin = view.pose.centre_world();
    let way = sub(surface, origin);
    let distance = length(way);
    let ray = Ray { origin, direction: scale(way, 1.0 / distance) };
    scene.trace(&ray).is_some_and(|hit| hit.distance > distance - SEEN_WITHIN)
}

/// Height above a surface at which the ray for its colour starts, world units.
const ABOVE: f64 = 1e-3;

/// A flat piece of a surface.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SurfaceDisc {
    /// Centre, world units.
    pub position: Vec3<f64>,
    /// Outward unit normal.
    pub normal: Vec3<f64>,
    /// Area, square world units.
    pub area: f64,
    /// Colour without highlights, sRGB, 0 to 1.
    pub color: Vec3<f64>,
}

/// Returns `count` discs, spread evenly over a scene's true mesh.
pub(super) fn sample_surfels(
    scenery: &dyn Scenery,
    truth: &Mesh,
    count: usize,
    options: &SynthOptions,
) -> Vec<SurfaceDisc> {
    let light = Light::new(false);
    let samples = SurfaceSamples::new(truth, |_| count, options.seed);
    let area = SurfaceSamples::area(truth) / count.max(1) as f64;
    (0..samples.count)
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

/// Returns the colour of a surface from straight above; black if the ray misses.
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
    use splat_mesh::narrow::floor_usize;

    use super::*;
    use crate::synth::cameras::dome;
    use crate::synth::photograph;
    use crate::synth::scene::Scene;

    #[test]
    fn points_project_into_the_views_onto_pixels_of_their_color() {
        let options = SynthOptions { views: 6, points: 300, ..SynthOptions::default() };
        let (scene, light, views) = (Scene::new(0), Light::new(false), dome(&options));
        let points = sample_points(&scene, &light, &views, &options);
        assert_eq!(points.len(), 300);
        let images: Vec<_> = views.iter().map(|view| photograph(&scene, &light, view)).collect();
        let mut differences = Vec::new();
        for point in &points {
            assert!(!point.track.is_empty(), "the view that found it sees it");
            // NOISE is a seventh of a pixel at the mean distance; five times that is an outlier.
            assert!(point.error_px < 1.0, "{}", point.error_px);
            for &Observation { view, at_px } in &point.track {
                let [x, y] = at_px.map(floor_usize);
                let pixel = &images[view][(y * 160 + x) * 3..][..3];
                differences.extend((0..3).map(|i| pixel[i].abs_diff(point.color[i])));
            }
        }
        differences.sort_unstable();
        // A pixel is the mean of its area and may hold a highlight; half of the pixels differ by less than 6 of 255.
        assert!(differences[differences.len() / 2] < 6, "{}", differences[differences.len() / 2]);
    }
}
