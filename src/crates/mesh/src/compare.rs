//! Distances of a mesh from the true surface.
//!
//! Distances are exact, from samples of one surface to the triangles of the other: vertices would reward fine
//! tessellation, and samples against samples have a floor of half their spacing.

use rayon::prelude::*;
use serde::Serialize;

use crate::mesh::{Camera, Mesh, MeshError, Vec3};
use crate::narrow::{floor_usize, to_f32, to_f32s, to_f64s, to_u32};
use crate::place::{
    Bounds, add, area, corners, cross, dot, doubled_area, length, mat_mul, mul, mul_transposed,
    normalize, scale, sub,
};
use crate::random::RandomStream;
use crate::report::MeshReport;
use crate::search::{BoxTree, Nearest};

/// Shares of the truth's diagonal at which surfaces agree.
const TAU_SHARES: [f64; 3] = [0.002, 0.005, 0.01];

/// Index of the share that determines sampling and clamping.
const MAIN_TAU: usize = 1;

/// Largest distance that figures distinguish, in main thresholds.
const CLAMP_TAUS: f64 = 20.0;

/// Options of [`compare`].
#[derive(Clone, Debug, PartialEq)]
pub struct CompareOptions {
    /// Another distance at which surfaces agree, world units. It determines sampling and clamping.
    pub threshold: Option<f64>,
    /// Smallest and largest number of samples of a surface.
    pub samples: [usize; 2],
    /// Rays of a camera along the width and the height of its image.
    pub scan_rays: [usize; 2],
    /// Alignment of the mesh with the truth before the comparison.
    pub alignment: Alignment,
    /// Seed of the samples.
    pub seed: u64,
}

impl Default for CompareOptions {
    fn default() -> Self {
        Self {
            threshold: None,
            samples: [100_000, 10_000_000],
            scan_rays: [300, 200],
            alignment: Alignment::Given,
            seed: 0,
        }
    }
}

/// Alignment of the mesh.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Alignment {
    /// Position of the file.
    Given,
    /// Position with the least distance, found by iterated closest points.
    Icp,
}

/// All figures of a mesh against the truth.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// Diagonal of the truth's box, world units.
    pub diagonal: f64,
    /// Largest distance, world units. Greater ones count as this.
    pub clamp: f64,
    /// Similarity that moved the mesh onto the truth, if any.
    pub alignment: Option<Similarity>,
    /// Report of the mesh.
    pub report: MeshReport,
    /// Faces of the mesh that pass through others.
    pub crossings: FaceCrossings,
    /// Figures over both whole surfaces.
    pub uniform: Figures,
    /// Figures over the parts of the truth that some camera sees; none without cameras.
    pub visible: Option<Figures>,
    /// Figures over what cameras see first of either surface; none without cameras.
    pub scan: Option<ScanFigures>,
}

/// Why there are no figures.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages name the fields")]
pub enum CompareError {
    #[error("the {which} is no mesh: {source}")]
    Mesh { which: &'static str, source: MeshError },
    #[error("the {which} has no area in its {faces} faces: name a file with a surface")]
    NoArea { which: &'static str, faces: usize },
    #[error("a threshold of {found}: give a distance above 0 in the scene's unit")]
    Threshold { found: f64 },
}

/// Compares a mesh with the truth, also as `cameras` see them if there are any.
pub fn compare(
    mesh: &Mesh,
    truth: &Mesh,
    cameras: &[Camera],
    options: &CompareOptions,
) -> Result<Comparison, CompareError> {
    if let Some(found) = options.threshold.filter(|&t| !(t.is_finite() && t > 0.0)) {
        return Err(CompareError::Threshold { found });
    }
    let truth_tree = tree_of("truth", truth)?;
    let report =
        MeshReport::of(mesh).map_err(|source| CompareError::Mesh { which: "mesh", source })?;
    let diagonal = Bounds::of_faces(truth).diagonal();
    let mut thresholds: Vec<f64> = TAU_SHARES.iter().map(|share| share * diagonal).collect();
    let tau = options.threshold.unwrap_or(thresholds[MAIN_TAU]);
    thresholds.extend(options.threshold);
    let clamp = CLAMP_TAUS * tau;

    let given = tree_of("mesh", mesh)?;
    let (alignment, moved) = match options.alignment {
        Alignment::Given => (None, None),
        Alignment::Icp => {
            let found = align(&given, &truth_tree, options.seed);
            (Some(found), Some(found.applied_to(mesh)))
        }
    };
    let moved_tree = moved.as_ref().map(|moved| tree_of("mesh", moved)).transpose()?;
    let tree = moved_tree.as_ref().unwrap_or(&given);

    let count = |area| count_of(area, tau, options.samples);
    let centres = cameras.iter().map(Camera::centre).collect();
    let visibility = Visibility { tree: &truth_tree, cameras, centres };
    let ours = SurfaceSamples::new(tree.mesh, count, options.seed);
    let theirs = SurfaceSamples::new(truth, count, options.seed ^ u64::MAX);
    let is_seen = |nearest: &Nearest| visibility.sees(nearest.place);
    let accuracy = measure(&ours, tree, &truth_tree, clamp, is_seen);
    let completeness = measure(&theirs, &truth_tree, tree, clamp, |_| false);
    let uniform = Figures::of(&accuracy, &completeness, clamp, &thresholds);
    let visible = (!cameras.is_empty()).then(|| {
        let seen: Vec<Measured> = accuracy.iter().copied().filter(|m| m.is_seen).collect();
        let is_there = |(index, _): &(usize, &Measured)| visibility.sees(theirs.get(*index).place);
        let there = completeness.par_iter().enumerate().filter(is_there).map(|(_, m)| *m);
        Figures::of(&seen, &there.collect::<Vec<_>>(), clamp, &thresholds)
    });
    let scan = scan(tree, &truth_tree, cameras, options.scan_rays, clamp, &thresholds);
    let crossings = self_crossings(tree);
    Ok(Comparison { diagonal, clamp, alignment, report, crossings, uniform, visible, scan })
}

fn tree_of<'a>(which: &'static str, mesh: &'a Mesh) -> Result<BoxTree<'a>, CompareError> {
    let tree = BoxTree::new(mesh).map_err(|source| CompareError::Mesh { which, source })?;
    if SurfaceSamples::area(mesh) > 0.0 {
        return Ok(tree);
    }
    Err(CompareError::NoArea { which, faces: mesh.faces.len() })
}

/// Returns the number of samples of a surface: one per square of half the threshold, within bounds.
fn count_of(area: f64, tau: f64, [fewest, most]: [usize; 2]) -> usize {
    floor_usize(area / (0.25 * tau * tau)).min(most).max(fewest).max(1)
}

/// A place on a surface.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SurfaceSample {
    /// Place, world space.
    pub place: Vec3,
    /// Face of the place.
    pub face: u32,
}

/// Samples of a checked mesh, uniform by area: systematic over the sums of its faces' areas, so that each face has its
/// share but for one sample, and uniform within a face. Each is computed on demand.
pub struct SurfaceSamples<'a> {
    mesh: &'a Mesh,
    /// Area of all faces up to each one.
    sums: Vec<f64>,
    /// Number of samples; 0 without area.
    pub count: usize,
    stream: RandomStream,
}

