//! Snapshot of all messages that users see: `tests/snapshots/messages.snap`.
//!
//! After a change: `INSTA_UPDATE=always cargo test --lib messages`, then read the difference.

use std::any::type_name;
use std::ffi::OsString;
use std::fmt::{Display, Write as _};
use std::path::Path;
use std::{fs, io};

use clap::{ArgMatches, FromArgMatches as _};
use splat_formats::{
    FormatFault, GlbError, HtmlError, PlacementError, SogError, SplatFileError, SplatsError,
    SpzOptionsError,
};
use splat_mesh::MeshError;
use splat_mesh::atlas::AtlasError;
use splat_mesh::clean::CleanError;
use splat_mesh::compare::CompareError;
use splat_mesh::cubes::ExtractError;
use splat_mesh::delaunay::DelaunayError;
use splat_mesh::file::MeshFileError;
use splat_mesh::points::PointsError;
use splat_mesh::poisson::PoissonError;
use splat_mesh::restricted::RestrictedError;
use splat_mesh::tetrahedra::CutError;
use splat_mesh::tsdf::FusionError;
use splat_ranks::exchange::ExchangeError;
use splat_ranks::join::JoinError;
use splat_ranks::launch::{LaunchError, NodeListError};
use splat_ranks::message::MessageError;
use splat_ranks::supervise::SuperviseError;

use super::device::{DeviceOptions, no_kernels};
use super::exit::{self, Interrupted};
use super::output::PrintError;
use super::parser::briefly;
use super::{Cli, command, dispatch, doctor, next, train};
use crate::backend::DeviceError;
use crate::config::{Config, ConfigError, normalize_args};
use crate::dataset::colmap::ColmapError;
use crate::dataset::points_ply::PointsPlyError;
use crate::dataset::{
    DatasetError, DepthsError, ImageError, LensError, NormalsError, TransformsError,
};
use crate::export::{PlyError, PlyFacesError};
use crate::files::{JsonFault, LockError, OutputError};
use crate::memory::{
    Bytes, CardSharing, Entry, HostAllowance, HostDemand, HostRefusal, HostState, Kind, Limit,
    Refusal,
};
use crate::mesh::{BindError, ExtractionError};
use crate::model::TooManyBound;
use crate::perceptual::LpipsError;
use crate::ply::PlyFileError;
use crate::synth::SynthError;
use crate::telemetry::{LogError, SummaryError, closing_blocks};
use crate::train::TrainError;
use crate::train::checkpoint::CheckpointError;
use crate::video::FramesFileError;
use crate::view::ServerError;

/// Heading and messages of a section.
type Section = (String, Vec<String>);

/// Longest line of an error message, characters.
const MAX_LINE_CHARS: usize = 200;

/// Returns messages of one type under the type's name.
fn section<E: Display>(messages: &[E]) -> Section {
    let name = type_name::<E>().rsplit("::").next().unwrap_or_default();
    (name.to_owned(), messages.iter().map(ToString::to_string).collect())
}

fn denied() -> io::Error {
    io::Error::from(io::ErrorKind::PermissionDenied)
}

/// Returns all errors by type.
fn errors() -> Vec<Section> {
    [command_errors(), program_errors(), crate_errors()].concat()
}

/// Returns the first and last lines of runs.
fn run_lines() -> Vec<Section> {
    let first = [("First line of a run".to_owned(), train::run_lines())].into_iter();
    let blocks = closing_blocks().into_iter();
    let blocks = blocks.map(|(name, lines)| (format!("End of {name}"), lines));
    let rows = next::tests::samples().into_iter();
    let rows = rows.map(|(name, lines)| (format!("Commands after a run {name}"), lines));
    first.chain(blocks).chain(rows).collect()
}

#[test]
fn messages_are_as_reviewed() {
    let mut text = String::new();
    let machines = doctor::samples().into_iter();
    let doctors = machines.map(|(name, lines)| (format!("Doctor: {name}"), lines));
    let lines = parser_errors().into_iter().chain(run_lines()).chain(doctors);
    for (name, messages) in errors().into_iter().chain(lines) {
        writeln!(text, "\n## {name}\n").unwrap();
        messages.iter().for_each(|message| writeln!(text, "{message}").unwrap());
    }
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/snapshots");
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path(folder);
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.bind(|| insta::assert_snapshot!("messages", text));
}

#[test]
fn lines_of_runs_fit_80_columns() {
    for (name, lines) in run_lines() {
        assert!(lines.iter().all(|line| line.chars().count() <= 80), "{name}: {lines:#?}");
    }
}

#[test]
fn errors_of_commands_end_with_a_remedy() {
    let has_remedy = |message: &String| {
        let sentences = message.rsplit_once(". ").or_else(|| message.rsplit_once("? "));
        let names_values = ["; allowed: ", ": must be "].iter().any(|it| message.contains(it));
        sentences.is_some_and(|(_, last)| last.starts_with(char::is_uppercase)) || names_values
    };
    let errors = command_errors().into_iter().flat_map(|(_, errors)| errors);
    let without: Vec<String> = errors.filter(|message| !has_remedy(message)).collect();
    assert!(without.is_empty(), "{without:#?}");
}

#[test]
fn errors_are_short_and_single_lines() {
    // TOML errors show a position in the file, and memory errors a table.
    let has_lines = |message: &str| {
        ["not valid TOML", "Nothing more can be given up"].iter().any(|it| message.contains(it))
    };
    let is_long = |line: &str| line.chars().count() > MAX_LINE_CHARS;
    let long: Vec<String> = errors()
        .into_iter()
        .flat_map(|(_, messages)| messages)
        .filter(|message| {
            message.lines().any(is_long) || (message.contains('\n') && !has_lines(message))
        })
        .collect();
    assert!(long.is_empty(), "{} messages:\n{}", long.len(), long.join("\n"));
}

// Errors of command lines, which run in a folder with a scene and two models.

