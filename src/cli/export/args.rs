//! Arguments of `splat export`.

use std::path::{Path, PathBuf};

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueEnum};
use serde::Serialize;
use splat_formats::{
    FORMATS, PlacementError, ScenePlacement, SplatFormat, SpzAxes, SpzVersion, StreamedOptions,
    UpAxis, middle_and_radius,
};

use crate::cli::crop::{CropOptions, number, numbers};
use crate::cli::parser::named_values;
use crate::config::{DeviceChoice, Offset};
use crate::dataset::Frame;
use crate::export::{offset_path, write_offset};
use crate::files::OutputError;

#[derive(Args)]
pub(in crate::cli) struct ExportArgs {
    /// Read a file of Gaussians instead of a model
    ///
    /// .ply, .compressed.ply, .splat, .ksplat, .spz, .sog or .glb, known by its content. A SOG may also be a folder.
    #[arg(
        value_name = "FILE",
        required_unless_present = "model_path",
        conflicts_with_all = ["model_path", "iteration"]
    )]
    pub(super) file: Option<PathBuf>,

    /// Axes of an SPZ that is read [default: those that it names, else rub]
    ///
    /// For files in other axes than the format's: rdf if splat-transform 3, Niantic's `ply_to_spz` or an earlier
    /// version of this program wrote them, and the scene comes out upside down.
    #[arg(long, value_name = "AXES", value_parser = spz_axes)]
    pub(super) input_spz_axes: Option<SpzAxes>,

    /// Model folder
    #[arg(short, long, value_name = "MODEL")]
    pub(super) model_path: Option<PathBuf>,

    /// Iteration of the point cloud; -1 is the last
    #[arg(long, value_name = "N", allow_negative_numbers = true, default_value_t = -1)]
    pub(super) iteration: i64,

    /// File to write
    #[arg(short, long, value_name = "FILE")]
    pub(super) output: PathBuf,

    /// Format of the file [default: that of its name]
    #[arg(long, value_parser = ExportFormat::parser())]
    pub(super) format: Option<ExportFormat>,

    /// Replace the file if it is there
    ///
    /// Without it, a folder must be empty. With it, files of the same names are replaced.
    #[arg(long)]
    pub(super) overwrite: bool,

    /// Print JSON
    #[arg(long)]
    pub(super) json: bool,

    /// Only warnings and errors on stderr
    #[arg(long)]
    pub(in crate::cli) quiet: bool,

    /// Source of the colours of triangles [default: views]
    #[arg(long, value_enum, value_name = "HOW")]
    pub(super) colors: Option<VertexColors>,

    #[command(flatten)]
    pub(super) cut: CutOptions,

    #[command(flatten)]
    pub(super) place: PlaceOptions,

    #[command(flatten)]
    pub(super) spz: SpzArgs,

    #[command(flatten)]
    pub(super) sog: SogArgs,
}

/// Source of the vertex colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum VertexColors {
    /// Means of what the training cameras see that have a vertex in their picture
    Views,
    /// Fitted to the training photographs of the model's scene, as the mesh itself is drawn
    Photographs,
    /// The harmonics of degree 0 alone, as MeshSplatting exports them
    Base,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum ExportFormat {
    /// Gaussians, with default options.
    Splats(SplatFormat),
    /// OBJ with colours of vertices, for triangles only.
    Obj,
}

impl ExportFormat {
    /// Returns the parser of `--format`. Names of formats and ends of file names are valid.
    fn parser() -> impl TypedValueParser<Value = Self> {
        let obj = "OBJ with colours of vertices, of models of triangles alone";
        let values = FORMATS
            .iter()
            .map(|row| PossibleValue::new(row.name).alias(row.ending()).help(row.help))
            .chain([PossibleValue::new("obj").help(obj)]);
        PossibleValuesParser::new(values).map(|typed| {
            let row = FORMATS.iter().find(|row| [row.name, row.ending()].contains(&typed.as_str()));
            row.map_or(Self::Obj, |row| Self::Splats((row.format)()))
        })
    }

    /// Returns the name of the listing file if the format is a folder.
    pub(super) fn file_of_folder(&self) -> Option<&'static str> {
        match self {
            Self::Splats(format) => format.row().list_of_folder(),
            Self::Obj => None,
        }
    }
}

/// Options that remove Gaussians.
#[derive(Args)]
#[command(next_help_heading = "Cutting, in the scene's axes and unit")]
pub(super) struct CutOptions {
    #[command(flatten)]
    pub(super) place: CropOptions,