impl<'a> SurfaceSamples<'a> {
    /// Takes the number of samples that `count_of` returns for the whole area.
    pub fn new(mesh: &'a Mesh, count_of: impl FnOnce(f64) -> usize, key: u64) -> Self {
        let mut total = 0.0;
        let sum = |&face: &[u32; 3]| {
            total += area(corners(mesh, face));
            total
        };
        let sums: Vec<f64> = mesh.faces.iter().map(sum).collect();
        let count = if total > 0.0 { count_of(total) } else { 0 };
        Self { mesh, sums, count, stream: RandomStream::of_seed(key) }
    }

    /// Returns the area of a checked mesh, square world units.
    pub fn area(mesh: &Mesh) -> f64 {
        mesh.faces.iter().map(|&face| area(corners(mesh, face))).sum()
    }

    /// Returns sample `index`: x = (1 - √u) a + √u (1 - v) b + √u v c of its face (Osada et al. 2002, equation 1).
    pub fn get(&self, index: usize) -> SurfaceSample {
        let total = self.sums.last().copied().unwrap_or(0.0);
        let at = (index as f64 + 0.5) / self.count.max(1) as f64 * total;
        let face =
            self.sums.partition_point(|&sum| sum <= at).min(self.sums.len().saturating_sub(1));
        let u = self.stream.uniform(2 * index as u64).sqrt();
        let v = self.stream.uniform(2 * index as u64 + 1);
        let [a, b, c] = corners(self.mesh, self.mesh.faces[face]);
        let place = add(scale(a, 1.0 - u), add(scale(b, u * (1.0 - v)), scale(c, u * v)));
        SurfaceSample { place, face: to_u32(face) }
    }
}

// A virtual scan compares what rays of cameras meet first on either surface, so that hidden parts do not count.

/// Figures of the virtual scan.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ScanFigures {
    /// Cameras, including those between neighbours.
    pub views: usize,
    /// Rays that meet both surfaces.
    pub both: usize,
    /// Rays that meet the mesh alone.
    pub mesh_only: usize,
    /// Rays that meet the truth alone.
    pub truth_only: usize,
    /// Figures over the places that rays meet first.
    pub figures: Figures,
    /// Median of |z - z'| / z' over the rays that meet both, z' of the truth.
    pub median_depth_error: f64,
}

/// Scans from each camera and from one between each camera and its neighbour; nothing without cameras.
fn scan(
    mesh: &BoxTree<'_>,
    truth: &BoxTree<'_>,
    cameras: &[Camera],
    rays: [usize; 2],
    clamp: f64,
    thresholds: &[f64],
) -> Option<ScanFigures> {
    if cameras.is_empty() {
        return None;
    }
    let between = neighbours(cameras);
    let between = between.iter().map(|&[a, b]| half_way(&cameras[a], &cameras[b]));
    let views: Vec<Camera> = cameras.iter().copied().chain(between).collect();
    let (mut accuracy, mut completeness, mut depth_errors) = (Vec::new(), Vec::new(), Vec::new());
    let [mut mesh_only, mut truth_only] = [0; 2];
    for view in &views {
        let met: Vec<_> = (0..rays[0] * rays[1])
            .into_par_iter()
            .map(|ray| cast_ray([mesh, truth], view, ray, rays, clamp))
            .collect();
        for (of_mesh, of_truth, depth_error) in met {
            mesh_only += usize::from(of_mesh.is_some() && of_truth.is_none());
            truth_only += usize::from(of_truth.is_some() && of_mesh.is_none());
            accuracy.extend(of_mesh);
            completeness.extend(of_truth);
            depth_errors.extend(depth_error);
        }
    }
    let figures = Figures::of(&accuracy, &completeness, clamp, thresholds);
    let both = depth_errors.len();
    depth_errors.par_sort_unstable_by(f64::total_cmp);
    let median_depth_error = depth_errors.get(both / 2).copied().unwrap_or(0.0);
    let views = views.len();
    Some(ScanFigures { views, both, mesh_only, truth_only, figures, median_depth_error })
}

