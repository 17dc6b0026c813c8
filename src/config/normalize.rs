//! Command lines as other trainers write them.

use std::ffi::OsString;
use std::iter::Peekable;

use super::sugar::translate;

/// How many values a flag takes.
#[derive(Clone, Copy, PartialEq)]
enum FlagValues {
    /// At most `True` or `False`.
    Switch,
    One,
}

const WARM_UP: &str = "the value is not used: exposures warm up over the first 5,000 iterations or a sixth of the run";

/// Of Mip-Splatting's switches, by which it trains on places between pixel centres.
const CENTRES: &str = "pixels are drawn and compared at their centres, Mip-Splatting's own default; \
                       its filters are --preset mip";

/// Of those by which it trains on several sizes of each photograph.
const ONE_SIZE: &str = "photographs are trained at the one size of --resolution, Mip-Splatting's own \
                        default; --preset mip keeps other sizes right";

/// Of 2D Gaussian splatting's switch between mean and median depths.
const DEPTHS: &str = "meshes are made of median depths, by which half of the light is stopped, and \
                      --depth of splat render shows mean depths";

/// Flags of the reference trainer, and of Mip-Splatting's and 2D Gaussian splatting's, that change nothing
/// here, and why.
const IGNORED: [(&str, FlagValues, &str); 20] = [
    ("--convert-SHs-python", FlagValues::Switch, "colours are always computed by the renderer"),
    (
        "--compute-cov3D-python",
        FlagValues::Switch,
        "covariances are always computed by the renderer",
    ),
    ("--debug", FlagValues::Switch, "errors always name the stage that failed"),
    ("--detect-anomaly", FlagValues::Switch, "no automatic differentiation is used"),
    ("--disable-viewer", FlagValues::Switch, "there is no viewer to disable"),
    ("--ip", FlagValues::One, "there is no viewer to connect to"),
    ("--port", FlagValues::One, "there is no viewer to connect to"),
    ("--debug-from", FlagValues::One, "errors always name the stage that failed"),
    ("--data-device", FlagValues::One, "--low-dram and --high-dram say where images are kept"),
    ("--position-lr-delay-mult", FlagValues::One, "it has no effect without a delay, its default"),
    ("--optimizer-type", FlagValues::One, "Adam is the optimizer"),
    ("--exposure-lr-delay-steps", FlagValues::One, WARM_UP),
    ("--exposure-lr-delay-mult", FlagValues::One, WARM_UP),
    ("--gpu", FlagValues::One, "CUDA_VISIBLE_DEVICES chooses the GPU"),
    ("--ray-jitter", FlagValues::Switch, CENTRES),
    ("--resample-gt-image", FlagValues::Switch, CENTRES),
    ("--load-allres", FlagValues::Switch, ONE_SIZE),
    ("--sample-more-highres", FlagValues::Switch, ONE_SIZE),
    ("--depth-ratio", FlagValues::One, DEPTHS),
    ("--skip-mesh", FlagValues::Switch, "splat mesh makes meshes"),
];

/// Flags by which 2D Gaussian splatting's script makes meshes that change nothing of `splat mesh`, and why.
const IGNORED_OF_MESH: [(&str, FlagValues, &str); 6] = [
    ("--depth-ratio", FlagValues::One, DEPTHS),
    (
        "--depth-trunc",
        FlagValues::One,
        "the box that is meshed says how far depths count: --bbox-min and --bbox-max choose it",
    ),
    ("--sdf-trunc", FlagValues::One, "distances are cut off a few voxels from surfaces"),
    ("--skip-train", FlagValues::Switch, "splat render writes the images"),
    ("--skip-test", FlagValues::Switch, "splat render writes the images"),
    ("--render-path", FlagValues::Switch, "no path of cameras is drawn"),
];

/// Flags of the stages that follow SuGaR's coarse stage.
const OF_LATER_STAGES: [(&str, FlagValues); 14] = [
    ("--skip-coarse", FlagValues::Switch),
    ("--coarse-checkpoint", FlagValues::One),
    ("--refinement-time", FlagValues::One),
    ("--refinement-iterations", FlagValues::One),
    ("--surface-level", FlagValues::One),
    ("--n-vertices-in-mesh", FlagValues::One),
    ("--gaussians-per-triangle", FlagValues::One),
    ("--low-poly", FlagValues::Switch),
    ("--high-poly", FlagValues::Switch),
    ("--export-obj", FlagValues::Switch),
    ("--export-uv-textured-mesh", FlagValues::Switch),
    ("--postprocess-mesh", FlagValues::Switch),
    ("--postprocess-iterations", FlagValues::One),
    ("--postprocess-density-threshold", FlagValues::One),
];

