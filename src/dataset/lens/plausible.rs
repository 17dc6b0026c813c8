//! Limits of focal lengths and principal points.
//!
//! A value beyond them is a mistake of units (shares of the width, millimetres, degrees) or of the solver.

use std::f64::consts::TAU;
use std::ops::RangeInclusive;

use super::{Distortion, Lens};

/// Fields of view of pictures that can be trained on, degrees: from crops of satellite pictures to a
/// pinhole whose border stretches a pixel of the middle over 500.
pub(in crate::dataset) const POSSIBLE_FIELDS: RangeInclusive<f64> = 0.001..=175.0;

/// Fields of view that photographs have, degrees.
const USUAL_FIELDS: RangeInclusive<f64> = 1.0..=150.0;

/// Largest field of view of a fisheye, degrees.
const WIDEST_FISHEYE: f64 = 360.0;

/// Largest angle between the axis and the nearest point of a photograph, degrees.
const FARTHEST_FROM_AXIS: f64 = 80.0;

/// Least distance of the usual principal point from the photograph's edges, as a share of the side.
const EDGE: f64 = 0.02;

/// Largest usual ratio of the focal lengths; anamorphic films have 2.
const STRETCH: f64 = 2.1;

/// Names of a camera's numbers in the files of a scene, for x and y.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::dataset) struct LengthKeys {
    /// Names of the focal lengths.
    pub(in crate::dataset) focal: [&'static str; 2],
    /// Names of the principal point.
    pub(in crate::dataset) centre: [&'static str; 2],
}

/// An implausible number of a camera.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::dataset) struct Implausible {
    /// True if no useful picture can come of it.
    pub(in crate::dataset) is_impossible: bool,
    /// The number with its name and what it means.
    pub(in crate::dataset) found: String,
    /// Remedy.
    pub(in crate::dataset) remedy: &'static str,
}

impl Lens {
    /// Returns the worst of the numbers that hardly any camera has.
    pub(in crate::dataset) fn implausible(&self, keys: &LengthKeys) -> Option<Implausible> {
        let focal = (0..2).filter_map(|axis| self.implausible_focal(axis, keys.focal[axis]));
        let centre = (0..2).filter_map(|axis| self.implausible_centre(axis, keys.centre[axis]));
        let all: Vec<_> = focal.chain(centre).chain(self.implausible_stretch(keys)).collect();
        let worst = all.iter().position(|it| it.is_impossible).unwrap_or(0);
        all.into_iter().nth(worst)
    }

    fn implausible_focal(&self, axis: usize, key: &str) -> Option<Implausible> {
        let (focal, size) = (self.camera.focal_px[axis], self.size()[axis]);
        let side = f64::from(size);
        let is_fisheye = matches!(self.distortion, Distortion::Fisheye(_));
        let over = |side: f64| {
            let radians = if is_fisheye { side / focal } else { 2.0 * (side / 2.0 / focal).atan() };
            radians * 360.0 / TAU
        };
        let field = over(side);
        // The image circle of a fisheye may be smaller than the longer side.
        let shorter = f64::from(self.size()[0].min(self.size()[1]));
        let least = if is_fisheye { over(shorter) } else { field };
        let widest = |of_pinhole: f64| if is_fisheye { WIDEST_FISHEYE } else { of_pinhole };
        let is_within = |fields: RangeInclusive<f64>, field: f64| {
            (*fields.start()..=widest(*fields.end())).contains(&field)
        };
        (!is_within(USUAL_FIELDS, field)).then(|| Implausible {
            is_impossible: !is_within(POSSIBLE_FIELDS, least),
            found: format!(
                "{key} = {} px, a field of view of {} degrees over {size} px",
                shown(focal),
                degrees(field)
            ),
            remedy: "Give it in px of the photograph, or solve the cameras again",
        })
    }

    fn implausible_centre(&self, axis: usize, key: &str) -> Option<Implausible> {
        let (centre, size) = (self.camera.centre_px[axis], self.size()[axis]);
        let side = f64::from(size);
        if (EDGE * side..=(1.0 - EDGE) * side).contains(&centre) {
            return None;
        }
        let outside = (-centre).max(centre - side).max(0.0);
        let angle = (outside / self.camera.focal_px[axis]).atan() * 360.0 / TAU;
        let found = if outside > 0.0 {
            format!("{key} = {} px, outside of a photograph of {size} px", shown(centre))
        } else {
            format!("{key} = {} px, at the edge of a photograph of {size} px", shown(centre))
        };
        let is_impossible = angle > FARTHEST_FROM_AXIS;
        let remedy = match is_impossible {
            true => "Give it in px of the photograph, or solve the cameras again",
            false => "Right for crops alone; else give it in px of the photograph",
        };
        Some(Implausible { is_impossible, found, remedy })
    }

