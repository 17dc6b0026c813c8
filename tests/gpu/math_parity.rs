//! The kernels' mathematics against the host's: every device function with its twin.
//!
//! The twin in double precision is the truth. In single precision it shows the error that rounding alone makes; the
//! device may make four times as much (32 times in the worst of all calls), since it contracts products and sums to
//! one rounding and has its own exp and log, good to two units in the last place.
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "numbers of a test are small"
)]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use Kind::{Exact, Real as Rounded};
use splat::abi::probe;
use splat::math::field::{self, DensityKernel, DensityKernelGradient};
use splat::math::linalg::{
    Mat3, Quat, Sym2, Vec3, add, cross, dot, mat_mul, mul, mul_transposed, normalize,
    normalize_bwd, rotation, rotation_bwd, scale, sub, transpose,
};
use splat::math::normals::{
    blended_normal, blended_normal_bwd, facing_normal, facing_normal_bwd, slope, slope_bwd,
    surface_normal, surface_normal_bwd,
};
use splat::math::splat::{
    DILATION_PX2, Ellipse, EllipseGradient, Rect, Shape, ShapeGradient, Spans, Viewpoint, bounds,
    project, project_bwd,
};
use splat::math::{compact, filter, relocate, sh, sigmoid, sigmoid_bwd};

use crate::prelude::*;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Real numbers, which rounding changes.
    Real,
    /// Decisions and integers: those of single or of double precision.
    Exact,
}

/// A device function with its twin in both precisions.
struct Probe {
    name: &'static str,
    function: &'static str,
    number: u32,
    kind: Kind,
    domain: Domain,
    single: fn(&[f32]) -> Vec<f32>,
    double: fn(&[f64]) -> Vec<f64>,
}

macro_rules! probes {
    ($($number:ident $name:ident $kind:ident $domain:expr, |$v:ident| $value:expr;)+) => {
        vec![$({
            fn twin<R: Real>($v: &[R]) -> Vec<R> {
                $value
            }
            Probe {
                name: stringify!($number),
                function: stringify!($name),
                number: probe::$number,
                kind: $kind,
                domain: $domain,
                single: twin::<f32>,
                double: twin::<f64>,
            }
        }),+]
    };
}

