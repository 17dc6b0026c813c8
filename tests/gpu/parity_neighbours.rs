//! The nearest centres: every device finds those that looking at all of them finds, to the last row.

use std::collections::BTreeMap;

use proptest::prelude::*;
use rayon::prelude::*;
use splat::backend::{MOST_NEIGHBOURS, Store};
use splat::sog::{drawn_observations, with_device};
use splat_formats::{
    CameraSplit, CellLists, HostSearch, RowSearch as _, SceneCamera, SharedRows, SogOptions,
    SogTools, SplatColumns, Splats, read_sog, write_sog,
};

use crate::prelude::*;

each_backend!(
    clusters_with_duplicates_get_what_looking_at_all_centres_finds,
    sizes_around_those_of_leaves_and_nodes_are_no_exception,
    of_equal_distances_the_lower_row_comes_first,
    centres_that_coincide_have_the_lowest_rows_among_them,
    lines_planes_and_far_outliers_are_exact,
    centres_that_are_not_finite_have_only_themselves,
    distances_beyond_single_precision_come_by_their_rows,
    lists_are_as_long_as_asked_for_and_as_the_model_allows,
    lists_of_rows_that_there_are_not_are_errors,
    lists_know_when_rows_have_come_gone_or_changed_places,
);

type Point = [f32; 3];

fn model_of(points: &[Point]) -> Gaussians {
    let mut gaussians = Gaussians::zeros(0, points.len());
    gaussians.means = points.as_flattened().to_vec();
    gaussians
}

/// All lists, `[n, k]`.
fn found<B: TrainDevice>(device: &mut B, points: &[Point], count: u32) -> Vec<u32> {
    let model = device.upload(&model_of(points)).unwrap();
    let near = device.neighbours(&model, count).unwrap();
    device.read_neighbours(&near, 0..points.len()).unwrap()
}

/// The list of one row by looking at all centres.
fn listed(points: &[Point], row: usize, count: usize) -> Vec<u32> {
    let is_finite = |point: &Point| point.iter().all(|c| c.is_finite());
    let own = u32::try_from(row).unwrap();
    let from = points[row];
    let mut all: Vec<(f32, u32)> = if is_finite(&from) {
        let finite = (0..).zip(points).filter(|&(_, point)| is_finite(point));
        let distance = |p: &Point| {
            let [x, y, z] = [0, 1, 2].map(|axis| p[axis] - from[axis]);
            x * x + y * y + z * z
        };
        finite.map(|(other, point)| (distance(point), other)).collect()
    } else {
        Vec::new()
    };
    let order = |a: &(f32, u32), b: &(f32, u32)| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1));
    if all.len() > count {
        all.select_nth_unstable_by(count, order);
        all.truncate(count);
    }
    all.sort_unstable_by(order);
    let mut list: Vec<u32> = all.into_iter().map(|(_, row)| row).collect();
    list.resize(count, own);
    list
}

/// Every `stride`th row's list is the one that looking at all centres finds.
fn assert_exact(lists: &[u32], points: &[Point], count: usize, stride: usize) {
    assert_eq!(lists.len(), points.len() * count);
    (0..points.len()).into_par_iter().step_by(stride).for_each(|row| {
        let list = &lists[row * count..][..count];
        assert_eq!(list, listed(points, row, count), "row {row} at {:?}", points[row]);
    });
}

fn in_box(draws: &mut Draws, half: f64) -> Point {
    draws.array::<3>(-half, half).map(f64::to_f32)
}

/// Clusters of all sizes around centres drawn in a cube, with every 20th centre one that has been before.
fn clustered(count: usize, seed: u64) -> Vec<Point> {
    let mut draws = Draws::new(seed);
    let clusters: Vec<(Point, f64)> = (0..60)
        .map(|_| (in_box(&mut draws, 10.0), 10.0_f64.powf(draws.uniform(-6.0, 0.7))))
        .collect();
    let mut points: Vec<Point> = Vec::with_capacity(count);
    for i in 0..count {
        let point = if i % 20 == 19 {
            points[i / 3]
        } else {
            let (centre, spread) = clusters[i * 7919 % clusters.len()];
            let offset = in_box(&mut draws, spread);
            [0, 1, 2].map(|axis| centre[axis] + offset[axis])
        };
        points.push(point);
    }
    points
}

