//! The command lines of the README and the guides, run as they stand there.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::sync::LazyLock;

use assert_cmd::Command;
use rstest::rstest;
use splat::guide::{GUIDES, guide};
use splat::perceptual::LpipsNet;

use crate::common::lpips::{tensors, write};
use crate::common::program::{
    TestFolder, Text as _, end, events_files, files_below, put, splat, text, values_of_tags,
};
use crate::synthetic_scenes::{fixture, with_model};

const README: &str = include_str!("../../README.md");

/// Text below a heading, up to the next of its rank.
fn section<'a>(text: &'a str, heading: &str) -> &'a str {
    let (_, rest) = text.split_once(&format!("\n## {heading}\n")).unwrap();
    rest.split("\n## ").next().unwrap()
}

/// The scripts of a text.
fn scripts(text: &str) -> impl Iterator<Item = &str> {
    text.split("```sh\n").skip(1).map(|block| block.split("```").next().unwrap())
}

fn markdown(topic: &str) -> &'static str {
    guide(topic).unwrap().markdown
}

/// The lines of scripts that run the program, whole and without comments.
fn command_lines(text: &str) -> Vec<String> {
    let whole = text.replace("\\\n", " ");
    let mut lines = Vec::new();
    for line in scripts(&whole).filter(|script| !script.contains("set -eu")).flat_map(str::lines) {
        let line = line.split(" #").next().unwrap().trim();
        if line.contains("splat ") {
            lines.push(line.to_owned());
        }
    }
    lines
}

/// `sh` in this folder, which finds `splat`.
fn sh(script: &str, folder: &Path) -> Command {
    fs::write(folder.join("script.sh"), script).unwrap();
    let program = Path::new(env!("CARGO_BIN_EXE_splat")).parent().unwrap();
    let mut path = OsString::from(program);
    path.push(":");
    path.push(std::env::var_os("PATH").unwrap());
    let mut shell = Command::new("sh");
    shell.current_dir(folder).env("PATH", path).arg("script.sh");
    shell
}

#[test]
fn the_script_for_a_card_trains_resumes_measures_and_compares() {
    let place = TestFolder::with_scene();
    let weights = place.path("alex.safetensors");
    write(&weights, &tensors(LpipsNet::Alex));
    let run = |weights: &str| {
        let script = scripts(section(markdown("ci"), "A long run with fallbacks")).next().unwrap();
        let mut shell = sh(script, &place.path(""));
        shell.env("SPLAT_LPIPS_WEIGHTS", weights);
        // The CPU stands in for the card.
        end(shell.args(["scene", "out", "40", "--device", "cpu", "--max-points", "1000"])).done()
    };
    let first = run("");
    first.stdout.assert_holds(&["trains on", "6000000", "test PSNR", "adc"]);
    assert!(first.stderr.contains("chkpnt_10.safetensors, iteration 10"), "{first:#?}");
    for model in ["out/adc", "out/mcmc"] {
        let summary = place.json(&format!("{model}/summary.json"));
        assert_eq!((&summary["iteration"], &summary["state"]), (&40.into(), &"complete".into()));
    }
    let ply = place.ply_bytes("out/adc", 40);
    assert!(!first.stdout.contains("test LPIPS"), "{first:#?}");
    let again = run(text(&weights)).says(&["nothing to train"]);
    again.stdout.assert_holds(&["| test LPIPS (alex) ↓ |"]);
    assert_eq!(place.ply_bytes("out/adc", 40), ply);
    assert_eq!(again.stdout.lines().last(), first.stdout.lines().last());
}

#[test]
fn the_script_for_ci_makes_a_baseline_and_its_gate_holds_to_it() {
    let place = TestFolder::empty();
    let script = scripts(markdown("ci")).next().unwrap();
    end(&mut sh(script, &place.path(""))).done();
    // The gate alone, with a baseline that was better.
    let mut baseline = place.json("ci/baseline.json");
    let psnr = &mut baseline["metrics"]["test"]["psnr"];
    *psnr = (1.05 * psnr.as_f64().unwrap()).into();
    fs::write(place.path("ci/baseline.json"), baseline.to_string()).unwrap();
    let gate = script.lines().find(|line| line.starts_with("splat compare")).unwrap();
    let refused = end(&mut sh(gate, &place.path("")));
    refused.ends(1).says(&["quality is worse", "ci/baseline.json", "PSNR"]);
}

