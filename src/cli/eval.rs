//! `splat eval`: metrics of a trained model.

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};

use clap::{ArgMatches, Args};
use image::ExtendedColorType;
use serde::Serialize;
use splat_mesh::compare::{
    Alignment, CompareOptions, Comparison, Distances, Figures, Score, Similarity, compare,
};
use splat_mesh::draw::{DrawnPixels, Paint, draw};
use splat_mesh::file::{MeshPicture, PaintedMesh, read_glb, read_mesh};
use splat_mesh::{Camera, Mesh};

use super::check::warn_about_images;
use super::device::{self, DeviceOptions, Task};
use super::exit::{DataError, UsageError};
use super::folder;
use super::lpips::{self, LpipsDemand, Sources};
use super::output::{print_report, shell_word};
use super::parser::named_values;
use super::scene::{ModelArgs, Opened, TriangleSamples, none_to_compare, open_at};
use crate::backend::cpu::measure;
use crate::backend::{TrainDevice, camera_of};
use crate::config::MetricSet;
use crate::dataset::Image;
use crate::export::frame_of_file;
use crate::files::{
    OutputError, WorkFolder, check_writable, create_folder, write_atomically, write_png,
};
use crate::mesh::convert_mesh;
use crate::perceptual::LpipsWeights;
use crate::telemetry::{append_metrics, update_summary, write_per_view, write_results};
use crate::train::Views;
use crate::train::appearance::compensation;
use crate::train::eval::{EvalRequest, ShownViews, evaluate};
use crate::train::event::{Evaluation, Metrics, Split};
use crate::train::pictures::byte;

#[derive(Args)]
pub(super) struct EvalArgs {
    #[command(flatten)]
    pub(super) model: ModelArgs,

    /// Views to measure
    #[arg(long, value_enum, help_heading = "Evaluation", default_value_t = Split::Test)]
    split: Split,

    /// Metrics to measure [default: as in training]
    #[arg(long, value_enum, value_name = "SET", help_heading = "Evaluation")]
    metrics: Option<MetricSet>,

    /// LPIPS weights (.safetensors or .pth)
    ///
    /// The default is the file that the model was trained with, or else the one that `SPLAT_LPIPS_WEIGHTS` names.
    #[arg(long, value_name = "FILE", help_heading = "Evaluation")]
    lpips_weights: Option<PathBuf>,

    /// Measure LPIPS, or fail
    ///
    /// Weights that are not named are looked for in ~/.cache/splat and ~/.cache/torch. With false, LPIPS is not measured, whatever weights there are.
    #[arg(long, help_heading = "Evaluation")]
    enable_lpips: bool,

    /// Print JSON, with every view
    #[arg(long, help_heading = "Evaluation")]
    json: bool,

    #[command(flatten)]
    samples: TriangleSamples,

    #[command(flatten)]
    geometry: GeometryArgs,
}

/// Evaluates the model, prints the means and writes the tables of the model folder.
pub(super) fn run(args: &EvalArgs, matches: &ArgMatches) -> anyhow::Result<()> {
    if let Some(truth) = &args.geometry.geometry {
        return measure_geometry(&args.geometry, truth, &args.model, args.json, matches);
    }
    let mesh = args.geometry.mesh.as_deref();
    if args.geometry.mesh_images {
        return measure_mesh_images(mesh, args.split, &args.model, args.json, matches);
    }
    if mesh.is_some() {
        anyhow::bail!(UsageError::new(
            "--mesh is given without --geometry TRUTH and without --mesh-images, which measure it. \
             Give one of them"
        ));
    }
    let mut model = args.model.read(matches)?;
    args.samples.apply(model.triangles.as_mut(), matches);
    let folder = &args.model.model_path;
    model.check_split(folder, args.split)?;
    if !args.json && !model.altered {
        // A folder that cannot be written fails before minutes of measuring.
        check_writable(folder)?;
    }
    let metrics = args.metrics.unwrap_or(model.config.output.metrics);
    let lpips = lpips::weights(&Sources {
        named: args.lpips_weights.as_deref(),
        earlier: model.config.output.lpips_weights.as_deref(),
        demand: LpipsDemand::of(args.enable_lpips, matches),
        metrics,
    })?;
    let opened = model.open(lpips.as_ref())?;
    let task = Evaluating { opened: &opened, split: args.split, metrics, lpips: lpips.as_ref() };
    let evaluation = device::on(&DeviceOptions::of_earlier(&opened.config, matches), task)?;
    // Print first: a full disk must not cost the computed result.
    let printed = print_report(&evaluation, args.json, table);
    if opened.altered {
        tracing::warn!(
            "measured with other scene options than the model was trained with; the tables in {} \
             are left as they are",
            folder.display()
        );
        return printed;
    }
    match write_tables(folder, &evaluation) {
        // With `--json` the caller reads the result from stdout.
        Err(error) if args.json => tracing::warn!("the tables are left as they were: {error}"),
        done => done?,
    }
    printed
}

