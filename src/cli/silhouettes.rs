//! Random points inside the silhouettes of an object that was cut out: its visual hull (Laurentini 1994).
//!
//! In a cube around a whole scene, few random points lie in the object. Growing the model from these few takes a
//! large part of a short run.

use rayon::prelude::*;
use splat_mesh::narrow::floor_usize;

use crate::dataset::{
    AlphaMeaning, Dataset, Image, ImageSource, PointCloud, View, decode, evenly_spread,
};
use crate::math::Real;
use crate::math::linalg::Vec3;
use crate::math::random::{RandomStream, RandomUse};
use crate::mesh::{Focus, WorldBox};

/// Maximum number of inspected photographs.
const INSPECTED_PHOTOS: usize = 16;

/// Largest side of a silhouette, px.
const SIDE_MAX: u32 = 512;

/// Share of masked pixels from which an object counts as cut out.
pub(super) const CUT_OUT_SHARE: f64 = 1.0 / 3.0;

/// Number of silhouettes per wrong one. Masks have errors, so that wrong ones count if no point is inside all
/// silhouettes.
const PER_WRONG_MASK: usize = 10;

/// Number of points that are drawn and tested together.
const POINTS_PER_DRAW: u64 = 1 << 17;

/// Smallest number of found points that show where the object is.
const FOUND_MIN: usize = 50;

/// Largest number of draws in one box until [`FOUND_MIN`] points are found.
const SEARCH_DRAWS: u64 = 16;

/// Largest number of boxes. Each has less than half of the volume of the one before.
const BOXES_MAX: u32 = 32;

/// Margin of the box of the found points, as a share of its sides: more may lie beyond the outermost found ones.
const MARGIN: f64 = 0.1;

/// Pixels of a training view, without those outside the object.
struct Silhouette<'a> {
    view: &'a View,
    /// Pixels of the view per pixel of the silhouette, along each side.
    step: usize,
    /// Width, px of the silhouette.
    width: usize,
    /// Colours; `None` outside the object.
    colors: Vec<Option<[u8; 3]>>,
}

impl<'a> Silhouette<'a> {
    /// Reduces a photograph and its mask. A pixel of the silhouette is outside the object only if all its pixels are,
    /// because one view excludes a point.
    fn of(view: &'a View, image: &Image, mask: &[u8]) -> Self {
        let [width, height] = [image.width, image.height].map(|side| side as usize);
        let step = image.width.max(image.height).div_ceil(SIDE_MAX).max(1) as usize;
        let color = |left: usize, top: usize| {
            let rows = top..(top + step).min(height);
            let mut pixels =
                rows.flat_map(|y| (left..(left + step).min(width)).map(move |x| y * width + x));
            let shown = pixels.find(|&at| mask[at] != 0)?;
            Some([0, 1, 2].map(|channel| image.rgb[3 * shown + channel]))
        };
        let tops = (0..height).step_by(step);
        let colors = tops.flat_map(|y| (0..width).step_by(step).map(move |x| (x, y)));
        let colors = colors.map(|(x, y)| color(x, y)).collect();
        Self { view, step, width: width.div_ceil(step), colors }
    }

    /// Returns the pixel of a point; the outer `None` if it is outside the view.
    fn at(&self, point_world: Vec3<f64>) -> Option<Option<[u8; 3]>> {
        let [column, row] = self.view.pixel_of(point_world)?.map(|px| floor_usize(px) / self.step);
        // A point on the right or lower edge belongs to the last pixel.
        let row = row.min(self.colors.len() / self.width - 1);
        Some(self.colors[row * self.width + column.min(self.width - 1)])
    }
}

/// Silhouettes of an object in some of the training views.
pub(super) struct Silhouettes<'a> {
    all: Vec<Silhouette<'a>>,
    focus: Focus,
}

