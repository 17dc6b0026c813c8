use super::*;
use crate::layout::Use;

const TRAIN: ViewRequest = ViewRequest {
    records: Records::Ellipses,
    drawn_for: Use::Backward,
    inverse_depths: false,
    inverse_squares: false,
    maps: false,
    median: false,
    colors: None,
    divisor: crate::math::Divisor::One,
};
const PICTURE: ViewRequest = ViewRequest { drawn_for: Use::Counts, ..TRAIN };

const VIEW: ViewSize = ViewSize { px: [800, 533], visible: 400_000, instances: 1_000_000 };

fn drawing<'a>(view: &'a ViewSize, wants: ViewRequest, in_bands: bool) -> PlannedDrawing<'a> {
    PlannedDrawing::new(1_000_000, view, wants, in_bands)
}

fn reach_of(view: &ViewSize, wants: ViewRequest, in_bands: bool) -> u64 {
    drawing(view, wants, in_bands).scratch(&Library::default()).0
}

fn reach(view: &ViewSize, wants: ViewRequest) -> u64 {
    reach_of(view, wants, false)
}

fn peak(source: &Replay, label: &str) -> u64 {
    source.peaks().iter().find(|row| row.label == label).map_or(0, |row| row.bytes)
}

#[test]
fn training_takes_a_hundred_bytes_a_splat_and_twenty_an_instance() {
    let bytes = reach(&VIEW, TRAIN);
    let more = |view: ViewSize| reach(&view, TRAIN) - bytes;
    let splats = more(ViewSize { visible: 500_000, ..VIEW });
    assert!(splats.abs_diff(100_000 * 2 * 48 * 21 / 20) < 1000, "{splats}");
    let instances = more(ViewSize { instances: 2_000_000, ..VIEW });
    assert!(instances.abs_diff(1_000_000 * 84 / 4) < 100_000, "{instances}");
    let pixels = reach(&ViewSize { px: [1600, 1066], ..VIEW }, TRAIN) - bytes;
    let tiles = 4 * VIEW.tiles();
    assert!(pixels.abs_diff(3 * VIEW.pixels() * 24) < 200 * tiles, "{pixels}");
}

#[test]
fn looking_takes_less_than_training() {
    assert!(reach(&VIEW, PICTURE) < reach(&VIEW, TRAIN));
}

#[test]
fn bands_take_less_of_instances_and_more_of_splats() {
    let of =
        |instances, in_bands| reach_of(&ViewSize { instances, ..VIEW }, TRAIN, in_bands) as f64;
    let each = |in_bands| (of(9_000_000, in_bands) - of(5_000_000, in_bands)) / 4e6;
    let ratio = each(true) / each(false);
    assert!((ratio - 0.25).abs() < 0.01, "{ratio}");
    // Twelve bytes a splat stay, and eight come and go.
    let more = of(0, true) - of(0, false);
    assert!((4.8e6..8.1e6).contains(&more), "{more}");
}

#[test]
fn many_tiles_take_longer_keys() {
    let keys = |px| {
        let source = Replay::default();
        drawing(&ViewSize { px, ..VIEW }, PICTURE, false).replay(&source);
        peak(&source, "keys of instances")
    };
    assert_eq!(keys([800, 533]), 2 * 2 * 1_000_000);
    assert_eq!(keys([4096, 4112]), 2 * 4 * 1_000_000);
}

#[test]
fn surface_terms_take_a_row_a_gaussian_and_a_word_a_splat() {
    let sizes = |visible| ViewSizes {
        gaussians: 1_000_000,
        visible,
        capacity: splat_capacity(visible, 1_000_000),
        records: Records::Ellipses,
        pixels: 1,
    };
    let of = |visible, maps: Maps| {
        let source = Replay::default();
        let Ok(()) = play_sample_terms(&source, &sizes(visible), maps.into(), &mut None);
        source
    };
    let compared = of(400_000, Maps::Compared);
    assert_eq!(peak(&compared, "surface gradients"), 48_000_000);
    assert_eq!(peak(&compared, "surface rows"), 1_600_000);
    assert_eq!(peak(&compared, "surface counts"), 2 * 31_250 * 4);
    let sampled = of(400_000, Maps::Sampled);
    assert_eq!(peak(&sampled, "surface counts"), (3 * 31_250 + 1) * 4);
    assert_eq!(of(0, Maps::Sampled).reach(), 0);
}