fn write_tables(folder: &Path, evaluation: &Evaluation) -> Result<(), OutputError> {
    let _work = WorkFolder::open(folder);
    append_metrics(folder, evaluation)?;
    write_results(folder, evaluation)?;
    write_per_view(folder, evaluation)?;
    update_summary(folder, evaluation)
}

struct Evaluating<'a> {
    opened: &'a Opened,
    split: Split,
    metrics: MetricSet,
    lpips: Option<&'a LpipsWeights>,
}

impl Task for Evaluating<'_> {
    type Output = Evaluation;

    fn run<B: TrainDevice>(self, device: &mut B) -> anyhow::Result<Evaluation> {
        let Self { opened, split, metrics, lpips } = self;
        let mut views = Views::new(&opened.dataset, &opened.images);
        let model = opened.upload(device)?;
        let compensation = compensation(&opened.config.optimize);
        let shown = opened.request(split, ShownViews::Nothing);
        let request = EvalRequest { compensation, metrics, lpips, ..shown };
        let evaluation = evaluate(device, &model, &mut views, &request, |_| Ok(()))?;
        warn_about_images(&mut views);
        Ok(evaluation.ok_or_else(|| none_to_compare(&views, split))?)
    }
}

fn table(evaluation: &Evaluation) -> String {
    let Evaluation { mean, lpips_net, .. } = evaluation;
    let lpips = mean.lpips.zip(*lpips_net);
    let lpips = lpips
        .map_or(String::new(), |(lpips, net)| format!("\n  LPIPS {lpips:.5} ({})", net.name()));
    let corrected = mean.corrected.map_or(String::new(), |corrected| {
        format!(
            "\n  colour-corrected\n  PSNR {:.4} dB\n  SSIM {:.5}",
            corrected.psnr, corrected.ssim
        )
    });
    let reference = mean.reference.map_or(String::new(), |reference| {
        let lpips =
            reference.lpips.map_or(String::new(), |lpips| format!("\n  LPIPS {lpips:.7} (vgg)"));
        format!("\n  as the reference's metrics.py\n  SSIM {:.7}{lpips}", reference.ssim)
    });
    format!(
        "iteration {}, {} {} views, {} Gaussians\n  PSNR {:.4} dB\n  SSIM {:.5}\n  L1   \
         {:.5}{lpips}{corrected}{reference}",
        evaluation.iteration,
        evaluation.views.len(),
        evaluation.split.name(),
        evaluation.gaussians,
        mean.psnr,
        mean.ssim,
        mean.l1
    )
}

/// Returns the newest mesh file of the wanted iteration, or of the last iteration that has one.
fn newest_mesh(
    model_path: &Path,
    wanted: Option<u32>,
    extensions: &[&str],
) -> Result<PathBuf, DataError> {
    folder::check_readable(model_path)?;
    let is_mesh = |path: &Path| {
        let extension = path.extension().and_then(OsStr::to_str);
        extension.is_some_and(|extension| extensions.contains(&extension))
    };
    let mut iterations = folder::iterations(&model_path.join("mesh"));
    iterations.retain(|&(iteration, _)| wanted.is_none_or(|wanted| wanted == iteration));
    let newest = |(_, folder): &(u32, PathBuf)| folder::newest_file(folder, is_mesh);
    let newest = iterations.iter().rev().find_map(newest);
    newest.ok_or_else(|| {
        let of = wanted.map_or(String::new(), |wanted| format!(" of iteration {wanted}"));
        DataError(format!(
            "{}: holds no mesh{of}, mesh/iteration_N/*.ply. Write one with: splat mesh -m {}, or name a \
             file with --mesh",
            model_path.display(),
            shell_word(model_path)
        ))
    })
}

// Figures of geometry.

/// Widths of the table's columns in characters: row names and values.
const NAME: usize = 24;

const COLUMN: usize = 22;

