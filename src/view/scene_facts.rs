//! Facts of a scene for the page: cameras, photographs, points and meshes.

use std::path::{Path, PathBuf};

use image::codecs::jpeg::JpegEncoder;
use image::imageops::{FilterType, resize};
use image::{ExtendedColorType, ImageEncoder as _, RgbImage};
use serde::Serialize;
use serde_json::{Map, Value};
use splat_formats::{CameraSplit, SceneCamera, middle_and_radius};
use splat_mesh::Mesh;
use splat_mesh::atlas::Atlas;
use splat_mesh::file::{Glb, PaintedMesh, read_glb};
use splat_mesh::narrow::to_f32s;

use crate::config::PrimitiveName;
use crate::dataset::points_ply::{PointsPlyError, read_points_ply};
use crate::dataset::{Frame, ImageError, ImageSource, PointCloud, decode};
use crate::export::{
    PlyTriangles, coloured_mesh, frame_of_file, read_ply_model, read_ply_primitive,
};
use crate::files::{entries, numbered};
use crate::mesh::convert_mesh;
use crate::model::TriangleMesh;

/// Approximate up direction in COLMAP's axes.
pub(super) const UP: [f64; 3] = [0.0, -1.0, 0.0];

/// A camera of the page.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ViewedCamera {
    /// Position, orientation and lens.
    #[serde(flatten)]
    pub camera: SceneCamera,
    /// True if the photograph is available.
    pub has_photo: bool,
    /// PSNR of a held-out view in the newest evaluation, dB.
    pub psnr: Option<f64>,
}

/// The cameras of a model.
#[derive(Clone, Debug, Default)]
pub struct KnownCameras {
    /// The cameras in the order of their names.
    pub cameras: Vec<SceneCamera>,
    /// Indices of held-out cameras in the order of their evaluation.
    pub held_out: Vec<usize>,
}

impl KnownCameras {
    /// Finds the held-out cameras by their splits.
    pub fn in_order(cameras: Vec<SceneCamera>) -> Self {
        let is_held_out = |&index: &usize| cameras[index].split == CameraSplit::HeldOut;
        let held_out = (0..cameras.len()).filter(is_held_out).collect();
        Self { cameras, held_out }
    }
}

#[derive(Debug, Serialize)]
pub(super) struct SceneFacts<'a> {
    pub(super) title: &'a str,
    pub(super) primitive: PrimitiveName,
    pub(super) antialiased: bool,
    pub(super) sh_degree: u32,
    /// Centre of the scene, scene units.
    pub(super) center: [f32; 3],
    /// Radius of most of the scene around the centre, scene units; above 0.
    pub(super) radius: f32,
    pub(super) up: [f64; 3],
    pub(super) cameras: Vec<ViewedCamera>,
    pub(super) points: usize,
    pub(super) meshes: Vec<KnownMesh>,
    /// True if the page cannot control a run.
    pub(super) read_only: bool,
}

/// Returns the centre and the radius of a scene from its points, or from its cameras without points.
pub(super) fn extent_of(points: &[[f32; 3]], cameras: &[SceneCamera]) -> ([f32; 3], f32) {
    if !points.is_empty() {
        return middle_and_radius(points);
    }
    let places: Vec<_> = cameras.iter().map(|camera| to_f32s(camera.position)).collect();
    middle_and_radius(&places)
}

/// Returns the PSNR (dB) of held-out views by their number in the split, from the newest evaluation in the model
/// folder's `per_view.json`.
pub(super) fn measured(model_path: &Path) -> Vec<(usize, f64)> {
    let read = std::fs::read(model_path.join("per_view.json")).ok();
    let all: Option<Map<String, Value>> =
        read.and_then(|bytes| serde_json::from_slice(&bytes).ok());
    let number = |key: &str| key.strip_prefix("ours_")?.parse::<u32>().ok();
    let newest = all
        .iter()
        .flatten()
        .filter_map(|(key, value)| Some((number(key)?, value)))
        .max_by_key(|(iteration, _)| *iteration);
    let views = newest.and_then(|(_, value)| value.get("PSNR")?.as_object());
    let view = |(name, value): (&String, &Value)| {
        Some((name.strip_suffix(".png")?.parse().ok()?, value.as_f64()?))
    };
    views.into_iter().flatten().filter_map(view).collect()
}

