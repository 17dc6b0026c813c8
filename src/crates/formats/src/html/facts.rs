//! What a page knows about its Gaussians before it unpacks them.

use serde::Serialize;

use super::{HtmlOptions, SceneCamera};
use crate::splats::{Antialiasing, Splats};

/// Most Gaussians that are looked at for the middle and the radius.
const SAMPLES: usize = 100_000;

/// Share of the Gaussians within the radius: the others are background and strays.
const INNER_PERCENT: usize = 90;

/// The title of a page that was given none.
const USUAL_TITLE: &str = "Gaussians";

/// The JSON of a page; `src/viewer/src` reads it by these names.
#[derive(Serialize)]
pub(super) struct PageFacts<'a> {
    pub(super) title: &'a str,
    splats: usize,
    sh_degree: u32,
    antialiased: bool,
    /// The middle of the Gaussians, scene units.
    center: [f32; 3],
    /// How far from it most of them are, scene units; above 0.
    radius: f32,
    /// Up, where no cameras tell it.
    up: [f64; 3],
    cameras: &'a [SceneCamera],
}

impl<'a> PageFacts<'a> {
    pub(super) fn of(splats: &Splats, options: &'a HtmlOptions) -> Self {
        let columns = splats.columns();
        let (center, radius) = middle_and_radius(&columns.means);
        Self {
            title: if options.title.is_empty() { USUAL_TITLE } else { &options.title },
            splats: columns.len(),
            sh_degree: columns.sh_degree,
            antialiased: columns.antialiasing == Antialiasing::On,
            center,
            radius,
            up: options.up.direction(),
            cameras: &options.cameras,
        }
    }
}

/// The median of places and how far from it most of them are; above 0, also where there are none. Of many
/// places, some are looked at.
pub fn middle_and_radius(places: &[[f32; 3]]) -> ([f32; 3], f32) {
    let step = places.len().div_ceil(SAMPLES).max(1);
    let places: Vec<[f32; 3]> = places.iter().step_by(step).copied().collect();
    let center = [0, 1, 2].map(|axis| {
        percentile(places.iter().map(|place| place[axis]).collect(), 50).unwrap_or(0.0)
    });
    let distances = places
        .iter()
        .map(|place| place.iter().zip(center).map(|(x, c)| (x - c).powi(2)).sum::<f32>().sqrt());
    let radius = percentile(distances.collect(), INNER_PERCENT);
    (center, radius.filter(|radius| radius.is_normal()).unwrap_or(1.0))
}

/// The value that so many percent of all do not exceed; none of none.
fn percentile(mut values: Vec<f32>, percent: usize) -> Option<f32> {
    let at = values.len() * percent / 100;
    (at < values.len()).then(|| *values.select_nth_unstable_by(at, f32::total_cmp).1)
}
