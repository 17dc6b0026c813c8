//! Triangles: what every device draws of them, its steps, and what it does with meshes, against the CPU backend in
//! double precision.

use std::slice::from_ref;

use splat::backend::{FaceStatistics, Remesh, Window};
use splat::math::adam::RateBySize;
use splat::math::linalg::mul_transposed;
use splat::math::splat::{PlaceGradients, Vertex, place_vertex, triangle};
use splat::model::TriangleMesh;

use crate::common::scene::filtered_viewpoint;
use crate::prelude::*;

each_backend!(
    images_of_triangles_agree_with_the_oracle,
    steps_of_triangles_agree_with_the_oracle,
    a_step_of_triangles_goes_down_the_mean_gradient_of_its_views,
    triangles_that_are_hard_to_see_agree_with_the_oracle,
    what_views_show_of_triangles_agrees_with_the_oracle,
    meshes_change_as_the_oracle_changes_them,
    floors_rise_as_those_of_the_oracle,
    vertices_move_by_the_size_of_their_triangles,
    statistics_that_are_set_are_what_triangles_go_on_with,
    what_triangles_lack_is_refused,
);

const SIZES: [[u32; 2]; 5] = [[1, 1], [16, 16], [17, 33], [37, 29], [203, 47]];

/// A sample nearer than this to an edge, as a share of the way to it, may be on either side of it in single precision.
const EDGE_SHARE: f64 = 5e-3;

fn window(exponent: f64, samples: u32) -> Window {
    Window { exponent, opacity_floor: 0.1, samples, inradius_min_px: 0.02, ..Window::SOLID }
}

fn drawing(seed: u64, window: Window) -> DrawSettings {
    DrawSettings { footprint: Footprint::Triangle(window), ..settings(3, seed) }
}

/// Triangles before the common camera, of which every second shares an edge with the one before.
fn mesh(count: usize, seed: u64) -> TriangleMesh {
    let mut draws = Draws::new(seed + 50);
    let view = view();
    let mut means: Vec<f32> = Vec::new();
    let mut faces: Vec<[u32; 3]> = Vec::new();
    while faces.len() < count {
        let first = u32::try_from(means.len() / 3).unwrap();
        let depth = draws.uniform(1.0, 4.0);
        let [x, y] = draws.array::<2>(-0.45, 0.45).map(|slope| slope * depth);
        let size = draws.uniform(0.02, 0.5) * depth;
        for _ in 0..4 {
            let [a, b, c] = draws.array::<3>(-0.5, 0.5);
            let cam = [x + size * a, y + size * b, depth + 0.3 * size * c];
            let from_origin = [0, 1, 2].map(|k| cam[k] - view.pose.translation[k]);
            means.extend(mul_transposed(&view.pose.rotation, from_origin).map(f64::to_f32));
        }
        faces.push([first, first + 1, first + 2]);
        faces.push([first + 2, first + 1, first + 3]);
    }
    faces.truncate(count);
    let rows = means.len() / 3;
    let mut vertices = tame_gaussians(rows, seed, 3);
    vertices.means = means;
    vertices.quats = [1.0, 0.0, 0.0, 0.0].repeat(rows);
    vertices.log_scales = vec![0.0; rows * 3];
    TriangleMesh { vertices, faces }
}

fn upload<B: TrainDevice>(device: &mut B, mesh: &TriangleMesh) -> B::Model {
    let mut model = device.upload(&mesh.vertices).unwrap();
    device.set_faces(&mut model, &mesh.faces).unwrap();
    model
}

