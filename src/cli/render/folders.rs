//! The folders that rendered pictures go to, and the forms that they are written in.

use std::path::{Path, PathBuf};

use image::ExtendedColorType;

use crate::dataset::Image;
use crate::files::{OutputError, create_folder, write_png, write_text};
use crate::train::eval::EvaluatedView;
use crate::train::event::Picture;
use crate::train::pictures::{photo_picture, render_picture};

/// What is written beside renders and photographs.
#[derive(Clone, Copy)]
pub(super) struct Wanted {
    pub(super) depths: bool,
    pub(super) normals: bool,
}

/// The folders that one split's pictures go to, and how they are written.
pub(super) struct Folders {
    renders: PathBuf,
    truths: PathBuf,
    depths: Option<DepthFolders>,
    normals: Option<PathBuf>,
}

/// Where depths go.
struct DepthFolders {
    values: PathBuf,
    colors: PathBuf,
    scale: DepthUnit,
}

impl Folders {
    /// Makes them in the split's `folder`, for a scene of this extent.
    pub(super) fn create(folder: &Path, wanted: Wanted, extent: f64) -> Result<Self, OutputError> {
        let create = |name: &str| create_folder(&folder.join(name));
        let depths = wanted.depths.then(|| -> Result<_, OutputError> {
            let (values, colors) = (create("depth")?, create("depth_color")?);
            let scale = DepthUnit::of(extent);
            write_text(&values.join("scale.json"), &scale.json())?;
            Ok(DepthFolders { values, colors, scale })
        });
        Ok(Self {
            renders: create("renders")?,
            truths: create("gt")?,
            depths: depths.transpose()?,
            normals: wanted.normals.then(|| create("normals")).transpose()?,
        })
    }

    /// Writes a view, numbered by its position in the split.
    pub(super) fn write(&self, view: &EvaluatedView<'_>) -> Result<(), OutputError> {
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

/// Cameras' extents that 16 bits reach at least.
const EXTENTS: f64 = 20.0;

/// How world units become whole numbers of 16 bits.
#[derive(Clone, Copy)]
struct DepthUnit {
    /// Extent of the scene's cameras, world units.
    extent: f64,
    /// A power of 2.
    values_per_unit: f64,
}

impl DepthUnit {
    fn of(extent: f64) -> Self {
        let most = f64::from(u16::MAX) / (EXTENTS * extent);
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

/// Pixels as they are compared: 0 where the photograph's mask excludes them.
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
    // The encoder takes samples in the machine's order of bytes.
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_ne_bytes()).collect();
    write_png(path, size, &bytes, kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_numbers_of_depths_reach_twenty_extents() {
        for extent in [1e-3, 0.7, 1.0, 5.0, 1e4] {
            let reached = f64::from(u16::MAX) / DepthUnit::of(extent).values_per_unit;
            assert!((20.0..40.1).contains(&(reached / extent)), "{extent}: {reached}");
        }
    }
}