/// Geometry figures of a mesh.
#[derive(Serialize)]
struct GeometryReport {
    mesh: PathBuf,
    truth: PathBuf,
    /// Number of training cameras.
    cameras: usize,
    #[serde(flatten)]
    comparison: Comparison,
}

type Figure<T> = fn(&T) -> f64;

fn figure_table(report: &GeometryReport) -> String {
    let GeometryReport { mesh, truth, cameras, comparison } = report;
    let Comparison { diagonal, clamp, .. } = *comparison;
    let mut lines = vec![
        format!("{} against {}", mesh.display(), truth.display()),
        format!(
            "  distances in the scene's unit and in % of the truth's diagonal, {}; beyond {} they \
             count as that",
            length(diagonal),
            length(clamp)
        ),
    ];
    lines.extend(comparison.alignment.map(|found| aligned(&found)));
    let scan = comparison.scan.as_ref();
    let columns: Vec<(&str, &Figures)> = [
        Some(("whole surfaces", &comparison.uniform)),
        comparison.visible.as_ref().map(|visible| ("seen by cameras", visible)),
        scan.map(|scan| ("virtual scan", &scan.figures)),
    ]
    .into_iter()
    .flatten()
    .collect();
    let heads: String = columns.iter().map(|(head, _)| format!("{head:>COLUMN$}")).collect();
    lines.push(String::new());
    lines.push(format!("{:NAME$}{heads}", ""));
    let mut row = |name: &str, show: &dyn Fn(&Figures) -> String| {
        let cells: String =
            columns.iter().map(|(_, figures)| format!("{:>COLUMN$}", show(figures))).collect();
        lines.push(format!("{name:NAME$}{cells}"));
    };
    let distances: [(&str, Figure<Figures>); 7] = [
        ("Chamfer", |figures| figures.chamfer),
        ("mesh to truth, mean", |figures| figures.accuracy.mean),
        ("  median", |figures| figures.accuracy.median),
        ("  95 % are nearer than", |figures| figures.accuracy.p95),
        ("truth to mesh, mean", |figures| figures.completeness.mean),
        ("  median", |figures| figures.completeness.median),
        ("  95 % are nearer than", |figures| figures.completeness.p95),
    ];
    for (name, of) in distances {
        row(name, &|figures| share(of(figures), diagonal));
    }
    for (index, score) in comparison.uniform.scores.iter().enumerate() {
        let of = |figures: &Figures, show: &dyn Fn(&Score) -> String| {
            figures.scores.get(index).map_or("-".to_owned(), show)
        };
        let percent = |share: f64| format!("{:.2} %", 100.0 * share);
        row(&format!("F-score at {}", length(score.threshold)), &|figures| {
            of(figures, &|score| percent(score.f_score))
        });
        row("  precision, recall", &|figures| {
            of(figures, &|score| format!("{}, {}", percent(score.precision), percent(score.recall)))
        });
    }
    let of_both: [(&str, Figure<Distances>); 3] = [
        ("normals agree", |distances| distances.normal_agreement),
        ("normals opposed", |distances| distances.opposed_share),
        ("farther than counted", |distances| distances.clamped_share),
    ];
    for (name, of) in of_both {
        row(name, &|figures| format!("{:.2} %", 100.0 * both(figures, of)));
    }
    lines.push(String::new());
    if let Some(scan) = scan {
        lines.push(format!(
            "virtual scan from {} places, {cameras} of them cameras: {} rays meet both, {} the mesh \
             alone, {} the truth alone; median error of depth {:.4} %",
            scan.views,
            scan.both,
            scan.mesh_only,
            scan.truth_only,
            100.0 * scan.median_depth_error
        ));
    }
    lines.push(format!("mesh: {}", comparison.report));
    let crossings = comparison.crossings;
    lines.push(format!(
        "faces that pass through others: {} of {} that were looked at",
        crossings.crossing, crossings.sampled
    ));
    lines.join("\n")
}

/// Returns the mean of a figure over both directions.
fn both(figures: &Figures, of: fn(&Distances) -> f64) -> f64 {
    0.5 * (of(&figures.accuracy) + of(&figures.completeness))
}

/// Formats a distance and its share of the diagonal.
fn share(distance: f64, diagonal: f64) -> String {
    format!("{} ({:.3} %)", length(distance), 100.0 * distance / diagonal)
}

