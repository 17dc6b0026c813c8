//! `splat render`: the model's images beside the photographs.

use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::{ArgMatches, Args};

use super::device::{self, DeviceOptions, Task};
use super::exit::UsageError;
use super::output::print;
use super::scene::{ModelArgs, Opened, none_to_compare};
use crate::backend::TrainDevice;
use crate::dataset::Image;
use crate::files::{WorkFolder, create_folder, write_atomically};
use crate::train::eval::{EvalRequest, ShownViews, evaluate};
use crate::train::event::{Picture, Split};
use crate::train::pictures::{photo_picture, render_picture};
use crate::train::{TrainError, Views};

/// Arguments of `splat render`.
#[derive(Args)]
pub(super) struct RenderArgs {
    #[command(flatten)]
    pub(super) model: ModelArgs,

    /// Leave out the views that were trained on
    #[arg(long, help_heading = "Rendering")]
    skip_train: bool,

    /// Leave out the views that were held out
    #[arg(long, help_heading = "Rendering")]
    skip_test: bool,
}

/// Writes `MODEL/{train,test}/ours_N/{renders,gt}/00000.png`.
pub(super) fn run(args: &RenderArgs, matches: &ArgMatches) -> anyhow::Result<()> {
    let opened = args.model.open(matches)?;
    device::on(&DeviceOptions::of(&opened.config), Rendering { args, opened: &opened })
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
        let model = device.upload(&opened.gaussians)?;
        let _work = WorkFolder::open(&args.model.model_path);
        let (mut written, mut printed) = (false, Ok(()));
        for (split, skip) in [(Split::Train, args.skip_train), (Split::Test, args.skip_test)] {
            if skip || views.split(split).is_empty() {
                continue;
            }
            let request = opened.request(split, ShownViews::All);
            let folder = output_folder(&args.model.model_path, &request);
            let renders = create_folder(&folder.join("renders"))?;
            let truths = create_folder(&folder.join("gt"))?;
            let mut pictures = 0;
            evaluate(device, &model, &mut views, &request, |view| {
                pictures += 1;
                let name = format!("{:05}.png", view.position);
                write_png(&renders.join(&name), render_picture(view.rendered), view.image)?;
                write_png(&truths.join(&name), photo_picture(view.image), view.image)
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
            "no view is left to render: the model has no held-out views, or both splits are skipped"
                .to_owned(),
        )
        .into())
    }
}

fn output_folder(model_path: &Path, request: &EvalRequest<'_>) -> PathBuf {
    model_path.join(request.split.name()).join(format!("ours_{}", request.iteration))
}

/// Writes a picture as it is compared: black where the photograph's mask excludes it.
fn write_png(path: &Path, mut picture: Picture, photo: &Image) -> Result<(), TrainError> {
    if let Some(mask) = &photo.mask {
        for (pixel, _) in picture.rgb.chunks_exact_mut(3).zip(mask).filter(|&(_, &m)| m == 0) {
            pixel.fill(0);
        }
    }
    let (width, height) = (picture.width, picture.height);
    write_atomically(path, |out| {
        let encoder = image::codecs::png::PngEncoder::new(out);
        image::ImageEncoder::write_image(
            encoder,
            &picture.rgb,
            width,
            height,
            image::ExtendedColorType::Rgb8,
        )
        .map_err(std::io::Error::other)
    })?;
    Ok(())
}
