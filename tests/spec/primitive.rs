//! Files and models of a primitive that the product does not know: all that only moves rows about goes
//! by the schema.

use splat::backend::cpu::Model;
use splat::backend::{Rows, Snapshot};
use splat::config::Config;
use splat::export::{read_ply_rows, write_ply};
use splat::model::Primitive;
use splat::train::checkpoint::{Checkpoint, StoredCheckpoint};

use crate::common::isotropic::Balls;

/// Balls whose numbers are all different, from this one on.
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
    Checkpoint { iteration: 3, config: Config::default(), train_views }
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
    // They are not Gaussians'.
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

#[test]
fn a_model_on_the_processor_is_read_as_it_was_put_there() {
    let all = snapshot(40);
    let model = Model::<f64, Balls>::restore(&all);
    assert_eq!((model.len(), model.columns.len()), (40, 4));
    assert_eq!(model.read(0..40), all);
    assert_eq!(model.read_parameters(3..9), all.parameters.rows(3..9));
    let picked = model.sample(&[8, 0, 8]);
    assert_eq!(picked.means[..3], all.parameters.means[24..27]);
    assert_eq!(picked.colors[3..], [&all.parameters.colors[..3], &picked.colors[..3]].concat());
    // 8 values with two moments each, and a sum; and how often each was seen.
    let [parameters, others] = model.bytes();
    assert_eq!((parameters.0, others.0), (40 * 8 * 8, 40 * (16 * 8 + 8 + 4)));
}
