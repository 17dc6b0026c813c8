//! `splat plan`: what it prints, how it ends, and that its largest number is the largest.

use std::collections::BTreeSet;
use std::fs;

use rstest::rstest;
use serde_json::Value;
use splat::backend::cpu::count;
use splat::backend::cuda::dry_run;
use splat::backend::{Footprint, Inputs};
use splat::export::{read_ply, write_ply};
use splat::layout::{GAUSSIANS, Records, TRIANGLES};
use splat::math::{Divisor, Real};
use splat::memory::plan::{
    BoundSizes, CONTEXT, DensifyShape, Granule, Maps, ModelSize, OptionalColumns, PlannedCoarse,
    PlannedColorTables, PlannedMeshing, PlannedPhotographs, PlannedRefinement, PlannedRun, Storage,
    SurfaceDrawing, ViewGrowth,
};
use splat::model::Gaussians;
use splat::train::forecast::seen_of_points;
use splat::train::near;

use crate::common::program::{Ended, SIZE, TestFolder, Text as _, VIEWS, end, splat, text};

fn plan(place: &TestFolder, flags: &[&str]) -> Ended {
    place.splat("plan -s SCENE", flags)
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value} is no count"))
}

fn stages(report: &Value) -> &[Value] {
    report["stages"].as_array().unwrap()
}

#[test]
fn the_preset_fast_is_planned_for_the_number_that_it_grows_to() {
    let place = TestFolder::with_scene();
    let gaussians = |flags: &[&str]| place.plan(flags)["gaussians"].clone();
    // One for 40 pixels of eight views of 48x36 px, since these are small.
    for flags in [&[][..], &["--preset=fast"]] {
        let fast = gaussians(flags);
        let from = &"by the pixels of the training views".into();
        assert_eq!((number(&fast["count"]), &fast["from"]), (345, from));
    }
    assert_eq!(number(&gaussians(&["--preset=fast", "--max-points=7000"])["count"]), 7000);
    // A run without a densification step adds no Gaussians.
    let none = gaussians(&["--strategy=budget", "--iterations=100"]);
    assert_eq!(number(&none["count"]), 200);
}

#[test]
fn every_stage_is_a_table_and_the_peak_is_told() {
    let place = TestFolder::with_scene();
    let ended = plan(&place, &["--eval", "--gaussians", "100000"]).done();
    ended.stdout.assert_holds(&[
        "\n100000 Gaussians (--gaussians), 200 at the start; SH degree 3, --optimize-memory\n",
        "\nstart ",
        "\niteration ",
        "\ndensity control ",
        "\nreorder ",
        "\nevaluation ",
        "\ncheckpoint ",
        "\npeak ",
        "\n  context and code                     526.0\n",
        "\nmost Gaussians ",
        "a card of 8GiB",
        "--preset 16gb",
        "\nhost, ",
    ]);
    assert!(ended.stdout.lines().all(|line| line.trim_end() == line), "{}", ended.stdout);
    // Nothing was held out, no model is trained, and no folder is made.
    let shown = plan(&place, &["--gaussians", "100000"]).done().stdout;
    assert!(!shown.contains("\nevaluation ") && !place.model().exists(), "{shown}");
}

#[test]
fn the_same_comes_as_json_whose_rows_add_up() {
    let place = TestFolder::with_scene();
    let report = place.plan(&["--eval", "--gaussians", "100000", "--vram-limit", "4GiB"]);
    assert_eq!(number(&report["gaussians"]["count"]), 100_000);
    assert_eq!(number(&report["scene"]["train_views"]), VIEWS as u64 - 1);
    assert_eq!((&report["storage"], &report["fits"]), (&"compact".into(), &true.into()));
    assert_eq!(number(&report["photographs_resident"]), VIEWS as u64 - 1);
    let peak = number(&report["peak"]);
    for stage in stages(&report) {
        let rows = stage["rows"].as_array().unwrap();
        let sum: u64 = rows.iter().map(|row| number(&row["bytes"])).sum();
        assert_eq!(sum, number(&stage["total"]), "{stage}");
        assert!(sum <= peak, "{stage}");
    }
    let budget = number(&report["budget"]["bytes"]);
    assert!(budget.abs_diff((4_u64 << 30) * 97 / 100) < 100, "{budget}");
    assert!(peak < budget);
}

