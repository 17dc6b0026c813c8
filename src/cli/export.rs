//! `splat export`: Gaussians and triangles in the formats of other programs.

mod args;
mod fit;
mod triangles;

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use clap::ArgMatches;
use serde::Serialize;
use splat_formats::{
    FORMATS, PlacementError, ReadSplats, SPZ_LOG_SCALES, ScenePlacement, SogOptions,
    SplatFileError, SplatFileKind, SplatFormat, Splats, SpzAxes, SpzOptions, SpzVersion,
    StreamedOptions, WorstErrors, WriteReport, middle_and_radius, read_with_axes,
};

pub(super) use self::args::ExportArgs;
use self::args::{
    CutOptions, ExportFormat, FilePlacement, SCENE_UP, SogArgs, SpzArgs, VertexColors,
};
use self::fit::{Refit, SogExport};
use super::check::{check, warn};
use super::crop::CropOptions;
use super::exit::{DataError, UsageError};
use super::folder::point_cloud;
use super::output::print_report;
use super::parser::{command_of, is_typed, typed_flags};
use super::scene::{cameras_of, training_cameras_of};
use crate::backend::RenderSettings;
use crate::config::PrimitiveName;
use crate::dataset::Frame;
use crate::export::{frame_of_file, read_ply_primitive};
use crate::files::{OutputError, create_folder, follow_links, remove_abandoned};
use crate::math::quantile::median;

#[derive(Serialize)]
struct Exported {
    from: PathBuf,
    to: PathBuf,
    sh_degree: u32,
    /// Gaussians that were cut off or have values that are not finite.
    left_out: usize,
    #[serde(flatten)]
    written: WriteReport,
}

/// Reads, cuts, places and writes Gaussians. Triangles are passed on to [`triangles::run`].
pub(super) fn run(args: &ExportArgs, matches: &ArgMatches) -> anyhow::Result<()> {
    let named = named_format(args)?;
    check_output(args, &named)?;
    fit::check(args, &named)?;
    let (from, iteration) = source(args)?;
    if read_ply_primitive(&from).is_ok_and(|it| it == PrimitiveName::Triangles) {
        warn_about_idle(None, matches);
        return triangles::run(args, &named, &from, iteration, &target(args)?, matches);
    }
    let mut format = splat_format(args, named)?;
    warn_about_idle(Some(&format), matches);
    let file = frame_of_file(&from)?;
    let (mut splats, dropped) = read_splats(&from, args.input_spz_axes)?;
    let mut placement = args.place.placements(&file, &splats.columns().means)?;
    let page_unit = match format {
        // A page stores SPZ, which needs another unit than 1 for very small and very large scenes.
        SplatFormat::Html(_) => {
            let (_, radius) = middle_and_radius(&splats.columns().means);
            Frame::unit_of(args.place.scale * f64::from(radius))
        }
        _ => 1.0,
    };
    if page_unit != 1.0 {
        let scale = 1.0 / page_unit;
        placement.steps.push(ScenePlacement { scale, ..ScenePlacement::default() });
    }
    if let Some(iteration) = iteration {
        add_cameras(&mut format, args, iteration, &file, &placement)?;
    }
    let refit = Refit::open(args, &placement, matches)?;
    let mut left_out = dropped + cut(&mut splats, &args.cut, &file);
    for step in &placement.steps {
        left_out += splats.place(step)?;
    }
    if splats.is_empty() {
        let why = match left_out {
            0 => "holds no Gaussians".to_owned(),
            count if count == dropped => format!(
                "none of its {count} Gaussians has finite values and a rotation. Export the file again"
            ),
            count => format!(
                "none of its {count} Gaussians is left. Give a larger --crop or --crop-sphere, a lower \
                 --min-opacity, or a smaller --scale or --translate"
            ),
        };
        return Err(DataError(format!("{}: {why}", from.display())).into());
    }
    if refit.is_some() && splats.sh_degree() == 0 {
        anyhow::bail!(UsageError::new(fit::NO_HARMONICS));
    }
    splats.flatten_for(&format);
    let to = target(args)?;
    if matches!(format, SplatFormat::Spz(_)) {
        warn_about_sizes(&args.output, &splats, args.place.scale);
    }
    let near = RenderSettings::DEFAULT.near * args.place.scale;
    let export =
        SogExport { to: &to, splats: &splats, format: &format, near, refit: refit.as_ref() };
    let written = export.write(args.sog.device)?;
    placement.write_offset(&to)?;
    if page_unit != 1.0 {
        let page = args.output.display();
        tracing::info!(
            "{page}: coordinates are divided by {page_unit}, to fit the range of a page"
        );
    }
    for note in &written.notes {
        tracing::warn!("{note}");
    }
    let to = args.output.clone();
    let sh_degree = if format.has_harmonics() { splats.sh_degree() } else { 0 };
    let exported = Exported { from, to, sh_degree, left_out, written };
    print_report(&exported, args.json, described)
}

