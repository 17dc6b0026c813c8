//! What is behind the training views, where the photographs decide it.

use crate::config::{Color, Config, TrainingBackground};
use crate::dataset::{Dataset, Image, decode, evenly_spread};

/// Photographs that are looked at, at most.
const LOOKED_AT: usize = 8;

/// A colour that photographs may have instead of the background's.
struct Likeness {
    /// By how many steps of 255 a channel may differ.
    tolerance: u8,
    /// Where more than this share of the photographs' pixels is so alike, the background stays behind the views.
    most: f64,
}

/// What a JPEG file makes of a flat colour, and a backdrop that is not quite of that colour. Shadows of real scenes are seldom
/// as dark as the first, and seldom fill as much as the second.
const LIKENESSES: [Likeness; 2] =
    [Likeness { tolerance: 2, most: 0.05 }, Likeness { tolerance: 16, most: 1.0 / 3.0 }];

/// Settles what is behind the training views of a run where the photographs decide it, and says so, unless density
/// control is over after the iterations that are done.
pub(super) fn settle_background(config: &mut Config, dataset: &Dataset, done: u32) {
    if config.densify.training_background != TrainingBackground::Auto {
        return;
    }
    let is_idle = config.optimize.random_background
        || config.sugar.checkpoint_path.is_some()
        || config.densify.densify_until_iter <= done;
    let settled = if is_idle { TrainingBackground::Same } else { chosen(config, dataset) };
    config.densify.training_background = settled;
}

fn chosen(config: &Config, dataset: &Dataset) -> TrainingBackground {
    let shares = shares_of_photographs(dataset, config.scene.background_color());
    let is_alike = |(share, likeness): &(f64, Likeness)| *share > likeness.most;
    if let Some((share, Likeness { tolerance, .. })) =
        shares.into_iter().zip(LIKENESSES).find(is_alike)
    {
        tracing::debug!(
            "{:.0} % of the photographs' pixels have the background's colour to {tolerance} steps of 255: training \
             views keep the background",
            100.0 * share
        );
        return TrainingBackground::Same;
    }
    tracing::debug!(
        "grey is behind the training views until density control ends; --training-background same shows the \
         background throughout"
    );
    TrainingBackground::Grey
}

/// The shares of some training photographs' pixels that have this colour, by likeness, where they count. One that cannot be
/// read is passed over here: training names it.
fn shares_of_photographs(dataset: &Dataset, color: Color) -> [f64; LIKENESSES.len()] {
    let train = &dataset.train;
    let indices: Vec<usize> =
        evenly_spread(LOOKED_AT.min(train.len()), train.len()).map(|at| train[at]).collect();
    let (mut found, mut all) = ([0_u64; LIKENESSES.len()], 0_u64);
    // One at a time: --host-limit has room for one that is decoded.
    for image in indices.into_iter().filter_map(|view| decode(&dataset.sources[view]).ok()) {
        let (of_color, counting) = pixels_of(&image, color);
        found.iter_mut().zip(of_color).for_each(|(sum, more)| *sum += more);
        all += counting;
    }
    found.map(|found| found as f64 / all.max(1) as f64)
}

/// Pixels of an image that have this colour, by likeness, and all, as far as they count.
fn pixels_of(image: &Image, color: Color) -> ([u64; LIKENESSES.len()], u64) {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a channel from 0 to 255"
    )]
    let channels = color.0.map(|channel| (channel * 255.0).round() as u8);
    let counts = |at: usize| image.mask.as_ref().is_none_or(|mask| mask[at] > 0);
    let difference = |pixel: &[u8]| {
        let channels = pixel.iter().zip(channels);
        channels.map(|(&value, channel)| value.abs_diff(channel)).max().unwrap_or(0)
    };
    let (mut of_color, mut all) = ([0; LIKENESSES.len()], 0);
    for (_, pixel) in image.rgb.chunks_exact(3).enumerate().filter(|&(at, _)| counts(at)) {
        let difference = difference(pixel);
        for (pixels, Likeness { tolerance, .. }) in of_color.iter_mut().zip(LIKENESSES) {
            *pixels += u64::from(difference <= tolerance);
        }
        all += 1;
    }
    (of_color, all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pixels_that_count_are_told_by_their_colours() {
        let rgb = vec![0, 0, 0, 2, 1, 0, 16, 3, 0, 255, 253, 254, 0, 17, 0];
        let without = Image { width: 5, height: 1, rgb, mask: None, depth: None, normals: None };
        assert_eq!(pixels_of(&without, Color::BLACK), ([2, 3], 5));
        assert_eq!(pixels_of(&without, Color::WHITE), ([1, 1], 5));
        let masked = Image { mask: Some(vec![0, 255, 255, 255, 255]), ..without };
        assert_eq!(pixels_of(&masked, Color::BLACK), ([1, 2], 4));
    }
}