#[test]
fn triangles_are_planned_in_vertices_and_usual_numbers_of_them_are_tabled() {
    let place = TestFolder::with_scene();
    let flags = ["--primitive", "triangles", "--gaussians", "8000000", "--vram-limit", "16GiB"];
    let text = plan(&place, &flags).done().stdout;
    let mut rows = text.lines().skip_while(|line| !line.starts_with("peak without a limit, MiB"));
    assert_eq!(rows.next().unwrap().split_whitespace().last(), Some("--optimize-memory"));
    let rows: Vec<Vec<f64>> = rows
        .take(4)
        .map(|row| row.split_whitespace().map(|cell| cell.parse().unwrap()).collect())
        .collect();
    let vertices: Vec<f64> = rows.iter().map(|row| row[0]).collect();
    assert_eq!(vertices, [4e6, 8e6, 12e6, 16e6]);
    assert!(rows.iter().all(|row| row[2] < 0.8 * row[1]), "{rows:?}");
    // The row of as many is the plan's own peak.
    let peak = format!("\npeak {:>39.1} MiB: fits", rows[1][1]);
    text.assert_holds(&[&peak, "\n8000000 vertices (--gaussians), ", "\nmost vertices "]);
    assert_eq!(place.plan(&flags)["gaussians"]["rows"], "vertices");
    assert!(place.plan(&["--gaussians", "1000"]).get("vertex_budgets").is_none());
    // Without a number, the photographs limit them; small ones to those of the start.
    let limited = place.plan(&flags[..2]);
    assert_eq!(limited["gaussians"]["from"], "by the pixels of the training views");
    assert_eq!(limited["gaussians"]["count"], 600);
}

#[test]
fn each_of_several_gpus_is_planned_with_its_share() {
    let place = TestFolder::with_scene();
    let million = ["--gaussians", "1000000", "--optimize-memory=false"];
    let one = place.plan(&million);
    let four = place.plan(&[&million[..], &["--gpus", "4"]].concat());
    let nccl = number(&four["gpus"]["nccl"]);
    assert_eq!((number(&four["gpus"]["count"]), nccl), (4, 1788 << 20));
    assert_eq!(four["gaussians"]["count"], one["gaussians"]["count"]);
    assert_eq!(four["view"], one["view"], "a view is of all Gaussians");
    let beside = |report: &Value, nccl| number(&report["peak"]) - nccl - CONTEXT.0;
    let share = beside(&four, nccl) as f64 / beside(&one, 0) as f64;
    assert!((0.25..0.6).contains(&share), "{share}");
    let limited = place.plan(&[&million[..], &["--gpus", "4", "--vram-limit", "16GiB"]].concat());
    assert_eq!(number(&limited["gpus"]["nccl"]), 1116 << 20, "it makes do with less");
    assert!(largest(&four) > 2 * largest(&one), "{} {}", largest(&four), largest(&one));
    let short = [&million[..], &["--gpus", "4", "--vram-limit", "1900MiB"]].concat();
    plan(&place, &short).ends(4).prints(&["--max-points"]);
    // As on one GPU.
    let parts = ["SH degree 3, --optimize-memory\n", "on each of 4 GPUs", "NCCL"];
    plan(&place, &["--gpus", "4"]).done().prints(&parts);
    let triangles = plan(&place, &["--gpus", "4", "--primitive", "triangles"]);
    triangles.refused(2, &["--gpus 4", "triangles"]);
}

fn largest(report: &Value) -> u64 {
    number(&report["largest"][0]["full"])
}

/// Fewer tiles are sorted in fewer passes.
#[test]
fn smaller_photographs_never_take_more() {
    let place = TestFolder::with_three_large_views((40, 30));
    for may in ["slack,photographs", "slack,photographs,bands"] {
        let of = |divisor: &str| {
            let flags = ["--gaussians", "6000000", "--give-up", may, "-r", divisor];
            let report = place.plan(&flags);
            [number(&report["peak"]), number(&report["least"]), u64::MAX - largest(&report)]
        };
        let costs = ["1", "2", "4", "8"].map(of);
        for pair in costs.windows(2) {
            assert!(pair[0].iter().zip(&pair[1]).all(|(more, less)| more >= less), "{costs:?}");
        }
    }
}

