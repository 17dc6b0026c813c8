//! Gaussians, photographs, and images by the definition: what the tests of the stages compare with.

use super::prelude::*;
use std::sync::Arc;

use splat::backend::{Footprint, Rates, Snapshot};
use splat::dataset::{Image, InverseDepthMap, NormalMap, View};
use splat::math::blend::{ALPHA_MAX, ALPHA_MIN, TRANSMITTANCE_MIN, exponent};
use splat::math::linalg::{normalize, sub};
use splat::math::splat::{Ellipse, Shape, Surfel, Viewpoint, project, project_surfel};
use splat::math::{Real, inverse_sigmoid, sh, sigmoid};
use splat::model::{Gaussians, Primitive, sh_rest_count};

use super::{Draws, view};

/// Depth from which on these scenes are drawn.
pub const NEAR: f64 = 0.01;

/// Learning rates that are all different.
pub const RATES: Rates = Rates {
    means: 1e-3,
    log_scales: 2e-3,
    quats: 3e-3,
    opacity_logits: 4e-3,
    sh_dc: 5e-3,
    sh_rest: 6e-3,
};

/// [`RATES`] of the groups, in their order.
pub const EACH_RATE: [f64; 6] = [1e-3, 2e-3, 3e-3, 4e-3, 5e-3, 6e-3];

/// Only colours move, so that rows stay alike on both sides to the bit.
pub const COLOUR_RATES: Rates = Rates { sh_dc: 5e-3, sh_rest: 6e-3, ..Rates::NONE };

/// A Gaussian with the same colour from everywhere.
pub fn gaussian(mean: [f32; 3], scale: f32, opacity: f32, color: [f32; 3]) -> Gaussians {
    let mut one = Gaussians::zeros(3, 1);
    one.means = mean.to_vec();
    one.log_scales = vec![scale.ln(); 3];
    one.quats = vec![1.0, 0.0, 0.0, 0.0];
    one.opacity_logits = vec![inverse_sigmoid(opacity)];
    one.sh_dc = color.map(|c| (c - 0.5) / sh::C0.to_f32()).to_vec();
    one
}

/// All of them as one, in their order; they share the degree of the first.
pub fn together(parts: &[Gaussians]) -> Gaussians {
    let mut all = Gaussians::zeros(parts.first().map_or(3, |part| part.sh_degree), 0);
    for part in parts {
        for (all, part) in all.groups_mut().into_iter().zip(part.groups()) {
            all.extend_from_slice(part.values);
        }
    }
    all
}

/// All but the Gaussians of these indices.
pub fn without(gaussians: &Gaussians, left_out: &[usize]) -> Gaussians {
    let mut rest = gaussians.clone();
    for (rest, all) in rest.groups_mut().into_iter().zip(gaussians.groups()) {
        let rows = (0..gaussians.len()).filter(|row| !left_out.contains(row));
        *rest = rows.flat_map(|row| &all.values[row * all.width..][..all.width]).copied().collect();
    }
    rest
}

/// A camera that looks along the world's z axis.
pub fn straight() -> View {
    let mut view = view();
    view.pose.rotation = [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]];
    view.pose.translation = [0.0; 3];
    view
}

/// A view from another place.
pub fn moved(view: &View, translation: [f64; 3]) -> View {
    let mut view = view.clone();
    view.pose.translation = translation;
    view
}

/// The straight camera turned to what is behind it.
pub fn looking_back() -> View {
    let mut view = straight();
    view.pose.rotation = [[-1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, -1.0]];
    view
}

/// A view in an image of another size.
pub fn resized(view: &View, [width, height]: [u32; 2]) -> View {
    let mut view = view.clone();
    view.camera = view.camera.resized(width, height);
    view
}

/// Gaussians of every kind: behind the camera, invisible, from a hundredth of a pixel to far wider
/// than the image, needles among them.
pub fn random_gaussians(count: usize, seed: u64) -> Gaussians {
    drawn(count, seed, 3, ([-9.0, 1.5], [0.002, 0.9995]))
}

/// Gaussians that single precision can follow: none so long and thin that its exponent, a
/// difference of large terms, has a rounding of more than 1e-5.
pub fn tame_gaussians(count: usize, seed: u64, sh_degree: u32) -> Gaussians {
    drawn(count, seed, sh_degree, ([-4.5, -1.0], [0.02, 0.995]))
}