/// Spells long flags with hyphens and joins `True` and `False` to them. For `train`, `sugar`, `eval`,
/// `render` and `plan`, leaves out harmless flags of the reference trainer's scripts with a notice each, for
/// `mesh` those of 2D Gaussian splatting's; for `train`, `sugar` and `plan`, reads SuGaR's short flags.
///
/// Only the name before `=` changes, and nothing after `--`. Arguments that are not UTF-8 stay
/// as they are: no flag's name is among them.
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
            let is_followed = args.peek().is_some_and(|next| numbers(next).is_some());
            normalized.args.push(without_last_comma(arg, is_followed));
            continue;
        };
        after_long_flag = !flag.contains('=');
        let (name, value) = match flag.split_once('=') {
            Some((name, value)) => (name.replace('_', "-"), Some(value.to_owned())),
            None => {
                (flag.replace('_', "-"), args.next_if(is_switch_value).map(|arg| to_text(&arg)))
            }
        };
        let like_reference = is_one_of(&command, &["train", "sugar", "eval", "render", "plan"]);
        let ends_with_training = is_one_of(&command, &["train", "plan"]);
        let of_reference: &[_] = if like_reference { &IGNORED } else { &[] };
        let of_mesh: &[_] = if is_one_of(&command, &["mesh"]) { &IGNORED_OF_MESH } else { &[] };
        let ignored = of_reference.iter().chain(of_mesh).find(|(known, ..)| *known == name);
        let missing =
            OF_LATER_STAGES.iter().find(|(known, _)| ends_with_training && *known == name);
        let values = ignored.map(|(_, values, _)| values).or(missing.map(|(_, values)| values));
        if values == Some(&FlagValues::One) && value.is_none() {
            skip_value(&mut args);
        }
        match (ignored, missing) {
            (Some((.., reason)), _) => {
                normalized.notices.push(format!("{name} is ignored: {reason}"));
            }
            // What is not asked for is not missed.
            (_, Some((_, FlagValues::Switch))) if value.as_deref().is_some_and(is_false) => {
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

/// Takes the next argument unless it is a flag; a negative number is a value.
fn skip_value(args: &mut Peekable<impl Iterator<Item = OsString>>) {
    args.next_if(|next| !next.to_string_lossy().starts_with('-') || is_number(next));
}

fn to_text(arg: &OsString) -> String {
    arg.to_string_lossy().into_owned()
}

fn is_number(arg: &OsString) -> bool {
    arg.to_string_lossy().parse::<f64>().is_ok()
}

fn is_false(text: &str) -> bool {
    text.eq_ignore_ascii_case("false")
}

/// A switch's value as Python writes it.
fn is_switch_value(arg: &OsString) -> bool {
    arg.eq_ignore_ascii_case("true") || arg.eq_ignore_ascii_case("false")
}

/// The numbers of a list that commas part, without a comma at its end.
fn numbers(arg: &OsString) -> Option<&str> {
    let text = arg.to_str()?;
    let list = text.strip_suffix(',').unwrap_or(text);
    list.split(',').all(|part| part.parse::<f64>().is_ok()).then_some(list)
}

/// `1000,` as the first of `1000, 2000`.
fn without_last_comma(arg: OsString, is_followed: bool) -> OsString {
    numbers(&arg).filter(|_| is_followed).map(OsString::from).unwrap_or(arg)
}

// What becomes of a command line before it is parsed.

/// An option as it was typed.
struct GivenValue<'a> {
    name: &'a str,
    value: &'a str,
}

/// A command line ready to be parsed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Normalized {
    /// The arguments, program name first.
    pub args: Vec<OsString>,
    /// What was left out and why, one sentence each.
    pub notices: Vec<String>,
    /// Flags of stages that follow training, which the command ends with.
    pub later_stages: Vec<String>,
}

/// Two names of one option: the one that is stored, and another.
const TWO_NAMES: [&str; 2] = ["--batch-views", "--accumulate"];

impl Normalized {
    /// Says which value counts where an option is given by both of its names with different ones.
    pub(super) fn note_two_names(&mut self) {
        let before_paths = self.args.iter().take_while(|arg| *arg != "--");
        let texts: Vec<&str> = before_paths.filter_map(|arg| arg.to_str()).collect();
        let given = |at: usize| match texts[at].split_once('=') {
            Some((name, value)) => Some(GivenValue { name, value }),
            None => Some(GivenValue { name: texts[at], value: texts.get(at + 1)? }),
        };
        let given: Vec<GivenValue<'_>> =
            (0..texts.len()).filter_map(given).filter(|it| TWO_NAMES.contains(&it.name)).collect();
        let Some(last) = given.last() else { return };
        if given.iter().all(|it| it.name == last.name || it.value == last.value) {
            return;
        }
        let [stored, other] = TWO_NAMES;
        self.notices.push(format!(
            "{stored} and {other} are two names of one option: the last one counts, {}",
            last.value
        ));
    }

    /// Why the command cannot run: it asks for stages that follow training.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn normalized(line: &str) -> (String, usize) {
        let result = normalize_args(line.split(' ').map(OsString::from));
        let args: Vec<_> = result.args.iter().map(|arg| arg.to_str().unwrap()).collect();
        (args.join(" "), result.notices.len())
    }

    #[test]
    fn underscores_become_hyphens_in_names_only() {
        for (line, expected) in [
            ("splat train --test_iterations 1 2", "splat train --test-iterations 1 2"),
            ("splat eval --model_path=my_model", "splat eval --model-path=my_model"),
            ("splat train -s my_scene --low_dram", "splat train -s my_scene --low-dram"),
            ("splat train -- --a_b --debug", "splat train -- --a_b --debug"),
        ] {
            assert_eq!(normalized(line), (expected.to_owned(), 0), "{line}");
        }
    }

    #[test]
    fn harmless_flags_of_the_reference_scripts_are_left_out_with_a_notice() {
        for (line, expected, notices) in [
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
        ] {
            assert_eq!(normalized(line), (expected.to_owned(), notices), "{line}");
        }
    }

    #[test]
    fn switches_take_the_values_that_python_writes() {
        for (line, expected, notices) in [
            ("splat eval --json True --quiet", "splat eval --json=True --quiet", 0),
            ("splat train --low_dram False -s a", "splat train --low-dram=False -s a", 0),
            ("splat train --debug False -s true", "splat train -s true", 1),
            ("splat train --skip_coarse False", "splat train", 1),
        ] {
            assert_eq!(normalized(line), (expected.to_owned(), notices), "{line}");
        }
    }

    #[test]
    fn commas_and_spaces_part_the_numbers_of_a_list() {
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
    fn a_missing_value_does_not_eat_the_next_flag() {
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
}
