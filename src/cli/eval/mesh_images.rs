//! `splat eval --mesh-images`: how much a mesh by itself looks like the photographs.

use std::io;
use std::path::{Path, PathBuf};

use clap::ArgMatches;
use image::ExtendedColorType;
use serde::Serialize;
use splat_mesh::Mesh;
use splat_mesh::draw::{DrawnPixels, Paint, draw};
use splat_mesh::file::{MeshPicture, PaintedMesh, read_glb, read_mesh};

use super::newest::newest_mesh;
use crate::backend::camera_of;
use crate::backend::cpu::measure;
use crate::cli::exit::DataError;
use crate::cli::output::print;
use crate::cli::scene::{ModelArgs, none_to_compare};
use crate::dataset::Image;
use crate::export::frame_of_file;
use crate::files::{WorkFolder, check_writable, create_folder, write_atomically, write_png};
use crate::mesh::convert_mesh;
use crate::train::Views;
use crate::train::event::{Metrics, Split};
use crate::train::pictures::byte;

/// The file of the figures in the model folder.
const FIGURES: &str = "mesh_images.json";

/// The folder of the pictures in the model folder, with a folder for each split.
const PICTURES: &str = "mesh_images";

/// Figures of a mesh's images.
#[derive(Serialize)]
struct MeshImages {
    mesh: PathBuf,
    /// Whether it has a texture, and not only colours of vertices.
    is_textured: bool,
    split: Split,
    /// Means over the views.
    #[serde(flatten)]
    mean: ImageFigures,
    views: Vec<MeshImage>,
}

/// Figures of one image.
#[derive(Clone, Copy, Serialize)]
struct ImageFigures {
    psnr: f64,
    ssim: f64,
    l1: f64,
    /// PSNR of the pixels that the mesh covers; none where it covers nothing.
    covered_psnr: Option<f64>,
    /// The share of the pixels that the mesh covers.
    covered: f64,
}

/// Figures of a view.
#[derive(Serialize)]
struct MeshImage {
    name: String,
    #[serde(flatten)]
    figures: ImageFigures,
}

/// Draws the mesh from the views of a split, prints how near to the photographs that is, and keeps the
/// figures in the model folder.
pub(super) fn run(
    named: Option<&Path>,
    split: Split,
    args: &ModelArgs,
    json: bool,
    matches: &ArgMatches,
) -> anyhow::Result<()> {
    let model = args.read(matches)?;
    if split == Split::Test {
        model.refuse_seen(&args.model_path, "--split train")?;
    }
    model.refuse_empty(split)?;
    if !json {
        check_writable(&args.model_path)?;
    }
    let mesh_path = match named {
        Some(named) => named.to_owned(),
        None => {
            let newest = |kind| newest_mesh(&args.model_path, args.wanted_iteration(), &[kind]);
            newest("glb").or_else(|_no_glb| newest("ply"))?
        }
    };
    let PaintedMesh { mut mesh, texture } = read(&mesh_path)?;
    convert_mesh(&mut mesh, &frame_of_file(&mesh_path)?, &model.dataset.frame);
    let opened = model.open(None)?;
    let mut views = Views::new(&opened.dataset, &opened.images);
    let order = views.split(split);
    views.schedule_decoding(order);
    // Pictures and figures are written there first, and swept if this program is killed.
    let _work = WorkFolder::open(&args.model_path);
    let folder = (!json)
        .then(|| create_folder(&args.model_path.join(PICTURES).join(split.name())))
        .transpose()?;
    let mut per_view = Vec::new();
    for (position, &index) in order.iter().enumerate() {
        let Some(photograph) = views.fetch(index).filter(|_| !views.is_hidden(index)) else {
            continue;
        };
        let view = views.view(index);
        let drawn = draw(&mesh, paint(texture.as_ref()), &camera_of(view), views.near());
        let background = opened.config.scene.background_color().0;
        let image = before(background, &drawn);
        let figures = figures(&drawn, &image, &photograph)?;
        if let Some(folder) = &folder {
            let samples: Vec<u8> = image.iter().map(|&value| byte(value.into())).collect();
            let path = folder.join(format!("{position:05}.png"));
            let size = [photograph.width, photograph.height];
            write_png(&path, size, &samples, ExtendedColorType::Rgb8)?;
        }
        per_view.push(MeshImage { name: view.name.clone(), figures });
    }
    for warning in views.take_warnings() {
        tracing::warn!("{warning}");
    }
    if per_view.is_empty() {
        return Err(none_to_compare(&views, split).into());
    }
    let report = MeshImages {
        mesh: mesh_path,
        is_textured: texture.is_some(),
        split,
        mean: mean(&per_view),
        views: per_view,
    };
    let text = if json { serde_json::to_string_pretty(&report)? } else { table(&report, &mesh) };
    let printed = print(&text);
    let written = write_atomically(&args.model_path.join(FIGURES), |out| {
        serde_json::to_writer_pretty(out, &report).map_err(io::Error::from)
    });
    match written {
        // Who asks for JSON reads it from stdout.
        Err(error) if json => tracing::warn!("{FIGURES} is left as it was: {error}"),
        done => done?,
    }
    Ok(printed?)
}

