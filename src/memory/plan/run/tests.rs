//! Runs whose figures are known.

use proptest::prelude::*;

use super::*;
use crate::backend::cuda::dry_run;
use crate::layout::{GAUSSIANS, splat_capacity};
use crate::memory::plan::{CONTEXT, Maps, OptionalColumns, Storage, nccl};

/// What maps of inverse depths are compared with.
const DEPTHS: Inputs = Inputs { inverse_depths: true, ..Inputs::NONE };

/// What the spread along rays, and normals, are found by.
const DISTORTION: Inputs =
    Inputs { inverse_depths: true, inverse_squares: true, maps: true, ..Inputs::NONE };

fn run(gaussians: u64, storage: Storage) -> PlannedRun {
    PlannedRun {
        model: ModelSize {
            gaussians,
            schema: &GAUSSIANS,
            sh_degree: 3,
            storage,
            optional: OptionalColumns::NONE,
        },
        start: 12_415,
        seen: ViewGrowth { px: [1061, 1894], share: 0.72, surface: 1.34e6 },
        first_divisor: Divisor::One,
        records: Records::Ellipses,
        inputs: Inputs::NONE,
        photographs: PlannedPhotographs {
            trained: vec![1061 * 1894 * 3; 43],
            held_out: vec![1061 * 1894 * 3; 7],
        },
        colors: None,
        births: None,
        coarse: None,
        batch_views: 1,
        rounds: RoundShape::Grow,
        target: None,
        bands: false,
        resolution: false,
        context: CONTEXT,
        granule: Granule::default(),
        dry_run,
    }
}

/// Peaks that `splat bench` measured, without photographs, context and code, in GiB: see
/// benches/README.md. They are rounded to 0.01.
#[test]
fn peaks_are_those_that_were_measured() {
    let bench = |gaussians, storage, seen: ViewGrowth| {
        let run = PlannedRun {
            seen,
            photographs: PlannedPhotographs::default(),
            context: Bytes(0),
            ..run(gaussians, storage)
        };
        run.forecast(None).peak.gib()
    };
    let fox = run(1, Storage::Full).seen;
    let bonsai = ViewGrowth { px: [800, 533], share: 0.506, surface: 0.286e6 };
    let (full, compact) = (Storage::Full, Storage::Compact);
    for (gaussians, storage, seen, measured) in [
        (252_000, full, fox, 0.28),
        (1_000_000, full, fox, 0.85),
        (3_000_000, full, fox, 2.39),
        (6_000_000, full, fox, 4.71),
        (1_220_000, full, bonsai, 0.91),
        (252_000, compact, fox, 0.19),
        (1_000_000, compact, fox, 0.48),
        (3_000_000, compact, fox, 1.29),
        (6_000_000, compact, fox, 2.49),
    ] {
        let found = bench(gaussians, storage, seen);
        // Three per cent of what is held with the context and the photographs.
        let tolerance = 0.03 * (measured + 0.75);
        assert!(
            (found - measured).abs() < tolerance,
            "{gaussians}, {storage:?}: {found} for {measured}"
        );
    }
}

#[test]
fn a_rank_holds_its_share_and_the_splats_of_one_view_of_all() {
    let one = run(6_000_000, Storage::Full);
    assert_eq!(one.of_rank(1, Bytes(0)).forecast(None).peak, one.forecast(None).peak);
    let [two, four] = [2, 4].map(|gpus| one.of_rank(gpus, nccl(gpus, 32)));
    assert_eq!((two.model.gaussians, four.model.gaussians), (3_000_000, 1_500_000));
    let beside_nccl =
        |run: &PlannedRun, gpus| run.forecast(None).peak.0 - nccl(gpus, 32).0 - one.context.0;
    let alone = one.forecast(None).peak.0 - one.context.0;
    // A quarter of the model, and more than that of a view, which does not shrink with the share.
    let share = beside_nccl(&four, 4) as f64 / alone as f64;
    assert!((0.3..0.6).contains(&share), "{share}");
    assert!(beside_nccl(&two, 2) > beside_nccl(&four, 4));
    // Of its rows in the view of another: an index each, and splats whose gradients come to their place.
    let visible = one.seen.of(6_000_000).visible.div_ceil(2);
    let part = 4 * 3_000_000 + 48 * splat_capacity(visible, 3_000_000);
    let eight = PlannedRun { batch_views: 8, ..one.clone() }.of_rank(2, nccl(2, 32));
    assert_eq!((eight.context.0 - two.context.0, eight.batch_views), (3 * part, 4));
    assert_eq!(one.with(0).of_rank(4, Bytes(0)).model.gaussians, 0);
    // More GPUs of one size hold more, but not as many times more: each view is of all Gaussians.
    let card = Bytes(24 << 30);
    let [alone, shared] = [1, 4].map(|gpus| one.largest_shared(gpus, card).unwrap());
    assert_eq!(Some(alone), one.largest(card));
    assert!((alone * 3 / 2..alone * 4).contains(&shared), "{alone} {shared}");
}

