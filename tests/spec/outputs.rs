//! The files of a model folder, as another program finds them after a run.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use serde_json::Value;
use splat::config::Config;
use splat::dataset::{Camera, Dataset, Frame, ImageSource, PointCloud, Pose};
use splat::export::{write_cameras_json, write_cfg_args};
use splat::files::OutputError;
use splat::memory::Bytes;
use splat::perceptual::LpipsNet;
use splat::telemetry::{Progress, ProgressStyle, Sinks};
use splat::train::event::{
    Completion, Distributions, Evaluation, Event, MemoryReport, Metrics, Phase, PhasePeak,
    PhasePeaks, Picture, Pictures, RunTimes, Saved, Sink, Split, Step, Tensors, TermValues,
    ViewMetrics,
};
use splat::train::pictures::{density_map, error_map};

use crate::common::prelude::*;
use crate::common::program::{events_files, log_lines, records, steps_of_tags};

/// Returns an empty folder that outlives the test, so that other programs can read it.
fn model_folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("outputs").join(name);
    fs::remove_dir_all(&folder).ok();
    fs::create_dir_all(&folder).unwrap();
    folder
}

fn step(iteration: u32, iterations: u32) -> Event {
    let x = f64::from(iteration);
    Event::Step(Step {
        before: iteration - 1,
        iteration,
        images: 1,
        iterations,
        values: TermValues(vec![("l1", 1.0 / x), ("ssim", 1.0 - 0.5 / x)]),
        total: 2.0 / x,
        gaussians: 1000 + iteration as usize,
        ms: 20.0,
    })
}

fn memory(iteration: u32) -> Event {
    Event::Memory(MemoryReport {
        iteration,
        tensors: Tensors {
            parameters: Bytes(1 << 20),
            optimizer: Bytes(2 << 20),
            gradients: Bytes(3 << 20),
            activations: Bytes(4 << 20),
            images: Bytes(5 << 20),
            knn: Bytes(6 << 20),
        },
        host_resident: Some(Bytes(u64::from(iteration) << 20)),
        host_total: Some(Bytes(8 << 30)),
        host_creep: (iteration > 1000).then_some(Bytes(1 << 28)),
        ..MemoryReport::default()
    })
}

fn distributions(iteration: u32) -> Event {
    let samples = |scale: f64| (1..=999).map(|i| scale * f64::from(i)).collect();
    Event::Distributions(Distributions {
        iteration,
        gaussians: 999,
        opacity_mean: 0.5,
        opacity: samples(0.001),
        scale: samples(0.02),
        xyz_magnitude: samples(0.3),
        rotation_magnitude: samples(0.004),
    })
}

/// Returns a picture of 37x23 px without equal neighbours.
fn picture(seed: u8) -> Arc<Picture> {
    let rgb = (0..37 * 23 * 3u32).map(|i| (i % 251) as u8 ^ seed).collect();
    Arc::new(Picture { width: 37, height: 23, rgb })
}

fn pictures(iteration: u32, split: Split, name: &str) -> Event {
    let (render, ground_truth) = (picture(1), picture(2));
    let counts: Vec<u32> = (0..37 * 23).collect();
    Event::Pictures(Pictures {
        iteration,
        split,
        name: name.to_owned(),
        error: Arc::new(error_map(&render, &ground_truth)),
        density: Arc::new(density_map(&counts, 37, 23)),
        render,
        ground_truth,
        depth: None,
        normals: Some(picture(3)),
    })
}

fn evaluated(iteration: u32, split: Split) -> Event {
    let metrics = |psnr| {
        let (ssim, l1, lpips) = (0.875, 0.03125, Some(0.125));
        Metrics { psnr, ssim, l1, lpips, ..Metrics::default() }
    };
    let view = |position, name: &str, psnr| ViewMetrics {
        position,
        name: name.to_owned(),
        px: [48, 36],
        metrics: metrics(psnr),
    };
    Event::Evaluated(Evaluation {
        iteration,
        split,
        mean: metrics(25.5),
        lpips_net: Some(LpipsNet::Alex),
        gaussians: 1000 + iteration as usize,
        views: vec![view(0, "left/a.jpg", 25.0), view(1, "left/b.jpg", 26.0)],
    })
}

fn finished(iteration: u32, interrupted: bool) -> Event {
    let mut peaks = PhasePeaks::default();
    peaks.raise(Phase::Evaluation, PhasePeak { vram: None, host: Some(Bytes(1 << 29)) });
    let times = RunTimes {
        wall_seconds: 4.0,
        start_seconds: 0.5,
        ensemble_seconds: 0.0,
        evaluation_seconds: 1.25,
        saving_seconds: 0.25,
        waiting_seconds: 0.125,
        paused_seconds: 0.0,
    };
    let (gaussians, training_seconds) = (1000, 1.5);
    Event::Finished { iteration, gaussians, training_seconds, interrupted, peaks, times }
}

