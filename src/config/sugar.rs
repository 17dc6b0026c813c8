//! Options of SuGaR's coarse stage.

use std::ffi::{OsStr, OsString};
use std::iter::Peekable;
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use super::declare::options;
use super::no_effect::Idle;
use super::normalize::Normalized;
use super::values::{count, holds, path, rate};
use crate::abi::MOST_NEIGHBOURS;

const NO_STAGE: Idle<SugarOptions> =
    Idle::When { is: |sugar| sugar.regularize == Regularize::None, words: "without --regularize" };
const NO_DN_CONSISTENCY: Idle<SugarOptions> = Idle::When {
    is: |sugar| sugar.regularize != Regularize::DnConsistency,
    words: "without --regularize dn-consistency",
};
const NO_DEPTH_NORMALS: Idle<SugarOptions> = Idle::When {
    is: |sugar| !matches!(sugar.regularize, Regularize::DnConsistency | Regularize::MedianNormal),
    words: "without --regularize dn-consistency or median-normal",
};

options! {
    /// How surfaces are regularised after the photometric stage (SuGaR, Guédon and Lepetit 2024).
    #[command(next_help_heading = "Surfaces (SuGaR's coarse stage)")]
    pub struct SugarOptions in "sugar" of SugarOptions {
        /// Surface terms of the coarse stage
        ///
        /// The stage follows the last of --iterations. Its terms move Gaussians onto surfaces.
        #[arg(value_enum, alias = "regularization-type", value_name = "TERMS")]
        regularize: Regularize = Regularize::None;

        /// Iterations of the coarse stage
        #[arg(value_name = "N")]
        sugar_iterations: u32 = 8000, is count, idle NO_STAGE, Idle::When {
            is: |sugar| {
                sugar.regularize != Regularize::None
                    && sugar.sugar_schedule == SugarSchedule::Absolute
            },
            words: "with --sugar-schedule absolute",
        };

        /// Start of the stage's schedule
        ///
        /// The original program trains opacities from iteration 7,001 to 8,999, prunes at 9,001, and
        /// trains surfaces from there to 15,000.
        #[arg(value_enum, value_name = "SCHEDULE")]
        sugar_schedule: SugarSchedule = SugarSchedule::Relative, idle NO_STAGE;

        /// Start the coarse stage from this model
        ///
        /// A model folder of any 3DGS trainer, or a PLY. The scene's points are not trained first.
        #[arg(short, value_name = "MODEL")]
        checkpoint_path: Option<PathBuf>, is path;

        /// Iteration of the model of -c [default: its last]
        ///
        /// With -c, -i N is the same, unless the scene has a folder N.
        #[arg(value_name = "N")]
        iteration_to_load: Option<u32>, idle Idle::When {
            is: |sugar| sugar.checkpoint_path.is_none(),
            words: "without -c",
        };

        /// Weight of the density or SDF term
        ///
        /// The term compares the density, or with sdf the distance field, with that of a surface.
        #[arg(value_name = "WEIGHT")]
        estimation_factor: f64 = 0.2, is rate, idle NO_STAGE;

        /// Weight of the normal term
        ///
        /// The term compares a Gaussian's normal with those of its neighbours.
        #[arg(value_name = "WEIGHT")]
        normal_factor: f64 = 0.2, is rate, idle NO_STAGE;

        /// Weight of the depth-normal loss
        ///
        /// It compares rendered normals with normals of rendered depths (dn-consistency) or of median
        /// depths (median-normal).
        #[arg(value_name = "WEIGHT")]
        dn_factor: f64 = 0.05, is rate, idle NO_DEPTH_NORMALS;

        /// Compare only opaque pixels in that loss
        ///
        /// A pixel counts where it and those beside it have at least half of all opacity, are not masked,
        /// and have depths without a step between them. With false all pixels count alike, as in SuGaR,
        /// and empty backgrounds fill with black Gaussians.
        dn_by_opacity: bool = true, idle NO_DN_CONSISTENCY;

        /// Compare photographs of neighbouring views, too
        ///
        /// Needs --regularize median-normal. A patch of a view's photograph has to look like what a view
        /// beside it shows where the median depth and the normal of the patch's middle put it. Takes
        /// a second photograph in each iteration of surfaces.
        multi_view: bool = false;

        /// Weight of the comparison with neighbouring views
        ///
        /// The term is 1 - the correlation of patches of 7x7 pixels, a mean over all pixels.
        #[arg(value_name = "WEIGHT")]
        multi_view_factor: f64 = 0.6, is rate, idle Idle::When {
            is: |sugar| !sugar.multi_view,
            words: "without --multi-view",
        };

        /// Sample points in each iteration
        ///
        /// Densities, distances and normals are compared there.
        #[arg(value_name = "N")]
        n_samples_for_sdf: u32 = 1_000_000, is count, idle NO_STAGE;

        /// Nearest neighbours of a Gaussian, 1 to 32
        ///
        /// Density, distance and normal at a point are those of these Gaussians. The Gaussian itself
        /// is one of them.
        #[arg(value_name = "K")]
        regularity_knn: u32 = 16, is |neighbours| {
            holds((1..=MOST_NEIGHBOURS).contains(neighbours), neighbours, "1 to 32")
        }, idle NO_STAGE;

        /// Iterations between comparisons at samples
        ///
        /// A comparison then counts for all the iterations up to the next.
        #[arg(value_name = "N")]
        sdf_every: u32 = 1, is count, idle NO_STAGE;

        /// Count each comparison at samples once
        ///
        /// Whatever --sdf-every is.
        reference_weighting: bool = false, idle Idle::When {
            is: |sugar| sugar.sdf_every == 1,
            words: "without --sdf-every",
        };
    }
}

