//! Cameras of the virtual scan.

use rayon::prelude::*;
use serde::Serialize;

use super::SurfaceSamples;
use crate::mesh::{Camera, Vec3};
use crate::narrow::to_u32;
use crate::place::{
    add, cross, dot, doubled_area, length, mat_mul, mul, mul_transposed, normalize, scale, sub,
};
use crate::search::BoxTree;

/// Returns the direction in the world through a place of a camera's image, px, 1 deep.
pub(super) fn direction(camera: &Camera, [x, y]: [f64; 2]) -> Vec3 {
    let [centre, focal] = [camera.centre_px, camera.focal_px];
    let along = [(x - centre[0]) / focal[0], (y - centre[1]) / focal[1], 1.0];
    mul_transposed(&camera.rotation, along)
}

/// True if a place, world space, lies in front of a camera and within its image.
pub(super) fn frames(camera: &Camera, place: Vec3) -> bool {
    let cam = camera.cam(place);
    let [x, y] = camera.pixel(cam);
    let [width, height] = [camera.width, camera.height].map(|size| size as f64);
    cam[2] > 0.0 && (0.0..=width).contains(&x) && (0.0..=height).contains(&y)
}

/// Returns the camera half-way to another: at the middle of both places, rotated by half the rotation between them,
/// with the image of the first.
pub(super) fn half_way(from: &Camera, to: &Camera) -> Camera {
    let transposed: [Vec3; 3] = std::array::from_fn(|row| from.rotation.map(|of| of[row]));
    let turn = mat_mul(&to.rotation, &transposed);
    let rotation = mat_mul(&half_turn(&turn), &from.rotation);
    let middle = scale(add(from.centre(), to.centre()), 0.5);
    let translation = scale(mul(&rotation, middle), -1.0);
    Camera { rotation, translation, ..*from }
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
pub(super) fn neighbours(cameras: &[Camera]) -> Vec<[usize; 2]> {
    let centres: Vec<Vec3> = cameras.iter().map(Camera::centre).collect();
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

/// True if a side of one triangle passes through the inside of the other. Its ends lie clearly on either side of the
/// other's plane: coplanar neighbours only touch, but for rounding.
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
    cameras: &'a [Camera],
    centres: Vec<Vec3>,
}

impl<'a> Visibility<'a> {
    pub(super) fn new(tree: &'a BoxTree<'a>, cameras: &'a [Camera]) -> Self {
        Self { tree, cameras, centres: cameras.iter().map(Camera::centre).collect() }
    }

    /// True if a place of the surface lies in a camera's image with nothing before it.
    pub(super) fn sees(&self, place: Vec3) -> bool {
        self.cameras.iter().zip(&self.centres).any(|(camera, &centre)| {
            frames(camera, place) && !self.tree.is_hit(place, sub(centre, place), HIDES)
        })
    }

    pub(super) fn seen_samples(&self, samples: &SurfaceSamples<'_>) -> Vec<bool> {
        (0..samples.len()).into_par_iter().map(|i| self.sees(samples.get(i).place)).collect()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::known_meshes;

    pub(in super::super) fn looking(from: Vec3, to: Vec3) -> Camera {
        known_meshes::looking(from, to, [300, 200], 250.0)
    }

    fn is_near(a: Vec3, b: Vec3) -> bool {
        length(sub(a, b)) < 1e-12
    }

    #[test]
    fn the_camera_between_two_stands_and_looks_between_them() {
        let target = [0.3, -0.2, 0.1];
        let a = looking([3.0, 0.0, 0.5], target);
        let half = half_way(&a, &a);
        assert!(
            is_near(half.centre(), [3.0, 0.0, 0.5]) && is_near(half.rotation[2], a.rotation[2])
        );
        let mut b = a;
        b.rotation = mat_mul(&about([0.0, 1.0, 0.0], 1.0), &a.rotation);
        b.translation = scale(mul(&b.rotation, [1.0, 2.0, 0.5]), -1.0);
        let half = half_way(&a, &b);
        assert!(is_near(half.centre(), [2.0, 1.0, 0.5]));
        let expected = mat_mul(&about([0.0, 1.0, 0.0], 0.5), &a.rotation);
        assert!((0..3).all(|row| is_near(half.rotation[row], expected[row])));
        // Opposite directions: some quarter turn, and still a rotation.
        b.rotation = mat_mul(&about([0.0, 1.0, 0.0], std::f64::consts::PI), &a.rotation);
        let half = half_way(&a, &b);
        assert!(dot(half.rotation[2], a.rotation[2]).abs() < 1e-9);
        assert!(is_near(cross(half.rotation[0], half.rotation[1]), half.rotation[2]));
    }

    #[test]
    fn rays_and_frames_agree() {
        let camera = looking([3.0, 1.0, 0.5], [0.0; 3]);
        let place = |px| add(camera.centre(), scale(direction(&camera, px), 2.5));
        assert!(frames(&camera, place([1.0, 199.0])) && frames(&camera, place([299.0, 1.0])));
        assert!(!frames(&camera, place([-1.0, 100.0])) && !frames(&camera, place([150.0, 201.0])));
        assert!(!frames(&camera, [6.0, 2.0, 1.0]));
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
