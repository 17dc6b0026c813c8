//! `-h`: the options of a command that people use, by group. `--help` has all of them.

use std::ffi::OsString;

use clap::{Arg, Command};
use toml::Value;

use crate::config::{Layers, resolve};

/// Group of the short help: heading, and option names with a space between them.
type Group = (&'static str, &'static str);

/// Options in the short help by command. Commands that are not listed show all options.
const USUAL: [(&str, &[Group]); 10] = [
    (
        "train",
        &[
            ("Scene and model", "source_path model_path images resolution eval demo"),
            (
                "Quality and time",
                "quality preset iterations time_budget max_points primitive init exposure",
            ),
            ("Continue", "resume checkpoint_minutes"),
            ("Memory and devices", "device gpus vram_limit offload"),
            ("Program", "clean config seed progress quiet"),
        ],
    ),
    (
        "plan",
        &[
            ("Scene and run", "source_path resolution preset max_points primitive regularize"),
            ("Forecast", "gaussians model gpus json"),
            ("Memory", "vram_limit optimize_memory offload host_limit device"),
        ],
    ),
    (
        "eval",
        &[
            ("Model", "model_path iteration source_path resolution device"),
            ("Evaluation", "split metrics enable_lpips lpips_weights json quiet"),
            ("Mesh", "geometry mesh mesh_images align"),
        ],
    ),
    (
        "render",
        &[
            ("Model", "model_path iteration source_path resolution device quiet"),
            ("Images", "skip_train skip_test depth median_depth normals"),
        ],
    ),
    (
        "mesh",
        &[
            ("Model", "model_path iteration device quiet"),
            ("Surface", "method mesh_resolution voxel surface_points unbounded open force"),
            ("Box", "bbox_min bbox_max"),
            ("Mesh", "decimation_target min_component fill_holes formats texture texture_size"),
        ],
    ),
    (
        "refine",
        &[
            ("Model", "model_path iteration device quiet"),
            (
                "Refinement",
                "mesh refinement_time iterations gaussians_per_triangle vertices overwrite",
            ),
            ("Files", "formats texture texture_size"),
        ],
    ),
    (
        "sugar",
        &[
            ("Scene and model", "source_path model_path resolution eval preset"),
            ("Surface", "regularize checkpoint_path skip_coarse coarse_checkpoint"),
            ("Mesh", "method bbox_min bbox_max decimation_target formats export_obj texture"),
            (
                "Refinement",
                "skip_refinement refinement_time refinement_iterations gaussians_per_triangle",
            ),
            ("Program", "device vram_limit progress quiet"),
        ],
    ),
    (
        "clean",
        &[
            ("Model", "model_path output overwrite dry_run device json quiet"),
            ("Cleaning", "max_loss near crop crop_sphere"),
        ],
    ),
    (
        "export",
        &[
            ("Files", "file model_path iteration output format overwrite json quiet"),
            ("Cut", "crop crop_sphere min_opacity sh_degree"),
            ("Place", "rotate up scale translate"),
            ("Formats", "refit colors spz_version lod_levels device"),
        ],
    ),
    (
        "video",
        &[
            ("Model", "model_path iteration device quiet"),
            ("Path", "path seconds turns closed timelapse path_transform"),
            ("Video", "file fps width height overwrite json"),
        ],
    ),
];

/// Hides rarely used options from `-h`, and names `--help` there.
pub(super) fn grouped(command: Command) -> Command {
    let usual = groups(command.get_name());
    let count = command.get_arguments().filter(|arg| !arg.is_hide_set()).count();
    let pointer = format!("All {count} options: splat {} --help", command.get_name());
    let command = match usual {
        Some(_) => command.after_help(pointer),
        None => command,
    };
    command.mut_args(|arg| {
        let id = arg.get_id().as_str();
        let is_hidden = usual.is_some_and(|usual| !usual.iter().any(|(_, ids)| lists(ids, id)));
        arg.hide_short_help(is_hidden)
    })
}

/// Groups and shortens the options of a command for `-h`.
pub(super) fn shortened(command: Command) -> Command {
    let usual = groups(command.get_name());
    command.mut_args(|arg| {
        let arg = without_defaults(arg);
        let id = arg.get_id().as_str();
        let place = usual.and_then(|usual| {
            let names =
                usual.iter().flat_map(|(heading, ids)| ids.split(' ').map(move |id| (heading, id)));
            let (order, (heading, _)) = names.enumerate().find(|(_, (_, listed))| *listed == id)?;
            Some((*heading, order))
        });
        match place {
            Some((heading, order)) => arg.help_heading(heading).display_order(order),
            None => arg,
        }
    })
}

fn lists(ids: &str, id: &str) -> bool {
    ids.split_whitespace().any(|listed| listed == id)
}

/// True if a command line asks for the short help.
pub(super) fn is_short_help_wanted(args: &[OsString]) -> bool {
    args.iter().any(|arg| arg == "-h")
}

/// Removes defaults and values, which `--help` shows.
fn without_defaults(arg: Arg) -> Arg {
    let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
    let arg = arg.hide_default_value(true).hide_possible_values(true);
    match help.split_once(" [default: ") {
        Some((help, _)) => arg.help(help.to_owned()),
        None => arg,
    }
}

fn groups(command: &str) -> Option<&'static [Group]> {
    USUAL.iter().find(|(name, _)| *name == command).map(|(_, groups)| *groups)
}

// Defaults in the help of commands that train.

/// Commands whose new runs take the usual preset.
const NEW_RUNS: [&str; 2] = ["train", "plan"];

/// Adds both defaults of an option to the help: the usual preset's and the reference's.
pub(super) fn with_usual_defaults(command: Command) -> Command {
    if !NEW_RUNS.contains(&command.get_name()) {
        return command;
    }
    let usual = resolve(Layers { is_new: true, ..Layers::default() });
    // The presets are embedded, and tests read them all.
    let changed = usual.and_then(|usual| usual.changed()).unwrap_or_default();
    command.mut_args(|arg| {
        let is_of_arg = |option: &str| {
            option.split_once('.').is_some_and(|(_section, key)| arg.get_id() == key)
        };
        let usual = changed.iter().find(|(option, _)| is_of_arg(option));
        usual.map_or(arg.clone(), |(_, usual)| with_both(arg, usual))
    })
}

fn with_both(arg: Arg, usual: &Value) -> Arg {
    let usual = usual.as_str().map_or_else(|| usual.to_string(), str::to_owned);
    let defaults: Vec<_> =
        arg.get_default_values().iter().map(|value| value.to_string_lossy()).collect();
    let reference = if defaults.is_empty() { "none".to_owned() } else { defaults.join(" ") };
    let both = format!("[default: {usual}; of --preset reference: {reference}]");
    let [short, long] = [arg.get_help(), arg.get_long_help()]
        .map(|help| help.map(ToString::to_string).unwrap_or_default());
    let arg = arg.hide_default_value(true).help(format!("{short} {both}"));
    if long.is_empty() { arg } else { arg.long_help(format!("{long}\n\n{both}")) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::command;

    #[test]
    fn every_option_of_the_tables_exists() {
        let program = command();
        for (name, groups) in USUAL {
            let found = program.find_subcommand(name).unwrap();
            let has = |id: &str| found.get_arguments().any(|arg| arg.get_id() == id);
            for id in groups.iter().flat_map(|(_, ids)| ids.split(' ')) {
                assert!(has(id), "splat {name} has no {id}");
            }
        }
    }
}