/// Warns if SPZ clamps the sizes of more than 5 % of the Gaussians. The sizes already include `scale`.
fn warn_about_sizes(to: &Path, splats: &Splats, scale: f64) {
    const MANY: f64 = 0.05;
    /// Logarithm of a size in the middle of the range.
    const MIDDLE: f64 = -4.0;
    let largest = |scales: &[f32; 3]| scales.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sizes: Vec<f32> = splats.columns().log_scales.iter().map(largest).collect();
    let lost = sizes.iter().filter(|size| !SPZ_LOG_SCALES.contains(*size)).count();
    if lost as f64 <= MANY * sizes.len() as f64 {
        return;
    }
    let usual = median(sizes.iter().copied().filter(|size| size.is_finite()).map(f64::from));
    let power = ((MIDDLE - usual) / std::f64::consts::LN_10).round();
    if power == 0.0 {
        return;
    }
    tracing::warn!(
        "{}: SPZ cannot hold the sizes of {lost} of {} Gaussians and stores its nearest. Use --scale {}, or write a \
         .sog",
        to.display(),
        sizes.len(),
        shifted(scale, power)
    );
}

/// Returns `scale * 10^power` as text. Decimal digits are shifted, so nothing is rounded.
fn shifted(scale: f64, power: f64) -> String {
    let text = format!("{scale:e}");
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    format!("{digits}e{}", exponent.parse().unwrap_or(0.0) + power)
}

/// Creates the folder of the output and returns the path to write, with links resolved.
fn target(args: &ExportArgs) -> Result<PathBuf, OutputError> {
    let parent = args.output.parent().filter(|folder| !folder.as_os_str().is_empty());
    if let Some(folder) = parent {
        create_folder(folder)?;
    }
    // The target of a link is replaced, not the link.
    let output = follow_links(&args.output);
    remove_abandoned(
        output.parent().filter(|it| !it.as_os_str().is_empty()).unwrap_or(Path::new(".")),
    );
    Ok(output)
}

/// Rejects outputs that would lose a file or turn the scene twice.
fn check_output(args: &ExportArgs, format: &ExportFormat) -> Result<(), UsageError> {
    let shown = args.output.display();
    let is_there = fs::symlink_metadata(&args.output).is_ok();
    let folder = format.file_of_folder().and(args.output.parent());
    let has_files = |folder: &Path| {
        let is_foreign = |entry: &fs::DirEntry| !is_of_interrupted_export(entry);
        fs::read_dir(folder).is_ok_and(|it| it.flatten().any(|entry| is_foreign(&entry)))
            || is_there
    };
    let turns = match format {
        ExportFormat::Splats(SplatFormat::Glb) => Some("a GLB is y up by itself"),
        ExportFormat::Splats(SplatFormat::Spz(_)) if args.spz.spz_axes.is_y_up() => {
            Some("an SPZ is y up by itself, unless --spz-axes is rdf")
        }
        _ => None,
    };
    check([
        (args.output.as_os_str() == "-", "-o -: an export is a file. Name it".to_owned()),
        (
            fs::metadata(&args.output).is_ok_and(|about| !about.is_file()),
            format!("{shown}: is there, and is no file. Name a file with -o"),
        ),
        (
            is_there && !args.overwrite,
            format!("{shown}: is there already. Name another file with -o, or give --overwrite"),
        ),
        (
            folder.is_some_and(has_files) && !args.overwrite,
            format!(
                "{}: is not empty, and files of these names would be replaced. Name another folder with -o, or \
                 give --overwrite",
                folder.unwrap_or(Path::new("")).display()
            ),
        ),
        (
            turns.is_some() && args.place.up() != SCENE_UP,
            format!("--up would turn the scene twice: {}. Leave it out", turns.unwrap_or_default()),
        ),
    ])
}

/// True for files that an interrupted export into a folder leaves behind.
fn is_of_interrupted_export(entry: &fs::DirEntry) -> bool {
    let name = entry.file_name();
    let name = name.to_string_lossy();
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let is_chunk =
        name.split_once('_').is_some_and(|(level, chunk)| is_number(level) && is_number(chunk));
    const PARTS: [&str; 5] = ["means_", "scales", "quats", "sh0", "shN_"];
    let is_part = PARTS.iter().any(|part| name.starts_with(part)) && name.ends_with(".webp");
    is_chunk || is_part || (name.starts_with(".splat-") && name.ends_with(".tmp"))
}

