//! Schedules that scale with the length of the run: those of some presets, and of triangles.

use toml::{Table, Value};

use super::options::MOST_MODELS;
use super::presets::{REFERENCE, preset_text, unaliased};
use super::{
    Config, DensifyOptions, MemoryOptions, OptimizeOptions, RegReach, TrainingBackground,
    TrianglesOptions,
};

/// Presets whose schedules scale with the length of the run.
const PRESETS: [&str; 3] = ["draft", "fast", "best"];

/// Iterations of these presets that scale with the length.
const SHARES: [(&str, &str); 4] = [
    (OptimizeOptions::NAME, "position_lr_max_steps"),
    (OptimizeOptions::NAME, "sh_degree_interval"),
    (OptimizeOptions::NAME, "normals_from_iter"),
    (DensifyOptions::NAME, "densify_until_iter"),
];

/// Iterations of triangle runs that scale with the length.
const TRIANGLE_SHARES: [(&str, &str); 16] = [
    (OptimizeOptions::NAME, "position_lr_max_steps"),
    (OptimizeOptions::NAME, "normals_from_iter"),
    (OptimizeOptions::NAME, "sh_degree_interval"),
    (DensifyOptions::NAME, "densify_from_iter"),
    (DensifyOptions::NAME, "densify_until_iter"),
    (DensifyOptions::NAME, "densification_interval"),
    (TrianglesOptions::NAME, "sigma_start"),
    (TrianglesOptions::NAME, "sigma_until"),
    (TrianglesOptions::NAME, "start_opacity_floor"),
    (TrianglesOptions::NAME, "final_opacity_iter"),
    (TrianglesOptions::NAME, "opacity_floor_interval"),
    (TrianglesOptions::NAME, "start_upsampling"),
    (TrianglesOptions::NAME, "last_upsampling"),
    (TrianglesOptions::NAME, "start_pruning"),
    (TrianglesOptions::NAME, "delaunay_iter"),
    (TrianglesOptions::NAME, "hidden_interval"),
];

/// Additional iterations of the preset `best` that scale with the length. At 65 passes they match those of `fast`.
const BEST_INTERVALS: [(&str, &str); 3] = [
    (DensifyOptions::NAME, "densify_from_iter"),
    (DensifyOptions::NAME, "densification_interval"),
    (DensifyOptions::NAME, "opacity_reset_interval"),
];

/// Length at which these intervals equal those of `fast`. Shorter runs keep them, as `fast` does.
const MIN_BEST_LENGTH: i64 = 6000;

/// Divisor of the end of density control: the latest start.
const LATEST_START: i64 = 4;

/// True if schedules of this preset scale with the length of the run.
pub fn follows_iterations(preset: &str) -> bool {
    PRESETS.contains(&unaliased(preset))
}

/// Returns the preset, among those that scale with the length, that a run of this configuration began with.
pub fn nearest_preset(run: &Config) -> Option<&'static str> {
    let table = run.to_table().ok()?;
    // Among equal numbers of differences, prefer the preset with more matching options.
    let rank = |name| {
        let (differing, keys) = (differences(name, &table)?, keys(name)?);
        Some((differing, std::cmp::Reverse(keys - differing), keys, name))
    };
    let (differing, _, keys, name) = PRESETS.into_iter().filter_map(rank).min()?;
    (2 * differing < keys).then_some(name)
}

/// True if the run began with another preset than this one, which replaces options.
///
/// `reference` replaces nothing. For other presets, the run may have changed up to half of their options.
pub fn changes_run(name: &str, run: &Config) -> bool {
    if follows_iterations(name) {
        return nearest_preset(run) != Some(unaliased(name));
    }
    let differs = |table: Table| Some(2 * differences(name, &table)? > keys(name)?);
    name != REFERENCE && run.to_table().ok().and_then(differs).unwrap_or(false)
}

/// Returns the preset without its length and memory options, for a run of this length.
fn comparable(name: &str, run: &Table) -> Option<Table> {
    let mut preset: Table = preset_text(name).ok()?.parse().ok()?;
    preset.remove(MemoryOptions::NAME);
    // A preset without a length is not scaled.
    let mut preset = stretched(name, preset, std::slice::from_ref(run));
    if let Some(section) = preset.get_mut(OptimizeOptions::NAME).and_then(Value::as_table_mut) {
        section.remove(LENGTH);
    }
    Some(preset)
}

