//! Synthetic scenes: ray-traced photographs with exact cameras.
//!
//! The demonstration has a lobed ball on a striped ring, marbles, and a tiled disc below. Other scenes are distance
//! functions. All scenes have a true mesh. The world's up is -y, as viewers of splats expect. The seed determines
//! every output.

mod cameras;
mod city;
mod field;
mod nearest;
mod points;
mod scene;
mod truth;

pub use cameras::{SynthOptions, SynthScene};
pub use nearest::SurfacePoint;
pub use points::SurfaceDisc;
pub use scene::Scene as Truth;

use std::fs;
use std::path::{Path, PathBuf};

use image::codecs::png::PngEncoder;
use image::{ExtendedColorType, ImageEncoder};
use rayon::prelude::*;
use splat_mesh::Mesh;
use splat_mesh::cubes::ExtractError;
use splat_mesh::file::write_ply;

use crate::dataset::View;
use crate::dataset::colmap::write_colmap;
use crate::files::{OutputError, WorkFolder, create_folder, remove_abandoned, write_atomically};
use cameras::ray_through;
use city::City;
use field::FieldScene;
use scene::{Light, Scene, Scenery, encode_srgb, quantise};

/// Counts of a written scene.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SynthReport {
    /// Number of photographs, each with its camera.
    pub views: usize,
    /// Number of points.
    pub points: usize,
    /// Observations of all points in photographs.
    pub observations: usize,
}

/// Error of making a scene.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages explain variants and fields")]
pub enum SynthError {
    #[error("--{flag} is {value}; allowed: {least} to {most}")]
    OutOfRange { flag: &'static str, value: u32, least: u32, most: u32 },
    #[error(
        "{path}: is there already and would be lost among the files of a synthetic scene. Name \
         another folder"
    )]
    Occupied { path: PathBuf },
    #[error("the true mesh cannot be made: {0}. Use fewer --truth-cells")]
    Truth(#[from] ExtractError),
    #[error(transparent)]
    Output(#[from] OutputError),
    #[error("{name}: the picture cannot be written as PNG: {source}")]
    Png { name: String, source: image::ImageError },
}

const MASKS: &str = "masks";

/// Samples of a pixel along one side.
const SAMPLES: usize = 3;

fn scenery_of(options: &SynthOptions) -> Box<dyn Scenery> {
    match options.scene {
        SynthScene::Demo => Box::new(Scene::new(options.seed)),
        SynthScene::Sphere => Box::new(FieldScene::sphere(options.seed)),
        SynthScene::Torus => Box::new(FieldScene::torus(options.seed)),
        SynthScene::Dtu => Box::new(FieldScene::dtu(options.seed)),
        SynthScene::Room => Box::new(FieldScene::room(options.seed)),
        SynthScene::City => Box::new(City::new(options.seed)),
    }
}

/// Writes `folder/truth.ply`, the true mesh of the scene that [`write_scene`] writes with the same options: closed,
/// in world space, with outward faces. Returns the mesh.
pub fn write_truth(folder: &Path, options: &SynthOptions) -> Result<Mesh, SynthError> {
    options.validate()?;
    let mesh = truth::true_mesh(&*scenery_of(options), options.truth_cells)?;
    let _work = WorkFolder::open(folder);
    write_atomically(&folder.join("truth.ply"), |out| write_ply(out, &mesh))?;
    Ok(mesh)
}

/// Returns `count` discs, spread evenly over the true mesh, with the scene's colours.
pub fn surfels(options: &SynthOptions, truth: &Mesh, count: usize) -> Vec<SurfaceDisc> {
    points::sample_surfels(&*scenery_of(options), truth, count, options)
}

/// Writes `folder/images/*.png` and `folder/sparse/0/{cameras,images,points3D}.bin`, and masks if the scene has them.
pub fn write_scene(folder: &Path, options: &SynthOptions) -> Result<SynthReport, SynthError> {
    options.validate()?;
    check_same_scene(folder, options.scene)?;
    let scene = &*scenery_of(options);
    let light = Light::new(options.matt);
    let views = cameras::views(scene, options);
    let points = points::sample_points(scene, &light, &views, options);

    let _work = WorkFolder::open(folder);
    let images = create_folder(&folder.join("images"))?;
    let sparse = create_folder(&folder.join("sparse").join("0"))?;
    // Programs that could not create the work folder leave temporary files there.
    remove_abandoned(&images);
    remove_abandoned(&sparse);
    views.par_iter().try_for_each(|view| {
        let pixels = photograph(scene, &light, view);
        write_png(&images, view, &pixels, ExtendedColorType::Rgb8)
    })?;
    if options.scene.has_masks() {
        let masks = create_folder(&folder.join(MASKS))?;
        remove_abandoned(&masks);
        views.par_iter().try_for_each(|view| {
            write_png(&masks, view, &outline(scene, view), ExtendedColorType::L8)
        })?;
    }
    write_colmap(&sparse, &views, &points)?;
    Ok(SynthReport {
        views: views.len(),
        points: points.len(),
        observations: points.iter().map(|point| point.track.len()).sum(),
    })
}

/// Returns an error if the folder holds another scene: photographs with other names, cameras without photographs, or
/// masks that would hide this scene.
fn check_same_scene(folder: &Path, scene: SynthScene) -> Result<(), SynthError> {
    let foreign = foreign_file(&folder.join("images"))
        .unwrap_or_else(|| Some(folder.join("sparse")).filter(|path| path.exists()));
    let masks = folder.join(MASKS);
    let hiding = match foreign_file(&masks) {
        Some(_) if !scene.has_masks() => Some(masks),
        found => found.flatten(),
    };
    foreign.or(hiding).map_or(Ok(()), |path| Err(SynthError::Occupied { path }))
}

/// Returns a file in the folder that no synthetic scene has; the outer `None` if the folder cannot be read.
fn foreign_file(folder: &Path) -> Option<Option<PathBuf>> {
    let paths = fs::read_dir(folder).ok()?.filter_map(|entry| Some(entry.ok()?.path()));
    let mut foreign = paths.filter(|path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        !cameras::is_name(&name) && !name.starts_with('.')
    });
    Some(foreign.next())
}

