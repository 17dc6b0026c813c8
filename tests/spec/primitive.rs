//! A primitive that the product does not know: operations on rows use the schema only, and the CPU trains any
//! primitive that can be drawn.

use splat::backend::Rows;
use splat::backend::cpu::{Drawable, Gradients, Model};
use splat::config::Config;
use splat::export::{read_ply_rows, write_ply};
use splat::memory::TrainingScale;
use splat::train::checkpoint::{Checkpoint, Occasion, StoredCheckpoint};

use crate::common::isotropic::{Balls, COLORS, LOG_SCALES, Seen, add_view, visible_balls};
use crate::common::prelude::*;

/// Returns balls whose numbers are all different, starting at `from`.
fn balls(count: usize, from: f32) -> Balls {
    let mut balls = Balls::zeros(0, count);
    let values = balls.groups_mut().into_iter().flatten();
    for (number, value) in values.enumerate() {
        *value = from + number as f32;
    }
    balls
}

fn snapshot(count: usize) -> Snapshot<Balls> {
    Snapshot {
        parameters: balls(count, 0.5),
        first_moments: balls(count, 1000.5),
        second_moments: balls(count, 2000.5),
        gradient_norm_sums: (0..count).map(|row| row as f32).collect(),
        views_seen: (7..).take(count).collect(),
        absolute_norm_sums: Vec::new(),
        filter_3d: Vec::new(),
    }
}

fn about() -> Checkpoint {
    let train_views = vec!["a.png".to_owned()];
    let config = Config::default();
    let (occasion, training_scale) = (Occasion::Requested, TrainingScale::FULL);
    Checkpoint { iteration: 3, config, train_views, occasion, training_scale, paced: None }
}

#[test]
fn a_checkpoint_holds_the_columns_of_the_schema() {
    let folder = tempfile::tempdir().unwrap();
    let mut written = snapshot(11);
    let path = about().write(folder.path(), &mut written, None).unwrap();
    let mut stored = StoredCheckpoint::<Balls>::open_of_kind(&path).unwrap();
    assert_eq!((stored.len(), stored.about.iteration), (11, 3));
    assert_eq!(stored.read(0..11).unwrap(), written);
    assert_eq!(stored.read(4..6).unwrap(), written.read(4..6).unwrap());
    // The file's columns are not those of Gaussians.
    let error = StoredCheckpoint::open(&path).unwrap_err().to_string();
    assert!(error.contains("`parameters.log_scales`"), "{error}");
}

#[test]
fn a_ply_holds_the_fields_of_the_primitive() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("balls.ply");
    let written = balls(5000, 0.5);
    write_ply(&path, &written).unwrap();
    assert_eq!(read_ply_rows::<Balls>(&path).unwrap(), written);
    let bytes = std::fs::read(&path).unwrap();
    let text = String::from_utf8_lossy(&bytes[..200]);
    assert!(text.contains("element vertex 5000\nproperty float x\n"), "{text}");
    assert!(text.contains("property float blue\nproperty float opacity\n"), "{text}");
    let mut broken = written;
    broken.colors[5] = f32::NAN;
    write_ply(&path, &broken).unwrap();
    let error = read_ply_rows::<Balls>(&path).unwrap_err().to_string();
    assert!(error.contains("row 1, column `blue`"), "{error}");
}

/// Returns noise as a photograph of this view, and as a map of its inverse depths.
fn noise(view: &View, seed: u64) -> Arc<Image> {
    let mut draws = Draws::new(seed);
    let (width, height) = (view.camera.width, view.camera.height);
    let mut whole = |end: f64| draws.uniform(0.0, end).floor_i32();
    let depths = (0..width * height).map(|_| u16::try_from(whole(65_536.0)).unwrap()).collect();
    let rgb = (0..width * height * 3).map(|_| u8::try_from(whole(256.0)).unwrap()).collect();
    let depth = Some(InverseDepthMap { values: depths, scale: 0.9, offset: 0.05 });
    Arc::new(Image { width, height, rgb, mask: None, depth, normals: None })
}