/// Returns the distances from the places where a ray first meets the mesh and the truth to the other surface, and the
/// error of the depth.
fn cast_ray(
    [mesh, truth]: [&BoxTree<'_>; 2],
    view: &Camera,
    ray: usize,
    rays: [usize; 2],
    clamp: f64,
) -> (Option<Measured>, Option<Measured>, Option<f64>) {
    let (at, size) = ([ray % rays[0], ray / rays[0]], [view.width, view.height]);
    let px =
        std::array::from_fn(|axis| (at[axis] as f64 + 0.5) / rays[axis] as f64 * size[axis] as f64);
    let (origin, direction) = (view.centre(), direction(view, px));
    let first = |tree: &BoxTree<'_>| tree.first_hit(origin, direction, [0.0, f64::INFINITY]);
    let (ours, theirs) = (first(mesh), first(truth));
    let place = |depth: f64| add(origin, scale(direction, depth));
    (
        ours.map(|hit| way(place(hit.at), mesh.normal(hit.face), truth, clamp).0),
        theirs.map(|hit| way(place(hit.at), truth.normal(hit.face), mesh, clamp).0),
        ours.zip(theirs).map(|(ours, theirs)| (ours.at - theirs.at).abs() / theirs.at),
    )
}

// Alignment by iterated closest points, from places to planes (Chen and Medioni 1992), without the worst tenth of the
// pairs (Chetverikov et al. 2002).

const ROUNDS: usize = 30;

const SAMPLES: usize = 20_000;

const KEPT_SHARE: f64 = 0.9;

/// Unknowns: a rotation, a shift, the logarithm of the scale.
const UNKNOWNS: usize = 7;

/// x' = scale rotation x + translation.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Similarity {
    /// Factor of lengths.
    pub scale: f64,
    /// Rotation in rows.
    pub rotation: [Vec3; 3],
    /// Shift after both, world units.
    pub translation: Vec3,
}

impl Similarity {
    /// Similarity that changes nothing.
    pub const IDENTITY: Self = Self {
        scale: 1.0,
        rotation: [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]],
        translation: [0.0; 3],
    };

    /// Moves a place.
    pub fn of(&self, place: Vec3) -> Vec3 {
        add(scale(mul(&self.rotation, place), self.scale), self.translation)
    }

    /// Returns the moved mesh, its normals rotated.
    fn applied_to(&self, mesh: &Mesh) -> Mesh {
        let mut moved = mesh.clone();
        moved.vertices.iter_mut().for_each(|v| *v = to_f32s(self.of(to_f64s(*v))));
        moved.normals.iter_mut().for_each(|n| *n = to_f32s(mul(&self.rotation, to_f64s(*n))));
        moved
    }

    /// Returns this similarity after `first`.
    fn after(&self, first: &Self) -> Self {
        Self {
            scale: self.scale * first.scale,
            rotation: mat_mul(&self.rotation, &first.rotation),
            translation: self.of(first.translation),
        }
    }
}

/// A place of the mesh, the offset to the nearest place of the truth, and the truth's normal there.
#[derive(Clone, Copy)]
struct Pair {
    place: Vec3,
    off: Vec3,
    normal: Vec3,
}

/// Returns the similarity that brings the mesh onto the truth, starting from its position.
fn align(mesh: &BoxTree<'_>, truth: &BoxTree<'_>, seed: u64) -> Similarity {
    let samples = SurfaceSamples::new(mesh.mesh, |_| SAMPLES, seed);
    let places: Vec<Vec3> = (0..samples.count).map(|index| samples.get(index).place).collect();
    let mut found = Similarity::IDENTITY;
    for _ in 0..ROUNDS {
        let pair = |&place: &Vec3| {
            let place = found.of(place);
            let nearest = truth.nearest(place, f64::INFINITY)?;
            let normal = truth.normal(nearest.face);
            Some(Pair { place, off: sub(nearest.place, place), normal })
        };
        let mut pairs: Vec<Pair> = places.par_iter().filter_map(pair).collect();
        pairs.sort_by(|a, b| dot(a.off, a.off).total_cmp(&dot(b.off, b.off)));
        pairs.truncate(floor_usize(KEPT_SHARE * pairs.len() as f64));
        let Some(step) = step(&pairs) else { break };
        found = step.after(&found);
    }
    found
}

