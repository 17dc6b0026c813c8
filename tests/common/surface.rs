//! The surface terms by their definition, and the stage as tests run it.

use std::path::Path;

use splat::backend::cpu::{Cpu, Gradients, Model, NearestLists, Parameter};
use splat::backend::{DeviceError, LossValues, SampleRule, Term, Terms, TrainDevice};
use splat::dataset::View;
use splat::math::blend::{ALPHA_MAX, ALPHA_MIN, TRANSMITTANCE_MIN, exponent};
use splat::math::linalg::{Vec3, add, dot, length, mul, mul_transposed, normalize, rotation, sub};
use splat::math::random::{RandomStream, RandomUse};
use splat::math::relocate::standard_normals;
use splat::math::splat::Viewpoint;
use splat::math::{Real, sigmoid};
use splat::model::Gaussians;
use splat::synth::{SynthOptions, SynthScene};

use super::Draws;
use super::prelude::*;
use super::scene::{self, gaussian, photo, straight, together};
use super::synthetic::write_synthetic;

/// Geometry in the order of gradients: centre, log-scales, quaternion, opacity logit.
pub const GEOMETRY: [(Parameter, usize); 4] = [
    (Parameter::Means, 3),
    (Parameter::LogScales, 3),
    (Parameter::Quats, 4),
    (Parameter::OpacityLogits, 1),
];

/// The surface terms of a loss and their samples; at a weight of 0 a term is off.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SurfaceRule {
    pub entropy: f64,
    pub density: f64,
    pub normal: f64,
    pub sdf: f64,
    /// Unit of distances, world units.
    pub sdf_unit: f64,
    pub samples: u32,
    pub seed: u64,
    pub iteration: u32,
}

impl SurfaceRule {
    /// Weights that are all different, of terms that take no maps.
    pub const UNEQUAL: Self = Self {
        entropy: 0.7,
        density: 1.3,
        normal: 0.9,
        sdf: 0.0,
        sdf_unit: 1.0,
        samples: 1_001,
        seed: 5,
        iteration: 7_001,
    };

    /// Distances alone, in a unit of which they are a few.
    pub const DISTANCES: Self = Self {
        entropy: 0.0,
        density: 0.0,
        normal: 0.0,
        sdf: 0.8,
        sdf_unit: 0.05,
        iteration: 9_002,
        ..Self::UNEQUAL
    };

    /// Its terms, beside that of the photograph.
    pub fn terms(&self) -> Terms {
        let &Self { samples, seed, iteration, .. } = self;
        Terms::photometric(0.2)
            .with(Term::Entropy, self.entropy)
            .with(Term::Density, self.density)
            .with(Term::Normal, self.normal)
            .with(Term::Sdf { unit: self.sdf_unit }, self.sdf)
            .sampled_by(SampleRule { count: samples, seed, iteration })
    }
}

/// Values of the surface terms; 0 of those that are off.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SurfaceTerms {
    pub entropy: f64,
    pub density: f64,
    pub normal: f64,
    pub sdf: f64,
}

impl From<LossValues> for SurfaceTerms {
    fn from(values: LossValues) -> Self {
        let [entropy, density, normal, sdf] =
            ["entropy", "density", "normal", "sdf"].map(|key| values.get(key).unwrap_or(0.0));
        Self { entropy, density, normal, sdf }
    }
}

/// A mask that leaves no pixel of a view.
pub fn masked(view: &View) -> Option<Vec<u8>> {
    Some(vec![0; (view.camera.width * view.camera.height) as usize])
}

/// Draws so that surface terms at samples find what they need.
pub fn drawn_for(rule: &SurfaceRule) -> DrawSettings {
    let surface = rule.sdf != 0.0 && rule.samples > 0;
    DrawSettings { pass: Pass::Train, surface, ..DrawSettings::DEFAULT }
}

/// Adds the gradients of a view by a rule, of whose photograph the pixels of a mask count, or all;
/// gives the values of the terms at samples.
pub fn add_rule<B: TrainDevice>(
    device: &mut B,
    model: &mut B::Model,
    (view, mask): (&View, Option<Vec<u8>>),
    (near, rule): (Option<&B::Lists>, &SurfaceRule),
    gradients: &mut B::Gradients,
) -> Result<SurfaceTerms, DeviceError> {
    let photo = photo(view.camera.width, view.camera.height, mask);
    let target = &device.target(0, &photo)?;
    let (terms, drawing) = (&rule.terms(), &drawn_for(rule));
    let seen = Seen { view, drawing, target, terms, near };
    let [_, samples] = device.add_seen(model, &seen, gradients)?;
    Ok(samples.read()?.into())
}