/// Pixels in which both precisions decide alike: none of their samples is next to an edge, next to the least opacity,
/// or next to being finished.
fn clear_pixels(mesh: &TriangleMesh, view: &View, drawing: &DrawSettings) -> Vec<bool> {
    let Footprint::Triangle(window) = drawing.footprint else { panic!("triangles are drawn") };
    let point = filtered_viewpoint(view, drawing.near, drawing.footprint);
    let mut seen: Vec<_> = mesh
        .faces
        .iter()
        .filter_map(|face| {
            let corner = |row: u32| {
                let row = row as usize;
                let world = [0, 1, 2].map(|k| f64::from(mesh.vertices.means[row * 3 + k]));
                let (px, inverse_depth) = place_vertex(&point, world)?;
                let logit = f64::from(mesh.vertices.opacity_logits[row]);
                let share = splat::math::sigmoid(logit);
                let opacity = window.opacity_floor + (1.0 - window.opacity_floor) * share;
                Some(Vertex { px, inverse_depth, opacity, color: [0.0; 3] })
            };
            let corners = [corner(face[0])?, corner(face[1])?, corner(face[2])?];
            let inverse: f64 = corners.iter().map(|corner| corner.inverse_depth).sum();
            Some((inverse, triangle(&corners, window.inradius_min_px)?))
        })
        .collect();
    seen.sort_by(|a, b| b.0.total_cmp(&a.0));
    let samples = window.samples;
    let offset = |k: u32| (f64::from(k) + 0.5) / f64::from(samples);
    let is_clear = |sample: [f64; 2]| {
        let mut light = 1.0_f64;
        for (_, triangle) in &seen {
            let from = [0, 1].map(|axis| sample[axis] - triangle.centre_px[axis]);
            let shares = triangle.slopes.map(|[x, y]| x * from[0] + y * from[1]);
            let mut ordered = shares;
            ordered.sort_by(f64::total_cmp);
            let (most, next) = (ordered[2], ordered[1]);
            if (most - 1.0).abs() < EDGE_SHARE * (1.0 + most.abs()) {
                return false;
            }
            let Some(hit) = triangle.hit(sample, window.exponent) else { continue };
            // Which edge is nearest decides whose gradient it is.
            let is_low = (hit.alpha * 255.0 - 1.0).abs() < 1e-2;
            let is_held = (hit.alpha - 0.999).abs() < 1e-4 && hit.alpha < 0.999;
            // So does on which side of a strip's border a sample is.
            let edge = shares.iter().position(|&share| share == most).unwrap_or(0);
            let [x, y] = triangle.slopes[edge];
            let strip = (window.strip_px * x.hypot(y)).min(1.0);
            let is_at_strip = (1.0 - most - strip).abs() < EDGE_SHARE * strip;
            let after = light * (1.0 - hit.alpha);
            if is_at_strip
                || most - next < EDGE_SHARE
                || is_low
                || is_held
                || (after - 1e-4).abs() < 1e-6
            {
                return false;
            }
            if after < 1e-4 {
                break;
            }
            light = after;
        }
        true
    };
    let [width, height] = [view.camera.width, view.camera.height];
    let of_pixel = |x: u32, y: u32| {
        (0..samples * samples).all(|k| {
            let sample = [k % samples, k / samples].map(offset);
            is_clear([f64::from(x) + sample[0], f64::from(y) + sample[1]])
        })
    };
    (0..height).flat_map(|y| (0..width).map(move |x| of_pixel(x, y))).collect()
}

fn assert_images_agree<B: TrainDevice>(
    device: &mut B,
    mesh: &TriangleMesh,
    (view, drawing): (&View, &DrawSettings),
    what: &str,
) -> usize {
    let [found, expected] = beside_oracle!(device, {
        let model = upload(device, mesh);
        drawn_either(device, &model, (view, drawing))
    });
    let clear = clear_pixels(mesh, view, drawing);
    let of = |rendered: &Rendered, pixel: usize| {
        let rgb = &rendered.rgb[pixel * 3..][..3];
        let inverse = rendered.inverse_depths.as_ref().map_or(0.0, |map| map[pixel]);
        [rgb[0], rgb[1], rgb[2], inverse]
    };
    let counted = clear.iter().enumerate().filter(|&(_, &clear)| clear);
    for (pixel, _) in counted.clone() {
        let (found, expected) = (of(&found, pixel), of(&expected, pixel));
        for k in 0..4 {
            let error = (found[k] - expected[k]).abs();
            // Rounding of places of up to hundreds of pixels, times slopes of colours.
            assert!(error < 1e-3, "{what}, pixel {pixel}: {found:?} for {expected:?}");
        }
    }
    counted.count()
}

fn images_of_triangles_agree_with_the_oracle<B: TrainDevice>(device: &mut B) {
    let (mut clear, mut all) = (0, 0);
    for (seed, size) in (1..).zip(SIZES) {
        let view = resized(&view(), size);
        for (exponent, samples) in [(1.0, 1), (0.3, 2), (1e-4, 4), (0.6, 3)] {
            for count in [0, 2, 30, 200] {
                let mesh = mesh(count, seed);
                let drawing = DrawSettings {
                    pass: Pass::Eval,
                    inverse_depth: true,
                    ..drawing(seed, window(exponent, samples))
                };
                let what = format!("{size:?} px, {count} triangles, {samples} samples");
                clear += assert_images_agree(device, &mesh, (&view, &drawing), &what);
                all += view.camera.pixels();
            }
        }
    }
    assert!(clear * 2 > all, "{clear} of {all} pixels tell");
}

