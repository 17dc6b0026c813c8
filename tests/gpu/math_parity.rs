//! The kernels' mathematics against the host's: every device function with its twin.
//!
//! The twin in double precision is the truth. In single precision it shows the error that rounding
//! alone makes; the device may make four times as much (32 times in the worst of all calls), since it
//! contracts products and sums to one rounding and has its own exp and log, good to two units in the
//! last place.
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "numbers of a test are small"
)]

use std::fs;

use std::path::Path;

use Kind::{Exact, Real as Rounded};
use splat::abi::probe;
use splat::dataset::View;
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
use splat::math::{Real, compact, filter, relocate, sh, sigmoid, sigmoid_bwd};

use crate::common::scene::NEAR;
use crate::common::{Draws, view};

/// What a function's results are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Real numbers, which rounding changes.
    Real,
    /// Decisions and integers: those of single or of double precision.
    Exact,
}

/// A device function with its twin in both precisions.
struct Probe {
    /// Of the constant that chooses it.
    name: &'static str,
    /// The device function.
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
        PROBE_SH_BASIS sh_basis Rounded direction::<0>(), |v| sh::basis(degree(v), triple(v)).to_vec();
        PROBE_SH_BASIS_BWD sh_basis_bwd Rounded direction::<16>(), |v| sh::basis_bwd(degree(v), triple(v), &gradients(v)).to_vec();
        PROBE_PROJECTED_MEAN ellipse Rounded shapes::<0>(), |v| projected(v).mean_px.to_vec();
        PROBE_PROJECTED_DEPTH ellipse Rounded shapes::<0>(), |v| vec![projected(v).depth];
        PROBE_PROJECTED_COVARIANCE ellipse Rounded shapes::<0>(), |v| projected(v).cov_px2.to_vec();
        PROBE_PROJECTED_CONIC ellipse Rounded shapes::<0>(), |v| projected(v).conic.to_vec();
        PROBE_D_MEAN project_bwd Rounded shapes::<5>(), |v| projected_bwd(v).d_mean_world.to_vec();
        PROBE_D_LOG_SCALE project_bwd Rounded shapes::<5>(), |v| projected_bwd(v).d_log_scale.to_vec();
        PROBE_D_QUAT project_bwd Rounded shapes::<5>(), |v| projected_bwd(v).d_quat.to_vec();
        PROBE_BOUNDS bounds Exact ellipses(), |v| seen(v).map_or(vec![R::ZERO; 4], |seen| corners(seen.pixels));
        PROBE_BOUNDS_EXPONENT bounds Rounded ellipses(), |v| vec![seen(v).map_or(R::ZERO, |seen| seen.exponent_min)];
        PROBE_COLUMNS columns Exact bands(), |v| spanned(v);
        PROBE_ENCODE_HALF encode_half Exact rounding(), |v| word(compact::encode_half(v[0].to_f32(), bits(&v[1..])));
        PROBE_DECODE_HALF decode_half Exact words::<2>(), |v| vec![R::of_f32(compact::decode_half(bits(v), place(v[2])))];
        PROBE_ENCODE_BFLOAT encode_bfloat Exact rounding(), |v| word(compact::encode_bfloat(v[0].to_f32(), bits(&v[1..])));
        PROBE_DECODE_BFLOAT decode_bfloat Exact words::<2>(), |v| vec![R::of_f32(compact::decode_bfloat(bits(v), place(v[2])))];
        PROBE_WITH_HALF with_half Exact words::<2>(), |v| word(compact::with_half(bits(v), place(v[2]), bits(&v[3..])));
        PROBE_ENCODE_FIRST encode_first Exact rounding(), |v| word(compact::encode_first(v[0].to_f32(), bits(&v[1..])));
        PROBE_DECODE_FIRST decode_first Exact words::<4>(), |v| vec![R::of_f32(compact::decode_first(bits(v), place(v[2])))];
        PROBE_ENCODE_SECOND encode_second Exact sizes::<1>(), |v| word(compact::encode_second(v[0].to_f32(), bits(&v[1..])));
        PROBE_DECODE_SECOND decode_second Exact words::<4>(), |v| vec![R::of_f32(compact::decode_second(bits(v), place(v[2])))];
        PROBE_WITH_BYTE with_byte Exact words::<4>(), |v| word(compact::with_byte(bits(v), place(v[2]), bits(&v[3..])));
        PROBE_ROUNDED_SCALE rounded_scale Exact sizes::<0>(), |v| vec![R::of_f32(compact::rounded_scale(v[0].to_f32()))];
        PROBE_INVERSE_SCALE inverse_scale Exact sizes::<0>(), |v| vec![R::of_f32(compact::inverse_scale(v[0].to_f32()))];
        PROBE_HELD_QUOTIENT held_quotient Rounded moments(), |v| vec![compact::held_quotient(v[0], v[1])];
        PROBE_ROLL roll Exact words::<2>(), |v| word(third_roll(bits(v)));
        PROBE_DRAW_WEIGHT draw_weight Exact wide(), |v| word(u32::try_from(relocate::weight(v[0].to_f64())).unwrap());
        PROBE_SHARE share_of Rounded shares(), |v| shared(v);
        PROBE_KEPT_ON_SCREEN kept_on_screen Rounded widened(), |v| vec![filter::kept_on_screen(v[0], v[1])];
        PROBE_KEPT_ON_SCREEN_BWD kept_on_screen_bwd Rounded widened(), |v| filter::kept_on_screen_bwd(v[0], v[1], v[2]).to_vec();
        PROBE_SMOOTHED smoothed Rounded filtered(), |v| wide_and_kept(filter::smoothed(triple(v), v[3]));
        PROBE_SMOOTHED_BWD smoothed_bwd Rounded filtered(), |v| filter::smoothed_bwd(triple(v), v[3], triple(&v[4..]), v[7]).to_vec();
        PROBE_LOWERED_LOGIT lowered_logit Rounded lowered(), |v| vec![filter::lowered_logit(v[0], v[1], v[2])];
        PROBE_DENSITY density Rounded kernels::<3>(), |v| vec![field::density(&kernel(v), triple(&v[8..])).1];
        PROBE_DENSITY_BWD density_bwd Rounded kernels::<4>(), |v| dense_bwd(v);
        PROBE_SAMPLE_BWD sample_bwd Rounded kernels::<7>(), |v| sampled_bwd(v);
        PROBE_SURFACE_DENSITY surface_density Rounded layers(), |v| vec![field::surface_density(v[0], v[1])];
        PROBE_SURFACE_DENSITY_BWD surface_density_bwd Rounded layers(), |v| surface_bwd(v);
        PROBE_ALIGNED aligned Rounded any::<6>(), |v| turned(v);
        PROBE_NORMAL_WEIGHT normal_weight Rounded kernels::<4>(), |v| vec![field::normal_weight(&kernel(v), triple(&v[8..]), v[11])];
        PROBE_ENTROPY entropy Rounded logits::<0>(), |v| vec![field::entropy(v[0])];
        PROBE_ENTROPY_BWD entropy_bwd Rounded logits::<1>(), |v| vec![field::entropy_bwd(v[0], v[1])];
        PROBE_FACING_NORMAL facing_normal Rounded shapes::<0>(), |v| facing_normal(&viewpoint(), &shape(v)).to_vec();
        PROBE_FACING_NORMAL_BWD facing_normal_bwd Rounded shapes::<3>(), |v| facing_normal_bwd(&viewpoint(), &shape(v), triple(&v[10..])).to_vec();
        PROBE_BLENDED_NORMAL blended_normal Rounded components::<2>(), |v| blended_normal(pair(v)).to_vec();
        PROBE_BLENDED_NORMAL_BWD blended_normal_bwd Rounded components::<5>(), |v| blended_normal_bwd(pair(v), triple(&v[2..])).to_vec();
        PROBE_SLOPE slope Rounded depths(), |v| vec![slope(v[0], v[1], v[2]).unwrap_or(R::ZERO)];
        PROBE_SLOPE_BWD slope_bwd Rounded depths(), |v| slope_bwd(v[0], v[1], v[2], v[3]).to_vec();
        PROBE_SURFACE_NORMAL surface_normal Rounded components::<4>(), |v| surface_normal(pair(v), pair(&v[2..])).to_vec();
        PROBE_SURFACE_NORMAL_BWD surface_normal_bwd Rounded components::<7>(), |v| surface_normal_bwd(pair(v), pair(&v[2..]), triple(&v[4..])).to_vec();
    }
}

