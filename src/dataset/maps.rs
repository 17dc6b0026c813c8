//! Maps of inverse depths with their scales, maps of normals, and masks.
//!
//! Inverse depths are laid out as for 3D Gaussian splatting's trainer: `DEPTHS/a.png` belongs to the photograph
//! `a.jpg`, and `depth_params.json` beside the COLMAP model has an entry `"a": {"scale": s, "offset": o}`.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::camera::{Pose, View, stem};
use super::finder::{Finder, Reach, Wanted, first_few, utf8};
use super::image::check_normals;
use super::shot::{DepthFile, ImageSource, NormalFile, Shot};
use super::transforms::Frame;
use crate::config::NormalsFrame;
use crate::files::JsonFault;
use crate::math::Real as _;
use crate::math::linalg::Mat3;
use crate::math::quantile::median;

/// The file of the scales, in the folder of the COLMAP model.
pub(super) const PARAMETERS: &str = "depth_params.json";

/// Largest valid scale and offset, per world unit.
const MAX_VALUE: f64 = 1e12;

/// Scales below this share of the median are rejected.
const SCALE_SHARE_MIN: f64 = 0.2;

/// Scales above this multiple of the median are rejected.
const SCALE_SHARE_MAX: f64 = 5.0;

/// Fault of a scene's inverse depths.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages explain variants and fields")]
pub enum DepthsError {
    #[error(
        "{path}: there is no such folder. Name the folder of the depth maps, relative to the scene, after \
         -d, or leave it out"
    )]
    FolderMissing { path: PathBuf },
    #[error(
        "{path}: the scales of the depth maps cannot be read: {source}. Make the file with the \
         make_depth_scale.py of 3DGS, or leave -d out"
    )]
    ParametersMissing { path: PathBuf, source: std::io::Error },
    #[error(
        "{path}: {source}. Make the file again: {{\"NAME\": {{\"scale\": 1.0, \"offset\": 0.0}}, ...}} with an entry \
         for each photograph"
    )]
    ParametersDamaged { path: PathBuf, source: JsonFault },
    #[error(
        "{path}: the {key} of {name:?} is {value:e}, beyond {MAX_VALUE:e}. Make the file again with the \
         make_depth_scale.py of 3D Gaussian splatting"
    )]
    TooLarge { path: PathBuf, name: String, key: &'static str, value: f64 },
    #[error(
        "{path}: none of the {views} training photographs has a map there and a scale above 0 in {parameters}. Name the \
         map of a.jpg a.png, or leave -d out"
    )]
    NoneFits { path: PathBuf, parameters: PathBuf, views: usize },
}

#[derive(Clone, Copy, Debug, Deserialize)]
struct DepthScale {
    scale: f64,
    offset: f64,
}

/// Finds the maps of views, given by name and index. Views without a map or an entry, or whose scale is not above 0
/// or is far from the median, get none.
pub(super) fn find_depths<'a>(
    folder: PathBuf,
    parameters: &Path,
    views: impl Iterator<Item = (&'a str, usize)>,
) -> Result<FoundMaps<DepthFile>, DepthsError> {
    if !folder.is_dir() {
        return Err(DepthsError::FolderMissing { path: folder });
    }
    let fits = read(parameters)?;
    let median = median(fits.values().map(|fit| fit.scale).filter(|&scale| scale > 0.0));
    let found = FoundMaps::of(views, |stem, _| {
        fitting(&folder.join(format!("{stem}.png")), fits.get(stem), median)
    });
    if found.files.is_empty() {
        let parameters = parameters.to_owned();
        return Err(DepthsError::NoneFits { path: folder, parameters, views: found.views });
    }
    Ok(found)
}

fn read(path: &Path) -> Result<BTreeMap<String, DepthScale>, DepthsError> {
    let text = fs::read(path)
        .map_err(|source| DepthsError::ParametersMissing { path: path.to_owned(), source })?;
    let text = utf8(&text);
    let fits: BTreeMap<String, DepthScale> = serde_json::from_slice(&text).map_err(|error| {
        let source = JsonFault::new(&text, &error);
        DepthsError::ParametersDamaged { path: path.to_owned(), source }
    })?;
    // Such values would make the loss NaN.
    for (name, fit) in &fits {
        for (key, value) in [("scale", fit.scale), ("offset", fit.offset)] {
            if value.abs() > MAX_VALUE {
                let (path, name) = (path.to_owned(), name.clone());
                return Err(DepthsError::TooLarge { path, name, key, value });
            }
        }
    }
    Ok(fits)
}