/// A view whose photograph counts in the clear pixels, with inverse depths where they are drawn.
fn shot_of(mesh: &TriangleMesh, view: &View, drawing: DrawSettings) -> Shot {
    let clear = clear_pixels(mesh, view, &drawing);
    let mask = Some(clear.iter().map(|&clear| if clear { 255 } else { 0 }).collect());
    let mut shot = noisy_shot(0, view, drawing);
    let value = |i: usize| u16::try_from(i * 7919 % 65_536).unwrap();
    let values = || (0..view.camera.pixels()).map(value).collect();
    let depth = drawing.inverse_depth.then(|| InverseDepthMap {
        values: values(),
        scale: 1.0,
        offset: 0.0,
    });
    if depth.is_some() {
        shot.terms.add(Term::InverseDepth, 0.5);
    }
    Shot { photo: Arc::new(Image { mask, depth, ..Image::clone(&shot.photo) }), ..shot }
}

fn step<B: TrainDevice>(
    device: &mut B,
    mesh: &TriangleMesh,
    shots: &[Shot],
) -> (Snapshot<Gaussians>, FaceStatistics) {
    let mut model = upload(device, mesh);
    step_over(device, &mut model, shots, &AdamStep::new(1, RATES));
    let statistics = device.face_statistics(&model).unwrap();
    (device.snapshot(&mut model).unwrap(), statistics)
}

/// The gradients of one step. Those of one vertex that some unclear neighbour has to do with by SSIM's window may be
/// off by more than those of all.
fn assert_steps_agree<B: TrainDevice>(
    device: &mut B,
    mesh: &TriangleMesh,
    shots: &[Shot],
    what: &str,
) {
    let [(found, _), (expected, _)] = beside_oracle!(device, step(device, mesh, shots));
    let groups = gradients(&found).into_iter().zip(gradients(&expected));
    for ((name, _, found), (_, _, expected)) in groups {
        if matches!(name, "log_scales" | "quats") {
            assert!(found.iter().chain(&expected).all(|&d| d == 0.0), "{what}: {name} move");
            continue;
        }
        let error = relative_error(&found, &expected);
        assert!(error < 1e-3, "{what}: {name} is {error:.1e} off");
    }
}

/// No strip, one of a pixel and one that reaches to the middle, and what a run with `--reference-gradients` has.
const GRADIENTS: [(PlaceGradients, f64); 4] = [
    (PlaceGradients::All, 0.0),
    (PlaceGradients::All, 1.0),
    (PlaceGradients::All, 50.0),
    (PlaceGradients::EdgeDistances, 0.0),
];

fn steps_of_triangles_agree_with_the_oracle<B: TrainDevice>(device: &mut B) {
    for (seed, count) in (1..).zip([1, 8, 60, 200]) {
        for (exponent, samples) in [(1.0, 1), (0.5, 2), (0.05, 4), (1e-4, 3)] {
            for (gradients, strip_px) in GRADIENTS {
                let mesh = mesh(count, seed);
                let window = Window { strip_px, gradients, ..window(exponent, samples) };
                let inverse_depth = seed % 2 == 0;
                let drawing = DrawSettings { inverse_depth, ..drawing(seed, window) };
                let what = format!("{count} triangles, {window:?}");
                assert_steps_agree(device, &mesh, &[shot_of(&mesh, &view(), drawing)], &what);
            }
        }
    }
}

fn a_step_of_triangles_goes_down_the_mean_gradient_of_its_views<B: TrainDevice>(device: &mut B) {
    let mesh = mesh(70, 31);
    let aside = moved(&resized(&view(), [45, 23]), [0.4, -0.2, 0.5]);
    let (all, distances) = (PlaceGradients::All, PlaceGradients::EdgeDistances);
    for of_views in [[all, all], [distances, distances], [all, distances]] {
        let shot = |index: usize, view: &View| {
            let window = Window { gradients: of_views[index], ..window(0.7, 2) };
            Shot { index, ..shot_of(&mesh, view, drawing(5, window)) }
        };
        let shots = [shot(0, &view()), shot(1, &aside)];
        assert_steps_agree(device, &mesh, &shots, &format!("two views, {of_views:?}"));
    }
}

