//! Choices that follow from the photographs: the background of the training views, and where weights act.

use crate::config::{Color, Config, RegReach, TrainingBackground};
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
const LIKENESSES: [Likeness; 2] = [Likeness { tolerance: 2, most: 0.05 }, NEAR];

/// A colour about that of the background. An object was cut out if more of the photographs is masked or has this colour.
const NEAR: Likeness = Likeness { tolerance: 16, most: 1.0 / 3.0 };

/// Settles what the photographs decide: what is behind the training views, unless density control is over after the
/// iterations that are done, and the Gaussians on which the weights of opacity and scale act.
pub(super) fn settle_by_photographs(config: &mut Config, dataset: &Dataset, done: u32) {
    let is_idle = config.optimize.random_background
        || config.sugar.checkpoint_path.is_some()
        || config.densify.densify_until_iter <= done;
    if is_idle && config.densify.training_background == TrainingBackground::Auto {
        config.densify.training_background = TrainingBackground::Same;
    }
    let of_background = config.densify.training_background == TrainingBackground::Auto;
    let of_reach = config.optimize.reg_reach == RegReach::Auto;
    if !of_background && !of_reach {
        return;
    }
    let shares = Shares::of_photographs(dataset, config.scene.background_color());
    if of_background {
        config.densify.training_background = background_for(&shares);
    }
    if of_reach {
        let is_cut_out = shares.empty > NEAR.most;
        config.optimize.reg_reach = if is_cut_out { RegReach::All } else { RegReach::Seen };
        tracing::debug!(
            "{:.0} % of the photographs' pixels are masked or background: --reg-reach {}",
            100.0 * shares.empty,
            if is_cut_out { "all" } else { "seen" }
        );
    }
}

fn background_for(shares: &Shares) -> TrainingBackground {
    let is_alike = |(share, likeness): &(f64, Likeness)| *share > likeness.most;
    if let Some((share, Likeness { tolerance, .. })) =
        shares.alike.into_iter().zip(LIKENESSES).find(is_alike)
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

/// Shares of some training photographs' pixels.
struct Shares {
    /// Share of the pixels that count: they have the background's colour, by likeness.
    alike: [f64; LIKENESSES.len()],
    /// Share of all pixels: a mask hides them, or they have about the background's colour.
    empty: f64,
}

impl Shares {
    /// Looks at a few photographs. One that cannot be read is passed over here: training names it.
    fn of_photographs(dataset: &Dataset, color: Color) -> Self {
        let train = &dataset.train;
        let indices: Vec<usize> =
            evenly_spread(LOOKED_AT.min(train.len()), train.len()).map(|at| train[at]).collect();
        let mut sum = PixelCounts::default();
        // One at a time: --host-limit has room for one that is decoded.
        for image in indices.into_iter().filter_map(|view| decode(&dataset.sources[view]).ok()) {
            let counts = PixelCounts::of(&image, color);
            sum.alike.iter_mut().zip(counts.alike).for_each(|(sum, more)| *sum += more);
            sum.counting += counts.counting;
            sum.all += counts.all;
        }
        let share = |part: u64, whole: u64| part as f64 / whole.max(1) as f64;
        let about = sum.alike[LIKENESSES.len() - 1];
        Self {
            alike: sum.alike.map(|alike| share(alike, sum.counting)),
            empty: share(sum.all - sum.counting + about, sum.all),
        }
    }
}

/// Pixels of an image.
#[derive(Debug, Default, PartialEq, Eq)]
struct PixelCounts {
    /// Pixels that count and have the background's colour, by likeness.
    alike: [u64; LIKENESSES.len()],
    /// Pixels that no mask hides.
    counting: u64,
    all: u64,
}

impl PixelCounts {
    fn of(image: &Image, color: Color) -> Self {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a channel from 0 to 255"
        )]
        let channels = color.0.map(|channel| (channel * 255.0).round() as u8);
        let is_shown = |at: usize| image.mask.as_ref().is_none_or(|mask| mask[at] > 0);
        let difference = |pixel: &[u8]| {
            let channels = pixel.iter().zip(channels);
            channels.map(|(&value, channel)| value.abs_diff(channel)).max().unwrap_or(0)
        };
        let mut counts = Self::default();
        for (at, pixel) in image.rgb.chunks_exact(3).enumerate() {
            counts.all += 1;
            if !is_shown(at) {
                continue;
            }
            counts.counting += 1;
            let difference = difference(pixel);
            for (pixels, Likeness { tolerance, .. }) in counts.alike.iter_mut().zip(LIKENESSES) {
                *pixels += u64::from(difference <= tolerance);
            }
        }
        counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pixels_are_told_by_their_colours_and_by_the_mask() {
        let rgb = vec![0, 0, 0, 2, 1, 0, 16, 3, 0, 255, 253, 254, 0, 17, 0];
        let without = Image { width: 5, height: 1, rgb, mask: None, depth: None, normals: None };
        let counts = PixelCounts::of;
        let expected = |alike, counting| PixelCounts { alike, counting, all: 5 };
        assert_eq!(counts(&without, Color::BLACK), expected([2, 3], 5));
        assert_eq!(counts(&without, Color::WHITE), expected([1, 1], 5));
        let masked = Image { mask: Some(vec![0, 255, 255, 255, 255]), ..without };
        assert_eq!(counts(&masked, Color::BLACK), expected([1, 2], 4));
    }
}