#[rustfmt::skip]
fn probes() -> Vec<Probe> {
    probes! {
        PROBE_ADD add Rounded any::<6>(), |v| add(triple(v), triple(&v[3..])).to_vec();
        PROBE_SUB sub Rounded any::<6>(), |v| sub(triple(v), triple(&v[3..])).to_vec();
        PROBE_SCALE scale Rounded any::<4>(), |v| scale(triple(v), v[3]).to_vec();
        PROBE_DOT dot Rounded any::<6>(), |v| vec![dot(triple(v), triple(&v[3..]))];
        PROBE_CROSS cross Rounded any::<6>(), |v| cross(triple(v), triple(&v[3..])).to_vec();
        PROBE_NORMALIZE normalize Rounded any::<3>(), |v| normalize(triple(v)).to_vec();
        PROBE_NORMALIZE_BWD normalize_bwd Rounded any::<6>(), |v| normalize_bwd(triple(v), triple(&v[3..])).to_vec();
        PROBE_MUL mul Rounded any::<12>(), |v| mul(&matrix(v), triple(&v[9..])).to_vec();
        PROBE_MUL_TRANSPOSED mul_transposed Rounded any::<12>(), |v| mul_transposed(&matrix(v), triple(&v[9..])).to_vec();
        PROBE_MAT_MUL mat_mul Rounded any::<18>(), |v| mat_mul(&matrix(v), &matrix(&v[9..])).concat();
        PROBE_TRANSPOSE transpose Rounded any::<9>(), |v| transpose(&matrix(v)).concat();
        PROBE_ROTATION rotation Rounded any::<4>(), |v| rotation(quat(v)).concat();
        PROBE_ROTATION_BWD rotation_bwd Rounded any::<13>(), |v| rotation_bwd(quat(v), &matrix(&v[4..])).to_vec();
        PROBE_SIGMOID sigmoid Rounded wide(), |v| vec![sigmoid(v[0])];
        PROBE_SIGMOID_BWD sigmoid_bwd Rounded any::<2>(), |v| vec![sigmoid_bwd(v[0], v[1])];
        PROBE_SH_BASIS sh_basis Rounded Domain { draw: direction::<0>, free: 3 }, |v| sh::basis(degree(v), triple(v)).to_vec();
        PROBE_SH_BASIS_BWD sh_basis_bwd Rounded Domain { draw: direction::<16>, free: 3 }, |v| sh::basis_bwd(degree(v), triple(v), &gradients(v)).to_vec();
        PROBE_PROJECTED_MEAN ellipse Rounded held(shapes::<0>), |v| projected(v).mean_px.to_vec();
        PROBE_PROJECTED_DEPTH ellipse Rounded held(shapes::<0>), |v| vec![projected(v).depth];
        PROBE_PROJECTED_COVARIANCE ellipse Rounded held(shapes::<0>), |v| projected(v).cov_px2.to_vec();
        PROBE_PROJECTED_CONIC ellipse Rounded held(shapes::<0>), |v| projected(v).conic.to_vec();
        PROBE_D_MEAN project_bwd Rounded held(shapes::<5>), |v| projected_bwd(v).d_mean_world.to_vec();
        PROBE_D_LOG_SCALE project_bwd Rounded held(shapes::<5>), |v| projected_bwd(v).d_log_scale.to_vec();
        PROBE_D_QUAT project_bwd Rounded held(shapes::<5>), |v| projected_bwd(v).d_quat.to_vec();
        PROBE_BOUNDS bounds Exact held(ellipses), |v| seen(v).map_or(vec![R::ZERO; 4], |seen| corners(seen.pixels));
        PROBE_BOUNDS_EXPONENT bounds Rounded held(ellipses), |v| vec![seen(v).map_or(R::ZERO, |seen| seen.exponent_min)];
        PROBE_COLUMNS columns Exact held(bands), |v| spanned(v);
        PROBE_ENCODE_HALF encode_half Exact Domain { draw: rounding, free: 1 }, |v| word(compact::encode_half(v[0].to_f32(), bits(&v[1..])));
        PROBE_DECODE_HALF decode_half Exact held(words::<2>), |v| vec![R::of_f32(compact::decode_half(bits(v), place(v[2])))];
        PROBE_ENCODE_BFLOAT encode_bfloat Exact Domain { draw: rounding, free: 1 }, |v| word(compact::encode_bfloat(v[0].to_f32(), bits(&v[1..])));
        PROBE_DECODE_BFLOAT decode_bfloat Exact held(words::<2>), |v| vec![R::of_f32(compact::decode_bfloat(bits(v), place(v[2])))];
        PROBE_WITH_HALF with_half Exact held(words::<2>), |v| word(compact::with_half(bits(v), place(v[2]), bits(&v[3..])));
        PROBE_ENCODE_FIRST encode_first Exact Domain { draw: rounding, free: 1 }, |v| word(compact::encode_first(v[0].to_f32(), bits(&v[1..])));
        PROBE_DECODE_FIRST decode_first Exact held(words::<4>), |v| vec![R::of_f32(compact::decode_first(bits(v), place(v[2])))];
        PROBE_ENCODE_SECOND encode_second Exact held(sizes::<1>), |v| word(compact::encode_second(v[0].to_f32(), bits(&v[1..])));
        PROBE_DECODE_SECOND decode_second Exact held(words::<4>), |v| vec![R::of_f32(compact::decode_second(bits(v), place(v[2])))];
        PROBE_WITH_BYTE with_byte Exact held(words::<4>), |v| word(compact::with_byte(bits(v), place(v[2]), bits(&v[3..])));
        PROBE_ROUNDED_SCALE rounded_scale Exact held(sizes::<0>), |v| vec![R::of_f32(compact::rounded_scale(v[0].to_f32()))];
        PROBE_INVERSE_SCALE inverse_scale Exact held(sizes::<0>), |v| vec![R::of_f32(compact::inverse_scale(v[0].to_f32()))];
        PROBE_HELD_QUOTIENT held_quotient Rounded held(moments), |v| vec![compact::held_quotient(v[0], v[1])];
        PROBE_ROLL roll Exact held(words::<2>), |v| word(third_roll(bits(v)));
        PROBE_DRAW_WEIGHT draw_weight Exact wide(), |v| word(u32::try_from(relocate::weight(v[0].to_f64())).unwrap());
        PROBE_SHARE share_of Rounded held(shares), |v| shared(v);
        PROBE_KEPT_ON_SCREEN kept_on_screen Rounded held(widened), |v| vec![filter::kept_on_screen(v[0], v[1])];
        PROBE_KEPT_ON_SCREEN_BWD kept_on_screen_bwd Rounded held(widened), |v| filter::kept_on_screen_bwd(v[0], v[1], v[2]).to_vec();
        PROBE_SMOOTHED smoothed Rounded held(filtered), |v| wide_and_kept(filter::smoothed(triple(v), v[3]));
        PROBE_SMOOTHED_BWD smoothed_bwd Rounded held(filtered), |v| filter::smoothed_bwd(triple(v), v[3], triple(&v[4..]), v[7]).to_vec();
        PROBE_LOWERED_LOGIT lowered_logit Rounded held(lowered), |v| vec![filter::lowered_logit(v[0], v[1], v[2])];
        PROBE_DENSITY density Rounded held(kernels::<3>), |v| vec![field::density(&kernel(v), triple(&v[8..])).1];
        PROBE_DENSITY_BWD density_bwd Rounded held(kernels::<4>), |v| dense_bwd(v);
        PROBE_SAMPLE_BWD sample_bwd Rounded held(kernels::<7>), |v| sampled_bwd(v);
        PROBE_SURFACE_DENSITY surface_density Rounded held(layers), |v| vec![field::surface_density(v[0], v[1])];
        PROBE_SURFACE_DENSITY_BWD surface_density_bwd Rounded held(layers), |v| surface_bwd(v);
        PROBE_ALIGNED aligned Rounded any::<6>(), |v| turned(v);
        PROBE_NORMAL_WEIGHT normal_weight Rounded held(kernels::<4>), |v| vec![field::normal_weight(&kernel(v), triple(&v[8..]), v[11])];
        PROBE_ENTROPY entropy Rounded held(logits::<0>), |v| vec![field::entropy(v[0])];
        PROBE_ENTROPY_BWD entropy_bwd Rounded held(logits::<1>), |v| vec![field::entropy_bwd(v[0], v[1])];
        PROBE_FACING_NORMAL facing_normal Rounded held(shapes::<0>), |v| facing_normal(&viewpoint(), &shape(v)).to_vec();
        PROBE_FACING_NORMAL_BWD facing_normal_bwd Rounded held(shapes::<3>), |v| facing_normal_bwd(&viewpoint(), &shape(v), triple(&v[10..])).to_vec();
        PROBE_BLENDED_NORMAL blended_normal Rounded held(components::<2>), |v| blended_normal(pair(v)).to_vec();
        PROBE_BLENDED_NORMAL_BWD blended_normal_bwd Rounded held(components::<5>), |v| blended_normal_bwd(pair(v), triple(&v[2..])).to_vec();
        PROBE_SLOPE slope Rounded held(depths), |v| vec![slope(v[0], v[1], v[2]).unwrap_or(R::ZERO)];
        PROBE_SLOPE_BWD slope_bwd Rounded held(depths), |v| slope_bwd(v[0], v[1], v[2], v[3]).to_vec();
        PROBE_SURFACE_NORMAL surface_normal Rounded held(components::<4>), |v| surface_normal(pair(v), pair(&v[2..])).to_vec();
        PROBE_SURFACE_NORMAL_BWD surface_normal_bwd Rounded held(components::<7>), |v| surface_normal_bwd(pair(v), pair(&v[2..]), triple(&v[4..])).to_vec();
    }
}

