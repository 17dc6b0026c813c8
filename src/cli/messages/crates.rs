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
                    fault: FormatFault::Damaged("it ends in the header".to_owned()),
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
                    source: HtmlError::Camera("0012.jpg".to_owned()),
                },
            ],
        ),
        section(
            "FormatFault",
            &[
                &FormatFault::Unreadable(denied()),
                &FormatFault::Damaged("it is a mesh".to_owned()),
                &FormatFault::Unsupported("it is a mesh".to_owned()),
            ],
        ),
        section(
            "GlbError",
            &[
                &GlbError::TooLarge { needed: 13000, limit: 4294967295, count: 50 },
                &GlbError::Empty,
                &GlbError::Write(denied()),
            ],
        ),
        section(
            "HtmlError",
            &[
                &HtmlError::Camera("it is a mesh".to_owned()),
                &HtmlError::Json(json()),
                &HtmlError::Write(denied()),
            ],
        ),
        section(
            "PlacementError",
            &[
                &PlacementError::Scale(0.5),
                &PlacementError::Rotation([0.0; 4]),
                &PlacementError::Translation([0.0, 1.0, 1e20]),
            ],
        ),
        section(
            "SogError",
            &[
                &SogError::Count(7),
                &SogError::Write(denied()),
                &SogError::NotFitted,
                &SogError::ReadBack(FormatFault::Damaged("it ends in the header".to_owned())),
            ],
        ),
        section(
            "SplatsError",
            &[
                &SplatsError::Degree(7),
                &SplatsError::Length { column: "opacity", found: 12, expected: 7 },
            ],
        ),
        section(
            "SpzOptionsError",
            &[
                &SpzOptionsError::ShBits(7),
                &SpzOptionsError::Count(7),
                &SpzOptionsError::Pack(denied()),
            ],
        ),
        section(
            "AtlasError",
            &[
                &AtlasError::NoArea { faces: 1000 },
                &AtlasError::TooLarge { found: 12, most: 8 },
                &AtlasError::TooSmall { charts: 7, side_px: 7 },
                &AtlasError::Square { found: 12 },
                &AtlasError::Overlap { charts: 7, rounds: 7 },
            ],
        ),
        section(
            "MeshError",
            &[
                &MeshError::UnknownVertex { face: 7, vertex: 7, vertices: 500 },
                &MeshError::Unequal { what: "depths", found: 12, vertices: 500 },
                &MeshError::NotFinite { vertex: 7, place: [0.0, 1.0, 2.0] },
                &MeshError::NotFiniteValue { vertex: 7, what: "depths" },
                &MeshError::TooMany { what: "depths", found: 12, limit: 100000 },
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
                    which: "mesh",
                    source: MeshError::UnknownVertex { face: 3, vertex: 9, vertices: 8 },
                },
                &CompareError::NoArea { which: "mesh", faces: 1000 },
                &CompareError::Threshold { found: 0.5 },
            ],
        ),
        section(
            "ExtractError",
            &[
                &ExtractError::TooManyVertices { vertices: 500 },
                &ExtractError::Length { values: 7, bricks: 7 },
            ],
        ),
        section(
            "DelaunayError",
            &[
                &DelaunayError::UnfitPoint { index: 7, point: [0.0, 1.0, f64::NAN] },
                &DelaunayError::TooManyPoints { count: 50, most: 8 },
                &DelaunayError::Flat { distinct: 7 },
                &DelaunayError::TooManyTetrahedra { most: 8 },
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
                    found: "7 values".to_owned(),
                },
                &MeshFileError::Row {
                    path: "mesh.ply".into(),
                    element: "face".to_owned(),
                    row: 17,
                    found: "7 values".to_owned(),
                },
                &MeshFileError::Nothing { path: "mesh.ply".into(), what: "depths" },
                &MeshFileError::UnreadGlb { path: "mesh.ply".into() },
                &MeshFileError::Glb { path: "mesh.ply".into(), found: "7 values".to_owned() },
                &MeshFileError::Mesh {
                    path: "mesh.ply".into(),
                    source: MeshError::UnknownVertex { face: 3, vertex: 9, vertices: 8 },
                },
                &MeshFileError::TooLarge { needed: 13000, limit: 4294967295 },
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
                &PointsError::Lengths { places: 7, normals: 7, colors: 7 },
                &PointsError::TooFew { found: 12, wanted: 7 },
                &PointsError::NotFinite { dropped: 7, count: 50 },
                &PointsError::Inconsistent { agreeing: 0.5, needed: 0.5 },
                &PointsError::BoxTurned { low: [0.0, 1.0, 1e20], high: [0.0, 1.0, 1e20] },
                &PointsError::BoxEmpty {
                    low: [0.0, 1.0, 1e20],
                    high: [0.0, 1.0, 1e20],
                    points_low: [0.0, 1.0, 2.0],
                    points_high: [0.0, 1.0, 2.0],
                },
            ],
        ),
        section(
            "PoissonError",
            &[
                &PoissonError::NoExtent { points: 7 },
                &PoissonError::Depth { depth: 7, deepest: 7 },
                &PoissonError::NotConverged { level: 7, steps: 7, residual: 0.5 },
                &PoissonError::TooManyBricks { depth: 7, bricks: 7, granted: 7, fits: 900 },
                &PoissonError::NoSurface { points: 7 },
            ],
        ),
        section(
            "RestrictedError",
            &[
                &RestrictedError::Neighbours { neighbours: 7, tetrahedra: 7 },
                &RestrictedError::Stray { tetrahedron: 7 },
                &RestrictedError::UnfitTriangle { index: 7, corners: [[0.0, 1.0, f64::NAN]; 3] },
                &RestrictedError::Apart { triangles: 7 },
            ],
        ),
        section(
            "CutError",
            &[
                &CutError::Labels { labels: 7, points: 7 },
                &CutError::Corner { tetrahedron: 7, corner: 7, points: 7 },
                &CutError::OneSide { inside: 7, points: 7 },
                &CutError::NothingLeft { faces: 1000, longest: 0.5 },
            ],
        ),
        section(
            "FusionError",
            &[
                &FusionError::MapSize { map: "depth map", found: 12, width: 1061, height: 1894 },
                &FusionError::Focal { focal_px: [0.0, 500.0] },
                &FusionError::NoSize { side: 0.5, voxel: 0.5 },
                &FusionError::TooFine { side: 0.5, voxel: 0.5, most: 8, fits: 0.5 },
                &FusionError::Empty { views: 43 },
                &FusionError::TooManyBricks { bricks: 7, granted: 7, fits: 0.5 },
                &FusionError::NoSurface { views: 43 },
            ],
        ),
        section(
            "ExchangeError",
            &[
                &ExchangeError::Lost { rank: 1, why: "the connection is closed".to_owned() },
                &ExchangeError::Garbled { rank: 1, found: "7 values".to_owned() },
                &ExchangeError::WrongParts { found: 12, world: 4 },
                &ExchangeError::NothingGiven,
                &ExchangeError::NotTheGiver { rank: 1 },
                &ExchangeError::Aborted,
                &ExchangeError::Stuck { seconds: 60 },
                &ExchangeError::NoSuchRank { rank: 1, world: 4 },
                &ExchangeError::Missing {
                    ranks: vec![1, 3],
                    seconds: 60,
                    trouble: "connection refused".to_owned(),
                },
                &ExchangeError::Unproven { rank: 1, address: ([10, 0, 0, 1], 29500).into() },
                &ExchangeError::System {
                    doing: "open a socket",
                    why: "the connection is closed".to_owned(),
                },
            ],
        ),
        section(
            "JoinError",
            &[
                &JoinError::Missing { ranks: vec![1, 3], world: 4, seconds: 60 },
                &JoinError::Turned { rank: 1, why: "the connection is closed".to_owned() },
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
                &JoinError::System { rank: 1, what: "depths", source: denied() },
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
                &NodeListError::Range { list: "node[01".to_owned(), found: "7 values".to_owned() },
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
                &SuperviseError::System { what: "depths", source: denied() },
            ],
        ),
    ]
}
