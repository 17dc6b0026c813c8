//! Triangles between shared vertices: gradients against differences, and drawn images against the definition.

use splat::backend::cpu::{Gradients, Model};
use splat::backend::{FaceStatistics, Window};
use splat::math::sh;

use crate::common::derivative_between_edges;
use crate::common::prelude::*;
use crate::common::scene::target;

mod definition;
mod mesh;

use self::definition::{by_definition, flattened};

#[derive(Clone)]
struct Soup {
    vertices: Gaussians,
    faces: Vec<[u32; 3]>,
}

const BACKGROUND: [f32; 3] = COLOURS.background;

const WINDOW: Window = Window { exponent: 0.6, opacity_floor: 0.2, strip_px: 0.0, ..Window::SOLID };

fn drawing(window: Window) -> DrawSettings {
    DrawSettings { footprint: Footprint::Triangle(window), inverse_depth: true, ..COLOURS }
}

fn terms() -> Terms {
    Terms::photometric(0.2).with(Term::InverseDepth, 0.4)
}

/// Returns vertices at these positions with this logit above the floor and this colour.
fn vertices(places: &[[f32; 3]], logit: f32, color: [f32; 3]) -> Gaussians {
    let mut vertices = Gaussians::zeros(3, places.len());
    vertices.means = places.as_flattened().to_vec();
    vertices.quats = [1.0, 0.0, 0.0, 0.0].repeat(places.len());
    vertices.opacity_logits = vec![logit; places.len()];
    vertices.sh_dc = color.map(|c| (c - 0.5) / sh::C0.to_f32()).repeat(places.len());
    vertices
}

/// Returns triangles that share vertices, each in three or more. The first vertex is behind the camera.
fn shared(seed: u64) -> Soup {
    let mut draws = Draws::new(seed);
    let mut vertices = nine(&mut draws, [0.0, 0.0]);
    for value in &mut vertices.sh_rest {
        *value = draws.uniform(-0.2, 0.2).to_f32();
    }
    let faces = [
        [0, 1, 2],
        [1, 2, 3],
        [3, 2, 4],
        [4, 5, 3],
        [5, 6, 4],
        [6, 7, 1],
        [7, 1, 5],
        [2, 6, 3],
        [7, 4, 2],
        [5, 1, 6],
    ];
    Soup { vertices, faces: faces.to_vec() }
}

fn upload<R: Real>(device: &mut Cpu<R>, soup: &Soup) -> Model<R> {
    let mut model = device.upload(&soup.vertices).unwrap();
    device.set_faces(&mut model, &soup.faces).unwrap();
    model
}

fn rendered(soup: &Soup, view: &View, window: Window) -> Rendered {
    let mut device = Cpu::<f64>::new();
    let model = upload(&mut device, soup);
    let shown = DrawSettings { pass: Pass::Eval, ..drawing(window) };
    let frame = device.show(&model, view, &shown).unwrap();
    device.image(&frame).unwrap()
}

fn trained(
    device: &mut Cpu<f64>,
    model: &mut Model<f64>,
    window: Window,
    terms: &Terms,
) -> Gradients<f64> {
    let (target, mut gradients) = (Arc::new(target(false)), Default::default());
    let drawing = drawing(window);
    device.add_view(model, (&view(), &drawing), (&target, terms), &mut gradients).unwrap();
    gradients
}

/// Compares all gradients with differences. Returns how many of each parameter were large enough.
fn compare(soup: &Soup, window: Window, terms: &Terms) -> [usize; 6] {
    let target = Arc::new(target(false));
    let mut device = Cpu::<f64>::new();
    let mut model = upload(&mut device, soup);
    let gradients = trained(&mut device, &mut model, window, terms);
    let mut compared = [0; 6];
    for row in 0..model.len() {
        let gradient = device.parameter_gradient(&model, &gradients, row);
        for (parameter, compared) in Parameter::ALL.into_iter().zip(&mut compared) {
            let width = model.column(parameter).width;
            // A loss of 0.5 has a rounding of 1e-16, 3e-10 after division by the narrowest step.
            let is_place = parameter == Parameter::Means;
            let floor = if is_place { 1e-3 } else { 3e-5 };
            for (k, &found) in gradient.row(parameter).iter().enumerate() {
                let at = row * width + k;
                let loss = |x| {
                    let mut moved = model.clone();
                    moved.column_mut(parameter).values[at] = x;
                    let frame = device.draw(&moved, &view(), &drawing(window)).unwrap();
                    let (_, loss) = device.compare(&moved, frame, &target, terms).unwrap();
                    loss.read().unwrap().total
                };
                let x = model.column(parameter).values[at];
                let expected = match is_place {
                    true => derivative_between_edges(x, loss),
                    false => derivative_between_cuts(x, loss),
                };
                let what = format!("vertex {row} {parameter:?}[{k}], {window:?}");
                assert_relative(found, expected, (1e-6, floor), &what);
                *compared += usize::from(expected.abs() > floor);
            }
        }
    }
    compared
}

