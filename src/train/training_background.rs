//! What is behind the training views.

use crate::config::{Config, TrainingBackground};
use crate::math::Real as _;
use crate::math::random::{RandomStream, RandomUse};

/// What is behind the view of an image that is trained by an iteration, both from 1.
///
/// Behind grey, dark places have to be opaque, as they have to be before what held-out views see behind them. Once no
/// Gaussians come any more, the views are as they are evaluated.
pub(super) fn training_background(config: &Config, image: u32, iteration: u32) -> [f32; 3] {
    if config.optimize.random_background {
        let stream = RandomStream::new(config.run.seed, u64::from(image), RandomUse::Background);
        return [0, 1, 2].map(|channel| stream.uniform(channel).to_f32());
    }
    let is_grey = config.densify.training_background == TrainingBackground::Grey
        && iteration <= config.densify.densify_until_iter;
    if is_grey { TrainingBackground::GREY.0 } else { config.scene.background_color().0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Color;

    #[test]
    fn it_is_grey_until_density_control_ends_and_then_the_background() {
        let mut config = Config::default();
        config.scene.background = Some(Color([0.1, 0.2, 0.3]));
        let [plain, grey] = [[0.1, 0.2, 0.3], [0.5; 3]];
        let until = config.densify.densify_until_iter;
        let of = |config: &Config| [1, until, until + 1].map(|i| training_background(config, 7, i));
        for (what, colors) in [
            (TrainingBackground::Same, [plain; 3]),
            (TrainingBackground::Grey, [grey, grey, plain]),
            // Where it was not settled there were no photographs to settle it.
            (TrainingBackground::Auto, [plain; 3]),
        ] {
            config.densify.training_background = what;
            assert_eq!(of(&config), colors, "{what:?}");
        }
    }

    #[test]
    fn a_random_one_goes_by_the_image_to_the_end() {
        let mut config = Config::default();
        config.optimize.random_background = true;
        config.densify.training_background = TrainingBackground::Grey;
        let last = config.optimize.iterations;
        let [first, again, late] =
            [(3, 3), (3, last), (4, 4)].map(|(image, i)| training_background(&config, image, i));
        assert_eq!(first, again);
        assert_ne!(first, late);
    }
}
