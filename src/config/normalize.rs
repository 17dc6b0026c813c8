//! Conversion of command lines that are written for other trainers.

use std::ffi::{OsStr, OsString};
use std::iter::Peekable;
use std::path::PathBuf;

use self::FlagValues::{One, Switch};

/// Number of values of a flag.
#[derive(Clone, Copy, PartialEq)]
enum FlagValues {
    /// At most `True` or `False`.
    Switch,
    One,
}

const WARM_UP: &str = "the value is not used: exposures warm up over the first 5,000 iterations or a sixth of the run";

/// Reason for Mip-Splatting's switches that train between pixel centres.
const CENTRES: &str = "pixels are drawn and compared at their centres, Mip-Splatting's own default; \
                       its filters are --preset mip";

/// Reason for Mip-Splatting's switches that train on several sizes of each photograph.
const ONE_SIZE: &str = "photographs are trained at the one size of --resolution, Mip-Splatting's own \
                        default; --preset mip keeps other sizes right";

/// Reason for 2D Gaussian splatting's switch between mean and median depths.
const DEPTHS: &str = "meshes are made of median depths, by which half of the light is stopped, and \
                      --depth of splat render shows mean depths";

/// Flags of the reference trainer, Mip-Splatting and 2D Gaussian splatting that have no effect here, with the reason.
const IGNORED: [(&str, FlagValues, &str); 20] = [
    ("--convert-SHs-python", Switch, "colours are always computed by the renderer"),
    ("--compute-cov3D-python", Switch, "covariances are always computed by the renderer"),
    ("--debug", Switch, "errors always name the stage that failed"),
    ("--detect-anomaly", Switch, "no automatic differentiation is used"),
    ("--disable-viewer", Switch, "there is no viewer to disable"),
    ("--ip", One, "there is no viewer to connect to"),
    ("--port", One, "there is no viewer to connect to"),
    ("--debug-from", One, "errors always name the stage that failed"),
    ("--data-device", One, "--low-dram and --high-dram say where images are kept"),
    ("--position-lr-delay-mult", One, "it has no effect without a delay, its default"),
    ("--optimizer-type", One, "Adam is the optimizer"),
    ("--exposure-lr-delay-steps", One, WARM_UP),
    ("--exposure-lr-delay-mult", One, WARM_UP),
    ("--gpu", One, "CUDA_VISIBLE_DEVICES chooses the GPU"),
    ("--ray-jitter", Switch, CENTRES),
    ("--resample-gt-image", Switch, CENTRES),
    ("--load-allres", Switch, ONE_SIZE),
    ("--sample-more-highres", Switch, ONE_SIZE),
    ("--depth-ratio", One, DEPTHS),
    ("--skip-mesh", Switch, "splat mesh makes meshes"),
];

/// Flags of 2D Gaussian splatting's meshing script that have no effect on `splat mesh`, with the reason.
const IGNORED_BY_MESH: [(&str, FlagValues, &str); 6] = [
    ("--depth-ratio", One, DEPTHS),
    (
        "--depth-trunc",
        One,
        "the box that is meshed says how far depths count: --bbox-min and --bbox-max choose it",
    ),
    ("--sdf-trunc", One, "distances are cut off a few voxels from surfaces"),
    ("--skip-train", Switch, "splat render writes the images"),
    ("--skip-test", Switch, "splat render writes the images"),
    ("--render-path", Switch, "no path of cameras is drawn"),
];

/// Flags of the stages after SuGaR's coarse stage.
const LATER_STAGE_FLAGS: [(&str, FlagValues); 14] = [
    ("--skip-coarse", Switch),
    ("--coarse-checkpoint", One),
    ("--refinement-time", One),
    ("--refinement-iterations", One),
    ("--surface-level", One),
    ("--n-vertices-in-mesh", One),
    ("--gaussians-per-triangle", One),
    ("--low-poly", Switch),
    ("--high-poly", Switch),
    ("--export-obj", Switch),
    ("--export-uv-textured-mesh", Switch),
    ("--postprocess-mesh", Switch),
    ("--postprocess-iterations", One),
    ("--postprocess-density-threshold", One),
];

