//! Options of stages that do not run.

use clap::{ArgMatches, Command};

use super::super::parser::{command_of, is_typed};
use super::super::refine::BoundOptions;
use super::super::train_args::TrainArgs;
use super::args::SugarArgs;
use super::surface_stages::MachineOptions;
use crate::config::SceneOptions;

/// Warns of options that were typed for a stage that does not run: they change nothing.
pub(super) fn warn_of_idle(args: &SugarArgs, matches: &ArgMatches) {
    if args.skip_coarse {
        // The stages that follow open the scene and run on the machine, too.
        let shared = [command_of::<SceneOptions>("scene"), command_of::<MachineOptions>("machine")];
        let others = ["model_path", "start_checkpoint"];
        for flag in typed_flags(&command_of::<TrainArgs>("train"), matches, |id| {
            !others.contains(&id) && !shared.iter().any(|command| has(command, id))
        }) {
            tracing::warn!("--{flag} has no effect with --skip-coarse: nothing is trained");
        }
    }
    if args.skip_refinement {
        let bound = command_of::<BoundOptions>("bound");
        let mut flags = typed_flags(&bound, matches, |_| true);
        flags.extend(args.refinement_iterations.map(|_| "refinement-iterations".to_owned()));
        for flag in flags {
            tracing::warn!("--{flag} has no effect with --skip-refinement: nothing is refined");
        }
    }
}

fn has(command: &Command, id: &str) -> bool {
    command.get_arguments().any(|arg| arg.get_id().as_str() == id)
}

/// Flags of a stage that stand on the command line, of options with these names in the program.
fn typed_flags(
    stage: &Command,
    matches: &ArgMatches,
    counts: impl Fn(&str) -> bool,
) -> Vec<String> {
    let ids = stage.get_arguments().map(|arg| (arg.get_id().as_str(), arg.get_long()));
    let typed = ids.filter(|&(id, _)| is_typed(matches, id) && counts(id));
    typed.filter_map(|(_, long)| long.map(str::to_owned)).collect()
}