/// Returns the small similarity that brings the pairs closest along their normals: least squares of n · (w x r + s r +
/// t - off) over rotation w, scale e^s and shift t, r from the middle of the places.
fn step(pairs: &[Pair]) -> Option<Similarity> {
    let count = pairs.len() as f64;
    let middle = scale(pairs.iter().fold([0.0; 3], |sum, pair| add(sum, pair.place)), 1.0 / count);
    let size = pairs.iter().map(|pair| length(sub(pair.place, middle))).sum::<f64>() / count;
    if !(size.is_finite() && size > 0.0) {
        return None;
    }
    let mut normal_matrix = [[0.0; UNKNOWNS]; UNKNOWNS];
    let mut right = [0.0; UNKNOWNS];
    for pair in pairs {
        let from_middle = scale(sub(pair.place, middle), 1.0 / size);
        let turn = cross(from_middle, pair.normal);
        let n = pair.normal;
        let row = [turn[0], turn[1], turn[2], n[0], n[1], n[2], dot(n, from_middle)];
        let residual = dot(n, pair.off);
        for i in 0..UNKNOWNS {
            right[i] += row[i] * residual;
            for j in 0..UNKNOWNS {
                normal_matrix[i][j] += row[i] * row[j];
            }
        }
    }
    // A weight so small that it only decides what the surfaces leave open, such as rotations of a sphere.
    let trace: f64 = (0..UNKNOWNS).map(|i| normal_matrix[i][i]).sum();
    (0..UNKNOWNS).for_each(|i| normal_matrix[i][i] += 1e-7 * trace);
    let [wx, wy, wz, tx, ty, tz, s] = solve(normal_matrix, right)?;
    let turn = scale([wx, wy, wz], 1.0 / size);
    let rotation = about(normalize(turn), length(turn));
    let factor = (s / size).exp();
    let shift = add(middle, [tx, ty, tz]);
    let translation = sub(shift, scale(mul(&rotation, middle), factor));
    Some(Similarity { scale: factor, rotation, translation })
}

/// Solves a symmetric positive definite system by Cholesky factors; none if it is not definite.
fn solve(mut a: [[f64; UNKNOWNS]; UNKNOWNS], mut b: [f64; UNKNOWNS]) -> Option<[f64; UNKNOWNS]> {
    for i in 0..UNKNOWNS {
        for j in 0..=i {
            let sum = a[i][j] - (0..j).map(|k| a[i][k] * a[j][k]).sum::<f64>();
            if i != j {
                a[i][j] = sum / a[j][j];
            } else if sum > 0.0 {
                a[i][i] = sum.sqrt();
            } else {
                return None;
            }
        }
    }
    for i in 0..UNKNOWNS {
        b[i] = (b[i] - (0..i).map(|k| a[i][k] * b[k]).sum::<f64>()) / a[i][i];
    }
    for i in (0..UNKNOWNS).rev() {
        b[i] = (b[i] - (i + 1..UNKNOWNS).map(|k| a[k][i] * b[k]).sum::<f64>()) / a[i][i];
    }
    Some(b)
}

/// Distance of one sample from the other surface.
#[derive(Clone, Copy, Debug)]
struct Measured {
    /// Distance, world units; infinite beyond the clamp.
    distance: f64,
    /// Cosine between the normals of both faces; none beyond the clamp.
    cosine: Option<f32>,
    /// True if the filter accepts the nearest place.
    is_seen: bool,
}

/// Distances from samples of one surface to another.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Distances {
    /// Samples.
    pub samples: usize,
    /// Mean distance, world units.
    pub mean: f64,
    /// Median distance, world units.
    pub median: f64,
    /// 95 % of the distances are smaller, world units.
    pub p95: f64,
    /// Share of samples farther than the clamp, which count as the clamp.
    pub clamped_share: f64,
    /// Mean |n · n'| over the other samples.
    pub normal_agreement: f64,
    /// Share of the other samples with n · n' < 0.
    pub opposed_share: f64,
}

/// Agreement of both surfaces within a distance.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Score {
    /// The distance, world units.
    pub threshold: f64,
    /// Share of the mesh nearer than that to the truth.
    pub precision: f64,
    /// Share of the truth nearer than that to the mesh.
    pub recall: f64,
    /// 2 P R / (P + R).
    pub f_score: f64,
}

/// Figures of two surfaces.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figures {
    /// From the mesh to the truth.
    pub accuracy: Distances,
    /// From the truth to the mesh.
    pub completeness: Distances,
    /// Half the sum of both means, world units.
    pub chamfer: f64,
    /// Scores at several distances.
    pub scores: Vec<Score>,
}

impl Figures {
    fn of(
        accuracy: &[Measured],
        completeness: &[Measured],
        clamp: f64,
        thresholds: &[f64],
    ) -> Self {
        let score = |&threshold: &f64| {
            let [precision, recall] = [accuracy, completeness].map(|measured| {
                let under = measured.iter().filter(|m| m.distance < threshold).count();
                under as f64 / measured.len().max(1) as f64
            });
            let sum = precision + recall;
            let f_score = if sum > 0.0 { 2.0 * precision * recall / sum } else { 0.0 };
            Score { threshold, precision, recall, f_score }
        };
        let scores = thresholds.iter().map(score).collect();
        let accuracy = Distances::of(accuracy, clamp);
        let completeness = Distances::of(completeness, clamp);
        let chamfer = 0.5 * (accuracy.mean + completeness.mean);
        Self { accuracy, completeness, chamfer, scores }
    }
}

impl Distances {
    fn of(measured: &[Measured], clamp: f64) -> Self {
        if measured.is_empty() {
            return Self::default();
        }
        let samples = measured.len();
        let mut distances: Vec<f64> = measured.iter().map(|m| m.distance.min(clamp)).collect();
        let mean = distances.iter().sum::<f64>() / samples as f64;
        distances.par_sort_unstable_by(f64::total_cmp);
        // The least value that a share of all distances does not exceed.
        let quantile = |percent: usize| distances[(samples * percent).div_ceil(100).max(1) - 1];
        let clamped = measured.iter().filter(|m| m.distance > clamp).count();
        let cosines = || measured.iter().filter_map(|m| m.cosine).map(f64::from);
        let compared = cosines().count().max(1) as f64;
        Self {
            samples,
            mean,
            median: quantile(50),
            p95: quantile(95),
            clamped_share: clamped as f64 / samples as f64,
            normal_agreement: cosines().map(f64::abs).sum::<f64>() / compared,
            opposed_share: cosines().filter(|&cosine| cosine < 0.0).count() as f64 / compared,
        }
    }
}