#[test]
fn rows_add_up_and_the_peak_is_no_smaller_than_any_stage() {
    let forecast = run(3_000_000, Storage::Full).forecast(Some(Bytes(6 << 30)));
    let names: Vec<&str> = forecast.stages.iter().map(|stage| stage.name).collect();
    let expected = [
        "start",
        "iteration",
        "density control",
        "reorder",
        "evaluation",
        "statistics",
        "checkpoint",
    ];
    assert_eq!(names, expected);
    for stage in &forecast.stages {
        assert_eq!(stage.rows.iter().map(|row| row.bytes).sum::<Bytes>(), stage.total);
        assert!(stage.rows.is_sorted_by_key(|row| std::cmp::Reverse(row.bytes)));
        assert!(stage.total <= forecast.peak, "{}", stage.name);
    }
    assert_eq!(forecast.photographs_resident, 43);
}

#[test]
fn evaluation_takes_no_more_than_training() {
    for (storage, gaussians) in [(Storage::Full, 100_000), (Storage::Compact, 6_000_000)] {
        let plain = run(gaussians, storage);
        let others = [
            PlannedRun { bands: true, ..plain.clone() },
            PlannedRun { inputs: DEPTHS, ..plain.clone() },
            PlannedRun { records: Records::Surfels, inputs: DISTORTION, ..plain.clone() },
            PlannedRun { batch_views: 4, ..plain.clone() },
            PlannedRun { seen: ViewGrowth { share: 1.0, ..plain.seen }, ..plain.clone() },
            plain,
        ];
        for run in others {
            let forecast = run.forecast(Some(Bytes(80 << 30)));
            let total = |name| forecast.stages.iter().find(|it| it.name == name).unwrap().total;
            let (evaluation, training) = (total("evaluation"), total("iteration"));
            assert!(evaluation <= training, "{evaluation} > {training}: {run:?}");
        }
    }
}

#[test]
fn smaller_views_take_less_than_whole_ones_and_hold_a_smaller_photograph() {
    let whole = run(1_000_000, Storage::Full);
    for (inputs, bytes) in [(Inputs::NONE, 4), (DEPTHS, 9)] {
        let run = PlannedRun { first_divisor: Divisor::Four, inputs, ..whole.clone() };
        let stages = run.forecast(None).stages;
        let find = |name| stages.iter().find(|stage| stage.name == name).unwrap();
        let (smaller, iteration) = (find("smaller views"), find("iteration"));
        assert!(smaller.total < iteration.total, "{} of {}", smaller.total, iteration.total);
        let row = smaller.rows.iter().find(|row| row.label == "smaller photograph").unwrap();
        let least = 530 * 947 * bytes;
        // Blocks begin at round addresses.
        assert!((least..least + 1024).contains(&row.bytes.0), "{}", row.bytes);
        let plain = PlannedRun { inputs, ..whole.clone() };
        assert_eq!(run.forecast(None).peak, plain.forecast(None).peak);
    }
}

#[test]
fn photographs_leave_where_the_model_needs_their_place() {
    let run = run(3_000_000, Storage::Full);
    let least = run.least();
    let resident = |budget: u64| run.forecast(Some(Bytes(budget))).photographs_resident;
    assert_eq!(resident(least.0), 0);
    let some = resident(least.0 + (100 << 20));
    assert!((10..20).contains(&some), "{some}");
    // All of them, and what the arena has beyond does not push them out.
    assert_eq!(resident(least.0 + (300 << 20)), 43);
    let tight = run.forecast(Some(least));
    assert!(tight.peak <= least, "{} > {}", tight.peak, least);
}

#[test]
fn views_are_drawn_in_bands_only_where_they_do_not_fit_at_once() {
    let at_once = run(3_000_000, Storage::Full);
    let banded = PlannedRun { bands: true, ..at_once.clone() };
    let (most, least) = (at_once.least(), banded.least());
    assert!(least.0 + (30 << 20) < most.0, "{least} {most}");
    assert!(!banded.forecast(Some(most)).in_bands);
    let tight = banded.forecast(Some(Bytes(most.0 - 1)));
    assert!(tight.in_bands && tight.peak < most);
    assert!(!at_once.forecast(Some(Bytes(most.0 - 1))).in_bands, "they may not be");
}

