//! Cameras of the virtual scan.

use rayon::prelude::*;
use serde::Serialize;

use super::SurfaceSamples;
use crate::mesh::Vec3;
use crate::narrow::to_u32;
use crate::place::{
    add, cross, dot, doubled_area, length, mat_mul, mul, mul_transposed, normalize, scale, sub,
};
use crate::search::BoxTree;

/// A pinhole camera: `cam = rotation world + translation`, x right, y down, z forward.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Viewpoint {
    /// Width and height in px.
    pub size_px: [f64; 2],
    /// Focal lengths in px.
    pub focal_px: [f64; 2],
    /// Principal point in px, from the outer corner of the top left pixel.
    pub centre_px: [f64; 2],
    /// Rotation from world to camera axes, in rows.
    pub rotation: [Vec3; 3],
    /// Translation in camera axes, world units.
    pub translation: Vec3,
}

impl Viewpoint {
    /// Returns the camera's place in the world: -Rᵀ t.
    pub fn centre_world(&self) -> Vec3 {
        scale(mul_transposed(&self.rotation, self.translation), -1.0)
    }

    /// Returns the direction in the world through a place of the image, 1 deep.
    pub fn ray(&self, [x, y]: [f64; 2]) -> Vec3 {
        let along = [
            (x - self.centre_px[0]) / self.focal_px[0],
            (y - self.centre_px[1]) / self.focal_px[1],
            1.0,
        ];
        mul_transposed(&self.rotation, along)
    }

    /// True if a place lies in front of the camera and within its image.
    pub fn frames(&self, place_world: Vec3) -> bool {
        let cam = add(mul(&self.rotation, place_world), self.translation);
        cam[2] > 0.0
            && (0..2).all(|axis| {
                let px = self.focal_px[axis] * cam[axis] / cam[2] + self.centre_px[axis];
                (0.0..=self.size_px[axis]).contains(&px)
            })
    }

    /// Returns the camera half-way to another: at the middle of both places, rotated by half the rotation between
    /// them, with the image of this one.
    pub(super) fn half_way_to(&self, other: &Self) -> Self {
        let transposed: [Vec3; 3] = std::array::from_fn(|row| self.rotation.map(|of| of[row]));
        let turn = mat_mul(&other.rotation, &transposed);
        let rotation = mat_mul(&half_turn(&turn), &self.rotation);
        let middle = scale(add(self.centre_world(), other.centre_world()), 0.5);
        let translation = scale(mul(&rotation, middle), -1.0);
        Self { rotation, translation, ..*self }
    }
}

/// Returns the rotation about the same axis by half the angle; of half a turn, whose axis has no sign, any.
fn half_turn(turn: &[Vec3; 3]) -> [Vec3; 3] {
    let twice_sine_axis =
        [turn[2][1] - turn[1][2], turn[0][2] - turn[2][0], turn[1][0] - turn[0][1]];
    let sine = 0.5 * length(twice_sine_axis);
    let cosine = 0.5 * (turn[0][0] + turn[1][1] + turn[2][2] - 1.0);
    if sine < 1e-9 && cosine < 0.0 {
        // turn = 2 a aᵀ - 1: its longest row plus the axis shows a.
        let rows: [Vec3; 3] = std::array::from_fn(|row| {
            std::array::from_fn(|column| turn[row][column] + f64::from(u8::from(row == column)))
        });
        let longest =
            rows.into_iter().fold([0.0; 3], |a, b| if length(b) > length(a) { b } else { a });
        return about(normalize(longest), std::f64::consts::FRAC_PI_2);
    }
    about(normalize(twice_sine_axis), 0.5 * sine.atan2(cosine))
}

/// Returns the rotation about a unit axis by an angle in radians (Rodrigues).
pub(super) fn about(axis: Vec3, angle: f64) -> [Vec3; 3] {
    let (sin, cos) = angle.sin_cos();
    std::array::from_fn(|row| {
        // Column by column of the unit vectors' images, which are the rows of the inverse.
        let unit = std::array::from_fn(|column| f64::from(u8::from(row == column)));
        add(
            add(scale(unit, cos), scale(cross(axis, unit), -sin)),
            scale(axis, dot(axis, unit) * (1.0 - cos)),
        )
    })
}

