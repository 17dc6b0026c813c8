//! A scene in other coordinates.

use std::fs;
use std::path::Path;

use splat::dataset::colmap::{TrackedPoint, write_colmap};
use splat::dataset::{Dataset, Frame, View};
use splat::math::linalg::{Vec3, mul, scale};

use super::program::{TestFolder, files_below};

/// Writes a scene whose points p are at `factor x p + offset`, with the same photographs.
pub fn write_moved(from: &Path, to: &Path, factor: f64, offset: Vec3<f64>) {
    let options = splat::config::SceneOptions {
        source_path: Some(from.to_owned()),
        resolution: 1,
        ..Default::default()
    };
    let dataset = Dataset::load(&options).unwrap();
    assert_eq!(dataset.frame, Frame::SCENE);
    let moved = |place: Vec3<f64>| [0, 1, 2].map(|axis| factor * place[axis] + offset[axis]);
    let view = |view: &View| {
        let mut view = view.clone();
        let centre = moved(view.pose.centre_world());
        view.pose.translation = scale(mul(&view.pose.rotation, centre), -1.0);
        view
    };
    let views: Vec<View> = dataset.views.iter().map(view).collect();
    let points = dataset.points.positions.iter().zip(&dataset.points.colors);
    let point = |(place, &color): (&[f32; 3], &[u8; 3])| TrackedPoint {
        position: moved(place.map(f64::from)),
        color,
        error_px: 0.5,
        track: Vec::new(),
    };
    write_colmap(&to.join("sparse/0"), &views, &points.map(point).collect::<Vec<_>>()).unwrap();
    fs::create_dir_all(to.join("images")).unwrap();
    for (path, bytes) in files_below(&from.join("images")) {
        fs::write(to.join("images").join(path.file_name().unwrap()), bytes).unwrap();
    }
}

/// A folder with the tiny scene in other coordinates.
pub fn with_moved_scene(factor: f64, offset: Vec3<f64>) -> TestFolder {
    let (place, original) = (TestFolder::empty(), TestFolder::with_scene());
    write_moved(&original.scene(), &place.scene(), factor, offset);
    place
}