fn drawn(
    count: usize,
    seed: u64,
    sh_degree: u32,
    (log_scales, opacities): ([f64; 2], [f64; 2]),
) -> Gaussians {
    let mut draws = Draws::new(seed);
    let parts: Vec<Gaussians> = (0..count)
        .map(|_| {
            let depth = draws.uniform(-0.5, 4.0);
            let mean = [draws.uniform(-1.2, 1.2) * depth, draws.uniform(-1.2, 1.2) * depth, depth];
            let opacity = draws.uniform(opacities[0], opacities[1]);
            let color = draws.array::<3>(-0.2, 1.4).map(f64::to_f32);
            let mut one = gaussian(mean.map(f64::to_f32), 1.0, opacity.to_f32(), color);
            one.sh_degree = sh_degree;
            one.log_scales =
                draws.array::<3>(log_scales[0], log_scales[1]).map(f64::to_f32).to_vec();
            one.quats = draws.array::<4>(-1.0, 1.0).map(f64::to_f32).to_vec();
            one.sh_rest = (0..sh_rest_count(sh_degree) * 3)
                .map(|_| draws.uniform(-0.1, 0.1).to_f32())
                .collect();
            one
        })
        .collect();
    let mut all = together(&parts);
    // Of none, the degree of the first says nothing.
    all.sh_degree = sh_degree;
    all
}

/// A handful of overlapping Gaussians with log-scales between these, the first behind the camera.
pub fn nine(draws: &mut Draws, log_scales: [f64; 2]) -> Gaussians {
    let count = 9;
    let mut gaussians = Gaussians::zeros(3, count);
    for i in 0..count {
        for axis in 0..3 {
            gaussians.means[i * 3 + axis] = draws.uniform(-0.45, 0.45).to_f32();
            gaussians.log_scales[i * 3 + axis] =
                draws.uniform(log_scales[0], log_scales[1]).to_f32();
            gaussians.sh_dc[i * 3 + axis] = draws.uniform(-0.8, 1.2).to_f32();
        }
        gaussians.means[i * 3 + 2] = draws.uniform(1.0, 2.5).to_f32();
        for k in 0..4 {
            gaussians.quats[i * 4 + k] = draws.uniform(-1.0, 1.0).to_f32();
        }
        gaussians.opacity_logits[i] = draws.uniform(-1.0, 2.0).to_f32();
    }
    gaussians.means[2] = -1.0;
    gaussians
}

/// The Gaussians with moments and statistics of noise, as if they were in training.
pub fn in_training(parameters: Gaussians, seed: u64) -> Snapshot<Gaussians> {
    let mut draws = Draws::new(seed);
    let mut noise = || draws.uniform(0.1, 9.0).to_f32();
    let mut like = || {
        let mut part = parameters.clone();
        part.groups_mut().into_iter().flatten().for_each(|value| *value = noise());
        part
    };
    let (first_moments, second_moments) = (like(), like());
    let gradient_norm_sums = parameters.opacity_logits.iter().map(|_| noise()).collect();
    let views_seen = (1_u32..).step_by(3).take(parameters.len()).collect();
    Snapshot {
        parameters,
        first_moments,
        second_moments,
        gradient_norm_sums,
        views_seen,
        absolute_norm_sums: Vec::new(),
        filter_3d: Vec::new(),
    }
}

/// Everything about each Gaussian, as bits; the first three are its centre.
pub fn rows(snapshot: &Snapshot<Gaussians>) -> Vec<Vec<u32>> {
    let parts = [&snapshot.parameters, &snapshot.first_moments, &snapshot.second_moments];
    let groups: Vec<_> = parts.iter().flat_map(|part| part.groups()).collect();
    (0..snapshot.views_seen.len())
        .map(|row| {
            let values = groups.iter().flat_map(|g| &g.values[row * g.width..][..g.width]);
            let statistics = [snapshot.gradient_norm_sums[row].to_bits(), snapshot.views_seen[row]];
            values.map(|value| value.to_bits()).chain(statistics).collect()
        })
        .collect()
}

/// A photograph of noise.
pub fn photo(width: u32, height: u32, mask: Option<Vec<u8>>) -> Arc<Image> {
    let mut draws = Draws::new(8);
    let rgb = (0..width * height * 3)
        .map(|_| u8::try_from(draws.uniform(0.0, 256.0).floor_i32()).unwrap())
        .collect();
    Arc::new(Image { width, height, rgb, mask, depth: None, normals: None })
}