    /// Leave out more transparent Gaussians, 0 to 1
    #[arg(long, value_name = "OPACITY", default_value_t = 0.0, value_parser = share)]
    pub(super) min_opacity: f64,

    /// Highest degree of harmonics, 0 to 3
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(0..=3))]
    pub(super) sh_degree: u32,
}

pub(super) const SCENE_UP: UpAxis = UpAxis::NegativeY;

/// Options that move the scene.
#[derive(Args)]
#[command(next_help_heading = "Placing, in this order")]
pub(super) struct PlaceOptions {
    /// Turn about x, then y, then z, degrees
    #[arg(long, value_name = "X,Y,Z", allow_hyphen_values = true, value_parser = numbers::<3>)]
    pub(super) rotate: Option<[f64; 3]>,

    /// Turn the scene's up, -y in COLMAP's axes, to this axis
    ///
    /// A GLB is turned to +y by its format, and refuses this.
    #[arg(long, value_name = "AXIS", allow_hyphen_values = true, value_parser = axis())]
    pub(super) up: Option<UpAxis>,

    /// Multiply all lengths
    #[arg(long, value_name = "X", default_value_t = 1.0, value_parser = factor)]
    pub(super) scale: f64,

    /// Then move, in the new unit
    #[arg(long, value_name = "X,Y,Z", allow_hyphen_values = true, value_parser = numbers::<3>)]
    pub(super) translate: Option<[f64; 3]>,
}

/// Change of an exported file's coordinates.
pub(super) struct FilePlacement {
    /// Placements in the order of application.
    pub(super) steps: Vec<ScenePlacement>,
    /// Coordinates of the written file.
    pub(super) frame: Frame,
}

impl FilePlacement {
    /// Writes the offset of the written file beside it and reports it, if it has one.
    pub(super) fn write_offset(&self, to: &Path) -> Result<(), OutputError> {
        write_offset(to, &self.frame)?;
        if self.frame != Frame::SCENE {
            tracing::warn!(
                "{}: its coordinates are those of the scene minus {}, which 32-bit numbers cannot hold. {} has \
                 the offset",
                to.display(),
                Offset(self.frame.offset),
                offset_path(to).display()
            );
        }
        Ok(())
    }
}

impl PlaceOptions {
    /// Converts the options from scene coordinates to those of a file. The file's offset is placed in double
    /// precision and added to the points only if they lie near the origin afterwards.
    pub(super) fn placements(
        &self,
        file: &Frame,
        means: &[[f32; 3]],
    ) -> Result<FilePlacement, PlacementError> {
        let mut steps = self.steps();
        if *file == Frame::SCENE {
            return Ok(FilePlacement { steps, frame: Frame::SCENE });
        }
        let mut offset = file.offset;
        for step in &mut steps {
            offset = step.place_point(offset)?;
            step.translation = [0.0; 3];
        }
        let (_, radius) = middle_and_radius(means);
        if Frame::is_near(offset, self.scale * f64::from(radius)) {
            steps.push(ScenePlacement { translation: offset, ..ScenePlacement::default() });
            offset = [0.0; 3];
        }
        Ok(FilePlacement { steps, frame: Frame::of_file(offset) })
    }

    /// Returns the placements in the order of application, in scene coordinates.
    fn steps(&self) -> Vec<ScenePlacement> {
        let turned = |rotation| ScenePlacement { rotation, ..ScenePlacement::default() };
        let degrees = self.rotate.unwrap_or_default().into_iter().enumerate();
        let about_axes = degrees.filter(|&(_, degrees)| degrees != 0.0).map(|(axis, degrees)| {
            let half = 0.5 * degrees.to_radians();
            let mut rotation = [half.cos(), 0.0, 0.0, 0.0];
            rotation[1 + axis] = half.sin();
            turned(rotation)
        });
        let up = self.up.filter(|&up| up != SCENE_UP);
        let upright = up.map(|up| turned(SCENE_UP.rotation_to(up)));
        let is_moved = self.scale != 1.0 || self.translate.is_some();
        let moved = is_moved.then(|| ScenePlacement {
            scale: self.scale,
            translation: self.translate.unwrap_or_default(),
            ..ScenePlacement::default()
        });
        about_axes.chain(upright).chain(moved).collect()
    }

    /// Returns the up axis of the placed scene.
    pub(super) fn up(&self) -> UpAxis {
        self.up.unwrap_or(SCENE_UP)
    }
}