/// Functions whose twins are methods of a stream.
const RANDOM: [&str; 3] = ["random_bits", "random_uniform", "random_normal"];

fn place<R: Real>(value: R) -> u32 {
    value.floor_i32().unsigned_abs()
}

fn bits<R: Real>(halves: &[R]) -> u32 {
    place(halves[0]) | place(halves[1]) << 16
}

fn word<R: Real>(word: u32) -> Vec<R> {
    [word & 0xffff, word >> 16].map(|half| R::of(f64::from(half))).to_vec()
}

fn third_roll(seed: u32) -> u32 {
    let mut dice = seed;
    compact::roll(&mut dice);
    compact::roll(&mut dice);
    compact::roll(&mut dice)
}

fn shared<R: Real>(v: &[R]) -> Vec<R> {
    let share = relocate::share(v[0].to_f64(), place(v[1]), v[2].to_f64());
    [share.logit, share.log_growth].map(R::of).to_vec()
}

fn wide_and_kept<R: Real>((wide, kept): (Vec3<R>, R)) -> Vec<R> {
    [&wide[..], &[kept]].concat()
}

fn triple<R: Real>(v: &[R]) -> Vec3<R> {
    [v[0], v[1], v[2]]
}

fn quat<R: Real>(v: &[R]) -> Quat<R> {
    [v[0], v[1], v[2], v[3]]
}

fn pair<R: Real>(v: &[R]) -> [R; 2] {
    [v[0], v[1]]
}

fn matrix<R: Real>(v: &[R]) -> Mat3<R> {
    [triple(v), triple(&v[3..]), triple(&v[6..])]
}

fn degree<R: Real>(v: &[R]) -> u32 {
    v[3].floor_i32().unsigned_abs()
}

fn gradients<R: Real>(v: &[R]) -> [R; sh::MAX_COEFFICIENTS] {
    std::array::from_fn(|k| v[4 + k])
}

fn shape<R: Real>(v: &[R]) -> Shape<R> {
    let (log_scale, quat) = (triple(&v[3..]), quat(&v[6..]));
    Shape { mean_world: triple(v), log_scale, quat, smoothing: R::ZERO }
}

