//! Command lines as SuGaR's programs take them.

use std::ffi::{OsStr, OsString};
use std::iter::Peekable;
use std::path::{Path, PathBuf};

use super::normalized::Normalized;

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
    use super::super::normalize_args;
    use super::*;

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