/// Placeholder of the folder in command lines. Messages are shown without it.
const FOLDER: &str = "DIR";

/// Command lines that create the input files of the others.
const SETUP: [&str; 3] = [
    "synth -o DIR/fox --views 9 --width 24 --height 18 --points 60 --truth-cells 64",
    "train -s DIR/fox -m DIR/out --device cpu --iterations 2 --eval --quiet",
    "train -s DIR/fox -m DIR/triangles --device cpu --iterations 2 --primitive triangles --quiet",
];

/// Wrong command lines, those of a command one after another.
const WRONG: &[&str] = &[
    "train -m DIR/new",
    "train -s DIR/nowhere",
    "train -s DIR/empty",
    "train -s DIR/no_images",
    "train -s DIR/fox -m DIR/photo.jpg",
    "train -s DIR/fox -m DIR/new --config DIR/my.toml",
    "train -s DIR/fox -m DIR/new --preset quick",
    "train -s DIR/fox -m DIR/new --ranks 2 --clean",
    "train -s DIR/fox -m DIR/new --primitive triangles --clean --device cpu",
    "train -s DIR/fox -m DIR/new --timelapse nothing.jpg --device cpu",
    "train -s DIR/fox -m DIR/new --test-list DIR/nowhere.txt",
    "train -s DIR/fox -m DIR/new --lpips-weights DIR/nowhere.pth",
    "train -s DIR/fox -m DIR/new --init DIR/out --device cpu",
    "train -s DIR/fox -m DIR/new --init DIR/model.pth --device cpu",
    "train -s DIR/fox -m DIR/new --init DIR/out/checkpoints/chkpnt_2.safetensors --device cpu",
    "train -s DIR/fox -m DIR/new --init DIR/triangles/point_cloud/iteration_2/point_cloud.ply --device cpu",
    "train -s DIR/fox -m DIR/new --init DIR/out/point_cloud/iteration_2/point_cloud.ply --primitive triangles --device cpu",
    "train -s DIR/fox -m DIR/new --init DIR/out/point_cloud/iteration_2/point_cloud.ply --max-points 5 --device cpu",
    "train -s DIR/fox -m DIR/new --start-checkpoint DIR/out/point_cloud/iteration_2/point_cloud.ply",
    "train -s DIR/fox -m DIR/new --start-checkpoint DIR/out",
    "train -s DIR/fox -m DIR/new --start-checkpoint DIR/empty",
    "train -s DIR/fox -m DIR/new --start-checkpoint DIR/cut.safetensors",
    "train -s DIR/fox -m DIR/new --start-checkpoint DIR/out/checkpoints/chkpnt_2.safetensors --iterations 1",
    "train -m DIR/out --resume --primitive triangles --iterations 4",
    "train -s DIR/fox -m DIR/new -c DIR/out",
    "train -s DIR/fox -m DIR/new -c DIR/out/checkpoints/chkpnt_2.safetensors --regularize density",
    "train -s DIR/fox -m DIR/new --init DIR/out/point_cloud/iteration_2/point_cloud.ply -c DIR/out --regularize density",
    "eval -m DIR/nowhere",
    "eval -m DIR/empty",
    "eval -m DIR/photo.jpg",
    "eval -m DIR/out/point_cloud/iteration_2/point_cloud.ply",
    "eval -m DIR/out --iteration 7",
    "eval -m DIR/triangles --device cpu",
    "eval -m DIR/out --mesh DIR/mesh.ply",
    "eval -m DIR/out --geometry DIR/fox/truth.ply --device cpu",
    "eval -m DIR/out --mesh-images --mesh DIR/mesh.obj --device cpu",
    "eval -m DIR/out --eval false --device cpu",
    "eval -m DIR/no_scene --device cpu",
    "render -m DIR/out --skip-train --skip-test --device cpu",
    "mesh -m DIR/triangles",
    "mesh -m DIR/out --bbox-min=0,0,0",
    "mesh -m DIR/out --mesh-resolution 4",
    "mesh -m DIR/out --texture gaussians --formats ply",
    "mesh -m DIR/out --offset 1,2,3",
    "mesh -m DIR/out --mesh-resolution 16 --device cpu --bbox-min=9,9,9 --bbox-max=10,10,10",
    "refine -m DIR/out --device cpu",
    "refine -m DIR/triangles",
    "sugar -s DIR/fox",
    "sugar -s DIR/fox -m DIR/new --start-checkpoint DIR/out/checkpoints/chkpnt_2.safetensors",
    "sugar -s DIR/fox -m DIR/new --ranks 2",
    "sugar -s DIR/fox -m DIR/new --clean",
    "sugar -s DIR/fox -m DIR/new --primitive surfels",
    "sugar -s DIR/fox -m DIR/out --device cpu",
    "sugar -m DIR/new --skip-coarse",
    "sugar -m DIR/new --skip-coarse --coarse-checkpoint DIR/out --device cpu",
    "sugar -m DIR/new --skip-coarse --coarse-checkpoint DIR/photo.jpg",
    "clean -m DIR/out -o DIR/out --device cpu",
    "clean -m DIR/triangles --device cpu",
    "clean -m DIR/out -o DIR/clean --crop=90,90,90,91,91,91 --device cpu",
    "export -m DIR/out -o DIR/scene.xyz",
    "export -m DIR/out -o - --format ply",
    "export -m DIR/out -o DIR/empty --format ply",
    "export -m DIR/out -o DIR/photo.jpg --format ply",
    "export -m DIR/out -o DIR/scene.obj",
    "export -m DIR/out -o DIR/meta.json --format ply",
    "export -m DIR/out -o DIR/scene.glb --up z",
    "export -m DIR/out -o DIR/scene.spz --refit",
    "export -m DIR/out -o DIR/scene.sog --refit --sh-degree 0",
    "export -m DIR/out -o DIR/scene.sog --refit --crop=0,0,0,1,1,1",
    "export DIR/out/point_cloud/iteration_2/point_cloud.ply -o DIR/scene.sog --refit",
    "export DIR/cut.safetensors -o DIR/scene.ply",
    "export DIR/nowhere.ply -o DIR/scene.splat",
    "export -m DIR/triangles -o DIR/scene.spz",
    "export -m DIR/triangles -o DIR/scene.glb --crop=90,90,90,91,91,91",
    "export DIR/triangles/point_cloud/iteration_2/point_cloud.ply -o DIR/scene.glb --colors views",
    "export DIR/triangles/point_cloud/iteration_2/point_cloud.ply -o DIR/scene.glb --colors photographs",
    "video -m DIR/out --fps 0",
    "video -m DIR/out --width 0",
    "video -m DIR/out --seconds 86400 --fps 1000",
    "video -m DIR/out --path spiral",
    "video -m DIR/out --path DIR/empty.json",
    "video -m DIR/out --path DIR/out/results.json",
    "video -m DIR/out --file DIR/film.avi",
    "video -m DIR/out --file DIR/photo.jpg",
    "view -m DIR/nowhere",
    "view -m DIR/empty",
    "plan -s DIR/fox -c DIR/out",
    "plan -s DIR/fox --vram-limit 80%",
    "plan -s DIR/fox --gpus 2 --primitive surfels",
    "plan -s DIR/fox --model DIR/empty",
    "plan -s DIR/fox --model DIR/photo.jpg",
    "synth -o DIR/other --views 0",
    "profile DIR/nowhere",
    "profile DIR/empty",
    "compare DIR/nowhere DIR/out",
    "compare DIR/empty DIR/out",
    "compare DIR/out --baseline DIR/triangles",
    "help teapots",
];