fn new_run(name: &str) -> (PathBuf, Sinks) {
    let folder = model_folder(name);
    let sinks = Sinks::for_run(&folder, ProgressStyle::None, None).unwrap();
    (folder, sinks)
}

/// Sends the events of a run from iteration `from` to `to`.
fn run(sink: &mut dyn Sink, folder: &Path, from: u32, to: u32) {
    let mut send = |event: &Event| sink.on(event).unwrap();
    send(&Event::Started {
        model_path: folder.to_owned(),
        device: "CPU, 2 threads".to_owned(),
        gpu: None,
        train_views: 43,
        test_views: 7,
        gaussians: 12_400,
        iteration: from,
        iterations: to,
    });
    for iteration in from + 1..=to {
        send(&step(iteration, to));
        if iteration.is_multiple_of(100) {
            send(&memory(iteration));
        }
    }
    send(&distributions(to));
    send(&pictures(to, Split::Test, "left/a.jpg"));
    send(&pictures(to, Split::Test, "left/b.jpg"));
    send(&evaluated(to, Split::Test));
    send(&pictures(to, Split::Train, "left/c.jpg"));
    send(&evaluated(to, Split::Train));
    for what in [Saved::PointCloud, Saved::Checkpoint] {
        send(&Event::Saved { iteration: to, what, path: folder.join("file") });
    }
    send(&Event::Warning { message: "2 images are missing".to_owned() });
    send(&finished(to, false));
}

const SCALARS_OF_STEPS: [&str; 5] =
    ["train/l1", "train/ssim", "train/total", "speed/it_per_s", "speed/ms_per_iter"];

#[test]
fn a_run_and_its_continuation_fill_the_model_folder() {
    let folder = model_folder("run");
    for (from, to) in [(0, 205), (205, 1000)] {
        let mut sinks =
            Sinks::for_run(&folder, ProgressStyle::None, (from > 0).then_some(from)).unwrap();
        run(&mut sinks, &folder, from, to);
    }

    let files = events_files(&folder);
    assert_eq!(files.len(), 2);
    let first = steps_of_tags(&files[0]);
    let tens: Vec<i64> = (1..=20).map(|i| 10 * i).chain([205]).collect();
    for tag in SCALARS_OF_STEPS {
        assert_eq!(first[tag], tens, "{tag}");
    }
    for tag in ["parameters", "optimizer", "gradients", "activations", "images", "knn"] {
        assert_eq!(first[&format!("tensors/{tag}_mb")], [100, 200]);
    }
    assert_eq!(first["memory/host_rss_gb"], [100, 200]);
    assert_eq!(first["memory/peak_evaluation_gb"], [205]);
    for tag in [
        "opacity_mean",
        "scale_histogram",
        "opacity_histogram",
        "xyz_magnitude_histogram",
        "rotation_magnitude_histogram",
    ] {
        assert_eq!(first[&format!("scene/{tag}")], [205]);
    }
    for tag in ["psnr", "ssim", "l1", "lpips"] {
        assert_eq!(first[&format!("test/{tag}")], [205]);
        assert_eq!(first[&format!("eval_train/{tag}")], [205]);
    }
    for tag in ["render", "error", "density", "ground_truth"] {
        assert_eq!(first[&format!("test/left/a.jpg/{tag}")], [205]);
        assert_eq!(first[&format!("eval_train/left/c.jpg/{tag}")], [205]);
    }

    assert_eq!(first["test/left/a.jpg/normals"], [205]);
    assert!(!first.contains_key("test/left/a.jpg/depth"), "depths were not drawn");

    let lines = log_lines(&folder);
    assert!(lines.iter().all(|line| line["time"].as_f64().unwrap() > 1.6e9));
    let count = |kind: &str| lines.iter().filter(|line| line["event"] == kind).count();
    // 10 to 200 and the last, 205; then 210 to 1000.
    assert_eq!(count("step"), 21 + 80);
    assert_eq!((count("started"), count("finished"), count("evaluated")), (2, 2, 4));
    assert_eq!((count("pictures"), count("saved"), count("warning")), (0, 4, 2));

    let csv = fs::read_to_string(folder.join("metrics.csv")).unwrap();
    let rows: Vec<&str> = csv.lines().collect();
    assert_eq!(
        rows[0],
        "iteration,split,psnr,ssim,l1,gaussians,lpips,cc_psnr,cc_ssim,ref_ssim,ref_lpips"
    );
    assert_eq!(rows[1], "205,test,25.500000,0.875000,0.031250,1205,0.125000,,,,");
    assert_eq!(rows.len(), 5);
    let results = fs::read_to_string(folder.join("results.json")).unwrap();
    assert!(results.find("ours_205").unwrap() < results.find("ours_1000").unwrap());
    let views: Value =
        serde_json::from_str(&fs::read_to_string(folder.join("per_view.json")).unwrap()).unwrap();
    assert_eq!(views["ours_1000"]["PSNR"]["00001.png"], 26.0);
}