/// Returns the map with its fit, or the reason why it is not used.
fn fitting(path: &Path, fit: Option<&DepthScale>, median: f64) -> Result<DepthFile, &'static str> {
    let &DepthScale { scale, offset } = fit.ok_or("no entry in depth_params.json")?;
    // Also rejects NaN.
    if !(scale > 0.0 && scale.is_finite() && offset.is_finite()) {
        return Err("its scale is not above 0");
    }
    if !(SCALE_SHARE_MIN * median..=SCALE_SHARE_MAX * median).contains(&scale) {
        return Err("its scale is far from the others'");
    }
    if !path.is_file() {
        return Err("no map");
    }
    Ok(DepthFile { path: path.to_owned(), scale: scale.to_f32(), offset: offset.to_f32() })
}

// Maps of normals, and their axes. `NORMALS/a.png` belongs to the photograph `a.jpg`, else `NORMALS/a.jpg`.

/// Extensions of normal maps, in search order.
const EXTENSIONS: [&str; 6] = ["png", "PNG", "jpg", "JPG", "jpeg", "JPEG"];

/// Fault of a scene's normals.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages explain variants and fields")]
pub enum NormalsError {
    #[error(
        "{path}: there is no such folder. Name the folder of the normal maps, relative to the scene, after \
         --normals, or leave it out"
    )]
    FolderMissing { path: PathBuf },
    #[error(
        "{path}: holds no usable normal map of the {views} training photographs: {reasons}. Name the map of a.jpg \
         a.png, or leave --normals out"
    )]
    NoneFits { path: PathBuf, views: usize, reasons: String },
}

/// Finds the maps of the training views. Views without a valid map get none.
pub(super) fn find_normals(
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

fn cam_from_map(frame: NormalsFrame, pose: &Pose) -> Mat3<f64> {
    match frame {
        NormalsFrame::Camera => [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]],
        NormalsFrame::Opengl => [[1.0, 0.0, 0.0], [0.0, -1.0, 0.0], [0.0, 0.0, -1.0]],
        NormalsFrame::Inverted => [[-1.0, 0.0, 0.0], [0.0, -1.0, 0.0], [0.0, 0.0, -1.0]],
        NormalsFrame::World => pose.rotation,
    }
}

// Masks of photographs: named by the scene, or in a folder `masks`.

/// Names of the folder of masks, which lies beside the folder of the photographs.
const FOLDERS: [&str; 3] = ["masks", "mask", "Masks"];

#[derive(Debug)]
pub(super) struct Masks {
    finder: Option<Finder>,
}

impl Masks {
    /// Finds the folder of masks beside the photographs, else in the scene.
    pub(super) fn beside(photographs: &Path, root: &Path) -> Self {
        let above = photographs.parent().filter(|above| above.starts_with(root));
        let mut folders = above.into_iter().chain([root]);
        let folder = folders.find_map(|above| {
            FOLDERS.iter().map(|name| above.join(name)).find(|folder| folder.is_dir())
        });
        Self { finder: folder.map(|folder| Finder::new(folder, Reach::Anywhere)) }
    }

    /// Finds the masks of photographs: for `a.jpg`, `a.jpg.png`, else `a.png`.
    pub(super) fn find(&self, names: &[&str]) -> Vec<Option<PathBuf>> {
        match &self.finder {
            Some(finder) => finder.find(names, Wanted::Mask).paths,
            None => vec![None; names.len()],
        }
    }

    /// Finds the masks that frames name. Returns them by frame, and a warning of missing ones.
    pub(super) fn named(
        frames: &[Frame],
        in_scene: &Finder,
    ) -> (Vec<Option<PathBuf>>, Option<String>) {
        let names: Vec<&str> = frames.iter().filter_map(|frame| frame.mask.as_deref()).collect();
        let mut found = in_scene.find(&names, Wanted::Photograph).paths.into_iter();
        let mut missing = Vec::new();
        let mask = |frame: &Frame| {
            let name = frame.mask.as_ref()?;
            let file = found.next().flatten();
            if file.is_none() {
                missing.push(name.clone());
            }
            file
        };
        let files = frames.iter().map(mask).collect();
        let warning = (!missing.is_empty()).then(|| {
            format!(
                "{} masks are missing, their photographs are used whole: {}",
                missing.len(),
                first_few(&missing)
            )
        });
        (files, warning)
    }