#[test]
fn a_plan_that_does_not_fit_prints_remedies_and_exits_with_code_4() {
    let place = TestFolder::with_scene();
    let full = "--optimize-memory=false";
    let flags = ["--vram-limit", "1GiB", "--gaussians", "1000000", full];
    let ended = plan(&place, &flags).ends(4).prints(&["does not fit the 993.3 MiB"]);
    let parts = ["error", "1000000 Gaussians take", "It would fit with --optimize"];
    ended.says(&parts).omits(&["defect"]);

    let with = |more: &[&str]| plan(&place, &[&flags[..], &["--json"], more].concat()).json();
    let report = with(&[]);
    assert_eq!(report["fits"], false);
    assert_eq!(report["training_ends_with"], report["largest"][0]["full"]);
    let kept = with(&["--give-up", "slack"]);
    assert_eq!(kept["training_ends_with"], Value::Null, "new Gaussians are not given up");
    let both = with(&["--give-up", "compact", "births"]);
    assert_eq!(both["training_ends_with"], report["largest"][0]["compact"]);
    let remedies = report["remedies"].as_array().unwrap();
    let flag = |remedy: &Value| remedy["flag"].as_str().unwrap().to_owned();
    let names: Vec<String> = remedies.iter().map(flag).collect();
    assert_eq!(names[..3], ["--optimize-memory sh", "--optimize-memory", "--offload sh"]);
    assert!(names[3].starts_with("--max-points "), "{names:?}");
    assert_eq!(names[4..], ["-r 2", "-r 4", "-r 8"]);
    // Each says what the same command with it would.
    for remedy in remedies {
        let flag = flag(remedy);
        let words: Vec<&str> = flag.split(' ').collect();
        let mut line = vec!["--vram-limit", "1GiB", "--json"];
        line.extend(&words);
        if words[0] != "--optimize-memory" {
            line.push(full);
        }
        if words[0] != "--max-points" {
            line.extend(["--gaussians", "1000000"]);
        }
        let ended = plan(&place, &line).ends(if remedy["fits"] == true { 0 } else { 4 });
        let (proposed, found) = (number(&remedy["least"]), number(&ended.json()["least"]));
        // Points are seen anew by smaller views, which may have another share of them at the edges.
        assert!(proposed.abs_diff(found) <= proposed / 100, "{flag}: {proposed} and {found}");
    }
}

#[test]
fn options_count_as_they_do_in_training() {
    let place = TestFolder::with_scene();
    let least = |flags: &[&str]| {
        number(&place.plan(&[flags, &["--gaussians", "1000000"]].concat())["least"])
    };
    let (usual, full) = (least(&[]), least(&["--optimize-memory=false"]));
    assert!(least(&["--sh-degree", "0"]) < usual);
    assert_eq!(least(&["--context", "626MiB"]), usual + (100 << 20));
    let half = least(&["--optimize-memory", "sh"]);
    assert!((95_000_000..98_000_000).contains(&(full - half)), "{full} {half}");
    let compact = least(&["--optimize-memory"]);
    assert!(full - compact > 390_000_000, "{full} {compact}");
    assert_eq!(usual, compact, "on a GPU it is compact where nothing is said");
    assert_eq!(least(&["--preset", "8gb"]), compact);
    fs::write(place.path("run.toml"), "[memory]\noptimize_memory = true\n").unwrap();
    assert_eq!(least(&["--config", text(&place.path("run.toml"))]), compact);
    // As `train`, it takes the reference trainer's flags.
    plan(&place, &["--debug", "--max_points", "1000"]).done().says(&["--debug is ignored"]);
    // Without density control their number stays.
    let report = place.plan(&["--densify-until-iter", "0"]);
    assert_eq!(number(&report["gaussians"]["count"]), 200);
    let guess = place.plan(&["--preset=reference"]);
    assert_eq!(number(&guess["gaussians"]["count"]), 17 * 200);
    assert!(guess["gaussians"]["from"].as_str().unwrap().starts_with("a guess"));
    assert_eq!((&guess["budget"], &guess["fits"]), (&Value::Null, &Value::Null));
}

fn stage<'a>(report: &'a Value, name: &str) -> Option<&'a Value> {
    stages(report).iter().find(|stage| stage["name"] == name)
}

