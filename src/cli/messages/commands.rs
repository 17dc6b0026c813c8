//! Errors of command lines, run in a folder with a scene and two models.

use std::ffi::OsString;
use std::fs;
use std::path::Path;

use clap::{ArgMatches, FromArgMatches as _};

use super::Section;
use crate::cli::parser::briefly;
use crate::cli::{Cli, command, dispatch, exit};
use crate::config::normalize_args;

/// The folder in a command line; messages are shown without it.
const FOLDER: &str = "DIR";

/// Command lines that make the files of all others.
const MADE: [&str; 3] = [
    "synth -o DIR/fox --views 9 --width 24 --height 18 --points 60 --truth-cells 64",
    "train -s DIR/fox -m DIR/out --device cpu --iterations 2 --eval --quiet",
    "train -s DIR/fox -m DIR/triangles --device cpu --iterations 2 --primitive triangles --quiet",
];

/// Wrong command lines, by command.
const WRONG: &[(&str, &[&str])] = &[
    (
        "train",
        &[
            "-m DIR/new",
            "-s DIR/nowhere",
            "-s DIR/empty",
            "-s DIR/no_images",
            "-s DIR/fox -m DIR/photo.jpg",
            "-s DIR/fox -m DIR/new --config DIR/my.toml",
            "-s DIR/fox -m DIR/new --preset quick",
            "-s DIR/fox -m DIR/new --ranks 2 --clean",
            "-s DIR/fox -m DIR/new --primitive triangles --clean --device cpu",
            "-s DIR/fox -m DIR/new --timelapse nothing.jpg --device cpu",
            "-s DIR/fox -m DIR/new --test-list DIR/nowhere.txt",
            "-s DIR/fox -m DIR/new --lpips-weights DIR/nowhere.pth",
            "-s DIR/fox -m DIR/new --init DIR/out --device cpu",
            "-s DIR/fox -m DIR/new --init DIR/model.pth --device cpu",
            "-s DIR/fox -m DIR/new --init DIR/out/checkpoints/chkpnt_2.safetensors --device cpu",
            "-s DIR/fox -m DIR/new --init DIR/triangles/point_cloud/iteration_2/point_cloud.ply --device cpu",
            "-s DIR/fox -m DIR/new --init DIR/out/point_cloud/iteration_2/point_cloud.ply --primitive triangles --device cpu",
            "-s DIR/fox -m DIR/new --init DIR/out/point_cloud/iteration_2/point_cloud.ply --max-points 5 --device cpu",
            "-s DIR/fox -m DIR/new --start-checkpoint DIR/out/point_cloud/iteration_2/point_cloud.ply",
            "-s DIR/fox -m DIR/new --start-checkpoint DIR/out",
            "-s DIR/fox -m DIR/new --start-checkpoint DIR/empty",
            "-s DIR/fox -m DIR/new --start-checkpoint DIR/cut.safetensors",
            "-s DIR/fox -m DIR/new --start-checkpoint DIR/out/checkpoints/chkpnt_2.safetensors --iterations 1",
            "-m DIR/out --resume --primitive triangles --iterations 4",
            "-s DIR/fox -m DIR/new -c DIR/out",
            "-s DIR/fox -m DIR/new -c DIR/out/checkpoints/chkpnt_2.safetensors --regularize density",
            "-s DIR/fox -m DIR/new --init DIR/out/point_cloud/iteration_2/point_cloud.ply -c DIR/out --regularize density",
        ],
    ),
    (
        "eval",
        &[
            "-m DIR/nowhere",
            "-m DIR/empty",
            "-m DIR/photo.jpg",
            "-m DIR/out/point_cloud/iteration_2/point_cloud.ply",
            "-m DIR/out --iteration 7",
            "-m DIR/triangles --device cpu",
            "-m DIR/out --mesh DIR/mesh.ply",
            "-m DIR/out --geometry DIR/fox/truth.ply --device cpu",
            "-m DIR/out --mesh-images --mesh DIR/mesh.obj --device cpu",
            "-m DIR/out --eval false --device cpu",
            "-m DIR/no_scene --device cpu",
        ],
    ),
    ("render", &["-m DIR/out --skip-train --skip-test --device cpu"]),
    (
        "mesh",
        &[
            "-m DIR/triangles",
            "-m DIR/out --bbox-min=0,0,0",
            "-m DIR/out --mesh-resolution 4",
            "-m DIR/out --texture gaussians --formats ply",
            "-m DIR/out --offset 1,2,3",
            "-m DIR/out --mesh-resolution 16 --device cpu --bbox-min=9,9,9 --bbox-max=10,10,10",
        ],
    ),
    ("refine", &["-m DIR/out --device cpu", "-m DIR/triangles"]),
    (
        "sugar",
        &[
            "-s DIR/fox",
            "-s DIR/fox -m DIR/new --start-checkpoint DIR/out/checkpoints/chkpnt_2.safetensors",
            "-s DIR/fox -m DIR/new --ranks 2",
            "-s DIR/fox -m DIR/new --clean",
            "-s DIR/fox -m DIR/new --primitive surfels",
            "-s DIR/fox -m DIR/out --device cpu",
            "-m DIR/new --skip-coarse",
            "-m DIR/new --skip-coarse --coarse-checkpoint DIR/out --device cpu",
            "-m DIR/new --skip-coarse --coarse-checkpoint DIR/photo.jpg",
        ],
    ),
    (
        "clean",
        &[
            "-m DIR/out -o DIR/out --device cpu",
            "-m DIR/triangles --device cpu",
            "-m DIR/out -o DIR/clean --crop=90,90,90,91,91,91 --device cpu",
        ],
    ),
    (
        "export",
        &[
            "-m DIR/out -o DIR/scene.xyz",
            "-m DIR/out -o - --format ply",
            "-m DIR/out -o DIR/empty --format ply",
            "-m DIR/out -o DIR/photo.jpg --format ply",
            "-m DIR/out -o DIR/scene.obj",
            "-m DIR/out -o DIR/meta.json --format ply",
            "-m DIR/out -o DIR/scene.glb --up z",
            "-m DIR/out -o DIR/scene.spz --refit",
            "-m DIR/out -o DIR/scene.sog --refit --sh-degree 0",
            "-m DIR/out -o DIR/scene.sog --refit --crop=0,0,0,1,1,1",
            "DIR/out/point_cloud/iteration_2/point_cloud.ply -o DIR/scene.sog --refit",
            "DIR/cut.safetensors -o DIR/scene.ply",
            "DIR/nowhere.ply -o DIR/scene.splat",
            "-m DIR/triangles -o DIR/scene.spz",
            "-m DIR/triangles -o DIR/scene.glb --crop=90,90,90,91,91,91",
            "DIR/triangles/point_cloud/iteration_2/point_cloud.ply -o DIR/scene.glb --colors views",
            "DIR/triangles/point_cloud/iteration_2/point_cloud.ply -o DIR/scene.glb --colors photographs",
        ],
    ),
    (
        "video",
        &[
            "-m DIR/out --fps 0",
            "-m DIR/out --width 0",
            "-m DIR/out --seconds 86400 --fps 1000",
            "-m DIR/out --path spiral",
            "-m DIR/out --path DIR/empty.json",
            "-m DIR/out --path DIR/out/results.json",
            "-m DIR/out --file DIR/film.avi",
            "-m DIR/out --file DIR/photo.jpg",
        ],
    ),
    ("view", &["-m DIR/nowhere", "-m DIR/empty"]),
    (
        "plan",
        &[
            "-s DIR/fox -c DIR/out",
            "-s DIR/fox --vram-limit 80%",
            "-s DIR/fox --gpus 2 --primitive surfels",
            "-s DIR/fox --model DIR/empty",
            "-s DIR/fox --model DIR/photo.jpg",
        ],
    ),
    ("synth", &["-o DIR/other --views 0"]),
    ("profile", &["DIR/nowhere", "DIR/empty"]),
    ("compare", &["DIR/nowhere DIR/out", "DIR/empty DIR/out", "DIR/out --baseline DIR/triangles"]),
    ("help", &["teapots"]),
];

