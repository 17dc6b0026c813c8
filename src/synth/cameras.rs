//! Options of a synthetic scene, and its cameras.

use clap::{Args, ValueEnum};

use super::city::CITY_HALF;
use super::field::ROOM_HALF;
use super::nearest::Ray;
use super::scene::Scenery;
use crate::dataset::{Camera, Pose, View};
use crate::math::linalg::{Vec3, add, cross, dot, mul_transposed, normalize, scale, sub};
use crate::math::random::{RandomStream, RandomUse};

/// Content of a synthetic scene.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum SynthScene {
    /// A lobed ball on a ring, marbles around it, a tiled disc below
    #[default]
    Demo,
    /// A ball of radius 1, seen from all around
    Sphere,
    /// A torus of radii 1 and 0.4, seen from all around
    Torus,
    /// Six solids on a plate, seen from a quarter of a sphere, with masks
    Dtu,
    /// A room of 6 x 4 x 2.7 m with a table, a pillar and a recess, seen from inside
    Room,
    /// Streets and houses on 576 x 576 m, seen from a drone, a small part in each view
    City,
}

impl SynthScene {
    pub(super) fn has_masks(self) -> bool {
        self == Self::Dtu
    }
}

/// Options of a synthetic scene.
#[derive(Args, Clone, Copy, Debug, PartialEq, Eq)]
#[command(next_help_heading = "Scene")]
pub struct SynthOptions {
    /// Contents of the scene
    #[arg(long, value_enum, value_name = "NAME", default_value_t = Self::default().scene)]
    pub scene: SynthScene,

    /// Seed: the same seed gives the same files
    #[arg(long, value_name = "N", default_value_t = Self::default().seed)]
    pub seed: u64,

    /// Leave out highlights
    ///
    /// Every surface is matt: it has the same colour from everywhere.
    #[arg(long)]
    pub matt: bool,

    /// Number of photographs
    ///
    /// The default is 49 of the scene `dtu`, 120 of the room and 2000 of the city.
    #[arg(long, value_name = "N", default_value_t = Self::default().views,
        default_value_ifs = [("scene", "dtu", "49"), ("scene", "room", "120"), ("scene", "city", "2000")])]
    pub views: u32,

    /// Width of the photographs, px
    #[arg(long, value_name = "PX", default_value_t = Self::default().width)]
    pub width: u32,

    /// Height of the photographs, px
    #[arg(long, value_name = "PX", default_value_t = Self::default().height)]
    pub height: u32,

    /// Number of points on the surfaces
    ///
    /// Each takes 64 bytes of memory, for a moment twice as much. Above 1,000,000 points the scene does not record which
    /// views see them.
    #[arg(long, value_name = "N", default_value_t = Self::default().points)]
    pub points: u32,

    /// Cells of the true mesh, truth.ply, along its longest side
    ///
    /// The default is 512 of the room, whose table is 2 cm thick.
    #[arg(long, value_name = "N", default_value_t = Self::default().truth_cells,
        default_value_ifs = [("scene", "room", "512")])]
    pub truth_cells: u32,
}

impl SynthOptions {
    /// Demonstration scene.
    pub const DEMO: Self = Self {
        scene: SynthScene::Demo,
        seed: 0,
        matt: false,
        views: 48,
        width: 160,
        height: 120,
        points: 4000,
        truth_cells: 256,
    };
}

impl Default for SynthOptions {
    fn default() -> Self {
        Self::DEMO
    }
}

/// Target of the cameras: between the ball and the ring below it.
const TARGET: Vec3<f64> = [0.0, -0.56, 0.0];

/// Mean distance of the cameras from the target.
const DISTANCE: f64 = 4.25;

/// Lowest and highest elevation of the cameras, degrees.
const ELEVATION: [f64; 2] = [16.0, 58.0];

/// Returns views along a rising spiral: neighbours are similar, and no turn repeats another.
pub(super) fn dome(options: &SynthOptions) -> Vec<View> {
    let stream = RandomStream::new(options.seed, 1, RandomUse::Synthesise);
    let turns = 0.38 + f64::max(1.0, (f64::from(options.views) / 15.0).round());
    (0..options.views)
        .map(|index| {
            let along = (f64::from(index) + 0.5) / f64::from(options.views);
            let jitter = |i: u64| stream.uniform(u64::from(index) * 8 + i) - 0.5;
            let azimuth = std::f64::consts::TAU * turns * along;
            let elevation =
                (ELEVATION[0] + (ELEVATION[1] - ELEVATION[0]) * along + 3.0 * jitter(0))
                    .to_radians();
            let outward = direction(azimuth, elevation);
            let target = add(TARGET, scale([jitter(1), jitter(2), jitter(3)], 0.12));
            let eye = add(TARGET, scale(outward, DISTANCE * (1.0 + 0.1 * jitter(4))));
            view(options, index, eye, target)
        })
        .collect()
}

fn name(index: u32) -> String {
    format!("view_{index:03}.png")
}

/// Returns true if a photograph of a synthetic scene may have this name.
pub(super) fn is_name(text: &str) -> bool {
    let number = text.strip_prefix("view_").and_then(|rest| rest.strip_suffix(".png"));
    number.and_then(|number| number.parse().ok()).is_some_and(|index| name(index) == text)
}

/// Returns the camera of all views. Pixels are not square and the principal point is off centre, to expose trainers
/// that assume otherwise.
fn camera(options: &SynthOptions) -> Camera {
    let [width, height] = [f64::from(options.width), f64::from(options.height)];
    // Shares of the width of a 4:3 photograph. Rooms are photographed with wide lenses.
    let focal_share = if options.scene == SynthScene::Room { 0.6 } else { 0.95 };
    let focal = focal_share * width.min(height * 4.0 / 3.0);
    Camera {
        width: options.width,
        height: options.height,
        focal_px: [focal, 0.99 * focal],
        centre_px: [0.513 * width, 0.483 * height],
    }
}