impl SugarOptions {
    /// Whether views are compared with those beside them.
    pub fn compares_views(&self) -> bool {
        self.multi_view
            && self.regularize == Regularize::MedianNormal
            && self.multi_view_factor > 0.0
    }
}

/// Surface terms of the coarse stage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Regularize {
    /// None: there is no coarse stage
    #[default]
    None,
    /// The density around a Gaussian is that of a surface through it; normals agree
    Density,
    /// The distance implied by the density is that to the rendered depths; normals agree
    Sdf,
    /// As density, and rendered normals agree with rendered depths
    #[value(alias = "dn_consistency")]
    DnConsistency,
    /// As density, and rendered normals agree with the depths by which half of the light is stopped
    #[value(alias = "median_normal")]
    MedianNormal,
}

/// Where the schedule of SuGaR's coarse stage starts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SugarSchedule {
    /// At the stage's first iteration
    #[default]
    Relative,
    /// At the original program's iterations
    Absolute,
}

// Command lines as SuGaR's programs take them.

/// What `-r` takes in SuGaR, besides a resolution.
const TERMS: [&str; 6] =
    ["density", "sdf", "dn_consistency", "dn-consistency", "median_normal", "median-normal"];

/// What `-r` names where the stage after the coarse one is meant.
const REFINEMENT: &str = "refinement";

/// Reads `-r TERMS` as `--regularize`, and `-i N` beside `-c` as `--iteration-to-load`, unless the
/// scene has a folder of that name. Each is said in a notice.
pub(super) fn translate(normalized: Normalized) -> Normalized {
    let Normalized { args, mut notices, mut later_stages } = normalized;
    let has_model = value_of(&args, "-c", "--checkpoint-path").is_some();
    let scene = value_of(&args, "-s", "--source-path").map_or_else(|| ".".into(), PathBuf::from);
    let mut left = args.into_iter().peekable();
    let mut args = Vec::new();
    while let Some(arg) = left.next() {
        if arg == "--" {
            args.push(arg);
            args.extend(left);
            break;
        }
        let terms = taken_value(&arg, "-r", &mut left, |value| {
            TERMS.contains(&value) || value == REFINEMENT
        });
        let iteration = taken_value(&arg, "-i", &mut left, |value| {
            has_model && value.parse::<u32>().is_ok() && !is_folder(&scene, value)
        });
        match (terms, iteration) {
            (Some(terms), _) if terms == REFINEMENT => {
                later_stages.push(format!("-r {REFINEMENT}"));
            }
            (Some(terms), _) => {
                notices.push(format!("-r {terms} is read as --regularize {terms}"));
                args.extend(["--regularize".into(), terms.into()]);
            }
            (None, Some(iteration)) => {
                notices.push(format!(
                    "-i {iteration} is read as --iteration-to-load {iteration}: with -c, and no folder \
                     {iteration} in the scene, it is no folder of photographs"
                ));
                args.extend(["--iteration-to-load".into(), iteration.into()]);
            }
            (None, None) => args.push(arg),
        }
    }
    Normalized { args, notices, later_stages }
}

