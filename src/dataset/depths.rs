//! The maps of inverse depths of photographs, and their scales.
//!
//! The layout is that of 3D Gaussian splatting's trainer: `DEPTHS/a.png` belongs to the photograph
//! `a.jpg`, and `depth_params.json` beside the COLMAP model has an entry `"a": {"scale": s, "offset": o}`.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::found_maps::FoundMaps;
use super::source::DepthFile;
use super::text::utf8;
use crate::files::JsonFault;
use crate::math::quantile::median;

/// The file of the scales, in the folder of the COLMAP model.
pub(super) const PARAMETERS: &str = "depth_params.json";

/// Largest scale and offset that are believed, per world unit.
const LARGEST: f64 = 1e12;

/// Scales below this share of the median are rejected.
const SCALE_SHARE_MIN: f64 = 0.2;

/// Scales above this multiple of the median are rejected.
const SCALE_SHARE_MAX: f64 = 5.0;

/// What is wrong with the inverse depths of a scene.
#[derive(Debug, thiserror::Error)]
pub enum DepthsError {
    /// The folder is missing.
    #[error(
        "{path}: there is no such folder. Name the folder of the depth maps, relative to the scene, after \
         -d, or leave it out"
    )]
    FolderMissing {
        /// The folder.
        path: PathBuf,
    },
    /// The scales cannot be read.
    #[error(
        "{path}: the scales of the depth maps cannot be read: {source}. Make the file with the \
         make_depth_scale.py of 3DGS, or leave -d out"
    )]
    ParametersMissing {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        #[source]
        source: std::io::Error,
    },
    /// The scales are no JSON of the expected form.
    #[error(
        "{path}: {source}. Make the file again: {{\"NAME\": {{\"scale\": 1.0, \"offset\": 0.0}}, ...}} with an entry \
         for each photograph"
    )]
    ParametersDamaged {
        /// The file.
        path: PathBuf,
        /// The error of the parser.
        #[source]
        source: JsonFault,
    },
    /// A value that no scene has.
    #[error(
        "{path}: the {key} of {name:?} is {value:e}, beyond {LARGEST:e}. Make the file again with the \
         make_depth_scale.py of 3D Gaussian splatting"
    )]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// The photograph.
        name: String,
        /// `scale` or `offset`.
        key: &'static str,
        /// Its value.
        value: f64,
    },
    /// No photograph has a map that can be used.
    #[error(
        "{path}: none of the {views} training photographs has a map there and a scale above 0 in {parameters}. Name the \
         map of a.jpg a.png, or leave -d out"
    )]
    NoneFits {
        /// The folder.
        path: PathBuf,
        /// The file of the scales.
        parameters: PathBuf,
        /// Photographs trained on.
        views: usize,
    },
}

/// An entry of the file of scales.
#[derive(Clone, Copy, Debug, Deserialize)]
struct DepthScale {
    scale: f64,
    offset: f64,
}

/// The maps of these views, which are names and indices. Views without a map or an entry, or with a
/// scale that is not above 0 or far from the others', go without one.
pub(super) fn find<'a>(
    folder: PathBuf,
    parameters: &Path,
    views: impl Iterator<Item = (&'a str, usize)>,
) -> Result<FoundMaps<DepthFile>, DepthsError> {
    if !folder.is_dir() {
        return Err(DepthsError::FolderMissing { path: folder });
    }
    let fits = read(parameters)?;
    let median = median_scale(&fits);
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
    // Such values would make the loss no number.
    for (name, fit) in &fits {
        for (key, value) in [("scale", fit.scale), ("offset", fit.offset)] {
            if value.abs() > LARGEST {
                let (path, name) = (path.to_owned(), name.clone());
                return Err(DepthsError::TooLarge { path, name, key, value });
            }
        }
    }
    Ok(fits)
}

/// Median of the scales above 0.
fn median_scale(fits: &BTreeMap<String, DepthScale>) -> f64 {
    median(fits.values().map(|fit| fit.scale).filter(|&scale| scale > 0.0))
}

/// The map with its fit, or why it is not used.
fn fitting(path: &Path, fit: Option<&DepthScale>, median: f64) -> Result<DepthFile, &'static str> {
    let &DepthScale { scale, offset } = fit.ok_or("no entry in depth_params.json")?;
    // NaN is not above 0, either.
    if !(scale > 0.0 && scale.is_finite() && offset.is_finite()) {
        return Err("its scale is not above 0");
    }
    if !(SCALE_SHARE_MIN * median..=SCALE_SHARE_MAX * median).contains(&scale) {
        return Err("its scale is far from the others'");
    }
    if !path.is_file() {
        return Err("no map");
    }
    #[expect(clippy::cast_possible_truncation, reason = "rounded to the maps' precision")]
    let (scale, offset) = (scale as f32, offset as f32);
    Ok(DepthFile { path: path.to_owned(), scale, offset })
}

#[cfg(test)]
mod tests {
    use super::*;

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
        find(scene.path().join("depths"), &parameters_of(scene), names.iter().copied().zip(0..))
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
        for part in
            ["6 of 9", "c.jpg (its scale is far", "e.jpg", "f.jpg (its scale is not", "3 more"]
        {
            assert!(warning.contains(part), "no `{part}` in {warning:?}");
        }
    }

    #[test]
    fn the_median_of_an_even_number_is_the_mean_of_the_middle_two() {
        let fits = |scales: &[f64]| {
            let fit =
                |(i, &scale): (usize, &f64)| (i.to_string(), DepthScale { scale, offset: 0.0 });
            median_scale(&scales.iter().enumerate().map(fit).collect())
        };
        assert_eq!(fits(&[4.0, -1.0, 1.0, 2.0, 0.0, 3.0]), 2.5);
        assert_eq!(fits(&[9.0]), 9.0);
        assert_eq!(fits(&[]), 0.0);
    }

    #[test]
    fn errors_name_the_file_and_the_remedy() {
        let entry = r#"{"a": {"scale": 1.0, "offset": 0.0}}"#;
        let missing = find("nowhere".into(), Path::new("a.json"), [("a", 0)].into_iter());
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
            let error = result.unwrap_err().to_string();
            for part in parts {
                assert!(error.contains(part), "no `{part}` in: {error}");
            }
        }
    }
}
