//! Colours of a surface's vertices: those of the points around, by area.

use rayon::prelude::*;

use super::density::POINTS_A_PART;
use super::nodes::NodeField;
use super::sorted::SortedPoints;
use crate::mesh::Vec3;
use crate::narrow::to_f32s;

/// (sum a phi colour) / (sum a phi) on level `finest`, and where no point is near, on the next coarser one
/// that has some.
pub(super) fn colors_at(
    points: &SortedPoints,
    areas: &[f32],
    units: &[Vec3],
    finest: u32,
) -> Vec<[f32; 3]> {
    let mut colors: Vec<Option<[f32; 3]>> = vec![None; units.len()];
    for level in (0..=finest).rev() {
        if colors.par_iter().all(Option::is_some) {
            break;
        }
        // Areas are shares of the cube's face; a cell's face has area 1 here.
        let scale = 4.0_f64.powi(level.cast_signed());
        let field = NodeField::<4>::of_points(points, level, |row| {
            let area = f64::from(areas[row]) * scale;
            let [r, g, b] = points.points.colors[row].map(f64::from);
            [area * r, area * g, area * b, area]
        });
        colors.par_chunks_mut(POINTS_A_PART).zip(units.par_chunks(POINTS_A_PART)).for_each(
            |(colors, units)| {
                let mut reader = field.reader();
                for (color, &unit) in colors.iter_mut().zip(units) {
                    if color.is_none() {
                        let [r, g, b, area] = reader.at(unit);
                        *color = (area > LEAST_AREA)
                            .then(|| to_f32s([r, g, b].map(|c| (c / area).clamp(0.0, 1.0))));
                    }
                }
            },
        );
    }
    colors.into_iter().map(Option::unwrap_or_default).collect()
}

/// Area of points around a vertex, in cell faces, below which rounding could show.
const LEAST_AREA: f64 = 1e-4;