fn clusters_with_duplicates_get_what_looking_at_all_centres_finds<B: TrainDevice>(device: &mut B) {
    let points = clustered(100_000, 3);
    assert_exact(&found(device, &points, 16), &points, 16, 41);
}

fn sizes_around_those_of_leaves_and_nodes_are_no_exception<B: TrainDevice>(device: &mut B) {
    for len in [1, 2, 3, 31, 32, 33, 63, 64, 65, 500, 1023, 1024, 1025, 2050, 32_767, 32_800] {
        let points = clustered(len, 7 + len as u64);
        for count in [1, 16, 17, 32] {
            let lists = found(device, &points, count);
            assert_exact(&lists, &points, len.min(count as usize), 1 + len / 200);
        }
    }
}

fn of_equal_distances_the_lower_row_comes_first<B: TrainDevice>(device: &mut B) {
    // A grid in an order of its own: 24 · 25 · 26 centres with 6, 18, 26 at equal distances.
    let (len, step) = (15_600_usize, 7_001);
    let points: Vec<Point> = (0..len)
        .map(|i| i * step % len)
        .map(|i| [i % 24, i / 24 % 25, i / 600].map(|c| c as f32))
        .collect();
    for count in [7, 20, 27] {
        assert_exact(&found(device, &points, count), &points, count as usize, 29);
    }
}

fn centres_that_coincide_have_the_lowest_rows_among_them<B: TrainDevice>(device: &mut B) {
    let all_alike = vec![[1.5, -2.5, 0.1]; 100_000];
    let lists = found(device, &all_alike, 16);
    let lowest: Vec<u32> = (0..16).collect();
    assert!(lists.chunks(16).all(|list| list == lowest));
    // In one place every third, the others around it.
    let mut draws = Draws::new(5);
    let points: Vec<Point> =
        (0..60_000).map(|i| if i % 3 == 0 { [0.25; 3] } else { in_box(&mut draws, 1.0) }).collect();
    assert_exact(&found(device, &points, 12), &points, 12, 97);
}

fn lines_planes_and_far_outliers_are_exact<B: TrainDevice>(device: &mut B) {
    let mut draws = Draws::new(11);
    let mut points: Vec<Point> = Vec::new();
    for _ in 0..8000 {
        let [u, v, w] = draws.array::<3>(0.0, 1.0).map(f64::to_f32);
        // A line along no axis, a plane along two, a tilted one.
        points.extend([[u, 2.0 * u + 1.0, -u], [v, w, 3.0], [v - w, w, u * 1e-4 + v]]);
    }
    // Each ten times as far as the one before, to both sides.
    for exponent in 0..16 {
        let far = 10_f32.powi(exponent);
        points.extend([[far, 0.0, 1.0], [-far, far, -far]]);
    }
    assert_exact(&found(device, &points, 16), &points, 16, 31);
    let last = points.len() - 1;
    let list = found(device, &points[last - 31..], 32);
    assert_exact(&list, &points[last - 31..], 32, 1);
}

fn centres_that_are_not_finite_have_only_themselves<B: TrainDevice>(device: &mut B) {
    let mut points = clustered(5000, 13);
    for (row, value) in
        [(0, f32::NAN), (31, f32::INFINITY), (32, f32::NEG_INFINITY), (4999, -f32::NAN)]
    {
        points[row][row % 3] = value;
    }
    points[100..180].fill([f32::NAN; 3]);
    let lists = found(device, &points, 16);
    assert_exact(&lists, &points, 16, 1);
    assert_eq!(lists[31 * 16..32 * 16], [31; 16]);
    // Fewer finite ones than the lists are long, and none.
    let few: Vec<Point> = points[20..34].to_vec();
    assert_exact(&found(device, &few, 16), &few, 14, 1);
    let rare: Vec<Point> = points[99..182].to_vec();
    assert_exact(&found(device, &rare, 16), &rare, 16, 1);
    let none = [[f32::INFINITY; 3]; 40];
    assert_exact(&found(device, &none, 32), &none, 32, 1);
}