#[test]
fn charts_that_stand_beside_those_of_other_trainers_are_written() {
    let place = with_model(100, &["--eval", "--eval-train=2"]);
    let rows = section(markdown("files"), "TensorBoard")
        .lines()
        .skip_while(|row| !row.starts_with("| 3DGS"));
    let ours = rows.skip(2).take_while(|row| row.starts_with('|'));
    let names = ours.flat_map(|row| row.rsplit('|').nth(1).unwrap().split(", "));
    let names: BTreeSet<&str> = names.map(|name| name.trim().trim_matches('`')).collect();
    assert!(names.len() > 10, "{names:?}");
    let written = values_of_tags(&events_files(&place.model())[0]);
    // What only a GPU, other flags or other files bring.
    let elsewhere = ["memory/vram_allocated_gb", "test/lpips"];
    for name in names.into_iter().filter(|name| !elsewhere.contains(name)) {
        let tag = name.replace("NAME", "view_000.png");
        assert!(written.contains_key(&tag), "{tag} is none of {:?}", written.keys());
    }
}

/// Lines that are only parsed here: they need a terminal, other machines, minutes or a kept run.
const PARSED: [&str; 8] =
    ["view", "--gpus", "srun", "torchrun", "mpirun", "--timelapse", "sugar", "--demo"];

/// Flags that make a command short enough for a test.
fn shorter(command: &str) -> &'static str {
    match command {
        "train" => {
            "--device cpu --iterations 8 --max-points 300 --init-opacity 0.9 --sugar-iterations 4 \
             --n-samples-for-sdf 100"
        }
        "eval" | "render" | "clean" => "--device cpu",
        "mesh" => {
            "--device cpu --force --mesh-resolution 24 --surface-points 5000 --decimation-target 500 --poisson-depth 5"
        }
        "refine" => "--device cpu --iterations 2 --vertices 100 --overwrite",
        "export" => "--overwrite",
        "video" => "--device cpu --seconds 0.1 --overwrite",
        "synth" => "--views 8 --width 48 --height 36 --points 500 --truth-cells 8",
        _ => "",
    }
}

/// Each line with the flags of [`shorter`] at the end of each of its commands.
fn shortened(line: &str) -> String {
    let commands = line.split(" && ").map(|part| {
        let mut words = part.split_whitespace();
        let flags = match (words.next(), words.next()) {
            (Some("splat"), Some(command)) => shorter(command),
            _ => "",
        };
        let flags =
            if part.contains("--time-budget") { "--device cpu --time-budget 1s" } else { flags };
        format!("{part} {flags}")
    });
    // The model of the test has another iteration.
    commands.collect::<Vec<_>>().join(" && ").replace("-i 7000", "-i 20")
}

#[test]
fn command_lines_parse() {
    let texts = GUIDES.map(|guide| (guide.topic, guide.markdown));
    let mut count = 0;
    for (name, text) in [("README", README)].into_iter().chain(texts) {
        for line in command_lines(text) {
            let at = line.find("splat ").unwrap();
            for command in line[at..].split(" && ") {
                let args = command.split_whitespace().skip(1).chain(["--help"]);
                let ended = end(splat().args(args));
                assert_eq!(ended.code, Some(0), "{name}: {command}: {ended:#?}");
                count += 1;
            }
        }
    }
    assert!(count > 80, "{count} command lines are seen");
}