fn viewpoint<R: Real>() -> Viewpoint<R> {
    let View { camera, pose, .. } = view();
    Viewpoint {
        rotation: pose.rotation.map(|row| row.map(R::of)),
        translation: pose.translation.map(R::of),
        centre_world: pose.centre_world().map(R::of),
        focal_px: camera.focal_px.map(R::of),
        centre_px: camera.centre_px.map(R::of),
        size: [camera.width, camera.height],
        near: R::of(NEAR),
        variance_px2: R::of(DILATION_PX2),
        compensates: false,
        cuts_sides: false,
    }
}

fn projected<R: Real>(v: &[R]) -> Ellipse<R> {
    let nothing = Ellipse {
        mean_px: [R::ZERO; 2],
        depth: R::ZERO,
        cov_px2: [R::ZERO; 3],
        conic: [R::ZERO; 3],
        kept: R::ZERO,
    };
    project(&viewpoint(), &shape(v)).unwrap_or(nothing)
}

fn projected_bwd<R: Real>(v: &[R]) -> ShapeGradient<R> {
    let nothing = ShapeGradient {
        d_mean_world: [R::ZERO; 3],
        d_log_scale: [R::ZERO; 3],
        d_quat: [R::ZERO; 4],
    };
    let d_ellipse = EllipseGradient {
        d_mean_px: [v[10], v[11]],
        d_conic: triple(&v[12..]),
        d_log_kept: R::ZERO,
        d_depth: R::ZERO,
    };
    let gradient = project_bwd(&viewpoint(), &shape(v), &d_ellipse);
    gradient.unwrap_or(nothing)
}

fn at<R: Real>(mean_px: [R; 2], cov_px2: Sym2<R>, conic: Sym2<R>) -> Ellipse<R> {
    Ellipse { mean_px, depth: R::ONE, cov_px2, conic, kept: R::ONE }
}

fn seen<R: Real>(v: &[R]) -> Option<splat::math::splat::Bounds<R>> {
    let ellipse = at([v[0], v[1]], [v[2], R::ZERO, v[3]], [R::ZERO; 3]);
    let camera = view().camera;
    bounds(&ellipse, v[4], [camera.width, camera.height])
}

fn corners<R: Real>(rect: Rect) -> Vec<R> {
    [rect.x0, rect.y0, rect.x1, rect.y1].map(|side| R::of(f64::from(side))).to_vec()
}

fn spanned<R: Real>(v: &[R]) -> Vec<R> {
    let side = |at: usize| v[at].floor_i32().unsigned_abs();
    let camera = view().camera;
    let ellipse = at([v[0], v[1]], [R::ZERO; 3], triple(&v[2..]));
    let spans = Spans::new(&ellipse, v[5], [camera.width, camera.height]);
    let columns = spans.columns(side(6)..side(7));
    let columns = if columns.is_empty() { 0..0 } else { columns };
    [columns.start, columns.end].map(|column| R::of(f64::from(column))).to_vec()
}

/// Files whose device functions must be covered, and other files that have kernels or call these functions.
const COVERED: &str = "fast.cuh linalg.cuh sh.cuh splat.cuh random.cuh tiles.cuh footprint.cuh state.cuh compact.cuh \
    field.cuh normals.cuh triangle.cuh appearance.cu normals.cu patches.cu depth.cu";
const CALLERS: &str = "primitive.cuh gaussian.cuh project.cuh project.cu blend.cuh blend.cu adam.cuh adam.cu \
    relocate.cu smooth.cu surface.cu triangles.cu";

/// Kernels that the tests of whole renders and steps, and of learned colours, compare with the host.
const KERNELS: &str = "project_fwd expect_rows blend_fwd blend_bwd adam draw_sources compensate_exposure \
    compensate_grid exposure_bwd grid_bwd gather_grid regularise_16 count_near splat_features compare_normals \
    compare_normal_map compare_patches measure_distortion place_vertices project_faces faces_bwd add_face_areas \
    set_vertex_sizes";

#[test]
fn every_device_function_is_probed_or_reached_through_one_that_is() {
    let mut functions: Vec<(String, String)> =
        COVERED.split_whitespace().flat_map(functions_of).collect();
    let count = functions.len();
    assert!(count > 40, "the files have moved: {functions:?}");
    functions.extend(CALLERS.split_whitespace().flat_map(functions_of));
    let probes = probes();
    let mut covered: Vec<&str> = probes.iter().map(|probe| probe.function).collect();
    covered.extend(RANDOM.into_iter().chain(KERNELS.split_whitespace()));
    for name in &covered {
        assert!(functions.iter().any(|(function, _)| function == *name), "there is no {name}");
    }
    let mut known: BTreeSet<&str> = covered.iter().copied().collect();
    while let Some(caller) = covered.pop() {
        for (_, text) in functions.iter().filter(|(name, _)| name == caller) {
            let calls = called(text);
            let reached = functions.iter().map(|(name, _)| name.as_str());
            covered.extend(reached.filter(|name| calls.contains(name) && known.insert(*name)));
        }
    }
    let of_device = functions[..count].iter().filter(|(_, text)| text.starts_with("__device__"));
    for (function, _) in of_device {
        assert!(known.contains(function.as_str()), "{function} is not covered");
    }
}