#[test]
fn a_coarse_stage_that_follows_is_planned_and_the_largest_minimum_counts() {
    let place = TestFolder::with_scene();
    let flags = ["--gaussians", "1000000"];
    let plain = place.plan(&flags);
    assert_eq!((stage(&plain, "coarse training"), &plain["neighbours"]), (None, &Value::Null));
    let with = |more: &[&str]| {
        let density = ["--regularize", "density"];
        place.plan(&[&flags[..], &density, more].concat())
    };
    let report = with(&[]);
    let coarse = stage(&report, "coarse training").unwrap();
    // 16 neighbours of four bytes, in whole granules of 2 MiB.
    let neighbours = bytes(&coarse["rows"], "neighbours");
    assert_eq!(neighbours, Some(64_000_000_u64.next_multiple_of(2 << 20)));
    assert_eq!(number(&report["neighbours"]), 16);
    // Ten at the least, beside no less than an iteration takes.
    let more = number(&report["least"]) - number(&plain["least"]);
    assert!(more >= 40_000_000 - (4 << 20), "{more}");
    for (more, less) in [(&plain, &report), (&with(&["--regularity-knn", "8"]), &report)] {
        for name in ["full", "compact"] {
            let of = |report: &Value| number(&report["largest"][0][name]);
            assert!(of(more) > of(less), "{name}: {} and {}", of(more), of(less));
        }
    }
    // Normals are drawn beside colours, and what samples are compared with stays longer.
    let dn = place.plan(&[&flags[..], &["--regularize", "dn-consistency"]].concat());
    assert!(number(&dn["least"]) > number(&report["least"]), "{dn}");
    // What may not be given up is planned for as it is.
    let kept = with(&["--give-up", "slack,photographs,bands,births"]);
    assert!(largest(&kept) < largest(&report));
    let ended = plan(&place, &[&flags[..], &["--regularize", "density"]].concat()).done();
    ended.prints(&["\ncoarse training ", "a list of 16 neighbours"]);
}

#[test]
fn where_lists_do_not_fit_the_plan_has_shorter_ones() {
    let place = TestFolder::with_scene();
    let flags = ["--gaussians", "1000000", "--regularize", "density", "--json"];
    let least = number(&place.plan(&flags[..4])["least"]);
    // A little more than the least, of which 97 of 100 are taken.
    let limit = format!("{}MiB", ((least * 100 / 97) >> 20) + 2);
    let ended = plan(&place, &[&flags[..], &["--vram-limit", &limit]].concat());
    let report = ended.json();
    assert_eq!((&report["fits"], number(&report["neighbours"])), (&true.into(), 10));
    // What follows in `splat sugar` takes more than training does.
    ended.ends(4).says(&["splat mesh with --method poisson"]);
    let kept = ["--vram-limit", &limit, "--give-up", "slack,photographs,bands"];
    let ended = plan(&place, &[&flags[..], &kept].concat()).ends(4);
    assert_eq!(ended.json()["fits"], false, "{ended:#?}");
}

#[rstest]
#[case::plain(&[], Footprint::DILATED)]
#[case::mip(&["--antialiasing"], Footprint::Ellipse { variance_px2: 0.1, compensates: true })]
fn what_views_see_is_counted_on_a_model(#[case] flags: &[&str], #[case] footprint: Footprint) {
    let place = TestFolder::with_scene();
    place.trained(30, flags);
    let dataset = place.dataset();
    let gaussians = read_ply(&place.ply(30)).unwrap();
    let (near, views) = (near(&dataset), &dataset.views);
    let counts = dataset.train.iter().map(|&view| count(&gaussians, &views[view], near, footprint));
    let counts: Vec<_> = counts.collect();
    let visible = counts.iter().map(|counted| counted.visible).max().unwrap();
    let instances = counts.iter().map(|counted| counted.instances).max().unwrap();
    assert!(visible > 0 && instances >= visible);

    for model in [place.model(), place.ply(30)] {
        let report = place.plan(&[&["--model", text(&model)], flags].concat());
        assert_eq!(report["counted"], true);
        assert_eq!(number(&report["gaussians"]["count"]), gaussians.len() as u64);
        assert!(number(&report["view"]["visible"]).abs_diff(visible) <= 1, "{report}");
        assert!(number(&report["view"]["instances"]).abs_diff(instances) <= 2, "{report}");
    }
    // Other formats round scales.
    for name in ["model.glb", "model.spz", "model.splat", "meta.json"] {
        let file = place.path("exported").join(name);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        end(splat().arg("export").arg(place.ply(30)).args(["--overwrite", "-o"]).arg(&file)).done();
        let report = place.plan(&[&["--model", text(&file)], flags].concat());
        assert_eq!(report["counted"], true);
        assert!(number(&report["view"]["visible"]).abs_diff(visible) <= 2, "{name}: {report}");
        let found = number(&report["view"]["instances"]);
        assert!(found.abs_diff(instances) <= instances / 50, "{name}: {report}");
    }
    let twice = (2 * gaussians.len()).to_string();
    let model = place.model();
    let requested = ["--model", text(&model), "--gaussians", &twice];
    let report = place.plan(&[&requested[..], flags].concat());
    assert!(number(&report["view"]["visible"]).abs_diff(2 * visible) <= 1, "{report}");
}