impl<'a> Silhouettes<'a> {
    /// Reads the silhouettes. `None` if a photograph has no mask, if they do not show an object that was cut out, or
    /// if the cameras do not look at one point. Unreadable photographs are skipped, because training reports them.
    pub(super) fn of(dataset: &'a Dataset) -> Option<Self> {
        let train = &dataset.train;
        let focus = Focus::of(train.iter().map(|&view| &dataset.views[view]));
        let mut all = Vec::new();
        // Decode one at a time, because --host-limit has room for one.
        for view in evenly_spread(INSPECTED_PHOTOS, train.len()).map(|at| train[at]) {
            let source = ImageSource {
                alpha: AlphaMeaning::Mask,
                depth: None,
                normals: None,
                ..dataset.sources[view].clone()
            };
            if !source.may_have_mask() {
                return None;
            }
            if let Ok(image) = decode(&source) {
                all.push(Silhouette::of(&dataset.views[view], &image, image.mask.as_ref()?));
            }
        }
        let pixels = all.iter().flat_map(|silhouette| &silhouette.colors);
        let empty = pixels.clone().filter(|pixel| pixel.is_none()).count() as f64;
        let is_cut_out = empty > CUT_OUT_SHARE * pixels.count() as f64;
        (is_cut_out && focus.is_seen).then_some(Self { all, focus })
    }

    /// Draws points inside the silhouettes uniformly, with the mean colours of their pixels. `None` if no object is
    /// found where the cameras look.
    pub(super) fn points(&self, count: usize, seed: u64) -> Option<PointCloud> {
        let most_misses = self.all.len() / PER_WRONG_MASK;
        let (misses, world_box, first) =
            (0..=most_misses).step_by(most_misses.max(1)).find_map(|misses| {
                let (world_box, next) = self.object_box(misses, seed)?;
                Some((misses, world_box, next))
            })?;
        // The search found FOUND_MIN points in at most SEARCH_DRAWS draws of a larger box. Twice as many allow for chance.
        let most_draws = 2 * SEARCH_DRAWS * count.div_ceil(FOUND_MIN) as u64;
        let mut cloud = PointCloud::default();
        for draw in first..first + most_draws {
            let missing = count - cloud.positions.len();
            for (point, color) in
                self.draw(&world_box, misses, [seed, draw]).into_iter().take(missing)
            {
                cloud.positions.push(point.map(f64::to_f32));
                cloud.colors.push(color);
            }
            if cloud.positions.len() == count {
                break;
            }
        }
        (cloud.positions.len() == count).then_some(cloud)
    }

    /// Returns a box around the points that at most `misses` silhouettes exclude, and the number of its draws. Starts
    /// from the cube of the cameras around the point that they look at.
    fn object_box(&self, misses: usize, seed: u64) -> Option<(WorldBox, u64)> {
        let mut world_box = WorldBox::cube(self.focus.centre, self.focus.radius);
        let mut draw = 0;
        for _ in 0..BOXES_MAX {
            let mut found = Vec::new();
            for _ in 0..SEARCH_DRAWS {
                found.extend(self.draw(&world_box, misses, [seed, draw]));
                draw += 1;
                if found.len() >= FOUND_MIN {
                    break;
                }
            }
            if found.len() < FOUND_MIN {
                return None;
            }
            let before = volume(&world_box);
            world_box = box_of(&found);
            if volume(&world_box) > 0.5 * before {
                break;
            }
        }
        Some((world_box, draw))
    }

    /// Draws points in a box; returns those inside the silhouettes, with their colours.
    fn draw(
        &self,
        within: &WorldBox,
        misses: usize,
        [seed, draw]: [u64; 2],
    ) -> Vec<(Vec3<f64>, [u8; 3])> {
        let stream = RandomStream::new(seed, draw, RandomUse::Initialise);
        let WorldBox { low, high } = within;
        let point = |index: u64| {
            [0, 1, 2].map(|axis| {
                let share = stream.uniform(3 * index + axis as u64);
                low[axis] + share * (high[axis] - low[axis])
            })
        };
        let points = (0..POINTS_PER_DRAW).into_par_iter().map(point);
        points.filter_map(|point| Some((point, self.color(point, misses)?))).collect()
    }