/// A folder with the names that the texts use.
static NAMED: LazyLock<TestFolder> = LazyLock::new(|| {
    fixture("readme", |place| {
        let synth = "synth -o SCENE --scene sphere --views 8 --width 48 --height 36 --points 500 --truth-cells 16";
        let train = "train -s SCENE -m MODEL --device cpu --iterations 20 --max-points 300 --init-opacity 0.9 --eval";
        let mesh =
            "mesh -m MODEL --device cpu --force --mesh-resolution 24 --decimation-target 500";
        for line in [synth, train, mesh] {
            end(splat().current_dir(place.path("")).args(line.split_whitespace())).done();
        }
        let copies = [
            ("SCENE/truth.ply", "TRUTH.ply"),
            ("SCENE/truth.ply", "other.ply"),
            ("MODEL/cameras.json", "camera_path.json"),
            ("MODEL/summary.json", "baseline.json"),
        ];
        for (from, to) in copies {
            fs::copy(place.path(from), place.path(to)).unwrap();
        }
        fs::create_dir(place.path("web")).unwrap();
        for (format, name) in [("splat", "scene.splat"), ("spz", "model.spz"), ("sog", "scene.sog")]
        {
            let args = ["export", "-m", "MODEL", "--format", format, "-o", name];
            end(splat().current_dir(place.path("")).args(args)).done();
        }
    })
});

/// A copy of that folder, where a line may change everything.
fn named() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let from = NAMED.path("");
    for (path, content) in files_below(&from) {
        let relative = path.strip_prefix(&from).unwrap();
        if relative.starts_with("scene") {
            continue;
        }
        let is_model = relative.starts_with("MODEL");
        let rest = relative.strip_prefix("MODEL").unwrap_or(relative).to_owned();
        let names: &[&str] = if is_model { &["MODEL", "OTHER", "TRAINED"] } else { &[""] };
        for name in names {
            put(&folder.path().join(name).join(&rest), &content);
        }
    }
    folder
}

/// Runs the lines of a text but for those in `seen`, to which it adds the others.
fn run_lines(name: &str, text: &str, seen: &mut BTreeSet<String>) {
    let mut count = 0;
    for line in command_lines(text) {
        if PARSED.iter().any(|part| line.contains(part)) {
            continue;
        }
        count += 1;
        if !seen.insert(line.clone()) {
            continue;
        }
        let folder = named();
        let ended = end(&mut sh(&shortened(&line), folder.path()));
        // A plan may not fit this machine, a comparison may find losses, and ffmpeg may be missing.
        let allowed: &[i32] = match line.split_whitespace().nth(1) {
            Some("plan") => &[0, 4],
            Some("compare" | "video" | "doctor") => &[0, 1],
            _ => &[0],
        };
        let code = ended.code.unwrap();
        assert!(allowed.contains(&code), "{name}: {line}: {ended:#?}");
    }
    assert!(count > 0 || ["files", "gpus", "view"].contains(&name), "{name}: no line is run");
}

#[test]
fn the_readme_runs() {
    run_lines("README", README, &mut BTreeSet::new());
}

#[test]
fn guides_run() {
    let mut seen: BTreeSet<String> = command_lines(README).into_iter().collect();
    for guide in GUIDES {
        run_lines(guide.topic, guide.markdown, &mut seen);
    }
}

#[rstest]
#[case::a_guide("memory", &["# Memory", "--give-up"])]
#[case::a_command("train", &["Usage: splat train", "--densify-until-iter"])]
#[case::both("export", &["# Export, web pages, videos", "Usage: splat export"])]
fn help_prints_guides_and_commands(#[case] topic: &str, #[case] parts: &[&str]) {
    let ended = end(splat().args(["help", topic])).done();
    ended.stdout.assert_holds(parts);
    assert!(!ended.stdout.contains('\u{1b}'));
}

#[test]
fn help_lists_guides_and_refuses_other_names() {
    let listed = end(splat().arg("help")).done().stdout;
    for guide in GUIDES {
        assert!(listed.contains(&format!("  {} ", guide.topic)), "{}: {listed}", guide.topic);
    }
    end(splat().args(["help", "cooking"])).refused(2, &["cooking", "splat help"]);
}