/// Returns the number of options of a preset.
fn keys(name: &str) -> Option<usize> {
    let preset = comparable(name, &Table::new())?;
    Some(preset.values().filter_map(Value::as_table).map(Table::len).sum())
}

/// Returns the number of a preset's options that a run has otherwise.
fn differences(name: &str, run: &Table) -> Option<usize> {
    let preset = comparable(name, run)?;
    let differs = |section: &str, key: &str, value: &Value| {
        run.get(section).and_then(|section| section.get(key)) != Some(value)
    };
    let in_section = |(section, values): (&String, &Value)| {
        let values = values.as_table()?.iter();
        Some(values.filter(|(key, value)| differs(section, key, value)).count())
    };
    Some(preset.iter().filter_map(in_section).sum())
}

/// Key of a run's length.
pub(super) const LENGTH: &str = "iterations";

/// Limits of passes, which only fit the preset's own length.
const PASSES: [&str; 3] = ["min_passes", MAX_PASSES, FEW_VIEW_PASSES];

const ENSEMBLE: &str = "ensemble";

const FEW_VIEW_PASSES: &str = "few_view_passes";

/// Options that few training views may change.
const FEW_VIEW_OPTIONS: [(&str, &str); 3] = [
    (OptimizeOptions::NAME, MAX_PASSES),
    (DensifyOptions::NAME, "densify_until_iter"),
    (DensifyOptions::NAME, "opacity_reset_interval"),
];

const MAX_PASSES: &str = "max_passes";

/// Smallest limit of passes with a time budget. More passes overfit.
const PASSES_BY_CLOCK: i64 = 100;

/// Scales a preset to the length that a layer above gives. Other presets, and a preset without a given length, stay
/// unchanged.
pub(super) fn stretched(name: &str, mut preset: Table, above: &[Table]) -> Table {
    if FEW_VIEW_OPTIONS
        .iter()
        .any(|(section, key)| above.iter().any(|layer| has_option(layer, section, key)))
    {
        clear_limits(&mut preset, &[FEW_VIEW_PASSES]);
    }
    let given = above.iter().rev().find_map(iterations);
    let own = iterations(&preset).filter(|&own| own > 0 && follows_iterations(name));
    let (Some(given), Some(own)) = (given, own) else { return preset };
    let intervals = if unaliased(name) == "best" { &BEST_INTERVALS[..] } else { &[] };
    let lengths = SHARES.iter().map(|key| (key, given));
    let lengths = lengths.chain(intervals.iter().map(|key| (key, given.max(MIN_BEST_LENGTH))));
    for ((section, key), length) in lengths {
        if let Some(value) = integer_mut(&mut preset, section, key) {
            *value = (value.saturating_mul(length) / own).max((*value).min(1));
        }
    }
    start_in_time(&mut preset);
    clear_limits(&mut preset, &PASSES);
    preset
}

/// Lifts the pass limits of an earlier run if a layer above changes its length, and raises them if
/// a layer adds a clock.
pub(super) fn free_passes(before: &mut Table, above: &[Table]) {
    let given = above.iter().rev().find_map(iterations);
    if given.is_some() && given != iterations(before) {
        clear_limits(before, &PASSES);
    } else if above.iter().any(has_clock) && !has_clock(before) {
        raise_passes(before);
    }
}

/// Sets these pass limits of a layer to 0.
fn clear_limits(layer: &mut Table, limits: &[&str]) {
    for key in limits {
        if let Some(passes) = integer_mut(layer, OptimizeOptions::NAME, key) {
            *passes = 0;
        }
    }
}

/// Changes a preset so that a time budget can be used up: more passes, and an ensemble if its schedules scale with the
/// length.
pub(super) fn follow_clock(name: &str, preset: &mut Table) {
    raise_passes(preset);
    let section = preset.get_mut(OptimizeOptions::NAME).and_then(Value::as_table_mut);
    if let Some(section) = section.filter(|_| follows_iterations(name)) {
        section.insert(ENSEMBLE.to_owned(), i64::from(MOST_MODELS).into());
    }
}

/// Raises the pass limit of a preset or an earlier run, so that a time budget can be used up.
fn raise_passes(layer: &mut Table) {
    let most = integer_mut(layer, OptimizeOptions::NAME, MAX_PASSES);
    if let Some(most) = most.filter(|most| **most > 0) {
        *most = (*most).max(PASSES_BY_CLOCK);
    }
}