/// Gradients that hold one view of the model by the pixels of a mask, or all.
pub fn seeing<R: Real>(
    device: &mut Cpu<R>,
    model: &mut Model<R>,
    view: &View,
    mask: Option<Vec<u8>>,
) -> Gradients<R> {
    let drawing = DrawSettings { pass: Pass::Train, ..DrawSettings::DEFAULT };
    let photo = photo(view.camera.width, view.camera.height, mask);
    let target = device.target(0, &photo).unwrap();
    let mut gradients = Gradients::default();
    let terms = Terms::photometric(0.2);
    device.add_view(model, (view, &drawing), (&target, &terms), &mut gradients).unwrap();
    gradients
}

/// The terms' values and the gradients of all geometry, `[n][11]`.
pub fn regularised<R: Real>(
    device: &mut Cpu<R>,
    model: &mut Model<R>,
    near: &NearestLists,
    rule: &SurfaceRule,
) -> (SurfaceTerms, Vec<Vec<R>>) {
    let (view, mut gradients) = (straight(), Gradients::default());
    let seen = (&view, masked(&view));
    let terms = add_rule(device, model, seen, (Some(near), rule), &mut gradients).unwrap();
    let rows = geometry_gradients(device, model, &gradients);
    (terms, rows)
}

/// Gradients of all geometry, `[n][11]`.
pub fn geometry_gradients<R: Real>(
    device: &Cpu<R>,
    model: &Model<R>,
    gradients: &Gradients<R>,
) -> Vec<Vec<R>> {
    let row = |index| {
        let d = device.parameter_gradient(model, gradients, index);
        GEOMETRY.iter().flat_map(|&(parameter, _)| d.row(parameter).to_vec()).collect()
    };
    (0..model.len()).map(row).collect()
}

/// One Gaussian's geometry by the definition, from raw parameters in the order of gradients.
pub struct Solid {
    pub mean: Vec3<f64>,
    pub scale: Vec3<f64>,
    pub axes: [[f64; 3]; 3],
    pub opacity: f64,
}

impl Solid {
    pub fn new(row: &[f64]) -> Self {
        Self {
            mean: [row[0], row[1], row[2]],
            scale: [row[3], row[4], row[5]].map(f64::exp),
            axes: rotation([row[6], row[7], row[8], row[9]]),
            opacity: sigmoid(row[10]),
        }
    }

    pub fn thin(&self) -> usize {
        (0..3).min_by(|&a, &b| self.scale[a].total_cmp(&self.scale[b])).unwrap()
    }

    pub fn normal(&self) -> Vec3<f64> {
        self.axes.map(|row| row[self.thin()])
    }

    /// Squared Mahalanobis distance, held to what the definition holds it to.
    pub fn distance2(&self, x: Vec3<f64>) -> f64 {
        let turned = mul_transposed(&self.axes, sub(x, self.mean));
        let squares = (0..3).map(|i| (turned[i] / self.scale[i].max(1e-8)).powi(2));
        squares.sum::<f64>().clamp(0.0, 1e8)
    }
}

/// Constants of the gradient: weights and sides of one sample's neighbours.
pub type Frozen = Vec<(f64, f64)>;

/// A sample by the definition.
pub struct Sample {
    pub own: usize,
    pub x: Vec3<f64>,
    pub near: Vec<usize>,
    /// Constants, unless the weights follow the geometry.
    pub frozen: Option<Frozen>,
}

impl Sample {
    pub fn density(&self, solids: &[Solid]) -> f64 {
        self.near
            .iter()
            .map(|&k| solids[k].opacity * (-0.5 * solids[k].distance2(self.x)).exp())
            .sum()
    }

    /// Thickness of the surface that the neighbours form.
    pub fn beta(&self, solids: &[Solid]) -> f64 {
        let thickness = |&k: &usize| solids[k].scale[solids[k].thin()];
        self.near.iter().map(thickness).sum::<f64>() / self.near.len() as f64
    }

    pub fn density_error(&self, solids: &[Solid]) -> f64 {
        let beta = self.beta(solids);
        let own = &solids[self.own];
        let distance = dot(sub(self.x, own.mean), own.normal());
        (self.density(solids) - (-distance * distance / (2.0 * beta * beta)).exp()).abs()
    }

