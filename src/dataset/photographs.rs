//! Finds the photographs and masks of a scene, and makes cameras fit them.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use super::camera::{Camera, stem};
use super::error::DatasetError;
use super::image::ImageHeader;
use super::lens::{Distortion, Lens, Undistortion};
use super::shot::{EXTENSIONS, Optics, Shot};

/// Folders in folders that are searched for photographs.
const DEEPEST: usize = 16;

/// With `-r -1`, wider photographs are scaled to this width, px.
const WIDEST_BY_DEFAULT: u32 = 1600;

/// A camera at the photograph's full size.
#[derive(Clone, Debug)]
pub(super) struct Fitted {
    /// The straightened camera.
    pub(super) camera: Camera,
    /// How the lens is taken out.
    pub(super) undistort: Option<Undistortion>,
    /// Whether the pixels are turned as EXIF says.
    pub(super) apply_orientation: bool,
}

/// Makes the camera fit the photograph.
///
/// The stored size decides first, because structure from motion often ignores EXIF: equal to the
/// camera's, or of the same shape, and the stored pixels are used. Otherwise the size after EXIF's
/// turn is tried in the same way.
pub(super) fn fit(
    optics: &Optics,
    header: &ImageHeader,
    path: &Path,
) -> Result<Fitted, DatasetError> {
    let stored = [header.width, header.height];
    let turned = [header.height, header.width];
    let failed = |source| DatasetError::Lens { path: path.to_owned(), source };
    let lens = match optics {
        Optics::Lens(lens) => *lens,
        Optics::FieldOfView(angle) => {
            let [width, height] = stored;
            let half = stored.map(|size| f64::from(size) / 2.0);
            let focal = half[0] / (angle / 2.0).tan();
            let camera = Camera { width, height, focal_px: [focal; 2], centre_px: half };
            Lens::new(camera, Distortion::NONE).map_err(failed)?
        }
    };
    let solved = lens.size();
    let (size, apply_orientation) = if same_shape(stored, solved) {
        (stored, false)
    } else if header.orientation_swaps && same_shape(turned, solved) {
        (turned, true)
    } else {
        return Err(DatasetError::SizeMismatch {
            path: path.to_owned(),
            width: stored[0],
            height: stored[1],
            camera_width: solved[0],
            camera_height: solved[1],
        });
    };
    let lens = if size == solved { lens } else { lens.resized(size[0], size[1]) };
    let (camera, undistort) = lens.straighten().map_err(failed)?;
    Ok(Fitted { camera, undistort, apply_orientation })
}

/// The most that rounding to a pixel may change a side of a photograph, as a share of it. Of sides of
/// a few pixels, a whole pixel would be any shape.
const ROUNDED_SHARE: f64 = 0.1;

/// Whether `size` is `solved` scaled, with either side rounded to a pixel.
fn same_shape(size: [u32; 2], solved: [u32; 2]) -> bool {
    let [width, height] = size.map(f64::from);
    let [solved_width, solved_height] = solved.map(f64::from);
    size[0] > 0
        && size[1] > 0
        && (is_rounded(height, solved_height * width / solved_width)
            || is_rounded(width, solved_width * height / solved_height))
}

fn is_rounded(side: f64, exact: f64) -> bool {
    (side - exact).abs() <= (ROUNDED_SHARE * side).min(1.0)
}

/// The size that is trained: what the resolution leaves of the photograph, times a scale.
pub(super) fn trained_size(
    full: [u32; 2],
    resolution: i32,
    scale: f64,
) -> Result<[u32; 2], DatasetError> {
    let size = size_by_resolution(full, resolution)?;
    Ok(size.map(|side| size_px((f64::from(side) * scale).round_ties_even())))
}

/// A size as Inria's trainer chooses it: 1, 2, 4 and 8 divide and round (halves
/// to even), -1 caps the width at 1600 px, any other positive number is the width in px. These two
/// are rounded down as there, by which the width may come out 1 px less.
fn size_by_resolution(full: [u32; 2], resolution: i32) -> Result<[u32; 2], DatasetError> {
    let width = f64::from(full[0]);
    let scaled = |divisor: f64, round: fn(f64) -> f64| {
        full.map(|size| size_px(round(f64::from(size) / divisor)))
    };
    match resolution {
        1 | 2 | 4 | 8 => Ok(scaled(f64::from(resolution), f64::round_ties_even)),
        -1 if full[0] > WIDEST_BY_DEFAULT => {
            Ok(scaled(width / f64::from(WIDEST_BY_DEFAULT), f64::floor))
        }
        -1 => Ok(full),
        target if target > 0 => Ok(scaled(width / f64::from(target), f64::floor)),
        value => Err(DatasetError::Resolution { value }),
    }
}