#[test]
fn what_views_will_see_is_estimated_from_the_points_before_them() {
    let place = TestFolder::with_scene();
    let dataset = place.dataset();
    let share = |points: &[[f32; 3]]| seen_of_points(&dataset, points).share;
    // All cameras look at the middle of the scene.
    let middle = dataset.centre().map(f64::to_f32);
    let points = &dataset.points.positions;
    let all = share(&points[..100]);
    assert!(all > 0.3 && all <= 0.77, "{all}");
    let far = [middle[0], middle[1] + 1e6, middle[2]];
    let mixed: Vec<[f32; 3]> = points[..100].iter().flat_map(|&point| [point, far]).collect();
    assert!((share(&mixed) - all / 2.0).abs() < 1e-9, "{} of {all}", share(&mixed));
    assert_eq!(share(&[]), 0.0);
    // Three rows of three tiles.
    assert_eq!(seen_of_points(&dataset, points).surface, 168.0 * 9.0);
}

#[test]
fn what_is_wrong_is_said_with_its_remedy() {
    let place = TestFolder::with_scene();
    let parts = ["no scene is given", "-s SCENE", "inside a scene folder"];
    place.splat("plan", &[]).refused(2, &parts);
    plan(&place, &["--vram-limit", "80%"]).refused(2, &["--vram-limit 80%", "16GiB"]);
    plan(&place, &["--gaussians", "0"]).refused(2, &["--gaussians"]);
    plan(&place, &["--preset", "tiny"]).refused(2, &["no preset `tiny`", "8gb, 12gb, 16gb, 24gb"]);
    place.splat("plan -s nowhere", &[]).refused(3, &["nowhere"]);
    plan(&place, &["--model", "nowhere"]).refused(3, &["nowhere"]);
    plan(&place, &["--model", "scene"]).refused(3, &["--model", "point_cloud.ply"]);
}

#[test]
fn each_stage_of_splat_sugar_has_a_row_and_each_has_to_fit() {
    let place = TestFolder::with_scene();
    let flags = ["--gaussians=200000", "--regularize=density"];
    assert_eq!(place.plan(&flags[..1])["sugar"], serde_json::json!([]));
    let ended = plan(&place, &flags).done();
    ended.stdout.assert_holds(&[
        "\nsplat sugar ",
        "\n  train, 200000 Gaussians ",
        "\n  mesh, --method poisson, 1000000 triangles ",
        "\n  refine, 1000000 Gaussians on 1000000 triangles ",
    ]);
    let with = |more: &[&str]| place.plan(&[&flags[..], more].concat());
    let report = with(&[]);
    let stages = report["sugar"].as_array().unwrap();
    assert_eq!(stages.len(), 2);
    let least = |report: &Value, stage: usize| number(&report["sugar"][stage]["least"]);
    let host =
        |report: &Value, stage: usize, label: &str| bytes(&report["sugar"][stage]["host"], label);
    let points = (VIEWS as u64) * u64::from(SIZE.0 * SIZE.1);
    assert_eq!(host(&report, 0, "points of the surface"), Some(108 * points));
    assert!(host(&report, 1, "the mesh, and what is learned of it") > Some(1_000_000));
    // The options are those of splat sugar.
    let skipped = with(&["--skip-refinement", "--method=tetrahedra"]);
    assert_eq!(skipped["sugar"].as_array().unwrap().len(), 1);
    assert!(host(&skipped, 0, "tetrahedra over the Gaussians").is_some());
    assert!(least(&with(&["--decimation-target=3000000"]), 1) > least(&report, 1));
    assert!(least(&with(&["-g=3", "--decimation-target=300000"]), 1) < least(&report, 1));
    // What the last stage lacks is no less lacking.
    let tight = ["--vram-limit=2GiB", "--decimation-target=3000000"];
    let ended = plan(&place, &[&flags[..], &tight].concat()).ends(4).prints(&["does not fit\n"]);
    ended.says(&["splat refine with 3000000 Gaussians", "--decimation-target"]);
    plan(&place, &["--regularize=density", "-g=2"]).refused(2, &["--gaussians-per-triangle is 2"]);
}

