//! The rows of a closing block that name what to do with a trained model.

use std::path::Path;

use super::output::shell_word;
use crate::config::{Config, PrimitiveName};
use crate::telemetry::{ProgressStyle, closing_row};

/// Columns of a row, without the name before it.
const COLUMNS: usize = 66;

/// A trained model and how it was trained.
pub(super) struct Trained<'a> {
    /// The model, or what `splat clean` left of it.
    pub(super) model: &'a Path,
    pub(super) config: &'a Config,
    pub(super) is_demo: bool,
}

/// Names the commands that follow, below the figures of the run.
pub(super) fn tell_next(trained: &Trained<'_>, style: ProgressStyle) {
    if matches!(style, ProgressStyle::Bar | ProgressStyle::Plain) {
        for line in next_lines(trained) {
            tracing::info!(is_headline = true, "{line}");
        }
    }
}

fn next_lines(trained: &Trained<'_>) -> Vec<String> {
    let model = shell_word(trained.model);
    let is_mesh = trained.config.optimize.primitive == PrimitiveName::Triangles;
    let file = if is_mesh { "scene.glb" } else { "scene.html" };
    let mut rows = vec![
        ("view", format!("splat view -m {model}")),
        ("export", format!("splat export -m {model} -o {file}")),
    ];
    if !is_mesh {
        rows.push(("mesh", format!("splat mesh -m {model}")));
    }
    rows.push(if trained.is_demo {
        ("your own", "splat train -s SCENE -m MODEL --eval".to_owned())
    } else {
        let guide = match trained.config.optimize.primitive {
            PrimitiveName::Gaussians => "splat help quality",
            PrimitiveName::Surfels => "splat help surfaces",
            PrimitiveName::Triangles => "splat help triangles",
        };
        ("improve", guide.to_owned())
    });
    let rows = rows.iter().flat_map(|(name, command)| {
        let names = std::iter::once(*name).chain(std::iter::repeat(""));
        names.zip(folded(command)).map(|(name, part)| closing_row(name, &part))
    });
    rows.collect()
}

/// A command in lines that a shell reads as one, broken before options.
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

    /// Rows of runs: name and lines.
    pub(in crate::cli) fn samples() -> Vec<(&'static str, Vec<String>)> {
        let mut config = Config::default();
        config.scene.source_path = Some("data/fox".into());
        config.scene.eval = true;
        let mut lines = |model: &str, primitive, iterations, is_demo| {
            config.optimize.primitive = primitive;
            config.optimize.iterations = iterations;
            let model = Path::new(model);
            next_lines(&Trained { model, config: &config, is_demo })
        };
        vec![
            ("of the default", lines("out/fox", PrimitiveName::Gaussians, 6000, false)),
            ("in a folder with a blank", lines("out/my fox", PrimitiveName::Gaussians, 30, false)),
            ("of the reference", lines("out/fox", PrimitiveName::Gaussians, 30_000, false)),
            ("of surfels", lines("out/fox", PrimitiveName::Surfels, 30_000, false)),
            ("of triangles", lines("out/fox", PrimitiveName::Triangles, 30_000, false)),
            ("of the demonstration", lines("out/demo", PrimitiveName::Gaussians, 6000, true)),
        ]
    }

    #[test]
    fn commands_name_the_folder_as_a_shell_takes_it_within_80_columns() {
        for (name, lines) in samples() {
            assert!(lines.iter().all(|line| line.chars().count() <= 80), "{name}: {lines:#?}");
            assert!(lines[0].contains("splat view -m "), "{name}: {lines:#?}");
        }
        let (_, lines) = &samples()[1];
        assert!(lines[0].ends_with("-m 'out/my fox'"), "{lines:#?}");
    }

    #[test]
    fn long_commands_are_broken_before_options() {
        let long = format!("splat train -s /{} -m out/fox-high --quality high", "a".repeat(40));
        let lines = folded(&long);
        assert_eq!(lines[1..], ["  -m out/fox-high --quality high"]);
        assert_eq!(format!("{} {}", lines[0].trim_end_matches(" \\"), lines[1].trim()), long);
    }
}