// Meshes of a model folder, as glTF.

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct KnownMesh {
    pub(super) name: String,
    pub(super) bytes: u64,
    #[serde(skip)]
    path: PathBuf,
}

impl KnownMesh {
    /// Returns the mesh as a GLB in the coordinates of the page. A model's triangles get the colours that the
    /// training cameras see.
    pub(super) fn glb(&self, cameras: &[SceneCamera], frame: &Frame) -> Result<Vec<u8>, String> {
        let unreadable =
            |error: &dyn std::fmt::Display| format!("{}: {error}", self.path.display());
        let file = frame_of_file(&self.path).map_err(|error| error.to_string())?;
        if is_glb(&self.path) && file == *frame {
            return std::fs::read(&self.path).map_err(|error| unreadable(&error));
        }
        if is_glb(&self.path) {
            let read = read_glb(&self.path).map_err(|error| error.to_string())?;
            let PaintedMesh { mut mesh, texture } = read;
            convert_mesh(&mut mesh, &file, frame);
            let png = texture.as_ref().map(|texture| texture.picture.png()).transpose();
            let png = png.map_err(|error| unreadable(&error))?;
            let texture = texture.as_ref().map(|texture| &texture.atlas).zip(png.as_deref());
            return glb_of(&mesh, texture).map_err(|error| unreadable(&error));
        }
        let mut model = read_ply_model(&self.path).map_err(|error| error.to_string())?;
        model.gaussians.convert(&file, frame);
        let faces = model.triangles.map_or_else(Vec::new, |PlyTriangles { faces, .. }| faces);
        let training = |camera: &&SceneCamera| camera.split == CameraSplit::Training;
        let cameras: Vec<SceneCamera> = cameras.iter().filter(training).cloned().collect();
        let mesh = coloured_mesh(&TriangleMesh { vertices: model.gaussians, faces }, &cameras);
        glb_of(&mesh, None).map_err(|error| unreadable(&error))
    }
}

fn glb_of(mesh: &Mesh, texture: Option<(&Atlas, &[u8])>) -> anyhow::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    Glb::new(mesh, texture)?.write(&mut bytes)?;
    Ok(bytes)
}

/// Returns all meshes in a model folder, highest iterations first. Ignores links that lead out of the folder.
pub(super) fn meshes_of(model_path: &Path) -> Vec<KnownMesh> {
    let Ok(root) = model_path.canonicalize() else { return Vec::new() };
    let is_inside = |path: &Path| path.canonicalize().is_ok_and(|path| path.starts_with(&root));
    let mut found = Vec::new();
    for (below, is_deep) in [("mesh", false), ("refined", true)] {
        let number = |name: &str| name.strip_prefix("iteration_")?.parse().ok();
        for (iteration, folder) in numbered(&model_path.join(below), number) {
            let folders = if is_deep { entries(&folder) } else { vec![folder] };
            let files = folders.iter().flat_map(|folder| entries(folder));
            found.extend(
                files.filter(|file| is_glb(file) && is_inside(file)).map(|file| (iteration, file)),
            );
        }
    }
    // A model of triangles is a mesh itself.
    let of_triangles = |path: &Path| {
        read_ply_primitive(path).is_ok_and(|primitive| primitive == PrimitiveName::Triangles)
    };
    found.extend(newest_ply(model_path, None).filter(|(_, ply)| of_triangles(ply)));
    found.sort_by_key(|(iteration, _)| std::cmp::Reverse(*iteration));
    let known = |(_, path): (u32, PathBuf)| {
        let name = path.strip_prefix(model_path).ok()?.to_str()?.replace('\\', "/");
        Some(KnownMesh { name, bytes: path.metadata().ok()?.len(), path })
    };
    found.into_iter().filter_map(known).collect()
}