/// Spells long flags with hyphens and joins `True` and `False` to them. Harmless flags of the reference's scripts
/// (for `train`, `sugar`, `eval`, `render` and `plan`) and of 2D Gaussian splatting (for `mesh`) are removed with a
/// notice. `train`, `sugar` and `plan` also accept SuGaR's short flags.
///
/// Only the name before `=` changes, and nothing after `--`. Arguments that are not UTF-8 stay unchanged.
pub fn normalize_args(args: impl Iterator<Item = OsString>) -> Normalized {
    let mut args = args.peekable();
    let mut normalized = Normalized::default();
    normalized.args.extend(args.next());
    let mut command: Option<OsString> = None;
    let mut after_long_flag = false;
    let is_one_of = |command: &Option<OsString>, known: &[&str]| {
        command.as_ref().is_some_and(|command| known.iter().any(|known| command == known))
    };
    while let Some(arg) = args.next() {
        if arg == "--" {
            normalized.args.push(arg);
            normalized.args.extend(args);
            break;
        }
        let Some(flag) = arg.to_str().filter(|text| text.starts_with("--")) else {
            // The first bare word is the command, unless it can be the value of a global flag.
            let is_word = !arg.to_string_lossy().starts_with('-');
            if command.is_none() && is_word && (!after_long_flag || arg == "train") {
                command = Some(arg.clone());
            }
            after_long_flag = false;
            // The comma of `1000,` in `1000, 2000` is removed.
            let is_followed = args.peek().is_some_and(|next| numbers(next).is_some());
            let list = numbers(&arg).filter(|_| is_followed).map(OsString::from);
            normalized.args.push(list.unwrap_or(arg));
            continue;
        };
        after_long_flag = !flag.contains('=');
        let (name, value) = match flag.split_once('=') {
            Some((name, value)) => (name.replace('_', "-"), Some(value.to_owned())),
            None => (
                flag.replace('_', "-"),
                args.next_if(is_switch_value).map(|arg| arg.to_string_lossy().into_owned()),
            ),
        };
        let like_reference = is_one_of(&command, &["train", "sugar", "eval", "render", "plan"]);
        let ends_with_training = is_one_of(&command, &["train", "plan"]);
        let of_reference: &[_] = if like_reference { &IGNORED } else { &[] };
        let of_mesh: &[_] = if is_one_of(&command, &["mesh"]) { &IGNORED_BY_MESH } else { &[] };
        let ignored = of_reference.iter().chain(of_mesh).find(|(known, ..)| *known == name);
        let missing =
            LATER_STAGE_FLAGS.iter().find(|(known, _)| ends_with_training && *known == name);
        let values = ignored.map(|(_, values, _)| values).or(missing.map(|(_, values)| values));
        if values == Some(&One) && value.is_none() {
            // A negative number is a value, not a flag.
            args.next_if(|next| {
                let text = next.to_string_lossy();
                !text.starts_with('-') || text.parse::<f64>().is_ok()
            });
        }
        match (ignored, missing) {
            (Some((.., reason)), _) => {
                normalized.notices.push(format!("{name} is ignored: {reason}"));
            }
            // A switch that is off needs no later stage.
            (_, Some((_, Switch)))
                if value.as_deref().is_some_and(|it| it.eq_ignore_ascii_case("false")) =>
            {
                normalized
                    .notices
                    .push(format!("{name} is ignored: this command ends with training"));
            }
            (_, Some(_)) => normalized.later_stages.push(name),
            (None, None) => normalized.args.push(match value {
                Some(value) => format!("{name}={value}").into(),
                None => name.into(),
            }),
        }
    }
    if is_one_of(&command, &["train", "sugar", "plan"]) {
        normalized.note_two_names();
        translate(normalized)
    } else {
        normalized
    }
}

/// True for a switch's value in Python's spelling.
fn is_switch_value(arg: &OsString) -> bool {
    arg.eq_ignore_ascii_case("true") || arg.eq_ignore_ascii_case("false")
}

