//! Options of a mesh that change nothing beside others.

use clap::{ArgMatches, Command};

use super::super::parser::{command_of, is_typed};
use crate::mesh::{
    AtlasKind, MeshMethod, MeshOptions, PoissonOptions, TetrahedraOptions, TextureOptions,
    TextureSource, TsdfOptions,
};

/// Warns of options of other methods, of those that others replace, and of a texture that there is not.
pub(super) fn warn_of_idle(options: &MeshOptions, matches: &ArgMatches) {
    let method = options.method;
    let of_methods = [
        (MeshMethod::Tsdf, command_of::<TsdfOptions>("tsdf")),
        (MeshMethod::Poisson, command_of::<PoissonOptions>("poisson")),
        (MeshMethod::Tetrahedra, command_of::<TetrahedraOptions>("tetrahedra")),
    ];
    for (of, command) in of_methods.iter().filter(|(of, _)| *of != method) {
        for flag in typed(command, matches) {
            tracing::warn!(
                "--{flag} has no effect with --method {}: it is an option of --method {}",
                method.name(),
                of.name()
            );
        }
    }
    let is_tsdf = method == MeshMethod::Tsdf;
    let replaced = [
        ("mesh_resolution", is_tsdf && options.tsdf.voxel.is_some(), "--voxel"),
        ("center_bbox", is_tsdf && options.tsdf.unbounded, "--unbounded"),
        ("center_bbox", options.bbox_min.is_some(), "--bbox-min and --bbox-max"),
    ];
    for (id, _, by) in replaced.into_iter().filter(|(id, is, _)| *is && is_typed(matches, id)) {
        tracing::warn!("--{} has no effect with {by}", id.replace('_', "-"));
    }
    warn_of_idle_texture(&options.texture, matches);
}

/// Warns of options of a texture that there is not, and of another layout.
pub(in crate::cli) fn warn_of_idle_texture(options: &TextureOptions, matches: &ArgMatches) {
    if options.texture == TextureSource::None {
        let command = command_of::<TextureOptions>("texture");
        for flag in typed(&command, matches).filter(|&flag| flag != "texture") {
            tracing::warn!("--{flag} has no effect without --texture gaussians or photographs");
        }
    } else if options.atlas != AtlasKind::Squares && is_typed(matches, "square_size") {
        tracing::warn!("--square-size has no effect without --atlas squares");
    }
}

/// Flags of a command that stand on the command line.
fn typed<'a>(command: &'a Command, matches: &'a ArgMatches) -> impl Iterator<Item = &'a str> {
    let typed = command.get_arguments().filter(|arg| is_typed(matches, arg.get_id().as_str()));
    typed.filter_map(|arg| arg.get_long())
}