/// A photograph of noise of the common view, with inverse depths and normals of noise; a mask excludes three
/// columns in seven.
pub fn target(masked: bool) -> Image {
    let mut draws = Draws::new(7);
    let camera = view().camera;
    let depths: Vec<f64> = (0..camera.pixels()).map(|_| draws.uniform(0.0, 65_536.0)).collect();
    let mut byte = || u8::try_from(draws.uniform(0.0, 256.0).floor_i32()).unwrap();
    let mut leaning = Draws::new(9);
    // Components of at least half of a normal's length, towards the camera.
    let normals = (0..camera.pixels()).flat_map(|_| {
        let [x, y] = leaning.array::<2>(-80.0, 81.0).map(|v| i8::try_from(v.floor_i32()).unwrap());
        [x, y, -90]
    });
    let normals = Some(NormalMap { values: normals.collect() });
    Image {
        width: camera.width,
        height: camera.height,
        rgb: (0..camera.pixels() * 3).map(|_| byte()).collect(),
        mask: masked
            .then(|| (0..camera.pixels()).map(|i| if i % 7 < 4 { 255 } else { 0 }).collect()),
        depth: Some(InverseDepthMap {
            values: depths.iter().map(|v| u16::try_from(v.floor_i32()).unwrap()).collect(),
            scale: 0.9,
            offset: 0.05,
        }),
        normals,
    }
}

/// A Gaussian as a view sees it, in double precision.
#[derive(Clone, Copy, Debug)]
pub struct Splat {
    pub gaussian: usize,
    /// The surfel, if the Gaussian is one.
    pub ellipse: Ellipse<f64>,
    pub surfel: Option<Surfel<f64>>,
    pub opacity: f64,
    pub color: [f64; 3],
}

/// Every Gaussian beyond the near plane, front to back.
pub fn splats(gaussians: &Gaussians, view: &View, settings: &DrawSettings) -> Vec<Splat> {
    let point = filtered_viewpoint(view, settings.near, settings.footprint);
    let sh_degree = settings.sh_degree;
    let triple = |v: &[f32], i: usize| [0, 1, 2].map(|k| f64::from(v[i * 3 + k]));
    let coefficients = sh_rest_count(gaussians.sh_degree);
    let mut seen: Vec<Splat> = (0..gaussians.len())
        .filter_map(|i| {
            let mean_world = triple(&gaussians.means, i);
            let quat = [0, 1, 2, 3].map(|k| f64::from(gaussians.quats[i * 4 + k]));
            let log_scale = triple(&gaussians.log_scales, i);
            let shape = Shape { mean_world, log_scale, quat, smoothing: 0.0 };
            let opacity = sigmoid(f64::from(gaussians.opacity_logits[i]));
            let (ellipse, surfel) = match settings.footprint {
                Footprint::Ellipse { .. } => (project(&point, &shape)?, None),
                Footprint::Surfel => {
                    let surfel = project_surfel(&point, &shape)?;
                    (surfel.bounds(opacity, point.size)?.0, Some(surfel))
                }
                // A vertex is nothing by itself.
                Footprint::Triangle(_) => return None,
            };
            let basis = sh::basis(sh_degree, normalize(sub(mean_world, point.centre_world)));
            let mut color = triple(&gaussians.sh_dc, i).map(|c| 0.5 + c * basis[0]);
            let used = &basis[1..sh::coefficients(sh_degree)];
            for (k, weight) in used.iter().enumerate() {
                let rest = triple(&gaussians.sh_rest[i * coefficients * 3..], k);
                for c in 0..3 {
                    color[c] += weight * rest[c];
                }
            }
            let (opacity, color) = (opacity * ellipse.kept, color.map(|c| c.max(0.0)));
            Some(Splat { gaussian: i, ellipse, surfel, opacity, color })
        })
        .collect();
    seen.sort_by(|a, b| a.ellipse.depth.total_cmp(&b.ellipse.depth));
    seen
}

/// The view in double precision, its splats widened as 3D Gaussian splatting does.
pub fn viewpoint(view: &View, near: f64) -> Viewpoint<f64> {
    filtered_viewpoint(view, near, Footprint::DILATED)
}

/// The view in double precision with another filter.
pub fn filtered_viewpoint(view: &View, near: f64, footprint: Footprint) -> Viewpoint<f64> {
    let (variance_px2, compensates) = match footprint {
        Footprint::Ellipse { variance_px2, compensates } => (variance_px2, compensates),
        Footprint::Surfel | Footprint::Triangle(_) => (0.0, false),
    };
    Viewpoint {
        rotation: view.pose.rotation,
        translation: view.pose.translation,
        centre_world: view.pose.centre_world(),
        focal_px: view.camera.focal_px,
        centre_px: view.camera.centre_px,
        size: [view.camera.width, view.camera.height],
        near,
        variance_px2,
        compensates,
        cuts_sides: false,
    }
}

