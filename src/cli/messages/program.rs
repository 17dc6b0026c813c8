//! Errors of this package.

use std::io;

use super::{Section, denied, section};
use crate::backend::DeviceError;
use crate::cli::device::{DeviceOptions, no_kernels};
use crate::cli::exit::Interrupted;
use crate::cli::output::PrintError;
use crate::config::{Config, ConfigError};
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
use crate::telemetry::{LogError, SummaryError};
use crate::train::TrainError;
use crate::train::checkpoint::CheckpointError;
use crate::video::FramesFileError;
use crate::view::ServerError;
use splat_mesh::cubes::ExtractError;

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

fn full() -> OutputError {
    let error = io::Error::from(io::ErrorKind::StorageFull);
    OutputError::new(std::path::Path::new("out/fox/run.jsonl"), error)
}

fn unknown_preset() -> ConfigError {
    ConfigError::UnknownPreset {
        name: "fst".to_owned(),
        like: Some("fast"),
        known: "fast, best".to_owned(),
    }
}

/// A refusal of memory on a card that other programs use, or on one of its own.
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

/// A refusal of page-locked memory of the host.
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

pub(super) fn errors() -> Vec<Section> {
    vec![
        section(
            "ConfigError",
            &[
                &ConfigError::Unreadable { path: "my.toml".into(), source: denied() },
                &ConfigError::UnknownPreset {
                    name: "quick".to_owned(),
                    like: None,
                    known: "fast, best".to_owned(),
                },
                &ConfigError::Syntax { origin: "my.toml".to_owned(), source: Box::new(toml()) },
                &ConfigError::Unknown {
                    origin: "my.toml".to_owned(),
                    line: 12,
                    name: "key `iteration` in [optimize]".to_owned(),
                    remedy: "do you mean `iterations`? All keys: splat train --help".to_owned(),
                },
                &ConfigError::WrongType {
                    origin: "my.toml".to_owned(),
                    line: 12,
                    section: "densify".to_owned(),
                    key: "max_points".to_owned(),
                    message: "invalid type: string \"many\", expected a whole number of 0 or more".to_owned(),
                },
                &ConfigError::OutOfRange {
                    flag: "--lambda-dssim".to_owned(),
                    key: "lambda_dssim",
                    section: "optimize",
                    value: "1.5".to_owned(),
                    allowed: "0 to 1",
                },
            ],
        ),
        section(
            "DatasetError",
            &[
                &DatasetError::NoScene,
                &DatasetError::SceneMissing { path: "data/fox".into() },
                &DatasetError::FolderUnreadable { path: "data/fox".into(), source: denied() },
                &DatasetError::SceneIsFile { path: "data/fox".into() },
                &DatasetError::NotAScene {
                    path: "data/fox".into(),
                    content: "images/ (50 photographs), video/".to_owned(),
                    sought: ": no sparse/0, no transforms.json",
                    remedy: "Give the folder that holds sparse and images after -s".to_owned(),
                },
                &DatasetError::ImagesMissing {
                    path: "data/fox/images".into(),
                    others: ": photos, photos_4".to_owned(),
                },
                &DatasetError::NoImageLeft {
                    folder: "data/fox/images".into(),
                    count: 50,
                    first: "0001.jpg (not found)".to_owned(),
                    others: ": photos, photos_4".to_owned(),
                },
                &DatasetError::UnknownSize {
                    path: "data/fox/transforms.json".into(),
                    name: "0012.jpg".to_owned(),
                },
                &DatasetError::SizeMismatch {
                    path: "data/fox/images/0001.jpg".into(),
                    width: 1061,
                    height: 1894,
                    camera_width: 1060,
                    camera_height: 1894,
                },
                &DatasetError::Lens {
                    path: "data/fox/images/0001.jpg".into(),
                    source: LensError::Parameter { parameter: "the focal length", value: -1.0 },
                },
                &DatasetError::Camera {
                    path: "data/fox/sparse/0/cameras.txt".into(),
                    view: "0012.jpg".to_owned(),
                    found: "cx = -5000 px, outside of a photograph of 640 px".to_owned(),
                    remedy: "Give it in px of the photograph, or solve the cameras again",
                },
                &DatasetError::Resolution { value: 7 },
                &DatasetError::NothingToTrain { path: "data/fox".into(), count: 50 },
                &DatasetError::TestListUnreadable { path: "test.txt".into(), source: denied() },
                &DatasetError::EmptyTestList { path: "test.txt".into() },
                &DatasetError::UnknownTestViews {
                    count: 2,
                    names: "0012.png, 0013.png".to_owned(),
                    example: "0012.jpg".to_owned(),
                },
                &DatasetError::TooManyTestViews { wanted: 50, count: 50 },
            ],
        ),
        section(
            "ColmapError",
            &[
                &ColmapError::Missing { folder: "data/fox".into(), file: "images" },
                &ColmapError::Unreadable {
                    path: "data/fox/sparse/0/images.txt".into(),
                    source: denied(),
                },
                &ColmapError::OtherContent {
                    path: "data/fox/sparse/0/images.txt".into(),
                    found: splat_mesh::file::ply::LFS_SAID,
                },
                &ColmapError::Truncated {
                    path: "data/fox/sparse/0/images.txt".into(),
                    reading: "image 3".to_owned(),
                    needed: 13000,
                    left: 7,
                },
                &ColmapError::Invalid {
                    path: "data/fox/sparse/0/images.txt".into(),
                    reading: "image 3".to_owned(),
                    found: "has no name".to_owned(),
                },
                &ColmapError::Line {
                    path: "data/fox/sparse/0/images.txt".into(),
                    line: 12,
                    found: "1 2 3".to_owned(),
                    expected: "a number",
                },
                &ColmapError::UnknownModel {
                    path: "data/fox/sparse/0/images.txt".into(),
                    camera: 2,
                    model: "17".to_owned(),
                },
                &ColmapError::UnsupportedModel {
                    path: "data/fox/sparse/0/cameras.txt".into(),
                    camera: 2,
                    model: "FULL_OPENCV",
                },
                &ColmapError::Lens {
                    path: "data/fox/sparse/0/images.txt".into(),
                    camera: 2,
                    model: "OPENCV",
                    source: LensError::Parameter { parameter: "the focal length", value: -1.0 },
                },
                &ColmapError::DuplicateCamera {
                    path: "data/fox/sparse/0/images.txt".into(),
                    camera: 2,
                },
                &ColmapError::DuplicateName {
                    path: "data/fox/sparse/0/images.txt".into(),
                    name: "0012.jpg".to_owned(),
                },
                &ColmapError::UnknownCamera {
                    path: "data/fox/sparse/0/images.txt".into(),
                    name: "0012.jpg".to_owned(),
                    camera: 2,
                    count: 50,
                },
                &ColmapError::Empty { path: "data/fox/sparse/0/images.txt".into() },
            ],
        ),
        section(
            "TransformsError",
            &[
                &TransformsError::Unreadable {
                    path: "data/lego/transforms_train.json".into(),
                    source: denied(),
                },
                &TransformsError::Json {
                    path: "data/lego/transforms_train.json".into(),
                    source: json(),
                },
                &TransformsError::OtherContent {
                    path: "data/lego/transforms_train.json".into(),
                    found: splat_mesh::file::ply::LFS_SAID,
                },
                &TransformsError::NoNumber {
                    path: "data/lego/transforms_train.json".into(),
                    line: 12,
                    column: 7,
                    word: "NaN",
                },
                &TransformsError::File {
                    path: "data/lego/transforms_train.json".into(),
                    found: "`applied_transform` is no matrix of 3 x 4 numbers".to_owned(),
                },
                &TransformsError::TransformsFrame {
                    path: "data/lego/transforms_train.json".into(),
                    frame: "train/r_0".to_owned(),
                    found: "has a `transform_matrix` with 3 rows".to_owned(),
                    remedy: "Export the scene again",
                },
                &TransformsError::Lens {
                    path: "data/lego/transforms_train.json".into(),
                    frame: "train/r_0".to_owned(),
                    source: LensError::Parameter { parameter: "the focal length", value: -1.0 },
                },
                &TransformsError::Empty { path: "data/lego/transforms_train.json".into() },
            ],
        ),
        section(
            "PointsPlyError",
            &[
                &PointsPlyError::NoPoints {
                    path: "data/lego/points3d.ply".into(),
                    found: "has no element vertex".to_owned(),
                },
                &PointsPlyError::Vertex {
                    path: "data/lego/points3d.ply".into(),
                    index: 7,
                    count: 50,
                    found: "has a z that is not finite".to_owned(),
                },
                &PointsPlyError::TooFar {
                    path: "data/lego/points3d.ply".into(),
                    index: 7,
                    position: [0.0, 1.0, 1e20],
                },
            ],
        ),
        section(
            "ImageError",
            &[
                &ImageError::Unreadable {
                    path: "data/fox/images/0001.jpg".to_owned(),
                    source: denied(),
                },
                &ImageError::UnknownFormat {
                    path: "data/fox/images/0001.jpg".to_owned(),
                    found: "it begins with 00 00 00 18".to_owned(),
                },
                &ImageError::Empty { path: "data/fox/images/0001.jpg".to_owned() },
                &ImageError::LfsPointer { path: "data/fox/images/0001.jpg".to_owned() },
                &ImageError::Undecodable {
                    path: "data/fox/images/0001.jpg".to_owned(),
                    source: picture(),
                },
                &ImageError::Truncated { path: "data/fox/images/0001.jpg".to_owned(), bytes: 1000 },
                &ImageError::FileTooLarge {
                    path: "data/fox/images/0001.jpg".to_owned(),
                    limit: 100000,
                },
                &ImageError::UnusableSize {
                    path: "data/fox/images/0001.jpg".to_owned(),
                    width: 1061,
                    height: 1894,
                    limit: 100000,
                },
                &ImageError::UnusableTarget {
                    path: "data/fox/images/0001.jpg".to_owned(),
                    width: 1061,
                    height: 1894,
                },
                &ImageError::MaskShape {
                    path: "data/fox/masks/0001.png".to_owned(),
                    size: [640, 480],
                    photograph: "data/fox/images/0001.jpg".to_owned(),
                    photograph_size: [1061, 1894],
                },
                &ImageError::MapShape {
                    path: "data/fox/depths/0001.png".to_owned(),
                    kind: "depth",
                    flag: "-d",
                    size: [640, 480],
                    photograph: "data/fox/images/0001.jpg".to_owned(),
                    photograph_size: [1061, 1894],
                },
                &ImageError::NoDepthMap { path: "data/fox/depths/0001.png".to_owned() },
                &ImageError::NoNormalMap { path: "data/fox/normals/0001.png".to_owned() },
                &ImageError::NormalsFaceAway {
                    path: "data/fox/normals/0001.png".to_owned(),
                    percent: 70,
                },
                &ImageError::Resize {
                    path: "data/fox/images/0001.jpg".to_owned(),
                    reason: "the size is 0".to_owned(),
                },
                &ImageError::Panicked {
                    path: "data/fox/images/0001.jpg".to_owned(),
                    reason: "index out of bounds".to_owned(),
                },
                &ImageError::NoSuchImage { index: 7, count: 50 },
            ],
        ),
        section(
            "DepthsError",
            &[
                &DepthsError::FolderMissing { path: "data/fox/depths".into() },
                &DepthsError::ParametersMissing {
                    path: "data/fox/sparse/0/depth_params.json".into(),
                    source: denied(),
                },
                &DepthsError::ParametersDamaged {
                    path: "data/fox/sparse/0/depth_params.json".into(),
                    source: json(),
                },
                &DepthsError::TooLarge {
                    path: "data/fox/sparse/0/depth_params.json".into(),
                    name: "0012.jpg".to_owned(),
                    key: "scale",
                    value: 5e20,
                },
                &DepthsError::NoneFits {
                    path: "data/fox/depths".into(),
                    parameters: "data/fox/sparse/0/depth_params.json".into(),
                    views: 43,
                },
            ],
        ),
        section(
            "NormalsError",
            &[
                &NormalsError::FolderMissing { path: "data/fox/normals".into() },
                &NormalsError::NoneFits {
                    path: "data/fox/normals".into(),
                    views: 43,
                    reasons: "0001.jpg: is empty".to_owned(),
                },
            ],
        ),
        section(
            "LensError",
            &[
                &LensError::Parameter { parameter: "the focal length", value: 0.5 },
                &LensError::Folds { distortion: "k1 = -1.5".to_owned(), width: 1061, height: 1894 },
            ],
        ),
        section(
            "PlyFileError",
            &[
                &PlyFileError::Unreadable {
                    path: "out/fox/point_cloud.ply".into(),
                    source: denied(),
                },
                &PlyFileError::Header {
                    path: "out/fox/point_cloud.ply".into(),
                    line: 12,
                    found: "`property flot x` is no property".to_owned(),
                },
                &PlyFileError::Truncated {
                    path: "out/fox/point_cloud.ply".into(),
                    rows: 12_449,
                    row_bytes: 248,
                    found: 1_000_000,
                },
            ],
        ),
        section(
            "PlyError",
            &[
                &PlyError::Format {
                    path: "out/fox/point_cloud.ply".into(),
                    format: "ascii 1.0".to_owned(),
                },
                &PlyError::MissingColumn {
                    path: "out/fox/point_cloud.ply".into(),
                    column: "opacity".to_owned(),
                },
                &PlyError::DoubleColumn {
                    path: "out/fox/point_cloud.ply".into(),
                    column: "opacity".to_owned(),
                },
                &PlyError::ColumnType {
                    path: "out/fox/point_cloud.ply".into(),
                    column: "opacity".to_owned(),
                    found: "uchar".to_owned(),
                },
                &PlyError::RestCount { path: "out/fox/point_cloud.ply".into(), count: 50 },
                &PlyError::NotFinite {
                    path: "out/fox/point_cloud.ply".into(),
                    row: 17,
                    column: "opacity".to_owned(),
                    value: f64::NAN,
                },
                &PlyError::OutOfRange {
                    path: "out/fox/point_cloud.ply".into(),
                    row: 17,
                    column: "opacity".to_owned(),
                    value: 3e7,
                    range: -1e6..=1e6,
                },
                &PlyError::NoRotation { path: "out/fox/point_cloud.ply".into(), row: 17 },
            ],
        ),
        section(
            "PlyFacesError",
            &[
                &PlyFacesError::Missing { path: "out/fox/point_cloud.ply".into() },
                &PlyFacesError::Property {
                    path: "out/fox/point_cloud.ply".into(),
                    found: "property list uchar float vertex_indices".to_owned(),
                },
                &PlyFacesError::Corners {
                    path: "out/fox/point_cloud.ply".into(),
                    face: 7,
                    corners: 4.0,
                },
                &PlyFacesError::NoVertex {
                    path: "out/fox/point_cloud.ply".into(),
                    face: 7,
                    vertex: 812.0,
                    vertices: 500,
                },
                &PlyFacesError::Comment {
                    path: "out/fox/point_cloud.ply".into(),
                    key: "SplatSigma ",
                    value: "-1".to_owned(),
                    allowed: "0 to 1",
                },
            ],
        ),
        section(
            "LockError",
            &[&LockError::InUse { folder: "out/fox".into(), holder: "process 17".to_owned() }],
        ),
        section(
            "LpipsError",
            &[
                &LpipsError::Unreadable { path: "weights/vgg.pth".into(), source: denied() },
                &LpipsError::NotWeights {
                    path: "weights/vgg.pth".into(),
                    problem: "it is empty".to_owned(),
                },
                &LpipsError::NoHeads {
                    path: "weights/vgg.pth".into(),
                    sought: vec!["vgg.pth".to_owned()],
                },
                &LpipsError::Tensor {
                    path: "weights/vgg.pth".into(),
                    tensor: "features.0.weight".to_owned(),
                    problem: "has not 64 x 3 x 3 x 3 numbers".to_owned(),
                    net: "vgg",
                },
            ],
        ),
        section(
            "TrainError",
            &[
                &TrainError::OutOfMemory {
                    source: Box::new(refusal(false).into()),
                    checkpoint: "out/fox/checkpoints/chkpnt_3000.safetensors".into(),
                },
                &TrainError::NoSpace { source: full(), checkpoint: None },
                &TrainError::NoImages { views: 43, first: "0001.jpg: is empty".to_owned() },
                &TrainError::Emptied { iteration: 11 },
            ],
        ),
        section(
            "CheckpointError",
            &[
                &CheckpointError::Unreadable {
                    path: "out/fox/checkpoints/chkpnt_3000.safetensors".into(),
                    source: denied(),
                },
                &CheckpointError::Damaged {
                    path: "out/fox/checkpoints/chkpnt_3000.safetensors".into(),
                    problem: "it has no `iteration`".to_owned(),
                },
                &CheckpointError::Version {
                    path: "out/fox/checkpoints/chkpnt_3000.safetensors".into(),
                    found: "2".to_owned(),
                },
                &CheckpointError::ShDegree {
                    path: "out/fox/checkpoints/chkpnt_3000.safetensors".into(),
                    found: 1,
                    wanted: 3,
                },
                &CheckpointError::Config {
                    path: "out/fox/checkpoints/chkpnt_3000.safetensors".into(),
                    source: Box::new(unknown_preset()),
                },
            ],
        ),
        section(
            "DeviceError",
            &[
                &DeviceError::TargetSize { target_px: [640, 480], view_px: [320, 240] },
                &DeviceError::NotFinite {
                    primitive: "Gaussian",
                    index: 7,
                    group: "mean",
                    value: f64::NAN,
                },
                &DeviceError::LossNotFinite { value: f64::INFINITY },
                &DeviceError::TooManyViews { most: 8 },
                &DeviceError::OfRank { rank: 1, message: refusal(false).to_string() },
                &DeviceError::RankDevice {
                    rank: 1,
                    problem: DeviceError::NoDriver.to_string(),
                },
                &DeviceError::OtherScene {
                    rank: 1,
                    problem: "data/fox: the scene here is not that of rank 0. Copy the same scene to all hosts"
                        .to_owned(),
                },
                &DeviceError::Unsupported { primitives: "surfels", what: "depths" },
                &DeviceError::NeedsSurfels { what: "depths" },
                &DeviceError::NoView,
                &DeviceError::MissingInput { term: "depth", input: "depths" },
                &DeviceError::NoRoomForColors,
                &DeviceError::NoMedianDepths,
                &DeviceError::TooSmallForLpips { size: [24, 18], least: 32 },
                &DeviceError::ImageTooLarge { size: [70_000, 480] },
                &DeviceError::TooManyInstances { count: 5_000_000_000, most: 2_147_483_647 },
                &DeviceError::TooManyGaussians { wanted: 5_000_000_000 },
                &DeviceError::NoSuchRow { row: 17, len: 7 },
                &DeviceError::OtherFaces { found: 12000, faces: 1000 },
                &DeviceError::KeptNotAscending,
                &DeviceError::NoSuchTable { view: 7, views: 43 },
                &DeviceError::StaleCandidates { counted: 7, found: 12000 },
                &DeviceError::StaleSelection,
                &DeviceError::UnsuitedEdit,
                &DeviceError::NeighbourCount { count: 50 },
                &DeviceError::StaleNeighbours { found: 12000, len: 7 },
                &no_kernels(&DeviceOptions::of(&Config::default())),
                &DeviceError::NoDriver,
                &DeviceError::DriverTooOld { found: 12000, needed: 13000 },
                &DeviceError::NoGpu { visible: Some("7".to_owned()) },
                &DeviceError::NoCode {
                    name: "NVIDIA GeForce GTX 1080".to_owned(),
                    arch: 61,
                    built: vec![75, 90],
                },
                &DeviceError::OutOfMemory {
                    label: "sort",
                    wanted: Bytes(3 << 30),
                    held: Bytes(7 << 30),
                    free: Bytes(1 << 30),
                    largest: Vec::new(),
                },
                &DeviceError::DriverOutOfMemory { call: "cuMemAlloc" },
                &DeviceError::Driver {
                    call: "cuMemAlloc",
                    reason: "an illegal memory access was encountered".to_owned(),
                },
            ],
        ),
        section(
            "ExtractionError",
            &[
                &ExtractionError::EmptyBox { axis: 'x', low: 1.5, high: 0.5 },
                &ExtractionError::OutOfRange { flag: "density-trim", value: 1.5, allowed: "from 0 to below 1" },
                &ExtractionError::HalfBox { given: "bbox-min", missing: "bbox-max" },
                &ExtractionError::NoGaussians {
                    found: 12,
                    all: 900,
                    needed: 100,
                    advice: "Give a larger box (--bbox-min, --bbox-max)".to_owned(),
                },
                &ExtractionError::NoViews {
                    reason: "data/fox/images/0001.jpg: there is no such file".to_owned(),
                },
                &ExtractionError::TooManyGaussians { found: 5_000_000_000 },
                &ExtractionError::TooManyPoints { gaussians: 1_200_000, fits: 900_000 },
                &ExtractionError::SurfacePoints { wanted: 2_000_000, fits: 900_000 },
                &ExtractionError::NoTexturedFormat,
                &ExtractionError::TextureMemory { asked: 16_384, fits: 8192 },
                &ExtractionError::NothingLeft { faces: 1000, min_component: "1%".to_owned() },
                &ExtractionError::DecimatedAway { faces: 1000, target: 7 },
                &ExtractionError::PeeledAway { faces: 1000 },
            ],
        ),
        section("BindError", &[&BindError::NoTriangles { faces: 1000 }]),
        section(
            "SynthError",
            &[
                &SynthError::OutOfRange { flag: "views", value: 0, least: 1, most: 10_000 },
                &SynthError::Occupied { path: "data/synthetic".into() },
                &SynthError::Truth(ExtractError::Length { values: 511, bricks: 1 }),
                &SynthError::Png { name: "00012.png".to_owned(), source: picture() },
            ],
        ),
        section(
            "LogError",
            &[
                &LogError::Missing { path: "out/fox/run.jsonl".into() },
                &LogError::Unreadable { path: "out/fox/run.jsonl".into(), source: denied() },
                &LogError::Damaged {
                    path: "out/fox/run.jsonl".into(),
                    line: 12,
                    reason: "missing field `event`".to_owned(),
                },
                &LogError::Empty { path: "out/fox/run.jsonl".into() },
            ],
        ),
        section(
            "SummaryError",
            &[
                &SummaryError::Missing { path: "out/fox/summary.json".into() },
                &SummaryError::Older { path: "out/fox/summary.json".into() },
                &SummaryError::Unreadable { path: "out/fox/summary.json".into(), source: denied() },
                &SummaryError::Damaged {
                    path: "out/fox/summary.json".into(),
                    reason: "missing field `event`".to_owned(),
                },
            ],
        ),
        section(
            "FramesFileError",
            &[
                &FramesFileError::Unreadable { path: "cameras.json".into(), source: denied() },
                &FramesFileError::Unusable {
                    path: "cameras.json".into(),
                    problem: "has no cameras. Write one for each frame, or use --path orbit".to_owned(),
                },
            ],
        ),
        section("ServerError", &[&ServerError::System(denied())]),
        section("Refusal", &[&refusal(false), &refusal(true)]),
        section("HostRefusal", &[&host_refusal()]),
        section("PrintError", &[&PrintError(io::Error::from(io::ErrorKind::StorageFull))]),
        section(
            "Interrupted",
            &[
                &Interrupted { command: None },
                &Interrupted { command: Some("splat train --resume -m out/fox".to_owned()) },
            ],
        ),
        section("TooManyBound", &[&TooManyBound { faces: 1 << 31, each: 6 }]),
        section("OutputError", &[&full()]),
    ]
}
