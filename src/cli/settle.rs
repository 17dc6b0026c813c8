//! Values that follow from the scene: number of Gaussians, background, masks, strength of the regularization.

use super::silhouettes::CUT_OUT_SHARE;
use crate::config::{Color, Config, OptimizeOptions, PrimitiveName, RegReach, TrainingBackground};
use crate::dataset::{Coverage, Dataset, Image, ImageLoader, decode, evenly_spread, exposure_step};
use crate::train::forecast;

/// Largest number of Gaussians that follows from the photographs.
const MAX_GAUSSIANS: u64 = 5_000_000;

/// Number of Gaussians that small photographs still allow, ...
const MIN_GAUSSIANS: u64 = 280_000;

/// ... limited to one Gaussian per this number of pixels.
const MIN_PIXELS_PER_GAUSSIAN: u64 = 40;

/// Training pixels per vertex: below [`FEW_PIXELS`], and for the pixels beyond.
const PIXELS_PER_VERTEX: [u64; 2] = [60, 20];

/// Number of training pixels up to which the first of [`PIXELS_PER_VERTEX`] applies.
const FEW_PIXELS: u64 = 6_000_000;

/// Largest number of vertices that follows from the photographs.
pub(super) const MOST_VERTICES: u64 = 4_000_000;

/// Smallest limit of adc and gof, for scenes with few pixels.
const MIN_LIMIT: u64 = 100_000;

/// Largest number of Gaussians or vertices of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PointLimit {
    pub(super) most: u64,
    pub(super) source: LimitSource,
    /// True if the run has a densification step.
    pub(super) densifies: bool,
}

/// Source of a run's largest number of Gaussians.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LimitSource {
    /// `--max-points`, also of a preset or an earlier run.
    Option,
    /// Training pixels, which give the number that the model grows to.
    Pixels,
    /// Strategy, whose models usually stay smaller.
    Strategy,
}

impl PointLimit {
    /// Resolves `--max-points` for a run that starts with `now` Gaussians. The options store a number that follows
    /// from the training pixels, so that a resumed run keeps it.
    pub(super) fn settle(config: &mut Config, dataset: &Dataset, now: u64) -> Self {
        let densifies = forecast::densifies(config, dataset);
        let (mut most, source) = largest_number(config, dataset.train_pixels());
        if source == LimitSource::Pixels {
            most = most.max(now);
            config.densify.max_points = Some(most);
        }
        Self { most, source, densifies }
    }
}

fn largest_number(config: &Config, pixels: u64) -> (u64, LimitSource) {
    let densify = &config.densify;
    match (densify.max_points, densify.strategy) {
        (Some(most), _) => (most, LimitSource::Option),
        _ if config.optimize.primitive == PrimitiveName::Triangles => {
            (vertices_for(pixels), LimitSource::Pixels)
        }
        (None, strategy) if strategy.grows_to_a_number() => {
            (gaussians_for(pixels, densify.pixels_per_gaussian), LimitSource::Pixels)
        }
        (None, _) => {
            let most = (pixels / MIN_PIXELS_PER_GAUSSIAN).clamp(MIN_LIMIT, MAX_GAUSSIANS);
            (most, LimitSource::Strategy)
        }
    }
}

/// Returns the limit of vertices for this number of training pixels. Large photographs do not limit training.
fn vertices_for(pixels: u64) -> u64 {
    let few = pixels.min(FEW_PIXELS);
    let [of_few, of_more] = PIXELS_PER_VERTEX;
    (few / of_few + (pixels - few) / of_more).clamp(1, MOST_VERTICES)
}

/// Returns the number of Gaussians that this number of pixels supports.
fn gaussians_for(pixels: u64, pixels_for_one: u32) -> u64 {
    let least = MIN_GAUSSIANS.min(pixels / MIN_PIXELS_PER_GAUSSIAN).max(1);
    (pixels / u64::from(pixels_for_one.max(1))).clamp(least, MAX_GAUSSIANS)
}

