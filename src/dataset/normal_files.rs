//! The maps of normals of photographs, and the axes that they are in.
//!
//! `NORMALS/a.png` belongs to the photograph `a.jpg`, and so does `NORMALS/a.jpg` where there is no such PNG.

use std::path::{Path, PathBuf};

use super::camera::{Pose, View};
use super::found_maps::FoundMaps;
use super::image::check_normals;
use super::listing::first_few;
use super::source::{ImageSource, NormalFile};
use crate::config::NormalsFrame;
use crate::math::linalg::Mat3;

/// What their names may end in; the first that is there counts.
const EXTENSIONS: [&str; 6] = ["png", "PNG", "jpg", "JPG", "jpeg", "JPEG"];

/// What is wrong with the normals of a scene.
#[derive(Debug, thiserror::Error)]
pub enum NormalsError {
    /// The folder is missing.
    #[error(
        "{path}: there is no such folder. Name the folder of the normal maps, relative to the scene, after \
         --normals, or leave it out"
    )]
    FolderMissing {
        /// The folder.
        path: PathBuf,
    },
    /// No photograph has a map that can be used.
    #[error(
        "{path}: holds no usable normal map of the {views} training photographs: {reasons}. Name the map of a.jpg \
         a.png, or leave --normals out"
    )]
    NoneFits {
        /// The folder.
        path: PathBuf,
        /// Photographs trained on.
        views: usize,
        /// Why, for the first few.
        reasons: String,
    },
}

/// The maps of those views that are trained on. Views without a map, or with what is none, go without one.
pub(super) fn find(
    folder: PathBuf,
    frame: NormalsFrame,
    views: &[View],
    sources: &[ImageSource],
    train: &[usize],
) -> Result<FoundMaps<NormalFile>, NormalsError> {
    if !folder.is_dir() {
        return Err(NormalsError::FolderMissing { path: folder });
    }
    let names = train.iter().map(|&index| (views[index].name.as_str(), index));
    let found = FoundMaps::of(names, |stem, index| {
        let path = file(&folder, stem).ok_or_else(|| "no map".to_owned())?;
        check_normals(&path, &sources[index]).map_err(|error| error.to_string())?;
        let pose = &views[index].pose;
        Ok::<_, String>(NormalFile { path, cam_from_map: cam_from_map(frame, pose) })
    });
    if found.files.is_empty() {
        let reasons = first_few(&found.without);
        return Err(NormalsError::NoneFits { path: folder, views: found.views, reasons });
    }
    Ok(found)
}

fn file(folder: &Path, stem: &str) -> Option<PathBuf> {
    let path = |extension: &&str| folder.join(format!("{stem}.{extension}"));
    EXTENSIONS.iter().map(path).find(|path| path.is_file())
}