impl SynthOptions {
    fn validate(&self) -> Result<(), SynthError> {
        for (flag, value, least, most) in [
            ("views", self.views, 1, 10_000),
            ("width", self.width, 16, 8192),
            ("height", self.height, 16, 8192),
            ("points", self.points, 0, 200_000_000),
            ("truth-cells", self.truth_cells, 16, 2048),
        ] {
            if !(least..=most).contains(&value) {
                return Err(SynthError::OutOfRange { flag, value, least, most });
            }
        }
        Ok(())
    }
}

/// Draws the photograph of a view, [height, width, 3] in sRGB.
fn photograph(scene: &dyn Scenery, light: &Light, view: &View) -> Vec<u8> {
    let mut rgb = vec![0; view.camera.pixels() * 3];
    let row_bytes = view.camera.width as usize * 3;
    rgb.par_chunks_mut(row_bytes).enumerate().for_each(|(y, row)| {
        for (x, pixel) in row.chunks_exact_mut(3).enumerate() {
            pixel.copy_from_slice(&quantise(pixel_color(scene, light, view, [x, y])));
        }
    });
    rgb
}

/// Returns the mean of a pixel's samples after encoding, since the trainer blends encoded colours.
fn pixel_color(scene: &dyn Scenery, light: &Light, view: &View, [x, y]: [usize; 2]) -> [f64; 3] {
    let mut sum = [0.0; 3];
    for at in samples([x, y]) {
        let ray = ray_through(view, at);
        if let Some(hit) = scene.trace(&ray) {
            let color = light.shade(scene, &hit, ray.direction);
            sum = std::array::from_fn(|i| sum[i] + encode_srgb(color[i]));
        }
    }
    sum.map(|channel| channel / (SAMPLES * SAMPLES) as f64)
}

/// Returns the positions of a pixel's samples in the image, px.
fn samples([x, y]: [usize; 2]) -> impl Iterator<Item = [f64; 2]> {
    let offset = |i: usize| (i as f64 + 0.5) / SAMPLES as f64;
    (0..SAMPLES * SAMPLES)
        .map(move |i| [x as f64 + offset(i % SAMPLES), y as f64 + offset(i / SAMPLES)])
}

/// Draws the mask of a view, white where surfaces cover most of a pixel, [height, width].
fn outline(scene: &dyn Scenery, view: &View) -> Vec<u8> {
    let width = view.camera.width as usize;
    let is_covered = |pixel: usize| {
        let rays = samples([pixel % width, pixel / width]).map(|at| ray_through(view, at));
        2 * rays.filter(|ray| scene.trace(ray).is_some()).count() > SAMPLES * SAMPLES
    };
    let pixels = (0..view.camera.pixels()).into_par_iter();
    pixels.map(|pixel| if is_covered(pixel) { 255 } else { 0 }).collect()
}