/// Limits within which few training views get more passes: images and pixels.
const FEW_IMAGES: u64 = 6000;

const FEW_PIXELS_TRAINED: u64 = 5_600_000_000;

/// Passes over few training views after density control: fewer leave surfaces transparent, more overfit.
const LAST_PASSES: u64 = 32;

/// Passes between two halvings of the opacities with few training views.
const HALVING_PASSES: u64 = 6;

/// Smallest number of images between two halvings of the opacities. After fewer images Adam has not yet restored the
/// opacities that matter, and the model vanishes.
const HALVING_IMAGES: u64 = 100;

/// Sets the pass limit, the end of density control and the halving interval for few training views of `pixels`
/// pixels. The configuration stores the numbers, so that a resumed run keeps them.
pub(super) fn settle_passes(config: &mut Config, views: usize, pixels: u64) {
    let views = u32::try_from(views).unwrap_or(u32::MAX).max(1);
    settle_few_views(config, views, pixels);
    spread_halvings(config, views);
}

/// Spreads the opacity halvings if pass limits leave fewer images than iterations.
fn spread_halvings(config: &mut Config, views: u32) {
    let (optimize, densify) = (&config.optimize, &mut config.densify);
    let (iterations, images) = (u64::from(optimize.iterations), u64::from(optimize.images(views)));
    if optimize.time_budget.is_some()
        || images >= iterations
        || !densify.strategy.grows_to_a_number()
    {
        return;
    }
    let interval = u64::from(densify.opacity_reset_interval);
    // A shorter interval was chosen for a short run and stays.
    if interval < HALVING_IMAGES {
        return;
    }
    let least = (HALVING_IMAGES * iterations).div_ceil(images.max(1));
    densify.opacity_reset_interval = u32::try_from(interval.max(least)).unwrap_or(u32::MAX);
}

fn settle_few_views(config: &mut Config, views: u32, pixels: u64) {
    let allows = config.allows_few_view_passes();
    let (optimize, densify) = (&mut config.optimize, &mut config.densify);
    let few = std::mem::take(&mut optimize.few_view_passes);
    let passes = passes_for(few, views, pixels);
    let is_timed = optimize.time_budget.is_some();
    let is_more = if is_timed {
        passes == few && few >= optimize.max_passes
    } else {
        passes > optimize.max_passes
    };
    if !allows || few == 0 || !is_more {
        return;
    }
    optimize.max_passes = passes;
    let images = if is_timed { passes.saturating_mul(views) } else { optimize.images(views) };
    let iterations_of = |passes: u64| {
        let iterations = u64::from(optimize.iterations) * passes * u64::from(views);
        u32::try_from(iterations / u64::from(images.max(1))).unwrap_or(u32::MAX)
    };
    let end = optimize.iterations.saturating_sub(iterations_of(LAST_PASSES));
    densify.densify_until_iter = densify.densify_until_iter.max(end);
    // A time budget leaves the number of passes open, and halvings follow the passes themselves.
    if !is_timed {
        let interval = iterations_of(HALVING_PASSES).max(1);
        densify.opacity_reset_interval = densify.opacity_reset_interval.min(interval);
    }
    tracing::debug!(
        "--few-view-passes {few}: at most {passes} passes over {views} training views, density control until \
         iteration {}",
        densify.densify_until_iter
    );
}

/// Returns at most `few` passes, within the limits of images and pixels.
fn passes_for(few: u32, views: u32, pixels: u64) -> u32 {
    let allowed = (FEW_IMAGES / u64::from(views)).min(FEW_PIXELS_TRAINED / pixels.max(1));
    few.min(u32::try_from(allowed).unwrap_or(u32::MAX))
}

// Settings that follow from the photographs: training background, reach and strength of the regularization.

/// Maximum number of inspected photographs.
const INSPECTED_PHOTOS: usize = 8;