/// Reads Gaussians of any format. Returns the number of dropped rows too.
pub(super) fn read_splats(
    path: &Path,
    spz_axes: Option<SpzAxes>,
) -> Result<(Splats, usize), SplatFileError> {
    let ReadSplats { splats, kind, dropped, notes } = read_with_axes(path, spz_axes)?;
    if spz_axes.is_some() && kind != SplatFileKind::Spz {
        tracing::warn!("the axes of an SPZ have no effect: {} is no SPZ", path.display());
    }
    for note in notes {
        tracing::warn!("{}: {note}", path.display());
    }
    if dropped > 0 {
        tracing::warn!(
            "{}: {dropped} Gaussians have values that are not finite or no rotation, and are left out",
            path.display()
        );
    }
    Ok((splats, dropped))
}

/// Returns the format of `--format` or of the file extension.
fn named_format(args: &ExportArgs) -> Result<ExportFormat, UsageError> {
    let shown = args.output.display();
    let is_obj = args.output.extension().is_some_and(|kind| kind.eq_ignore_ascii_case("obj"));
    let of_splats = || SplatFormat::of_name(&args.output).map(ExportFormat::Splats);
    let of_name = if is_obj { Some(ExportFormat::Obj) } else { of_splats() };
    let Some(format) = args.format.as_ref().or(of_name.as_ref()) else {
        let files = FORMATS.iter().filter(|row| row.list_of_folder().is_none());
        let ends: Vec<_> = files.map(|row| row.file_name).collect();
        return Err(UsageError(format!(
            "-o {shown}: the name tells no format. End it with {}, of triangles with .glb, .obj or .ply, or give \
             --format",
            ends.join(", ")
        )));
    };
    // The other files of such a folder have fixed names.
    let formats = [Some(format), of_name.as_ref()];
    let folder = formats.into_iter().flatten().find_map(ExportFormat::file_of_folder);
    if let Some(name) = folder.filter(|_| of_name.as_ref() != Some(format)) {
        return Err(UsageError(format!(
            "-o {shown}: only a SOG that is a folder has a {name}, and has it under that name. Give \
             -o FOLDER/{name} without --format, or another name"
        )));
    }
    Ok(format.clone())
}

/// Returns a format of Gaussians with its options.
fn splat_format(args: &ExportArgs, format: ExportFormat) -> Result<SplatFormat, UsageError> {
    let ExportFormat::Splats(mut format) = format else {
        return Err(UsageError(format!(
            "-o {}: an OBJ holds triangles, and these are Gaussians. For a mesh of a model, use splat \
             mesh -m MODEL --formats obj",
            args.output.display()
        )));
    };
    let sog = SogOptions { seed: args.sog.sog_seed, cameras: Vec::new() };
    match &mut format {
        SplatFormat::Spz(options) => {
            let (version, axes) = (args.spz.spz_version, args.spz.spz_axes);
            if version == SpzVersion::V3 && axes != SpzAxes::default() {
                tracing::warn!(
                    "--spz-axes {}: other programs look for the name of the axes in version 4 alone, and take \
                     those of version 3 for rub or for their own. Add --spz-version 4 if they read it",
                    axes.name()
                );
            }
            *options = SpzOptions { version, sh_bits: args.spz.spz_sh_bits, axes };
        }
        SplatFormat::Sog(options) | SplatFormat::SogFolder(options) => *options = sog,
        SplatFormat::StreamedSog(options) => {
            (options.levels, options.sog) = (args.sog.lod_levels, sog);
        }
        SplatFormat::Html(options) => {
            options.title =
                args.output.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            options.up = args.place.up();
        }
        _ => {}
    }
    Ok(format)
}