const SETTINGS: RenderSettings =
    RenderSettings { background: [0.2, 0.5, 0.9], ..RenderSettings::DEFAULT };

/// Colours and inverse depths, and the norms for density control.
const REQUEST: TrainRequest = TrainRequest {
    observe: Some(Statistics::Norms),
    inputs: Inputs { inverse_depths: true, ..Inputs::NONE },
    compensation: None,
    divisor: Divisor::One,
};

fn terms() -> Terms {
    Terms::photometric(0.2).with(Term::InverseDepth, 0.4)
}

fn shots() -> [(View, Arc<Image>); 2] {
    let aside = moved(&resized(&straight(), [31, 23]), [0.2, -0.1, 0.3]);
    [(view(), 7), (aside, 8)].map(|(view, seed)| {
        let photo = noise(&view, seed);
        (view, photo)
    })
}

fn gradients_of<P: Drawable>(
    model: &mut Model<f64, P>,
    shots: &[(View, Arc<Image>)],
    settings: &RenderSettings,
) -> Gradients<f64, P> {
    let (mut device, mut gradients, terms) = (Cpu::new(), Gradients::default(), terms());
    for (view, target) in shots {
        let seen = Seen { view, settings, request: &REQUEST, target, terms: &terms };
        add_view::<P, _>(&mut device, model, &seen, &mut gradients).unwrap();
    }
    gradients
}

fn mean_loss(
    model: &Model<f64, Balls>,
    shots: &[(View, Arc<Image>)],
    settings: &RenderSettings,
) -> f64 {
    let (mut device, terms) = (Cpu::new(), terms());
    let losses = shots.iter().map(|(view, target)| {
        let frame = device.render_train(model, view, settings, &REQUEST).unwrap();
        let objective = Objective { target, terms: &terms, near: None, other: None };
        let (_, loss) = device.objective(model, frame, &objective).unwrap();
        loss.read().unwrap().total
    });
    losses.sum::<f64>() / shots.len() as f64
}

#[test]
fn the_gradients_of_every_column_agree_with_their_differences() {
    let mut balls = visible_balls(9, 10);
    // One behind the cameras, one outside the images, and colours held at 0.
    balls.means[2] = -2.0;
    balls.means[3] = 9.0;
    balls.colors[3 * 4] = -0.3;
    balls.colors[3 * 5 + 2] = -0.1;
    let shots = shots();
    // Wider than the dilation of 0.3 px², so that opacities fall by much.
    let compensated = Footprint::Ellipse { variance_px2: 0.5, compensates: true };
    for footprint in [Footprint::DILATED, compensated] {
        let settings = RenderSettings { footprint, ..SETTINGS };
        let mut device = Cpu::<f64>::new();
        let mut model = device.upload(&balls).unwrap();
        let gradients = gradients_of(&mut model, &shots, &settings);
        let mut compared = [0; 4];
        for row in 0..model.len() {
            let gradient = device.parameter_gradient(&model, &gradients, row);
            for (column, described) in Balls::SCHEMA.columns.iter().enumerate() {
                let width = model.columns[column].width;
                for (k, &found) in gradient.column(column).iter().enumerate() {
                    let at = row * width + k;
                    let expected = derivative_between_cuts(model.columns[column].values[at], |x| {
                        let mut moved = model.clone();
                        moved.columns[column].values[at] = x;
                        mean_loss(&moved, &shots, &settings)
                    });
                    let what = format!("ball {row} {}[{k}], {footprint:?}", described.name);
                    // A loss of 0.3 has a rounding of 3e-17, 1e-11 after division by the step: above 1e-4 the
                    // difference has six digits.
                    assert_relative(found, expected, (1e-6, 1e-4), &what);
                    compared[column] += usize::from(found.abs() > 1e-4);
                }
            }
        }
        assert!(compared.iter().zip([15, 5, 5, 15]).all(|(n, least)| *n >= least), "{compared:?}");
        let held = device.parameter_gradient(&model, &gradients, 4);
        assert_eq!(held.column(COLORS)[0], 0.0);
        // Both views show all but the first two.
        assert_eq!(model.views_seen, [[0; 2].as_slice(), &[2; 7]].concat());
        assert!(model.gradient_norm_sums[2..].iter().all(|&sum| sum > 0.0));
    }
}