#[test]
fn gradients_of_places_opacities_and_colours_agree_with_differences() {
    // Scenes in which no sample crosses an edge within a step.
    for (samples, exponent, seed) in [(1, 0.6, 10), (2, 1.0, 14), (4, 0.3, 16)] {
        let window = Window { samples, exponent, ..WINDOW };
        let compared = compare(&shared(seed), window, &terms());
        let [means, log_scales, quats, opacities, dc, rest] = compared;
        assert!(means > 12 && opacities > 2 && dc > 12 && rest > 100, "{compared:?}");
        assert_eq!((log_scales, quats), (0, 0));
    }
}

#[test]
fn gradients_of_normals_of_depths_agree_with_differences() {
    // A roof that covers the image.
    let places = [[-3.0, -3.0, 1.6], [3.0, -3.0, 1.9], [-3.0, 3.0, 2.2], [3.0, 3.0, 1.7]];
    let soup =
        Soup { vertices: vertices(&places, 3.0, [0.7; 3]), faces: vec![[0, 1, 2], [1, 3, 2]] };
    let terms = Terms::default().with(Term::NormalMap, 0.4);
    let compared = compare(&soup, WINDOW, &terms);
    assert!(compared[0] > 5, "{compared:?}");
}

/// Returns triangles of all sizes that share vertices at random, slivers and some behind the camera among them.
fn random(seed: u64) -> Soup {
    let mut draws = Draws::new(seed);
    let count = 60_u32;
    let mut soup = Soup { vertices: Gaussians::zeros(3, count as usize), faces: Vec::new() };
    for i in 0..count as usize {
        let depth = draws.uniform(-0.2, 3.0);
        let place = [draws.uniform(-0.8, 0.8) * depth, draws.uniform(-0.6, 0.6) * depth, depth];
        soup.vertices.means[i * 3..][..3].copy_from_slice(&place.map(f64::to_f32));
        soup.vertices.opacity_logits[i] = draws.uniform(-2.0, 4.0).to_f32();
        let color = draws.array::<3>(-1.0, 1.5).map(f64::to_f32);
        soup.vertices.sh_dc[i * 3..][..3].copy_from_slice(&color);
    }
    soup.vertices.sh_rest.iter_mut().for_each(|c| *c = draws.uniform(-0.1, 0.1).to_f32());
    for _ in 0..50 {
        let face = [0; 3].map(|_| u32::try_from(draws.uniform(0.0, 60.0).floor_i32()).unwrap());
        soup.faces.push(face);
    }
    soup
}