/// True if a layer sets a time budget.
pub(super) fn has_clock(layer: &Table) -> bool {
    has_option(layer, OptimizeOptions::NAME, "time_budget")
}

fn has_option(layer: &Table, section: &str, key: &str) -> bool {
    layer.get(section).is_some_and(|section| section.get(key).is_some())
}

/// Returns the number of an option, if a layer has it.
fn integer_mut<'a>(layer: &'a mut Table, section: &str, key: &str) -> Option<&'a mut i64> {
    match layer.get_mut(section)?.get_mut(key)? {
        Value::Integer(value) => Some(value),
        _ => None,
    }
}

/// Scales the schedules of a triangle run to this number of iterations. Values above 0 stay above 0.
pub(super) fn triangles_for(values: &mut Table, iterations: u32) {
    let Some(own) = self::iterations(values).filter(|&own| own > 0) else { return };
    for (section, key) in TRIANGLE_SHARES {
        if let Some(value) = integer_mut(values, section, key) {
            let share = value.saturating_mul(i64::from(iterations)) / own;
            *value = share.clamp((*value).min(1), i64::from(u32::MAX));
        }
    }
}

/// Divisor of the iterations of a model of `--ensemble`.
const ENSEMBLE_DIVISOR: u32 = 4;

/// Images of a model of `--ensemble` in a run with a time budget: those of `fast`.
const MODEL_IMAGES: u32 = 6000;

/// Passes of such a model over many photographs, at least.
const MODEL_PASSES: u32 = 28;

/// Shortest start, interval and opacity halving of density control in a model of `--ensemble`: those of `fast`.
const MIN_ENSEMBLE_INTERVALS: [u32; 3] = [500, 100, 500];

impl Config {
    /// Returns the options of a model of `--ensemble`: a quarter of the iterations, with schedules that keep their
    /// shares. With a time budget the schedules follow the clock, and the model has the images of `fast`. `before`: the
    /// configuration before pass limits of the final model were settled. `photographs`: number of training views.
    pub fn of_ensemble_model(&self, before: &Self, photographs: usize) -> Self {
        let mut config = self.with_passes_of(before);
        let (optimize, densify) = (&mut config.optimize, &mut config.densify);
        optimize.ensemble = 0;
        config.output.timelapse = None;
        densify.target_gaussians = None;
        if optimize.time_budget.is_some() {
            let views = u32::try_from(photographs).unwrap_or(u32::MAX).max(1);
            let passes = MODEL_IMAGES.div_ceil(views).max(MODEL_PASSES);
            let is_limited = optimize.max_passes > 0;
            optimize.max_passes = if is_limited { optimize.max_passes.min(passes) } else { passes };
            return config;
        }
        for value in [
            &mut optimize.iterations,
            &mut optimize.position_lr_max_steps,
            &mut optimize.sh_degree_interval,
            &mut optimize.normals_from_iter,
            &mut densify.densify_until_iter,
        ] {
            *value = (*value / ENSEMBLE_DIVISOR).max((*value).min(1));
        }
        let intervals = [
            &mut densify.densify_from_iter,
            &mut densify.densification_interval,
            &mut densify.opacity_reset_interval,
        ];
        for (value, least) in intervals.into_iter().zip(MIN_ENSEMBLE_INTERVALS) {
            *value = (*value / ENSEMBLE_DIVISOR).max((*value).min(least));
        }
        let latest = densify.densify_until_iter / u32::try_from(LATEST_START).unwrap_or(1);
        densify.densify_from_iter = densify.densify_from_iter.min(latest);
        config
    }

    /// Returns the options that a run stores until its ensemble is trained, so that another start settles what its
    /// models need again. `before`: see [`Self::of_ensemble_model`] and [`Self::learn_from_renders`].
    pub fn until_ensemble(&self, before: &Self) -> Self {
        let mut config = self.with_passes_of(before);
        config.optimize.reg_reach = before.optimize.reg_reach;
        config.densify.training_background = before.densify.training_background;
        config
    }

