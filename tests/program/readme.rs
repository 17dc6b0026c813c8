//! What the README prints, run as it stands there.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::path::Path;

use crate::common::events::{events_files, values_of_tags};
use crate::common::lpips::{tensors, write};
use crate::common::program::{TestFolder, end, text};
use assert_cmd::Command;
use serde_json::Value;
use splat::perceptual::LpipsNet;

const README: &str = include_str!("../../README.md");

/// What stands below a heading, up to the next of its rank.
fn section(heading: &str) -> &'static str {
    let (_, rest) = README.split_once(&format!("\n## {heading}\n")).unwrap();
    rest.split("\n## ").next().unwrap()
}

/// The only script of a section.
fn script(heading: &str) -> &'static str {
    let mut blocks = section(heading).split("```sh\n").skip(1);
    let script = blocks.next().unwrap().split("```").next().unwrap();
    assert!(blocks.next().is_none(), "{heading}: another script follows");
    script
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

fn json(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

#[test]
fn the_script_for_a_card_trains_resumes_measures_and_compares() {
    let place = TestFolder::with_scene();
    let weights = place.path("alex.safetensors");
    write(&weights, &tensors(LpipsNet::Alex));
    let run = |weights: &str| {
        let mut shell = sh(script("On a 16 GB card"), &place.path(""));
        shell.env("SPLAT_LPIPS_WEIGHTS", weights);
        // The CPU stands in for the card.
        end(shell.args(["scene", "out", "40", "--device", "cpu", "--max-points", "1000"])).done()
    };
    let first = run("");
    for part in ["trains on", "6000000", "test PSNR", "adc"] {
        assert!(first.stdout.contains(part), "{part}: {first:#?}");
    }
    assert!(first.stderr.contains("chkpnt_10.safetensors, iteration 10"), "{first:#?}");
    for model in ["out/adc", "out/mcmc"] {
        let summary = json(&place.path(model).join("summary.json"));
        assert_eq!((&summary["iteration"], &summary["state"]), (&40.into(), &"complete".into()));
    }
    let ply = fs::read(place.ply_of("out/adc", 40)).unwrap();
    assert!(!first.stdout.contains("test LPIPS"), "{first:#?}");
    let again = run(text(&weights));
    assert!(again.stdout.contains("| test LPIPS (alex) ↓ |"), "{again:#?}");
    assert!(again.stderr.contains("there is nothing to train"), "{again:#?}");
    assert_eq!(fs::read(place.ply_of("out/adc", 40)).unwrap(), ply);
    assert_eq!(again.stdout.lines().last(), first.stdout.lines().last());
}

#[test]
fn the_script_for_ci_makes_a_baseline_and_its_gate_holds_to_it() {
    let folder = tempfile::tempdir().unwrap();
    let script = script("In CI");
    end(&mut sh(script, folder.path())).done();
    // The gate alone, with a baseline that was better.
    let path = folder.path().join("ci/baseline.json");
    let mut baseline = json(&path);
    let psnr = &mut baseline["metrics"]["test"]["psnr"];
    *psnr = (1.05 * psnr.as_f64().unwrap()).into();
    fs::write(&path, baseline.to_string()).unwrap();
    let gate = script.lines().find(|line| line.starts_with("splat compare")).unwrap();
    let refused = end(&mut sh(gate, folder.path()));
    assert_eq!(refused.code, Some(1), "{refused:#?}");
    refused.says(&["quality is worse", "ci/baseline.json", "PSNR"]);
}

#[test]
fn charts_that_stand_beside_those_of_other_trainers_are_written() {
    let place = TestFolder::with_scene();
    place.trained(100, &["--eval", "--eval-train=2"]);
    let rows = section("What a run writes").lines().skip_while(|row| !row.starts_with("| 3DGS"));
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
