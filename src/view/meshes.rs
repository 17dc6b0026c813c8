//! Meshes of a model folder, as glTF.

use std::path::{Path, PathBuf};

use serde::Serialize;
use splat_formats::{CameraSplit, SceneCamera};
use splat_mesh::Mesh;
use splat_mesh::atlas::Atlas;
use splat_mesh::file::{Glb, PaintedMesh, read_glb};

use crate::config::PrimitiveName;
use crate::dataset::Frame;
use crate::export::{
    PlyTriangles, coloured_mesh, frame_of_file, read_ply_model, read_ply_primitive,
};
use crate::files::numbered;
use crate::mesh::convert_mesh;
use crate::model::TriangleMesh;

/// A mesh that can be looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct KnownMesh {
    /// Path in the model folder.
    pub(super) name: String,
    /// Bytes of the file.
    pub(super) bytes: u64,
    #[serde(skip)]
    path: PathBuf,
}

impl KnownMesh {
    /// The mesh as a GLB, in the coordinates of the page; of a model's triangles, in the colours that the training
    /// cameras see.
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

/// All meshes in a model folder, those of the highest iterations first. Links that lead out of the folder
/// are none of it.
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
    // A model of triangles is one itself.
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

/// The point cloud of the highest iteration that was saved, up to `last` where that is said.
pub(super) fn newest_ply(model_path: &Path, last: Option<u32>) -> Option<(u32, PathBuf)> {
    let number = |name: &str| name.strip_prefix("iteration_")?.parse().ok();
    let mut saved = numbered(&model_path.join("point_cloud"), number);
    saved.retain(|(iteration, _)| last.is_none_or(|last| *iteration <= last));
    let saved = saved.into_iter().rev();
    let mut files = saved.map(|(iteration, folder)| (iteration, folder.join("point_cloud.ply")));
    files.find(|(_, ply)| ply.is_file())
}

/// What is in a folder, by name.
fn entries(folder: &Path) -> Vec<PathBuf> {
    let read = std::fs::read_dir(folder).into_iter().flatten();
    let mut paths: Vec<PathBuf> = read.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.sort();
    paths
}

fn is_glb(path: &Path) -> bool {
    path.extension().is_some_and(|kind| kind.eq_ignore_ascii_case("glb")) && path.is_file()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[cfg(unix)]
    #[test]
    fn what_a_link_shows_outside_of_the_folder_is_no_mesh() {
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
}