#[test]
fn every_buffer_of_the_layout_is_planned() {
    let run = PlannedRun {
        records: Records::Ellipses,
        model: ModelSize {
            gaussians: 1_000_000,
            schema: &GAUSSIANS,
            sh_degree: 3,
            storage: Storage::Compact,
            optional: OptionalColumns { filter_3d: true, absolute_norm_sums: true },
        },
        start: 1000,
        seen: ViewGrowth { px: [800, 533], share: 0.5, surface: 1e5 },
        first_divisor: Divisor::Four,
        inputs: Inputs { inverse_depths: true, maps: true, ..Inputs::NONE },
        photographs: PlannedPhotographs { trained: vec![1 << 20], held_out: vec![1 << 20] },
        colors: Some(PlannedColorTables { views: 9, width: 12 }),
        new_gaussians: None,
        coarse: Some(PlannedCoarse { neighbours: 16, shortens: true, maps: Maps::Sampled }),
        batch_views: 1,
        densify_shape: DensifyShape::Grow,
        target: Some(500_000),
        bands: true,
        resolution: false,
        context: CONTEXT,
        granule: Granule::default(),
        dry_run,
    };
    // Squares of inverse depths are drawn of surfels alone.
    let squares =
        Inputs { inverse_depths: true, inverse_squares: true, maps: true, ..Inputs::NONE };
    let (records, coarse) = (Records::Surfels, None);
    let surfels = PlannedRun { records, inputs: squares, coarse, ..run.clone() };
    let moving = PlannedRun { densify_shape: DensifyShape::Relocate, ..run.clone() };
    let PlannedRun { model, seen, ref photographs, context, granule, .. } = run;
    let refinement = PlannedRefinement {
        model,
        bound: BoundSizes::closed(1_000_000, 1),
        seen,
        measured: None,
        photographs: photographs.clone(),
        textured: true,
        bands: true,
        resolution: false,
        context,
        granule,
        dry_run,
    };
    let fused = SurfaceDrawing::FusedDepths { along: [128; 3], filled: 100_000 };
    let drawings = [fused, SurfaceDrawing::Places(1 << 20)];
    let meshing = drawings.map(|drawing| PlannedMeshing {
        records: Records::Ellipses,
        model,
        seen,
        drawing,
        textured: false,
        bands: true,
        context,
        granule,
        dry_run,
    });
    let coarse = run.coarse.map(|coarse| PlannedCoarse { maps: Maps::Medians, ..coarse });
    let median = PlannedRun { coarse, ..run.clone() };
    let mesh = PlannedRun {
        records: Records::Triangles,
        model: ModelSize { schema: &TRIANGLES, ..model },
        inputs: Inputs { inverse_depths: true, ..Inputs::NONE },
        coarse: None,
        ..run.clone()
    };
    // Of tables in the host's memory columns are fetched before they are put in order.
    let model_on_host = ModelSize { storage: Storage::Offloaded, ..model };
    let offloaded = PlannedRun { model: model_on_host, ..run.clone() };
    let others = [offloaded, moving, median, surfels, mesh].map(|run| run.ledger(false));
    let training = [run.ledger(false), run.ledger(true)].into_iter().chain(others);
    let later = meshing.map(|meshing| meshing.ledger(false));
    let rows = training.chain(later).chain([refinement.ledger(false)]);
    let rows: Vec<_> = rows.flatten().collect();
    let planned: BTreeSet<&str> = rows.iter().map(|row| row.label).collect();
    // Page-locked memory of the host.
    let pinned = ["counts", "counts of ranks read", "photographs on their way", "reports"];
    let staging = ["staging of the model"];
    // A granule, where several GPUs share a model.
    let ranks = ["counts of ranks"];
    // A measurement of `splat bench`, the one time that a model changes to compact state, the tests of
    // the kernels' mathematics, and LPIPS, which takes what is left or is left out.
    let rare = ["copy", "state on its way", "probe inputs", "probe outputs"];
    let lpips = ["lpips features", "lpips sums", "lpips weights"];
    // `splat clean`, which is no part of a run.
    let cleaning = ["absent", "worths", "worths in a view"];
    // `splat export`, neither.
    let palettes = [
        "cells of palette rows",
        "order of palette rows",
        "palette cells",
        "palette centres",
        "palette entries",
        "palette rows",
    ];
    let slots: BTreeSet<&str> =
        splat::layout::ALL.into_iter().flatten().map(|slot| slot.label).collect();
    let unplanned: BTreeSet<&str> = slots.difference(&planned).copied().collect();
    let of_runs = pinned.into_iter().chain(staging).chain(ranks).chain(rare).chain(lpips);
    let others: BTreeSet<&str> = of_runs.chain(cleaning).chain(palettes).collect();
    assert_eq!(unplanned, others);
}