/// Returns the saved point cloud of the highest iteration, at most `last` if given.
pub(super) fn newest_ply(model_path: &Path, last: Option<u32>) -> Option<(u32, PathBuf)> {
    let number = |name: &str| name.strip_prefix("iteration_")?.parse().ok();
    let mut saved = numbered(&model_path.join("point_cloud"), number);
    saved.retain(|(iteration, _)| last.is_none_or(|last| *iteration <= last));
    let saved = saved.into_iter().rev();
    let mut files = saved.map(|(iteration, folder)| (iteration, folder.join("point_cloud.ply")));
    files.find(|(_, ply)| ply.is_file())
}

fn is_glb(path: &Path) -> bool {
    path.extension().is_some_and(|kind| kind.eq_ignore_ascii_case("glb")) && path.is_file()
}

// Initial points of the training.

const MAX_POINTS: usize = 500_000;

/// Returns the points of a model folder in the coordinates of a frame; `None` without `input.ply`.
pub(super) fn points_of(
    model_path: &Path,
    frame: &Frame,
) -> Result<Option<PointCloud>, PointsPlyError> {
    let path = model_path.join("input.ply");
    if !path.is_file() {
        return Ok(None);
    }
    read_points_ply(&path).map(|read| Some(read.points.converted(&Frame::SCENE, frame)))
}

/// Packs points for the page: for each point the position as three little-endian `f32`, three bytes of colour and a
/// zero. Takes an even selection of more than [`MAX_POINTS`] points.
pub(super) fn packed(points: &PointCloud) -> Vec<u8> {
    let step = points.positions.len().div_ceil(MAX_POINTS).max(1);
    let rows = points.positions.iter().zip(&points.colors).step_by(step);
    let row = |(position, color): (&[f32; 3], &[u8; 3])| {
        let [x, y, z] = position.map(f32::to_le_bytes);
        let [r, g, b] = *color;
        [x, y, z, [r, g, b, 0]].into_iter().flatten()
    };
    rows.flat_map(row).collect()
}

// Photographs for a page, as the trainer sees them.

/// Quality of the JPEG, of 100; high enough that differences to a render are the model's.
const JPEG_QUALITY: u8 = 95;

#[derive(Debug, thiserror::Error)]
pub(super) enum PhotographError {
    #[error("there is no photograph of this camera")]
    Missing,
    #[error(transparent)]
    Image(#[from] ImageError),
    #[error("the photograph cannot be made a JPEG: {0}")]
    Jpeg(#[from] image::ImageError),
}

/// Sources of the cameras' photographs, in the order of the cameras.
#[derive(Clone, Debug, Default)]
pub struct ShownPhotographs(Vec<ImageSource>);

impl ShownPhotographs {
    /// Takes the sources in the order of the cameras.
    pub fn of(sources: Vec<ImageSource>) -> Self {
        Self(sources)
    }

    pub(super) fn has(&self, index: usize) -> bool {
        index < self.0.len()
    }

    /// Encodes a photograph as a JPEG of at most this width, px.
    pub(super) fn jpeg(&self, index: usize, width: u32) -> Result<Vec<u8>, PhotographError> {
        let source = self.0.get(index).ok_or(PhotographError::Missing)?;
        let decoded = decode(source)?;
        let size = [decoded.width, decoded.height];
        let picture = RgbImage::from_raw(size[0], size[1], decoded.rgb);
        let mut picture = picture.ok_or(PhotographError::Missing)?;
        if width < size[0] {
            let height = u64::from(size[1]) * u64::from(width) / u64::from(size[0]);
            let height = u32::try_from(height).unwrap_or(u32::MAX).max(1);
            picture = resize(&picture, width.max(1), height, FilterType::Triangle);
        }
        let mut jpeg = Vec::new();
        let encoder = JpegEncoder::new_with_quality(&mut jpeg, JPEG_QUALITY);
        let (width, height) = picture.dimensions();
        encoder.write_image(&picture, width, height, ExtendedColorType::Rgb8)?;
        Ok(jpeg)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn views_have_the_figures_of_the_newest_evaluation() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(measured(folder.path()), []);
        let text = r#"{"ours_900": {"PSNR": {"00000.png": 20.0}}, "ours_30000": {"SSIM": {"00000.png": 0.5},
            "PSNR": {"00000.png": 27.5, "00001.png": 26.25, "00002.png": null}}, "other": 3}"#;
        fs::write(folder.path().join("per_view.json"), text).unwrap();
        assert_eq!(measured(folder.path()), [(0, 27.5), (1, 26.25)]);
        fs::write(folder.path().join("per_view.json"), "{\"ours_").unwrap();
        assert_eq!(measured(folder.path()), []);
    }