/// The kernel calls what the table says, itself or through a function of its file.
#[test]
fn every_probe_calls_the_function_that_it_names() {
    let helpers = functions_of("probe.cu");
    let (_, kernel) = helpers.iter().find(|(name, _)| name == "probe").unwrap();
    for Probe { name, function, .. } in probes() {
        let case = name.replacen("PROBE_", "PROBE(", 1) + ",";
        let line = kernel.lines().find(|line| line.contains(&case)).unwrap();
        let calls = called(line);
        let through = |(name, text): &(String, String)| {
            calls.contains(name.as_str()) && called(text).contains(function)
        };
        let is_called = calls.contains(function) || helpers.iter().any(through);
        assert!(is_called, "{name} calls no {function}");
    }
}

/// Without a device: what the probes are compared with is what they should be.
#[test]
fn the_twins_in_single_precision_are_near_those_in_double() {
    for probe in probes() {
        let rows = inputs(&probe);
        let single: Vec<Vec<f32>> = rows.iter().map(|row| (probe.single)(row)).collect();
        let error = errors(&probe, &rows, &single);
        // Half of all calls lose no more than a few digits of the seven. Decisions have no error.
        let median = error.get(error.len() / 2).copied().unwrap_or(0.0);
        assert!(median < 1e-5, "{}: {median}", probe.name);
    }
}

/// Inputs of many calls, as single-precision numbers.
fn inputs(probe: &Probe) -> Vec<Vec<f32>> {
    let edges = [0.0, -0.0, 1.0, -1.0, 1e-20, -1e-20, 1e4, -1e4, 1e-40];
    let edges = edges.into_iter().chain([f32::INFINITY, f32::NEG_INFINITY, f32::NAN]);
    let mut draws = Draws::new(u64::from(probe.number));
    let mut draw = || -> Vec<f32> {
        (probe.domain.draw)(&mut draws).into_iter().map(|value| value as f32).collect()
    };
    let mut rows: Vec<Vec<f32>> = (0..4000).map(|_| draw()).collect();
    for place in 0..probe.domain.free {
        for edge in edges.clone() {
            let mut row = draw();
            row[place] = edge;
            rows.push(row);
        }
    }
    let mut zeros = draw();
    zeros[..probe.domain.free].fill(0.0);
    rows.push(zeros);
    rows
}

/// Errors of results against the twin in double precision, as shares of the largest of a call's results, in ascending
/// order. Where the twin in single precision overflows or is no number, the result must be neither finite.
fn errors(probe: &Probe, rows: &[Vec<f32>], results: &[Vec<f32>]) -> Vec<f64> {
    let mut errors = Vec::new();
    for (row, found) in rows.iter().zip(results) {
        let wide: Vec<f64> = row.iter().map(|&value| f64::from(value)).collect();
        let (single, double) = ((probe.single)(row), (probe.double)(&wide));
        assert_eq!(found.len(), double.len(), "{}", probe.name);
        let finite = double.iter().filter(|value| value.is_finite());
        let largest = finite.fold(1e-30, |a: f64, value| a.max(value.abs()));
        for ((&found, &single), &double) in found.iter().zip(&single).zip(&double) {
            if !single.is_finite() || !double.is_finite() {
                let same = found.is_finite() == single.is_finite();
                assert!(same, "{} of {row:?}: {found}, not {single}", probe.name);
            } else if probe.kind == Exact {
                let same = found == single || f64::from(found) == double;
                assert!(same, "{} of {row:?}: {found}, not {double}", probe.name);
            } else {
                let error = (f64::from(found) - double).abs() / largest;
                assert!(!error.is_nan(), "{} of {row:?}: {found}, not {double}", probe.name);
                errors.push(error);
            }
        }
    }
    errors.sort_by(f64::total_cmp);
    errors
}

#[cfg(kernels)]
mod on_the_device {
    use splat::backend::cuda::probe::ProbeFunction;
    use splat::math::random::{RandomStream, RandomUse};
    use splat::memory::Limit;

    use super::*;

    fn open() -> Cuda {
        let vram_limit = Some(Limit::Bytes(Bytes(2 << 30)));
        let options = CudaOptions { vram_limit, vram_threshold: 1.0, ..CudaOptions::default() };
        cuda::open_with(&options).expect("a CUDA device")
    }

    fn probed(device: &mut Cuda, call: ProbeFunction, inputs: &[f32]) -> Vec<f32> {
        device.probe(call, &view(), &settings(0, 0).settings(), inputs).unwrap()
    }

