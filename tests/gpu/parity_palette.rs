//! Searches for palettes: every device against all distances, one by one; and SOGs that it helps to write.

use std::collections::BTreeMap;

use splat::backend::{DeviceError, TrainDevice};
use splat::math::Real as _;
use splat::sog::{drawn_looks, with_device};
use splat_formats::{
    CameraSplit, CellLists, HostSearch, SceneCamera, SharedRows, SogOptions, SogTools,
    SplatColumns, Splats, read_sog, write_sog,
};

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
    let there = drawn_looks(device, &splats, &cameras, 0.01).unwrap();
    let here =
        drawn_looks(&mut splat::backend::cpu::Cpu::<f64>::new(), &splats, &cameras, 0.01).unwrap();
    let sum = |weights: &mut dyn Iterator<Item = f32>| weights.map(f64::from).sum::<f64>();
    let pairs = || there.weights().iter().zip(here.weights());
    let apart = sum(&mut pairs().map(|(a, b)| (a - b).abs()));
    // Single precision, in which a Gaussian may just reach a pixel or not.
    assert!(apart < 1e-4 * sum(&mut here.weights().iter().copied()), "{apart}");
}

fn what_the_kernels_do_not_know_is_left_to_the_processor<B: TrainDevice>(device: &mut B) {
    let order: Vec<u32> = (0..30).collect();
    let rows = rows(30, 32, 1);
    match device.hold_rows(&rows, 32) {
        // The processor searches rows of any width.
        Ok(mut held) => {
            let cells =
                CellLists { starts: &[0, 30], of_rows: &[0; 30], per_row: 1, order: &order };
            let found = device.near_entries(&mut held, &rows, &cells).unwrap();
            assert!(found.iter().zip(0..).all(|(near, row)| near.number == row));
        }
        Err(DeviceError::Unsupported { .. }) => {
            let found = with_device(device, no_fit, |tools| {
                use splat_formats::RowSearch as _;
                let cells =
                    CellLists { starts: &[0, 30], of_rows: &[0; 30], per_row: 1, order: &order };
                tools.hold(&rows, 32).nearest(&rows, &cells)
            });
            let cells =
                CellLists { starts: &[0, 30], of_rows: &[0; 30], per_row: 1, order: &order };
            let held = splat_formats::RowSearch::hold(&HostSearch, &rows, 32);
            assert_eq!(found, held.nearest(&rows, &cells));
        }
        Err(error) => panic!("{error}"),
    }
}