/// Pairs each camera with the nearest one; each pair once.
pub(super) fn neighbours(cameras: &[Viewpoint]) -> Vec<[usize; 2]> {
    let centres: Vec<Vec3> = cameras.iter().map(Viewpoint::centre_world).collect();
    let gap = |a: usize, b: usize| length(sub(centres[a], centres[b]));
    let mut pairs: Vec<[usize; 2]> = (0..centres.len())
        .filter_map(|a| {
            let others = (0..centres.len()).filter(|&b| b != a);
            let nearest = others.min_by(|&b, &c| gap(a, b).total_cmp(&gap(a, c)))?;
            Some([a.min(nearest), a.max(nearest)])
        })
        .collect();
    pairs.sort_unstable();
    pairs.dedup();
    pairs
}

/// Returns a camera at `from` that looks at `to`.
#[cfg(test)]
pub(super) fn looking(from: Vec3, to: Vec3) -> Viewpoint {
    let forward = normalize(sub(to, from));
    let helper = if forward[2].abs() < 0.9 { [0.0, 0.0, 1.0] } else { [1.0, 0.0, 0.0] };
    let right = normalize(cross(forward, helper));
    let rotation = [right, cross(forward, right), forward];
    Viewpoint {
        size_px: [300.0, 200.0],
        focal_px: [250.0, 250.0],
        centre_px: [150.0, 100.0],
        rotation,
        translation: scale(mul(&rotation, from), -1.0),
    }
}

/// Largest number of faces that are tested.
const SAMPLED: usize = 100_000;

/// Faces of a sample that pass through others of the surface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct FaceCrossings {
    /// Tested faces, evenly over all.
    pub sampled: usize,
    /// Tested faces that pass through another.
    pub crossing: usize,
}

/// Tests 100,000 faces for self-intersections, or all if there are fewer.
pub(super) fn self_crossings(tree: &BoxTree<'_>) -> FaceCrossings {
    let faces = tree.mesh().faces.len();
    let sampled = faces.min(SAMPLED);
    let crossing = (0..sampled)
        .into_par_iter()
        .filter(|&index| crosses(tree, to_u32(index * faces / sampled)))
        .count();
    FaceCrossings { sampled, crossing }
}

fn crosses(tree: &BoxTree<'_>, face: u32) -> bool {
    let places = tree.corners(face);
    let mut found = false;
    tree.neighbours(face, |other| {
        if found || other == face {
            return;
        }
        let others = tree.corners(other);
        // Faces with a common corner, by place, meet there.
        if places.iter().any(|place| others.contains(place)) {
            return;
        }
        found = pierces(places, others) || pierces(others, places);
    });
    found
}

/// True if a side of one triangle passes through the inside of the other. Its ends lie clearly on either side of
/// the other's plane: coplanar neighbours only touch, but for rounding.
fn pierces(sides: [Vec3; 3], through: [Vec3; 3]) -> bool {
    const CLEARLY: f64 = 1e-9;
    let normal = doubled_area(through);
    let squared = dot(normal, normal);
    let heights = sides.map(|place| dot(normal, sub(place, through[0])));
    // Twice the area is about the square of a side's length.
    let least = CLEARLY * squared.sqrt() * squared.sqrt().sqrt();
    (0..3).any(|corner| {
        let (from, to) = (heights[corner], heights[(corner + 1) % 3]);
        if from * to >= 0.0 || from.abs() < least || to.abs() < least {
            return false;
        }
        let along = sub(sides[(corner + 1) % 3], sides[corner]);
        let place = add(sides[corner], scale(along, from / (from - to)));
        (0..3).all(|side| {
            let (a, b) = (through[side], through[(side + 1) % 3]);
            dot(normal, cross(sub(b, a), sub(place, a))) > 1e-6 * squared
        })
    })
}