/// A size in px; at least 1.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "`as` saturates, and the values are rounded before"
)]
fn size_px(size: f64) -> u32 {
    (size as u32).max(1)
}

/// The photographs of a COLMAP scene.
///
/// A name of the model is looked up below the folder as it stands; else with another extension of
/// [`EXTENSIONS`]; else, if exactly one file and one name of the model share the file name (with
/// any of these extensions), there.
#[derive(Debug)]
pub(super) struct Photographs {
    folder: PathBuf,
    masks: PathBuf,
    /// What the folder holds; filled when a name is not found.
    index: Option<Index>,
}

/// The files of a folder by name.
#[derive(Debug, Default)]
struct Index {
    /// Path below the folder without extension. Of two files that differ in their extension only,
    /// the first by name: it is as good as the other.
    by_stem: BTreeMap<String, PathBuf>,
    /// File name without extension; `None` if several stems share it.
    by_base: BTreeMap<String, Option<PathBuf>>,
}

impl Photographs {
    pub(super) fn new(scene: &Path, images: &str) -> Result<Self, DatasetError> {
        let folder = scene.join(images);
        DatasetError::check_folder(&folder)?;
        if !folder.is_dir() {
            return Err(DatasetError::ImagesMissing { path: folder });
        }
        Ok(Self { folder, masks: scene.join("masks"), index: None })
    }

    /// The files of all names, in their order, and how many lie in other folders than named.
    pub(super) fn find(&mut self, names: &[&str]) -> (Vec<Option<PathBuf>>, usize) {
        let mut files: Vec<Option<PathBuf>> = names
            .iter()
            .map(|name| Some(self.folder.join(name)).filter(|path| path.is_file()))
            .collect();
        let mut elsewhere = 0;
        if files.iter().all(Option::is_some) {
            return (files, elsewhere);
        }
        let mut same_base: BTreeMap<&str, usize> = BTreeMap::new();
        for name in names {
            *same_base.entry(base(stem(name))).or_default() += 1;
        }
        for (file, name) in files.iter_mut().zip(names) {
            if file.is_none() {
                let alone = same_base.get(base(stem(name))) == Some(&1);
                *file = self.search(stem(name), alone);
                elsewhere += usize::from(file.is_some());
            }
        }
        (files, elsewhere)
    }

    /// The file of this stem, also in other folders if its base name is unique.
    fn search(&mut self, stem: &str, anywhere: bool) -> Option<PathBuf> {
        let folder = &self.folder;
        let index = self.index.get_or_insert_with(|| index(folder));
        let elsewhere = || index.by_base.get(base(stem)).cloned().flatten().filter(|_| anywhere);
        index.by_stem.get(stem).cloned().or_else(elsewhere)
    }

    /// The mask of a photograph: `masks/a.jpg.png`, else `masks/a.png`.
    pub(super) fn mask(&self, name: &str) -> Option<PathBuf> {
        [format!("{name}.png"), format!("{}.png", stem(name))]
            .iter()
            .map(|mask| self.masks.join(mask))
            .find(|path| path.is_file())
    }

    /// The warning if the folder of masks does not hold one for every photograph.
    pub(super) fn masks_without_use(&self, shots: &[Shot]) -> Option<String> {
        let without = shots.iter().filter(|shot| shot.mask.is_none()).count();
        (without > 0 && self.masks.is_dir()).then(|| {
            format!(
                "{}: holds no mask for {without} of {} photographs, which are used whole. The mask \
                 of a.jpg is a.jpg.png or a.png",
                self.masks.display(),
                shots.len()
            )
        })
    }
}

/// The last part of a path.
fn base(name: &str) -> &str {
    name.rsplit_once('/').map_or(name, |(_, base)| base)
}

/// All photographs below a folder.
fn index(folder: &Path) -> Index {
    let mut files = Vec::new();
    let mut folders = vec![(folder.to_owned(), String::new(), 0)];
    while let Some((folder, prefix, depth)) = folders.pop() {
        // A folder that cannot be listed holds no photograph that could be read.
        let Ok(entries) = fs::read_dir(&folder) else { continue };
        for entry in entries.flatten() {
            let name = format!("{prefix}{}", entry.file_name().to_string_lossy());
            // Links to folders are not followed: they may lead back here.
            let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
            if is_folder && depth < DEEPEST {
                folders.push((entry.path(), format!("{name}/"), depth + 1));
            } else if is_photograph(&entry.path()) {
                files.push((name, entry.path()));
            }
        }
    }
    // The order in which a folder is listed is the file system's.
    files.sort_unstable();
    let mut index = Index::default();
    for (name, path) in files {
        index.by_stem.entry(stem(&name).to_owned()).or_insert(path);
    }
    for (stem, path) in &index.by_stem {
        let entry = index.by_base.entry(base(stem).to_owned());
        entry.and_modify(|shared| *shared = None).or_insert_with(|| Some(path.clone()));
    }
    index
}