    /// Weights, divided by their sum, and sides.
    pub fn weights(&self, solids: &[Solid]) -> Frozen {
        let weighed = |&k: &usize| {
            let solid = &solids[k];
            let density = solid.opacity * (-0.5 * solid.distance2(self.x)).exp();
            let height = dot(sub(self.x, solid.mean), solid.normal()).abs();
            let side = dot(solid.normal(), solids[self.own].normal());
            (density * height / solid.scale[solid.thin()].max(1e-6).powi(2), side.signum())
        };
        let raw: Frozen = self.near.iter().map(weighed).collect();
        let sum = raw.iter().map(|(weight, _)| weight).sum::<f64>().max(1e-6);
        raw.into_iter().map(|(weight, side)| (weight / sum, side)).collect()
    }

    pub fn normal_error(&self, solids: &[Solid]) -> f64 {
        let weights = self.frozen.clone().unwrap_or_else(|| self.weights(solids));
        let mut residual = solids[self.own].normal();
        for (&k, (weight, side)) in self.near.iter().zip(weights) {
            let normal = solids[k].normal();
            (0..3).for_each(|i| residual[i] -= weight * side * normal[i]);
        }
        dot(residual, residual)
    }
}

/// The stage by its definition, of these geometries and the neighbours of each; `visible` ascending.
pub struct Definition<'a> {
    pub visible: &'a [usize],
    pub near: &'a [Vec<usize>],
    pub rule: SurfaceRule,
}

impl Definition<'_> {
    pub fn samples(&self, geometry: &[Vec<f64>], frozen: Option<&[Frozen]>) -> Vec<Sample> {
        let SurfaceRule { seed, iteration, samples, .. } = self.rule;
        let stream = |purpose| RandomStream::new(seed, u64::from(iteration), purpose);
        let (rows, places) = (stream(RandomUse::SurfaceSample), stream(RandomUse::SurfaceNormal));
        (0..samples as usize)
            .map(|i| {
                let bits = u128::from(rows.bits(2 * i as u64));
                let index = (bits * self.visible.len() as u128) >> 64;
                let own = self.visible[usize::try_from(index).unwrap()];
                let solid = Solid::new(&geometry[own]);
                let normals = standard_normals(places, i as u64).map(f64::from);
                let x = std::array::from_fn(|axis| {
                    let along = (0..3).map(|j| solid.axes[axis][j] * solid.scale[j] * normals[j]);
                    solid.mean[axis] + 1.5 * along.sum::<f64>()
                });
                let frozen = frozen.map(|all| all[i].clone());
                Sample { own, x, near: self.near[own].clone(), frozen }
            })
            .collect()
    }

    pub fn terms(&self, geometry: &[Vec<f64>], frozen: Option<&[Frozen]>) -> SurfaceTerms {
        let solids: Vec<Solid> = geometry.iter().map(|row| Solid::new(row)).collect();
        let samples = self.samples(geometry, frozen);
        let mean = |of: &dyn Fn(&Sample) -> f64| {
            samples.iter().map(of).sum::<f64>() / samples.len() as f64
        };
        let entropy = |&row: &usize| {
            let o = solids[row].opacity;
            -o * (o + 1e-10).ln() - (1.0 - o) * (1.0 - o + 1e-10).ln()
        };
        SurfaceTerms {
            entropy: self.visible.iter().map(entropy).sum::<f64>() / self.visible.len() as f64,
            density: mean(&|sample| sample.density_error(&solids)),
            normal: mean(&|sample| sample.normal_error(&solids)),
            sdf: 0.0,
        }
    }

    pub fn total(&self, geometry: &[Vec<f64>], frozen: &[Frozen]) -> f64 {
        let terms = self.terms(geometry, Some(frozen));
        self.rule.entropy * terms.entropy
            + self.rule.density * terms.density
            + self.rule.normal * terms.normal
    }
}

/// Geometry of all Gaussians as gradients order it.
pub fn geometry(model: &Model<f64>) -> Vec<Vec<f64>> {
    (0..model.len())
        .map(|row| GEOMETRY.iter().flat_map(|&(p, _)| model.row(p, row).to_vec()).collect())
        .collect()
}