    #[test]
    fn a_scene_without_points_is_as_large_as_its_cameras() {
        let camera = |x: f64| SceneCamera {
            name: String::new(),
            position: [x, 0.0, 0.0],
            rotation: [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]],
            focal_px: [1.0; 2],
            principal_px: [1.0; 2],
            size_px: [2; 2],
            split: CameraSplit::Training,
        };
        let cameras: Vec<_> = (0..10_u8).map(|x| camera(f64::from(x))).collect();
        let (center, radius) = extent_of(&[], &cameras);
        assert_eq!((center, radius), ([5.0, 0.0, 0.0], 5.0));
        assert_eq!(extent_of(&[], &[]), ([0.0; 3], 1.0));
        assert_eq!(extent_of(&[[7.0; 3]; 4], &cameras).0, [7.0; 3]);
    }

    #[cfg(unix)]
    #[test]
    fn links_out_of_the_folder_are_no_meshes() {
        let [model, other] = [0, 1].map(|_| tempfile::tempdir().unwrap());
        let folder = model.path().join("mesh/iteration_7");
        fs::create_dir_all(&folder).unwrap();
        fs::write(other.path().join("secret.glb"), "secret").unwrap();
        fs::write(model.path().join("own.glb"), "own").unwrap();
        let link = |to: &Path, name: &str| std::os::unix::fs::symlink(to, folder.join(name));
        link(&other.path().join("secret.glb"), "a.glb").unwrap();
        link(&model.path().join("own.glb"), "b.glb").unwrap();
        let names: Vec<String> = meshes_of(model.path()).into_iter().map(|it| it.name).collect();
        assert_eq!(names, ["mesh/iteration_7/b.glb"]);
    }

    #[test]
    fn meshes_of_all_stages_are_listed_the_newest_first() {
        let model = tempfile::tempdir().unwrap();
        for name in [
            "mesh/iteration_700/tsdf.glb",
            "mesh/iteration_700/tsdf.ply",
            "mesh/iteration_15000/poisson.glb",
            "mesh/iteration_15000/b.GLB",
            "mesh/other.glb",
            "refined/iteration_2000/poisson/mesh.glb",
        ] {
            let path = model.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "glTF").unwrap();
        }
        let names: Vec<String> = meshes_of(model.path()).into_iter().map(|it| it.name).collect();
        let expected = [
            "mesh/iteration_15000/b.GLB",
            "mesh/iteration_15000/poisson.glb",
            "refined/iteration_2000/poisson/mesh.glb",
            "mesh/iteration_700/tsdf.glb",
        ];
        assert_eq!(names, expected);
        assert_eq!(meshes_of(model.path())[0].bytes, 4);
    }

    #[test]
    fn a_point_is_sixteen_bytes_and_many_are_thinned() {
        let points = PointCloud { positions: vec![[1.0, -2.0, 0.5]], colors: vec![[1, 2, 255]] };
        let expected = [0, 0, 0x80, 0x3f, 0, 0, 0, 0xc0, 0, 0, 0, 0x3f, 1, 2, 255, 0];
        assert_eq!(packed(&points), expected);
        let count = 3 * MAX_POINTS + 1;
        let points = PointCloud { positions: vec![[0.0; 3]; count], colors: vec![[7; 3]; count] };
        assert_eq!(packed(&points).len(), 16 * count.div_ceil(4));
    }

    #[test]
    fn damaged_points_are_errors_and_missing_ones_are_not() {
        let folder = tempfile::tempdir().unwrap();
        assert!(points_of(folder.path(), &Frame::SCENE).unwrap().is_none());
        fs::write(folder.path().join("input.ply"), "plx").unwrap();
        let refused = points_of(folder.path(), &Frame::SCENE).unwrap_err();
        assert!(refused.to_string().contains("input.ply"), "{refused}");
    }
}