/// One triangle of these corners in camera axes, and a wall behind.
fn before_a_wall(corners: [[f64; 3]; 3]) -> TriangleMesh {
    let view = view();
    let wall = [[-30.0, -30.0, 9.0], [30.0, -30.0, 9.0], [0.0, 40.0, 9.0]];
    let world = |cam: [f64; 3]| {
        let from_origin = [0, 1, 2].map(|k| cam[k] - view.pose.translation[k]);
        mul_transposed(&view.pose.rotation, from_origin).map(f64::to_f32)
    };
    let mut vertices = tame_gaussians(6, 3, 3);
    vertices.means = corners.into_iter().chain(wall).flat_map(world).collect();
    vertices.opacity_logits = vec![1.5, 0.5, 1.0, 2.0, 2.5, 3.0];
    vertices.log_scales = vec![0.0; 18];
    vertices.quats = [1.0, 0.0, 0.0, 0.0].repeat(6);
    TriangleMesh { vertices, faces: vec![[0, 1, 2], [3, 4, 5]] }
}

fn triangles_that_are_hard_to_see_agree_with_the_oracle<B: TrainDevice>(device: &mut B) {
    let hard = [
        ("a sliver", [[-0.5, 0.0, 2.0], [0.5, 0.01, 2.0], [0.1, 0.02, 2.0]]),
        ("seen from its edge", [[-0.3, 0.0, 2.0], [0.3, 0.0, 2.0], [0.0, 0.0, 3.0]]),
        ("behind the camera", [[-0.3, 0.0, -2.0], [0.3, 0.1, -2.0], [0.0, 0.3, -2.0]]),
        ("reaching behind the camera", [[-0.3, 0.0, 2.0], [0.3, 0.1, 2.0], [0.0, 0.3, -2.0]]),
        ("a pixel large", [[0.0, 0.0, 2.0], [0.05, 0.0, 2.0], [0.02, 0.05, 2.0]]),
        ("larger than the image", [[-9.0, -9.0, 2.0], [9.0, -8.0, 2.2], [0.5, 11.0, 1.8]]),
        ("beside the image", [[4.0, 0.0, 2.0], [4.3, 0.1, 2.0], [4.1, 0.3, 2.0]]),
        ("a point", [[0.1, 0.1, 2.0]; 3]),
    ];
    for (seed, (what, corners)) in (1..).zip(hard) {
        let mesh = before_a_wall(corners);
        for samples in [1, 4] {
            let drawing = drawing(seed, window(0.8, samples));
            assert_images_agree(device, &mesh, (&view(), &drawing), what);
            let shots = [shot_of(&mesh, &view(), drawing)];
            let [(found, _), (expected, _)] = beside_oracle!(device, step(device, &mesh, &shots));
            let values = found.first_moments.means.iter().chain(&found.first_moments.sh_dc);
            assert!(values.clone().all(|d| d.is_finite()), "{what}: {values:?}");
            assert_gradients_agree(&found, &expected, (5e-3, what));
        }
    }
}

fn what_views_show_of_triangles_agrees_with_the_oracle<B: TrainDevice>(device: &mut B) {
    for samples in [1, 2] {
        let mesh = mesh(120, 7);
        let mut shots = [shot_of(&mesh, &view(), drawing(3, window(0.9, samples)))];
        let [(_, found), (_, expected)] = beside_oracle!(device, step(device, &mesh, &shots));
        assert!(expected.weights.iter().filter(|&&weight| weight > 0.1).count() > 20);
        let norms = &expected.gradient_norms;
        let largest = norms.iter().copied().fold(0.0, f32::max);
        assert!(norms.iter().filter(|&&norm| norm > 0.01 * largest).count() > 20);
        assert_near(&found.reaches_px, &expected.reaches_px, |reach| 1e-3 * reach, "reach");
        // A sample on an edge is of little weight at this exponent.
        assert_near(&found.weights, &expected.weights, |_| 0.02, "weight");
        // As gradients agree: relative to the largest.
        assert_near(&found.gradient_norms, norms, |_| 5e-3 * f64::from(largest), "norm");
        // A view that is not observed leaves no trace.
        shots[0].settings.pass = Pass::Train;
        let (_, found) = step(device, &mesh, &shots);
        assert_eq!(found, FaceStatistics::zeros(mesh.faces.len()));
    }
}

