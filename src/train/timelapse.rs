//! When a picture of one view is kept while a model is trained.

use super::span::ImageSpan;
use crate::config::Config;
use crate::dataset::{Dataset, View};

/// Pictures of a whole run: ten seconds at 30 a second.
const PICTURES: u32 = 300;

/// Most pixels along a side of a picture.
const LARGEST_PX: u32 = 720;

/// A view of which pictures are kept.
#[derive(Debug)]
pub(super) struct Timelapse {
    /// As it is drawn.
    pub(super) view: View,
    /// The run's last image.
    last: u32,
}

impl Timelapse {
    /// That of a run, if its scene has the view.
    pub(super) fn of(config: &Config, dataset: &Dataset) -> Option<Self> {
        let name = config.output.timelapse.as_deref()?;
        let view = dataset.views.iter().find(|view| view.name == name)?;
        let [width, height] = even_within(view.camera.width, view.camera.height);
        let camera = view.camera.resized(width, height);
        let view = View { camera, ..view.clone() };
        Some(Self { view, last: config.last_iteration().max(1) })
    }

    /// Whether a picture is due after a step.
    pub(super) fn is_due(&self, span: ImageSpan) -> bool {
        self.number(span.after) > self.number(span.before)
    }

    /// Pictures up to an image: most come early, when a model changes most.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "from 0 to the number of pictures"
    )]
    fn number(&self, image: u32) -> u32 {
        let share = f64::from(image.min(self.last)) / f64::from(self.last);
        (f64::from(PICTURES) * share.sqrt()) as u32
    }
}

/// The size of a picture, both sides even, as encoders of videos need them.
fn even_within(width: u32, height: u32) -> [u32; 2] {
    let longest = width.max(height).max(1);
    let side = |px: u32| {
        let px = if longest > LARGEST_PX {
            u64::from(px) * u64::from(LARGEST_PX) / u64::from(longest)
        } else {
            u64::from(px)
        };
        u32::try_from(px).unwrap_or(LARGEST_PX).div_ceil(2) * 2
    };
    [side(width), side(height)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dataset::{Camera, Pose};

    fn timelapse(last: u32) -> Timelapse {
        let camera = Camera { width: 4, height: 4, focal_px: [4.0; 2], centre_px: [2.0; 2] };
        let pose = Pose { rotation: [[0.0; 3]; 3], translation: [0.0; 3] };
        Timelapse { view: View { name: String::new(), camera, pose }, last }
    }

    #[test]
    fn a_long_run_has_three_hundred_pictures_and_most_come_early() {
        let of = timelapse(30_000);
        let due: Vec<u32> = (1..=30_000).filter(|&image| of.is_due(ImageSpan::of(image))).collect();
        assert_eq!((due.len(), due.last()), (300, Some(&30_000)));
        let of_first = due.iter().filter(|&&image| image <= 7500);
        assert_eq!(of_first.count(), 150, "half of them in a quarter of the run");
        // Of a run so short that each step has one, each has one.
        let of = timelapse(20);
        assert!((1..=20).all(|image| of.is_due(ImageSpan::of(image))));
    }

    #[test]
    fn pictures_have_even_sides_of_the_views_shape() {
        assert_eq!(even_within(1600, 1200), [720, 540]);
        assert_eq!(even_within(47, 36), [48, 36]);
        assert_eq!(even_within(90, 30_000), [2, 720]);
    }
}