fn is_folder(scene: &Path, name: &str) -> bool {
    scene.join(name).is_dir()
}

/// What is attached to a short flag, empty where nothing is.
fn attached<'a>(arg: &'a OsStr, short: &str) -> Option<&'a str> {
    let rest = arg.to_str()?.strip_prefix(short)?;
    Some(rest.strip_prefix('=').unwrap_or(rest))
}

/// The value of a short flag, attached or the next argument, if it `is` one that is looked for.
fn taken_value(
    arg: &OsStr,
    short: &str,
    next: &mut Peekable<impl Iterator<Item = OsString>>,
    is: impl Fn(&str) -> bool,
) -> Option<String> {
    match attached(arg, short)? {
        "" => next.next_if(|value| value.to_str().is_some_and(&is))?.into_string().ok(),
        value => is(value).then(|| value.to_owned()),
    }
}

/// The value of a flag in a command line; of several the last.
fn value_of(args: &[OsString], short: &str, long: &str) -> Option<OsString> {
    let mut found = None;
    for (arg, next) in args.iter().zip(args.iter().skip(1).map(Some).chain([None])) {
        if arg == "--" {
            break;
        }
        let text = arg.to_str().unwrap_or_default();
        let value = match (attached(arg, short), text.strip_prefix(long)) {
            (Some(""), _) | (_, Some("")) => next.cloned(),
            (Some(value), _) => Some(value.into()),
            (None, Some(value)) => value.strip_prefix('=').map(OsString::from),
            (None, None) => None,
        };
        found = value.or(found);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::normalize_args;

    /// The line as it is parsed, and how much is said of it.
    fn translated(line: &str) -> (String, usize) {
        let result = normalize_args(line.split(' ').map(OsString::from));
        let args: Vec<_> = result.args.iter().map(|arg| arg.to_str().unwrap()).collect();
        (args.join(" "), result.notices.len())
    }

    #[test]
    fn terms_are_no_resolution() {
        for (line, expected, notices) in [
            ("splat train -r density", "splat train --regularize density", 1),
            ("splat train -rsdf -r 2", "splat train --regularize sdf -r 2", 1),
            ("splat plan -r=dn_consistency -s a", "splat plan --regularize dn_consistency -s a", 1),
            ("splat sugar -r median_normal", "splat sugar --regularize median_normal", 1),
            ("splat train -r 4 -s density", "splat train -r 4 -s density", 0),
            ("splat train -r -1 -r2", "splat train -r -1 -r2", 0),
            ("splat train -s a -- -r density", "splat train -s a -- -r density", 0),
            ("splat eval -r density", "splat eval -r density", 0),
            ("splat train -r", "splat train -r", 0),
        ] {
            assert_eq!(translated(line), (expected.to_owned(), notices), "{line}");
        }
    }

    #[test]
    fn a_number_beside_c_is_an_iteration_where_the_scene_has_no_such_folder() {
        let scene = tempfile::tempdir().unwrap();
        std::fs::create_dir(scene.path().join("4000")).unwrap();
        let scene = scene.path().to_str().unwrap();
        for model in ["-c m", "-cm", "--checkpoint-path=m", "--checkpoint_path m"] {
            for (number, expected) in [
                ("-i 7000", "--iteration-to-load 7000"),
                ("-i7000", "--iteration-to-load 7000"),
                ("-i 4000", "-i 4000"),
                ("-i images_4", "-i images_4"),
            ] {
                for place in [format!("-s {scene}"), format!("--source-path={scene}")] {
                    let spelled = model.replace('_', "-");
                    let (line, _) = translated(&format!("splat train {place} {model} {number}"));
                    assert_eq!(line, format!("splat train {place} {spelled} {expected}"));
                }
            }
        }
        assert_eq!(translated("splat train -s a -i 7000").0, "splat train -s a -i 7000");
    }
}