#[test]
fn training_views_get_smaller_in_a_plan_where_that_is_named() {
    let place = TestFolder::with_three_large_views((80, 60));
    let flags = ["--gaussians=20000", "--eval=false", "--give-up"];
    let with = |give_up: &str, more: &[&str]| place.plan(&[&flags[..], &[give_up], more].concat());
    let plain = with("slack", &[]);
    let smaller = with("slack,resolution", &[]);
    assert_eq!((&plain["training_scale"], &smaller["training_scale"]), (&1.0.into(), &1.0.into()));
    let [all, least] = [&plain, &smaller].map(|report| number(&report["least"]));
    assert!(least < all, "{least} {all}");
    // If new Gaussians may be refused, the model does not grow so far that views must shrink.
    assert_eq!(number(&with("slack,births,resolution", &[])["least"]), all);
    let limit = format!("{}KiB", (least + all) / 2048 * 100 / 97);
    let between = with("slack,resolution", &["--vram-limit", &limit]);
    assert_eq!(between["fits"], true);
    let scale = between["training_scale"].as_f64().unwrap();
    assert!((0.5..0.95).contains(&scale), "{scale}");
    let line = [&flags[..], &["slack,resolution", "--vram-limit", &limit]].concat();
    let expected = format!("training views are drawn at {scale:.2} of their size");
    plan(&place, &line).done().prints(&[&expected]);
}

// `--offload`: what is planned of it on both sides of the bus, and what it does where there is no bus.

const OFFLOAD_GAUSSIANS: u64 = 1 << 20;

fn offload_plan(place: &TestFolder, flags: &[&str]) -> Ended {
    plan(place, &[&[format!("--gaussians={OFFLOAD_GAUSSIANS}").as_str()], flags].concat())
}

fn offload_json(place: &TestFolder, flags: &[&str]) -> Value {
    offload_plan(place, &[flags, &["--json"]].concat()).done().json()
}

fn bytes(rows: &Value, label: &str) -> Option<u64> {
    let rows = rows.as_array().unwrap();
    rows.iter().find(|row| row["label"] == label).map(|row| number(&row["bytes"]))
}

#[test]
fn a_plan_takes_colours_off_the_gpu_and_shows_them_on_the_host() {
    let place = TestFolder::with_scene();
    let [compact, offloaded] = [&["--optimize-memory"][..], &["--offload=sh"]]
        .map(|flags| offload_json(&place, &[flags, &["--vram-limit=16GiB"]].concat()));
    assert_eq!([&compact["storage"], &offloaded["storage"]], ["compact", "offloaded"]);
    let host = "colours and their moments";
    assert_eq!(bytes(&compact["host"], host), None);
    // 24, 13 and 13 words.
    assert_eq!(bytes(&offloaded["host"], host), Some(200 * OFFLOAD_GAUSSIANS));
    let least = |report: &Value| report["least"].as_u64().unwrap();
    // The GPU holds a sixteenth of them, 12.5 MiB, and numbers of the 32,768 lane blocks, in granules of 2 MiB.
    assert_eq!(least(&compact) - least(&offloaded), 200 * OFFLOAD_GAUSSIANS - (14 << 20));
    for stage in offloaded["stages"].as_array().unwrap() {
        assert_eq!(bytes(&stage["rows"], "sh"), None, "{stage}");
        assert!(bytes(&stage["rows"], "geometry") > Some(0), "{stage}");
    }
    let largest = |report: &Value, key: &str| report["largest"][0][key].as_u64();
    assert_eq!(largest(&compact, "offloaded"), None);
    let [with, without] = ["offloaded", "compact"].map(|key| largest(&offloaded, key).unwrap());
    assert!(with as f64 > 1.4 * without as f64, "{with} beside {without}");
    // As many fit and no more.
    let fits = |count: u64| {
        let number = format!("--max-points={count}");
        plan(&place, &[&number, "--offload=sh", "--vram-limit=16GiB"]).code
    };
    assert_eq!([fits(with), fits(with + 1000)], [Some(0), Some(4)]);
    let parts =
        ["SH degree 3, --offload sh", "--optimize-memory     --offload sh", host, "GiB of RAM"];
    offload_plan(&place, &["--offload=sh"]).done().prints(&parts);
}

