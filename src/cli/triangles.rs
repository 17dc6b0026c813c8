//! Models of triangles: how commands draw them, and what says that a command has no use for them.

use clap::{ArgMatches, Args};

use super::exit::UsageError;
use super::parser::is_typed;
use crate::backend::{DeviceError, Footprint, MOST_SAMPLES, TrainDevice, Window};
use crate::config::PrimitiveName;
use crate::export::{PlyTriangles, StoredWindow};
use crate::model::Gaussians;

/// How finely triangles are sampled.
#[derive(Args)]
pub(super) struct TriangleSamples {
    /// Samples along each side of a pixel of a model of triangles
    ///
    /// More are slower and make smoother edges. Training ends with 4.
    #[arg(long, value_name = "1|2|4", help_heading = "Triangles", value_parser = samples)]
    samples: Option<u32>,
}

fn samples(text: &str) -> Result<u32, String> {
    let value = text.trim().parse().ok();
    value.filter(|value| [1, 2, 4].contains(value)).ok_or_else(|| "give 1, 2 or 4".to_owned())
}

/// The triangles of a model, and how they are drawn.
#[derive(Debug)]
pub(super) struct ShownTriangles {
    faces: Vec<[u32; 3]>,
    window: Window,
}

impl ShownTriangles {
    /// As they were drawn when they were saved, with as many samples as training ends with.
    pub(super) fn new(stored: PlyTriangles) -> Self {
        let PlyTriangles { faces, window: StoredWindow { exponent, opacity_floor } } = stored;
        let window = Window { exponent, opacity_floor, samples: MOST_SAMPLES, ..Window::SOLID };
        Self { faces, window }
    }

    pub(super) fn footprint(&self) -> Footprint {
        Footprint::Triangle(self.window)
    }
}

impl TriangleSamples {
    /// Has triangles drawn as the option says; of another model, says that it changes nothing.
    pub(super) fn apply(&self, triangles: Option<&mut ShownTriangles>, matches: &ArgMatches) {
        match (triangles, self.samples) {
            (Some(triangles), Some(samples)) => triangles.window.samples = samples,
            (None, _) if is_typed(matches, "samples") => tracing::warn!(
                "--samples has no effect: the model is not of triangles, which alone are sampled"
            ),
            _ => {}
        }
    }
}

/// Puts a model on a device, with the triangles between its rows where it has any.
pub(super) fn upload<B: TrainDevice>(
    device: &mut B,
    gaussians: &Gaussians,
    triangles: Option<&ShownTriangles>,
) -> Result<B::Model, DeviceError> {
    let mut model = device.upload(gaussians)?;
    if let Some(triangles) = triangles {
        device.set_faces(&mut model, &triangles.faces)?;
    }
    Ok(model)
}

/// Fails where a model is of triangles, with what a command cannot do with these, and what to do instead.
pub(super) fn refuse_triangles(primitive: PrimitiveName, why: &str) -> Result<(), UsageError> {
    match primitive {
        PrimitiveName::Triangles => Err(UsageError(why.to_owned())),
        PrimitiveName::Gaussians | PrimitiveName::Surfels => Ok(()),
    }
}