/// From these axes to those of a camera.
fn cam_from_map(frame: NormalsFrame, pose: &Pose) -> Mat3<f64> {
    match frame {
        NormalsFrame::Camera => [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]],
        NormalsFrame::Opengl => [[1.0, 0.0, 0.0], [0.0, -1.0, 0.0], [0.0, 0.0, -1.0]],
        NormalsFrame::Inverted => [[-1.0, 0.0, 0.0], [0.0, -1.0, 0.0], [0.0, 0.0, -1.0]],
        NormalsFrame::World => pose.rotation,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use image::{Luma, Rgb};

    use super::*;
    use crate::dataset::{AlphaMeaning, Camera};
    use crate::math::linalg::{mul, mul_transposed, normalize};

    const POSE: Pose = Pose {
        rotation: [[0.0, -0.6, 0.8], [1.0, 0.0, 0.0], [0.0, 0.8, 0.6]],
        translation: [3.0, 2.0, 1.0],
    };

    fn folder(maps: &[&str]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("left")).unwrap();
        for map in maps {
            image::RgbImage::from_pixel(4, 3, Rgb([128, 128, 0]))
                .save_with_format(folder.path().join(map), image::ImageFormat::Png)
                .unwrap();
        }
        folder
    }

    /// Photographs that are their own maps.
    fn source(folder: &Path, name: &str) -> ImageSource {
        ImageSource {
            path: folder.join(name),
            mask: None,
            full_size: [4, 3],
            size: [4, 3],
            apply_orientation: false,
            undistort: None,
            alpha: AlphaMeaning::Mask,
            depth: None,
            normals: None,
        }
    }

    fn found(path: PathBuf, names: &[&str]) -> Result<FoundMaps<NormalFile>, NormalsError> {
        let camera = Camera { width: 4, height: 3, focal_px: [4.0; 2], centre_px: [2.0, 1.5] };
        let view = |name: &&str| View { name: (*name).to_owned(), camera, pose: POSE };
        let views: Vec<View> = names.iter().map(view).collect();
        let sources: Vec<_> = names.iter().map(|name| source(&path, name)).collect();
        find(path, NormalsFrame::World, &views, &sources, &(0..views.len()).collect::<Vec<_>>())
    }

    #[test]
    fn normal_maps_match_photograph_names_and_a_png_goes_first() {
        let folder = folder(&["a.png", "a.jpg", "left/b.jpeg", "c.JPG", "d.tiff"]);
        let names = ["a.jpg", "left/b.JPG", "c.png", "d.jpg", "e.jpg"];
        let maps = found(folder.path().to_owned(), &names).unwrap();
        let files = maps.files.iter().map(|(index, file)| {
            (*index, file.path.strip_prefix(folder.path()).unwrap().to_str().unwrap())
        });
        let files: Vec<_> = files.collect();
        assert_eq!(files, [(0, "a.png"), (1, "left/b.jpeg"), (2, "c.JPG")]);
        let warning = maps.warning("normals").unwrap();
        for part in ["2 of 5", "their normals", "d.jpg (no map), e.jpg (no map)"] {
            assert!(warning.contains(part), "no `{part}` in {warning}");
        }
    }

    #[test]
    fn a_normal_of_any_axes_becomes_that_of_the_camera() {
        let normal = normalize([0.3, -0.5, -0.7]);
        let [x, y, z] = normal;
        for (frame, stored) in [
            (NormalsFrame::Camera, normal),
            (NormalsFrame::Opengl, [x, -y, -z]),
            (NormalsFrame::Inverted, [-x, -y, -z]),
            (NormalsFrame::World, mul_transposed(&POSE.rotation, normal)),
        ] {
            let turned = mul(&cam_from_map(frame, &POSE), stored);
            let apart = [0, 1, 2].map(|i| (turned[i] - normal[i]).abs());
            assert!(apart.iter().all(|&apart| apart < 1e-15), "{frame:?}: {turned:?}");
        }
    }

    #[test]
    fn what_is_no_map_is_known_by_its_header_and_why() {
        let folder = folder(&["a.jpg", "b.jpg"]);
        image::GrayImage::from_pixel(4, 3, Luma([9])).save(folder.path().join("b.png")).unwrap();
        image::RgbImage::new(3, 4).save(folder.path().join("c.png")).unwrap();
        fs::copy(folder.path().join("a.jpg"), folder.path().join("c.jpg")).unwrap();
        fs::write(folder.path().join("d.png"), "text").unwrap();
        let maps = found(folder.path().to_owned(), &["a.jpg", "b.jpg", "c.jpg", "d.jpg"]).unwrap();
        assert_eq!(maps.files.iter().map(|(index, _)| *index).collect::<Vec<_>>(), [0]);
        let parts = ["is no normal map", "has 3x4 px", "neither JPEG"];
        for (reason, part) in maps.without.iter().zip(parts) {
            assert!(reason.contains(part), "no `{part}` in: {reason}");
        }
        let error = found(folder.path().to_owned(), &["b.jpg"]).unwrap_err().to_string();
        assert!(error.contains("b.jpg (") && error.contains("is no normal map"), "{error}");
    }

    #[test]
    fn errors_name_the_folder_and_the_remedy() {
        let folder = folder(&["b.png"]);
        let missing = found(folder.path().join("nowhere"), &["a.jpg"]);
        let fits_nothing = found(folder.path().to_owned(), &["a.jpg", "c.jpg"]);
        for (result, parts) in [
            (missing, ["nowhere", "no such folder", "--normals"]),
            (fits_nothing, ["of the 2", "a.png", "--normals"]),
        ] {
            let error = result.unwrap_err().to_string();
            for part in parts {
                assert!(error.contains(part), "no `{part}` in: {error}");
            }
        }
    }
}