/// Command lines that the parser rejects.
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

/// Creates the files that the command lines name.
fn write_inputs(folder: &Path) {
    let path = |name: &str| folder.join(name);
    for name in ["empty", "no_scene"] {
        fs::create_dir_all(path(name)).unwrap();
    }
    for line in SETUP {
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

/// Runs a command line. The error is the text that users see.
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

/// Text of a command line without an error.
const NO_ERROR: &str = "has no error";

/// Returns the error of a wrong command line, with paths relative to the folder.
fn error(line: &str, folder: &Path) -> String {
    let within = format!("{}/", folder.display());
    match run(line, folder) {
        Ok(()) => format!("splat {line} {NO_ERROR}"),
        Err(text) => text.replace(&within, "").trim_end().to_owned(),
    }
}

/// Returns the errors of commands after parsing.
fn command_errors() -> Vec<Section> {
    let folder = tempfile::tempdir().unwrap();
    write_inputs(folder.path());
    let name = |line: &str| line.split(' ').next().unwrap_or_default().to_owned();
    let of_command = |lines: &[&str]| -> Section {
        let errors = lines.iter().map(|line| error(line, folder.path()));
        (format!("splat {}", name(lines[0])), errors.collect())
    };
    let sections: Vec<Section> =
        WRONG.chunk_by(|a, b| name(a) == name(b)).map(of_command).collect();
    let none: Vec<&String> = sections
        .iter()
        .flat_map(|(_, errors)| errors)
        .filter(|error| error.ends_with(NO_ERROR))
        .collect();
    assert!(none.is_empty(), "{none:#?}");
    sections
}

fn parser_errors() -> Vec<Section> {
    let error =
        |line: &&str| (format!("Parser: splat {line}"), vec![error(line, Path::new("data"))]);
    UNREADABLE.iter().map(error).collect()
}

// Paths in the errors.

const COLMAP_IMAGES: &str = "data/fox/sparse/0/images.txt";
const TRANSFORMS: &str = "data/lego/transforms_train.json";
const POINTS: &str = "data/lego/points3d.ply";
const PHOTO: &str = "data/fox/images/0001.jpg";
const PARAMETERS: &str = "data/fox/sparse/0/depth_params.json";
const PLY: &str = "out/fox/point_cloud.ply";
const WEIGHTS: &str = "weights/vgg.pth";
const CHECKPOINT: &str = "out/fox/checkpoints/chkpnt_3000.safetensors";
const LOG: &str = "out/fox/run.jsonl";
const SUMMARY: &str = "out/fox/summary.json";

// Errors of the crates in this repository.

fn json_error() -> serde_json::Error {
    serde_json::from_str::<serde_json::Value>("{").unwrap_err()
}

fn crate_errors() -> Vec<Section> {
    vec![
        section(&[
            SplatFileError::Unreadable { path: "scene.spz".into(), source: denied() },
            SplatFileError::Content {
                path: "scene.spz".into(),
                fault: FormatFault::Damaged("ends in the header".into()),
            },
            SplatFileError::Unknown { path: "scene.spz".into() },
            SplatFileError::Unwritable { path: "scene.spz".into(), source: denied() },
            SplatFileError::Spz { path: "scene.spz".into(), source: SpzOptionsError::ShBits(9) },
            SplatFileError::Sog { path: "scene.spz".into(), source: SogError::NotFitted },
            SplatFileError::Glb { path: "scene.spz".into(), source: GlbError::Empty },
            SplatFileError::Html {
                path: "scene.spz".into(),
                source: HtmlError::Camera("00012.jpg".into()),
            },
        ]),
        section(&[
            FormatFault::Unreadable(denied()),
            FormatFault::Damaged("ends after 17 of 900 Gaussians".into()),
            FormatFault::Unsupported(
                "is of version 1 of glTF; 2 is read: export it as glTF 2.0".into(),
            ),
        ]),
        section(&[
            GlbError::TooLarge { needed: 13_000_000_000, limit: 4_294_967_295, count: 50_000_000 },
            GlbError::Empty,
            GlbError::Write(denied()),
        ]),
        section(&[
            HtmlError::Camera("00012.jpg".into()),
            HtmlError::Json(json_error()),
            HtmlError::Write(denied()),
        ]),
        section(&[
            PlacementError::Scale(-0.5),
            PlacementError::Rotation([0.0; 4]),
            PlacementError::Translation([0.0, 1.0, f64::INFINITY]),
        ]),
        section(&[
            SogError::Count(300_000_000),
            SogError::Write(denied()),
            SogError::NotFitted,
            SogError::ReadBack(FormatFault::Damaged("ends in the header".into())),
        ]),
        section(&[
            SplatsError::Degree(4),
            SplatsError::Length { column: "opacity", found: 12, expected: 7 },
        ]),
        section(&[
            SpzOptionsError::ShBits(9),
            SpzOptionsError::Count(5_000_000_000),
            SpzOptionsError::Pack(denied()),
        ]),
        section(&[
            AtlasError::NoArea { faces: 1000 },
            AtlasError::TooLarge { found: 65_536, most: 16_384 },
            AtlasError::TooSmall { charts: 7000, side_px: 64 },
            AtlasError::Square { found: 2 },
            AtlasError::Overlap { charts: 7, rounds: 7 },
        ]),
        section(&[
            MeshError::UnknownVertex { face: 7, vertex: 812, vertices: 500 },
            MeshError::Unequal { what: "normals", found: 12, vertices: 500 },
            MeshError::NotFinite { vertex: 7, place: [0.0, 1.0, f32::NAN] },
            MeshError::NotFiniteValue { vertex: 7, what: "normals" },
            MeshError::TooMany { what: "vertices", found: 5_000_000_000, limit: 4_294_967_295 },
        ]),
        section(&[
            CleanError::NothingLeft { step: "cleaning", faces: 1000, vertices: 500 },
            CleanError::DecimatedAway { faces: 1000, target: 7 },
        ]),
        section(&[
            CompareError::Mesh {
                which: "compared mesh",
                source: MeshError::UnknownVertex { face: 3, vertex: 9, vertices: 8 },
            },
            CompareError::NoArea { which: "compared mesh", faces: 1000 },
            CompareError::Threshold { found: -0.5 },
        ]),
        section(&[
            ExtractError::TooManyVertices { vertices: 5_000_000_000 },
            ExtractError::Length { values: 511, bricks: 1 },
        ]),
        section(&[
            DelaunayError::UnfitPoint { index: 7, point: [0.0, 1.0, f64::NAN] },
            DelaunayError::TooManyPoints { count: 5_000_000_000, most: 1_000_000_000 },
            DelaunayError::Flat { distinct: 3 },
            DelaunayError::TooManyTetrahedra { most: 1_000_000_000 },
            DelaunayError::Memory { bytes: 1000 },
        ]),
        section(&[
            MeshFileError::Unreadable { path: "mesh.ply".into(), source: denied() },
            MeshFileError::Line {
                path: "mesh.ply".into(),
                line: 12,
                found: "`f 1 2` has 2 corners".into(),
            },
            MeshFileError::Row {
                path: "mesh.ply".into(),
                element: "face".into(),
                row: 17,
                found: "ends early".into(),
            },
            MeshFileError::Nothing { path: "mesh.ply".into(), what: "faces" },
            MeshFileError::UnreadGlb { path: "mesh.glb".into() },
            MeshFileError::Glb { path: "mesh.glb".into(), found: "its picture is no PNG".into() },
            MeshFileError::Mesh {
                path: "mesh.ply".into(),
                source: MeshError::UnknownVertex { face: 3, vertex: 9, vertices: 8 },
            },
            MeshFileError::TooLarge { needed: 13_000_000_000, limit: 4_294_967_295 },
            MeshFileError::OtherAtlas { found: 12, faces: 1000 },
            MeshFileError::Invalid(MeshError::UnknownVertex { face: 3, vertex: 9, vertices: 8 }),
        ]),
        section(&[
            PointsError::Lengths { places: 7, normals: 7, colors: 6 },
            PointsError::TooFew { found: 12, wanted: 100 },
            PointsError::NotFinite { dropped: 7, count: 50 },
            PointsError::Inconsistent { agreeing: 0.5, needed: 0.6 },
            PointsError::BoxTurned { low: [0.0, 1.0, 2.0], high: [0.0, 0.5, 3.0] },
            PointsError::BoxEmpty {
                low: [0.0, 1.0, 2.0],
                high: [1.0, 2.0, 3.0],
                points_low: [4.0, 5.0, 6.0],
                points_high: [5.0, 6.0, 7.5],
            },
        ]),
        section(&[
            PoissonError::NoExtent { points: 7 },
            PoissonError::Depth { depth: 17, deepest: 14 },
            PoissonError::NotConverged { level: 7, steps: 400, residual: 0.5 },
            PoissonError::TooManyBricks { depth: 11, bricks: 9000, granted: 4000, fits: 10 },
            PoissonError::NoSurface { points: 7 },
        ]),
        section(&[
            RestrictedError::Neighbours { neighbours: 0, tetrahedra: 7 },
            RestrictedError::Stray { tetrahedron: 7 },
            RestrictedError::UnfitTriangle { index: 7, corners: [[0.0, 1.0, f64::NAN]; 3] },
            RestrictedError::Apart { triangles: 7 },
        ]),
        section(&[
            CutError::Labels { labels: 6, points: 7 },
            CutError::Corner { tetrahedron: 7, corner: 9, points: 7 },
            CutError::OneSide { inside: 7, points: 7 },
            CutError::NothingLeft { faces: 1000, longest: 0.5 },
        ]),
        section(&[
            FusionError::MapSize { map: "depth map", found: 12, width: 1061, height: 1894 },
            FusionError::Focal { focal_px: [0.0, 500.0] },
            FusionError::NoSize { side: 0.5, voxel: 0.0 },
            FusionError::TooFine { side: 0.5, voxel: 1e-6, most: 65_536, fits: 8e-6 },
            FusionError::Empty { views: 43 },
            FusionError::TooManyBricks { bricks: 9000, granted: 4000, fits: 0.5 },
            FusionError::NoSurface { views: 43 },
        ]),
        section(&[
            ExchangeError::Lost { rank: 1, why: "the connection is closed".into() },
            ExchangeError::Garbled { rank: 1, found: "a frame of 7 bytes".into() },
            ExchangeError::WrongParts { found: 3, world: 4 },
            ExchangeError::NothingToBroadcast,
            ExchangeError::BroadcastFromOther { rank: 1 },
            ExchangeError::TimedOut { seconds: 60 },
        ]),
        section(&[
            JoinError::Missing { ranks: vec![1, 3], world: 4, seconds: 60 },
            JoinError::Rejected { rank: 1, why: "another process has joined as rank 1".into() },
            JoinError::Unproven { rank: 1, address: ([10, 0, 0, 1], 29500).into() },
            JoinError::NoCoordinator {
                rank: 1,
                place: "rank0:29500".into(),
                seconds: 60,
                last: "connection refused".into(),
            },
            JoinError::NoPort { place: "rank0:29500".into(), source: denied() },
            JoinError::OnlyLocal { host: "localhost".into(), ip: [127, 0, 0, 1].into() },
            JoinError::NoHome { rank: 1 },
            JoinError::NoSecret { rank: 1, folder: "data/fox".into(), source: denied() },
            JoinError::Protocol { rank: 1, source: MessageError::Ended { peer: "rank 0".into() } },
            JoinError::System { rank: 1, what: "a thread", source: denied() },
        ]),
        section(&[
            LaunchError::Number { name: "RANK", value: "-1".into(), least: 1, most: 8 },
            LaunchError::OutOfRange { name: "RANK", rank: 1, of_world: "WORLD_SIZE", world: 4 },
            LaunchError::Incomplete { name: "RANK", value: "-1".into(), missing: "WORLD_SIZE" },
            LaunchError::Nodes {
                name: "RANK",
                source: NodeListError::Unbalanced { list: "node[01".into() },
            },
            LaunchError::Address { name: "RANK", value: "-1".into(), form: "HOST:PORT" },
            LaunchError::Secret { name: "RANK", letters: 12 },
            LaunchError::NoRendezvous { name: "RANK", here: 7, world: 4 },
        ]),
        section(&[
            MessageError::Ended { peer: "rank 1".into() },
            MessageError::Cut { peer: "rank 1".into() },
            MessageError::TooLong { peer: "rank 1".into(), bytes: 1000 },
            MessageError::Garbage { peer: "rank 1".into(), source: json_error() },
            MessageError::Failed { peer: "rank 1".into(), source: denied() },
        ]),
        section(&[
            NodeListError::Empty { list: "node[01".into(), place: 7 },
            NodeListError::Nested { list: "node[01".into() },
            NodeListError::Unbalanced { list: "node[01".into() },
            NodeListError::Range { list: "node[01".into(), found: "1-".into() },
        ]),
        section(&[
            SuperviseError::Start { program: "/usr/bin/splat".into(), rank: 1, source: denied() },
            SuperviseError::System { what: "fork", source: denied() },
        ]),
    ]
}

// Errors of this package.

fn json() -> JsonFault {
    let text = "{\n  \"frames\": [1, 2,]\n}";
    JsonFault::new(text.as_bytes(), &serde_json::from_str::<serde_json::Value>(text).unwrap_err())
}

fn toml() -> toml::de::Error {
    "a = ".parse::<toml::Table>().unwrap_err()
}

fn picture() -> image::ImageError {
    image::ImageError::IoError(io::Error::from(io::ErrorKind::UnexpectedEof))
}

fn full_disk() -> OutputError {
    let error = io::Error::from(io::ErrorKind::StorageFull);
    OutputError::new(Path::new(LOG), error)
}

fn unknown_preset() -> ConfigError {
    ConfigError::UnknownPreset {
        name: "fst".into(),
        like: Some("fast"),
        known: "fast, best".into(),
    }
}

/// Returns a memory refusal on a shared or an unshared card.
fn refusal(is_shared: bool) -> Refusal {
    let held = Entry {
        label: "spherical harmonics",
        kind: Kind::Region,
        used: Bytes(5 << 30),
        mapped: Bytes(5 << 30),
        peak: Bytes(5 << 30),
        at_peak: Bytes(5 << 30),
    };
    let sharing =
        CardSharing { card: Bytes(16 << 30), foreign: Bytes(9 << 30), reserve: Bytes(1 << 29) };
    Refusal {
        label: "sort",
        wanted: Bytes(60 << 20),
        held: Bytes(7 << 30),
        budget: Bytes(7 << 30),
        largest: vec![held],
        sharing: is_shared.then_some(sharing),
    }
}

/// Returns a refusal of page-locked host memory.
fn host_refusal() -> HostRefusal {
    let gib = |gib: u64| Bytes(gib << 30);
    HostRefusal {
        label: "spherical harmonics",
        wanted: gib(3),
        demand: HostDemand::Growth,
        left: gib(1),
        held: gib(12),
        allowance: HostAllowance::new(Limit::Percent(50.0), 1),
        state: HostState { total: gib(32), available: gib(14), own: gib(3) },
        is_limited: true,
    }
}

fn program_errors() -> Vec<Section> {
    vec![
        section(&[
            ConfigError::Unreadable { path: "my.toml".into(), source: denied() },
            ConfigError::UnknownPreset {
                name: "quick".into(),
                like: None,
                known: "fast, best".into(),
            },
            ConfigError::Syntax { origin: "my.toml".into(), source: Box::new(toml()) },
            ConfigError::Unknown {
                origin: "my.toml".into(),
                line: 12,
                name: "key `iteration` in [optimize]".into(),
                remedy: "do you mean `iterations`? All keys: splat train --help".into(),
            },
            ConfigError::WrongType {
                origin: "my.toml".into(),
                line: 12,
                section: "densify".into(),
                key: "max_points".into(),
                message: "invalid type: string \"many\", expected a whole number of 0 or \
 more"
                    .to_owned(),
            },
            ConfigError::OutOfRange {
                flag: "--lambda-dssim".into(),
                key: "lambda_dssim",
                section: "optimize",
                value: "1.5".into(),
                allowed: "0 to 1",
            },
        ]),
        section(&[
            DatasetError::NoScene,
            DatasetError::SceneMissing { path: "data/fox".into() },
            DatasetError::FolderUnreadable { path: "data/fox".into(), source: denied() },
            DatasetError::SceneIsFile { path: "data/fox".into() },
            DatasetError::NotAScene {
                path: "data/fox".into(),
                content: "images/ (50 photographs), video/".into(),
                sought: ": no sparse/0, no transforms.json",
                remedy: "Give the folder that holds sparse and images after -s".into(),
            },
            DatasetError::ImagesMissing {
                path: "data/fox/images".into(),
                others: ": photos, photos_4".into(),
            },
            DatasetError::NoImageLeft {
                folder: "data/fox/images".into(),
                count: 50,
                first: "0001.jpg (not found)".into(),
                others: ": photos, photos_4".into(),
            },
            DatasetError::UnknownSize {
                path: "data/fox/transforms.json".into(),
                name: "0012.jpg".into(),
            },
            DatasetError::SizeMismatch {
                path: PHOTO.into(),
                width: 1061,
                height: 1894,
                camera_width: 1060,
                camera_height: 1894,
            },
            DatasetError::Lens {
                path: PHOTO.into(),
                source: LensError::Parameter { parameter: "the focal length", value: -1.0 },
            },
            DatasetError::Camera {
                path: "data/fox/sparse/0/cameras.txt".into(),
                view: "0012.jpg".into(),
                found: "cx = -5000 px, outside of a photograph of 640 px".into(),
                remedy: "Give it in px of the photograph, or solve the cameras again",
            },
            DatasetError::Resolution { value: 7 },
            DatasetError::NothingToTrain { path: "data/fox".into(), count: 50 },
            DatasetError::TestListUnreadable { path: "test.txt".into(), source: denied() },
            DatasetError::EmptyTestList { path: "test.txt".into() },
            DatasetError::UnknownTestViews {
                count: 2,
                names: "0012.png, 0013.png".into(),
                example: "0012.jpg".into(),
            },
            DatasetError::TooManyTestViews { wanted: 50, count: 50 },
        ]),
        section(&[
            ColmapError::Missing { folder: "data/fox".into(), file: "images" },
            ColmapError::Unreadable { path: COLMAP_IMAGES.into(), source: denied() },
            ColmapError::OtherContent {
                path: COLMAP_IMAGES.into(),
                found: splat_mesh::file::ply::LFS_MESSAGE,
            },
            ColmapError::Truncated {
                path: COLMAP_IMAGES.into(),
                reading: "image 3".into(),
                needed: 13000,
                left: 7,
            },
            ColmapError::Invalid {
                path: COLMAP_IMAGES.into(),
                reading: "image 3".into(),
                found: "has no name".into(),
            },
            ColmapError::Line {
                path: COLMAP_IMAGES.into(),
                line: 12,
                found: "1 2 3".into(),
                expected: "a number",
            },
            ColmapError::UnknownModel { path: COLMAP_IMAGES.into(), camera: 2, model: "17".into() },
            ColmapError::UnsupportedModel {
                path: "data/fox/sparse/0/cameras.txt".into(),
                camera: 2,
                model: "FULL_OPENCV",
            },
            ColmapError::Lens {
                path: COLMAP_IMAGES.into(),
                camera: 2,
                model: "OPENCV",
                source: LensError::Parameter { parameter: "the focal length", value: -1.0 },
            },
            ColmapError::DuplicateCamera { path: COLMAP_IMAGES.into(), camera: 2 },
            ColmapError::DuplicateName { path: COLMAP_IMAGES.into(), name: "0012.jpg".into() },
            ColmapError::UnknownCamera {
                path: COLMAP_IMAGES.into(),
                name: "0012.jpg".into(),
                camera: 2,
                count: 50,
            },
            ColmapError::Empty { path: COLMAP_IMAGES.into() },
        ]),
        section(&[
            TransformsError::Unreadable { path: TRANSFORMS.into(), source: denied() },
            TransformsError::Json { path: TRANSFORMS.into(), source: json() },
            TransformsError::OtherContent {
                path: TRANSFORMS.into(),
                found: splat_mesh::file::ply::LFS_MESSAGE,
            },
            TransformsError::NoNumber { path: TRANSFORMS.into(), line: 12, column: 7, word: "NaN" },
            TransformsError::File {
                path: TRANSFORMS.into(),
                found: "`applied_transform` is no matrix of 3 x 4 numbers".into(),
            },
            TransformsError::TransformsFrame {
                path: TRANSFORMS.into(),
                frame: "train/r_0".into(),
                found: "has a `transform_matrix` with 3 rows".into(),
                remedy: "Export the scene again",
            },
            TransformsError::Lens {
                path: TRANSFORMS.into(),
                frame: "train/r_0".into(),
                source: LensError::Parameter { parameter: "the focal length", value: -1.0 },
            },
            TransformsError::Empty { path: TRANSFORMS.into() },
        ]),
        section(&[
            PointsPlyError::NoPoints { path: POINTS.into(), found: "has no element vertex".into() },
            PointsPlyError::Vertex {
                path: POINTS.into(),
                index: 7,
                count: 50,
                found: "has a z that is not finite".into(),
            },
            PointsPlyError::TooFar { path: POINTS.into(), index: 7, position: [0.0, 1.0, 1e20] },
        ]),
        section(&[
            ImageError::Unreadable { path: PHOTO.into(), source: denied() },
            ImageError::UnknownFormat {
                path: PHOTO.into(),
                found: "it begins with 00 00 00 18".into(),
            },
            ImageError::Empty { path: PHOTO.into() },
            ImageError::LfsPointer { path: PHOTO.into() },
            ImageError::Undecodable { path: PHOTO.into(), source: picture() },
            ImageError::Truncated { path: PHOTO.into(), bytes: 1000 },
            ImageError::FileTooLarge { path: PHOTO.into(), limit: 100000 },
            ImageError::UnusableSize {
                path: PHOTO.into(),
                width: 1061,
                height: 1894,
                limit: 100000,
            },
            ImageError::UnusableTarget { path: PHOTO.into(), width: 1061, height: 1894 },
            ImageError::MaskShape {
                path: "data/fox/masks/0001.png".into(),
                size: [640, 480],
                photograph: PHOTO.into(),
                photograph_size: [1061, 1894],
            },
            ImageError::MapShape {
                path: "data/fox/depths/0001.png".into(),
                kind: "depth",
                flag: "-d",
                size: [640, 480],
                photograph: PHOTO.into(),
                photograph_size: [1061, 1894],
            },
            ImageError::NoDepthMap { path: "data/fox/depths/0001.png".into() },
            ImageError::NoNormalMap { path: "data/fox/normals/0001.png".into() },
            ImageError::NormalsFaceAway { path: "data/fox/normals/0001.png".into(), percent: 70 },
            ImageError::Resize { path: PHOTO.into(), reason: "the size is 0".into() },
            ImageError::Panicked { path: PHOTO.into(), reason: "index out of bounds".into() },
            ImageError::NoSuchImage { index: 7, count: 50 },
        ]),
        section(&[
            DepthsError::FolderMissing { path: "data/fox/depths".into() },
            DepthsError::ParametersMissing { path: PARAMETERS.into(), source: denied() },
            DepthsError::ParametersDamaged { path: PARAMETERS.into(), source: json() },
            DepthsError::TooLarge {
                path: PARAMETERS.into(),
                name: "0012.jpg".into(),
                key: "scale",
                value: 5e20,
            },
            DepthsError::NoneFits {
                path: "data/fox/depths".into(),
                parameters: PARAMETERS.into(),
                views: 43,
            },
        ]),
        section(&[
            NormalsError::FolderMissing { path: "data/fox/normals".into() },
            NormalsError::NoneFits {
                path: "data/fox/normals".into(),
                views: 43,
                reasons: "0001.jpg: is empty".into(),
            },
        ]),
        section(&[
            LensError::Parameter { parameter: "the focal length", value: 0.5 },
            LensError::Folds { distortion: "k1 = -1.5".into(), width: 1061, height: 1894 },
        ]),
        section(&[
            PlyFileError::Unreadable { path: PLY.into(), source: denied() },
            PlyFileError::Header {
                path: PLY.into(),
                line: 12,
                found: "`property flot x` is no property".into(),
            },
            PlyFileError::Truncated {
                path: PLY.into(),
                rows: 12_449,
                row_bytes: 248,
                found: 1_000_000,
            },
        ]),
        section(&[
            PlyError::Format { path: PLY.into(), format: "ascii 1.0".into() },
            PlyError::MissingColumn { path: PLY.into(), column: "opacity".into() },
            PlyError::DoubleColumn { path: PLY.into(), column: "opacity".into() },
            PlyError::ColumnType {
                path: PLY.into(),
                column: "opacity".into(),
                found: "uchar".into(),
            },
            PlyError::RestCount { path: PLY.into(), count: 50 },
            PlyError::NotFinite {
                path: PLY.into(),
                row: 17,
                column: "opacity".into(),
                value: f64::NAN,
            },
            PlyError::OutOfRange {
                path: PLY.into(),
                row: 17,
                column: "opacity".into(),
                value: 3e7,
                range: -1e6..=1e6,
            },
            PlyError::NoRotation { path: PLY.into(), row: 17 },
        ]),
        section(&[
            PlyFacesError::Missing { path: PLY.into() },
            PlyFacesError::Property {
                path: PLY.into(),
                found: "property list uchar float vertex_indices".into(),
            },
            PlyFacesError::Corners { path: PLY.into(), face: 7, corners: 4.0 },
            PlyFacesError::NoVertex { path: PLY.into(), face: 7, vertex: 812.0, vertices: 500 },
            PlyFacesError::Comment {
                path: PLY.into(),
                key: "SplatSigma ",
                value: "-1".into(),
                allowed: "0 to 1",
            },
        ]),
        section(&[LockError::InUse { folder: "out/fox".into(), holder: "process 17".into() }]),
        section(&[
            LpipsError::Unreadable { path: WEIGHTS.into(), source: denied() },
            LpipsError::NotWeights { path: WEIGHTS.into(), problem: "it is empty".into() },
            LpipsError::NoHeads { path: WEIGHTS.into(), sought: vec!["vgg.pth".into()] },
            LpipsError::Tensor {
                path: WEIGHTS.into(),
                tensor: "features.0.weight".into(),
                problem: "has not 64 x 3 x 3 x 3 numbers".into(),
                net: "vgg",
            },
        ]),
        section(&[
            TrainError::OutOfMemory {
                source: Box::new(refusal(false).into()),
                checkpoint: CHECKPOINT.into(),
            },
            TrainError::NoSpace { source: full_disk(), checkpoint: None },
            TrainError::NoImages { views: 43, first: "0001.jpg: is empty".into() },
            TrainError::Emptied { iteration: 11 },
        ]),
        section(&[
            CheckpointError::Unreadable { path: CHECKPOINT.into(), source: denied() },
            CheckpointError::Damaged {
                path: CHECKPOINT.into(),
                problem: "it has no `iteration`".into(),
            },
            CheckpointError::Version { path: CHECKPOINT.into(), found: "2".into() },
            CheckpointError::ShDegree { path: CHECKPOINT.into(), found: 1, wanted: 3 },
            CheckpointError::Config { path: CHECKPOINT.into(), source: Box::new(unknown_preset()) },
        ]),
        section(&[
            DeviceError::TargetSize { target_px: [640, 480], view_px: [320, 240] },
            DeviceError::NotFinite {
                primitive: "Gaussian",
                index: 7,
                group: "mean",
                value: f64::NAN,
            },
            DeviceError::LossNotFinite { value: f64::INFINITY },
            DeviceError::TooManyViews { most: 8 },
            DeviceError::OfRank { rank: 1, message: refusal(false).to_string() },
            DeviceError::RankDevice { rank: 1, problem: DeviceError::NoDriver.to_string() },
            DeviceError::OtherScene {
                rank: 1,
                problem: "data/fox: the scene here is not that of rank 0. Copy the same scene \
 to all hosts"
                    .to_owned(),
            },
            DeviceError::Unsupported { primitives: "surfels", what: "depths" },
            DeviceError::NeedsSurfels { what: "depths" },
            DeviceError::NoView,
            DeviceError::MissingInput { term: "depth", input: "depths" },
            DeviceError::NoRoomForColors,
            DeviceError::NoMedianDepths,
            DeviceError::TooSmallForLpips { size: [24, 18], least: 32 },
            DeviceError::ImageTooLarge { size: [70_000, 480] },
            DeviceError::TooManyInstances { count: 5_000_000_000, most: 2_147_483_647 },
            DeviceError::TooManyGaussians { wanted: 5_000_000_000 },
            DeviceError::NoSuchRow { row: 17, len: 7 },
            DeviceError::OtherFaces { found: 12000, faces: 1000 },
            DeviceError::KeptNotAscending,
            DeviceError::NoSuchTable { view: 7, views: 43 },
            DeviceError::StaleCandidates { counted: 7, found: 12000 },
            DeviceError::StaleSelection,
            DeviceError::UnsuitedEdit,
            DeviceError::NeighbourCount { count: 50 },
            DeviceError::StaleNeighbours { found: 12000, len: 7 },
            no_kernels(&DeviceOptions::of(&Config::default())),
            DeviceError::NoDriver,
            DeviceError::DriverTooOld { found: 12000, needed: 13000 },
            DeviceError::NoGpu { visible: Some("7".into()) },
            DeviceError::NoCode {
                name: "NVIDIA GeForce GTX 1080".into(),
                arch: 61,
                built: vec![75, 90],
            },
            DeviceError::OutOfMemory {
                label: "sort",
                wanted: Bytes(3 << 30),
                held: Bytes(7 << 30),
                free: Bytes(1 << 30),
                largest: Vec::new(),
            },
            DeviceError::DriverOutOfMemory { call: "cuMemAlloc" },
            DeviceError::Driver {
                call: "cuMemAlloc",
                reason: "an illegal memory access was encountered".into(),
            },
        ]),
        section(&[
            ExtractionError::EmptyBox { axis: 'x', low: 1.5, high: 0.5 },
            ExtractionError::OutOfRange {
                flag: "density-trim",
                value: 1.5,
                allowed: "from 0 to below 1",
            },
            ExtractionError::HalfBox { given: "bbox-min", missing: "bbox-max" },
            ExtractionError::NoGaussians {
                found: 12,
                all: 900,
                needed: 100,
                advice: "Give a larger box (--bbox-min, --bbox-max)".into(),
            },
            ExtractionError::NoViews {
                reason: "data/fox/images/0001.jpg: there is no such file".into(),
            },
            ExtractionError::TooManyGaussians { found: 5_000_000_000 },
            ExtractionError::TooManyPoints { gaussians: 1_200_000, fits: 900_000 },
            ExtractionError::SurfacePoints { wanted: 2_000_000, fits: 900_000 },
            ExtractionError::NoTexturedFormat,
            ExtractionError::TextureMemory { requested: 16_384, fits: 8192 },
            ExtractionError::NothingLeft { faces: 1000, min_component: "1%".into() },
            ExtractionError::DecimatedAway { faces: 1000, target: 7 },
            ExtractionError::PeeledAway { faces: 1000 },
        ]),
        section(&[BindError::NoTriangles { faces: 1000 }]),
        section(&[
            SynthError::OutOfRange { flag: "views", value: 0, least: 1, most: 10_000 },
            SynthError::Occupied { path: "data/synthetic".into() },
            SynthError::Truth(ExtractError::Length { values: 511, bricks: 1 }),
            SynthError::Png { name: "00012.png".into(), source: picture() },
        ]),
        section(&[
            LogError::Missing { path: LOG.into() },
            LogError::Unreadable { path: LOG.into(), source: denied() },
            LogError::Damaged {
                path: LOG.into(),
                line: 12,
                reason: "missing field `event`".into(),
            },
            LogError::Empty { path: LOG.into() },
        ]),
        section(&[
            SummaryError::Missing { path: SUMMARY.into() },
            SummaryError::Older { path: SUMMARY.into() },
            SummaryError::Unreadable { path: SUMMARY.into(), source: denied() },
            SummaryError::Damaged { path: SUMMARY.into(), reason: "missing field `event`".into() },
        ]),
        section(&[
            FramesFileError::Unreadable { path: "cameras.json".into(), source: denied() },
            FramesFileError::Unusable {
                path: "cameras.json".into(),
                problem: "has no cameras. Write one for each frame, or use --path orbit".into(),
            },
        ]),
        section(&[ServerError::System(denied())]),
        section(&[refusal(false), refusal(true)]),
        section(&[host_refusal()]),
        section(&[PrintError(io::Error::from(io::ErrorKind::StorageFull))]),
        section(&[
            Interrupted { command: None },
            Interrupted { command: Some("splat train --resume -m out/fox".into()) },
        ]),
        section(&[TooManyBound { faces: 1 << 31, each: 6 }]),
        section(&[full_disk()]),
    ]
}