/// Rule that recognises the background's colour in photographs.
struct ColorMatch {
    /// Largest difference of a channel, steps of 255.
    tolerance: u8,
    /// Largest share of such pixels that still allows another training background.
    most: f64,
}

/// Rules for flat colours after JPEG compression, and for backdrops of a similar colour. Shadows of real scenes are
/// seldom as dark as the first rule needs, or as large as the second needs.
const COLOR_MATCHES: [ColorMatch; 2] = [ColorMatch { tolerance: 2, most: 0.05 }, NEAR];

/// Rule for colours near the background's. Objects count as cut out if masked and matching pixels exceed this share.
const NEAR: ColorMatch = ColorMatch { tolerance: 16, most: CUT_OUT_SHARE };

/// Sets the training background and the reach of the regularization from the photographs. The reach also decides whether
/// masked pixels count. `done`: iterations that are done. The background stays if density control is already over. Warns of options that were
/// typed and do not apply to these photographs.
pub(super) fn settle_by_photographs(
    config: &mut Config,
    dataset: &Dataset,
    done: u32,
    is_typed: impl Fn(&str) -> bool,
) {
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
        let is_limited = config.optimize.scale_limit > 0.0
            && config.optimize.primitive != PrimitiveName::Triangles
            && config.sugar.checkpoint_path.is_none();
        if is_cut_out && is_typed("scale_limit") && is_limited {
            tracing::warn!(
                "--scale-limit has no effect: the photographs show an object that was cut out. With --reg-reach seen it \
                 applies"
            );
        }
    }
}

/// Smallest median number of training views that contain a point, ...
const MANY_VIEWS: f64 = 25.0;

/// ... largest spread of their distances ([`Coverage::distance_spread`]), ...
const EQUAL_DISTANCES: f64 = 0.25;

/// ... and largest difference in exposure of neighbouring photographs, stops, at which training views agree.
const EQUAL_EXPOSURES: f64 = 0.07;

/// Option that keeps a model from fitting its views too closely.
struct Restraint {
    option: &'static str,
    value: fn(&mut Config) -> &mut f64,
    /// Value of the presets.
    usual: f64,
    /// Value for training views that agree.
    relaxed: f64,
}

/// Options that `--relax-if-views-agree` changes.
const RESTRAINTS: [Restraint; 6] = [
    Restraint {
        option: "near_share",
        value: |config| &mut config.scene.near_share,
        usual: 0.06,
        relaxed: 0.0,
    },
    Restraint {
        option: "unseen_noise_lr",
        value: |config| &mut config.densify.unseen_noise_lr,
        usual: 3e6,
        relaxed: 0.0,
    },
    Restraint {
        option: "sh_decay",
        value: |config| &mut config.optimize.sh_decay,
        usual: 1.0,
        relaxed: 0.0,
    },
    Restraint {
        option: "scale_limit",
        value: |config| &mut config.optimize.scale_limit,
        usual: 0.33,
        relaxed: 0.0,
    },
    Restraint {
        option: "lambda_dssim",
        value: |config| &mut config.optimize.lambda_dssim,
        usual: 0.5,
        relaxed: 0.2,
    },
    Restraint {
        option: "opacity_reg",
        value: |config| &mut config.optimize.opacity_reg,
        usual: 0.01,
        relaxed: 0.002,
    },
];