pub(super) fn view(options: &SynthOptions, index: u32, eye: Vec3<f64>, target: Vec3<f64>) -> View {
    View { name: name(index), camera: camera(options), pose: looking(eye, target) }
}

fn looking(eye: Vec3<f64>, target: Vec3<f64>) -> Pose {
    let forward = normalize(sub(target, eye));
    let right = normalize(cross([0.0, 1.0, 0.0], forward));
    let down = cross(forward, right);
    let rotation = [right, down, forward];
    Pose { rotation, translation: rotation.map(|axis| -dot(axis, eye)) }
}

/// Returns the ray from a view's camera through a point of its image, px.
pub(super) fn ray_through(view: &View, at: [f64; 2]) -> Ray {
    let Camera { focal_px, centre_px, .. } = view.camera;
    let direction_cam =
        [(at[0] - centre_px[0]) / focal_px[0], (at[1] - centre_px[1]) / focal_px[1], 1.0];
    Ray {
        origin: view.pose.centre_world(),
        direction: normalize(mul_transposed(&view.pose.rotation, direction_cam)),
    }
}

/// Projects a point into a view, px; `None` behind the camera or outside the image.
pub(super) fn project(view: &View, point_world: Vec3<f64>) -> Option<[f64; 2]> {
    let Camera { width, height, focal_px, centre_px } = view.camera;
    let point = add(view.pose.rotation.map(|axis| dot(axis, point_world)), view.pose.translation);
    if point[2] <= 0.0 {
        return None;
    }
    let at: [f64; 2] = std::array::from_fn(|i| focal_px[i] * point[i] / point[2] + centre_px[i]);
    let inside =
        (0.0..f64::from(width)).contains(&at[0]) && (0.0..f64::from(height)).contains(&at[1]);
    inside.then_some(at)
}

/// Golden angle, radians: its multiples are never close to each other.
const GOLDEN: f64 = 2.399_963_229_728_653;

/// Largest elevation of cameras around an object, degrees, above and below the horizon.
const STEEPEST: f64 = 72.0;

/// Cameras of the quarter sphere: distance from the target, azimuths and elevations in degrees.
const QUARTER_DISTANCE: f64 = 4.2;
const QUARTER_TARGET: Vec3<f64> = [0.0, -0.2, 0.0];
const QUARTER_AZIMUTHS: [f64; 2] = [5.0, 175.0];
const QUARTER_ELEVATIONS: [f64; 2] = [12.0, 78.0];

/// Minimum distance of a camera in the room from all surfaces, and of the first surface in view, metres.
const ROOM_CLEARANCE: f64 = 0.35;
const ROOM_VIEW_DISTANCE: f64 = 1.3;

/// Height of the drone over the city and its variation, metres; angle below the horizon, degrees.
const DRONE_HEIGHT: f64 = 60.0;
const DRONE_RISE: f64 = 12.0;
const DRONE_DOWN: f64 = 58.0;

/// Share of the city that the drone's rows cover along each axis.
const DRONE_REACH: f64 = 0.94;
const ROOM_DRAWS: u64 = 64;

/// Returns the views of a scene, in the order of their names up to three digits.
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

/// Returns the direction of an azimuth and an elevation above the horizon, radians; up is -y.
fn direction(azimuth: f64, elevation: f64) -> Vec3<f64> {
    [elevation.cos() * azimuth.cos(), -elevation.sin(), elevation.cos() * azimuth.sin()]
}

/// Returns views evenly around the origin, without the poles, where no camera is upright.
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

/// Returns views in rows over a quarter sphere, back and forth like a robot's arm.
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

/// Returns views around the room in all directions, without a surface right before the camera.
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
                && sees.is_some_and(|hit| hit.distance > ROOM_VIEW_DISTANCE);
            (eye, forward, serves)
        };
        let mut draws = (0..ROOM_DRAWS).map(drawn);
        let (eye, forward, _) = draws.find(|(.., serves)| *serves).unwrap_or_else(|| drawn(0));
        view(options, index, eye, add(eye, forward))
    };
    (0..options.views).map(at).collect()
}

/// Returns views in rows over the city that look ahead and down. Consecutive rows look in opposite directions.
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
    use super::*;
    use crate::math::linalg::{length, sub};
    use crate::synth::scenery_of;

    #[test]
    fn rays_invert_projection_and_world_up_is_image_up() {
        for view in dome(&SynthOptions { views: 9, ..SynthOptions::default() }) {
            for at in [[3.2, 111.0], [80.0, 60.5], [159.0, 0.5]] {
                let ray = ray_through(&view, at);
                let back = project(&view, add(ray.origin, scale(ray.direction, 3.0))).unwrap();
                // 1e-9 px: a few roundings of numbers near 100.
                assert!((back[0] - at[0]).abs() < 1e-9 && (back[1] - at[1]).abs() < 1e-9);
            }
            let low = project(&view, [0.0, -0.5, 0.0]).unwrap();
            let high = project(&view, [0.0, -0.9, 0.0]).unwrap();
            assert!(high[1] < low[1], "{}", view.name);
            assert!(project(&view, add(view.pose.centre_world(), [0.0, -9.0, 0.0])).is_none());
        }
    }

    #[test]
    fn cameras_see_the_content_of_the_scene() {
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
        // A point of the ground, of roofs or of walls for each ray.
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
    fn cameras_of_the_room_are_clear_of_surfaces_and_see_walls() {
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