fn distances_beyond_single_precision_come_by_their_rows<B: TrainDevice>(device: &mut B) {
    // The squares of 1e30 are infinite, and those of 1e-23 are below the least normal number.
    let points: Vec<Point> = (0..200_u16)
        .map(|i| {
            let scale = [1e-23, 1.0, 1e30][usize::from(i) % 3];
            [f32::from(i) * scale, f32::from(i * 7 % 13) * scale, -scale]
        })
        .collect();
    assert_exact(&found(device, &points, 32), &points, 32, 1);
    let edges: Vec<Point> = (0..70_u16)
        .map(|i| [0, 1, 2].map(|axis| if i >> axis & 1 == 0 { f32::MAX } else { f32::MIN }))
        .collect();
    assert_exact(&found(device, &edges, 16), &edges, 16, 1);
}

fn lists_are_as_long_as_asked_for_and_as_the_model_allows<B: TrainDevice>(device: &mut B) {
    assert!(found(device, &[], 16).is_empty());
    let points = clustered(20, 17);
    assert_eq!(found(device, &points, 16).len(), 20 * 16);
    assert_eq!(found(device, &points, 32).len(), 20 * 20);
    let model = device.upload(&model_of(&points)).unwrap();
    for count in [0, MOST_NEIGHBOURS + 1] {
        let error = device.neighbours(&model, count).err().unwrap();
        let DeviceError::NeighbourCount { count: reported } = error else { panic!("{error}") };
        assert_eq!(reported, count);
    }
    // A part of the rows.
    let near = device.neighbours(&model, 5).unwrap();
    let all = device.read_neighbours(&near, 0..20).unwrap();
    assert_eq!(device.read_neighbours(&near, 7..9).unwrap(), all[7 * 5..9 * 5]);
    assert!(device.read_neighbours(&near, 20..20).unwrap().is_empty());
}

fn lists_of_rows_that_there_are_not_are_errors<B: TrainDevice>(device: &mut B) {
    let points = clustered(20, 19);
    let model = device.upload(&model_of(&points)).unwrap();
    let near = device.neighbours(&model, 5).unwrap();
    let error = device.read_neighbours(&near, 18..21).unwrap_err();
    assert!(matches!(error, DeviceError::NoSuchRow { row: 20, len: 20 }));
}

/// 40 Gaussians in the view, of which the last 8 are nearly transparent.
fn some_dying() -> Gaussians {
    let mut draws = Draws::new(23);
    let parts: Vec<Gaussians> = (0..40)
        .map(|row| {
            let [x, y, z] = draws.array::<3>(-0.2, 0.2).map(f64::to_f32);
            let opacity = if row < 32 { 0.6 } else { 0.006 };
            gaussian([x, y, 1.0 + z], 0.05, opacity, [0.5; 3])
        })
        .collect();
    together(&parts)
}

const DENSITY: SurfaceRule =
    SurfaceRule { entropy: 0.0, density: 1.0, normal: 0.0, samples: 100, ..SurfaceRule::UNEQUAL };

const NOTHING: SurfaceRule = SurfaceRule { density: 0.0, ..DENSITY };

/// True if the surface terms of a view refuse these lists for another generation's, after a step.
fn is_stale<B: TrainDevice>(device: &mut B, model: &mut B::Model, near: &B::Lists) -> bool {
    let view = straight();
    let mut gradients = Default::default();
    let (len, requested) = (device.len(model), (Some(near), &DENSITY));
    let stale = match add_rule(device, model, (&view, None), requested, &mut gradients) {
        Ok(_) => false,
        Err(DeviceError::StaleNeighbours { found: 40, len: reported }) if reported == len => true,
        Err(error) => panic!("{error}"),
    };
    let mut gradients = Default::default();
    add_rule(device, model, (&view, None), (None, &NOTHING), &mut gradients).unwrap();
    device.step(model, gradients, &AdamStep::new(1, AT_REST)).unwrap();
    stale
}