#[test]
fn pictures_are_in_the_events_and_photographs_once_a_run() {
    let (folder, mut sinks) = new_run("pictures");
    for iteration in [7, 9] {
        sinks.on(&pictures(iteration, Split::Test, "a.jpg")).unwrap();
        sinks.on(&evaluated(iteration, Split::Test)).unwrap();
    }
    // Read while the sink is alive: an evaluation flushes.
    sinks.written().iter().for_each(Completion::wait);
    let file = &events_files(&folder)[0];
    let steps = steps_of_tags(file);
    assert_eq!(steps["test/a.jpg/render"], [7, 9]);
    assert_eq!(steps["test/a.jpg/ground_truth"], [7]);
    let found = records(file).into_iter().find_map(|record| {
        let values = record.get_summary().get_value().to_vec();
        values.into_iter().find(|value| value.get_tag() == "test/a.jpg/render")
    });
    let found = found.unwrap();
    let encoded = found.get_image();
    assert_eq!((encoded.get_width(), encoded.get_height()), (37, 23));
    let decoded = image::load_from_memory(encoded.get_encoded_image_string()).unwrap().to_rgb8();
    assert_eq!(decoded.into_raw(), picture(1).rgb);
}

#[test]
fn an_interrupted_run_records_its_last_iteration() {
    let (folder, mut sinks) = new_run("interrupted");
    for iteration in 1..=13 {
        sinks.on(&step(iteration, 30_000)).unwrap();
    }
    sinks.on(&finished(13, true)).unwrap();
    assert_eq!(steps_of_tags(&events_files(&folder)[0])["train/total"], [10, 13]);
    let lines = fs::read_to_string(folder.join("run.jsonl")).unwrap();
    assert!(lines.contains("\"iteration\":13,\"iterations\":30000"), "{lines}");
}

#[derive(Clone, Default)]
struct Warnings(Arc<Mutex<Vec<String>>>);