    /// Returns these options with the pass limits, and what follows from them, of `before`.
    pub fn with_passes_of(&self, before: &Self) -> Self {
        let mut config = self.clone();
        config.optimize.max_passes = before.optimize.max_passes;
        config.optimize.few_view_passes = before.optimize.few_view_passes;
        config.densify.densify_until_iter = before.densify.densify_until_iter;
        config.densify.opacity_reset_interval = before.densify.opacity_reset_interval;
        config
    }

    /// Settles the training background of a run that learns from renders. They are opaque around an object that was cut
    /// out, so that another background would make the model opaque there. `before`: the configuration before options
    /// followed from the photographs.
    pub fn learn_from_renders(&mut self, before: &Self) {
        let is_cut_out =
            before.optimize.reg_reach == RegReach::Auto && self.optimize.reg_reach == RegReach::All;
        if is_cut_out && before.densify.training_background == TrainingBackground::Auto {
            self.densify.training_background = TrainingBackground::Same;
        }
    }
}

/// Starts density control early enough for several densification steps.
fn start_in_time(preset: &mut Table) {
    let until = integer_mut(preset, DensifyOptions::NAME, "densify_until_iter").copied();
    let from = integer_mut(preset, DensifyOptions::NAME, "densify_from_iter");
    if let (Some(until), Some(from)) = (until, from) {
        *from = (*from).min(until / LATEST_START);
    }
}