/// Nothing of opacity above 0.01 is removed, and nothing grows.
const DENSIFY: DensifyRule =
    DensifyRule { gradient_min: 1e9, small_max: 1.0, opacity_min: 0.01, ..DensifyRule::ALL };

type Change<B> = fn(&mut B, &mut <B as Store<Gaussians>>::Model);

fn lists_know_when_rows_have_come_gone_or_changed_places<B: TrainDevice>(device: &mut B) {
    const RELOCATE: RelocateRule = RelocateRule { opacity_min: 0.01, seed: 3, iteration: 600 };
    const IDLE: DensifyRule = DensifyRule { opacity_min: 0.0, ..DENSIFY };
    const CUBE: Cube = Cube { centre: [0.0, 0.0, 1.0], half_side: 1.0 };
    let changes: [(&str, bool, usize, Change<B>); 10] = [
        ("a step", false, 40, |_, _| {}),
        ("a round of nothing", false, 40, |device, model| {
            densify(device, model, &IDLE, 5).unwrap();
        }),
        ("no dead", false, 40, |device, model| {
            let rule = RelocateRule { opacity_min: 0.001, ..RELOCATE };
            assert_eq!(relocate(device, model, &rule).unwrap(), 0);
        }),
        ("no new Gaussians", false, 40, |device, model| {
            multiply(device, model, &RELOCATE, 0).unwrap()
        }),
        ("opacities", false, 40, |device, model| {
            device.adjust(model, &Adjust::ResetOpacity(0.5)).unwrap()
        }),
        ("a prune", true, 32, |device, model| {
            assert_eq!(densify(device, model, &DENSIFY, 0).unwrap().removed, 8);
        }),
        ("as many new Gaussians as dead ones", true, 40, |device, model| {
            // No gradient at all is above a bar of 0, and of equals the lowest rows are chosen.
            let rule = DensifyRule { gradient_min: 0.0, ..DENSIFY };
            let done = densify(device, model, &rule, 8).unwrap();
            assert_eq!((done.copied, done.removed), (8, 8));
        }),
        ("the dead among the living", true, 40, |device, model| {
            assert_eq!(relocate(device, model, &RELOCATE).unwrap(), 8);
        }),
        ("copies", true, 43, |device, model| multiply(device, model, &RELOCATE, 3).unwrap()),
        ("another order", true, 40, |device, model| device.reorder(model, &CUBE).unwrap()),
    ];
    for (what, changes_rows, len, change) in changes {
        let mut model = device.upload(&some_dying()).unwrap();
        let near = device.neighbours(&model, 16).unwrap();
        assert!(!is_stale(device, &mut model, &near), "before {what}");
        change(device, &mut model);
        assert_eq!(device.len(&model), len, "{what}");
        assert_eq!(is_stale(device, &mut model, &near), changes_rows, "{what}");
        if changes_rows {
            let anew = device.neighbours(&model, 16).unwrap();
            assert!(!is_stale(device, &mut model, &anew), "{what}, found anew");
        }
        // The same Gaussians on the device again are another model.
        let mut other = device.upload(&some_dying()).unwrap();
        assert!(is_stale(device, &mut other, &near), "{what}, uploaded again");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// On a coarse grid, where nearly all distances have their equals and centres coincide.
    #[test]
    fn any_few_centres_are_exact(
        grid in prop::collection::vec(prop::array::uniform3(-4_i8..4), 1..300),
        count in 1..=MOST_NEIGHBOURS,
    ) {
        let points: Vec<Point> = grid.iter().map(|p| p.map(f32::from)).collect();
        assert_found_on_the_processor(&points, count);
    }

    #[test]
    fn any_bits_are_exact(
        bits in prop::collection::vec(prop::array::uniform3(any::<u32>()), 1..100),
        count in 1..=MOST_NEIGHBOURS,
    ) {
        let points: Vec<Point> = bits.iter().map(|p| p.map(f32::from_bits)).collect();
        assert_found_on_the_processor(&points, count);
    }
}

fn assert_found_on_the_processor(points: &[Point], count: u32) {
    let lists = found(&mut Cpu::<f32>::new(), points, count);
    assert_exact(&lists, points, points.len().min(count as usize), 1);
}

#[cfg(kernels)]
mod cuda {
    use std::time::Instant;

    use super::*;

    /// Time limit for the neighbours of a large model, which are found again every 500 iterations of hundredths of a
    /// second each.
    const SECONDS: f64 = 1.0;

    /// Surfaces of all sizes with some noise, and a haze around them.
    fn scene(count: usize) -> Vec<Point> {
        let mut draws = Draws::new(23);
        let surfaces: Vec<(Point, f64)> = (0..40)
            .map(|_| (in_box(&mut draws, 3.0), 10.0_f64.powf(draws.uniform(-1.5, 0.3))))
            .collect();
        (0..count)
            .map(|i| {
                let (centre, radius) = surfaces[i % surfaces.len()];
                let [x, y, z] = draws.array::<3>(-1.0, 1.0);
                let noise =
                    if i % 50 == 0 { draws.uniform(1.0, 30.0) } else { draws.uniform(1.0, 1.01) };
                let scale = radius * noise / (x * x + y * y + z * z).sqrt().max(1e-3);
                let offset = [x, y, z].map(|c| (c * scale).to_f32());
                [0, 1, 2].map(|axis| centre[axis] + offset[axis])
            })
            .collect()
    }

    /// Finds them twice: the first time takes memory.
    fn timed(points: &[Point], count: u32, what: &str) {
        let mut device = crate::common::cuda::open();
        let model = device.upload(&model_of(points)).unwrap();
        for _ in 0..2 {
            device.synchronize().unwrap();
            let start = Instant::now();
            let near = device.neighbours(&model, count).unwrap();
            device.synchronize().unwrap();
            let seconds = start.elapsed().as_secs_f64();
            println!("{what}: {count} neighbours of {} in {seconds:.4} s", points.len());
            assert!(seconds < SECONDS, "{what}: {seconds} s");
            for row in (0..points.len()).step_by(points.len() / 16) {
                let list = device.read_neighbours(&near, row..row + 1).unwrap();
                assert_eq!(list, listed(points, row, count as usize), "{what}: row {row}");
            }
        }
    }

    #[test]
    #[ignore = "needs a CUDA device"]
    fn the_neighbours_of_six_million_are_found_within_a_second() {
        timed(&scene(6_000_000), 16, "surfaces");
    }

    #[test]
    #[ignore = "needs a CUDA device"]
    fn centres_that_lie_badly_take_no_longer() {
        timed(&vec![[0.5, 1.5, -2.5]; 2_000_000], 16, "one place");
        let mut draws = Draws::new(29);
        // Nearly all in a millionth of what the others fill, and a share of them in one place.
        let crowded: Vec<Point> = (0..2_000_000)
            .map(|i| match i % 1000 {
                0 => in_box(&mut draws, 1e3),
                1..100 => [1e-4; 3],
                _ => in_box(&mut draws, 1e-3),
            })
            .collect();
        timed(&crowded, 32, "a crowd and outliers");
        let line: Vec<Point> = (0..2_000_000).map(|i| [i as f32, 0.0, 0.0]).collect();
        timed(&line, 16, "a line");
    }

    #[test]
    #[ignore = "needs a CUDA device"]
    fn all_lists_of_a_large_model_are_those_of_the_cpu() {
        let mut points = scene(300_000);
        points[77] = [f32::NAN; 3];
        for copied in (5..300_000).step_by(11) {
            points[copied] = points[copied / 3];
        }
        for count in [12, 16, 32] {
            let expected = found(&mut Cpu::<f32>::new(), &points, count);
            let mut device = crate::common::cuda::open();
            assert!(found(&mut device, &points, count) == expected, "{count}");
        }
    }
}

// Searches for palettes: every device against all distances, one by one; and SOGs that it helps to write.

each_backend!(
    entries_are_the_nearest_of_their_cells,
    cells_come_nearest_first,
    a_sog_loses_as_little_as_one_of_the_processor,
    weights_of_drawn_views_are_those_of_the_processor,
    what_the_kernels_do_not_know_is_left_to_the_processor,
);

/// Numbers from -0.5 to 0.5 that look random.
fn noise(at: usize) -> f32 {
    let turned = (at as f64 * 12.989_8 + 4.1).sin() * 43_758.545_3;
    (turned - turned.floor() - 0.5).to_f32()
}

fn rows(count: usize, width: usize, from: usize) -> Vec<f32> {
    (0..count * width).map(|at| noise(from + at)).collect()
}

fn squared(a: &[f32], b: &[f32]) -> f64 {
    a.iter().zip(b).map(|(a, b)| (f64::from(*a) - f64::from(*b)).powi(2)).sum()
}

fn entries_are_the_nearest_of_their_cells<B: TrainDevice>(device: &mut B) {
    for (width, per_row) in [(8, 1), (16, 3), (24, 8), (48, 1), (48, 8)] {
        let (rows, centers) = (rows(700, width, 1), rows(90, width, 77_777));
        // One cell is empty, and one has half of the centres.
        let starts = [0, 7, 7, 52, 60, 61, 70, 80, 89, 90];
        let cells =
            |row: usize| (0..per_row).map(move |k| [3, 0, 7, 1, 5, 8, 2, 6, 4][(row * 5 + k) % 9]);
        let of_rows: Vec<u32> = (0..700).flat_map(cells).collect();
        let mut order: Vec<u32> = (0..).take(of_rows.len()).collect();
        order.sort_by_key(|&place| of_rows[place as usize]);
        let lists = CellLists { starts: &starts, of_rows: &of_rows, per_row, order: &order };
        let mut held = device.hold_rows(&rows, width).unwrap();
        let found = device.near_entries(&mut held, &centers, &lists).unwrap();
        assert_eq!(found.len(), 700);
        for (row, near) in found.iter().enumerate() {
            let in_cells =
                cells(row).flat_map(|cell| starts[cell as usize]..starts[cell as usize + 1]);
            let distance = |center: u32| {
                let center = center as usize * width;
                squared(&rows[row * width..][..width], &centers[center..][..width])
            };
            let least = in_cells.map(distance).fold(f64::INFINITY, f64::min);
            if least.is_infinite() {
                // A row whose only cell is empty.
                assert_eq!((near.number, near.squared_distance), (0, f32::INFINITY));
                continue;
            }
            // Sums of 48 squares in single precision.
            let tolerance = 1e-5 * least;
            assert!((distance(near.number) - least).abs() <= tolerance, "{width} {row}");
            assert!((f64::from(near.squared_distance) - least).abs() <= tolerance, "{width} {row}");
        }
    }
}

fn cells_come_nearest_first<B: TrainDevice>(device: &mut B) {
    for (width, count) in [(8, 1), (24, 5), (48, 8)] {
        let (rows, centers) = (rows(300, width, 3), rows(256, width, 99_999));
        let mut held = device.hold_rows(&rows, width).unwrap();
        let found = device.near_cells(&mut held, &centers, count).unwrap();
        assert_eq!(found.len(), 300 * count);
        for (row, cells) in found.chunks_exact(count).enumerate() {
            let distance = |cell: usize| {
                squared(&rows[row * width..][..width], &centers[cell * width..][..width])
            };
            let mut all: Vec<f64> = (0..256).map(distance).collect();
            all.sort_by(f64::total_cmp);
            for (place, &cell) in cells.iter().enumerate() {
                assert!((distance(cell as usize) / all[place] - 1.0).abs() < 1e-5, "{width} {row}");
            }
        }
    }
}

/// More Gaussians than a palette has entries, before two cameras.
fn splats() -> Splats {
    let count = 3000;
    let triple = |row: usize, from: usize| [0, 1, 2].map(|i| noise(from + 3 * row + i));
    let columns = SplatColumns {
        sh_degree: 2,
        means: (0..count).map(|row| triple(row, 5).map(|x| 4.0 * x)).collect(),
        log_scales: (0..count).map(|row| triple(row, 50_001).map(|x| x - 3.0)).collect(),
        rotations: (0..count).map(|row| [1.0, noise(row), noise(row + 9), 0.2]).collect(),
        opacity_logits: (0..count).map(|row| 4.0 * noise(row + 13)).collect(),
        sh_dc: (0..count).map(|row| triple(row, 9_001)).collect(),
        sh_rest: (0..8 * count).map(|row| triple(row, 700_001)).collect(),
        ..SplatColumns::default()
    };
    Splats::from_columns(columns).unwrap().splats
}

fn cameras() -> Vec<SceneCamera> {
    let camera = |x: f64| SceneCamera {
        name: String::new(),
        position: [x, 0.0, -5.0],
        rotation: [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]],
        focal_px: [90.0, 95.0],
        principal_px: [48.0, 40.0],
        size_px: [96, 80],
        split: CameraSplit::Training,
    };
    vec![camera(-0.7), camera(0.9)]
}