#[test]
fn inverse_depths_take_a_map_its_gradient_and_a_fifth_of_the_states() {
    let colours = run(1_000_000, Storage::Full);
    let depths = PlannedRun { inputs: DEPTHS, ..colours.clone() };
    let row = |run: &PlannedRun, label| {
        let rows = run.ledger(false);
        rows.iter().find(|row| row.label == label).map_or(0, |row| row.bytes.0)
    };
    for label in ["inverse depths", "gradient of inverse depths"] {
        assert_eq!((row(&colours, label), row(&depths, label)), (0, 1061 * 1894 * 4));
    }
    let states = "states of pixels";
    assert_eq!(row(&depths, states) * 4, row(&colours, states) * 5);
}

#[test]
fn surfels_take_their_maps_and_gradients_where_their_terms_are_on() {
    let colours = PlannedRun { records: Records::Surfels, ..run(1_000_000, Storage::Full) };
    let normals = Inputs { maps: true, ..Inputs::NONE };
    let runs = [Inputs::NONE, normals, DISTORTION]
        .map(|inputs| PlannedRun { inputs, ..colours.clone() }.ledger(false));
    for (label, words) in
        [("surface maps", [0, 4, 4]), ("inverse depths", [0, 0, 1]), ("inverse squares", [0, 0, 1])]
    {
        for label in [label.to_owned(), format!("gradient of {label}")] {
            let bytes = |rows: &Vec<PlannedRow>| {
                rows.iter().find(|row| row.label == label).map_or(0, |row| row.bytes.0)
            };
            let found = runs.each_ref().map(bytes);
            assert_eq!(found, words.map(|words| words * 1061 * 1894 * 4), "{label}");
        }
    }
}

#[test]
fn compact_state_takes_less_than_half_of_the_model() {
    let [full, compact] = [Storage::Full, Storage::Compact].map(|s| run(6_000_000, s).least());
    assert!(compact.0 < full.0 * 6 / 10, "{compact} {full}");
}

#[test]
fn colour_tables_take_their_bytes_and_an_image_beside_the_view() {
    let without = run(1_000_000, Storage::Full);
    let with = |width| PlannedRun {
        colors: Some(PlannedColorTables { views: 43, width }),
        ..without.clone()
    };
    let image = 1061 * 1894 * 12;
    for (width, sums) in [(12, 256 * 12), (24_576, 900 * 384)] {
        let more = with(width).least().0 - without.least().0;
        let expected = image + 4 * (3 * 43 * width + sums + width);
        // Whole granules of the tables and of the scratch.
        assert!(more.abs_diff(expected) <= 2 * (2 << 20), "{more} for {expected}");
    }
}

/// Of 48 bytes a splat there is a twentieth more than the view has.
#[test]
fn each_view_of_a_batch_but_the_last_holds_its_gradients() {
    let one = run(1_000_000, Storage::Full);
    let reach = |run: &PlannedRun| {
        let stage = run.forecast(None).stages.into_iter().find(|stage| stage.name == "iteration");
        stage.expect("a stage").total.0
    };
    let visible = one.seen.of(1_000_000).visible;
    let each = 4_000_000 + 48 * (visible + visible / 20);
    for batch_views in [2, 8] {
        let more = reach(&PlannedRun { batch_views, ..one.clone() }) - reach(&one);
        let expected = u64::from(batch_views - 1) * each;
        // Starts of blocks, and whole granules.
        assert!(more.abs_diff(expected) <= 2 << 20, "{batch_views}: {more} for {expected}");
    }
}

#[test]
fn a_batch_of_the_coarse_stage_holds_no_less() {
    for maps in [Maps::Undrawn, Maps::Compared, Maps::Sampled] {
        let one = coarse(1_000_000, maps);
        let four = PlannedRun { batch_views: 4, ..one.clone() };
        let more = four.least().0 - one.least().0;
        let visible = one.seen.of(1_000_000).visible;
        assert!(more >= 3 * (4_000_000 + 48 * visible), "{maps:?}: {more}");
    }
}

/// A run with a coarse stage of this kind behind it.
fn coarse(gaussians: u64, maps: Maps) -> PlannedRun {
    let coarse = PlannedCoarse { neighbours: 16, shortens: true, maps };
    PlannedRun { coarse: Some(coarse), ..run(gaussians, Storage::Full) }
}