/// Relaxes the restraints of a preset if the training views agree, or if the run that is continued did so (`before`:
/// its configuration). The configuration stores the values, so that a resumed run keeps them. `is_given`: options that
/// were typed or are in a file. `images`: loader of the scene, if it is open.
pub(super) fn relax_if_views_agree(
    config: &mut Config,
    dataset: &Dataset,
    images: Option<&ImageLoader>,
    mut before: Option<Config>,
    is_given: impl Fn(&str) -> bool,
) {
    if !std::mem::take(&mut config.optimize.relax_if_views_agree) {
        return;
    }
    let goes_on = before.is_some();
    let is_cut_out = config.optimize.reg_reach == RegReach::All && !is_given("reg_reach");
    // Other reasons were named before the photographs were read.
    let is_news = config.can_relax_places() && (goes_on || is_cut_out);
    if is_news && is_given("relax_if_views_agree") {
        tracing::warn!(
            "--relax-if-views-agree has no effect: {}",
            if goes_on {
                "a run that goes on keeps its values"
            } else {
                "the photographs show an object that was cut out"
            }
        );
    }
    if !config.can_relax() {
        return;
    }
    let agrees = !goes_on && agree(dataset, images);
    for Restraint { option, value, usual, relaxed } in RESTRAINTS {
        let earlier = before.as_mut().filter(|before| before.can_relax());
        let was_relaxed = earlier.is_some_and(|before| *value(before) == relaxed);
        let value = value(config);
        if (agrees || was_relaxed) && *value == usual && !is_given(option) {
            *value = relaxed;
        }
    }
}

/// True if many training views show a point from similar distances, and neighbours have the same exposure.
fn agree(dataset: &Dataset, images: Option<&ImageLoader>) -> bool {
    let Some(coverage) = Coverage::of(dataset) else { return false };
    let step = is_dense(coverage).then(|| exposure_step(dataset, images)).flatten();
    let agrees = step.is_some_and(|step| step <= EQUAL_EXPOSURES);
    tracing::debug!(
        "a point is within {} training views, at distances that differ by {:.0} %{}: --relax-if-views-agree {}",
        coverage.views,
        100.0 * coverage.distance_spread,
        step.map_or(String::new(), |step| format!(", neighbours differ by {step:.3} stops")),
        if agrees { "applies" } else { "does not apply" }
    );
    agrees
}

fn is_dense(Coverage { views, distance_spread }: Coverage) -> bool {
    views >= MANY_VIEWS && distance_spread <= EQUAL_DISTANCES
}

/// Warns if a typed `--empty-weight` does not apply to these photographs. `was_auto`: they settled `reg_reach`. Options
/// that disable the weight are warned of elsewhere.
pub(super) fn warn_of_empty_weight(config: &Config, dataset: &Dataset, was_auto: bool) {
    let has_masks = dataset.train.iter().any(|&view| dataset.sources[view].may_have_mask());
    let at_all = OptimizeOptions { reg_reach: RegReach::All, ..config.optimize.clone() };
    if !at_all.weights_masked_pixels() {
        return;
    }
    if was_auto && config.optimize.reg_reach == RegReach::Seen {
        tracing::warn!(
            "--empty-weight has no effect: the photographs do not show an object that was cut out. With --reg-reach all \
             it applies"
        );
    } else if config.optimize.weights_masked_pixels() && !has_masks {
        tracing::warn!("--empty-weight has no effect: no photograph has a mask");
    }
}

fn background_for(shares: &Shares) -> TrainingBackground {
    let is_alike = |(share, color_match): &(f64, ColorMatch)| *share > color_match.most;
    if let Some((share, ColorMatch { tolerance, .. })) =
        shares.alike.into_iter().zip(COLOR_MATCHES).find(is_alike)
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

/// Shares of the pixels of some training photographs.
struct Shares {
    /// Share of the unmasked pixels that have the background's colour, by rule.
    alike: [f64; COLOR_MATCHES.len()],
    /// Share of all pixels that are masked or have nearly the background's colour.
    empty: f64,
}

impl Shares {
    /// Inspects a few photographs. Unreadable ones are skipped, because training reports them.
    fn of_photographs(dataset: &Dataset, color: Color) -> Self {
        let train = &dataset.train;
        let indices: Vec<usize> = evenly_spread(INSPECTED_PHOTOS.min(train.len()), train.len())
            .map(|at| train[at])
            .collect();
        let mut sum = PixelCounts::default();
        // Decode one at a time, because --host-limit has room for one.
        for image in indices.into_iter().filter_map(|view| decode(&dataset.sources[view]).ok()) {
            let counts = PixelCounts::of(&image, color);
            sum.alike.iter_mut().zip(counts.alike).for_each(|(sum, more)| *sum += more);
            sum.counting += counts.counting;
            sum.all += counts.all;
        }
        let share = |part: u64, whole: u64| part as f64 / whole.max(1) as f64;
        let about = sum.alike[COLOR_MATCHES.len() - 1];
        Self {
            alike: sum.alike.map(|alike| share(alike, sum.counting)),
            empty: share(sum.all - sum.counting + about, sum.all),
        }
    }
}

#[derive(Debug, Default, PartialEq, Eq)]
struct PixelCounts {
    /// Unmasked pixels with the background's colour, by rule.
    alike: [u64; COLOR_MATCHES.len()],
    /// Unmasked pixels.
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
            for (pixels, ColorMatch { tolerance, .. }) in counts.alike.iter_mut().zip(COLOR_MATCHES)
            {
                *pixels += u64::from(difference <= tolerance);
            }
        }
        counts
    }
}