/// Returns a comma-separated list of numbers without a trailing comma.
fn numbers(arg: &OsString) -> Option<&str> {
    let text = arg.to_str()?;
    let list = text.strip_suffix(',').unwrap_or(text);
    list.split(',').all(|part| part.parse::<f64>().is_ok()).then_some(list)
}

// Conversion of a command line before parsing.

/// Command line that is ready for the parser.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Normalized {
    /// Arguments, program name first.
    pub args: Vec<OsString>,
    /// Notices about removed or converted arguments, one sentence each.
    pub notices: Vec<String>,
    /// Flags of stages after training, which the command does not run.
    pub later_stages: Vec<String>,
}

/// Stored and alternative name of one option.
const TWO_NAMES: [&str; 2] = ["--batch-views", "--accumulate"];

impl Normalized {
    /// Adds a notice if both names of one option are given with different values.
    pub(super) fn note_two_names(&mut self) {
        let before_paths = self.args.iter().take_while(|arg| *arg != "--");
        let texts: Vec<&str> = before_paths.filter_map(|arg| arg.to_str()).collect();
        let given = |at: usize| match texts[at].split_once('=') {
            Some(given) => Some(given),
            None => Some((texts[at], *texts.get(at + 1)?)),
        };
        let given: Vec<(&str, &str)> = (0..texts.len())
            .filter_map(given)
            .filter(|(name, _)| TWO_NAMES.contains(name))
            .collect();
        let Some(&(last, value)) = given.last() else { return };
        if given.iter().all(|&(name, other)| name == last || other == value) {
            return;
        }
        let [stored, other] = TWO_NAMES;
        self.notices.push(format!(
            "{stored} and {other} are two names of one option: the last one counts, {value}"
        ));
    }

    /// Returns an error text if the command line asks for stages after training.
    pub fn refusal(&self) -> Option<String> {
        if self.later_stages.is_empty() {
            return None;
        }
        Some(format!(
            "{}: for a stage after training, leave out here. Train and mesh with splat sugar -s SCENE -m MODEL -r TERMS, or \
         mesh a trained model with splat mesh -m MODEL",
            self.later_stages.join(", ")
        ))
    }
}

// Command lines in the style of SuGaR.

/// Surface terms that SuGaR's `-r` accepts besides a resolution.
const TERMS: [&str; 6] =
    ["density", "sdf", "dn_consistency", "dn-consistency", "median_normal", "median-normal"];

/// Value of `-r` that asks for the refinement.
const REFINEMENT: &str = "refinement";

/// Converts `-r TERMS` to `--regularize`, and `-i N` with `-c` to `--iteration-to-load` unless the scene has a folder
/// N. Adds a notice for each.
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
            has_model && value.parse::<u32>().is_ok() && !scene.join(value).is_dir()
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

/// Returns the text that is attached to a short flag. Empty if there is none.
fn attached<'a>(arg: &'a OsStr, short: &str) -> Option<&'a str> {
    let rest = arg.to_str()?.strip_prefix(short)?;
    Some(rest.strip_prefix('=').unwrap_or(rest))
}

/// Takes the value of a short flag, attached or the next argument, if it satisfies `is`.
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