fn meshes_change_as_the_oracle_changes_them<B: TrainDevice>(device: &mut B) {
    let mesh = mesh(60, 11);
    let shot = shot_of(&mesh, &view(), drawing(3, window(0.9, 1)));
    let rows = u32::try_from(mesh.vertices.len()).unwrap();
    let kept: Vec<u32> = (0..rows).filter(|row| row % 5 != 2).collect();
    let midpoints: Vec<[u32; 2]> = (0..40).map(|i| [i, (i * 7 + 3) % rows]).collect();
    let most = u32::try_from(kept.len() + midpoints.len()).unwrap();
    let faces: Vec<[u32; 3]> = (0..50).map(|i| [i, i + 1, most - 1 - i]).collect();
    let change = Remesh { kept: &kept, midpoints: &midpoints, faces: &faces };
    let [found, expected] = beside_oracle!(device, {
        let mut model = upload(device, &mesh);
        step_over(device, &mut model, from_ref(&shot), &AdamStep::new(1, RATES));
        device.remesh(&mut model, &change).unwrap();
        assert_eq!(device.faces(&model), change.faces);
        let statistics = device.face_statistics(&model).unwrap();
        assert!(statistics.weights.iter().all(|&weight| weight == 0.0));
        assert_eq!(statistics.weights.len(), change.faces.len());
        device.snapshot(&mut model).unwrap()
    });
    let parts = |of: &Snapshot<Gaussians>| [of.parameters.clone(), of.first_moments.clone()];
    for (found, expected) in parts(&found).iter().zip(&parts(&expected)) {
        for (found, expected) in found.groups().iter().zip(expected.groups()) {
            // A first step moves by the sign of the gradient, whatever its size.
            let allowed = |value: f64| 2e-3 * value.abs().max(1.0);
            assert_near(found.values, expected.values, allowed, found.name);
        }
    }
    let mut model = upload(device, &mesh);
    device.remesh(&mut model, &Remesh { kept: &[0, 1], midpoints: &[], faces: &[] }).unwrap();
    let sizes = device.snapshot(&mut model).unwrap().parameters.log_scales;
    assert_eq!(sizes, [0.0; 6], "vertices of no triangle have no size");
    let stray = Remesh { kept: &[rows], midpoints: &[], faces: &[] };
    let mut model = upload(device, &mesh);
    let refused = device.remesh(&mut model, &stray);
    assert!(matches!(refused, Err(DeviceError::NoSuchRow { .. })));
    let refused = device.set_faces(&mut model, &[[0, 1, rows]]);
    assert!(matches!(refused, Err(DeviceError::NoSuchRow { .. })));
}

fn floors_rise_as_those_of_the_oracle<B: TrainDevice>(device: &mut B) {
    let mut mesh = mesh(8, 2);
    let rows = mesh.vertices.len();
    mesh.vertices.opacity_logits =
        (0..rows).map(|row| (row as f64 - 0.5 * rows as f64).to_f32()).collect();
    let [found, expected] = beside_oracle!(device, {
        let mut model = upload(device, &mesh);
        let rise = Adjust::RaiseOpacityFloor { before: 0.1, after: 0.4 };
        device.adjust(&mut model, &rise).unwrap();
        device.snapshot(&mut model).unwrap().parameters.opacity_logits
    });
    // Single precision has three digits of the distance of an opacity to the floor.
    assert_near(&found, &expected, |logit| 0.1 + 1e-3 * logit.abs(), "logit");
}

fn vertices_move_by_the_size_of_their_triangles<B: TrainDevice>(device: &mut B) {
    let mut mesh = mesh(60, 17);
    mesh.size_vertices();
    let shot = shot_of(&mesh, &view(), drawing(3, window(0.9, 1)));
    let mut moved = |by_size: Option<RateBySize>| -> Vec<f32> {
        let mut model = upload(device, &mesh);
        let step = AdamStep { by_size, ..AdamStep::new(1, RATES) };
        step_over(device, &mut model, from_ref(&shot), &step);
        let after = device.snapshot(&mut model).unwrap().parameters.means;
        after.iter().zip(&mesh.vertices.means).map(|(after, before)| after - before).collect()
    };
    let by_size = RateBySize { exponent: 0.5, unit: 0.3 };
    let (plain, found) = (moved(None), moved(Some(by_size)));
    let (mut compared, mut factors) = (0, Vec::new());
    for (row, (plain, found)) in plain.chunks(3).zip(found.chunks(3)).enumerate() {
        let size = f64::from(mesh.vertices.log_scales[3 * row]);
        let factor = by_size.factor([size; 3]);
        for (plain, found) in plain.iter().zip(found) {
            // Moves are differences of places of up to 4 units, whose last digits are 5e-7.
            let (plain, found) = (f64::from(*plain), f64::from(*found));
            assert!((found - factor * plain).abs() < 1e-6 * (1.0 + factor), "{found} {plain}");
            compared += usize::from((factor - 1.0).abs() > 0.1 && plain.abs() > 1e-4);
        }
        factors.push(factor);
    }
    factors.sort_by(f64::total_cmp);
    // Of 60 triangles most are seen, and all vertices of these move by about the rate.
    assert!(compared > 100 && factors[factors.len() - 1] > 2.0 * factors[0], "{compared}");
}