#[cfg(test)]
mod tests {
    use clap::{Args as _, Command};

    use super::*;
    use crate::config::{ConfigLayer, Layers, StrategyName, resolve};

    #[test]
    fn the_limit_is_the_options_or_follows_from_pixels_and_strategy() {
        for (text, pixels, limit) in [
            ("densify.strategy = \"adc\"", 36_000_000, (900_000, LimitSource::Strategy)),
            ("densify.strategy = \"gof\"", 400_000, (100_000, LimitSource::Strategy)),
            ("densify.strategy = \"adc\"", 8_000_000_000, (5_000_000, LimitSource::Strategy)),
            ("densify.strategy = \"mcmc\"", 400_000, (1_000_000, LimitSource::Option)),
            ("densify.strategy = \"budget\"", 400_000, (10_000, LimitSource::Pixels)),
            ("densify.max_points = 12", 36_000_000, (12, LimitSource::Option)),
            ("optimize.primitive = \"triangles\"", 400_000, (6666, LimitSource::Pixels)),
        ] {
            let base = Some(ConfigLayer { origin: "a.toml", text });
            let config = resolve(Layers { base, ..Layers::default() }).unwrap();
            assert_eq!(largest_number(&config, pixels), limit, "{text}");
        }
    }

    #[test]
    fn small_photographs_allow_one_gaussian_per_forty_pixels() {
        for (pixels, gaussians) in [
            (8_000_000_000, 5_000_000),
            (86_407_462, 345_629),
            (35_000_001, 280_000),
            (1_350_000, 33_750),
            (806_400, 20_160),
            (9, 1),
        ] {
            assert_eq!(gaussians_for(pixels, 250), gaussians, "{pixels} pixels");
        }
    }

    #[test]
    fn few_small_views_get_more_passes() {
        for (views, pixels, passes) in [
            // castle, fox, cattoy, bonsai.
            (26, 26 * 1536 * 1024, 100),
            (43, 43 * 1061 * 1894, 64),
            (68, 68 * 800 * 800, 88),
            (255, 255 * 800 * 533, 23),
            (1, 0, 100),
        ] {
            assert_eq!(passes_for(100, views, pixels), passes, "{views} views");
        }
        assert_eq!(passes_for(0, 26, 1), 0);
    }

