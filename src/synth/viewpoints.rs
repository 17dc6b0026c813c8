//! Where the cameras of each scene stand.

use super::cameras::{dome, view};
use super::city::CITY_HALF;
use super::field::ROOM_HALF;
use super::options::{SynthOptions, SynthScene};
use super::scenery::Scenery;
use super::shape::Ray;
use crate::dataset::View;
use crate::math::linalg::{Vec3, add, scale};
use crate::math::random::{RandomStream, RandomUse};

/// The golden angle: no two of its multiples are near each other, radians.
const GOLDEN: f64 = 2.399_963_229_728_653;

/// Highest and lowest elevation of cameras all around an object, degrees.
const STEEPEST: f64 = 72.0;

/// Cameras of the quarter of a sphere: distance from the target, azimuths and elevations in degrees.
const QUARTER_DISTANCE: f64 = 4.2;
const QUARTER_TARGET: Vec3<f64> = [0.0, -0.2, 0.0];
const QUARTER_AZIMUTHS: [f64; 2] = [5.0, 175.0];
const QUARTER_ELEVATIONS: [f64; 2] = [12.0, 78.0];

/// Least distance of a camera in the room from all surfaces, and of what it looks at, metres.
const ROOM_CLEARANCE: f64 = 0.35;
const ROOM_SIGHT: f64 = 1.3;

/// Height of the drone over the city, and what it differs by, metres; how far it looks down, degrees.
const DRONE_HEIGHT: f64 = 60.0;
const DRONE_RISE: f64 = 12.0;
const DRONE_DOWN: f64 = 58.0;

/// Share of the city that the drone's rows cover along each axis.
const DRONE_REACH: f64 = 0.94;

/// Draws of a camera in the room, of which one nearly always serves.
const ROOM_DRAWS: u64 = 64;

/// The views of a scene, in the order of their names, as far as numbers have three digits.
pub(super) fn views(scenery: &dyn Scenery, options: &SynthOptions) -> Vec<View> {
    match options.scene {
        SynthScene::Demo => dome(options),
        SynthScene::Sphere => around(options, 3.4),
        SynthScene::Torus => around(options, 4.6),
        SynthScene::Dtu => quarter(options),
        SynthScene::Room => inside(scenery, options),
        SynthScene::City => above(options),
    }
}

/// Direction of an azimuth and an elevation above the horizon, radians; up is -y.
fn direction(azimuth: f64, elevation: f64) -> Vec3<f64> {
    [elevation.cos() * azimuth.cos(), -elevation.sin(), elevation.cos() * azimuth.sin()]
}

/// Evenly all around the origin, but for the poles, where no camera is upright.
fn around(options: &SynthOptions, distance: f64) -> Vec<View> {
    let highest = STEEPEST.to_radians().sin();
    let at = |index: u32| {
        let along = (f64::from(index) + 0.5) / f64::from(options.views);
        let elevation = (highest * (1.0 - 2.0 * along)).asin();
        let eye = scale(direction(GOLDEN * f64::from(index), elevation), distance);
        view(options, index, eye, [0.0; 3])
    };
    (0..options.views).map(at).collect()
}

/// In rows over a quarter of a sphere, to and fro, as a robot's arm moves.
fn quarter(options: &SynthOptions) -> Vec<View> {
    let count = options.views;
    let rows = count.isqrt().max(1);
    let between = |[low, high]: [f64; 2], share: f64| (low + (high - low) * share).to_radians();
    let mut views = Vec::new();
    for row in 0..rows {
        let [first, end] = [row * count / rows, (row + 1) * count / rows];
        let elevation = between(QUARTER_ELEVATIONS, (f64::from(row) + 0.5) / f64::from(rows));
        for index in first..end {
            let along = (f64::from(index - first) + 0.5) / f64::from(end - first);
            let along = if row % 2 == 0 { along } else { 1.0 - along };
            let outward = direction(between(QUARTER_AZIMUTHS, along), elevation);
            let eye = add(QUARTER_TARGET, scale(outward, QUARTER_DISTANCE));
            views.push(view(options, index, eye, QUARTER_TARGET));
        }
    }
    views
}

/// On a walk round the room, looking everywhere, but not at a surface right before the camera.
fn inside(scenery: &dyn Scenery, options: &SynthOptions) -> Vec<View> {
    let stream = RandomStream::new(options.seed, 4, RandomUse::Synthesise);
    let at = |index: u32| {
        let drawn = |attempt: u64| {
            let first = (u64::from(index) * ROOM_DRAWS + attempt) * 4;
            let draw = |i: u64| stream.uniform(first + i);
            let turn = GOLDEN * f64::from(index) + 0.7 * attempt as f64;
            let place = 1.7 * GOLDEN * f64::from(index) + 0.3 * attempt as f64;
            let away = 0.35 + 0.5 * draw(0);
            let eye = [
                away * (ROOM_HALF[0] - ROOM_CLEARANCE) * place.cos(),
                -0.9 - 1.0 * draw(1),
                away * (ROOM_HALF[2] - ROOM_CLEARANCE) * place.sin(),
            ];
            let forward = direction(turn, (40.0 * (draw(2) - 0.55)).to_radians());
            let sees = scenery.trace(&Ray { origin: eye, direction: forward });
            let serves = scenery.distance(eye) > ROOM_CLEARANCE
                && sees.is_some_and(|hit| hit.distance > ROOM_SIGHT);
            (eye, forward, serves)
        };
        let mut draws = (0..ROOM_DRAWS).map(drawn);
        let (eye, forward, _) = draws.find(|(.., serves)| *serves).unwrap_or_else(|| drawn(0));
        view(options, index, eye, add(eye, forward))
    };
    (0..options.views).map(at).collect()
}

