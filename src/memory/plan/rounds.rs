//! What happens between iterations, replayed: rounds of density control, putting Gaussians in order,
//! the 3D filter, finding neighbours, and rows on their way to the host.

use std::convert::Infallible;
use std::ops::Range;

use crate::layout::{
    Choice, DENSITY_COUNTS, DENSITY_DIGITS, Draw, DrawSizes, FETCHED_COLUMN, MIDPOINTS,
    MOVED_COLUMNS, ModelSize, MoveSizes, Moves, PackSizes, ROWS_TO_PACK, Replay, RoundSizes,
    RowForm, SampleSlots, SearchOrder, SearchSizes, SearchTree, SelectionSlots, Smoothing,
    Source as _, TABLE_PARTS, along_bits,
};
use crate::math::morton::KEY_BITS;

/// What a strategy does in a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RoundShape {
    /// Gaussians are copied, split and removed.
    Grow,
    /// Gaussians move, and copies are added.
    Relocate,
}

/// Candidates are counted. Where absolute gradients are gathered, their quantile is looked for.
pub(crate) fn score(source: &Replay, has_quantile: bool) {
    let Ok(counts) = source.take(&DENSITY_COUNTS, &1);
    let Ok(digits) = source.take_if(has_quantile, &DENSITY_DIGITS, &1);
    drop((digits, counts));
}

/// One round in which `wanted` Gaussians would be born and `births` of them may. Some may be pruned.
pub(crate) fn densify(source: &Replay, sizes: &RoundSizes, prunes: bool) {
    score(source, sizes.model.optional.absolute_norm_sums);
    edit(source, sizes, prunes);
}

/// The same of candidates that were counted, or without any.
pub(crate) fn edit(source: &Replay, sizes: &RoundSizes, prunes: bool) {
    let Ok(()) = play_edit(source, sizes, prunes);
}

fn play_edit(source: &Replay, sizes: &RoundSizes, prunes: bool) -> Result<(), Infallible> {
    let selection = SelectionSlots::reserve(source, sizes)?;
    let rows = sizes.model.gaussians + sizes.births;
    // Triangles are split at edges.
    drop(source.take_if(sizes.model.schema.has_faces(), &MIDPOINTS, &sizes.births)?);
    if sizes.births > 0 {
        if sizes.births < sizes.wanted {
            source.sum32(rows);
            let choice = Choice::reserve(source, sizes)?;
            source.sort32(sizes.wanted, u32::BITS);
            drop(choice);
        }
        // The newborn are numbered,
        source.sum32(rows);
    }
    if prunes {
        // and those that stay.
        source.sum32(rows);
    }
    drop(selection);
    Ok(())
}

/// All Gaussians go but so many of the candidates. They are candidates by their weights, which lie where
/// the statistics were.
pub(crate) fn retain(source: &Replay, model: &ModelSize, candidates: u64, kept: u64) {
    score(source, false);
    let sizes = RoundSizes { model: *model, births: 0, wanted: candidates };
    let Ok(()) = play_retain(source, &sizes, kept.min(candidates));
}

fn play_retain(source: &Replay, sizes: &RoundSizes, kept: u64) -> Result<(), Infallible> {
    let selection = SelectionSlots::reserve(source, sizes)?;
    let rows = sizes.model.gaussians;
    if kept > 0 && kept < sizes.wanted {
        source.sum32(rows);
        let choice = Choice::reserve(source, sizes)?;
        source.sort32(sizes.wanted, u32::BITS);
        drop(choice);
    }
    if kept < rows {
        // Those that stay are numbered.
        source.sum32(rows);
    }
    drop(selection);
    Ok(())
}

/// The 3D filter of so many views.
pub(crate) fn smooth(source: &Replay, views: u64) {
    let Ok(smoothing) = Smoothing::reserve(source, views);
    drop(smoothing);
}

/// The dead of so many Gaussians move to the living.
pub(crate) fn relocate(source: &Replay, rows: u64) {
    let Ok(draw) = Draw::reserve(source, &DrawSizes { rows, copies: rows });
    source.sum64(rows);
    // The dead are counted.
    source.sum32(rows);
    drop(draw);
}

/// Copies of some of so many Gaussians are born.
pub(crate) fn add_copies(source: &Replay, rows: u64, births: u64) {
    if births > 0 {
        let Ok(draw) = Draw::reserve(source, &DrawSizes { rows, copies: births });
        source.sum64(rows);
        drop(draw);
    }
}

/// All Gaussians in the order of their places.
pub(crate) fn reorder(source: &Replay, model: &ModelSize) {
    if model.gaussians > 0 {
        let Ok(()) = play_reorder(source, model);
    }
}

fn play_reorder(source: &Replay, model: &ModelSize) -> Result<(), Infallible> {
    let sizes = MoveSizes::of(model);
    let Moves { rows, keys } = Moves::reserve(source, &sizes)?;
    let in_second = source.sort32(sizes.rows, KEY_BITS);
    drop(keys);
    let rows = one_of(rows, in_second);
    let columns = source.take(&MOVED_COLUMNS, &sizes)?;
    drop(source.take_if(sizes.fetches, &FETCHED_COLUMN, &sizes)?);
    drop(columns);
    drop(rows);
    Ok(())
}

