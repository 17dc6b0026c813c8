//! `splat render`: the model's images beside the photographs.

mod folders;

use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::{ArgMatches, Args};

use self::folders::{Folders, Wanted};
use super::device::{self, DeviceOptions, Task};
use super::exit::UsageError;
use super::output::print;
use super::scene::{ModelArgs, Opened, none_to_compare};
use super::triangles::TriangleSamples;
use crate::backend::{PixelDepth, TrainDevice};
use crate::files::WorkFolder;
use crate::train::eval::{EvalRequest, ShownSurface, ShownViews, evaluate};
use crate::train::event::Split;
use crate::train::{Views, scene_extent};

/// Arguments of `splat render`.
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

/// Writes `MODEL/{train,test}/ours_N/{renders,gt}/00000.png`, and on demand `depth`, `depth_color` and
/// `normals` beside them.
pub(super) fn run(args: &RenderArgs, matches: &ArgMatches) -> anyhow::Result<()> {
    let mut model = args.model.read(matches)?;
    if args.normals {
        model.refuse_triangles(
            "--normals: the model is of triangles, whose normals are not drawn. Leave it out; --depth has \
             their depths",
        )?;
    }
    if args.median_depth {
        model.refuse_triangles(
            "--median-depth: the model is of triangles, of which --depth has the mean depths alone. Leave it \
             out",
        )?;
    }
    args.samples.apply(model.triangles.as_mut(), matches);
    if !args.skip_test {
        model.refuse_seen(&args.model.model_path, "--skip-test")?;
    }
    let opened = model.open(None)?;
    device::on(
        &DeviceOptions::of_earlier(&opened.config, matches),
        Rendering { args, opened: &opened },
    )
}

/// Rendering a model's views.
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
            let wanted = Wanted { depths: args.depth, normals: args.normals };
            let surface = if wanted.depths || wanted.normals {
                let depth = if args.median_depth { PixelDepth::Median } else { PixelDepth::Mean };
                ShownSurface::Required(depth)
            } else {
                ShownSurface::None
            };
            let request = EvalRequest { surface, ..opened.request(split, ShownViews::All) };
            let folder = output_folder(&args.model.model_path, &request);
            let folders = Folders::create(&folder, wanted, scene_extent(&opened.dataset))?;
            let mut pictures = 0;
            evaluate(device, &model, &mut views, &request, |view| {
                pictures += 1;
                Ok(folders.write(view)?)
            })
            .context("rendering")?;
            for warning in views.take_warnings() {
                tracing::warn!("{warning}");
            }
            // Views that masks hide have pictures, black ones, though nothing to measure by.
            if pictures == 0 {
                return Err(none_to_compare(&views, split).into());
            }
            written = true;
            // The pictures are written whether or not that can be said.
            printed = printed.and(print(&folder.display().to_string()));
        }
        if written {
            return Ok(printed?);
        }
        Err(UsageError(
            "no view is left to render: the model has no held-out views, or both splits are skipped. Leave \
             --skip-train out"
                .to_owned(),
        )
        .into())
    }
}

fn output_folder(model_path: &Path, request: &EvalRequest<'_>) -> PathBuf {
    model_path.join(request.split.name()).join(format!("ours_{}", request.iteration))
}
