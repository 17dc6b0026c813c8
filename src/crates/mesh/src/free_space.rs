//! Places in free space: more views look through such a place than show a surface there.
//!
//! A view casts no vote on a place behind a surface or beside the picture. It casts none either if it looks through
//! the place at something outside the meshed box: such a place may stay as a backdrop.

use rayon::prelude::*;

use crate::narrow::{floor_i32, to_f64s, to_index};
use crate::place::Bounds;
use crate::tsdf::DepthView;

/// The votes on some places.
#[derive(Clone, Debug)]
pub struct VisibilityVotes<'a> {
    /// World space.
    places: &'a [[f32; 3]],
    /// Largest distance from a surface at which a place is on it, along a view's axis, scene units.
    margin: f64,
    /// Box of what is meshed, world space.
    meshed: Bounds,
    /// Views that look through a place minus views that show a surface there.
    votes: Vec<i32>,
}

impl<'a> VisibilityVotes<'a> {
    /// Starts without votes on `places`, world space. Places up to `margin` scene units before or behind a surface,
    /// along the view's axis, are on it. `meshed` is the box of what is meshed.
    pub fn new(places: &'a [[f32; 3]], margin: f64, meshed: Bounds) -> Self {
        Self { places, margin, meshed, votes: vec![0; places.len()] }
    }

    /// Adds the votes of a view. A pixel without depth looks through all places.
    pub fn add(&mut self, view: &DepthView<'_>) {
        let (margin, meshed) = (self.margin, self.meshed);
        let of_place = |(vote, &place): (&mut i32, &[f32; 3])| {
            *vote += vote_of(view, place, margin, &meshed);
        };
        self.votes.par_iter_mut().zip(self.places.par_iter()).for_each(of_place);
    }

    /// True for each place that more views look through than show a surface there.
    pub fn is_free(&self) -> Vec<bool> {
        self.votes.iter().map(|&votes| votes > 0).collect()
    }
}

/// Returns 1 if a view looks through a place, -1 if it shows a surface there, else 0.
fn vote_of(view: &DepthView<'_>, place: [f32; 3], margin: f64, meshed: &Bounds) -> i32 {
    let camera = &view.camera;
    let place_cam = camera.cam(to_f64s(place));
    let depth = place_cam[2];
    // A place nearer than the margin was never seen.
    if depth <= margin {
        return 0;
    }
    let [x, y] = camera.pixel(place_cam).map(floor_i32);
    let is_in = |at: i32, size: usize| at >= 0 && to_index(at) < size;
    if !is_in(x, camera.width) || !is_in(y, camera.height) {
        return 0;
    }
    let pixel = to_index(y) * camera.width + to_index(x);
    if view.mask.is_some_and(|mask| !mask[pixel]) {
        return 0;
    }
    let seen = f64::from(view.depths[pixel]);
    if seen.is_nan() || seen <= 0.0 {
        1
    } else if seen > depth + margin {
        i32::from(meshed.holds(camera.world(to_index(x), to_index(y), seen)))
    } else if seen >= depth - margin {
        -1
    } else {
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::known_meshes::ahead;

    const EVERYTHING: Bounds = Bounds { low: [-100.0; 3], high: [100.0; 3] };

    const PLACE: [f32; 3] = [0.0, 0.0, 2.0];

    /// Returns which places are free by views, 90 degrees wide, of walls at these depths.
    fn free(
        places: &[[f32; 3]],
        meshed: Bounds,
        walls: &[f32],
        mask: Option<&[bool]>,
    ) -> Vec<bool> {
        let camera = ahead([0.0; 3], [10, 10], 5.0);
        let mut votes = VisibilityVotes::new(places, 0.1, meshed);
        for &depth in walls {
            votes.add(&DepthView {
                camera,
                depths: &[depth; 100],
                normals: None,
                mask,
                colors: &[],
            });
        }
        votes.is_free()
    }

    #[test]
    fn a_place_before_what_a_view_shows_is_free_and_no_other_is() {
        let places = [
            // Before the wall, within the margin on both sides of it, behind it.
            PLACE,
            [0.0, 0.0, 3.95],
            [0.0, 0.0, 4.05],
            [0.0, 0.0, 6.0],
            // Behind the camera, and beside its picture.
            [0.0, 0.0, -2.0],
            [3.0, 0.0, 2.0],
        ];
        let found = free(&places, EVERYTHING, &[4.0], None);
        assert_eq!(found, [true, false, false, false, false, false]);
    }

    #[test]
    fn the_majority_of_views_that_show_the_meshed_box_decides() {
        let to = |z: f64| Bounds { low: [-5.0; 3], high: [5.0, 5.0, z] };
        let (shown, masked) = ([true; 100], [false; 100]);
        type Row<'a> = (&'a str, Bounds, &'a [f32], Option<&'a [bool]>, bool);
        let rows: [Row<'_>; 7] = [
            ("one against one", EVERYTHING, &[4.0, 2.0], None, false),
            ("two against one", EVERYTHING, &[4.0, 2.0, 4.0], None, true),
            ("the wall is meshed", to(4.5), &[4.0], None, true),
            ("the wall is a backdrop", to(3.5), &[4.0], None, false),
            ("no depth", EVERYTHING, &[0.0], None, true),
            ("no depth, in the mask", EVERYTHING, &[0.0], Some(&shown), true),
            ("no depth, masked", EVERYTHING, &[0.0], Some(&masked), false),
        ];
        for (name, meshed, walls, mask, expected) in rows {
            assert_eq!(free(&[PLACE], meshed, walls, mask), [expected], "{name}");
        }
    }
}