    /// Warns of photographs without a mask in the folder.
    pub(super) fn without_use(&self, shots: &[Shot]) -> Option<String> {
        let folder = &self.finder.as_ref()?.folder;
        let without = shots.iter().filter(|shot| shot.mask.is_none()).count();
        (without > 0).then(|| {
            format!(
                "{}: holds no mask for {without} of {} photographs, which are used whole. The mask \
                 of a.jpg is a.jpg.png or a.png",
                folder.display(),
                shots.len()
            )
        })
    }
}

#[derive(Debug)]
pub(super) struct FoundMaps<F> {
    /// Maps with the index of their view.
    pub(super) files: Vec<(usize, F)>,
    /// Photographs without a map, each with the reason.
    pub(super) without: Vec<String>,
    /// Number of searched photographs.
    pub(super) views: usize,
}

impl<F> FoundMaps<F> {
    /// Finds the maps of views, given by name and index. `file` returns the map of a stem and an index, or the reason
    /// why there is none.
    pub(super) fn of<'a, R: Display>(
        views: impl Iterator<Item = (&'a str, usize)>,
        file: impl Fn(&str, usize) -> Result<F, R>,
    ) -> Self {
        let mut found = Self { files: Vec::new(), without: Vec::new(), views: 0 };
        for (name, index) in views {
            found.views += 1;
            match file(stem(name), index) {
                Ok(file) => found.files.push((index, file)),
                Err(reason) => found.without.push(format!("{name} ({reason})")),
            }
        }
        found
    }

