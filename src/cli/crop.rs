//! Crop options of several commands.

use clap::Args;
use splat_formats::{CropBox, CropSphere};

use crate::dataset::Frame;

/// Region that is kept.
#[derive(Args)]
pub(super) struct CropOptions {
    /// Keep what lies in this box; may be given several times
    ///
    /// In scene coordinates.
    #[arg(long, value_name = "x,y,z,X,Y,Z", allow_hyphen_values = true, value_parser = crop_box)]
    pub(super) crop: Vec<CropBox>,

    /// Keep what lies in this ball
    ///
    /// In scene coordinates.
    #[arg(long, value_name = "x,y,z,R", allow_hyphen_values = true, value_parser = crop_sphere)]
    pub(super) crop_sphere: Option<CropSphere>,
}

impl CropOptions {
    /// Converts the box and ball from scene coordinates to those of a file.
    pub(super) fn converted(&self, file: &Frame) -> Self {
        let to = |place| Frame::SCENE.to(file, place);
        let in_box = |it: &CropBox| CropBox { low: to(it.low), high: to(it.high) };
        let in_ball = |it: CropSphere| CropSphere { center: to(it.center), ..it };
        Self {
            crop: self.crop.iter().map(in_box).collect(),
            crop_sphere: self.crop_sphere.map(in_ball),
        }
    }
}

/// Parses N finite numbers between commas.
pub(super) fn numbers<const N: usize>(text: &str) -> Result<[f64; N], String> {
    let read = |number: &str| number.trim().parse().ok().filter(|n: &f64| n.is_finite());
    let all: Option<Vec<f64>> = text.split(',').map(read).collect();
    all.and_then(|all| all.try_into().ok())
        .ok_or_else(|| format!("give {N} finite numbers with commas between them"))
}

fn crop_box(text: &str) -> Result<CropBox, String> {
    let [x, y, z, x_end, y_end, z_end] = numbers(text)?;
    let (low, high) = ([x, y, z], [x_end, y_end, z_end]);
    if (0..3).any(|axis| low[axis] > high[axis]) {
        return Err("give the lesser corner first".to_owned());
    }
    Ok(CropBox { low, high })
}

fn crop_sphere(text: &str) -> Result<CropSphere, String> {
    let [x, y, z, radius] = numbers(text)?;
    if radius < 0.0 {
        return Err("the radius is below 0".to_owned());
    }
    Ok(CropSphere { center: [x, y, z], radius })
}

pub(super) fn number(text: &str) -> Result<f64, String> {
    let value = text.trim().parse().ok();
    value.filter(|value: &f64| value.is_finite()).ok_or_else(|| "give a finite number".to_owned())
}