#[test]
fn a_view_shows_the_mean_of_its_samples_by_the_definition() {
    let solid = Window { exponent: 1e-4, opacity_floor: 0.9999, ..WINDOW };
    for (window, samples, seed) in
        [(WINDOW, 1, 1), (WINDOW, 2, 2), (solid, 4, 3), (solid, 1, 4), (WINDOW, 3, 5)]
    {
        let (window, soup) = (Window { samples, ..window }, random(seed));
        let mut device = Cpu::<f64>::new();
        let mut model = upload(&mut device, &soup);
        trained(&mut device, &mut model, window, &terms());
        let statistics = device.face_statistics(&model).unwrap();
        let drawn = rendered(&soup, &view(), window);
        let (inverse_depths, faces) =
            (drawn.inverse_depths.unwrap(), flattened(&soup, &view(), &window));
        let mut weights = vec![0.0; soup.faces.len()];
        for y in 0..drawn.height {
            for x in 0..drawn.width {
                let at = (y * drawn.width + x) as usize;
                let (color, inverse_depth) = by_definition(&faces, [x, y], &window, &mut weights);
                // Images have single precision.
                for (&found, expected) in drawn.rgb[at * 3..].iter().zip(color) {
                    assert!((f64::from(found) - expected).abs() < 1e-6, "{x} {y}");
                }
                let found = f64::from(inverse_depths[at]);
                assert!((found - inverse_depth).abs() < 1e-6 * (1.0 + inverse_depth), "{x} {y}");
            }
        }
        for (found, expected) in statistics.weights.iter().zip(&weights) {
            assert!((f64::from(*found) - expected).abs() < 1e-6, "{found} {expected}");
        }
        assert!(weights.iter().filter(|&&weight| weight > 0.1).count() > 5, "{weights:?}");
    }
}

#[test]
fn statistics_are_the_largest_of_all_observed_views() {
    let mut device = Cpu::<f64>::new();
    let soup = Soup {
        vertices: vertices(&[[-0.3, -0.2, 1.0], [0.3, -0.2, 1.0], [0.0, 0.4, 1.0]], 0.0, [0.7; 3]),
        faces: vec![[0, 1, 2], [0, 1, 1]],
    };
    let mut model = upload(&mut device, &soup);
    let zeros = FaceStatistics::zeros(2);
    assert_eq!(device.face_statistics(&model).unwrap(), zeros);
    let target = Arc::new(target(false));
    let mut seen = Vec::new();
    for (pass, back) in [(Pass::Train, 0.0), (Pass::Observe, 2.0), (Pass::Observe, 0.0)] {
        let mut view = straight();
        view.pose.translation[2] = back;
        let drawing = DrawSettings { pass, ..drawing(Window { exponent: 1e-4, ..WINDOW }) };
        let (drawn, mut gradients) = ((&view, &drawing), Default::default());
        device.add_view(&mut model, drawn, (&target, &terms()), &mut gradients).unwrap();
        seen.push(device.face_statistics(&model).unwrap());
    }
    assert_eq!(seen[0], zeros);
    // Focal lengths of 41 and 43 px; the middle is at a depth of 1 in the last view.
    let corner = |x: f32, y: f32| (x * 41.0).hypot(y * 43.0);
    let reach = corner(0.3, 0.2).max(corner(0.0, 0.4));
    for (statistics, share) in [(&seen[1], 1.0 / 3.0), (&seen[2], 1.0)] {
        assert!((statistics.reaches_px[0] - share * reach).abs() < 1e-4, "{statistics:?}");
        // Logit 0 above a floor of 0.2.
        assert!((statistics.weights[0] - 0.6).abs() < 1e-3, "{statistics:?}");
        assert_eq!((statistics.weights[1], statistics.reaches_px[1]), (0.0, 0.0));
    }
    let copy = model.clone();
    device.set_faces(&mut model, &soup.faces).unwrap();
    assert_eq!(device.face_statistics(&model).unwrap(), zeros);
    assert_eq!(device.face_statistics(&copy).unwrap(), seen[2]);
    device.set_face_statistics(&mut model, &seen[1]).unwrap();
    assert_eq!(device.face_statistics(&model).unwrap(), seen[1]);
}

#[test]
fn gradient_norms_are_summed_over_corners_and_views() {
    let mut device = Cpu::<f64>::new();
    let places = [[-0.3, -0.2, 1.0], [0.3, -0.2, 1.5], [0.0, 0.4, 2.0]];
    let faces = vec![[0, 1, 2], [0, 1, 1]];
    let soup = Soup { vertices: vertices(&places, 0.0, [0.7; 3]), faces };
    let mut model = upload(&mut device, &soup);
    let target = Arc::new(target(false));
    let drawing = DrawSettings { inverse_depth: false, ..drawing(WINDOW) };
    let terms = Terms::photometric(0.2);
    let mut shown = 0.0;
    for views in [1.0, 2.0] {
        let mut gradients = Default::default();
        let seen = (&straight(), &drawing);
        device.add_view(&mut model, seen, (&target, &terms), &mut gradients).unwrap();
        // Without directional colours a position only moves the image: by the focal lengths over the depth.
        let norm = |(row, &[.., z]): (usize, &[f32; 3])| {
            let gradient = device.parameter_gradient(&model, &gradients, row);
            let [d_x, d_y, _] = gradient.row(Parameter::Means) else { panic!("three of a place") };
            (d_x * f64::from(z) / 41.0).hypot(d_y * f64::from(z) / 43.0)
        };
        let expected = views * places.iter().enumerate().map(norm).sum::<f64>();
        let statistics = device.face_statistics(&model).unwrap();
        shown = f64::from(statistics.gradient_norms[0]);
        assert_eq!(statistics.gradient_norms[1], 0.0);
        assert!((shown - expected).abs() < 1e-6 * expected, "{shown} for {expected}");
    }
    assert!(shown > 1e-6, "{shown}");
}

