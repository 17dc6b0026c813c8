//! Command lines as other trainers write them.

use std::ffi::OsString;
use std::iter::Peekable;

/// A command line ready to be parsed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Normalized {
    /// The arguments, program name first.
    pub args: Vec<OsString>,
    /// What was left out and why, one sentence each.
    pub notices: Vec<String>,
}

/// How many values a flag takes.
#[derive(Clone, Copy, PartialEq)]
enum FlagValues {
    None,
    One,
}

const WARM_UP: &str = "the value is not used: exposures warm up over the first 5,000 iterations or a sixth of the run";

/// Flags of the reference trainer that change nothing here, and why.
const IGNORED: [(&str, FlagValues, &str); 13] = [
    ("--convert-SHs-python", FlagValues::None, "colours are always computed by the renderer"),
    ("--compute-cov3D-python", FlagValues::None, "covariances are always computed by the renderer"),
    ("--debug", FlagValues::None, "errors always name the stage that failed"),
    ("--detect-anomaly", FlagValues::None, "no automatic differentiation is used"),
    ("--disable-viewer", FlagValues::None, "there is no viewer to disable"),
    ("--ip", FlagValues::One, "there is no viewer to connect to"),
    ("--port", FlagValues::One, "there is no viewer to connect to"),
    ("--debug-from", FlagValues::One, "errors always name the stage that failed"),
    ("--data-device", FlagValues::One, "--low-dram and --high-dram say where images are kept"),
    ("--position-lr-delay-mult", FlagValues::One, "it has no effect without a delay, its default"),
    ("--optimizer-type", FlagValues::One, "Adam is the optimizer"),
    ("--exposure-lr-delay-steps", FlagValues::One, WARM_UP),
    ("--exposure-lr-delay-mult", FlagValues::One, WARM_UP),
];

/// Spells long flags with hyphens and, for `train`, `eval`, `render` and `plan`, leaves out harmless flags
/// of the reference trainer's scripts with a notice each.
///
/// Only the name before `=` changes, and nothing after `--`. Arguments that are not UTF-8 stay
/// as they are: no flag's name is among them.
pub fn normalize_args(args: impl Iterator<Item = OsString>) -> Normalized {
    let mut args = args.peekable();
    let mut normalized = Normalized::default();
    normalized.args.extend(args.next());
    let mut command: Option<OsString> = None;
    let mut after_long_flag = false;
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
            normalized.args.push(arg);
            continue;
        };
        after_long_flag = !flag.contains('=');
        let like_reference = command.as_ref().is_some_and(|command| {
            ["train", "eval", "render", "plan"].iter().any(|known| command == known)
        });
        let (name, value) = match flag.split_once('=') {
            Some((name, value)) => (name.replace('_', "-"), Some(value)),
            None => (flag.replace('_', "-"), None),
        };
        match IGNORED.iter().find(|(ignored, ..)| like_reference && *ignored == name) {
            Some((_, values, reason)) => {
                if *values == FlagValues::One && value.is_none() {
                    skip_value(&mut args);
                }
                normalized.notices.push(format!("{name} is ignored: {reason}"));
            }
            None => normalized.args.push(match value {
                Some(value) => format!("{name}={value}").into(),
                None => name.into(),
            }),
        }
    }
    normalized
}

/// Takes the next argument unless it is a flag; a negative number is a value.
fn skip_value(args: &mut Peekable<impl Iterator<Item = OsString>>) {
    args.next_if(|next| {
        let text = next.to_string_lossy();
        !text.starts_with('-') || text.parse::<f64>().is_ok()
    });
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
            ("splat --quiet train --debug", "splat --quiet train", 1),
            ("splat render -m train --debug", "splat render -m train", 1),
            ("splat synth -o train --debug", "splat synth -o train --debug", 0),
        ] {
            assert_eq!(normalized(line), (expected.to_owned(), notices), "{line}");
        }
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