    fn call(device: &mut Cuda, probe: &Probe, rows: &[Vec<f32>]) -> Vec<Vec<f32>> {
        let outputs = (probe.single)(&rows[0]).len();
        let call = ProbeFunction { function: probe.number, inputs: rows[0].len(), outputs };
        let results = probed(device, call, &rows.concat());
        results.chunks(outputs).map(<[f32]>::to_vec).collect()
    }

    #[test]
    #[ignore = "needs a CUDA device"]
    fn every_function_is_its_twin_up_to_rounding() {
        let mut device = open();
        for probe in probes() {
            let rows = inputs(&probe);
            let found = errors(&probe, &rows, &call(&mut device, &probe, &rows));
            if probe.kind == Exact {
                continue;
            }
            let single: Vec<Vec<f32>> = rows.iter().map(|row| (probe.single)(row)).collect();
            let floor = errors(&probe, &rows, &single);
            // Most calls, and the worst: where terms cancel, what is left is a matter of chance.
            for (share, factor) in [(50, 4.0), (90, 4.0), (99, 4.0), (100, 32.0)] {
                let place = (found.len() - 1) * share / 100;
                let (found, floor) = (found[place], floor[place.min(floor.len() - 1)]);
                let limit = factor * floor + 2.0 * f64::from(f32::EPSILON);
                assert!(found <= limit, "{} at {share} %: {found:.1e} > {limit:.1e}", probe.name);
            }
        }
    }

    /// Sixteen bits in each number.
    fn parts(word: u64) -> [f32; 4] {
        [0, 16, 32, 48].map(|shift| f32::from((word >> shift & 0xffff) as u16))
    }

    fn word(parts: &[f32]) -> u64 {
        parts.iter().rev().fold(0, |word, &part| word << 16 | part as u64)
    }

    #[test]
    #[ignore = "needs a CUDA device"]
    fn streams_of_random_numbers_are_the_hosts() {
        let mut device = open();
        let stream = RandomStream::new(7, 600, RandomUse::Split);
        let indices: Vec<u64> = (0..5000).chain([u64::from(u32::MAX) * 6, u64::MAX / 3]).collect();
        let inputs: Vec<f32> = indices
            .iter()
            .flat_map(|&index| [parts(stream.key()), parts(index)].concat())
            .collect();
        let mut draw = |function| -> Vec<u64> {
            let call = ProbeFunction { function, inputs: 8, outputs: 4 };
            probed(&mut device, call, &inputs).chunks(4).map(word).collect()
        };
        let bits = draw(probe::PROBE_RANDOM_BITS);
        let uniform = draw(probe::PROBE_RANDOM_UNIFORM);
        let normal = draw(probe::PROBE_RANDOM_NORMAL);
        for (i, &index) in indices.iter().enumerate() {
            assert_eq!(bits[i], stream.bits(index));
            assert_eq!(f64::from_bits(uniform[i]).to_bits(), stream.uniform(index).to_bits());
            // The host rounds 2 pi u, up to 6.3, before it takes the cosine; radii go to 8.6.
            let error = f64::from_bits(normal[i]) - stream.normal(index);
            assert!(error.abs() < 1e-14, "number {index} is off by {error}");
        }
    }
}

/// Domain of the inputs of one call.
struct Domain {
    draw: fn(&mut Draws) -> Vec<f64>,
    /// Number of the first inputs that may be anything: zero, tiny, huge, infinite, NaN.
    free: usize,
}

/// Inputs that must stay as they are drawn.
fn held(draw: fn(&mut Draws) -> Vec<f64>) -> Domain {
    Domain { draw, free: 0 }
}

fn any<const N: usize>() -> Domain {
    Domain { draw: |draws| normals(draws, N), free: N }
}

/// Logits up to where the sigmoid is 0 or 1.
fn wide() -> Domain {
    Domain { draw: |draws| vec![draws.uniform(-30.0, 30.0)], free: 1 }
}

/// A direction, a degree, and N numbers.
fn direction<const N: usize>(draws: &mut Draws) -> Vec<f64> {
    let unit = normalize::<f64>(triple(&normals(draws, 3)));
    let degree = draws.uniform(0.0, 4.0).floor();
    [&unit[..], &[degree], &normals(draws, N)].concat()
}

/// Gaussians in front of the camera and behind, large and small, and N numbers.
fn shapes<const N: usize>(draws: &mut Draws) -> Vec<f64> {
    let [x, y] = draws.array(-2.0, 2.0);
    let mean = [x, y, draws.uniform(-0.3, 6.0)];
    let log_scale: [f64; 3] = draws.array(-6.0, -0.5);
    [&mean[..], &log_scale, &normals(draws, 4), &normals(draws, N)].concat()
}