/// A GLB with its texture, or another file with the colours of its vertices.
fn read(path: &Path) -> anyhow::Result<PaintedMesh> {
    let is = |kind| path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case(kind));
    if is("glb") {
        return Ok(read_glb(path)?);
    }
    if is("obj") {
        return Err(DataError(format!(
            "{}: of an OBJ the picture is not read. Name the same mesh as GLB, or as PLY",
            path.display()
        ))
        .into());
    }
    Ok(PaintedMesh { mesh: read_mesh(path)?, texture: None })
}

fn paint(texture: Option<&MeshPicture>) -> Paint<'_> {
    texture
        .map_or(Paint::Vertices, |MeshPicture { atlas, picture }| Paint::Texture { atlas, picture })
}

/// What is drawn, before the background: 3 values a pixel.
fn before(background: [f32; 3], drawn: &DrawnPixels) -> Vec<f32> {
    let pixel = |(color, covers): (&[f32; 3], &f32)| -> [f32; 3] {
        std::array::from_fn(|channel| color[channel] + (1.0 - covers) * background[channel])
    };
    drawn.colors.iter().zip(&drawn.covers).flat_map(pixel).collect()
}

fn figures(drawn: &DrawnPixels, image: &[f32], photograph: &Image) -> anyhow::Result<ImageFigures> {
    let size = [photograph.width, photograph.height];
    let Metrics { psnr, ssim, l1, .. } = measure(image, size, photograph)?.into();
    let counts = |pixel: usize| photograph.mask.as_ref().is_none_or(|mask| mask[pixel] > 0);
    let (mut errors, mut covered, mut all) = (0.0, 0_u32, 0_u32);
    for pixel in (0..drawn.covers.len()).filter(|&pixel| counts(pixel)) {
        all += 1;
        if drawn.covers[pixel] >= 1.0 {
            covered += 1;
            let values = 3 * pixel..3 * pixel + 3;
            for (found, &truth) in image[values.clone()].iter().zip(&photograph.rgb[values]) {
                let truth = f64::from(truth) / 255.0;
                errors += (f64::from(found.clamp(0.0, 1.0)) - truth).powi(2);
            }
        }
    }
    let covered_psnr = (covered > 0).then(|| {
        let mse = errors / (3.0 * f64::from(covered));
        Metrics::from(crate::backend::Measured { mse, l1: 0.0, ssim: 0.0 }).psnr
    });
    let covered = f64::from(covered) / f64::from(all.max(1));
    Ok(ImageFigures { psnr, ssim, l1, covered_psnr, covered })
}

fn mean(views: &[MeshImage]) -> ImageFigures {
    let mean = |of: fn(&ImageFigures) -> f64| {
        views.iter().map(|view| of(&view.figures)).sum::<f64>() / views.len().max(1) as f64
    };
    let covered: Vec<f64> = views.iter().filter_map(|view| view.figures.covered_psnr).collect();
    ImageFigures {
        psnr: mean(|figures| figures.psnr),
        ssim: mean(|figures| figures.ssim),
        l1: mean(|figures| figures.l1),
        covered_psnr: (!covered.is_empty())
            .then(|| covered.iter().sum::<f64>() / covered.len() as f64),
        covered: mean(|figures| figures.covered),
    }
}

/// The figures as a person reads them.
fn table(report: &MeshImages, mesh: &Mesh) -> String {
    let ImageFigures { psnr, ssim, l1, covered_psnr, covered } = report.mean;
    let colours = if report.is_textured { "texture" } else { "colours of vertices" };
    let on_mesh = covered_psnr.map_or(String::new(), |psnr| {
        format!("\n  on the mesh, {:.1} % of the pixels\n  PSNR {psnr:.4} dB", 100.0 * covered)
    });
    format!(
        "{}, {} triangles, {colours}, {} {} views\n  PSNR {psnr:.4} dB\n  SSIM {ssim:.5}\n  L1   {l1:.5}{on_mesh}",
        report.mesh.display(),
        mesh.faces.len(),
        report.views.len(),
        report.split.name(),
    )
}
