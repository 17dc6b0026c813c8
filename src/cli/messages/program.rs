//! Errors of this package.

use std::io;

use super::{Section, denied, section};
use crate::backend::DeviceError;
use crate::cli::exit::Interrupted;
use crate::cli::output::PrintError;
use crate::config::ConfigError;
use crate::dataset::colmap::ColmapError;
use crate::dataset::points_ply::PointsPlyError;
use crate::dataset::{
    DatasetError, DepthsError, ImageError, LensError, NormalsError, TransformsError,
};
use crate::export::{PlyError, PlyFacesError};
use crate::files::{LockError, OutputError};
use crate::memory::{Bytes, CardSharing, Refusal};
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

fn json() -> serde_json::Error {
    serde_json::from_str::<serde_json::Value>("{").unwrap_err()
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
    ConfigError::UnknownPreset { name: "quick".to_owned(), known: "fast, best".to_owned() }
}

/// A refusal of memory on a card that other programs use, or on one of its own.
fn refusal(is_shared: bool) -> Refusal {
    let sharing =
        CardSharing { card: Bytes(16 << 30), foreign: Bytes(9 << 30), reserve: Bytes(1 << 29) };
    Refusal {
        label: "sort",
        wanted: Bytes(60 << 20),
        held: Bytes(7 << 30),
        budget: Bytes(7 << 30),
        largest: Vec::new(),
        sharing: is_shared.then_some(sharing),
    }
}

