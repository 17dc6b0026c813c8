//! Figures of geometry, and how they are shown.

use std::path::PathBuf;

use serde::Serialize;
use splat_mesh::compare::{Comparison, Distances, Figures, Similarity};

/// Letters of the rows' names, and of a column.
const NAME: usize = 24;
const COLUMN: usize = 22;

/// All figures of a mesh and what they are of.
#[derive(Serialize)]
pub(super) struct GeometryReport {
    /// The mesh.
    pub(super) mesh: PathBuf,
    /// The true mesh.
    pub(super) truth: PathBuf,
    /// Training cameras.
    pub(super) cameras: usize,
    #[serde(flatten)]
    pub(super) comparison: Comparison,
}

/// A row's name and what it shows of a column.
struct FigureRow {
    name: String,
    show: Box<dyn Fn(&Figures) -> String>,
}

/// The figures as a person reads them.
pub(super) fn table(report: &GeometryReport) -> String {
    let GeometryReport { mesh, truth, cameras, comparison } = report;
    let Comparison { diagonal, clamp, .. } = *comparison;
    let mut lines = vec![
        format!("{} against {}", mesh.display(), truth.display()),
        format!(
            "  distances in the scene's unit and in % of the truth's diagonal, {}; beyond {} they \
             count as that",
            length(diagonal),
            length(clamp)
        ),
    ];
    lines.extend(comparison.alignment.map(|found| aligned(&found)));
    let scan = comparison.scan.as_ref();
    let columns: Vec<(&str, &Figures)> = [
        Some(("whole surfaces", &comparison.uniform)),
        comparison.visible.as_ref().map(|visible| ("seen by cameras", visible)),
        scan.map(|scan| ("virtual scan", &scan.figures)),
    ]
    .into_iter()
    .flatten()
    .collect();
    let heads: String = columns.iter().map(|(head, _)| format!("{head:>COLUMN$}")).collect();
    lines.push(String::new());
    lines.push(format!("{:NAME$}{heads}", ""));
    for FigureRow { name, show } in rows(comparison) {
        let cells: String =
            columns.iter().map(|(_, figures)| format!("{:>COLUMN$}", show(figures))).collect();
        lines.push(format!("{name:NAME$}{cells}"));
    }
    lines.push(String::new());
    if let Some(scan) = scan {
        lines.push(format!(
            "virtual scan from {} places, {cameras} of them cameras: {} rays meet both, {} the mesh \
             alone, {} the truth alone; median error of depth {:.4} %",
            scan.views,
            scan.both,
            scan.mesh_only,
            scan.truth_only,
            100.0 * scan.median_depth_error
        ));
    }
    lines.push(format!("mesh: {}", comparison.report));
    let crossings = comparison.crossings;
    lines.push(format!(
        "faces that pass through others: {} of {} that were looked at",
        crossings.crossing, crossings.sampled
    ));
    lines.join("\n")
}

fn rows(comparison: &Comparison) -> Vec<FigureRow> {
    let diagonal = comparison.diagonal;
    let distance = |name: &str, of: fn(&Figures) -> f64| FigureRow {
        name: name.to_owned(),
        show: Box::new(move |figures| share(of(figures), diagonal)),
    };
    let percent = |name: &str, of: fn(&Figures) -> f64| FigureRow {
        name: name.to_owned(),
        show: Box::new(move |figures| format!("{:.2} %", 100.0 * of(figures))),
    };
    let mut rows = vec![
        distance("Chamfer", |figures| figures.chamfer),
        distance("mesh to truth, mean", |figures| figures.accuracy.mean),
        distance("  median", |figures| figures.accuracy.median),
        distance("  95 % are nearer than", |figures| figures.accuracy.p95),
        distance("truth to mesh, mean", |figures| figures.completeness.mean),
        distance("  median", |figures| figures.completeness.median),
        distance("  95 % are nearer than", |figures| figures.completeness.p95),
    ];
    for (index, score) in comparison.uniform.scores.iter().enumerate() {
        rows.push(FigureRow {
            name: format!("F-score at {}", length(score.threshold)),
            show: Box::new(move |figures| {
                let score = figures.scores.get(index);
                score.map_or("-".to_owned(), |score| format!("{:.2} %", 100.0 * score.f_score))
            }),
        });
        rows.push(FigureRow {
            name: "  precision, recall".to_owned(),
            show: Box::new(move |figures| {
                figures.scores.get(index).map_or("-".to_owned(), |score| {
                    format!("{:.2} %, {:.2} %", 100.0 * score.precision, 100.0 * score.recall)
                })
            }),
        });
    }
    rows.push(percent("normals agree", |figures| {
        both(figures, |distances| distances.normal_agreement)
    }));
    rows.push(percent("normals opposed", |figures| {
        both(figures, |distances| distances.opposed_share)
    }));
    rows.push(percent("farther than counted", |figures| {
        both(figures, |distances| distances.clamped_share)
    }));
    rows
}

/// The mean of a figure of both directions.
fn both(figures: &Figures, of: fn(&Distances) -> f64) -> f64 {
    0.5 * (of(&figures.accuracy) + of(&figures.completeness))
}

/// A distance, and its share of the diagonal.
fn share(distance: f64, diagonal: f64) -> String {
    format!("{} ({:.3} %)", length(distance), 100.0 * distance / diagonal)
}

/// A length with four digits that count; 0 of what only rounding leaves.
fn length(value: f64) -> String {
    match value.abs() {
        nothing if nothing < 1e-12 => "0".to_owned(),
        large if large >= 1000.0 => format!("{value:.0}"),
        small if small < 1e-6 => format!("{value:.1e}"),
        size => {
            let mut digits = 3;
            let mut least = 1.0;
            while size < least && digits < 9 {
                digits += 1;
                least *= 0.1;
            }
            format!("{value:.digits$}")
        }
    }
}

fn aligned(found: &Similarity) -> String {
    let cosine = 0.5 * (found.rotation[0][0] + found.rotation[1][1] + found.rotation[2][2] - 1.0);
    let [x, y, z] = found.translation;
    format!(
        "  the mesh was moved onto the truth: scale {:.6}, turn {:.3}°, shift ({x:.5}, {y:.5}, {z:.5})",
        found.scale,
        cosine.clamp(-1.0, 1.0).acos().to_degrees()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_have_four_digits_whatever_the_unit() {
        let cases = [
            (0.0, "0"),
            (2e-16, "0"),
            (12_345.6, "12346"),
            (3.464_1, "3.464"),
            (0.5, "0.5000"),
            (0.001_234_1, "0.001234"),
            (2.5e-8, "2.5e-8"),
        ];
        for (value, expected) in cases {
            assert_eq!(length(value), expected);
        }
    }
}