/// A pixel by the definition.
#[derive(Clone, Copy, Debug)]
pub struct Pixel {
    pub rgb: [f64; 3],
    /// Gaussians that changed it.
    pub blended: u32,
    /// An opacity lies within [`OPACITY_BAND`] of a cut, the transmittance within
    /// [`TRANSMITTANCE_BAND`] of its end, or two depths within [`DEPTH_BAND`] of each other: single
    /// precision may decide otherwise.
    pub borderline: bool,
}

/// Relative. Single precision leaves an exponent of up to 5.5, a difference of terms up to a
/// hundred times as large, right to 3e-5.
pub const OPACITY_BAND: f64 = 1e-4;

/// Relative. A product of up to a hundred factors, of which those near 1 - 0.99 lose two digits.
pub const TRANSMITTANCE_BAND: f64 = 1e-3;

/// Relative. Three products and three sums of single precision.
pub const DEPTH_BAND: f64 = 1e-5;

/// True if a ray meets a surfel where its disc and its filter are about as dense.
fn is_either(surfel: &Surfel<f64>, offset_px: [f64; 2]) -> bool {
    let along = |slope: [f64; 2]| slope[0] * offset_px[0] + slope[1] * offset_px[1];
    let inverse_share = 1.0 + along(surfel.tilt);
    let squared = along(surfel.along_u).powi(2) + along(surfel.along_v).powi(2);
    let by_disc = 0.5 * squared / (inverse_share * inverse_share);
    let by_filter = offset_px[0] * offset_px[0] + offset_px[1] * offset_px[1];
    inverse_share > 0.0 && (by_disc / by_filter - 1.0).abs() < OPACITY_BAND
}

/// One pixel from all splats, front to back.
pub fn composite_pixel(splats: &[Splat], [x, y]: [u32; 2], background: [f32; 3]) -> Pixel {
    let near = |value: f64, cut: f64, band: f64| (value / cut - 1.0).abs() < band;
    let mut pixel = Pixel { rgb: [0.0; 3], blended: 0, borderline: false };
    let (mut transmittance, mut depth) = (1.0, 0.0);
    for Splat { ellipse, surfel, opacity, color, .. } in splats {
        let mean_px = surfel.map_or(ellipse.mean_px, |surfel| surfel.mean_px);
        let offset = [f64::from(x) + 0.5 - mean_px[0], f64::from(y) + 0.5 - mean_px[1]];
        let exponent = match surfel {
            Some(surfel) => surfel.meet(offset).exponent,
            None => exponent(ellipse.conic, offset),
        };
        let unclamped = opacity * exponent.exp();
        // Where a disc and its filter are alike, depth and gradients are those of either.
        let is_either = surfel.is_some_and(|surfel| is_either(&surfel, offset));
        pixel.borderline |= is_either && unclamped > 0.9 * ALPHA_MIN;
        let alpha = unclamped.min(ALPHA_MAX);
        pixel.borderline |= near(unclamped, ALPHA_MIN, OPACITY_BAND);
        if alpha < ALPHA_MIN {
            continue;
        }
        let after = transmittance * (1.0 - alpha);
        pixel.borderline |= near(unclamped, ALPHA_MAX, OPACITY_BAND)
            || near(after, TRANSMITTANCE_MIN, TRANSMITTANCE_BAND)
            || near(ellipse.depth, depth, DEPTH_BAND);
        if after < TRANSMITTANCE_MIN {
            break;
        }
        for (sum, &c) in pixel.rgb.iter_mut().zip(color) {
            *sum += alpha * transmittance * c;
        }
        pixel.blended += 1;
        (transmittance, depth) = (after, ellipse.depth);
    }
    for (sum, c) in pixel.rgb.iter_mut().zip(background) {
        *sum += transmittance * f64::from(c);
    }
    pixel
}

/// The definition: no tiles, no bounds; every Gaussian beyond the near plane in every pixel.
pub fn composite(gaussians: &Gaussians, view: &View, settings: &DrawSettings) -> Vec<Pixel> {
    let splats = splats(gaussians, view, settings);
    let (width, height) = (view.camera.width, view.camera.height);
    (0..height)
        .flat_map(|y| (0..width).map(move |x| [x, y]))
        .map(|at| composite_pixel(&splats, at, settings.background))
        .collect()
}

/// The Gaussians as a PLY holds them: their rotations at unit length.
pub fn as_in_a_ply(mut gaussians: Gaussians) -> Gaussians {
    for quat in gaussians.quats.as_chunks_mut::<4>().0 {
        let squared: f64 = quat.iter().map(|&part| f64::from(part).powi(2)).sum();
        // What rounding leaves of a unit quaternion stays as it is.
        if (squared - 1.0).abs() > 5e-7 {
            *quat = quat.map(|part| (f64::from(part) / squared.sqrt()).to_f32());
        }
    }
    gaussians
}