    /// Returns the mean colour of a point in the views that show it, if at most `misses` silhouettes exclude it.
    fn color(&self, point_world: Vec3<f64>, misses: usize) -> Option<[u8; 3]> {
        let (mut sum, mut shown, mut missed) = ([0_usize; 3], 0, 0);
        for silhouette in &self.all {
            match silhouette.at(point_world) {
                Some(Some(color)) => {
                    shown += 1;
                    sum = [0, 1, 2].map(|channel| sum[channel] + usize::from(color[channel]));
                }
                Some(None) => missed += 1,
                None => {}
            }
            if missed > misses {
                return None;
            }
        }
        // Points that few views contain may be anywhere.
        let is_known = shown > 0 && 2 * (shown + missed) >= self.all.len();
        is_known.then(|| sum.map(|sum| u8::try_from(sum / shown).unwrap_or(u8::MAX)))
    }
}

fn volume(world_box: &WorldBox) -> f64 {
    (0..3).map(|axis| world_box.high[axis] - world_box.low[axis]).product()
}

/// Returns the box around points, with a margin.
fn box_of(points: &[(Vec3<f64>, [u8; 3])]) -> WorldBox {
    let ends = |axis: usize| {
        let along = points.iter().map(|(point, _)| point[axis]);
        let low = along.clone().fold(f64::INFINITY, f64::min);
        let high = along.fold(f64::NEG_INFINITY, f64::max);
        let margin = MARGIN * (high - low);
        [low - margin, high + margin]
    };
    let ends = [0, 1, 2].map(ends);
    WorldBox { low: ends.map(|[low, _]| low), high: ends.map(|[_, high]| high) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dataset::{Camera, Pose};
    use crate::math::linalg::length;

    const SIDE: u32 = 80;
    /// Distance of the cameras from the ball, and the ball's radius.
    const DISTANCE: f64 = 4.0;
    const RADIUS: f64 = 0.5;

    /// Returns views along the three axes, from both sides, of a ball in the origin.
    fn views() -> Vec<View> {
        let axes = [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]];
        let cameras = (0..3).flat_map(|axis| [1.0, -1.0].map(|sign| (axis, sign)));
        let view = |(axis, sign): (usize, f64)| {
            let flipped = |row: Vec3<f64>, sign: f64| row.map(|value| sign * value);
            let rotation = [
                flipped(axes[(axis + 1) % 3], sign),
                axes[(axis + 2) % 3],
                flipped(axes[axis], sign),
            ];
            let camera =
                Camera { width: SIDE, height: SIDE, focal_px: [160.0; 2], centre_px: [40.0; 2] };
            let pose = Pose { rotation, translation: [0.0, 0.0, DISTANCE] };
            View { name: "a.png".to_owned(), camera, pose }
        };
        cameras.map(view).collect()
    }

    fn image(width: u32, height: u32, rgb: Vec<u8>) -> Image {
        Image { width, height, rgb, mask: None, depth: None, normals: None }
    }

    /// Returns the picture of the ball and its mask: a disc of one colour.
    fn disc(color: [u8; 3]) -> (Image, Vec<u8>) {
        // Radius of the outline of a ball, px.
        let radius_px = 160.0 * RADIUS / (DISTANCE * DISTANCE - RADIUS * RADIUS).sqrt();
        let is_shown = |at: u32| {
            let [x, y] = [at % SIDE, at / SIDE].map(|pixel| f64::from(pixel) + 0.5 - 40.0);
            x.hypot(y) <= radius_px
        };
        let mask = (0..SIDE * SIDE).map(|at| if is_shown(at) { 255 } else { 0 }).collect();
        (image(SIDE, SIDE, (0..SIDE * SIDE).flat_map(|_| color).collect()), mask)
    }

    fn silhouettes(views: &[View]) -> Silhouettes<'_> {
        let of_view = |(at, view): (u8, _)| {
            let (image, mask) = disc([40 * (at % 6), 100, 20]);
            Silhouette::of(view, &image, &mask)
        };
        Silhouettes { all: (0..).zip(views).map(of_view).collect(), focus: Focus::of(views.iter()) }
    }

    #[test]
    fn points_fill_the_visual_hull_and_have_mean_colours() {
        let views = views();
        let cloud = silhouettes(&views).points(5000, 3).unwrap();
        assert_eq!([cloud.positions.len(), cloud.colors.len()], [5000; 2]);
        let distances = cloud.positions.iter().map(|point| length(point.map(f64::from)));
        let farthest = distances.clone().fold(0.0, f64::max);
        // Three cylinders of the ball's radius meet up to √1.5 radii from the middle. Cones are wider behind it by a
        // seventh, and a pixel is a twentieth of the radius.
        assert!(farthest > 0.98 * RADIUS && farthest < 1.5 * RADIUS, "{farthest}");
        let inside = distances.filter(|&distance| distance < RADIUS).count();
        // The ball has 4π/3 of the 8 (2 - √2) of three cylinders, in radii³: 89 %.
        assert!((4000..4800).contains(&inside), "{inside} of 5000 are in the ball");
        // Means of 0, 40, … 200.
        assert!(cloud.colors.iter().all(|&color| color == [100, 100, 20]));
    }

    #[test]
    fn the_seed_decides_about_the_points() {
        let views = views();
        let draw = |seed: u64| silhouettes(&views).points(200, seed).unwrap().positions;
        assert_eq!(draw(3), draw(3));
        assert!(draw(3) != draw(4));
    }

    #[test]
    fn pixels_are_reduced_without_losing_thin_parts() {
        let [width, height] = [1100, 700];
        // A line of one pixel and a corner are shown; colours are the positions.
        let is_shown = |x: u32, y: u32| x == 301 || (x >= 1000 && y >= 600);
        let pixels = (0..width * height).map(|at| [at % width, at / width]);
        let mask: Vec<u8> =
            pixels.clone().map(|[x, y]| if is_shown(x, y) { 255 } else { 0 }).collect();
        let byte = |value: u32| u8::try_from(value / 5).unwrap();
        let rgb = pixels.flat_map(|[x, y]| [byte(x), byte(y), 7]).collect();
        let camera = Camera { width, height, focal_px: [1000.0; 2], centre_px: [0.0; 2] };
        let rotation = [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]];
        let pose = Pose { rotation, translation: [0.0; 3] };
        let view = View { name: "a.png".to_owned(), camera, pose };
        let silhouette = Silhouette::of(&view, &image(width, height, rgb), &mask);
        assert_eq!([silhouette.step, silhouette.width], [3, 367]);
        let at = |x_px: f64, y_px: f64| silhouette.at([x_px / 1000.0, y_px / 1000.0, 1.0]);
        assert_eq!(at(300.5, 0.5), Some(Some([60, 0, 7])));
        assert_eq!(at(302.5, 500.5), Some(Some([60, 99, 7])));
        assert_eq!(at(303.5, 500.5), Some(None));
        assert_eq!(at(500.5, 301.5), Some(None));
        assert_eq!(at(1099.9, 699.9), Some(Some([219, 139, 7])));
        assert_eq!([at(-0.1, 10.0), at(1100.1, 10.0), at(10.0, 700.1)], [None; 3]);
    }

    #[test]
    fn an_object_that_the_cameras_do_not_look_at_is_not_found() {
        let views = views();
        let mut silhouettes = silhouettes(&views);
        silhouettes.focus.centre = [100.0, 0.0, 0.0];
        assert!(silhouettes.points(10, 3).is_none());
    }

    #[test]
    fn a_tenth_of_the_masks_may_be_wrong() {
        let twice = [views(), views()].concat();
        let mut silhouettes = silhouettes(&twice);
        silhouettes.all[0].colors.fill(None);
        assert!(silhouettes.points(10, 3).is_some());
        silhouettes.all[1].colors.fill(None);
        assert!(silhouettes.points(10, 3).is_none());
    }
}