#[test]
fn a_model_has_the_bytes_of_its_schema() {
    let mut device = Cpu::<f32>::new();
    let stored = snapshot(8);
    let model = device.restore(stored.clone()).unwrap();
    let shape = device.shape(&model);
    // 8 values with two moments each, and two statistics, of which the number of views has 4 bytes.
    let bytes = (shape.parameters.0, shape.optimizer.0);
    assert_eq!((shape.rows, bytes), (8, (8 * 8 * 4, 8 * (16 * 4 + 4 + 4))));
    let [parameters, others] = Model::<f64, Balls>::restore(&stored).bytes();
    assert_eq!((parameters.0, others.0), (8 * 8 * 8, 8 * (16 * 8 + 8 + 4)));
}

#[test]
fn rows_are_reordered_and_have_neighbours() {
    let mut device = Cpu::<f32>::new();
    let host = visible_balls(50, 31);
    let before = Snapshot { parameters: host.clone(), ..snapshot(50) };
    let mut model = device.restore(before.clone()).unwrap();
    let found_before = device.neighbours(&model, 4).unwrap();
    let cube = Cube { centre: [0.0, 0.0, 1.7], half_side: 0.6 };
    device.reorder(&mut model, &cube).unwrap();
    let stale = found_before.check(&model);
    assert!(matches!(stale, Err(DeviceError::StaleNeighbours { found: 50, len: 50 })));

    let centre = |balls: &Balls, row: usize| [0, 1, 2].map(|axis| balls.means[3 * row + axis]);
    let mut row_from_place: Vec<usize> = (0..50).collect();
    row_from_place.sort_by_key(|&row| cube.key(centre(&host, row)));
    assert!(row_from_place.iter().enumerate().any(|(place, &row)| place != row));
    let after = device.snapshot(&mut model).unwrap();
    for (place, &row) in row_from_place.iter().enumerate() {
        let mut before = before.clone();
        let found = after.clone().read(place..place + 1).unwrap();
        assert_eq!(found, before.read(row..row + 1).unwrap());
    }
    assert_eq!(
        device.sample(&mut model, &[7, 3]).unwrap().log_scales,
        [host.log_scales[row_from_place[7]], host.log_scales[row_from_place[3]],]
    );

    let lists = device.neighbours(&model, 4).unwrap();
    let rows = device.read_neighbours(&lists, 0..50).unwrap();
    for (row, found) in rows.chunks(4).enumerate() {
        let distance = |other: u32| {
            let other = centre(&after.parameters, other as usize);
            let [x, y, z] =
                [0, 1, 2].map(|axis| other[axis] - centre(&after.parameters, row)[axis]);
            x * x + y * y + z * z
        };
        let mut expected: Vec<u32> = (0..50).collect();
        expected.sort_by(|&a, &b| distance(a).total_cmp(&distance(b)).then(a.cmp(&b)));
        assert_eq!(found, &expected[..4]);
    }
}

#[test]
fn an_invalid_ball_is_left_out_and_named() {
    let shots = shots();
    for (column, words) in [(LOG_SCALES, "log-scale"), (COLORS, "colour")] {
        let mut device = Cpu::<f64>::new();
        let mut model = device.upload(&visible_balls(5, 4)).unwrap();
        let width = model.columns[column].width;
        model.columns[column].values[3 * width] = f64::NAN;
        let gradients = gradients_of(&mut model, &shots, &SETTINGS);
        assert_eq!(model.views_seen, [2, 2, 2, 0, 2]);
        let error = device.step(&mut model, gradients, &AdamStep::new(1, RATES)).unwrap_err();
        let is_named =
            matches!(error, DeviceError::NotFinite { index: 3, group, .. } if group == words);
        assert!(is_named, "{error}");
        assert!(error.to_string().starts_with(&format!("ball 3: its {words}, or")), "{error}");
    }
}