impl Sink for Warnings {
    fn on(&mut self, event: &Event) -> Result<(), OutputError> {
        if let Event::Warning { message } = event {
            self.0.lock().unwrap().push(message.clone());
        }
        Ok(())
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_device_under_a_file_of_a_run_costs_one_warning() {
    use std::os::unix::fs::symlink;
    let folder = model_folder("full");
    symlink("/dev/full", folder.join("run.jsonl")).unwrap();
    let mut sinks = Sinks::for_run(&folder, ProgressStyle::None, Some(0)).unwrap();
    let warnings = Warnings::default();
    sinks.add(warnings.clone());
    sinks.on(&Event::OpacityReset { iteration: 3000 }).unwrap();
    let log = || warnings.0.lock().unwrap().clone();
    assert_eq!(log().len(), 1);
    assert!(log()[0].contains("run.jsonl: cannot be written: No space left"), "{:?}", log());
    // The other sinks still get later events.
    for iteration in [10, 20] {
        sinks.on(&evaluated(iteration, Split::Test)).unwrap();
    }
    assert_eq!(log().len(), 1);
    for file in ["results.json", "metrics.csv"] {
        assert!(folder.join(file).exists(), "{file}");
    }
    sinks.written().iter().for_each(Completion::wait);
    // The other sinks also get an event that one sink fails on with an error.
    fs::remove_file(folder.join("per_view.json")).unwrap();
    fs::create_dir(folder.join("per_view.json")).unwrap();
    let error = sinks.on(&evaluated(30, Split::Test)).unwrap_err();
    assert!(error.to_string().contains("per_view.json: cannot be written"), "{error}");
    assert_eq!(log().len(), 1);
    sinks.written().iter().for_each(Completion::wait);
    assert_eq!(steps_of_tags(&events_files(&folder)[0])["test/psnr"], [10, 20, 30]);
}

fn progress(style: ProgressStyle) -> Vec<String> {
    let path = model_folder(&format!("progress_{style:?}")).join("stderr");
    let mut sink = Progress::to_writer(style, fs::File::create(&path).unwrap());
    run(&mut sink, Path::new("out/fox"), 0, 2005);
    fs::read_to_string(&path).unwrap().lines().map(str::to_owned).collect()
}

#[test]
fn plain_progress_has_the_lines_that_scripts_look_for() {
    let lines = progress(ProgressStyle::Plain);
    assert!(
        lines[0].contains("43 views, 7 held out, 12.4k Gaussians, into out/fox"),
        "{}",
        lines[0]
    );
    assert!(lines[1].starts_with("Training 1/2005 │ L:2.000 │ N:1.0k │ V:- R:- C:- │ 50.0it/s"));
    // The whole run takes less than 5 s here, so the next line is the last.
    let reserved = [
        "[Training] Iter 1000: Allocated: 0.02GB, Reserved: 0.98GB, Creep: -",
        "[Training] Iter 2000: Allocated: 0.02GB, Reserved: 1.95GB, Creep: 0.250GB",
    ];
    assert_eq!(lines[2..4], reserved);
    assert!(lines[4].starts_with("Training 2005/2005 │ L:0.001 │ N:3.0k │ V:- R:24% C:- │"));
    assert_eq!(
        lines[5..9],
        [
            "[ITER 2005] Evaluating test: L1 0.03125 PSNR 25.500 SSIM 0.8750 LPIPS 0.1250",
            "[ITER 2005] Evaluating train: L1 0.03125 PSNR 25.500 SSIM 0.8750 LPIPS 0.1250",
            "[ITER 2005] Saving Gaussians",
            "[ITER 2005] Saving Checkpoint",
        ]
    );
    assert!(lines[9].starts_with("Training complete"), "{}", lines[9]);
    let names = lines[10..].iter().map(|line| line.split_whitespace().next().unwrap());
    assert_eq!(names.collect::<Vec<_>>(), ["quality", "time", "memory", "model", "files"]);
}

#[test]
fn json_progress_is_one_event_a_line_and_none_is_silent() {
    let lines = progress(ProgressStyle::Json);
    let event = |line: &String| serde_json::from_str::<Value>(line).unwrap()["event"].clone();
    let kinds: Vec<Value> = lines.iter().map(event).collect();
    assert_eq!(kinds.iter().filter(|kind| *kind == "step").count(), 201);
    assert_eq!(kinds.last().unwrap(), "finished");
    assert!(progress(ProgressStyle::None).is_empty());
}

fn small_dataset() -> Dataset {
    let camera = Camera { width: 50, height: 40, focal_px: [60.0, 61.0], centre_px: [24.0, 21.0] };
    // A quarter turn about y: the camera looks along the world's x.
    let rotation = [[0.0, 0.0, -1.0], [0.0, 1.0, 0.0], [1.0, 0.0, 0.0]];
    let views = ["left/a.jpg", "left/b.jpg", "c.jpg"].map(|name| View {
        name: name.to_owned(),
        camera,
        pose: Pose { rotation, translation: [1.0, 2.0, 3.0] },
    });
    let source = ImageSource { size: [50, 40], ..ImageSource::plain("a.jpg".into(), [100, 120]) };
    Dataset {
        root: PathBuf::from("scene"),
        frame: Frame::SCENE,
        views: views.to_vec(),
        sources: vec![source.clone(), source.clone(), source],
        train: vec![0, 2],
        test: vec![1],
        points: PointCloud::default(),
        pseudo: Vec::new(),
        random_half_side: None,
        near_share: 0.0,
        warnings: Vec::new(),
    }
}

#[test]
fn cameras_are_listed_test_views_first_at_full_size() {
    let folder = model_folder("beside");
    write_cameras_json(&folder, &small_dataset()).unwrap();
    let text = fs::read_to_string(folder.join("cameras.json")).unwrap();
    let cameras: Value = serde_json::from_str(&text).unwrap();
    let names: Vec<&str> = (0..3).map(|i| cameras[i]["img_name"].as_str().unwrap()).collect();
    assert_eq!(names, ["left/b", "left/a", "c"]);
    assert_eq!((&cameras[2]["id"], &cameras[2]["width"]), (&2.into(), &100.into()));
    assert_eq!((&cameras[0]["fx"], &cameras[0]["fy"]), (&120.0.into(), &183.0.into()));
    // -Rᵀ t, and Rᵀ whose last column is the direction of view, the world's x.
    assert_eq!(cameras[0]["position"], serde_json::json!([-3.0, -2.0, 1.0]));
    assert_eq!(
        cameras[0]["rotation"],
        serde_json::json!([[0.0, 0.0, 1.0], [0.0, 1.0, 0.0], [-1.0, 0.0, 0.0]])
    );
}

#[test]
fn cfg_args_is_one_line_of_python() {
    let folder = model_folder("cfg");
    let mut config = Config::default();
    config.scene.source_path = Some(PathBuf::from("/scenes/it's"));
    config.scene.white_background = true;
    config.scene.resolution = 4;
    config.optimize.sh_degree = 2;
    write_cfg_args(&folder, &config).unwrap();
    let text = fs::read_to_string(folder.join("cfg_args")).unwrap();
    let expected = format!(
        "Namespace(sh_degree=2, source_path='/scenes/it\\'s', model_path='{}', images='images', \
         depths='', resolution=4, white_background=True, train_test_exp=False, \
         data_device='cuda', eval=False, kernel_size=0.3)",
        folder.display()
    );
    assert_eq!(text, expected);
}