fn statistics_that_are_set_are_what_triangles_go_on_with<B: TrainDevice>(device: &mut B) {
    let mesh = mesh(40, 13);
    let mut model = upload(device, &mesh);
    let column = |k: f32| (0..40_u8).map(|i| k * f32::from(i)).collect();
    let statistics = FaceStatistics {
        weights: column(0.025),
        reaches_px: column(3.0),
        gradient_norms: column(1e-4),
    };
    device.set_face_statistics(&mut model, &statistics).unwrap();
    assert_eq!(device.face_statistics(&model).unwrap(), statistics);
    let refused = device.set_face_statistics(&mut model, &FaceStatistics::zeros(39));
    assert!(matches!(refused, Err(DeviceError::OtherFaces { found: 39, faces: 40 })));
    assert_eq!(device.face_statistics(&model).unwrap(), statistics);
}

fn what_triangles_lack_is_refused<B: TrainDevice>(device: &mut B) {
    let mesh = mesh(4, 1);
    let model = upload(device, &mesh);
    let drawing = DrawSettings { surface: true, ..drawing(1, window(1.0, 1)) };
    let Err(refused) = device.draw(&model, &view(), &drawing) else { panic!("maps are drawn") };
    let is_named = matches!(refused, DeviceError::Unsupported { primitives: "triangles", .. });
    assert!(is_named, "{refused}");
    // A model without triangles is an empty one.
    let bare = device.upload(&mesh.vertices).unwrap();
    let drawing = DrawSettings { surface: false, pass: Pass::Eval, ..drawing };
    let image = drawn_either(device, &bare, (&view(), &drawing));
    assert!(image.rgb.as_chunks().0.iter().all(|rgb| *rgb == drawing.background));
}

#[cfg(kernels)]
#[test]
#[ignore = "needs a CUDA device"]
fn triangles_in_bands_have_the_image_and_the_step_of_the_view_at_once() {
    let device = &mut cuda::open();
    let view = resized(&view(), [203, 147]);
    let mesh = mesh(150, 5);
    let drawn = |device: &mut Cuda, drawing: &DrawSettings, bands: BandPolicy| {
        device.set_bands(bands);
        let model = upload(device, &mesh);
        let frame = device.draw(&model, &view, drawing).unwrap();
        (device.image(&frame).unwrap(), frame.is_in_bands())
    };
    for samples in [1, 2, 4] {
        let drawing = DrawSettings { inverse_depth: true, ..drawing(4, window(0.5, samples)) };
        let (whole, in_bands) = drawn(device, &drawing, BandPolicy::Never);
        assert!(!in_bands);
        let shots = [shot_of(&mesh, &view, drawing)];
        let (expected, shown) = step(device, &mesh, &shots);
        for bands in [1, 2, u32::MAX] {
            let (image, in_bands) = drawn(device, &drawing, BandPolicy::AtLeast(bands));
            let what = format!("{samples} samples, {bands} bands");
            assert!(in_bands, "{what}");
            assert_eq!(image.rgb, whole.rgb, "{what}");
            assert_eq!(image.inverse_depths, whole.inverse_depths, "{what}");
            let (found, shown_in_bands) = step(device, &mesh, &shots);
            for (name, error) in gradient_errors(&found, &expected) {
                // Sums in another order.
                assert!(error < 1e-4, "{what}: {name} is {error:.1e} off");
            }
            assert_eq!(shown_in_bands.weights, shown.weights);
            assert_eq!(shown_in_bands.reaches_px, shown.reaches_px);
            let norms = [&shown_in_bands, &shown].map(|shown| wide(&shown.gradient_norms));
            assert!(relative_error(&norms[0], &norms[1]) < 1e-4, "{what}");
        }
        device.set_bands(BandPolicy::Never);
    }
}