    /// Warns of photographs without a map of this kind.
    pub(super) fn warning(&self, of: &str) -> Option<String> {
        let Self { without, views, .. } = self;
        (!without.is_empty()).then(|| {
            let named = first_few(without);
            format!(
                "{} of {views} photographs are trained without their {of}: {named}",
                without.len()
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use image::{Luma, Rgb};

    use super::*;
    use crate::dataset::Camera;
    use crate::files::assert_parts;
    use crate::math::linalg::{mul, mul_transposed, normalize};

    fn parameters_of(scene: &tempfile::TempDir) -> PathBuf {
        scene.path().join("sparse/0").join(PARAMETERS)
    }

    fn scene(parameters: &str, maps: &[&str]) -> tempfile::TempDir {
        let scene = tempfile::tempdir().unwrap();
        fs::create_dir_all(scene.path().join("sparse/0")).unwrap();
        fs::create_dir_all(scene.path().join("depths/left")).unwrap();
        fs::write(parameters_of(&scene), parameters).unwrap();
        for map in maps {
            fs::write(scene.path().join("depths").join(map), "").unwrap();
        }
        scene
    }

    fn found(
        scene: &tempfile::TempDir,
        names: &[&str],
    ) -> Result<FoundMaps<DepthFile>, DepthsError> {
        let views = names.iter().copied().zip(0..);
        find_depths(scene.path().join("depths"), &parameters_of(scene), views)
    }

    #[test]
    fn depth_maps_match_photograph_names_and_outlier_scales_are_left_out() {
        let parameters = r#"{
            "a": {"scale": 1.0, "offset": 0.25}, "left/b": {"scale": 0.2, "offset": 0, "error": 3},
            "c": {"scale": 5.01, "offset": 0}, "d": {"scale": 5.0, "offset": -1},
            "e": {"scale": 0.19, "offset": 0}, "f": {"scale": 0, "offset": 0},
            "g": {"scale": 1.0, "offset": 0}, "h": {"scale": -4, "offset": 0}
        }"#;
        let maps = ["a.png", "left/b.png", "c.png", "d.png", "e.png", "f.png", "h.png", "i.png"];
        let scene = scene(parameters, &maps);
        let names =
            ["a.jpg", "left/b.JPG", "c.jpg", "d.png", "e.jpg", "f.jpg", "g.jpg", "h.jpg", "i.jpg"];
        let maps = found(&scene, &names).unwrap();
        let (files, warning) = (&maps.files, maps.warning("inverse depths").unwrap());
        let used: Vec<(usize, f32, f32)> =
            files.iter().map(|(index, file)| (*index, file.scale, file.offset)).collect();
        assert_eq!(used, [(0, 1.0, 0.25), (1, 0.2, 0.0), (3, 5.0, -1.0)]);
        assert!(files[1].1.path.ends_with("depths/left/b.png"), "{files:?}");
        let parts =
            ["6 of 9", "c.jpg (its scale is far", "e.jpg", "f.jpg (its scale is not", "3 more"];
        assert_parts(&warning, &parts);
    }

    #[test]
    fn errors_of_depths_name_the_file_and_the_remedy() {
        let entry = r#"{"a": {"scale": 1.0, "offset": 0.0}}"#;
        let missing = find_depths("nowhere".into(), Path::new("a.json"), [("a", 0)].into_iter());
        let damaged = found(&scene("{\"a\": 3}", &["a.png"]), &["a.jpg"]);
        let large =
            found(&scene(r#"{"a": {"scale": 1.0, "offset": -1e13}}"#, &["a.png"]), &["a.jpg"]);
        let fits_nothing = found(&scene(entry, &["b.png"]), &["a.jpg", "b.jpg"]);
        let without = scene(entry, &["a.png"]);
        fs::remove_file(parameters_of(&without)).unwrap();
        let unread = found(&without, &["a.jpg"]);
        for (result, parts) in [
            (missing, ["nowhere", "no such folder", "-d"]),
            (damaged, ["depth_params.json", "\"scale\"", "line 1"]),
            (large, ["depth_params.json", "offset of \"a\"", "-1e13"]),
            (fits_nothing, ["depths", "none of the 2", "a.png"]),
            (unread, ["depth_params.json", "cannot be read", "make_depth_scale.py"]),
        ] {
            assert_parts(&result.unwrap_err().to_string(), &parts);
        }
    }
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

    fn found_normals(path: PathBuf, names: &[&str]) -> Result<FoundMaps<NormalFile>, NormalsError> {
        let camera = Camera { width: 4, height: 3, focal_px: [4.0; 2], centre_px: [2.0, 1.5] };
        let view = |name: &&str| View { name: (*name).to_owned(), camera, pose: POSE };
        let views: Vec<View> = names.iter().map(view).collect();
        let source = |name: &&str| ImageSource::plain(path.join(name), [4, 3]);
        let sources: Vec<_> = names.iter().map(source).collect();
        let train: Vec<usize> = (0..views.len()).collect();
        find_normals(path, NormalsFrame::World, &views, &sources, &train)
    }

    #[test]
    fn normal_maps_match_photograph_names_and_png_is_preferred() {
        let folder = folder(&["a.png", "a.jpg", "left/b.jpeg", "c.JPG", "d.tiff"]);
        let names = ["a.jpg", "left/b.JPG", "c.png", "d.jpg", "e.jpg"];
        let maps = found_normals(folder.path().to_owned(), &names).unwrap();
        let files = maps.files.iter().map(|(index, file)| {
            (*index, file.path.strip_prefix(folder.path()).unwrap().to_str().unwrap())
        });
        let files: Vec<_> = files.collect();
        assert_eq!(files, [(0, "a.png"), (1, "left/b.jpeg"), (2, "c.JPG")]);
        let warning = maps.warning("normals").unwrap();
        assert_parts(&warning, &["2 of 5", "their normals", "d.jpg (no map), e.jpg (no map)"]);
    }

    #[test]
    fn normals_are_rotated_to_camera_axes() {
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
    fn invalid_maps_are_rejected_by_their_header() {
        let folder = folder(&["a.jpg", "b.jpg"]);
        image::GrayImage::from_pixel(4, 3, Luma([9])).save(folder.path().join("b.png")).unwrap();
        image::RgbImage::new(3, 4).save(folder.path().join("c.png")).unwrap();
        fs::copy(folder.path().join("a.jpg"), folder.path().join("c.jpg")).unwrap();
        fs::write(folder.path().join("d.png"), "text").unwrap();
        let names = ["a.jpg", "b.jpg", "c.jpg", "d.jpg"];
        let maps = found_normals(folder.path().to_owned(), &names).unwrap();
        assert_eq!(maps.files.iter().map(|(index, _)| *index).collect::<Vec<_>>(), [0]);
        let parts = ["is no normal map", "has 3x4 px", "neither JPEG"];
        for (reason, part) in maps.without.iter().zip(parts) {
            assert!(reason.contains(part), "no `{part}` in: {reason}");
        }
        let error = found_normals(folder.path().to_owned(), &["b.jpg"]).unwrap_err().to_string();
        assert!(error.contains("b.jpg (") && error.contains("is no normal map"), "{error}");
    }

    #[test]
    fn errors_of_normals_name_the_folder_and_the_remedy() {
        let folder = folder(&["b.png"]);
        let missing = found_normals(folder.path().join("nowhere"), &["a.jpg"]);
        let fits_nothing = found_normals(folder.path().to_owned(), &["a.jpg", "c.jpg"]);
        for (result, parts) in [
            (missing, ["nowhere", "no such folder", "--normals"]),
            (fits_nothing, ["of the 2", "a.png", "--normals"]),
        ] {
            assert_parts(&result.unwrap_err().to_string(), &parts);
        }
    }
}