/// Those whose twins are methods of a stream.
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

#[test]
fn every_device_function_is_probed_or_reached_through_one_that_is() {
    let headers = [
        "fast",
        "linalg",
        "sh",
        "splat",
        "random",
        "tiles",
        "parts",
        "footprint",
        "lazy_adam",
        "fault",
        "compact",
        "relocate",
        "appearance",
        "field",
        "normals",
        "slopes",
        "lookup",
        "patches",
        "distortion",
        "triangle",
    ];
    let headers = headers.map(|name| format!("{name}.cuh"));
    let functions: Vec<(String, String)> =
        headers.iter().flat_map(|file| functions_of(file)).collect();
    assert!(functions.len() > 40, "the headers have moved: {functions:?}");
    let files = [
        "primitive.cuh",
        "gaussian.cuh",
        "project.cuh",
        "project.cu",
        "composite.cuh",
        "blend.cu",
        "blend_fwd.cuh",
        "blend_bwd.cuh",
        "adam.cuh",
        "adam.cu",
        "relocate.cu",
        "smooth.cu",
        "appearance.cu",
        "surface.cu",
        "normals.cu",
        "normal_map.cu",
        "patches.cu",
        "distortion.cu",
        "triangles.cu",
        "remesh.cu",
    ];
    let kernels: Vec<(String, String)> = files.iter().flat_map(|file| functions_of(file)).collect();
    let text = |name: &str| -> &str {
        let mut known = functions.iter().chain(&kernels);
        let found = known.find(|(function, _)| function == name);
        &found.unwrap_or_else(|| panic!("there is no {name}")).1
    };
    let probed: Vec<&str> = probes().iter().map(|probe| probe.function).chain(RANDOM).collect();
    for name in &probed {
        text(name);
    }
    for (function, caller) in REACHED_THROUGH {
        text(function);
        // What a text calls itself stands in its first line, too.
        assert!(
            caller != function && calls(text(caller), function),
            "{caller} calls no {function}"
        );
    }
    for (function, _) in &functions {
        let mut name = function.as_str();
        for _ in 0..REACHED_THROUGH.len() {
            let through = REACHED_THROUGH.iter().find(|(inner, _)| *inner == name);
            name = through.map_or(name, |(_, caller)| caller);
        }
        assert!(probed.contains(&name) || KERNELS.contains(&name), "{function} is not covered");
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
        let named = calls(line, function)
            || helpers.iter().any(|(name, text)| calls(line, name) && calls(text, function));
        assert!(named, "{name} calls no {function}");
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
    const EDGES: [f32; 12] = [
        0.0,
        -0.0,
        1.0,
        -1.0,
        1e-20,
        -1e-20,
        1e4,
        -1e4,
        1e-40,
        f32::INFINITY,
        f32::NEG_INFINITY,
        f32::NAN,
    ];
    let mut draws = Draws::new(u64::from(probe.number));
    let mut draw = || -> Vec<f32> {
        (probe.domain.draw)(&mut draws).into_iter().map(|value| value as f32).collect()
    };
    let mut rows: Vec<Vec<f32>> = (0..4000).map(|_| draw()).collect();
    for place in 0..probe.domain.free {
        for edge in EDGES {
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

/// Errors of results against the twin in double precision, as shares of the largest of a call's
/// results, in ascending order. Where the twin in single precision overflows or is no number, the
/// result must be neither finite.
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
    use splat::backend::cuda::{Cuda, CudaOptions};
    use splat::math::random::{RandomStream, RandomUse};
    use splat::memory::{Bytes, Limit};

    use super::{Exact, Probe, errors, inputs, probe, probes, view};
    use crate::common::cuda::open_with;
    use crate::common::oracle::settings;

    fn cuda() -> Cuda {
        let vram_limit = Some(Limit::Bytes(Bytes(2 << 30)));
        open_with(&CudaOptions { vram_limit, vram_threshold: 1.0, ..CudaOptions::default() })
            .expect("a CUDA device")
    }

    fn call(device: &mut Cuda, probe: &Probe, rows: &[Vec<f32>]) -> Vec<Vec<f32>> {
        let outputs = (probe.single)(&rows[0]).len();
        let call = ProbeFunction { function: probe.number, inputs: rows[0].len(), outputs };
        let results =
            device.probe(call, &view(), &settings(0, 0).settings(), &rows.concat()).unwrap();
        results.chunks(outputs).map(<[f32]>::to_vec).collect()
    }

    #[test]
    #[ignore = "needs a CUDA device"]
    fn every_function_is_its_twin_up_to_rounding() {
        let mut device = cuda();
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
        let mut device = cuda();
        let stream = RandomStream::new(7, 600, RandomUse::Split);
        let indices: Vec<u64> = (0..5000).chain([u64::from(u32::MAX) * 6, u64::MAX / 3]).collect();
        let inputs: Vec<f32> = indices
            .iter()
            .flat_map(|&index| [parts(stream.key()), parts(index)].concat())
            .collect();
        let mut draw = |function| -> Vec<u64> {
            let call = ProbeFunction { function, inputs: 8, outputs: 4 };
            device
                .probe(call, &view(), &settings(0, 0).settings(), &inputs)
                .unwrap()
                .chunks(4)
                .map(word)
                .collect()
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

/// How the inputs of one call are drawn.
struct Domain {
    draw: fn(&mut Draws) -> Vec<f64>,
    /// So many of the first inputs may be anything: zero, tiny, huge, infinite, NaN.
    free: usize,
}

fn any<const N: usize>() -> Domain {
    Domain { draw: |draws| normals(draws, N), free: N }
}

/// Logits up to where the sigmoid is 0 or 1.
fn wide() -> Domain {
    Domain { draw: |draws| vec![draws.uniform(-30.0, 30.0)], free: 1 }
}

/// A direction, a degree, and so many numbers.
fn direction<const N: usize>() -> Domain {
    let draw = |draws: &mut Draws| {
        let unit = normalize::<f64>(triple(&normals(draws, 3)));
        let degree = draws.uniform(0.0, 4.0).floor();
        [&unit[..], &[degree], &normals(draws, N)].concat()
    };
    Domain { draw, free: 3 }
}

/// Gaussians in front of the camera and behind, large and small, and so many numbers.
fn shapes<const N: usize>() -> Domain {
    let draw = |draws: &mut Draws| {
        let [x, y] = draws.array(-2.0, 2.0);
        let mean = [x, y, draws.uniform(-0.3, 6.0)];
        let log_scale: [f64; 3] = draws.array(-6.0, -0.5);
        [&mean[..], &log_scale, &normals(draws, 4), &normals(draws, N)].concat()
    };
    Domain { draw, free: 0 }
}

/// A Gaussian's log-scales, quaternion and opacity logit, and so many numbers.
fn kernels<const N: usize>() -> Domain {
    let draw = |draws: &mut Draws| {
        let log_scale: [f64; 3] = draws.array(-1.5, 0.5);
        let logit = draws.uniform(-5.0, 5.0);
        [&log_scale[..], &normals(draws, 4), &[logit], &normals(draws, N)].concat()
    };
    Domain { draw, free: 0 }
}

/// So many numbers that are components of vectors shorter than 1.
fn components<const N: usize>() -> Domain {
    Domain { draw: |draws| draws.array::<N>(-0.65, 0.65).to_vec(), free: 0 }
}

/// A focal length, two depths of which some are 0, and a gradient.
fn depths() -> Domain {
    let draw = |draws: &mut Draws| {
        let mut depth = || draws.uniform(-0.2, 3.0).max(0.0);
        let [before, behind] = [depth(), depth() + 1e-3];
        vec![draws.uniform(20.0, 900.0), before, behind, draws.uniform(-1.0, 1.0)]
    };
    Domain { draw, free: 0 }
}

/// A distance from a surface, its thickness, and a number.
fn layers() -> Domain {
    let draw = |draws: &mut Draws| {
        let distance = draws.uniform(-3.0, 3.0);
        [&[distance, draws.uniform(0.3, 2.0)][..], &normals(draws, 1)].concat()
    };
    Domain { draw, free: 0 }
}

/// Logits of opacities of which single precision tells how much lacks to 0 and to 1, and so many
/// numbers.
fn logits<const N: usize>() -> Domain {
    let draw = |draws: &mut Draws| [&[draws.uniform(-6.0, 6.0)][..], &normals(draws, N)].concat();
    Domain { draw, free: 0 }
}

/// Centre, variances and opacity, inside of the image and outside.
fn ellipses() -> Domain {
    let draw = |draws: &mut Draws| {
        let mean: [f64; 2] = draws.array(-30.0, 60.0);
        let variance: [f64; 2] = draws.array(0.3, 40.0);
        [&mean[..], &variance, &[draws.uniform(0.0, 1.0)]].concat()
    };
    Domain { draw, free: 0 }
}

/// Centre, conic, smallest exponent, and rows of pixels: y0, y1. Some conics are hyperbolas'.
fn bands() -> Domain {
    let draw = |draws: &mut Draws| {
        let mean: [f64; 2] = draws.array(-5.0, 40.0);
        let [a, b, c] = draws.array(0.05, 1.0);
        let conic = [a * a + 0.01, a * b - 0.5 * a, b * b + c * c + 0.01];
        let low = draws.uniform(0.0, 30.0).floor();
        let side = draws.uniform(1.0, 17.0).floor();
        [&mean[..], &conic, &[draws.uniform(-8.0, -1e-4), low, low + side]].concat()
    };
    Domain { draw, free: 0 }
}

/// Of any size that 16 bits come near, with random bits in two halves.
fn rounding() -> Domain {
    let draw = |draws: &mut Draws| {
        let size = 2.0_f64.powf(draws.uniform(-30.0, 18.0));
        let sign = if draws.uniform(0.0, 1.0) < 0.5 { -1.0 } else { 1.0 };
        [&[sign * size][..], &halves::<1>(draws)].concat()
    };
    Domain { draw, free: 1 }
}

/// Of any size from 0 on, with so many random words.
fn sizes<const N: usize>() -> Domain {
    let draw = |draws: &mut Draws| {
        let size = 2.0_f64.powf(draws.uniform(-130.0, 18.0));
        [&[size][..], &halves::<N>(draws)].concat()
    };
    Domain { draw, free: 0 }
}

/// A first moment, and a second down to below what counts.
fn moments() -> Domain {
    let draw = |draws: &mut Draws| {
        let second = draws.uniform(-110.0, 4.0).exp2();
        vec![draws.uniform(-10.0, 10.0) * second.sqrt(), second]
    };
    Domain { draw, free: 0 }
}

/// A logit, a number of copies, and the least opacity of a share.
fn shares() -> Domain {
    let draw = |draws: &mut Draws| {
        let copies = draws.uniform(1.0, 60.0).floor();
        vec![draws.uniform(-7.0, 20.0), copies, draws.uniform(0.0, 0.01)]
    };
    Domain { draw, free: 0 }
}

/// Determinants of a covariance that leaves nothing of a splat or more, before and after it is
/// widened, and a gradient.
fn widened() -> Domain {
    let draw = |draws: &mut Draws| {
        let det = 2.0_f64.powf(draws.uniform(-24.0, 20.0));
        let growth = 1.0 + 2.0_f64.powf(draws.uniform(-10.0, 10.0));
        vec![det, det * growth, draws.uniform(-2.0, 2.0)]
    };
    Domain { draw, free: 0 }
}

/// Scales and the standard deviation of a filter, finer or coarser or none, and four gradients.
fn filtered() -> Domain {
    let draw = |draws: &mut Draws| {
        let scales: [f64; 3] = draws.array(-20.0, 4.0).map(f64::exp2);
        let smoothing = 2.0_f64.powf(draws.uniform(-20.0, 4.0));
        let smoothing = if draws.uniform(0.0, 1.0) < 0.1 { 0.0 } else { smoothing };
        [&scales[..], &[smoothing], &normals(draws, 4)].concat()
    };
    Domain { draw, free: 0 }
}

/// A logit, the share of its opacity that is kept, and the ceiling of opacities.
fn lowered() -> Domain {
    let draw = |draws: &mut Draws| {
        vec![draws.uniform(-9.0, 9.0), draws.uniform(0.0, 1.0), draws.uniform(0.005, 0.02)]
    };
    Domain { draw, free: 0 }
}

/// A word in two halves, one of `PLACES` in it, and another word.
fn words<const PLACES: u32>() -> Domain {
    let draw = |draws: &mut Draws| {
        let place = draws.uniform(0.0, f64::from(PLACES)).floor();
        let [low, high, other_low, other_high] = halves_of(draws);
        vec![low, high, place, other_low, other_high]
    };
    Domain { draw, free: 0 }
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

/// Device functions that have no probe of their own, and who calls them: a function that is probed
/// or reached itself, or a kernel of [`KERNELS`].
const REACHED_THROUGH: &[(&str, &str)] = &[
    ("exact_opacity", "draw_weight"),
    ("is_dead", "draw_sources"),
    ("draw_place", "draw_sources"),
    ("catch_up_of", "step_color"),
    ("caught_up", "raw_color"),
    ("raw_color", "project_color"),
    ("project_color", "project_row"),
    ("step_color", "step_appearance"),
    ("step_all_coefficients", "step_color"),
    ("step_coefficients", "step_all_coefficients"),
    ("step_appearance", "step"),
    ("sh_gradient", "sh_basis_bwd"),
    ("sh_coefficients", "sh_basis_bwd"),
    ("step", "adam"),
    ("report_fault", "report_color"),
    ("report_color", "project_color"),
    ("step_geometry", "step_row"),
    ("step_row", "step"),
    ("bits_of_either", "signed_bits"),
    ("signed_bits", "half_bits"),
    ("half_bits", "encode_half"),
    ("first_bits", "encode_first"),
    ("first_code", "decode_first"),
    ("second_bits", "encode_second"),
    ("second_code", "decode_second"),
    ("fast_inverse_root", "held_quotient"),
    ("fast_saturated", "held_quotient"),
    ("project", "project_fwd"),
    ("normalized_quat", "rotation"),
    ("camera_rotation", "chain"),
    ("camera_from_world", "chain"),
    ("chain", "project_bwd"),
    ("in_front", "project_shape"),
    ("project_shape", "project_row"),
    ("remember_drift", "step"),
    ("project_row", "project"),
    ("covariance", "ellipse"),
    ("conic_bwd", "project_bwd"),
    ("axis_bwd", "project_bwd"),
    ("det_bwd", "project_bwd"),
    ("smoothed_axis_bwd", "smoothed_bwd"),
    ("normal_pair", "standard_normals"),
    ("standard_normals", "add_noise"),
    ("jitter", "add_noise"),
    ("add_noise", "step_geometry"),
    ("pixel_index", "span"),
    ("span", "bounds"),
    ("least_exponent", "bounds"),
    ("half_px2_at", "columns"),
    ("mix", "random_bits"),
    ("tiles_of", "project"),
    ("area", "for_each_row"),
    ("spans_of", "shared_query"),
    ("shared_query", "for_each_row"),
    ("reached_in_row", "for_each_row"),
    ("run_at", "for_each_row"),
    ("for_each_row", "project"),
    ("blend_tile", "blend_fwd"),
    ("part_of", "blend_tile"),
    ("reaches_part", "blend_tile"),
    ("in_pixel", "blend_tile"),
    ("peak_on_edge", "reaches_part"),
    ("fast_reciprocal", "peak_on_edge"),
    ("row_of", "blend_tile"),
    ("fast_log2", "row_of"),
    ("blend_part_bwd", "blend_chunk_bwd"),
    ("blend_chunk_bwd", "blend_bwd"),
    ("unseen_row", "blend_part_bwd"),
    ("accumulate_pixels", "blend_part_bwd"),
    ("note_of", "accumulate_pixels"),
    ("half_of_sums", "accumulate_splats"),
    ("weight_of", "half_of_sums"),
    ("both_halves", "accumulate_splats"),
    ("accumulate_splats", "blend_part_bwd"),
    ("pixel_alpha", "blend_tile"),
    ("opacity_power", "pixel_alpha"),
    ("fast_exp2", "pixel_alpha"),
    ("fast_sqrt", "columns"),
    ("along", "affine"),
    ("affine", "compensate_grid"),
    ("affine_bwd", "exposure_bwd"),
    ("place_of_pixel", "place_of"),
    ("place_of_luma", "place_of"),
    ("place_of", "compensate_grid"),
    ("first_pixel", "grid_bwd"),
    ("scaled_sum", "plane"),
    ("plane", "slice"),
    ("slice", "compensate_grid"),
    ("slice_bwd", "grid_bwd"),
    ("flat", "splat_features"),
    ("shortest_axis", "axis_cam"),
    ("along_axis", "axis_cam"),
    ("axis_cam", "facing_normal"),
    ("upright", "surface_normal"),
    ("has_slope", "pixel_normals"),
    ("is_smooth", "all_smooth"),
    ("all_smooth", "pixel_normals"),
    ("pixel_normals", "compare_normals"),
    ("square_of", "compare_normals"),
    ("is_inside", "compare_normals"),
    ("beside_of", "compare_normals"),
    ("depth_bwd", "compare_normals"),
    ("add_block_sum", "compare_normals"),
    ("has_four_beside", "pixel_normals"),
    ("slopes_of", "pixel_normals"),
    ("pixel_ray", "pixel_normals"),
    ("mapped_normal", "mapped_pixel"),
    ("mapped_pixel", "compare_normal_map"),
    ("variation_along", "total_variation_bwd"),
    ("total_variation_bwd", "gather_grid"),
    ("pick", "thickness"),
    ("thickness", "normal_weight"),
    ("add_to", "normal_bwd"),
    ("times", "sample_along"),
    ("thinnest", "density_kernel_of"),
    ("density_kernel_of", "load_density_kernel"),
    ("load_density_kernel", "take_samples"),
    ("inverse_scale_of", "density"),
    ("sample_along", "take_samples"),
    ("sample_offset", "take_samples"),
    ("add_outer", "density_bwd"),
    ("surface_thickness", "density_term"),
    ("surface_thickness_bwd", "density_term"),
    ("density_term", "take_samples"),
    ("sign", "aligned"),
    ("normal_of", "normal_term"),
    ("normal_weight_factor", "normal_term"),
    ("normal_bwd", "normal_term"),
    ("normal_term", "take_samples"),
    ("distance_root", "distance"),
    ("distance", "distance_error_of"),
    ("distance_bwd", "distance_error_of"),
    ("distance_error", "distance_error_of"),
    ("distance_error_bwd", "distance_error_of"),
    ("distance_error_of", "distance_term"),
    ("place_px", "look_at"),
    ("place_px_bwd", "look_bwd"),
    ("cell_along", "cell"),
    ("cell", "look_at"),
    ("between", "look_at"),
    ("look_at", "distance_term"),
    ("look_bwd", "distance_term"),
    ("distance_term", "take_samples"),
    ("cell_pixel", "depth_term"),
    ("cell_weight", "depth_term"),
    ("depth_term", "take_samples"),
    ("deviation_towards", "count_near"),
    ("is_near_surface", "count_near"),
    ("take_samples", "regularise_16"),
    ("distortion", "measure_distortion"),
    ("distortion_bwd", "measure_distortion"),
    ("place", "compare_patch"),
    ("place_bwd", "compare_patch"),
    ("ray", "faces"),
    ("faces", "compare_patch"),
    ("tilt", "compare_patch"),
    ("tilt_bwd", "inverse_depth_bwd"),
    ("inverse_depth", "compare_patch"),
    ("inverse_depth_bwd", "compare_patch"),
    ("grey", "bilinear"),
    ("bilinear", "compare_patch"),
    ("correlation", "compare_patch"),
    ("ncc_bwd", "compare_patch"),
    ("compare_patch", "compare_patches"),
    ("place_vertex", "place_vertices"),
    ("project_face", "project_faces"),
    ("face_corners", "project_face"),
    ("edge_between", "outline"),
    ("outline", "triangle"),
    ("smallest_opacity", "triangle"),
    ("triangle_of", "triangle"),
    ("triangle", "project_face"),
    ("least_opacity", "triangle_bwd"),
    ("values_bwd", "triangle_bwd"),
    ("places_bwd", "triangle_bwd"),
    ("distances_bwd", "triangle_bwd"),
    ("triangle_bwd", "faces_bwd"),
    ("middle", "cover"),
    ("cover", "project_face"),
    ("reach_px", "faces_bwd"),
    ("touched", "touched_pixels"),
    ("area", "add_face_areas"),
    ("log_size", "set_vertex_sizes"),
    ("touched_pixels", "face_corners"),
];

/// Kernels that the tests of whole renders and rounds, and of learned colours, compare with the host.
const KERNELS: &[&str] = &[
    "project_fwd",
    "blend_fwd",
    "blend_bwd",
    "adam",
    "draw_sources",
    "compensate_grid",
    "exposure_bwd",
    "grid_bwd",
    "gather_grid",
    "regularise_16",
    "count_near",
    "splat_features",
    "compare_normals",
    "compare_normal_map",
    "compare_patches",
    "measure_distortion",
    "place_vertices",
    "project_faces",
    "faces_bwd",
    "add_face_areas",
    "set_vertex_sizes",
];

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

/// True if a text calls a function: names the whole of it before a parenthesis or the arguments of a
/// template.
fn calls(text: &str, function: &str) -> bool {
    text.match_indices(function).any(|(at, _)| {
        let before = text[..at].chars().next_back();
        before.is_none_or(|before| !before.is_alphanumeric() && before != '_')
            && text[at + function.len()..].starts_with(['(', '<'])
    })
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
