//! What one does with a model that is trained.

use std::io::{IsTerminal as _, stderr};
use std::path::Path;

use super::output::shell_word;
use crate::config::PrimitiveName;
use crate::telemetry::ProgressStyle;

/// Commands that follow training, `MODEL` being its folder.
const OF_GAUSSIANS: [&str; 3] =
    ["splat view -m MODEL", "splat export -m MODEL -o scene.html", "splat mesh -m MODEL"];

/// The same of triangles, which are a mesh already.
const OF_TRIANGLES: [&str; 2] = ["splat view -m MODEL", "splat export -m MODEL -o scene.glb"];

/// Names the commands to somebody who sees the run end in a terminal.
pub(super) fn tell_next(model_path: &Path, primitive: PrimitiveName, style: ProgressStyle) {
    let is_seen = matches!(style, ProgressStyle::Bar | ProgressStyle::Plain);
    if is_seen && stderr().is_terminal() {
        tracing::info!("{}", next_line(model_path, primitive));
    }
}

fn next_line(model_path: &Path, primitive: PrimitiveName) -> String {
    let commands: &[&str] = match primitive {
        PrimitiveName::Gaussians | PrimitiveName::Surfels => &OF_GAUSSIANS,
        PrimitiveName::Triangles => &OF_TRIANGLES,
    };
    let model = shell_word(model_path);
    let named: Vec<String> =
        commands.iter().map(|command| command.replace("MODEL", &model)).collect();
    format!("Next: {}", named.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_name_the_folder_as_a_shell_takes_it() {
        assert_eq!(
            next_line(Path::new("out/my scene"), PrimitiveName::Surfels),
            "Next: splat view -m 'out/my scene', splat export -m 'out/my scene' -o scene.html, splat mesh -m \
             'out/my scene'"
        );
        assert_eq!(
            next_line(Path::new("m"), PrimitiveName::Triangles),
            "Next: splat view -m m, splat export -m m -o scene.glb"
        );
    }
}