pub fn lists<R: Real>(device: &mut Cpu<R>, near: &NearestLists, len: usize) -> Vec<Vec<usize>> {
    let rows = device.read_neighbours(near, 0..len).unwrap();
    rows.chunks(rows.len() / len).map(|list| list.iter().map(|&k| k as usize).collect()).collect()
}

/// The depths that a view shows, by the definition.
pub struct ShownDepths {
    pub view: Viewpoint<f64>,
    pub depths: Vec<f64>,
}

impl ShownDepths {
    /// Computes the depths of the `visible` Gaussians, without tiles and bounds.
    pub fn new(
        gaussians: &Gaussians,
        visible: &[usize],
        (view, settings): (&View, &DrawSettings),
    ) -> Self {
        let splats = scene::splats(gaussians, view, settings);
        let seen = splats.iter().filter(|splat| visible.contains(&splat.gaussian));
        let farthest = seen.map(|splat| splat.ellipse.depth).fold(0.0, f64::max);
        let depth_of = |[x, y]: [u32; 2]| {
            let (mut depth, mut transmittance) = (0.0, 1.0);
            for splat in &splats {
                let mean = splat.ellipse.mean_px;
                let offset = [f64::from(x) + 0.5 - mean[0], f64::from(y) + 0.5 - mean[1]];
                let alpha = splat.opacity * exponent(splat.ellipse.conic, offset).exp();
                if alpha < ALPHA_MIN {
                    continue;
                }
                let after = transmittance * (1.0 - alpha.min(ALPHA_MAX));
                if after < TRANSMITTANCE_MIN {
                    break;
                }
                depth += (transmittance - after) * splat.ellipse.depth;
                transmittance = after;
            }
            depth + transmittance * farthest
        };
        let [width, height] = [view.camera.width, view.camera.height];
        let pixels = (0..height).flat_map(|y| (0..width).map(move |x| [x, y]));
        Self { view: scene::viewpoint(view, settings.near), depths: pixels.map(depth_of).collect() }
    }

    /// Distance of the surface behind a point of the world, if the view shows it: every pixel
    /// counts by how near its centre is, and what lies beyond the centres of the border as if there.
    pub fn height(&self, point: Vec3<f64>) -> Option<f64> {
        let view = &self.view;
        let [x, y, z] = add(mul(&view.rotation, point), view.translation);
        let size = view.size.map(f64::from);
        let place = [
            view.focal_px[0] * x / z + view.centre_px[0],
            view.focal_px[1] * y / z + view.centre_px[1],
        ];
        let inside = (0..2).all(|i| (0.0..=size[i]).contains(&place[i]));
        if z <= view.near || !inside {
            return None;
        }
        let held = [0, 1].map(|i| (place[i] - 0.5).clamp(0.0, size[i] - 1.0));
        let weight = |at: f64, pixel: usize| (1.0 - (at - pixel as f64).abs()).max(0.0);
        let width = view.size[0] as usize;
        let depth: f64 = (0..self.depths.len())
            .map(|i| weight(held[0], i % width) * weight(held[1], i / width) * self.depths[i])
            .sum();
        Some(depth - z)
    }

    /// Distance of a Gaussian from the surface in its unit; `None` outside of the image.
    pub fn nearness(&self, solid: &Solid) -> Option<f64> {
        let towards = normalize(sub(self.view.centre_world, solid.mean));
        let turned = mul_transposed(&solid.axes, towards);
        let deviation = length([0, 1, 2].map(|i| turned[i] * solid.scale[i]));
        Some(self.height(solid.mean)?.abs() / (2.0 * deviation))
    }

    /// Visible Gaussians that samples are taken of. Fails where single precision may decide
    /// otherwise of one.
    pub fn near_surface(&self, visible: &[usize], solids: &[Solid]) -> Vec<usize> {
        let is_near = |&&row: &&usize| {
            let nearness = self.nearness(&solids[row]);
            assert!(
                nearness.is_none_or(|n| (n - 1.0).abs() > 2e-4),
                "Gaussian {row} is at the limit: {nearness:?}"
            );
            nearness.is_some_and(|nearness| nearness < 1.0)
        };
        visible.iter().filter(is_near).copied().collect()
    }

    /// The distances' difference at a sample; nothing where the view does not look at it.
    pub fn error(&self, sample: &Sample, solids: &[Solid], unit: f64) -> Option<f64> {
        let density = sample.density(solids) / 16.0;
        let root = (-2.0 * density.clamp(1e-16, 1.0).ln()).sqrt();
        let height = self.height(sample.x)?;
        Some(((sample.beta(solids) * root - height.abs()).abs() / unit).min(100.0))
    }
}