    #[test]
    fn density_control_lasts_until_the_last_passes_over_few_views() {
        let fast = |few_view_passes, time_budget: Option<&str>| {
            let mut config = Config::default();
            let time_budget = time_budget.map(|text| text.parse().unwrap());
            let limits = (time_budget.map_or(65, |_| 100), few_view_passes, time_budget);
            let optimize = &mut config.optimize;
            (optimize.max_passes, optimize.few_view_passes, optimize.time_budget) = limits;
            (optimize.iterations, optimize.min_passes) = (6000, 28);
            config.densify.strategy = StrategyName::Budget;
            (config.densify.densify_until_iter, config.densify.opacity_reset_interval) =
                (3000, 500);
            config
        };
        let settled = |mut config: Config, views: usize| {
            settle_passes(&mut config, views, 1000 * views as u64);
            let again = config.clone();
            settle_passes(&mut config, views, 1000 * views as u64);
            assert_eq!(config, again, "a run that goes on");
            let (optimize, densify) = (config.optimize, config.densify);
            (optimize.max_passes, [densify.densify_until_iter, densify.opacity_reset_interval])
        };
        // 100 passes over 26 views are 2,600 images, so that 32 are 1,920 iterations and 6 are 360.
        assert_eq!(settled(fast(100, None), 26), (100, [4080, 360]));
        assert_eq!(settled(fast(100, None), 75), (80, [3600, 450]));
        // 1,000 and 200 images: 6 passes are fewer images than halvings need.
        assert_eq!(settled(fast(100, None), 10), (100, [4080, 600]));
        assert_eq!(settled(fast(100, None), 2), (100, [4080, 3000]));
        assert_eq!(settled(fast(0, None), 2), (65, [3000, 4616]));
        assert_eq!(settled(fast(100, None), 93), (65, [3000, 500]), "many views");
        assert_eq!(settled(fast(0, None), 26), (65, [3000, 500]), "turned off");
        assert_eq!(settled(fast(100, Some("9s")), 26), (100, [4080, 500]));
        assert_eq!(settled(fast(100, Some("9s")), 75), (100, [3000, 500]));
        assert_eq!(settled(fast(20, Some("9s")), 26), (100, [3000, 500]), "no limit falls");
        assert_eq!(settled(fast(0, Some("9s")), 26), (100, [3000, 500]));
        let mut gradients = fast(100, None);
        gradients.densify.strategy = StrategyName::Adc;
        assert_eq!(settled(gradients, 26), (65, [3000, 500]));
        let mut triangles = fast(100, None);
        triangles.optimize.primitive = PrimitiveName::Triangles;
        assert_eq!(settled(triangles, 26), (65, [3000, 500]));
        let mut unlimited = fast(100, None);
        unlimited.optimize.max_passes = 0;
        assert_eq!(settled(unlimited, 26), (0, [3000, 500]));
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
    fn the_help_states_the_limits_of_the_code() {
        let command = Config::augment_args(Command::new("splat"));
        for (flag, numbers) in [
            ("max_points", &["40 pixels", "60 of the", "6,000,000", "4,000,000"][..]),
            ("pixels_per_gaussian", &["5,000,000", "280,000", "40 pixels"]),
            ("few_view_passes", &["6,000 images", "5.6 billion", "32 passes", "every 6 passes"]),
            ("opacity_reset_interval", &["100 images"]),
            (
                "relax_if_views_agree",
                &["at least 25", "at most 25 %", "0.07 stops", "0.2", "0.002"],
            ),
        ] {
            let flag = command.get_arguments().find(|given| given.get_id() == flag).unwrap();
            let help = flag.get_long_help().unwrap().to_string();
            for number in numbers {
                assert!(help.contains(number), "{number}: {help}");
            }
        }
    }

    #[test]
    fn few_views_and_views_along_a_walk_do_not_agree() {
        for (views, distance_spread, dense) in
            [(25.0, 0.25, true), (24.5, 0.1, false), (60.0, 0.26, false)]
        {
            assert_eq!(is_dense(Coverage { views, distance_spread }), dense, "{views}");
        }
    }

    #[test]
    fn restraints_name_the_values_of_the_presets() {
        for preset in ["draft", "fast", "best"] {
            let mut config = resolve(Layers { preset: Some(preset), ..Layers::default() }).unwrap();
            for Restraint { option, value, usual, .. } in RESTRAINTS {
                assert_eq!(*value(&mut config), usual, "{preset}: {option}");
            }
        }
    }

    #[test]
    fn pixels_are_counted_by_colour_and_mask() {
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
