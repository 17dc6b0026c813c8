//! Options and rates of learned colour changes of the photographs.

use crate::backend::{AppearanceRule, AppearanceTables, Compensation, TableStep};
use crate::config::OptimizeOptions;

/// Epsilon of Adam for exposures: that of `torch`, which 3D Gaussian splatting leaves as it is.
const EXPOSURE_EPSILON: f64 = 1e-8;

/// Iterations over which the rate of exposures rises: what the reference trainer's README recommends, as
/// it does the rates. Earlier, colours of the scene itself are still on their way, and tables would take
/// part in what is theirs. Of a short run no more than a share of it.
const EXPOSURE_WARM_UP: u32 = 5000;
const EXPOSURE_WARM_UP_SHARE: u32 = 6;

/// Learning rate of bilateral grids; this and what follows are gsplat's.
const GRID_RATE: f64 = 2e-3;
/// Share of it that is left at the end.
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
    /// The names of its training views.
    pub views: &'a [String],
    /// Their tables, in that order.
    pub tables: &'a AppearanceTables,
}

/// The tables of these training views that a run begins with: those that a checkpoint has of them by
/// their names, and others that change nothing.
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

/// The table of the view that an iteration trains on, and how it learns.
#[derive(Debug)]
pub struct ColorStep<'a, A> {
    /// The tables on the device.
    pub tables: &'a mut A,
    /// The table that moves, and its learning rule.
    pub step: TableStep,
}

/// The table of the view of image `number`, by its index in the dataset, and how it learns in a run of so many
/// images.
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
    fn tables_of_a_checkpoint_go_to_the_views_of_their_names() {
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
