//! Places on the true surfaces with their colours: what a perfect model would be made of.

use rayon::prelude::*;
use splat_mesh::Mesh;
use splat_mesh::compare::SurfaceSamples;
use splat_mesh::place::{corners, doubled_area};

use super::color::encode_srgb;
use super::light::{Finish, Light};
use super::options::SynthOptions;
use super::scenery::Scenery;
use super::shape::Ray;
use crate::math::linalg::{Vec3, add, normalize, scale};

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
pub(super) fn sample(
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
            let sample = samples.get(index);
            let face = truth.faces[sample.face as usize];
            let normal = normalize(doubled_area(corners(truth, face)));
            let color = color_at(scenery, &light, sample.place, normal);
            SurfaceDisc { position: sample.place, normal, area, color }
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