    fn implausible_stretch(&self, keys: &LengthKeys) -> Option<Implausible> {
        let [x, y] = self.camera.focal_px;
        let [key_x, key_y] = keys.focal;
        (x.max(y) > STRETCH * x.min(y)).then(|| Implausible {
            is_impossible: false,
            found: format!(
                "{key_x} = {} and {key_y} = {} px, pixels that are far from square",
                shown(x),
                shown(y)
            ),
            remedy: "Give both in px of the photograph, or solve the cameras again",
        })
    }
}

/// A number as a message shows it.
fn shown(number: f64) -> String {
    if (1e-3..1e7).contains(&number.abs()) || number == 0.0 {
        number.to_string()
    } else {
        format!("{number:e}")
    }
}

/// An angle as a message shows it.
fn degrees(angle: f64) -> String {
    if angle < 0.01 { format!("{angle:.1e}") } else { format!("{angle:.2}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dataset::Camera;

    const KEYS: LengthKeys = LengthKeys { focal: ["fx", "fy"], centre: ["cx", "cy"] };
    const NONE: Distortion = Distortion::NONE;
    const FISHEYE: Distortion = Distortion::Fisheye([0.0; 4]);

    /// None: plausible. Some(true): impossible.
    type Case = ([f64; 2], [f64; 2], Distortion, Option<(bool, &'static str)>);

    #[test]
    fn numbers_that_no_camera_has_are_named() {
        let usual = ([152.0, 150.0], [82.0, 58.0]);
        let cases: [Case; 26] = [
            (usual.0, usual.1, NONE, None),
            // A crop of a corner that still holds the axis, and an anamorphic film.
            (usual.0, [5.0, 114.0], NONE, None),
            ([150.0, 300.0], usual.1, NONE, None),
            // A telescope, a wide pinhole and a fisheye of half a turn.
            ([5e3, 5e3], usual.1, NONE, None),
            ([40.0, 40.0], usual.1, NONE, None),
            ([51.0, 51.0], usual.1, FISHEYE, None),
            // A crop of a satellite picture; no camera.
            ([2.06e6, 2.06e6], usual.1, NONE, Some((false, "fx = 2060000 px"))),
            ([2e7, 2e7], usual.1, NONE, Some((true, "fx = 2e7 px"))),
            // Fisheyes whose image circle is smaller than the width, and larger than any.
            ([23.0, 23.0], usual.1, FISHEYE, Some((false, "398.58 degrees over 160 px"))),
            ([19.0, 19.0], usual.1, FISHEYE, Some((true, "fx = 19 px"))),
            ([1e4, 1e4], usual.1, NONE, Some((false, "fx = 10000 px"))),
            ([152.0, 9.9e3], usual.1, NONE, Some((false, "fy = 9900 px"))),
            ([1e9, 150.0], usual.1, NONE, Some((true, "fx = 1e9 px"))),
            ([1e-3, 1e-3], usual.1, NONE, Some((true, "fx = 0.001 px"))),
            // Shares of the width; a fisheye would turn around itself.
            ([0.95, 1.25], [0.5, 0.5], NONE, Some((true, "fx = 0.95 px"))),
            ([10.0, 10.0], usual.1, FISHEYE, Some((true, "fx = 10 px"))),
            ([20.0, 20.0], usual.1, NONE, Some((false, "151.93 degrees over 160 px"))),
            ([150.0, 400.0], usual.1, NONE, Some((false, "fx = 150 and fy = 400 px"))),
            (usual.0, [0.5, 58.0], NONE, Some((false, "cx = 0.5 px, at the edge"))),
            (usual.0, [82.0, 0.0], NONE, Some((false, "cy = 0 px"))),
            (
                usual.0,
                [400.0, 58.0],
                NONE,
                Some((false, "cx = 400 px, outside of a photograph of 160 px")),
            ),
            (usual.0, [-5000.0, 58.0], NONE, Some((true, "cx = -5000 px"))),
            (usual.0, [5000.0, 58.0], NONE, Some((true, "cx = 5000 px, outside"))),
            (usual.0, [82.0, 1e300], NONE, Some((true, "cy = 1e300 px"))),
            // A tile of a large photograph.
            ([5e3, 5e3], [-5000.0, 58.0], NONE, Some((false, "cx = -5000 px"))),
            // The impossible one is named first.
            (usual.0, [0.0, -5000.0], NONE, Some((true, "cy = -5000 px"))),
        ];
        for (focal_px, centre_px, distortion, expected) in cases {
            let camera = Camera { width: 160, height: 120, focal_px, centre_px };
            let found = Lens::new(camera, distortion).unwrap().implausible(&KEYS);
            let is_impossible = found.as_ref().map(|it| it.is_impossible);
            assert_eq!(is_impossible, expected.map(|it| it.0), "{camera:?}: {found:?}");
            if let (Some(found), Some((_, part))) = (found, expected) {
                assert!(found.found.contains(part), "{found:?} without {part}");
            }
        }
    }
}