/// Measures each sample's distance from the surface of `to`, in the samples' order.
fn measure(
    samples: &SurfaceSamples<'_>,
    from: &BoxTree<'_>,
    to: &BoxTree<'_>,
    clamp: f64,
    is_seen: impl Fn(&Nearest) -> bool + Sync,
) -> Vec<Measured> {
    let of_sample = |index: usize| {
        let sample = samples.get(index);
        let (measured, nearest) = way(sample.place, from.normal(sample.face), to, clamp);
        Measured { is_seen: nearest.is_some_and(|nearest| is_seen(&nearest)), ..measured }
    };
    (0..samples.count).into_par_iter().map(of_sample).collect()
}

/// Measures the distance of a place of one surface, whose normal is `normal`, from another surface.
fn way(place: Vec3, normal: Vec3, to: &BoxTree<'_>, clamp: f64) -> (Measured, Option<Nearest>) {
    let nearest = to.nearest(place, clamp);
    let cosine = nearest.map(|nearest| to_f32(dot(normal, to.normal(nearest.face))));
    let distance = nearest.map_or(f64::INFINITY, |nearest| nearest.distance);
    (Measured { distance, cosine, is_seen: false }, nearest)
}

// Cameras of the virtual scan.

/// Returns the direction in the world through a place of a camera's image, px, 1 deep.
fn direction(camera: &Camera, [x, y]: [f64; 2]) -> Vec3 {
    let [centre, focal] = [camera.centre_px, camera.focal_px];
    let along = [(x - centre[0]) / focal[0], (y - centre[1]) / focal[1], 1.0];
    mul_transposed(&camera.rotation, along)
}

/// True if a place, world space, lies in front of a camera and within its image.
fn frames(camera: &Camera, place: Vec3) -> bool {
    let cam = camera.cam(place);
    let [x, y] = camera.pixel(cam);
    let [width, height] = [camera.width, camera.height].map(|size| size as f64);
    cam[2] > 0.0 && (0.0..=width).contains(&x) && (0.0..=height).contains(&y)
}

/// Returns the camera half-way to another: at the middle of both places, rotated by half the rotation between them,
/// with the image of the first.
fn half_way(from: &Camera, to: &Camera) -> Camera {
    let transposed: [Vec3; 3] = std::array::from_fn(|row| from.rotation.map(|of| of[row]));
    let turn = mat_mul(&to.rotation, &transposed);
    let rotation = mat_mul(&half_turn(&turn), &from.rotation);
    let middle = scale(add(from.centre(), to.centre()), 0.5);
    let translation = scale(mul(&rotation, middle), -1.0);
    Camera { rotation, translation, ..*from }
}

/// Returns the rotation about the same axis by half the angle; of half a turn, whose axis has no sign, any.
fn half_turn(turn: &[Vec3; 3]) -> [Vec3; 3] {
    let twice_sine_axis =
        [turn[2][1] - turn[1][2], turn[0][2] - turn[2][0], turn[1][0] - turn[0][1]];
    let sine = 0.5 * length(twice_sine_axis);
    let cosine = 0.5 * (turn[0][0] + turn[1][1] + turn[2][2] - 1.0);
    if sine < 1e-9 && cosine < 0.0 {
        // turn = 2 a aᵀ - 1: its longest row plus the axis shows a.
        let rows: [Vec3; 3] = std::array::from_fn(|row| {
            std::array::from_fn(|column| turn[row][column] + f64::from(u8::from(row == column)))
        });
        let longest =
            rows.into_iter().fold([0.0; 3], |a, b| if length(b) > length(a) { b } else { a });
        return about(normalize(longest), std::f64::consts::FRAC_PI_2);
    }
    about(normalize(twice_sine_axis), 0.5 * sine.atan2(cosine))
}

/// Returns the rotation about a unit axis by an angle in radians (Rodrigues).
fn about(axis: Vec3, angle: f64) -> [Vec3; 3] {
    let (sin, cos) = angle.sin_cos();
    std::array::from_fn(|row| {
        // Column by column of the unit vectors' images, which are the rows of the inverse.
        let unit = std::array::from_fn(|column| f64::from(u8::from(row == column)));
        add(
            add(scale(unit, cos), scale(cross(axis, unit), -sin)),
            scale(axis, dot(axis, unit) * (1.0 - cos)),
        )
    })
}

/// Pairs each camera with the nearest one; each pair once.
fn neighbours(cameras: &[Camera]) -> Vec<[usize; 2]> {
    let centres: Vec<Vec3> = cameras.iter().map(Camera::centre).collect();
    let gap = |a: usize, b: usize| length(sub(centres[a], centres[b]));
    let pair = |a: usize| {
        let others = (0..centres.len()).filter(|&b| b != a);
        let nearest = others.min_by(|&b, &c| gap(a, b).total_cmp(&gap(a, c)))?;
        Some([a.min(nearest), a.max(nearest)])
    };
    let mut pairs: Vec<[usize; 2]> = (0..centres.len()).filter_map(pair).collect();
    pairs.sort_unstable();
    pairs.dedup();
    pairs
}