/// Returns the value of a flag. The last one counts.
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

    /// Returns the converted line and the number of notices.
    fn normalized(line: &str) -> (String, usize) {
        let result = normalize_args(line.split(' ').map(OsString::from));
        let args: Vec<_> = result.args.iter().map(|arg| arg.to_str().unwrap()).collect();
        (args.join(" "), result.notices.len())
    }

    #[test]
    fn command_lines_of_other_trainers_are_converted() {
        for (line, expected, notices) in [
            // Underscores become hyphens in names only.
            ("splat train --test_iterations 1 2", "splat train --test-iterations 1 2", 0),
            ("splat eval --model_path=my_model", "splat eval --model-path=my_model", 0),
            ("splat train -s my_scene --low_dram", "splat train -s my_scene --low-dram", 0),
            ("splat train -- --a_b --debug", "splat train -- --a_b --debug", 0),
            // Harmless flags of the reference's scripts are left out.
            ("splat train --debug -s a", "splat train -s a", 1),
            ("splat train --ip 0.0.0.0 --port=6009 -s a", "splat train -s a", 2),
            ("splat train --debug_from -1 -s a", "splat train -s a", 1),
            ("splat train --convert_SHs_python --compute_cov3D_python", "splat train", 2),
            ("splat --progress json train --data_device cpu", "splat --progress json train", 1),
            ("splat train --exposure_lr_delay_steps 0 -s a", "splat train -s a", 1),
            (
                "splat train --depth_l1_weight_final=1e-2 -s a",
                "splat train --depth-l1-weight-final=1e-2 -s a",
                0,
            ),
            ("splat train --depth_ratio 1 -s a", "splat train -s a", 1),
            ("splat mesh --sdf_trunc 0.1 --depth_trunc=3 --skip_train -m a", "splat mesh -m a", 3),
            ("splat mesh --debug", "splat mesh --debug", 0),
            ("splat --quiet train --debug", "splat --quiet train", 1),
            ("splat render -m train --debug", "splat render -m train", 1),
            ("splat synth -o train --debug", "splat synth -o train --debug", 0),
            // Switches take the values that Python writes.
            ("splat eval --json True --quiet", "splat eval --json=True --quiet", 0),
            ("splat train --low_dram False -s a", "splat train --low-dram=False -s a", 0),
            ("splat train --debug False -s true", "splat train -s true", 1),
            ("splat train --skip_coarse False", "splat train", 1),
            // Surface terms are not a resolution.
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
            assert_eq!(normalized(line), (expected.to_owned(), notices), "{line}");
        }
    }

    #[test]
    fn commas_and_spaces_separate_numbers() {
        for (line, expected) in [
            ("splat train --test-iterations 7, 8, 9", "splat train --test-iterations 7 8 9"),
            ("splat train --test-iterations 7,9, -1", "splat train --test-iterations 7,9 -1"),
            ("splat train -m 7, --eval", "splat train -m 7, --eval"),
        ] {
            assert_eq!(normalized(line).0, expected, "{line}");
        }
    }

    #[test]
    fn flags_of_later_stages_are_named_together() {
        let line = "splat train -s a --skip_coarse --coarse_checkpoint=15000.pt --refinement_time \
                    short -r refinement --high_poly True --postprocess_iterations 5";
        let result = normalize_args(line.split_whitespace().map(OsString::from));
        assert_eq!(result.args, ["splat", "train", "-s", "a"]);
        let refusal = result.refusal().unwrap();
        let names = "--skip-coarse, --coarse-checkpoint, --refinement-time, --high-poly, \
                     --postprocess-iterations, -r refinement";
        assert!(refusal.starts_with(names), "{refusal}");
        let without = normalize_args(["splat", "train"].map(OsString::from).into_iter());
        assert_eq!(without.refusal(), None);
    }

    #[test]
    fn a_missing_value_does_not_take_the_next_flag() {
        for line in ["splat train --ip --eval", "splat train --port -s"] {
            let kept = line.rsplit(' ').next().unwrap();
            assert_eq!(normalized(line), (format!("splat train {kept}"), 1), "{line}");
        }
        assert_eq!(normalized("splat train --port"), ("splat train".to_owned(), 1));
    }

    #[cfg(unix)]
    #[test]
    fn arguments_that_are_not_text_pass_unchanged() {
        use std::os::unix::ffi::OsStringExt;
        let path = OsString::from_vec(vec![b'-', b'-', 0xff, b'_']);
        let args = [OsString::from("splat"), path.clone()];
        assert_eq!(normalize_args(args.into_iter()).args[1], path);
    }

    #[test]
    fn a_number_with_c_is_an_iteration_unless_the_scene_has_that_folder() {
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
                    let (line, _) = normalized(&format!("splat train {place} {model} {number}"));
                    assert_eq!(line, format!("splat train {place} {spelled} {expected}"));
                }
            }
        }
        assert_eq!(normalized("splat train -s a -i 7000").0, "splat train -s a -i 7000");
    }
}
