//! `splat render`: renders of a model beside the photographs.

use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::{ArgMatches, Args};
use image::ExtendedColorType;

use super::check::{check, warn_about_images};
use super::device::{self, DeviceOptions, Task};
use super::exit::UsageError;
use super::output::print;
use super::scene::{ModelArgs, Opened, TriangleSamples, none_to_compare};
use crate::backend::{PixelDepth, TrainDevice};
use crate::config::PrimitiveName;
use crate::dataset::Image;
use crate::files::{OutputError, WorkFolder, create_folder, write_png, write_text};
use crate::train::eval::{EvalRequest, EvaluatedView, ShownSurface, ShownViews, evaluate};
use crate::train::event::{Picture, Split};
use crate::train::pictures::{photo_picture, render_picture};
use crate::train::{Views, scene_extent};

#[derive(Args)]
#[expect(clippy::struct_excessive_bools, reason = "a flag each")]
pub(super) struct RenderArgs {
    #[command(flatten)]
    pub(super) model: ModelArgs,

    /// Leave out the views that were trained on
    #[arg(long, help_heading = "Rendering")]
    skip_train: bool,

    /// Leave out the views that were held out
    #[arg(long, help_heading = "Rendering")]
    skip_test: bool,

    /// Also write depths, as 16-bit PNG and as colours
    ///
    /// `depth/00000.png` holds world units along the view axis times the factor in `depth/scale.json`;
    /// 0 is where nothing is drawn. `depth_color/00000.png` is white near the camera and dark far from
    /// it, by one scale for all views. Triangles have the inverses of mean inverse depths.
    #[arg(long, help_heading = "Rendering")]
    depth: bool,

    /// Write the depths by which half of the light is stopped
    ///
    /// Without it depths are means over what is blended. Depths and normals are 0 where less than half of
    /// the light is stopped. Models of triangles have none. It is what 2DGS calls depth ratio 1.
    #[arg(long, help_heading = "Rendering", requires = "depth")]
    median_depth: bool,

    /// Also write normals, as 16-bit PNG
    ///
    /// `normals/00000.png`: x right, y up and z towards the camera, from -1..1 to 0..65535 in red, green
    /// and blue; black is where nothing is drawn. A Gaussian's normal is its shortest axis.
    #[arg(long, help_heading = "Rendering")]
    normals: bool,

    #[command(flatten)]
    samples: TriangleSamples,
}

/// Writes `MODEL/{train,test}/ours_N/{renders,gt}/00000.png`, and `depth`, `depth_color` and `normals` if requested.
pub(super) fn run(args: &RenderArgs, matches: &ArgMatches) -> anyhow::Result<()> {
    let mut model = args.model.read(matches)?;
    let is_triangles = model.config.optimize.primitive == PrimitiveName::Triangles;
    check([
        (
            is_triangles && args.normals,
            "--normals: the model is of triangles, whose normals are not drawn. Leave it out; --depth has \
             their depths",
        ),
        (
            is_triangles && args.median_depth,
            "--median-depth: the model is of triangles, of which --depth has the mean depths alone. Leave it \
             out",
        ),
    ])?;
    args.samples.apply(model.triangles.as_mut(), matches);
    if !args.skip_test {
        model.check_held_out(&args.model.model_path, "--skip-test")?;
    }
    let opened = model.open(None)?;
    device::on(
        &DeviceOptions::of_earlier(&opened.config, matches),
        Rendering { args, opened: &opened },
    )
}

struct Rendering<'a> {
    args: &'a RenderArgs,
    opened: &'a Opened,
}

impl Task for Rendering<'_> {
    type Output = ();

    fn run<B: TrainDevice>(self, device: &mut B) -> anyhow::Result<()> {
        let Self { args, opened } = self;
        let mut views = Views::new(&opened.dataset, &opened.images);
        let model = opened.upload(device)?;
        let _work = WorkFolder::open(&args.model.model_path);
        let (mut written, mut printed) = (false, Ok(()));
        for (split, skip) in [(Split::Train, args.skip_train), (Split::Test, args.skip_test)] {
            if skip || views.split(split).is_empty() {
                continue;
            }
            let depth = if args.median_depth { PixelDepth::Median } else { PixelDepth::Mean };
            let surface = match args.depth || args.normals {
                true => ShownSurface::Required(depth),
                false => ShownSurface::None,
            };
            let request = EvalRequest { surface, ..opened.request(split, ShownViews::All) };
            let folder = args.model.model_path.join(split.name());
            let folder = folder.join(format!("ours_{}", request.iteration));
            let folders = Folders::create(&folder, args, scene_extent(&opened.dataset))?;
            let mut pictures = 0;
            evaluate(device, &model, &mut views, &request, |view| {
                pictures += 1;
                Ok(folders.write(view)?)
            })
            .context("rendering")?;
            warn_about_images(&mut views);
            // Views that masks hide are written as black images but cannot be measured.
            if pictures == 0 {
                return Err(none_to_compare(&views, split).into());
            }
            written = true;
            // Printing may fail, but the images are already written.
            printed = printed.and(print(&folder.display().to_string()));
        }
        if written {
            return Ok(printed?);
        }
        Err(UsageError::new(
            "no view is left to render: the model has no held-out views, or both splits are skipped. Leave \
             --skip-train out"
        )
        .into())
    }
}

