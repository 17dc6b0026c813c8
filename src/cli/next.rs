//! Rows of a closing block that name the next commands, and the summary of the demonstration.

use std::path::Path;

use super::exit::Interrupted;
use super::folder::point_clouds;
use super::output::shell_word;
use super::resolved_run::DEMO_SCENE;
use crate::config::{Config, PrimitiveName};
use crate::telemetry::{ProgressStyle, closing_row, shows_news};

/// Width of a row without its name, columns.
const COLUMNS: usize = 66;

/// Prints the next commands below the figures of the run. `model`: folder of the model or of its cleaned version.
pub(super) fn print_next(model: &Path, config: &Config, style: ProgressStyle) {
    if has_block(style) {
        print_lines(&next_lines(model, config));
    }
}

/// Prints the command that continues an interrupted run, or puts it into the error.
pub(super) fn interrupted(command: &str, style: ProgressStyle) -> Interrupted {
    if !has_block(style) || !shows_news(module_path!()) {
        return Interrupted { command: Some(command.to_owned()) };
    }
    print_lines(&command_rows("continue", command));
    Interrupted { command: None }
}

/// True if a run of this style ends with a closing block.
fn has_block(style: ProgressStyle) -> bool {
    matches!(style, ProgressStyle::Bar | ProgressStyle::Plain)
}

fn print_lines(lines: &[String]) {
    for line in lines {
        tracing::info!(is_headline = true, "{line}");
    }
}

/// Returns the demonstration's result as text.
pub(super) fn demo_summary(model: &Path) -> String {
    let folder = model.display();
    // A run may end before its last iteration.
    let last = point_clouds(model).last().map_or(0, |(iteration, _)| *iteration);
    let word = shell_word(model);
    format!(
        "\nThe demonstration is trained.\n\
         \n  scene        {folder}/{DEMO_SCENE}\
         \n  Gaussians    {folder}/point_cloud/iteration_{last}/point_cloud.ply\
         \n  metrics      {folder}/results.json\
         \n\nWhat next:\n\
         \n  splat export -m {word} -o scene.html     makes a page to look at\
         \n  splat render -m {word}     writes renders beside the photographs\
         \n  tensorboard --logdir {word}\
         \n  splat train -s SCENE -m MODEL --eval     trains a scene of yours"
    )
}

fn next_lines(model: &Path, config: &Config) -> Vec<String> {
    let model = shell_word(model);
    let is_mesh = config.optimize.primitive == PrimitiveName::Triangles;
    let file = if is_mesh { "scene.glb" } else { "scene.html" };
    let mut rows = vec![
        ("view", format!("splat view -m {model}")),
        ("export", format!("splat export -m {model} -o {file}")),
    ];
    if !is_mesh {
        rows.push(("mesh", format!("splat mesh -m {model} --texture photographs")));
    }
    let guide = match config.optimize.primitive {
        PrimitiveName::Gaussians => "splat help quality",
        PrimitiveName::Surfels => "splat help surfaces",
        PrimitiveName::Triangles => "splat help triangles",
    };
    rows.push(("improve", guide.to_owned()));
    rows.iter().flat_map(|(name, command)| command_rows(name, command)).collect()
}

fn command_rows(name: &str, command: &str) -> Vec<String> {
    let names = std::iter::once(name).chain(std::iter::repeat(""));
    names.zip(folded(command)).map(|(name, part)| closing_row(name, &part)).collect()
}

/// Breaks a command before options into lines that a shell reads as one.
fn folded(command: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    let mut parts = command.split(" -");
    let mut line = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        if line.chars().count() + part.chars().count() + 4 > COLUMNS {
            lines.push(format!("{line} \\"));
            line = format!("  -{part}");
        } else {
            line = format!("{line} -{part}");
        }
    }
    lines.push(line);
    lines
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Returns sample rows by run.
    pub(in crate::cli) fn samples() -> Vec<(&'static str, Vec<String>)> {
        let mut config = Config::default();
        config.scene.source_path = Some("data/fox".into());
        config.scene.eval = true;
        let mut lines = |model: &str, primitive, iterations| {
            config.optimize.primitive = primitive;
            config.optimize.iterations = iterations;
            next_lines(Path::new(model), &config)
        };
        vec![
            ("of the default", lines("out/fox", PrimitiveName::Gaussians, 6000)),
            ("in a folder with a blank", lines("out/my fox", PrimitiveName::Gaussians, 30)),
            ("of the reference", lines("out/fox", PrimitiveName::Gaussians, 30_000)),
            ("of surfels", lines("out/fox", PrimitiveName::Surfels, 30_000)),
            ("of triangles", lines("out/fox", PrimitiveName::Triangles, 30_000)),
            (
                "that was interrupted",
                command_rows("continue", "splat train --resume -m out/fox --ranks 2 --clean"),
            ),
        ]
    }

    #[test]
    fn long_commands_are_broken_before_options() {
        let long = format!("splat train -s /{} -m out/fox-high --quality high", "a".repeat(40));
        let lines = folded(&long);
        assert_eq!(lines[1..], ["  -m out/fox-high --quality high"]);
        assert_eq!(format!("{} {}", lines[0].trim_end_matches(" \\"), lines[1].trim()), long);
    }
}