/// Settings that draw what distances are compared with.
pub const WITH_DEPTHS: DrawSettings =
    DrawSettings { pass: Pass::Train, surface: true, ..DrawSettings::DEFAULT };

/// A view's terms and gradients by a rule, of which no pixel of the photograph counts.
pub fn looked_at<B: TrainDevice>(
    device: &mut B,
    model: &mut B::Model,
    (view, drawing): (&View, &DrawSettings),
    (near, rule): (&B::Lists, &SurfaceRule),
) -> (SurfaceTerms, B::Gradients) {
    let photo = photo(view.camera.width, view.camera.height, masked(view));
    let target = &device.target(0, &photo).unwrap();
    let (terms, mut gradients) = (&rule.terms(), B::Gradients::default());
    let seen = Seen { view, drawing, target, terms, near: Some(near) };
    let [_, samples] = device.add_seen(model, &seen, &mut gradients).unwrap();
    (samples.read().unwrap().into(), gradients)
}

/// A sheet of Gaussians about the plane z = 1, rather flat but tilted by up to 53 degrees.
pub fn sheet() -> Gaussians {
    const SIDE: u32 = 20;
    let mut draws = Draws::new(5);
    let parts: Vec<Gaussians> = (0..SIDE * SIDE)
        .map(|i| {
            let beside = [i % SIDE, i / SIDE]
                .map(|at| 0.025 * f64::from(at) - 0.25 + draws.uniform(-0.008, 0.008));
            let mean = [beside[0], beside[1], 1.0 + draws.uniform(-0.01, 0.01)].map(f64::to_f32);
            let mut one = gaussian(mean, 1.0, draws.uniform(0.6, 0.9).to_f32(), [0.5; 3]);
            one.log_scales = [0.02_f64, 0.02, 0.008]
                .map(|scale| (scale * draws.uniform(0.8, 1.25)).ln().to_f32())
                .to_vec();
            let tilt = draws.array::<2>(-0.35, 0.35);
            let quat = [1.0, tilt[0], tilt[1], draws.uniform(-1.0, 1.0)];
            one.quats = quat.map(f64::to_f32).to_vec();
            one
        })
        .collect();
    together(&parts)
}

// A ball of flat Gaussians, whose surface is known.

/// Radius of the ball, world units.
pub const RADIUS: f64 = 1.0;

/// Writes a scene of the ball in `views` views of this size, px.
pub fn write_ball_scene(folder: &Path, views: u32, (width, height): (u32, u32)) {
    let options = SynthOptions {
        scene: SynthScene::Sphere,
        views,
        width,
        height,
        points: 200,
        ..SynthOptions::default()
    };
    write_synthetic(folder, &options);
}

/// Flat, opaque Gaussians all over the ball, red on one side and blue on the other: on the Fibonacci
/// spiral, each with the plane of the ball as its own.
pub fn ball() -> Gaussians {
    ball_of(3000, 0.04)
}

/// The ball of a third as many Gaussians, for tests that do not ask how near its surface comes to the ball.
pub fn coarse_ball() -> Gaussians {
    ball_of(1000, 0.07)
}

fn ball_of(count: usize, wide: f32) -> Gaussians {
    let mut model = Gaussians::zeros(0, count);
    for row in 0..count {
        let z = 1.0 - (2.0 * row as f64 + 1.0) / count as f64;
        let turn = row as f64 * std::f64::consts::PI * (3.0 - 5.0_f64.sqrt());
        let across = (1.0 - z * z).sqrt();
        let out = [across * turn.cos(), across * turn.sin(), z];
        for axis in 0..3 {
            model.means[3 * row + axis] = (RADIUS * out[axis]).to_f32();
            model.log_scales[3 * row + axis] = [wide, wide, 0.002][axis].ln();
        }
        // Turns z onto `out`.
        let quat = [1.0 + out[2], -out[1], out[0], 0.0];
        let colour = if out[0] > 0.0 { [1.7, -1.7, -1.7] } else { [-1.7, -1.7, 1.7] };
        for (part, value) in quat.into_iter().enumerate() {
            model.quats[4 * row + part] = value.to_f32();
        }
        model.sh_dc[3 * row..3 * row + 3].copy_from_slice(&colour);
        model.opacity_logits[row] = 3.0;
    }
    model
}