/// Range of the way to a camera, in shares, in which a surface hides a place: not at the place itself.
const HIDES: [f64; 2] = [1e-6, 1.0];

/// Visibility of a surface's places from cameras.
pub(super) struct Visibility<'a> {
    tree: &'a BoxTree<'a>,
    cameras: &'a [Viewpoint],
    centres: Vec<Vec3>,
}

impl<'a> Visibility<'a> {
    pub(super) fn new(tree: &'a BoxTree<'a>, cameras: &'a [Viewpoint]) -> Self {
        Self { tree, cameras, centres: cameras.iter().map(Viewpoint::centre_world).collect() }
    }

    /// True if a place of the surface lies in a camera's image with nothing before it.
    pub(super) fn sees(&self, place: Vec3) -> bool {
        self.cameras.iter().zip(&self.centres).any(|(camera, &centre)| {
            camera.frames(place) && !self.tree.is_hit(place, sub(centre, place), HIDES)
        })
    }

    /// True for each sample that [`Self::sees`] accepts.
    pub(super) fn seen_samples(&self, samples: &SurfaceSamples<'_>) -> Vec<bool> {
        (0..samples.len()).into_par_iter().map(|i| self.sees(samples.get(i).place)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_near(a: Vec3, b: Vec3) -> bool {
        length(sub(a, b)) < 1e-12
    }

    #[test]
    fn the_camera_between_two_stands_and_looks_between_them() {
        let target = [0.3, -0.2, 0.1];
        let a = looking([3.0, 0.0, 0.5], target);
        let half = a.half_way_to(&a);
        assert!(
            is_near(half.centre_world(), [3.0, 0.0, 0.5])
                && is_near(half.rotation[2], a.rotation[2])
        );
        let mut b = a;
        b.rotation = mat_mul(&about([0.0, 1.0, 0.0], 1.0), &a.rotation);
        b.translation = scale(mul(&b.rotation, [1.0, 2.0, 0.5]), -1.0);
        let half = a.half_way_to(&b);
        assert!(is_near(half.centre_world(), [2.0, 1.0, 0.5]));
        let expected = mat_mul(&about([0.0, 1.0, 0.0], 0.5), &a.rotation);
        assert!((0..3).all(|row| is_near(half.rotation[row], expected[row])));
        // Opposite directions: some quarter turn, and still a rotation.
        b.rotation = mat_mul(&about([0.0, 1.0, 0.0], std::f64::consts::PI), &a.rotation);
        let half = a.half_way_to(&b);
        assert!(dot(half.rotation[2], a.rotation[2]).abs() < 1e-9);
        assert!(is_near(cross(half.rotation[0], half.rotation[1]), half.rotation[2]));
    }

    #[test]
    fn rays_and_frames_agree() {
        let camera = looking([3.0, 1.0, 0.5], [0.0; 3]);
        let place = |px| add(camera.centre_world(), scale(camera.ray(px), 2.5));
        assert!(camera.frames(place([1.0, 199.0])) && camera.frames(place([299.0, 1.0])));
        assert!(!camera.frames(place([-1.0, 100.0])) && !camera.frames(place([150.0, 201.0])));
        assert!(!camera.frames([6.0, 2.0, 1.0]));
        assert!(is_near(
            mul(&about([0.0, 0.0, 1.0], 0.5), [1.0, 0.0, 0.0]),
            [0.5_f64.cos(), 0.5_f64.sin(), 0.0]
        ));
    }

    #[test]
    fn each_pair_of_neighbours_is_named_once() {
        let at = |x: f64| looking([x, 0.0, 3.0], [x, 0.0, 0.0]);
        assert_eq!(neighbours(&[at(0.0), at(1.0), at(5.0), at(3.5)]), [[0, 1], [2, 3]]);
        assert!(neighbours(&[at(0.0)]).is_empty() && neighbours(&[]).is_empty());
    }
}