fn is_photograph(path: &Path) -> bool {
    let extension = path.extension().unwrap_or_default().to_string_lossy().to_lowercase();
    EXTENSIONS.contains(&extension.as_str()) && path.is_file()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resolutions_are_those_of_inria() {
        let size = |full, r| trained_size(full, r, 1.0).unwrap();
        assert_eq!(size([1061, 1894], 1), [1061, 1894]);
        // Python rounds 530.5 and 132.5 to even, and so does this.
        assert_eq!(size([1061, 1894], 2), [530, 947]);
        assert_eq!(size([1060, 1894], 8), [132, 237]);
        assert_eq!(size([800, 533], 4), [200, 133]);
        assert_eq!(size([800, 533], -1), [800, 533]);
        assert_eq!(size([4000, 3000], -1), [1600, 1200]);
        assert_eq!(size([800, 533], 400), [400, 266]);
        assert_eq!(size([800, 533], 3), [3, 1]);
        assert_eq!(size([3, 2], 8), [1, 1]);
        for wrong in [0, -2, i32::MIN] {
            let error = trained_size([800, 533], wrong, 1.0).unwrap_err().to_string();
            assert!(error.contains(&wrong.to_string()), "{error}");
        }
    }

    fn lens(width: u32, height: u32) -> Optics {
        let camera = Camera { width, height, focal_px: [900.0, 910.0], centre_px: [500.0, 900.0] };
        Optics::Lens(Lens::new(camera, Distortion::NONE).unwrap())
    }

    fn fit_to(width: u32, height: u32, orientation_swaps: bool) -> Result<Fitted, DatasetError> {
        let header = ImageHeader { width, height, orientation_swaps, has_colors: true };
        fit(&lens(1061, 1894), &header, Path::new("a.jpg"))
    }

    #[test]
    fn an_equal_size_takes_the_camera_as_it_is_whatever_exif_says() {
        for swaps in [false, true] {
            let fitted = fit_to(1061, 1894, swaps).unwrap();
            assert_eq!(fitted.camera.focal_px, [900.0, 910.0]);
            assert!(!fitted.apply_orientation);
        }
    }

    #[test]
    fn smaller_copies_scale_the_camera() {
        // 1061 / 8 = 132.6 and 1894 / 8 = 236.75, rounded either way.
        for size in [[132, 236], [133, 237], [132, 237]] {
            let fitted = fit_to(size[0], size[1], false).unwrap();
            assert_eq!([fitted.camera.width, fitted.camera.height], size);
            let scale = f64::from(size[0]) / 1061.0;
            assert!((fitted.camera.focal_px[0] - 900.0 * scale).abs() < 1e-9);
        }
    }

    #[test]
    fn rounding_of_a_few_pixels_makes_no_other_shape_fit() {
        assert!(same_shape([12, 8], [96, 64]) && same_shape([13, 9], [96, 64]));
        for size in [[1, 1], [2, 1], [1, 2], [2, 2], [4, 4]] {
            assert!(!same_shape(size, [96, 64]), "{size:?}");
        }
    }

    #[test]
    fn a_turned_photograph_is_turned_back_and_another_refused() {
        let fitted = fit_to(1894, 1061, true).unwrap();
        assert!(fitted.apply_orientation);
        assert_eq!([fitted.camera.width, fitted.camera.height], [1061, 1894]);
        for (width, height) in [(1894, 1061), (1061, 1800), (0, 0)] {
            let error = fit_to(width, height, false).unwrap_err().to_string();
            let size = format!("{width}x{height}");
            assert!(error.contains(&size) && error.contains("1061x1894"), "{error}");
        }
    }

    #[test]
    fn a_field_of_view_gives_the_focal_length() {
        let header =
            ImageHeader { width: 800, height: 600, orientation_swaps: false, has_colors: true };
        let angle = std::f64::consts::FRAC_PI_2;
        let fitted = fit(&Optics::FieldOfView(angle), &header, Path::new("r_0.png")).unwrap();
        // tan 45° is 1 to rounding.
        assert!((fitted.camera.focal_px[0] - 400.0).abs() < 1e-9);
        assert_eq!(fitted.camera.focal_px[0], fitted.camera.focal_px[1]);
        assert_eq!(fitted.camera.centre_px, [400.0, 300.0]);
    }

    #[test]
    fn names_have_bases() {
        assert_eq!(base("left/deep/a.jpg"), "a.jpg");
        assert_eq!(base("a"), "a");
    }
}
