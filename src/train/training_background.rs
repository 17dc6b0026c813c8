//! What is behind the training views.

use crate::config::{Config, TrainingBackground};
use crate::math::Real as _;
use crate::math::random::{RandomStream, RandomUse};

/// What is behind the view of an image that is trained by an iteration, both from 1.
///
/// Before grey, dark surfaces must become opaque. Before black they can stay transparent, and other views then see through
/// them. Once density control is over, and in the coarse stage, the background is that of evaluation.
pub(super) fn training_background(config: &Config, image: u32, iteration: u32) -> [f32; 3] {
    if config.optimize.random_background {
        let stream = RandomStream::new(config.run.seed, u64::from(image), RandomUse::Background);
        return [0, 1, 2].map(|channel| stream.uniform(channel).to_f32());
    }
    let is_grey = config.densify.training_background == TrainingBackground::Grey
        && config.sugar.checkpoint_path.is_none()
        && iteration <= config.densify.densify_until_iter.min(config.optimize.iterations);
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
    fn the_coarse_stage_has_the_background() {
        let mut config = Config::default();
        config.densify.training_background = TrainingBackground::Grey;
        config.optimize.iterations = 7000;
        assert_eq!([7000, 7001].map(|i| training_background(&config, 7, i)), [[0.5; 3], [0.0; 3]]);
        config.sugar.checkpoint_path = Some("model".into());
        assert_eq!(training_background(&config, 7, 7000), [0.0; 3]);
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
