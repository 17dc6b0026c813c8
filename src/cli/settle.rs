//! What a model grows to, where that is not given.

use crate::config::{Config, PrimitiveName};
use crate::dataset::Dataset;

/// The most that it grows to.
const MOST: u64 = 5_000_000;

/// Where photographs are small, it grows to so many all the same ...
const LEAST: u64 = 200_000;

/// ... unless that is more than one for so many pixels.
const LEAST_PIXELS_FOR_ONE: u64 = 40;

/// Pixels of the training views for each vertex of triangles, as long as there are few pixels, and beyond.
const PIXELS_FOR_VERTEX: [u64; 2] = [60, 20];

/// Pixels up to which there are few.
const FEW_PIXELS: u64 = 6_000_000;

/// Most vertices of triangles.
pub(super) const MOST_VERTICES: u64 = 4_000_000;

/// Settles what a run grows to that has so many Gaussians now, and returns it, where it follows from the scene.
pub(super) fn settle(config: &mut Config, dataset: &Dataset, now: u64) -> Option<u64> {
    let has_triangles = config.optimize.primitive == PrimitiveName::Triangles;
    let densify = &mut config.densify;
    if densify.max_points.is_some() || !(has_triangles || densify.strategy.grows_to_a_number()) {
        return None;
    }
    let pixels = dataset.train_pixels();
    let room = if has_triangles {
        vertices_for(pixels)
    } else {
        room_for(pixels, densify.pixels_per_gaussian)
    };
    densify.max_points = Some(room.max(now));
    densify.max_points
}

/// Returns the limit of vertices for this number of training pixels. Large photographs do not limit training.
fn vertices_for(pixels: u64) -> u64 {
    let few = pixels.min(FEW_PIXELS);
    let [of_few, of_more] = PIXELS_FOR_VERTEX;
    (few / of_few + (pixels - few) / of_more).clamp(1, MOST_VERTICES)
}

/// Gaussians that so many pixels can teach.
fn room_for(pixels: u64, pixels_for_one: u32) -> u64 {
    let least = LEAST.min(pixels / LEAST_PIXELS_FOR_ONE).max(1);
    (pixels / u64::from(pixels_for_one.max(1))).clamp(least, MOST)
}

/// Who says so, for messages.
pub(super) const OF_PIXELS: &str = "by the pixels of the training views";

#[cfg(test)]
mod tests {
    use clap::{Args as _, Command};

    use super::*;

    #[test]
    fn small_photographs_have_room_for_one_gaussian_in_forty_pixels() {
        for (pixels, gaussians) in [
            (8_000_000_000, 5_000_000),
            (86_407_462, 246_878),
            (35_000_001, 200_000),
            (1_350_000, 33_750),
            (806_400, 20_160),
            (9, 1),
        ] {
            assert_eq!(room_for(pixels, 350), gaussians, "{pixels} pixels");
        }
    }

    #[test]
    fn only_small_photographs_limit_vertices() {
        for (pixels, vertices) in [
            // bonsai and fox, and fox at a half and a quarter of its sides.
            (255 * 800 * 533, 4_000_000),
            (43 * 1061 * 1894, 4_000_000),
            (43 * 530 * 947, 879_106),
            (43 * 265 * 473, 89_830),
            // The demonstration.
            (42 * 160 * 120, 13_440),
            (9, 1),
        ] {
            assert_eq!(vertices_for(pixels), vertices, "{pixels} pixels");
        }
    }

    #[test]
    fn the_help_says_how_many_there_is_room_for() {
        let command = Config::augment_args(Command::new("splat"));
        for (flag, numbers) in [
            ("max_points", &["40 pixels", "60 of the", "6,000,000", "4,000,000"][..]),
            ("pixels_per_gaussian", &["5,000,000", "200,000", "40 pixels"]),
        ] {
            let flag = command.get_arguments().find(|given| given.get_id() == flag).unwrap();
            let help = flag.get_long_help().unwrap().to_string();
            for number in numbers {
                assert!(help.contains(number), "{number}: {help}");
            }
        }
    }
}