fn no_fit<B>(_: &mut B, _: Splats, _: &SharedRows) -> Option<Splats> {
    None
}

fn written(tools: &SogTools<'_>) -> BTreeMap<String, Vec<u8>> {
    let mut parts = BTreeMap::new();
    write_sog(&splats(), &SogOptions::default(), tools, &mut parts).unwrap();
    parts
}

/// Squared errors of the harmonics, which a file has in its own order, by the sorted sums of rows.
fn lost(mut parts: BTreeMap<String, Vec<u8>>) -> f64 {
    let of = |splats: &Splats| {
        let columns = splats.columns();
        let mut keyed: Vec<(f32, Vec<f32>)> = (0..columns.len())
            .map(|row| (columns.opacity_logits[row], columns.rest(row).as_flattened().to_vec()))
            .collect();
        keyed.sort_by(|a, b| a.0.total_cmp(&b.0));
        keyed
    };
    let stored = read_sog(&mut parts).unwrap().splats;
    let energy: f64 = of(&stored).iter().map(|(_, row)| squared(row, &vec![0.0; row.len()])).sum();
    let all: f64 = of(&splats()).iter().map(|(_, row)| squared(row, &vec![0.0; row.len()])).sum();
    // Means of clusters are orthogonal to what they lose.
    1.0 - energy / all
}