/// Returns the length of the run, if a layer gives it.
fn iterations(layer: &Table) -> Option<i64> {
    layer.get(OptimizeOptions::NAME)?.get(LENGTH)?.as_integer()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(text: &str) -> Table {
        text.parse().unwrap()
    }

    const FAST: &str = "[optimize]\niterations = 6000\nposition_lr_max_steps = 6000\n\
                        sh_degree_interval = 1000\n[densify]\ndensify_from_iter = 500\n\
                        densify_until_iter = 4800\n";

    #[test]
    fn a_model_of_an_ensemble_has_a_quarter_of_the_preset_best_which_is_the_preset_fast() {
        let of_preset = |name: &str| Config::from_toml(name, preset_text(name).unwrap()).unwrap();
        let (fast, best) = (of_preset("fast"), of_preset("best"));
        // Pass limits of the final model were settled.
        let mut settled = best.clone();
        settled.optimize.few_view_passes = 0;
        settled.optimize.max_passes = 76;
        settled.densify.opacity_reset_interval = 1500;
        let model = settled.of_ensemble_model(&best, 26);
        assert_eq!(model.optimize, fast.optimize);
        let pixels_per_gaussian = best.densify.pixels_per_gaussian;
        assert_eq!(model.densify, DensifyOptions { pixels_per_gaussian, ..fast.densify });
    }

    #[test]
    fn with_a_time_budget_a_model_of_an_ensemble_has_the_schedules_of_the_run_and_the_images_of_fast()
     {
        let mut before = Config::from_toml("fast", preset_text("fast").unwrap()).unwrap();
        before.optimize.max_passes = 100;
        before.optimize.time_budget = "20s".parse().ok();
        let passes = |max_passes, views| {
            let mut config = before.clone();
            config.optimize.max_passes = max_passes;
            let model = config.of_ensemble_model(&config, views);
            assert_eq!(model.densify, before.densify);
            assert_eq!(model.optimize.iterations, before.optimize.iterations);
            model.optimize.max_passes
        };
        // 6,000 images, 28 passes over many views, and the run's own limit.
        assert_eq!([80, 200, 300, 26].map(|views| passes(100, views)), [75, 30, 28, 100]);
        assert_eq!(passes(0, 26), 231);
    }

    #[test]
    fn a_clock_adds_passes_and_an_ensemble_to_presets_that_scale() {
        let changed = |name| {
            let mut preset: Table = preset_text(name).unwrap().parse().unwrap();
            let before = preset.clone();
            follow_clock(name, &mut preset);
            let number = |key| integer_mut(&mut preset, OptimizeOptions::NAME, key).copied();
            let found = [MAX_PASSES, ENSEMBLE].map(number);
            (found, preset == before)
        };
        for name in PRESETS {
            assert_eq!(changed(name).0, [Some(100), Some(32)], "{name}");
        }
        assert!(changed("mcmc").1);
    }

    #[test]
    fn only_a_cut_out_object_that_was_recognised_changes_the_training_background() {
        let learned = |before, background, reach| {
            let mut config = Config::default();
            config.optimize.reg_reach = before;
            config.densify.training_background = background;
            let before = config.clone();
            config.optimize.reg_reach = reach;
            config.densify.training_background = TrainingBackground::Grey;
            config.learn_from_renders(&before);
            config.densify.training_background
        };
        let (auto, grey) = (TrainingBackground::Auto, TrainingBackground::Grey);
        let found = learned(RegReach::Auto, auto, RegReach::All);
        assert_eq!(found, TrainingBackground::Same);
        for (before, background, reach) in [
            (RegReach::Auto, auto, RegReach::Seen),
            (RegReach::All, auto, RegReach::All),
            (RegReach::Auto, grey, RegReach::All),
        ] {
            assert_eq!(learned(before, background, reach), grey);
        }
    }

    #[test]
    fn shares_scale_with_the_last_given_length_and_other_values_stay() {
        let file = table("[optimize]\niterations = 99\n");
        let typed = table("[optimize]\niterations = 12000\n");
        let expected = FAST.replace("steps = 6000", "steps = 12000").replace("4800", "9600");
        let expected = expected.replace("interval = 1000", "interval = 2000");
        let found = stretched("fast", table(FAST), &[file, typed]);
        assert_eq!(found, table(&expected));
        assert_eq!(stretched("smoke", table(FAST), &[table(&expected)]), table(FAST));
        assert_eq!(stretched("fast", table(FAST), &[table("[run]\nseed = 1\n")]), table(FAST));
        let short = table("[optimize]\niterations = 600\n");
        let found = stretched("fast", table(FAST), &[short]);
        let rounds = ["densify_from_iter", "densify_until_iter"];
        assert_eq!(rounds.map(|key| found["densify"][key].as_integer()), [Some(120), Some(480)]);
        assert_eq!(found["optimize"]["sh_degree_interval"].as_integer(), Some(100));
        let preset = table(
            "[optimize]\niterations = 6000\nmin_passes = 28\nmax_passes = 65\nfew_view_passes = 100\n",
        );
        let best =
            table("[optimize]\niterations = 24000\n[densify]\nopacity_reset_interval = 2000\n");
        let halvings = |iterations: u32| {
            let above = table(&format!("[optimize]\niterations = {iterations}\n"));
            stretched("best", best.clone(), &[above])["densify"]["opacity_reset_interval"]
                .as_integer()
        };
        assert_eq!([12_000, 6000, 30].map(halvings), [Some(1000), Some(500), Some(500)]);
        let passes = |above: &str| {
            let optimize =
                stretched("fast", preset.clone(), &[table(above)])[OptimizeOptions::NAME].clone();
            PASSES.map(|key| optimize[key].as_integer().unwrap())
        };
        assert_eq!(passes("[run]\nseed = 1\n"), [28, 65, 100]);
        assert_eq!(passes("[optimize]\niterations = 9\n"), [0, 0, 0]);
        for given in [
            "[optimize]\nmax_passes = 9\n",
            "[densify]\ndensify_until_iter = 9\n",
            "[densify]\nopacity_reset_interval = 9\n",
        ] {
            assert_eq!(passes(given), [28, 65, 0], "{given}");
        }
        let longest = table("[optimize]\niterations = 4294967295\n");
        let found = stretched("fast", table(FAST), &[longest]);
        assert_eq!(found["densify"]["densify_until_iter"].as_integer(), Some(3_435_973_836));
    }

    #[test]
    fn a_new_clock_raises_the_passes_of_an_earlier_run() {
        let clock = "[optimize]\ntime_budget = \"20s\"\n";
        let most = |before: &str, above: &str| {
            let mut before = table(before);
            free_passes(&mut before, &[table(above)]);
            before[OptimizeOptions::NAME][MAX_PASSES].as_integer().unwrap()
        };
        let earlier = "[optimize]\niterations = 6000\nmax_passes = 65\n";
        assert_eq!(most(earlier, "[run]\nseed = 1\n"), 65);
        assert_eq!(most(earlier, clock), PASSES_BY_CLOCK);
        assert_eq!(most(&format!("{clock}max_passes = 65\n"), clock), 65, "its clock was known");
        assert_eq!(most("[optimize]\nmax_passes = 0\n", clock), 0, "no limit stays none");
        assert_eq!(most("[optimize]\nmax_passes = 350\n", clock), 350, "more stay");
        assert_eq!(most(earlier, &format!("{clock}iterations = 9000\n")), 0);
    }
}