/// Largest number of faces that are tested.
const SAMPLED: usize = 100_000;

/// Faces of a sample that pass through others of the surface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct FaceCrossings {
    /// Tested faces, evenly over all.
    pub sampled: usize,
    /// Tested faces that pass through another.
    pub crossing: usize,
}

/// Tests 100,000 faces for self-intersections, or all if there are fewer.
fn self_crossings(tree: &BoxTree<'_>) -> FaceCrossings {
    let faces = tree.mesh.faces.len();
    let sampled = faces.min(SAMPLED);
    let crossing = (0..sampled)
        .into_par_iter()
        .filter(|&index| crosses(tree, to_u32(index * faces / sampled)))
        .count();
    FaceCrossings { sampled, crossing }
}

fn crosses(tree: &BoxTree<'_>, face: u32) -> bool {
    let places = tree.corners(face);
    let mut found = false;
    tree.neighbours(face, |other| {
        if found || other == face {
            return;
        }
        let others = tree.corners(other);
        // Faces with a common corner, by place, meet there.
        if places.iter().any(|place| others.contains(place)) {
            return;
        }
        found = pierces(places, others) || pierces(others, places);
    });
    found
}

/// True if a side of one triangle passes through the inside of the other. Its ends lie clearly on either side of the
/// other's plane: coplanar neighbours only touch, but for rounding.
fn pierces(sides: [Vec3; 3], through: [Vec3; 3]) -> bool {
    const CLEARLY: f64 = 1e-9;
    let normal = doubled_area(through);
    let squared = dot(normal, normal);
    let heights = sides.map(|place| dot(normal, sub(place, through[0])));
    // Twice the area is about the square of a side's length.
    let least = CLEARLY * squared.sqrt() * squared.sqrt().sqrt();
    (0..3).any(|corner| {
        let (from, to) = (heights[corner], heights[(corner + 1) % 3]);
        if from * to >= 0.0 || from.abs() < least || to.abs() < least {
            return false;
        }
        let along = sub(sides[(corner + 1) % 3], sides[corner]);
        let place = add(sides[corner], scale(along, from / (from - to)));
        (0..3).all(|side| {
            let (a, b) = (through[side], through[(side + 1) % 3]);
            dot(normal, cross(sub(b, a), sub(place, a))) > 1e-6 * squared
        })
    })
}

/// Range of the way to a camera, in shares, in which a surface hides a place: not at the place itself.
const HIDES: [f64; 2] = [1e-6, 1.0];

/// Visibility of a surface's places from cameras.
struct Visibility<'a> {
    tree: &'a BoxTree<'a>,
    cameras: &'a [Camera],
    centres: Vec<Vec3>,
}