fn axis() -> impl TypedValueParser<Value = UpAxis> {
    named_values([
        ("x", "+x", UpAxis::X),
        ("y", "+y, as in glTF and most viewers", UpAxis::Y),
        ("z", "+z, as in Blender", UpAxis::Z),
        ("-x", "-x", UpAxis::NegativeX),
        ("-y", "-y, as COLMAP has it: no turn", UpAxis::NegativeY),
        ("-z", "-z", UpAxis::NegativeZ),
    ])
}

/// Options of SPZ.
#[derive(Args)]
#[command(next_help_heading = "SPZ")]
pub(super) struct SpzArgs {
    /// Version of the format
    #[arg(long, value_name = "N", default_value = "3", value_parser = spz_version())]
    pub(super) spz_version: SpzVersion,

    /// Bits of harmonics of degree 1, and of those above, 1 to 8
    ///
    /// Other programs write 5,4: a smaller file, which looks worse where harmonics were learned.
    #[arg(long, value_name = "A,B", default_value = "8,8", value_parser = sh_bits)]
    pub(super) spz_sh_bits: [u8; 2],

    /// Axes of the file: where x, y and z point [default: rub]
    ///
    /// Letters for right or left, up or down, front or back. rub (right, up, back) is what the format says; rdf are
    /// the axes of the model, in which splat-transform 3 and Niantic's `ply_to_spz` write and read. Other axes than
    /// rub are named in the file (`SPZ_ADOBE_coordinate_system`), which @adobe/spz reads in --spz-version 4 alone.
    #[arg(long, value_name = "AXES", value_parser = spz_axes, hide_default_value = true, default_value = "rub")]
    pub(super) spz_axes: SpzAxes,
}

/// Parses the name of SPZ axes. `unchanged` means the axes of the model.
pub(in crate::cli) fn spz_axes(text: &str) -> Result<SpzAxes, String> {
    match text.to_ascii_lowercase().as_str() {
        "unchanged" => Ok(SpzAxes::SCENE),
        name => SpzAxes::of_name(name)
            .ok_or_else(|| format!("give one of {}", SpzAxes::names().join(", "))),
    }
}

fn spz_version() -> impl TypedValueParser<Value = SpzVersion> {
    named_values([
        ("3", "Read by all programs that read SPZ", SpzVersion::V3),
        ("4", "Smaller, read by few programs", SpzVersion::V4),
    ])
}

/// Options of SOG.
#[derive(Args)]
#[command(next_help_heading = "SOG")]
pub(super) struct SogArgs {
    /// Seed of the palette; on the processor equal seeds make equal bytes
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(super) sog_seed: u64,

    /// Fit colours and opacities to the photographs again, over N images
    ///
    /// Needs the model's scene. The fit makes up for most of the loss from shared harmonics.
    #[arg(long, value_name = "N", num_args = 0..=1, require_equals = true, default_missing_value = "1000", value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) refit: Option<u32>,

    /// Scene folder, to fit colours to [default: that of the model]
    #[arg(short, long, value_name = "SCENE")]
    pub(super) source_path: Option<PathBuf>,

    /// Device that searches for the palette
    ///
    /// A GPU also draws the Gaussians of a model from its training cameras, to know how much each counts.
    #[arg(long, value_enum, value_name = "DEVICE", default_value_t = DeviceChoice::Auto)]
    pub(super) device: DeviceChoice,

    /// Levels of a streamed SOG, each half of the one before
    #[arg(long, value_name = "N", default_value_t = StreamedOptions::default().levels, value_parser = clap::value_parser!(u32).range(1..=16))]
    pub(super) lod_levels: u32,
}

fn share(text: &str) -> Result<f64, String> {
    let value = number(text)?;
    if (0.0..=1.0).contains(&value) { Ok(value) } else { Err("give 0 to 1".to_owned()) }
}

fn factor(text: &str) -> Result<f64, String> {
    let value = number(text)?;
    if value > 0.0 { Ok(value) } else { Err("give a number above 0".to_owned()) }
}

fn sh_bits(text: &str) -> Result<[u8; 2], String> {
    let bits: Option<Vec<u8>> = text.split(',').map(|bits| bits.trim().parse().ok()).collect();
    let bits: Option<[u8; 2]> = bits.and_then(|bits| bits.try_into().ok());
    bits.filter(|bits| bits.iter().all(|bits| (1..=8).contains(bits)))
        .ok_or_else(|| "give two numbers from 1 to 8, such as 5,4".to_owned())
}