/// Formats a length with four significant digits. Values below 1e-12 are rounding errors and become 0.
fn length(value: f64) -> String {
    match value.abs() {
        nothing if nothing < 1e-12 => "0".to_owned(),
        large if large >= 1000.0 => format!("{value:.0}"),
        small if small < 1e-6 => format!("{value:.1e}"),
        size => {
            let mut digits = 3;
            let mut least = 1.0;
            while size < least && digits < 9 {
                digits += 1;
                least *= 0.1;
            }
            format!("{value:.digits$}")
        }
    }
}

fn aligned(found: &Similarity) -> String {
    let cosine = 0.5 * (found.rotation[0][0] + found.rotation[1][1] + found.rotation[2][2] - 1.0);
    let [x, y, z] = found.translation;
    format!(
        "  the mesh was moved onto the truth: scale {:.6}, turn {:.3}°, shift ({x:.5}, {y:.5}, {z:.5})",
        found.scale,
        cosine.clamp(-1.0, 1.0).acos().to_degrees()
    )
}

// `splat eval --geometry`: distance of a mesh from the true surface.

/// File of the figures in the model folder.
const GEOMETRY_FIGURES: &str = "geometry.json";

/// Extensions of mesh files that can be read.
const EXTENSIONS: [&str; 2] = ["ply", "obj"];

/// Options of the measured mesh.
#[derive(Args)]
#[command(next_help_heading = "Geometry")]
struct GeometryArgs {
    /// True mesh (.ply or .obj): measure the model's mesh, not its renders
    ///
    /// Prints Chamfer distance and F-score of the newest mesh that `splat mesh` wrote, over both whole
    /// surfaces, over what training cameras see, and over a virtual scan from these cameras. It needs
    /// no GPU, and the figures are also written to MODEL/geometry.json.
    #[arg(long, value_name = "TRUTH")]
    geometry: Option<PathBuf>,

    /// Mesh to measure [default: the model's newest]
    ///
    /// A PLY or OBJ; with --mesh-images also a GLB that `splat mesh` wrote.
    #[arg(long, value_name = "FILE")]
    mesh: Option<PathBuf>,

    /// Draw the mesh from the views of --split and measure its images
    ///
    /// Prints PSNR and SSIM of the mesh by itself, with its texture or the colours of its vertices,
    /// against the photographs. The newest GLB is taken, or else the newest PLY. It needs no GPU, and the
    /// figures are also written to `MODEL/mesh_images.json`.
    #[arg(long, conflicts_with = "geometry")]
    mesh_images: bool,

    /// A further distance at which surfaces agree, in the scene's unit
    ///
    /// F-scores are measured at 0.2, 0.5 and 1 % of the truth's diagonal, and at this distance. Distances
    /// beyond 20 times this, or else 10 % of the diagonal, count as that.
    #[arg(long, value_name = "X", requires = "geometry")]
    threshold: Option<f64>,

    /// Move, turn and scale the mesh onto the truth first
    #[arg(long, value_name = "HOW", requires = "geometry")]
    #[arg(value_parser = named_values([("icp", "Iterated closest points", Alignment::Icp)]))]
    align: Option<Alignment>,
}

/// Measures the mesh, prints the figures and writes them to the model folder.
fn measure_geometry(
    args: &GeometryArgs,
    truth_path: &Path,
    model: &ModelArgs,
    json: bool,
    matches: &ArgMatches,
) -> anyhow::Result<()> {
    let model_path = &model.model_path;
    folder::check_not_file(model_path)?;
    if !json {
        check_writable(model_path)?;
    }
    let mesh_path = match &args.mesh {
        Some(named) => named.clone(),
        None => newest_mesh(model_path, model.wanted_iteration(), &EXTENSIONS)?,
    };
    let frame = frame_of_file(&mesh_path)?;
    let mesh = read_mesh(&mesh_path)?;
    let mut truth = read_mesh(truth_path)?;
    convert_mesh(&mut truth, &frame_of_file(truth_path)?, &frame);
    let scene = open_at(&mut model.configure(matches)?.0, &frame)?;
    let train_cameras: Vec<Camera> =
        scene.train.iter().map(|&index| camera_of(&scene.views[index])).collect();
    tracing::info!(
        "comparing {} faces with the truth's {}, as {} cameras see them",
        mesh.faces.len(),
        truth.faces.len(),
        train_cameras.len()
    );
    let alignment = args.align.unwrap_or(Alignment::Given);
    let options =
        CompareOptions { threshold: args.threshold, alignment, ..CompareOptions::default() };
    let comparison = compare(&mesh, &truth, &train_cameras, &options)?;
    let report = GeometryReport {
        mesh: mesh_path,
        truth: truth_path.to_owned(),
        cameras: train_cameras.len(),
        comparison,
    };
    let printed = print_report(&report, json, figure_table);
    let _work = WorkFolder::open(model_path);
    write_figures(&model_path.join(GEOMETRY_FIGURES), &report, json)?;
    printed
}

