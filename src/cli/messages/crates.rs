//! Errors of the crates.

use super::{Section, denied, section};
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
use splat_ranks::launch::LaunchError;
use splat_ranks::message::MessageError;
use splat_ranks::node_list::NodeListError;
use splat_ranks::supervise::SuperviseError;

fn json() -> serde_json::Error {
    serde_json::from_str::<serde_json::Value>("{").unwrap_err()
}

pub(super) fn errors() -> Vec<Section> {
    vec![
        section(
            "SplatFileError",
            &[
                &SplatFileError::Unreadable { path: "scene.spz".into(), source: denied() },
                &SplatFileError::Content {
                    path: "scene.spz".into(),
                    fault: FormatFault::Damaged("ends in the header".to_owned()),
                },
                &SplatFileError::Unknown { path: "scene.spz".into() },
                &SplatFileError::Unwritable { path: "scene.spz".into(), source: denied() },
                &SplatFileError::Spz {
                    path: "scene.spz".into(),
                    source: SpzOptionsError::ShBits(9),
                },
                &SplatFileError::Sog { path: "scene.spz".into(), source: SogError::NotFitted },
                &SplatFileError::Glb { path: "scene.spz".into(), source: GlbError::Empty },
                &SplatFileError::Html {
                    path: "scene.spz".into(),
                    source: HtmlError::Camera("00012.jpg".to_owned()),
                },
            ],
        ),
        section(
            "FormatFault",
            &[
                &FormatFault::Unreadable(denied()),
                &FormatFault::Damaged("ends after 17 of 900 Gaussians".to_owned()),
                &FormatFault::Unsupported(
                    "is of version 1 of glTF; 2 is read: export it as glTF 2.0".to_owned(),
                ),
            ],
        ),
        section(
            "GlbError",
            &[
                &GlbError::TooLarge {
                    needed: 13_000_000_000,
                    limit: 4_294_967_295,
                    count: 50_000_000,
                },
                &GlbError::Empty,
                &GlbError::Write(denied()),
            ],
        ),
        section(
            "HtmlError",
            &[
                &HtmlError::Camera("00012.jpg".to_owned()),
                &HtmlError::Json(json()),
                &HtmlError::Write(denied()),
            ],
        ),
        section(
            "PlacementError",
            &[
                &PlacementError::Scale(-0.5),
                &PlacementError::Rotation([0.0; 4]),
                &PlacementError::Translation([0.0, 1.0, f64::INFINITY]),
            ],
        ),
        section(
            "SogError",
            &[
                &SogError::Count(300_000_000),
                &SogError::Write(denied()),
                &SogError::NotFitted,
                &SogError::ReadBack(FormatFault::Damaged("ends in the header".to_owned())),
            ],
        ),
        section(
            "SplatsError",
            &[
                &SplatsError::Degree(4),
                &SplatsError::Length { column: "opacity", found: 12, expected: 7 },
            ],
        ),
        section(
            "SpzOptionsError",
            &[
                &SpzOptionsError::ShBits(9),
                &SpzOptionsError::Count(5_000_000_000),
                &SpzOptionsError::Pack(denied()),
            ],
        ),
        section(
            "AtlasError",
            &[
                &AtlasError::NoArea { faces: 1000 },
                &AtlasError::TooLarge { found: 65_536, most: 16_384 },
                &AtlasError::TooSmall { charts: 7000, side_px: 64 },
                &AtlasError::Square { found: 2 },
                &AtlasError::Overlap { charts: 7, rounds: 7 },
            ],
        ),
        section(
            "MeshError",
            &[
                &MeshError::UnknownVertex { face: 7, vertex: 812, vertices: 500 },
                &MeshError::Unequal { what: "normals", found: 12, vertices: 500 },
                &MeshError::NotFinite { vertex: 7, place: [0.0, 1.0, f32::NAN] },
                &MeshError::NotFiniteValue { vertex: 7, what: "normals" },
                &MeshError::TooMany {
                    what: "vertices",
                    found: 5_000_000_000,
                    limit: 4_294_967_295,
                },
            ],
        ),
        section(
            "CleanError",
            &[
                &CleanError::NothingLeft { step: "cleaning", faces: 1000, vertices: 500 },
                &CleanError::DecimatedAway { faces: 1000, target: 7 },
            ],
        ),
        section(
            "CompareError",
            &[
                &CompareError::Mesh {
                    which: "compared mesh",
                    source: MeshError::UnknownVertex { face: 3, vertex: 9, vertices: 8 },
                },
                &CompareError::NoArea { which: "compared mesh", faces: 1000 },
                &CompareError::Threshold { found: -0.5 },
            ],
        ),
        section(
            "ExtractError",
            &[
                &ExtractError::TooManyVertices { vertices: 5_000_000_000 },
                &ExtractError::Length { values: 511, bricks: 1 },
            ],
        ),
        section(
            "DelaunayError",
            &[
                &DelaunayError::UnfitPoint { index: 7, point: [0.0, 1.0, f64::NAN] },
                &DelaunayError::TooManyPoints { count: 5_000_000_000, most: 1_000_000_000 },
                &DelaunayError::Flat { distinct: 3 },
                &DelaunayError::TooManyTetrahedra { most: 1_000_000_000 },
                &DelaunayError::Memory { bytes: 1000 },
            ],
        ),
        section(
            "MeshFileError",
            &[
                &MeshFileError::Unreadable { path: "mesh.ply".into(), source: denied() },
                &MeshFileError::Line {
                    path: "mesh.ply".into(),
                    line: 12,
                    found: "`f 1 2` has 2 corners".to_owned(),
                },
                &MeshFileError::Row {
                    path: "mesh.ply".into(),
                    element: "face".to_owned(),
                    row: 17,
                    found: "ends early".to_owned(),
                },
                &MeshFileError::Nothing { path: "mesh.ply".into(), what: "faces" },
                &MeshFileError::UnreadGlb { path: "mesh.glb".into() },
                &MeshFileError::Glb {
                    path: "mesh.glb".into(),
                    found: "its picture is no PNG".to_owned(),
                },
                &MeshFileError::Mesh {
                    path: "mesh.ply".into(),
                    source: MeshError::UnknownVertex { face: 3, vertex: 9, vertices: 8 },
                },
                &MeshFileError::TooLarge { needed: 13_000_000_000, limit: 4_294_967_295 },
                &MeshFileError::OtherAtlas { found: 12, faces: 1000 },
                &MeshFileError::Invalid(MeshError::UnknownVertex {
                    face: 3,
                    vertex: 9,
                    vertices: 8,
                }),
            ],
        ),
        section(
            "PointsError",
            &[
                &PointsError::Lengths { places: 7, normals: 7, colors: 6 },
                &PointsError::TooFew { found: 12, wanted: 100 },
                &PointsError::NotFinite { dropped: 7, count: 50 },
                &PointsError::Inconsistent { agreeing: 0.5, needed: 0.6 },
                &PointsError::BoxTurned { low: [0.0, 1.0, 2.0], high: [0.0, 0.5, 3.0] },
                &PointsError::BoxEmpty {
                    low: [0.0, 1.0, 2.0],
                    high: [1.0, 2.0, 3.0],
                    points_low: [4.0, 5.0, 6.0],
                    points_high: [5.0, 6.0, 7.5],
                },
            ],
        ),
        section(
            "PoissonError",
            &[
                &PoissonError::NoExtent { points: 7 },
                &PoissonError::Depth { depth: 17, deepest: 14 },
                &PoissonError::NotConverged { level: 7, steps: 400, residual: 0.5 },
                &PoissonError::TooManyBricks { depth: 11, bricks: 9000, granted: 4000, fits: 10 },
                &PoissonError::NoSurface { points: 7 },
            ],
        ),
        section(
            "RestrictedError",
            &[
                &RestrictedError::Neighbours { neighbours: 0, tetrahedra: 7 },
                &RestrictedError::Stray { tetrahedron: 7 },
                &RestrictedError::UnfitTriangle { index: 7, corners: [[0.0, 1.0, f64::NAN]; 3] },
                &RestrictedError::Apart { triangles: 7 },
            ],
        ),
        section(
            "CutError",
            &[
                &CutError::Labels { labels: 6, points: 7 },
                &CutError::Corner { tetrahedron: 7, corner: 9, points: 7 },
                &CutError::OneSide { inside: 7, points: 7 },
                &CutError::NothingLeft { faces: 1000, longest: 0.5 },
            ],
        ),
        section(
            "FusionError",
            &[
                &FusionError::MapSize { map: "depth map", found: 12, width: 1061, height: 1894 },
                &FusionError::Focal { focal_px: [0.0, 500.0] },
                &FusionError::NoSize { side: 0.5, voxel: 0.0 },
                &FusionError::TooFine { side: 0.5, voxel: 1e-6, most: 65_536, fits: 8e-6 },
                &FusionError::Empty { views: 43 },
                &FusionError::TooManyBricks { bricks: 9000, granted: 4000, fits: 0.5 },
                &FusionError::NoSurface { views: 43 },
            ],
        ),
        section(
            "ExchangeError",
            &[
                &ExchangeError::Lost { rank: 1, why: "the connection is closed".to_owned() },
                &ExchangeError::Garbled { rank: 1, found: "a frame of 7 bytes".to_owned() },
                &ExchangeError::WrongParts { found: 3, world: 4 },
                &ExchangeError::NothingGiven,
                &ExchangeError::NotTheGiver { rank: 1 },
                &ExchangeError::Aborted,
                &ExchangeError::Stuck { seconds: 60 },
                &ExchangeError::NoSuchRank { rank: 7, world: 4 },
                &ExchangeError::Missing {
                    ranks: vec![1, 3],
                    seconds: 60,
                    trouble: "connection refused".to_owned(),
                },
                &ExchangeError::Unproven { rank: 1, address: ([10, 0, 0, 1], 29500).into() },
                &ExchangeError::System {
                    doing: "open a socket",
                    why: "too many open files".to_owned(),
                },
            ],
        ),
        section(
            "JoinError",
            &[
                &JoinError::Missing { ranks: vec![1, 3], world: 4, seconds: 60 },
                &JoinError::Turned {
                    rank: 1,
                    why: "another process has joined as rank 1".to_owned(),
                },
                &JoinError::Unproven { rank: 1, address: ([10, 0, 0, 1], 29500).into() },
                &JoinError::NoCoordinator {
                    rank: 1,
                    place: "rank0:29500".to_owned(),
                    seconds: 60,
                    last: "connection refused".to_owned(),
                },
                &JoinError::NoPort { place: "rank0:29500".to_owned(), source: denied() },
                &JoinError::OnlyLocal { host: "localhost".to_owned(), ip: [127, 0, 0, 1].into() },
                &JoinError::NoHome { rank: 1 },
                &JoinError::NoSecret { rank: 1, folder: "data/fox".into(), source: denied() },
                &JoinError::Conversation {
                    rank: 1,
                    source: MessageError::Ended { peer: "rank 0".to_owned() },
                },
                &JoinError::System { rank: 1, what: "a thread", source: denied() },
            ],
        ),
        section(
            "LaunchError",
            &[
                &LaunchError::Number { name: "RANK", value: "-1".to_owned(), least: 1, most: 8 },
                &LaunchError::Outside { name: "RANK", rank: 1, of_world: "WORLD_SIZE", world: 4 },
                &LaunchError::Half { name: "RANK", value: "-1".to_owned(), missing: "WORLD_SIZE" },
                &LaunchError::Nodes {
                    name: "RANK",
                    source: NodeListError::Unbalanced { list: "node[01".to_owned() },
                },
                &LaunchError::Address { name: "RANK", value: "-1".to_owned(), form: "HOST:PORT" },
                &LaunchError::Secret { name: "RANK", letters: 12 },
                &LaunchError::NoPlace { name: "RANK", here: 7, world: 4 },
            ],
        ),
        section(
            "MessageError",
            &[
                &MessageError::Ended { peer: "rank 1".to_owned() },
                &MessageError::Cut { peer: "rank 1".to_owned() },
                &MessageError::TooLong { peer: "rank 1".to_owned(), bytes: 1000 },
                &MessageError::Garbage { peer: "rank 1".to_owned(), source: json() },
                &MessageError::Failed { peer: "rank 1".to_owned(), source: denied() },
            ],
        ),
        section(
            "NodeListError",
            &[
                &NodeListError::Empty { list: "node[01".to_owned(), place: 7 },
                &NodeListError::Nested { list: "node[01".to_owned() },
                &NodeListError::Unbalanced { list: "node[01".to_owned() },
                &NodeListError::Range { list: "node[01".to_owned(), found: "1-".to_owned() },
            ],
        ),
        section(
            "SuperviseError",
            &[
                &SuperviseError::Start {
                    program: "/usr/bin/splat".into(),
                    rank: 1,
                    source: denied(),
                },
                &SuperviseError::System { what: "fork", source: denied() },
            ],
        ),
    ]
}