// Folders and formats of the images.

/// Folders of one split's images.
struct Folders {
    renders: PathBuf,
    truths: PathBuf,
    depths: Option<DepthFolders>,
    normals: Option<PathBuf>,
}

/// Folders and unit of depth maps.
struct DepthFolders {
    values: PathBuf,
    colors: PathBuf,
    scale: DepthUnit,
}

impl Folders {
    /// Creates the folders in the split's `folder`. `extent`: extent of the scene's cameras.
    fn create(folder: &Path, args: &RenderArgs, extent: f64) -> Result<Self, OutputError> {
        let create = |name: &str| create_folder(&folder.join(name));
        let depths = args.depth.then(|| -> Result<_, OutputError> {
            let (values, colors) = (create("depth")?, create("depth_color")?);
            let scale = DepthUnit::of(extent);
            write_text(&values.join("scale.json"), &scale.json())?;
            Ok(DepthFolders { values, colors, scale })
        });
        Ok(Self {
            renders: create("renders")?,
            truths: create("gt")?,
            depths: depths.transpose()?,
            normals: args.normals.then(|| create("normals")).transpose()?,
        })
    }

    /// Writes the images of a view, numbered by its position in the split.
    fn write(&self, view: &EvaluatedView<'_>) -> Result<(), OutputError> {
        let name = format!("{:05}.png", view.position);
        let write = |folder: &Path, picture: Picture| {
            let size = [picture.width, picture.height];
            let rgb = masked(picture.rgb, view.image);
            write_png(&folder.join(&name), size, &rgb, ExtendedColorType::Rgb8)
        };
        write(&self.renders, render_picture(view.rendered))?;
        write(&self.truths, photo_picture(view.image))?;
        let Some(maps) = view.surface else { return Ok(()) };
        let size = [maps.width, maps.height];
        if let Some(DepthFolders { values, colors, scale }) = &self.depths {
            let depths = masked(maps.depth_values(scale.values_per_unit), view.image);
            write_16_bits(&values.join(&name), size, &depths, ExtendedColorType::L16)?;
            write(colors, maps.depth_picture(scale.extent))?;
        }
        if let Some(normals) = &self.normals {
            let values = masked(maps.normal_values(), view.image);
            write_16_bits(&normals.join(&name), size, &values, ExtendedColorType::Rgb16)?;
        }
        Ok(())
    }
}

/// Minimum depth that 16 bits cover, in extents of the cameras.
const MIN_EXTENTS: f64 = 20.0;

/// Conversion of world units to 16-bit integers.
#[derive(Clone, Copy)]
struct DepthUnit {
    /// Extent of the scene's cameras, world units.
    extent: f64,
    /// Factor, a power of 2.
    values_per_unit: f64,
}

impl DepthUnit {
    fn of(extent: f64) -> Self {
        let most = f64::from(u16::MAX) / (MIN_EXTENTS * extent);
        Self { extent, values_per_unit: most.log2().floor().exp2() }
    }

    fn json(self) -> String {
        let farthest = f64::from(u16::MAX) / self.values_per_unit;
        let scale = serde_json::json!({
            "values_per_world_unit": self.values_per_unit,
            "farthest": farthest,
            "nothing": 0,
        });
        format!("{scale:#}\n")
    }
}

/// Sets pixels that the photograph's mask excludes to 0.
fn masked<T: Copy + Default>(mut values: Vec<T>, photo: &Image) -> Vec<T> {
    if let Some(mask) = &photo.mask {
        let channels = values.len() / mask.len().max(1);
        let pixels = values.chunks_exact_mut(channels.max(1));
        for (pixel, _) in pixels.zip(mask).filter(|&(_, &m)| m == 0) {
            pixel.fill(T::default());
        }
    }
    values
}

fn write_16_bits(
    path: &Path,
    size: [u32; 2],
    values: &[u16],
    kind: ExtendedColorType,
) -> Result<(), OutputError> {
    // The encoder takes samples in native byte order.
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_ne_bytes()).collect();
    write_png(path, size, &bytes, kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integer_depths_reach_twenty_extents() {
        for extent in [1e-3, 0.7, 1.0, 5.0, 1e4] {
            let reached = f64::from(u16::MAX) / DepthUnit::of(extent).values_per_unit;
            assert!((20.0..40.1).contains(&(reached / extent)), "{extent}: {reached}");
        }
    }
}