fn a_sog_loses_as_little_as_one_of_the_processor<B: TrainDevice>(device: &mut B) {
    let there = with_device(device, no_fit, |tools| {
        written(&SogTools { search: tools, ..SogTools::default() })
    });
    let (there, here) = (lost(there), lost(written(&SogTools::default())));
    // Sums in another order give another k-means, of the same quality.
    assert!((there - here).abs() < 0.02 * here, "{there} {here}");
}

fn weights_of_drawn_views_are_those_of_the_processor<B: TrainDevice>(device: &mut B) {
    let (splats, cameras) = (splats(), cameras());
    let [there, here] =
        beside_oracle!(device, drawn_observations(device, &splats, &cameras, 0.01).unwrap());
    let sum = |weights: &mut dyn Iterator<Item = f32>| weights.map(f64::from).sum::<f64>();
    let pairs = || there.weights().iter().zip(here.weights());
    let apart = sum(&mut pairs().map(|(a, b)| (a - b).abs()));
    // Single precision, in which a Gaussian may just reach a pixel or not.
    assert!(apart < 1e-4 * sum(&mut here.weights().iter().copied()), "{apart}");
}

fn what_the_kernels_do_not_know_is_left_to_the_processor<B: TrainDevice>(device: &mut B) {
    let order: Vec<u32> = (0..30).collect();
    let rows = rows(30, 32, 1);
    let cells = CellLists { starts: &[0, 30], of_rows: &[0; 30], per_row: 1, order: &order };
    match device.hold_rows(&rows, 32) {
        // The processor searches rows of any width.
        Ok(mut held) => {
            let found = device.near_entries(&mut held, &rows, &cells).unwrap();
            assert!(found.iter().zip(0..).all(|(near, row)| near.number == row));
        }
        Err(DeviceError::Unsupported { .. }) => {
            let found =
                with_device(device, no_fit, |tools| tools.hold(&rows, 32).nearest(&rows, &cells));
            assert_eq!(found, HostSearch.hold(&rows, 32).nearest(&rows, &cells));
        }
        Err(error) => panic!("{error}"),
    }
}
