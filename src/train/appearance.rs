//! Options and rates of learned colour changes of the photographs.

use crate::backend::{AppearanceRule, AppearanceTables, Compensation, TableStep};
use crate::config::OptimizeOptions;

/// Epsilon of Adam for exposures: `torch`'s default, which 3DGS keeps.
const EXPOSURE_EPSILON: f64 = 1e-8;

/// Iterations over which the learning rate of exposures rises, as the reference's README recommends. Earlier the
/// scene's own colours are unfinished, and the tables would learn part of them. Short runs use a share of the run.
const EXPOSURE_WARM_UP: u32 = 5000;
const EXPOSURE_WARM_UP_SHARE: u32 = 6;

/// Learning rate of bilateral grids. This and the following values are gsplat's.
const GRID_RATE: f64 = 2e-3;
/// Share of the rate that is left at the end.
const GRID_RATE_LEFT: f64 = 0.01;
const GRID_WARM_UP: u32 = 1000;
const GRID_EPSILON: f64 = 1e-15;
const GRID_TOTAL_VARIATION: f64 = 10.0;

/// Returns the colour change before views are compared, if any.
pub fn compensation(options: &OptimizeOptions) -> Option<Compensation> {
    if options.exposure {
        Some(Compensation::Exposure)
    } else {
        options.bilateral_grid.then_some(Compensation::BilateralGrid)
    }
}

/// Returns the learning rule of its tables in a run of N images.
pub fn rule(options: &OptimizeOptions, kind: Compensation, iterations: u32) -> AppearanceRule {
    match kind {
        Compensation::Exposure => AppearanceRule {
            rate_init: options.exposure_lr_init,
            rate_final: options.exposure_lr_final,
            iterations,
            warm_up: EXPOSURE_WARM_UP.min(iterations / EXPOSURE_WARM_UP_SHARE),
            epsilon: EXPOSURE_EPSILON,
            total_variation: 0.0,
        },
        Compensation::BilateralGrid => AppearanceRule {
            rate_init: GRID_RATE,
            rate_final: GRID_RATE * GRID_RATE_LEFT,
            iterations,
            warm_up: GRID_WARM_UP,
            epsilon: GRID_EPSILON,
            total_variation: GRID_TOTAL_VARIATION,
        },
    }
}

/// Colour tables of an earlier part of a run.
#[derive(Clone, Copy, Debug)]
pub struct EarlierTables<'a> {
    /// Names of the training views.
    pub views: &'a [String],
    /// Tables in the order of `views`.
    pub tables: &'a AppearanceTables,
}

/// Returns the first tables of these training views: those of a checkpoint by the views' names, else tables without
/// effect.
pub fn tables(
    kind: Compensation,
    views: &[String],
    stored: Option<EarlierTables<'_>>,
) -> AppearanceTables {
    let mut tables = AppearanceTables::identity(kind, views.len());
    if let Some(stored) = stored.filter(|stored| stored.tables.kind == kind) {
        for (view, name) in views.iter().enumerate() {
            if let Some(found) = stored.views.iter().position(|stored| stored == name) {
                tables.take_view(view, stored.tables, found);
            }
        }
    }
    tables
}

/// Colour table of a step's view and its learning rule.
#[derive(Debug)]
pub struct ColorStep<'a, A> {
    /// The tables on the device.
    pub tables: &'a mut A,
    /// Moved table and its learning rule.
    pub step: TableStep,
}

/// Returns the table and learning rule of image `number` in a run of `images` images. `view` is an index in the
/// dataset.
pub(super) fn color_step<'a, A>(
    tables: Option<&'a mut A>,
    options: &OptimizeOptions,
    trained: &[usize],
    view: usize,
    [number, images]: [u32; 2],
) -> Option<ColorStep<'a, A>> {
    let kind = compensation(options)?;
    let place = trained.iter().position(|&other| other == view)?;
    let step = TableStep { view: place, number, rule: rule(options, kind, images) };
    Some(ColorStep { tables: tables?, step })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stored_tables_are_matched_by_view_name() {
        let names = |names: [&str; 3]| names.map(str::to_owned);
        let kind = Compensation::Exposure;
        let mut stored = AppearanceTables::identity(kind, 3);
        stored.values.iter_mut().zip(0_u8..).for_each(|(value, i)| *value = f32::from(i));
        stored.steps = vec![5, 6, 7];
        let (before, now) = (names(["a", "b", "c"]), names(["c", "x", "a"]));
        let earlier = Some(EarlierTables { views: &before, tables: &stored });
        let found = tables(kind, &now, earlier);
        assert_eq!(found.steps, [7, 0, 5]);
        assert_eq!(found.values[..12], stored.values[24..]);
        assert_eq!(found.values[12..24], AppearanceTables::identity(kind, 1).values);
        assert_eq!(found.values[24..], stored.values[..12]);
        let other = tables(Compensation::BilateralGrid, &now, earlier);
        assert_eq!(other, AppearanceTables::identity(Compensation::BilateralGrid, 3));
    }
}