/// The neighbours of so many Gaussians are found.
pub(crate) fn search(source: &Replay, gaussians: u64) {
    if gaussians > 0 {
        // How many neighbours makes no difference to the scratch.
        let Ok(()) = play_search(source, &SearchSizes { rows: gaussians, neighbours: 0 });
    }
}

fn play_search(source: &Replay, sizes: &SearchSizes) -> Result<(), Infallible> {
    let SearchOrder { rows, keys, extents } = SearchOrder::reserve(source, sizes)?;
    let mut in_second = false;
    for halving in 0..sizes.halvings() {
        in_second ^= source.sort32(sizes.rows, along_bits(halving) + halving);
    }
    drop((keys, extents));
    let rows = one_of(rows, in_second);
    let tree = SearchTree::reserve(source, sizes)?;
    drop((rows, tree));
    Ok(())
}

/// The second of two, or the first; the other one goes.
fn one_of<B>([first, second]: [B; 2], is_second: bool) -> B {
    if is_second { second } else { first }
}

/// So many rows come from the host: parameters alone.
pub(crate) fn upload(source: &Replay, model: &ModelSize, rows: u64) {
    pass_parts(source, model, rows, 0..1);
}

/// So many rows go to the host, with their moments.
pub(crate) fn read(source: &Replay, model: &ModelSize, rows: u64) {
    pass_parts(source, model, rows, 0..TABLE_PARTS);
}

/// Rows pass between host and device; what is not in single precision is packed and unpacked there.
/// One part of every table after the other, as the host has them.
fn pass_parts(source: &Replay, model: &ModelSize, rows: u64, parts: Range<usize>) {
    for part in parts {
        let of_tables = model.forms().zip(model.values()).skip(part).step_by(TABLE_PARTS);
        for (form, values) in of_tables {
            let sizes = PackSizes { rows, values: values.into() };
            let Ok(block) = source.take_if(form != RowForm::Floats, &ROWS_TO_PACK, &sizes);
            drop(block);
        }
    }
}

/// So many rows on their way to a histogram.
pub(crate) fn sample(source: &Replay, model: &ModelSize, rows: u64) {
    let Ok(sample) = SampleSlots::reserve(source, rows, model.parameters());
    drop(sample);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::{GAUSSIANS, OptionalColumns, Storage};

    fn model(gaussians: u64) -> ModelSize {
        let (storage, optional) = (Storage::Full, OptionalColumns::NONE);
        ModelSize { gaussians, schema: &GAUSSIANS, sh_degree: 3, storage, optional }
    }

    fn peak(source: &Replay, label: &str) -> u64 {
        source.peaks().iter().find(|row| row.label == label).map_or(0, |row| row.bytes)
    }

    #[test]
    fn candidates_are_sorted_only_where_not_all_are_born() {
        let source = Replay::default();
        let sizes = RoundSizes { model: model(1_000_000), births: 5000, wanted: 5000 };
        densify(&source, &sizes, true);
        assert_eq!(peak(&source, "density flags") + peak(&source, "density ranks"), 8 * 1_005_000);
        assert_eq!(peak(&source, "candidates"), 0, "all are born");
        let all = source.reach();
        densify(&source, &RoundSizes { births: 4999, ..sizes }, true);
        assert_eq!(peak(&source, "candidates"), 2 * 4 * 5000);
        assert!(source.reach() > all);
    }

    #[test]
    fn moving_the_dead_takes_no_more_than_putting_all_in_order() {
        for gaussians in [1, 1000, 1_000_000, 100_000_000] {
            let (round, order) = (Replay::default(), Replay::default());
            relocate(&round, gaussians);
            add_copies(&round, gaussians, gaussians / 20);
            reorder(&order, &model(gaussians + gaussians / 20));
            // Parts of the library's scratch begin at round addresses.
            assert!(round.reach() <= order.reach() + 2048, "{gaussians}");
        }
        let source = Replay::default();
        relocate(&source, 1_000_000);
        assert_eq!(peak(&source, "density weights"), 8_000_000);
        assert_eq!(peak(&source, "density sources"), 4_000_000);
    }

    #[test]
    fn nothing_is_put_in_order_of_an_empty_model() {
        let source = Replay::default();
        reorder(&source, &model(0));
        search(&source, 0);
        assert_eq!(source.reach(), 0);
    }

    #[test]
    fn finding_neighbours_takes_25_bytes_a_gaussian() {
        // Rows and keys go before the centres come, but for the rows in order: the first sort, by 24
        // bits, takes three passes and leaves them in the second buffer, the others leave them there.
        let source = Replay::default();
        search(&source, 1 << 20);
        assert_eq!(peak(&source, "neighbour rows"), 8 << 20);
        assert_eq!(peak(&source, "neighbour keys"), 8 << 20);
        let boxes = (32_768 + 1024 + 32) * 32;
        assert_eq!(source.reach(), (8 << 20) + (16 << 20) + boxes);
        // A leaf needs no sort.
        let source = Replay::default();
        search(&source, 5);
        assert_eq!((peak(&source, "sort"), peak(&source, "neighbour centres")), (0, 32 * 16));
    }
}
