//! What becomes of a command line before it is parsed.

use std::ffi::OsString;

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