/// Command lines that the parser refuses.
const UNREADABLE: [&str; 9] = [
    "tain -s DIR/fox",
    "train -s DIR/fox --max-point 5",
    "train -s DIR/fox --iterations many",
    "train -s DIR/fox --iterations 0",
    "train -s DIR/fox --device toaster",
    "train -s DIR/fox --resume --start-checkpoint DIR/out",
    "train --demo -s DIR/fox",
    "eval",
    "completions tcsh",
];

/// Makes the files that the command lines name.
fn fill(folder: &Path) {
    let path = |name: &str| folder.join(name);
    for name in ["empty", "no_scene"] {
        fs::create_dir_all(path(name)).unwrap();
    }
    for line in MADE {
        run(line, folder).unwrap();
    }
    let copy = |from: &str, to: &str| {
        fs::create_dir_all(path(to).parent().unwrap()).unwrap();
        fs::copy(path(from), path(to)).unwrap();
    };
    for file in ["cameras", "images", "points3D"] {
        let file = format!("sparse/0/{file}.bin");
        copy(&format!("fox/{file}"), &format!("no_images/{file}"));
    }
    fs::create_dir_all(path("no_images/images")).unwrap();
    let ply = "point_cloud/iteration_2/point_cloud.ply";
    copy(&format!("out/{ply}"), &format!("no_scene/{ply}"));
    fs::write(path("cut.safetensors"), b"\x02\0\0\0\0\0\0\0{}").unwrap();
    for (name, text) in [
        ("photo.jpg", "no photograph"),
        ("empty.json", "[]"),
        ("my.toml", "[optimize]\niteration = 5\n"),
        ("mesh.ply", ""),
        ("mesh.obj", ""),
    ] {
        fs::write(path(name), text).unwrap();
    }
    fs::write(path("model.pth"), b"PK\x03\x04\0\0\0\0archive/data.pkl").unwrap();
}