/// Writes figures as JSON. With `--json` the caller reads the result from stdout, and a failure is a warning.
fn write_figures(path: &Path, figures: &impl Serialize, json: bool) -> Result<(), OutputError> {
    let written = write_atomically(path, |out| {
        serde_json::to_writer_pretty(out, figures).map_err(io::Error::from)
    });
    match written {
        Err(error) if json => {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            tracing::warn!("{name} is left as it was: {error}");
            Ok(())
        }
        done => done,
    }
}

// `splat eval --mesh-images`: similarity of a mesh's renders and the photographs.

/// File of the figures in the model folder.
const FIGURES: &str = "mesh_images.json";

/// Folder of the rendered images in the model folder, with a subfolder per split.
const PICTURES: &str = "mesh_images";

/// Figures of a mesh's renders.
#[derive(Serialize)]
struct MeshImages {
    mesh: PathBuf,
    /// True if the mesh has a texture instead of vertex colours.
    is_textured: bool,
    split: Split,
    #[serde(flatten)]
    mean: ImageFigures,
    views: Vec<MeshImage>,
}

/// Figures of one render, or their means.
#[derive(Clone, Copy, Serialize)]
struct ImageFigures {
    psnr: f64,
    ssim: f64,
    l1: f64,
    /// PSNR of the pixels that the mesh covers. `None` if it covers none.
    covered_psnr: Option<f64>,
    /// Share of the pixels that the mesh covers, 0 to 1.
    covered: f64,
}

#[derive(Serialize)]
struct MeshImage {
    name: String,
    #[serde(flatten)]
    figures: ImageFigures,
}

/// Renders the mesh from the views of a split, compares it with the photographs, prints the figures and writes them
/// to the model folder.
fn measure_mesh_images(
    named: Option<&Path>,
    split: Split,
    args: &ModelArgs,
    json: bool,
    matches: &ArgMatches,
) -> anyhow::Result<()> {
    let model = args.read(matches)?;
    model.check_split(&args.model_path, split)?;
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
    // The work folder is removed later if this program is killed.
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
        let image = composited(background, &drawn);
        let figures = figures(&drawn, &image, &photograph)?;
        if let Some(folder) = &folder {
            let samples: Vec<u8> = image.iter().map(|&value| byte(value.into())).collect();
            let path = folder.join(format!("{position:05}.png"));
            let size = [photograph.width, photograph.height];
            write_png(&path, size, &samples, ExtendedColorType::Rgb8)?;
        }
        per_view.push(MeshImage { name: view.name.clone(), figures });
    }
    warn_about_images(&mut views);
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
    let printed = print_report(&report, json, |report| image_table(report, &mesh));
    write_figures(&args.model_path.join(FIGURES), &report, json)?;
    printed
}

/// Reads a GLB with its texture, or another mesh file with vertex colours.
fn read(path: &Path) -> anyhow::Result<PaintedMesh> {
    let is = |kind| path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case(kind));
    if is("glb") {
        return Ok(read_glb(path)?);
    }
    if is("obj") {
        anyhow::bail!(DataError(format!(
            "{}: of an OBJ the picture is not read. Name the same mesh as GLB, or as PLY",
            path.display()
        )));
    }
    Ok(PaintedMesh { mesh: read_mesh(path)?, texture: None })
}

fn paint(texture: Option<&MeshPicture>) -> Paint<'_> {
    texture
        .map_or(Paint::Vertices, |MeshPicture { atlas, picture }| Paint::Texture { atlas, picture })
}

/// Composites the render onto the background: 3 values per pixel.
fn composited(background: [f32; 3], drawn: &DrawnPixels) -> Vec<f32> {
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

fn image_table(report: &MeshImages, mesh: &Mesh) -> String {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_have_four_significant_digits() {
        let cases = [
            (0.0, "0"),
            (2e-16, "0"),
            (12_345.6, "12346"),
            (3.464_1, "3.464"),
            (0.5, "0.5000"),
            (0.001_234_1, "0.001234"),
            (2.5e-8, "2.5e-8"),
        ];
        for (value, expected) in cases {
            assert_eq!(length(value), expected);
        }
    }
}