/// Writes pixels to a PNG with the view's name.
fn write_png(
    folder: &Path,
    view: &View,
    pixels: &[u8],
    color: ExtendedColorType,
) -> Result<(), SynthError> {
    let mut png = Vec::new();
    PngEncoder::new(&mut png)
        .write_image(pixels, view.camera.width, view.camera.height, color)
        .map_err(|source| SynthError::Png { name: view.name.clone(), source })?;
    write_atomically(&folder.join(&view.name), |out| out.write_all(&png))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::fs;

    use super::*;
    use crate::math::linalg::{add, normalize};

    const SMALL: SynthOptions = SynthOptions {
        seed: 5,
        views: 7,
        width: 41,
        height: 31,
        points: 150,
        ..SynthOptions::DEMO
    };

    fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
        let mut found = BTreeMap::new();
        for below in ["images", "sparse/0"] {
            for entry in fs::read_dir(folder.join(below)).unwrap() {
                let path = entry.unwrap().path();
                let name = path.file_name().unwrap().to_str().unwrap().to_owned();
                found.insert(name, fs::read(path).unwrap());
            }
        }
        found
    }

    fn written(options: &SynthOptions, threads: usize) -> BTreeMap<String, Vec<u8>> {
        let folder = tempfile::tempdir().unwrap();
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        let report = pool.install(|| write_scene(folder.path(), options)).unwrap();
        assert_eq!((report.views, report.points), (7, 150));
        files(folder.path())
    }

    #[test]
    fn the_same_seed_gives_the_same_bytes_on_any_number_of_threads() {
        let alone = written(&SMALL, 1);
        assert_eq!(alone.len(), 7 + 3);
        assert!(alone == written(&SMALL, 4));
    }

    #[test]
    fn another_seed_gives_another_scene() {
        let first = written(&SMALL, 2);
        let second = written(&SynthOptions { seed: 6, ..SMALL }, 2);
        for name in ["view_000.png", "view_006.png", "images.bin", "points3D.bin"] {
            assert_ne!(first[name], second[name], "{name}");
        }
        assert_eq!(first["cameras.bin"], second["cameras.bin"]);
    }

    #[test]
    fn options_out_of_range_and_unusable_folders_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let options = SynthOptions { width: 3, ..SMALL };
        let error = write_scene(folder.path(), &options).unwrap_err().to_string();
        assert_eq!(error, "--width is 3; allowed: 16 to 8192");
        let folder = tempfile::tempdir().unwrap();
        let taken = folder.path().join("taken");
        fs::write(&taken, "a file").unwrap();
        let error = write_scene(&taken, &SMALL).unwrap_err().to_string();
        assert!(error.contains("taken"), "{error}");
    }

    #[test]
    fn other_scenes_are_not_overwritten() {
        let options = SynthOptions { views: 1, points: 5, ..SMALL };
        for (other, occupied) in [
            ("view_012.png", false),
            ("view_1234.png", false),
            ("view_1.png", true),
            ("view_001.jpg", true),
            ("view_left.png", true),
            ("a.png", true),
        ] {
            let folder = tempfile::tempdir().unwrap();
            fs::create_dir(folder.path().join("images")).unwrap();
            fs::write(folder.path().join("images").join(other), "a photograph").unwrap();
            let outcome = write_scene(folder.path(), &options);
            assert_eq!(matches!(outcome, Err(SynthError::Occupied { .. })), occupied, "{other}");
        }
    }

    #[test]
    fn a_matt_surface_has_one_colour_from_all_directions() {
        let scene = Scene::new(0);
        let views = cameras::views(&scene, &SynthOptions { views: 12, ..SMALL });
        // The colour in the middle of each view, seen from the view and from another point.
        let apart = |light: &Light| {
            let of_view = |view: &View| {
                let ray = ray_through(view, [20.5, 15.5]);
                let hit = scene.trace(&ray)?;
                let aside = normalize(add(ray.direction, [0.3, -0.2, 0.1]));
                let [a, b] = [ray.direction, aside].map(|from| light.shade(&scene, &hit, from));
                Some((0..3).map(|c| (a[c] - b[c]).abs()).fold(0.0, f64::max))
            };
            views.iter().filter_map(of_view).fold(0.0, f64::max)
        };
        assert_eq!(apart(&Light::new(true)), 0.0);
        assert!(apart(&Light::new(false)) > 0.01);
    }

    #[test]
    fn photographs_have_a_lit_middle_and_black_corners() {
        let scene = Scene::new(0);
        let options = SynthOptions { views: 5, ..SMALL };
        for view in cameras::views(&scene, &options) {
            let rgb = photograph(&scene, &Light::new(false), &view);
            let middle = (15 * 41 + 20) * 3;
            assert!(rgb[middle..middle + 3].iter().any(|&channel| channel > 40), "{}", view.name);
            assert_eq!(rgb[..3], [0, 0, 0], "{}", view.name);
        }
    }
}