#[test]
fn solid_triangles_that_share_an_edge_leave_no_crack() {
    let soup = Soup {
        vertices: vertices(
            &[[-1.01, -1.03, 1.0], [1.02, -0.97, 1.3], [0.99, 1.04, 1.1], [-0.98, 1.01, 0.9]],
            3.0,
            [1.0; 3],
        ),
        faces: vec![[0, 1, 2], [3, 0, 2]],
    };
    for samples in [1, 2, 4] {
        let drawn = rendered(&soup, &straight(), Window { samples, ..Window::SOLID });
        // Both cover the image; thousandths of the background are left.
        let least = drawn.rgb.iter().copied().fold(f32::INFINITY, f32::min);
        assert!(least > 0.995, "{least}");
    }
}

#[test]
fn huge_and_tiny_triangles_are_drawn() {
    let places = [
        // As large as many images, and another whose corner is behind the camera.
        [[-50.0, -60.0, 2.0], [70.0, -60.0, 2.0], [3.0, 80.0, 2.0]],
        [[-0.3, -0.2, 1.0], [0.3, -0.2, 1.0], [0.0, 0.4, -1.0]],
        // About a pixel large, narrower than a pixel, seen from its edge, and a point.
        [[0.001, 0.0, 1.0], [0.026, 0.002, 1.0], [0.01, 0.022, 1.0]],
        [[-0.4, -0.3, 1.0], [0.4, 0.301, 1.0], [0.4, 0.305, 1.0]],
        [[-0.2, 0.0, 1.0], [0.2, 0.0, 1.0], [0.0, 0.0, 2.0]],
        [[0.1, 0.1, 1.0], [0.1, 0.1, 1.0], [0.1, 0.1, 1.0]],
    ];
    let seen = [true, false, true, true, false, false];
    let window = Window { samples: 4, exponent: 0.3, opacity_floor: 0.5, ..WINDOW };
    let background = BACKGROUND;
    for (places, is_seen) in places.iter().zip(seen) {
        let soup = Soup { vertices: vertices(places, 0.4, [0.9; 3]), faces: vec![[0, 1, 2]] };
        let mut view = straight();
        // The principal point is not at a sample.
        view.camera.centre_px = [17.31, 15.93];
        let drawn = rendered(&soup, &view, window);
        let pixels = drawn.rgb.as_chunks::<3>().0;
        let differs = |pixel: &&[f32; 3]| (0..3).any(|c| pixel[c] != background[c]);
        assert_eq!(pixels.iter().any(|pixel| differs(&pixel)), is_seen, "{places:?}");
        let mut device = Cpu::<f64>::new();
        let mut model = upload(&mut device, &soup);
        let (target, mut gradients) = (Arc::new(target(false)), Default::default());
        let drawn = (&view, &drawing(window));
        device.add_view(&mut model, drawn, (&target, &terms()), &mut gradients).unwrap();
        let values = (0..3).flat_map(|row| {
            let gradient = device.parameter_gradient(&model, &gradients, row);
            Parameter::ALL.into_iter().flat_map(|p| gradient.row(p).to_vec()).collect::<Vec<_>>()
        });
        let values: Vec<f64> = values.collect();
        assert!(values.iter().all(|d| d.is_finite()), "{places:?}");
        assert_eq!(values.iter().any(|&d| d != 0.0), is_seen, "{places:?}");
    }
}