/// Warns about typed options that the format ignores. `None` means triangles.
fn warn_about_idle(format: Option<&SplatFormat>, matches: &ArgMatches) {
    let is_spz = matches!(format, Some(SplatFormat::Spz(_)));
    let is_sog = matches!(
        format,
        Some(SplatFormat::Sog(_) | SplatFormat::SogFolder(_) | SplatFormat::StreamedSog(_))
    );
    let colors = matches.get_one::<VertexColors>("colors");
    let fits_to_photographs = format.is_none() && colors == Some(&VertexColors::Photographs);
    let of_formats = [
        (is_spz, command_of::<SpzArgs>("spz"), "SPZ"),
        (is_sog, command_of::<SogArgs>("sog"), "SOG"),
    ];
    let has_levels = matches!(format, Some(SplatFormat::StreamedSog(_)));
    let is_typed = |id: &str| is_typed(matches, id);
    warn([
        (
            format.is_some() && is_typed("colors"),
            "--colors has no effect: it is an option of models of triangles",
        ),
        (
            is_sog && is_typed("source_path") && !is_typed("refit"),
            "--source-path has no effect without --refit",
        ),
        (
            is_sog && !has_levels && is_typed("lod_levels"),
            "--lod-levels has no effect: it is an option of streamed SOG (lod-meta.json)",
        ),
    ]);
    for (_, command, name) in of_formats.iter().filter(|(is_used, _, _)| !is_used) {
        let flags = typed_flags(command, matches);
        for (_, flag) in flags.filter(|&(id, _)| !(id == "source_path" && fits_to_photographs)) {
            tracing::warn!("--{flag} has no effect: it is an option of {name}");
        }
    }
}

/// Returns the file to read and the iteration of its model, if it has one.
fn source(args: &ExportArgs) -> Result<(PathBuf, Option<u32>), DataError> {
    if let Some(file) = &args.file {
        return Ok((file.clone(), None));
    }
    let model = args.model_path.as_deref().unwrap_or(Path::new("."));
    let (iteration, ply) = point_cloud(model, u32::try_from(args.iteration).ok())?;
    Ok((ply, Some(iteration)))
}

/// Adds the model's cameras to formats that store cameras, placed like the scene.
fn add_cameras(
    format: &mut SplatFormat,
    args: &ExportArgs,
    iteration: u32,
    file: &Frame,
    placement: &FilePlacement,
) -> Result<(), PlacementError> {
    let Some(model) = &args.model_path else { return Ok(()) };
    let cameras = match format {
        SplatFormat::Html(page) => {
            page.cameras = cameras_of(model, iteration, file);
            &mut page.cameras
        }
        SplatFormat::Sog(options)
        | SplatFormat::SogFolder(options)
        | SplatFormat::StreamedSog(StreamedOptions { sog: options, .. }) => {
            options.cameras = training_cameras_of(model, iteration, file);
            &mut options.cameras
        }
        _ => return Ok(()),
    };
    for step in &placement.steps {
        cameras.iter_mut().try_for_each(|camera| camera.place(step))?;
    }
    Ok(())
}

/// Removes Gaussians by the options. Returns the number of removed Gaussians.
fn cut(splats: &mut Splats, options: &CutOptions, file: &Frame) -> usize {
    let CropOptions { crop, crop_sphere } = options.place.converted(file);
    let mut left_out = splats.crop_boxes(&crop);
    if let Some(sphere) = crop_sphere {
        left_out += splats.crop_sphere(sphere);
    }
    if options.min_opacity > 0.0 {
        left_out += splats.drop_faint(options.min_opacity);
    }
    splats.cut_sh_degree(options.sh_degree);
    left_out
}

fn described(exported: &Exported) -> String {
    let Exported { to, sh_degree, left_out, written, .. } = exported;
    let WriteReport { splats, bytes, errors, .. } = written;
    let mut text = format!(
        "{}: {splats} Gaussians of SH degree {sh_degree}, {:.1} MB",
        to.display(),
        *bytes as f64 / 1e6
    );
    if *left_out > 0 {
        write!(text, "; {left_out} left out").ok();
    }
    let WorstErrors { position, log_scale, clipped_scales, rotation_degrees, opacity, color, sh } =
        errors;
    if *errors == WorstErrors::default() {
        text.push_str("\n  nothing is rounded");
    } else {
        write!(
            text,
            "\n  largest errors: position {position:.2e}, scale {:.2} %, rotation \
             {rotation_degrees:.2} degrees,\n  opacity {opacity:.4}, colour {color:.4}, harmonics {sh:.4}",
            100.0 * log_scale.exp_m1()
        )
        .ok();
    }
    if *clipped_scales > 0 {
        write!(
            text,
            "\n  {clipped_scales} scales are beyond the range of the format and stored as its nearest"
        )
        .ok();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_advised_scale_multiplies_the_given_one() {
        for (given, power, advised) in
            [(1.0, 5.0, "1e5"), (0.3, 5.0, "3e4"), (1000.0, -3.0, "1e0"), (12.5, -9.0, "1.25e-8")]
        {
            assert_eq!(shifted(given, power), advised);
        }
    }
}