pub(super) fn errors() -> Vec<Section> {
    vec![
        section(
            "ConfigError",
            &[
                &ConfigError::Unreadable { path: "my.toml".into(), source: denied() },
                &ConfigError::UnknownPreset {
                    name: "0012.jpg".to_owned(),
                    known: "fast, best".to_owned(),
                },
                &ConfigError::Syntax { origin: "my.toml".to_owned(), source: Box::new(toml()) },
                &ConfigError::Unknown {
                    origin: "my.toml".to_owned(),
                    line: 12,
                    name: "0012.jpg".to_owned(),
                    remedy: "Name another folder".to_owned(),
                },
                &ConfigError::WrongType {
                    origin: "my.toml".to_owned(),
                    line: 12,
                    section: "densify".to_owned(),
                    key: "scale".to_owned(),
                    message: "the value is a string".to_owned(),
                },
                &ConfigError::OutOfRange {
                    flag: "--near".to_owned(),
                    key: "scale",
                    section: "densify",
                    value: "-1".to_owned(),
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
                    content: "2 files".to_owned(),
                    remedy: "Name another folder".to_owned(),
                },
                &DatasetError::ImagesMissing { path: "data/fox".into(), others: "".to_owned() },
                &DatasetError::NoImageLeft {
                    folder: "data/fox".into(),
                    count: 50,
                    reasons: "0001.jpg: is empty".to_owned(),
                    others: "".to_owned(),
                },
                &DatasetError::UnknownSize { path: "data/fox".into(), name: "0012.jpg".to_owned() },
                &DatasetError::SizeMismatch {
                    path: "data/fox".into(),
                    width: 1061,
                    height: 1894,
                    camera_width: 1060,
                    camera_height: 1894,
                },
                &DatasetError::Lens {
                    path: "data/fox".into(),
                    source: LensError::Parameter { parameter: "the focal length", value: -1.0 },
                },
                &DatasetError::Resolution { value: 7 },
                &DatasetError::NothingToTrain { path: "data/fox".into(), count: 50 },
                &DatasetError::TestListUnreadable { path: "data/fox".into(), source: denied() },
                &DatasetError::EmptyTestList { path: "data/fox".into() },
                &DatasetError::UnknownTestViews {
                    count: 50,
                    names: "names".to_owned(),
                    example: "example".to_owned(),
                },
                &DatasetError::TooManyTestViews { wanted: 7, count: 50 },
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
                &ColmapError::Truncated {
                    path: "data/fox/sparse/0/images.txt".into(),
                    reading: "image 3".to_owned(),
                    needed: 13000,
                    left: 7,
                },
                &ColmapError::Invalid {
                    path: "data/fox/sparse/0/images.txt".into(),
                    reading: "image 3".to_owned(),
                    found: "7 values".to_owned(),
                },
                &ColmapError::Line {
                    path: "data/fox/sparse/0/images.txt".into(),
                    line: 12,
                    found: "7 values".to_owned(),
                    expected: "8 values",
                },
                &ColmapError::UnknownModel {
                    path: "data/fox/sparse/0/images.txt".into(),
                    camera: 2,
                    model: "OPENCV".to_owned(),
                },
                &ColmapError::UnsupportedModel {
                    path: "data/fox/sparse/0/images.txt".into(),
                    camera: 2,
                    model: "OPENCV",
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
                &TransformsError::NoNumber {
                    path: "data/lego/transforms_train.json".into(),
                    line: 12,
                    column: 7,
                    word: "word",
                },
                &TransformsError::File {
                    path: "data/lego/transforms_train.json".into(),
                    found: "7 values".to_owned(),
                },
                &TransformsError::TransformsFrame {
                    path: "data/lego/transforms_train.json".into(),
                    frame: "train/r_0".to_owned(),
                    found: "7 values".to_owned(),
                    remedy: "Name another folder",
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
                    found: "7 values".to_owned(),
                },
                &PointsPlyError::Vertex {
                    path: "data/lego/points3d.ply".into(),
                    index: 7,
                    count: 50,
                    found: "7 values".to_owned(),
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
                    found: "7 values".to_owned(),
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
                    path: "data/fox/images/0001.jpg".to_owned(),
                    size: [640, 480],
                    photograph: "data/fox/images/0001.jpg".to_owned(),
                    photograph_size: [640, 480],
                },
                &ImageError::MapShape {
                    path: "data/fox/images/0001.jpg".to_owned(),
                    kind: "depth map",
                    flag: "--near",
                    size: [640, 480],
                    photograph: "data/fox/images/0001.jpg".to_owned(),
                    photograph_size: [640, 480],
                },
                &ImageError::NoDepthMap { path: "data/fox/images/0001.jpg".to_owned() },
                &ImageError::NoNormalMap { path: "data/fox/images/0001.jpg".to_owned() },
                &ImageError::NormalsFaceAway {
                    path: "data/fox/images/0001.jpg".to_owned(),
                    percent: 70,
                },
                &ImageError::Resize {
                    path: "data/fox/images/0001.jpg".to_owned(),
                    reason: "bad data".to_owned(),
                },
                &ImageError::Panicked {
                    path: "data/fox/images/0001.jpg".to_owned(),
                    reason: "bad data".to_owned(),
                },
                &ImageError::NoSuchImage { index: 7, count: 50 },
            ],
        ),
        section(
            "DepthsError",
            &[
                &DepthsError::FolderMissing { path: "data/fox/depths".into() },
                &DepthsError::ParametersMissing {
                    path: "data/fox/depths".into(),
                    source: denied(),
                },
                &DepthsError::ParametersDamaged { path: "data/fox/depths".into(), source: json() },
                &DepthsError::TooLarge {
                    path: "data/fox/depths".into(),
                    name: "0012.jpg".to_owned(),
                    key: "scale",
                    value: 0.5,
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
                    found: "7 values".to_owned(),
                },
                &PlyFileError::Truncated {
                    path: "out/fox/point_cloud.ply".into(),
                    rows: 7,
                    row_bytes: 7,
                    found: 12,
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
                    found: "7 values".to_owned(),
                },
                &PlyError::RestCount { path: "out/fox/point_cloud.ply".into(), count: 50 },
                &PlyError::NotFinite {
                    path: "out/fox/point_cloud.ply".into(),
                    row: 17,
                    column: "opacity".to_owned(),
                    value: 0.5,
                },
                &PlyError::OutOfRange {
                    path: "out/fox/point_cloud.ply".into(),
                    row: 17,
                    column: "opacity".to_owned(),
                    value: 0.5,
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
                    found: "7 values".to_owned(),
                },
                &PlyFacesError::Corners {
                    path: "out/fox/point_cloud.ply".into(),
                    face: 7,
                    corners: 0.5,
                },
                &PlyFacesError::NoVertex {
                    path: "out/fox/point_cloud.ply".into(),
                    face: 7,
                    vertex: 0.5,
                    vertices: 500,
                },
                &PlyFacesError::Comment {
                    path: "out/fox/point_cloud.ply".into(),
                    key: "scale",
                    value: "-1".to_owned(),
                    allowed: "0 to 1",
                },
            ],
        ),
        section(
            "LockError",
            &[&LockError::InUse { folder: "data/fox".into(), holder: "process 17".to_owned() }],
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
                    tensor: "conv1.weight".to_owned(),
                    problem: "it is empty".to_owned(),
                    net: "vgg",
                },
            ],
        ),
        section(
            "TrainError",
            &[
                &TrainError::OutOfMemory {
                    source: Box::new(DeviceError::NoView),
                    checkpoint: "out/fox/checkpoints/chkpnt_3000.safetensors".into(),
                },
                &TrainError::NoSpace { source: full(), checkpoint: None },
                &TrainError::NoImages { views: 43, first: "0001.jpg: is empty".to_owned() },
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
                    problem: "it is empty".to_owned(),
                },
                &CheckpointError::Version {
                    path: "out/fox/checkpoints/chkpnt_3000.safetensors".into(),
                    found: "7 values".to_owned(),
                },
                &CheckpointError::ShDegree {
                    path: "out/fox/checkpoints/chkpnt_3000.safetensors".into(),
                    found: 12,
                    wanted: 7,
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
                &DeviceError::TargetSize { target_px: [640, 480], view_px: [640, 480] },
                &DeviceError::NotFinite {
                    primitive: "Gaussian",
                    index: 7,
                    group: "mean",
                    value: 0.5,
                },
                &DeviceError::LossNotFinite { value: 0.5 },
                &DeviceError::TooManyViews { most: 8 },
                &DeviceError::OfRank { rank: 1, message: "the value is a string".to_owned() },
                &DeviceError::RankDevice { rank: 1, problem: "it is empty".to_owned() },
                &DeviceError::OtherScene { rank: 1, problem: "it is empty".to_owned() },
                &DeviceError::Unsupported { primitives: "surfels", what: "depths" },
                &DeviceError::NeedsSurfels { what: "depths" },
                &DeviceError::NoView,
                &DeviceError::MissingInput { term: "depth", input: "depths" },
                &DeviceError::NoRoomForColors,
                &DeviceError::NoMedianDepths,
                &DeviceError::TooSmallForLpips { size: [640, 480], least: 1 },
                &DeviceError::ImageTooLarge { size: [640, 480] },
                &DeviceError::TooManyInstances { count: 50, most: 8 },
                &DeviceError::TooManyGaussians { wanted: 7 },
                &DeviceError::NoSuchRow { row: 17, len: 7 },
                &DeviceError::OtherFaces { found: 12000, faces: 1000 },
                &DeviceError::KeptNotAscending,
                &DeviceError::NoSuchTable { view: 7, views: 43 },
                &DeviceError::StaleCandidates { counted: 7, found: 12000 },
                &DeviceError::StaleSelection,
                &DeviceError::UnsuitedEdit,
                &DeviceError::NeighbourCount { count: 50 },
                &DeviceError::StaleNeighbours { found: 12000, len: 7 },
                &DeviceError::Unavailable("it is a mesh".to_owned()),
                &DeviceError::NoDriver,
                &DeviceError::DriverTooOld { found: 12000, needed: 13000 },
                &DeviceError::NoGpu { visible: Some("7".to_owned()) },
                &DeviceError::NoCode { name: "0012.jpg".to_owned(), arch: 61, built: vec![75, 90] },
                &DeviceError::OutOfMemory {
                    label: "sort",
                    wanted: Bytes(3 << 30),
                    held: Bytes(3 << 30),
                    free: Bytes(3 << 30),
                    largest: Vec::new(),
                },
                &DeviceError::DriverOutOfMemory { call: "cuMemAlloc" },
                &DeviceError::Driver { call: "cuMemAlloc", reason: "bad data".to_owned() },
            ],
        ),
        section(
            "ExtractionError",
            &[
                &ExtractionError::EmptyBox { axis: 'x', low: 0.5, high: 0.5 },
                &ExtractionError::OutOfRange { flag: "near", value: 0.5, allowed: "0 to 1" },
                &ExtractionError::HalfBox { given: "bbox-min", missing: "bbox-max" },
                &ExtractionError::NoGaussians {
                    found: 12,
                    all: 7,
                    needed: 13000,
                    advice: "Move --bbox-min".to_owned(),
                },
                &ExtractionError::NoViews { reason: "bad data".to_owned() },
                &ExtractionError::TooManyGaussians { found: 12 },
                &ExtractionError::TooManyPoints { gaussians: 7, fits: 900 },
                &ExtractionError::SurfacePoints { wanted: 7, fits: 900 },
                &ExtractionError::NoTexturedFormat,
                &ExtractionError::TextureMemory { asked: 7, fits: 900 },
                &ExtractionError::NothingLeft { faces: 1000, min_component: "1%".to_owned() },
                &ExtractionError::DecimatedAway { faces: 1000, target: 7 },
                &ExtractionError::PeeledAway { faces: 1000 },
            ],
        ),
        section("BindError", &[&BindError::NoTriangles { faces: 1000 }]),
        section(
            "SynthError",
            &[
                &SynthError::OutOfRange { flag: "near", value: 7, least: 1, most: 8 },
                &SynthError::Occupied { path: "data/synthetic".into() },
                &SynthError::Truth(ExtractError::Length { values: 511, bricks: 1 }),
                &SynthError::Png { name: "0012.jpg".to_owned(), source: picture() },
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
                    reason: "bad data".to_owned(),
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
                    reason: "bad data".to_owned(),
                },
            ],
        ),
        section(
            "FramesFileError",
            &[
                &FramesFileError::Unreadable { path: "cameras.json".into(), source: denied() },
                &FramesFileError::Unusable {
                    path: "cameras.json".into(),
                    problem: "it is empty".to_owned(),
                },
            ],
        ),
        section("ServerError", &[&ServerError::System(denied())]),
        section("Refusal", &[&refusal(false), &refusal(true)]),
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