#[test]
fn a_plan_for_ranks_has_the_share_of_each_on_the_gpu() {
    let place = TestFolder::with_scene();
    let flags = ["--offload=sh", "--optimize-memory=true", "--gpus=4"];
    let [compact, offloaded] =
        [&flags[1..], &flags].map(|flags| offload_json(&place, flags)["least"].as_u64().unwrap());
    // A quarter of each table: 24, 13 and 13 MiB, less a sixteenth of that, in granules of 2 MiB.
    assert_eq!(compact - offloaded, (24 + 14 + 14 - 4) << 20);
}

#[test]
fn a_host_limit_that_colours_do_not_fit_is_refused_with_a_table() {
    let place = TestFolder::with_scene();
    let flags = ["--offload=sh", "--host-limit=150MiB"];
    offload_plan(&place, &flags).ends(4).says(&[
        "--host-limit 150MiB (150 MiB) cannot be kept",
        "       200 MiB  colours and their moments (--offload)\n",
        "fewer Gaussians (--max-points), or --offload none",
    ]);
    offload_plan(&place, &["--offload=none", flags[1]]).done();
    offload_plan(&place, &[flags[0], "--host-limit=2GiB"]).done();
}

#[test]
fn what_does_not_fit_a_card_is_told_that_the_host_may_have_colours() {
    let place = TestFolder::with_scene();
    let flags = ["--optimize-memory", "--vram-limit=1GiB", "--gaussians=1800000"];
    plan(&place, &flags).ends(4).says(&["It would fit with --offload sh and 343 MiB of RAM"]);
    plan(&place, &[&flags[..], &["--offload=sh"]].concat()).done();
    // With the fallback named, training takes it by itself.
    let fallbacks = ["--give-up=offload,births", "--json"];
    let report = plan(&place, &[&flags[..], &fallbacks].concat()).json();
    assert!(report["training_ends_with"].as_u64() > Some(1_800_000), "{report}");
}

#[test]
fn the_processor_has_nowhere_to_put_colours_and_trains_as_without() {
    let place = TestFolder::with_scene();
    let output = place.trained_into("with", 20, &["--offload=sh", "--eval"]);
    output.says(&["without effect on the CPU: --offload"]);
    place.trained_into("without", 20, &["--eval"]);
    place.assert_same(["with", "without"], 20);
    place.read("with/config.toml").assert_holds(&["offload = \"sh\""]);
    // It is no part of the model: either goes on as the other.
    for (model, flag) in [("with", "--offload=none"), ("without", "--offload=sh")] {
        let mut resumed = place.train_into(model);
        end(resumed.args(["--resume", "--iterations=30", flag])).done().says(&["iteration 20"]);
    }
    place.assert_same(["with", "without"], 30);
}

#[test]
fn a_model_that_is_looked_at_is_refused_a_small_limit_with_what_helps() {
    let place = TestFolder::with_scene();
    place.trained_into("model", 2, &["--offload=sh", "--eval"]);
    let count = 300_000;
    let mut gaussians = Gaussians::zeros(3, count);
    gaussians.quats = [1.0, 0.0, 0.0, 0.0].repeat(count);
    write_ply(&place.ply_of("model", 2), &gaussians).unwrap();
    let eval = |limit: u64| {
        let limit = format!("--host-limit={limit}MiB");
        place.splat("eval --device=cuda -m MODEL", &[&limit]).ends(4)
    };
    let refused = eval(1);
    let (_, least) = refused.stderr.split_once("Give ").unwrap();
    let least: u64 = least.split_once("MiB").unwrap().0.parse().unwrap();
    // 58 MiB are colours, which need not be there.
    let words = ["58 MiB  colours and their moments (--offload)", "MiB or more, or --offload none"];
    eval(least - 30).says(&words).omits(&["--max-points"]);
}