/// A Gaussian's log-scales, quaternion and opacity logit, and N numbers.
fn kernels<const N: usize>(draws: &mut Draws) -> Vec<f64> {
    let log_scale: [f64; 3] = draws.array(-1.5, 0.5);
    let logit = draws.uniform(-5.0, 5.0);
    [&log_scale[..], &normals(draws, 4), &[logit], &normals(draws, N)].concat()
}

/// N numbers that are components of vectors shorter than 1.
fn components<const N: usize>(draws: &mut Draws) -> Vec<f64> {
    draws.array::<N>(-0.65, 0.65).to_vec()
}

/// Returns a focal length, two depths (some are 0) and a gradient.
fn depths(draws: &mut Draws) -> Vec<f64> {
    let mut depth = || draws.uniform(-0.2, 3.0).max(0.0);
    let [before, behind] = [depth(), depth() + 1e-3];
    vec![draws.uniform(20.0, 900.0), before, behind, draws.uniform(-1.0, 1.0)]
}

/// A distance from a surface, its thickness, and a number.
fn layers(draws: &mut Draws) -> Vec<f64> {
    let distance = draws.uniform(-3.0, 3.0);
    [&[distance, draws.uniform(0.3, 2.0)][..], &normals(draws, 1)].concat()
}

/// Returns logits whose opacities single precision can tell from 0 and 1, and N numbers.
fn logits<const N: usize>(draws: &mut Draws) -> Vec<f64> {
    [&[draws.uniform(-6.0, 6.0)][..], &normals(draws, N)].concat()
}

/// Centre, variances and opacity, inside of the image and outside.
fn ellipses(draws: &mut Draws) -> Vec<f64> {
    let mean: [f64; 2] = draws.array(-30.0, 60.0);
    let variance: [f64; 2] = draws.array(0.3, 40.0);
    [&mean[..], &variance, &[draws.uniform(0.0, 1.0)]].concat()
}

/// Centre, conic, smallest exponent, and rows of pixels: y0, y1. Some conics are hyperbolas'.
fn bands(draws: &mut Draws) -> Vec<f64> {
    let mean: [f64; 2] = draws.array(-5.0, 40.0);
    let [a, b, c] = draws.array(0.05, 1.0);
    let conic = [a * a + 0.01, a * b - 0.5 * a, b * b + c * c + 0.01];
    let low = draws.uniform(0.0, 30.0).floor();
    let side = draws.uniform(1.0, 17.0).floor();
    [&mean[..], &conic, &[draws.uniform(-8.0, -1e-4), low, low + side]].concat()
}

/// A number of any size that 16 bits come near, with random bits in two halves.
fn rounding(draws: &mut Draws) -> Vec<f64> {
    let size = 2.0_f64.powf(draws.uniform(-30.0, 18.0));
    let sign = if draws.uniform(0.0, 1.0) < 0.5 { -1.0 } else { 1.0 };
    [&[sign * size][..], &halves::<1>(draws)].concat()
}

/// A number of any size from 0 on, with N random words.
fn sizes<const N: usize>(draws: &mut Draws) -> Vec<f64> {
    let size = 2.0_f64.powf(draws.uniform(-130.0, 18.0));
    [&[size][..], &halves::<N>(draws)].concat()
}

/// A first moment, and a second down to below what counts.
fn moments(draws: &mut Draws) -> Vec<f64> {
    let second = draws.uniform(-110.0, 4.0).exp2();
    vec![draws.uniform(-10.0, 10.0) * second.sqrt(), second]
}

/// A logit, a number of copies, and the least opacity of a share.
fn shares(draws: &mut Draws) -> Vec<f64> {
    let copies = draws.uniform(1.0, 60.0).floor();
    vec![draws.uniform(-7.0, 20.0), copies, draws.uniform(0.0, 0.01)]
}

/// Determinants of a covariance that leaves nothing of a splat or more, before and after it is
/// widened, and a gradient.
fn widened(draws: &mut Draws) -> Vec<f64> {
    let det = 2.0_f64.powf(draws.uniform(-24.0, 20.0));
    let growth = 1.0 + 2.0_f64.powf(draws.uniform(-10.0, 10.0));
    vec![det, det * growth, draws.uniform(-2.0, 2.0)]
}

/// Scales and the standard deviation of a filter, finer or coarser or none, and four gradients.
fn filtered(draws: &mut Draws) -> Vec<f64> {
    let scales: [f64; 3] = draws.array(-20.0, 4.0).map(f64::exp2);
    let smoothing = 2.0_f64.powf(draws.uniform(-20.0, 4.0));
    let smoothing = if draws.uniform(0.0, 1.0) < 0.1 { 0.0 } else { smoothing };
    [&scales[..], &[smoothing], &normals(draws, 4)].concat()
}

/// A logit, the share of its opacity that is kept, and the ceiling of opacities.
fn lowered(draws: &mut Draws) -> Vec<f64> {
    vec![draws.uniform(-9.0, 9.0), draws.uniform(0.0, 1.0), draws.uniform(0.005, 0.02)]
}