fn words(line: &str, folder: &Path) -> Vec<OsString> {
    let folder = folder.display().to_string();
    let words = std::iter::once("splat").chain(line.split_whitespace());
    words.map(|word| word.replace(FOLDER, &folder).into()).collect()
}

/// Runs a command line; an error is the text that the user sees.
fn run(line: &str, folder: &Path) -> Result<(), String> {
    let normalized = normalize_args(words(line, folder).into_iter());
    if let Some(refusal) = normalized.refusal() {
        return Err(refusal);
    }
    let parsed = command()
        .try_get_matches_from(&normalized.args)
        .and_then(|matches| Cli::from_arg_matches(&matches).map(|cli| (cli, matches)));
    let (cli, matches) = parsed
        .map_err(|error| briefly(error, &command(), &normalized.args).render().to_string())?;
    let none = ArgMatches::default();
    let matches = matches.subcommand().map_or(&none, |(_, matches)| matches);
    dispatch(cli.command, matches).map_err(|error| exit::message(&error))
}

/// Shown where a command line has no error.
const NONE: &str = "has no error";

/// The error of a wrong command line, with paths relative to the folder.
fn error(line: &str, folder: &Path) -> String {
    let within = format!("{}/", folder.display());
    match run(line, folder) {
        Ok(()) => format!("splat {line} {NONE}"),
        Err(text) => text.replace(&within, "").trim_end().to_owned(),
    }
}

/// Errors of commands that the parser has read.
pub(super) fn errors() -> Vec<Section> {
    let folder = tempfile::tempdir().unwrap();
    fill(folder.path());
    let of_command = |&(name, lines): &(&str, &[&str])| {
        let errors = lines.iter().map(|line| error(&format!("{name} {line}"), folder.path()));
        (format!("splat {name}"), errors.collect())
    };
    let errors: Vec<Section> = WRONG.iter().map(of_command).collect();
    let found = errors.iter().flat_map(|(_, errors)| errors);
    let none: Vec<&String> = found.filter(|error| error.ends_with(NONE)).collect();
    assert!(none.is_empty(), "{none:#?}");
    errors
}

/// Errors of the parser.
pub(super) fn parser_errors() -> Vec<Section> {
    let error =
        |line: &&str| (format!("Parser: splat {line}"), vec![error(line, Path::new("data"))]);
    UNREADABLE.iter().map(error).collect()
}