#[test]
fn only_the_coarse_stage_holds_lists_of_neighbours() {
    let forecast = coarse(6_000_000, Maps::Undrawn).forecast(None);
    assert_eq!(forecast.neighbours, Some(16));
    for stage in &forecast.stages {
        let lists = stage.rows.iter().find(|row| row.label == "neighbours");
        let expected = (stage.name == "coarse training")
            .then(|| Granule::default().whole(Bytes(6_000_000 * 16 * 4)));
        assert_eq!(lists.map(|row| row.bytes), expected, "{}", stage.name);
        assert_eq!(stage.rows.iter().map(|row| row.bytes).sum::<Bytes>(), stage.total);
        assert!(stage.total <= forecast.peak, "{}", stage.name);
    }
    let total = |name| forecast.stages.iter().find(|stage| stage.name == name).unwrap().total.0;
    // What it adds to the iteration: 384 MB of lists. The 288 MB of gradients lie where the splats, the
    // view's pairs and its pixels did, which are gone by then.
    let more = total("coarse training") - total("iteration");
    assert!(more.abs_diff(384_000_000) < 4 << 20, "{more}");
    assert_eq!(run(6_000_000, Storage::Full).forecast(None).neighbours, None);
}

#[test]
fn surface_maps_take_their_bytes_and_samples_a_little_more() {
    let [undrawn, compared, sampled] = [Maps::Undrawn, Maps::Compared, Maps::Sampled]
        .map(|maps| coarse(1_000_000, maps).least().0);
    assert!(undrawn < compared && compared <= sampled, "{undrawn} {compared} {sampled}");
    let view = coarse(1, Maps::Undrawn).seen.of(1_000_000);
    // Maps with their gradients, features with theirs, and the state of the pixels.
    let most = 32 * (view.pixels() + view.visible) + 16 * view.instances;
    assert!(compared - undrawn <= most + (8 << 20), "{} of {most}", compared - undrawn);
}

#[test]
fn lists_become_shorter_only_where_they_do_not_fit_and_not_before_bands() {
    let run = PlannedRun { bands: true, ..coarse(6_000_000, Maps::Undrawn) };
    let fixed = PlannedRun {
        coarse: run.coarse.map(|c| PlannedCoarse { shortens: false, ..c }),
        ..run.clone()
    };
    let (most, least) = (fixed.least(), run.least());
    // Six neighbours of 4 bytes.
    let gain = most.0 - least.0;
    assert!(gain.abs_diff(6_000_000 * 24) <= 8 << 20, "{gain}");
    let way = |budget: u64| {
        let forecast = run.forecast(Some(Bytes(budget)));
        assert!(forecast.peak.0 <= budget);
        (forecast.neighbours, forecast.in_bands)
    };
    assert_eq!(way(most.0).0, Some(16));
    assert_eq!(way(most.0 - 1).0, Some(12));
    assert_eq!(way(least.0).0, Some(10));
    assert_eq!(fixed.forecast(Some(least)).neighbours, Some(16), "they may not be");
    assert!(run.largest(most) > fixed.largest(most));
}

#[test]
fn the_ledger_has_each_label_once_at_its_most() {
    let run = run(3_000_000, Storage::Full);
    let rows = run.ledger(false);
    let mut labels: Vec<&str> = rows.iter().map(|row| row.label).collect();
    labels.sort_unstable();
    assert!(labels.windows(2).all(|pair| pair[0] != pair[1]), "{labels:?}");
    // What all stages hold at once is what goes by the labels then, or less.
    for row in run.forecast(None).stages.iter().flat_map(|stage| &stage.rows) {
        let most = rows.iter().find(|most| most.label == row.label);
        assert!(most.is_some_and(|most| most.bytes >= row.bytes), "{row:?} of {most:?}");
    }
}

#[test]
fn where_nothing_fits_there_is_no_largest_number() {
    assert_eq!(run(1000, Storage::Full).largest(Bytes(500 << 20)), None);
}

proptest! {
    #[test]
    fn the_largest_number_fits_and_one_more_does_not(
        mib in 800_u64..30_000,
        compact in any::<bool>(),
        stage in prop::option::of(any::<bool>()),
    ) {
        let storage = if compact { Storage::Compact } else { Storage::Full };
        let of_stage = |shortens| PlannedCoarse { neighbours: 16, shortens, maps: Maps::Compared };
        let run = PlannedRun { coarse: stage.map(of_stage), ..run(1, storage) };
        let budget = Bytes(mib << 20);
        let largest = run.largest(budget).unwrap();
        prop_assert!(run.with(largest).least() <= budget);
        prop_assert!(run.with(largest + 1).least() > budget);
        let forecast = run.with(largest).forecast(Some(budget));
        prop_assert!(forecast.peak <= budget);
    }
}