/// A word in two halves, one of `PLACES` in it, and another word.
fn words<const PLACES: u32>(draws: &mut Draws) -> Vec<f64> {
    let place = draws.uniform(0.0, f64::from(PLACES)).floor();
    let [low, high, other_low, other_high] = halves_of(draws);
    vec![low, high, place, other_low, other_high]
}

fn halves<const N: usize>(draws: &mut Draws) -> Vec<f64> {
    (0..N).flat_map(|_| halves_of::<2>(draws)).collect()
}

fn halves_of<const N: usize>(draws: &mut Draws) -> [f64; N] {
    draws.array::<N>(0.0, 65_536.0).map(f64::floor)
}

/// Standard normal numbers, by the sum of twelve uniform ones.
fn normals(draws: &mut Draws, count: usize) -> Vec<f64> {
    (0..count).map(|_| draws.array::<12>(-0.5, 0.5).iter().sum()).collect()
}

// The text of the kernels, to see which functions there are and what they call.

/// Device functions and kernels of a file of `kernels/`, with their text.
fn functions_of(file: &str) -> Vec<(String, String)> {
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("kernels").join(file));
    let text = text.unwrap();
    let mut functions = Vec::new();
    for (start, line) in text.match_indices('\n').map(|(end, _)| (end + 1, &text[end + 1..])) {
        let line = line.lines().next().unwrap_or("");
        let is_kernel = line.starts_with(' ')
            && line.contains("(const __grid_constant__")
            && !line.ends_with('\\');
        if !is_kernel && !line.starts_with("__device__ inline") {
            continue;
        }
        let name = line.split('(').next().unwrap().rsplit(' ').next().unwrap();
        let body = &text[start..];
        let end = if line.ends_with('}') { line.len() } else { body.find("\n}").unwrap() };
        functions.push((name.to_owned(), body[..end].to_owned()));
    }
    functions.extend(kernels_of_macros(&text));
    functions
}

/// Kernels that a macro makes, whose first argument is the name: `BLEND_BWD(blend_bwd, ..)`.
fn kernels_of_macros(text: &str) -> Vec<(String, String)> {
    let mut kernels = Vec::new();
    for (start, define) in text.match_indices("#define ") {
        let body = &text[start + define.len()..];
        let Some((name, _)) = body.split_once("(NAME,") else { continue };
        let lines = body.lines().scan(true, |goes_on, line| {
            let is_part = std::mem::replace(goes_on, line.ends_with('\\'));
            is_part.then_some(line)
        });
        let body = lines.collect::<Vec<_>>().join("\n");
        let rows = text.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix('('));
        let kernel = |row: &str| row.split(',').next().unwrap().to_owned();
        kernels.extend(rows.map(|row| (kernel(row), body.clone())));
    }
    kernels
}

/// Returns the names that stand before a parenthesis or the arguments of a template.
fn called(text: &str) -> BTreeSet<&str> {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    let name = |at: usize| text[..at].rsplit(|c: char| !is_part(c)).next();
    text.match_indices(['(', '<']).filter_map(|(at, _)| name(at)).collect()
}

fn kernel<R: Real>(v: &[R]) -> DensityKernel<R> {
    let (log_scale, quat) = (triple(v), quat(&v[3..]));
    let shape = Shape { mean_world: [R::ZERO; 3], log_scale, quat, smoothing: R::ZERO };
    DensityKernel::new(&shape, v[7])
}

fn flat<R: Real>(d: &DensityKernelGradient<R>) -> Vec<R> {
    [&d.d_mean_world[..], &d.d_log_scale, d.d_axes.as_flattened(), &[d.d_opacity_logit]].concat()
}

fn dense_bwd<R: Real>(v: &[R]) -> Vec<R> {
    let (kernel, offset, mut d) = (kernel(v), triple(&v[8..]), DensityKernelGradient::default());
    let (whitened, density) = field::density(&kernel, offset);
    d.d_mean_world = field::density_bwd(&kernel, offset, whitened, density, v[11], &mut d);
    flat(&d)
}

fn sampled_bwd<R: Real>(v: &[R]) -> Vec<R> {
    let mut d = DensityKernelGradient::default();
    field::sample_bwd(&kernel(v), triple(&v[8..]), triple(&v[11..]), v[14], &mut d);
    flat(&d)
}

fn surface_bwd<R: Real>(v: &[R]) -> Vec<R> {
    let target = field::surface_density(v[0], v[1]);
    field::surface_density_bwd(v[0], v[1], target, v[2]).to_vec()
}

fn turned<R: Real>(v: &[R]) -> Vec<R> {
    let (normal, side) = field::aligned(triple(v), triple(&v[3..]));
    [&normal[..], &[side]].concat()
}