impl Visibility<'_> {
    /// True if a place of the surface lies in a camera's image with nothing before it.
    fn sees(&self, place: Vec3) -> bool {
        self.cameras.iter().zip(&self.centres).any(|(camera, &centre)| {
            frames(camera, place) && !self.tree.is_hit(place, sub(centre, place), HIDES)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::known_meshes::{
        self, cube, joined, mesh_of, moved, same_on_any_threads, sphere, subdivided, torus,
        turned_over,
    };

    #[test]
    fn faces_get_samples_by_their_area_and_all_of_it() {
        // Areas 1/2 and 2, and one without.
        let mesh = mesh_of(
            &[[0.0; 3], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [2.0, 0.0, 0.0], [0.0, 2.0, 0.0]],
            &[[0, 1, 2], [0, 0, 1], [0, 3, 4]],
        );
        let samples = SurfaceSamples::new(&mesh, |area| floor_usize(area * 4000.0), 1);
        assert_eq!(samples.count, 10_000);
        let all: Vec<SurfaceSample> = (0..10_000).map(|i| samples.get(i)).collect();
        let of = |face: u32| all.iter().filter(move |sample| sample.face == face);
        assert_eq!([of(0).count(), of(1).count(), of(2).count()], [2000, 0, 8000]);
        // The centroid: (2/3, 2/3), to four standard errors of .47/√8000.
        for axis in 0..2 {
            let mean = of(2).map(|sample| sample.place[axis]).sum::<f64>() / 8000.0;
            assert!((mean - 2.0 / 3.0).abs() < 0.021, "{mean}");
        }
        assert!(all.iter().all(|s| s.place[0] + s.place[1] <= 2.0 && s.place[2] == 0.0));
        let none = mesh_of(&cube().vertices, &[[0, 0, 1]]);
        assert!(SurfaceSamples::new(&none, |_| 5, 0).count == 0);
    }

    fn plain(mesh: &Mesh, truth: &Mesh) -> Comparison {
        compare(mesh, truth, &[], &few()).unwrap()
    }

    fn few() -> CompareOptions {
        CompareOptions {
            samples: [20_000, 20_000],
            scan_rays: [90, 60],
            ..CompareOptions::default()
        }
    }

    /// Returns cameras about the origin at this distance, alternating above and below it.
    fn ring(distance: f64, count: u32) -> Vec<Camera> {
        let camera = |i: u32| {
            let angle = std::f64::consts::TAU * f64::from(i) / f64::from(count);
            let height = if i.is_multiple_of(2) { 1.5 } else { -1.5 };
            looking([distance * angle.cos(), distance * angle.sin(), height], [0.0; 3])
        };
        (0..count).map(camera).collect()
    }

    #[test]
    fn spheres_a_hundredth_apart_are_that_far_however_fine_they_are() {
        let (small, large) = (sphere(1.0, 6), sphere(1.01, 6));
        for found in
            [plain(&large, &small), plain(&subdivided(&large), &small), plain(&small, &large)]
        {
            for distances in [&found.uniform.accuracy, &found.uniform.completeness] {
                for found in [distances.mean, distances.median, distances.p95] {
                    assert!((found - 0.01).abs() < 1e-4, "{distances:?}");
                }
                assert_eq!((distances.clamped_share, distances.opposed_share), (0.0, 0.0));
                assert!(distances.normal_agreement > 0.999);
            }
            assert!((found.uniform.chamfer - 0.01).abs() < 1e-4);
            // The diagonal is 2 √3: at .2 % nothing agrees, at .5 % all.
            let scores: Vec<f64> = found.uniform.scores.iter().map(|score| score.f_score).collect();
            assert_eq!(scores, [0.0, 1.0, 1.0]);
            assert!((found.diagonal / 12_f64.sqrt() - 1.0).abs() < 0.011);
            assert_eq!((found.report.genus, found.visible.is_none()), (Some(0), true));
            assert_eq!(found.crossings.crossing, 0);
        }
    }

    #[test]
    fn missing_parts_lower_only_recall() {
        let truth = sphere(1.0, 5);
        let mut half = truth.clone();
        half.faces.retain(|face| face.iter().all(|&v| half.vertices[v as usize][2] > -1e-6));
        let options = CompareOptions { threshold: Some(1e-3), ..few() };
        let found = compare(&half, &truth, &[], &options).unwrap();
        let score = found.uniform.scores[3];
        // One sample of 20,000, and the strip of a threshold at the rim: area 2 pi .001 of 4 pi.
        assert!((score.recall - 0.5).abs() < 1e-3 && score.precision == 1.0, "{score:?}");
        assert!((score.f_score - 2.0 / 3.0).abs() < 1e-3);
        // Beyond 20 thresholds: nearly half, but for a strip of .02.
        assert!((found.uniform.completeness.clamped_share - 0.49).abs() < 1e-3);
        assert!(found.uniform.completeness.mean < 0.0101 && found.uniform.accuracy.mean < 1e-9);
    }

    #[test]
    fn normals_that_point_the_other_way_are_counted() {
        let truth = sphere(1.0, 4);
        let found = plain(&turned_over(truth.clone()), &truth).uniform;
        assert_eq!((found.accuracy.opposed_share, found.completeness.opposed_share), (1.0, 1.0));
        assert!(found.accuracy.normal_agreement > 0.9999);
    }

    #[test]
    fn unseen_sides_do_not_count_in_scan_and_visible_figures() {
        // The truth has a core that no camera sees; the mesh lacks it.
        let truth = joined(sphere(1.0, 5), &sphere(0.5, 4));
        let found = compare(&sphere(1.0, 5), &truth, &ring(4.0, 6), &few()).unwrap();
        let score = found.uniform.scores[0];
        // The core is a fifth of the truth's area.
        assert!((score.recall - 0.8).abs() < 0.005 && score.precision == 1.0, "{score:?}");
        let visible = found.visible.unwrap();
        assert_eq!((visible.scores[0].recall, visible.scores[0].precision), (1.0, 1.0));
        assert!(visible.completeness.samples < found.uniform.completeness.samples * 81 / 100);
        assert!(visible.chamfer < 1e-9);
        let scan = found.scan.unwrap();
        assert_eq!((scan.mesh_only, scan.truth_only, scan.median_depth_error), (0, 0, 0.0));
        assert!(scan.both > 5_000 && scan.figures.chamfer < 1e-9);
        // Neighbours stand one beside the other, round the ring.
        assert!(scan.views > 8, "{}", scan.views);
    }

    #[test]
    fn the_scan_counts_what_one_surface_alone_has() {
        let truth = sphere(1.0, 5);
        let other = joined(sphere(1.0, 5), &moved(sphere(0.4, 4), [0.0, 0.0, 1.8]));
        let cameras = ring(5.0, 4);
        let found = compare(&other, &truth, &cameras, &few()).unwrap();
        let back = compare(&truth, &other, &cameras, &few()).unwrap();
        let (scan, back) = (found.scan.unwrap(), back.scan.unwrap());
        assert!(scan.mesh_only > 100 && scan.truth_only == 0);
        assert_eq!((back.mesh_only, back.truth_only), (0, scan.mesh_only));
        assert!(scan.figures.scores[1].precision < 0.99 && scan.figures.scores[1].recall > 0.999);
    }

    #[test]
    fn alignment_finds_turn_scale_and_shift() {
        let truth = torus([1.0, 0.4], [60, 30], |u, v| {
            1.0 + 0.15 * (2.0 * u).sin() + 0.1 * (u + 2.0 * v).cos()
        });
        let away = Similarity {
            scale: 1.04,
            rotation: about([0.6, 0.0, 0.8], 0.1),
            translation: [0.05, -0.04, 0.03],
        };
        let options = CompareOptions { alignment: Alignment::Icp, ..few() };
        let found = compare(&away.applied_to(&truth), &truth, &[], &options).unwrap();
        let back = found.alignment.unwrap();
        for place in [[1.0, 0.5, 0.0], [-1.0, 0.0, 0.3], [0.0, -1.0, -0.3]] {
            assert!(length(sub(back.of(away.of(place)), place)) < 1e-4, "{back:?}");
        }
        assert!(found.uniform.chamfer < 1e-4);
        // Rotations of a sphere are undetermined and stay as they are.
        let found =
            compare(&moved(sphere(1.1, 4), [0.1, 0.0, 0.0]), &sphere(1.0, 4), &[], &options);
        let back = found.unwrap().alignment.unwrap();
        assert!((back.scale * 1.1 - 1.0).abs() < 1e-3 && (back.rotation[0][0] - 1.0).abs() < 1e-2);
    }

    #[test]
    fn faces_that_pass_through_others_are_counted() {
        let apart = joined(cube(), &moved(cube(), [1.5, 0.0, 0.0]));
        let through = joined(cube(), &moved(cube(), [0.45, 0.4, 0.35]));
        let count = |mesh: &Mesh| self_crossings(&BoxTree::new(mesh).unwrap());
        assert_eq!(count(&apart), FaceCrossings { sampled: 24, crossing: 0 });
        assert!(count(&through).crossing >= 10, "{:?}", count(&through));
    }

    #[test]
    fn meshes_without_a_surface_are_refused() {
        let flat = mesh_of(&[[0.0; 3], [1.0, 0.0, 0.0]], &[[0, 1, 1]]);
        let broken = mesh_of(&[[0.0; 3]], &[[0, 0, 1]]);
        for (mesh, truth, threshold, expected) in [
            (cube(), flat, None, "the truth has no area in its 1 faces"),
            (Mesh::default(), cube(), None, "the mesh has no area"),
            (broken, cube(), None, "the mesh is no mesh: face 0 names vertex 1"),
            (cube(), cube(), Some(-1.0), "a threshold of -1"),
        ] {
            let options = CompareOptions { threshold, ..CompareOptions::default() };
            let error = compare(&mesh, &truth, &[], &options).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn figures_are_the_same_for_any_number_of_threads() {
        let truth = torus([1.0, 0.4], [40, 20], |u, v| 1.0 + 0.1 * (u + 2.0 * v).cos());
        let mesh = moved(truth.clone(), [0.03, 0.02, 0.01]);
        let cameras: Vec<Camera> = ring(4.0, 2);
        let samples = [5_000, 5_000];
        let options = CompareOptions { alignment: Alignment::Icp, samples, ..few() };
        same_on_any_threads(|| compare(&mesh, &truth, &cameras, &options).unwrap());
        assert_eq!(Similarity::IDENTITY.of([0.0; 3]), [0.0; 3]);
    }

    fn looking(from: Vec3, to: Vec3) -> Camera {
        known_meshes::looking(from, to, [300, 200], 250.0)
    }

    fn is_near(a: Vec3, b: Vec3) -> bool {
        length(sub(a, b)) < 1e-12
    }

    #[test]
    fn the_camera_between_two_stands_and_looks_between_them() {
        let target = [0.3, -0.2, 0.1];
        let a = looking([3.0, 0.0, 0.5], target);
        let half = half_way(&a, &a);
        assert!(
            is_near(half.centre(), [3.0, 0.0, 0.5]) && is_near(half.rotation[2], a.rotation[2])
        );
        let mut b = a;
        b.rotation = mat_mul(&about([0.0, 1.0, 0.0], 1.0), &a.rotation);
        b.translation = scale(mul(&b.rotation, [1.0, 2.0, 0.5]), -1.0);
        let half = half_way(&a, &b);
        assert!(is_near(half.centre(), [2.0, 1.0, 0.5]));
        let expected = mat_mul(&about([0.0, 1.0, 0.0], 0.5), &a.rotation);
        assert!((0..3).all(|row| is_near(half.rotation[row], expected[row])));
        // Opposite directions: some quarter turn, and still a rotation.
        b.rotation = mat_mul(&about([0.0, 1.0, 0.0], std::f64::consts::PI), &a.rotation);
        let half = half_way(&a, &b);
        assert!(dot(half.rotation[2], a.rotation[2]).abs() < 1e-9);
        assert!(is_near(cross(half.rotation[0], half.rotation[1]), half.rotation[2]));
    }

    #[test]
    fn rays_and_frames_agree() {
        let camera = looking([3.0, 1.0, 0.5], [0.0; 3]);
        let place = |px| add(camera.centre(), scale(direction(&camera, px), 2.5));
        assert!(frames(&camera, place([1.0, 199.0])) && frames(&camera, place([299.0, 1.0])));
        assert!(!frames(&camera, place([-1.0, 100.0])) && !frames(&camera, place([150.0, 201.0])));
        assert!(!frames(&camera, [6.0, 2.0, 1.0]));
        assert!(is_near(
            mul(&about([0.0, 0.0, 1.0], 0.5), [1.0, 0.0, 0.0]),
            [0.5_f64.cos(), 0.5_f64.sin(), 0.0]
        ));
    }

    #[test]
    fn each_pair_of_neighbours_is_named_once() {
        let at = |x: f64| looking([x, 0.0, 3.0], [x, 0.0, 0.0]);
        assert_eq!(neighbours(&[at(0.0), at(1.0), at(5.0), at(3.5)]), [[0, 1], [2, 3]]);
        assert!(neighbours(&[at(0.0)]).is_empty() && neighbours(&[]).is_empty());
    }
}