/// In rows over the city, to and fro, looking ahead and down. Each row looks the other way.
fn above(options: &SynthOptions) -> Vec<View> {
    let stream = RandomStream::new(options.seed, 6, RandomUse::Synthesise);
    let rows = options.views.isqrt().max(1);
    let mut views = Vec::new();
    for row in 0..rows {
        let [first, end] = [row, row + 1].map(|row| row * options.views / rows);
        for index in first..end {
            let draw = |i: u64| 2.0 * stream.uniform(u64::from(index) * 4 + i) - 1.0;
            let share =
                |number: u32, of: u32| 2.0 * (f64::from(number) + 0.5) / f64::from(of) - 1.0;
            let heading = if row % 2 == 0 { 1.0 } else { -1.0 };
            let reach = DRONE_REACH * CITY_HALF;
            let along = heading * share(index - first, end - first);
            let eye =
                [reach * along, -(DRONE_HEIGHT + DRONE_RISE * draw(0)), reach * share(row, rows)];
            let azimuth = if heading > 0.0 { 0.0 } else { std::f64::consts::PI };
            let down = -(DRONE_DOWN + 6.0 * draw(1)).to_radians();
            let forward = direction(azimuth + 0.5 * draw(2), down);
            views.push(view(options, index, eye, add(eye, forward)));
        }
    }
    views
}

#[cfg(test)]
mod tests {
    use super::super::cameras::{project, ray_through};
    use super::super::scenery_of;
    use super::*;
    use crate::math::linalg::{length, sub};

    #[test]
    fn cameras_see_what_the_scene_is_about() {
        for scene in [SynthScene::Sphere, SynthScene::Torus, SynthScene::Dtu] {
            let options = SynthOptions { scene, views: 49, ..SynthOptions::default() };
            let scenery = scenery_of(&options);
            for view in views(&*scenery, &options) {
                let grid = (0..192).map(|i| [f64::from(i % 16) * 10.0, f64::from(i / 16) * 10.0]);
                let hits = grid.filter(|&at| scenery.trace(&ray_through(&view, at)).is_some());
                let hits = hits.count();
                assert!(hits > 15, "{scene:?} {}: {hits} of 192 rays", view.name);
                for corner in [[0.5, 0.5], [159.5, 0.5], [0.5, 119.5], [159.5, 119.5]] {
                    let free = scenery.trace(&ray_through(&view, corner)).is_none();
                    assert!(free, "{scene:?} {}: it leaves the photograph", view.name);
                }
            }
        }
    }

    #[test]
    fn views_of_the_city_see_one_to_three_percent_of_its_points_on_average() {
        let options =
            SynthOptions { scene: SynthScene::City, views: 400, ..SynthOptions::default() };
        let scenery = scenery_of(&options);
        let views = views(&*scenery, &options);
        // A place of the ground, of roofs and of walls for each of some rays.
        let mut places = Vec::new();
        for view in &views {
            for at in [[30.0, 20.0], [130.0, 20.0], [80.0, 60.0], [30.0, 100.0], [130.0, 100.0]] {
                places.extend(scenery.trace(&ray_through(view, at)).map(|hit| hit.position));
            }
        }
        assert!(places.len() > 1800, "{} of 2000 rays meet the city", places.len());
        let share = |view: &View| {
            let seen = places.iter().filter(|&&place| project(view, place).is_some()).count();
            seen as f64 / places.len() as f64
        };
        let mean = views.iter().map(share).sum::<f64>() / 400.0;
        assert!((0.01..0.03).contains(&mean), "{mean}");
        assert!(views.iter().all(|view| share(view) < 0.05));
    }

    #[test]
    fn cameras_of_the_room_stand_free_in_it_and_see_walls_everywhere() {
        let options =
            SynthOptions { scene: SynthScene::Room, views: 120, ..SynthOptions::default() };
        let scenery = scenery_of(&options);
        let views = views(&*scenery, &options);
        let mut normals = [0_u32; 6];
        for view in &views {
            let eye = view.pose.centre_world();
            assert!(scenery.distance(eye) > 0.3, "{}: {eye:?}", view.name);
            for at in [[10.0, 10.0], [80.0, 60.0], [150.0, 110.0]] {
                let hit = scenery.trace(&ray_through(view, at)).unwrap();
                for (side, axis) in [0, 0, 1, 1, 2, 2].into_iter().enumerate() {
                    let sign = if side % 2 == 0 { 1.0 } else { -1.0 };
                    normals[side] += u32::from(sign * hit.normal[axis] > 0.9);
                }
            }
        }
        assert!(normals.iter().all(|&count| count > 8), "{normals:?}");
        let first = views[0].pose.centre_world();
        let apart = views.iter().map(|view| length(sub(view.pose.centre_world(), first)));
        assert!(apart.fold(0.0, f64::max) > 2.0);
    }
}
