//! Surfels for formats that have no word for them.

use crate::save::SplatFormat;
use crate::splats::{FLAT_LOG_SCALE, SplatPrimitive, Splats};
use crate::spz::LEAST_SPZ_LOG_SCALE;

/// How much flatter than the least of the other scales surfels are where these share a table: by a factor
/// of about 100, as a logarithm.
const FLATTER: f32 = 4.6;

impl Splats {
    /// Gives surfels a third scale that a format stores as it is. Others stay as they are.
    pub fn flatten_for(&mut self, format: &SplatFormat) {
        if self.columns().primitive != SplatPrimitive::Surfels {
            return;
        }
        let drawn = self.columns().log_scales.iter().flat_map(|[first, second, _]| [first, second]);
        let Some(&least) = drawn.min_by(|a, b| a.total_cmp(b)) else { return };
        let flat = match format {
            SplatFormat::Spz(_) | SplatFormat::Html(_) => LEAST_SPZ_LOG_SCALE,
            // All scales share the entries of one table, which cover what lies between them, too.
            SplatFormat::Sog(_) | SplatFormat::SogFolder(_) | SplatFormat::StreamedSog(_) => {
                (least - FLATTER).max(FLAT_LOG_SCALE)
            }
            SplatFormat::Ply | SplatFormat::PackedPly | SplatFormat::Splat | SplatFormat::Glb => {
                FLAT_LOG_SCALE
            }
        };
        self.columns_mut().log_scales.iter_mut().for_each(|[.., third]| *third = flat);
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use rstest::rstest;

    use super::*;
    use crate::known_splats::{random_splats, random_surfels};
    use crate::open::read;
    use crate::place::ScenePlacement;
    use crate::save::write;

    #[rstest]
    #[case("a.ply", SplatPrimitive::Surfels)]
    #[case("a.compressed.ply", SplatPrimitive::Gaussians)]
    #[case("a.splat", SplatPrimitive::Gaussians)]
    #[case("a.spz", SplatPrimitive::Gaussians)]
    #[case("a.sog", SplatPrimitive::Gaussians)]
    #[case("folder/meta.json", SplatPrimitive::Gaussians)]
    #[case("folder/lod-meta.json", SplatPrimitive::Gaussians)]
    #[case("a.glb", SplatPrimitive::Gaussians)]
    fn the_third_scale_of_surfels_is_stored_as_it_is(
        #[case] name: &str,
        #[case] primitive: SplatPrimitive,
    ) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let format = SplatFormat::of_name(&path).unwrap();
        let mut surfels = random_surfels(700, 1, 3);
        let smaller = ScenePlacement { scale: 0.01, ..ScenePlacement::default() };
        surfels.place(&smaller).unwrap();
        surfels.flatten_for(&format);
        let flat = surfels.columns().log_scales[0][2];
        let written = write(&path, &surfels, &format).unwrap();
        // The others begin at e^-10.6, and SPZ has nothing below e^-10.
        assert!(written.errors.log_scale < 0.7, "{:?}", written.errors);
        let read = read(&path).unwrap().splats;
        assert_eq!((read.len(), read.columns().primitive), (700, primitive));
        let thirds = read.columns().log_scales.iter().map(|[.., third]| third);
        assert!(thirds.into_iter().all(|third| (third - flat).abs() < 1e-5), "{flat}");
        let mut gaussians = random_splats(9, 0, 1);
        gaussians.flatten_for(&format);
        assert!(gaussians == random_splats(9, 0, 1));
    }
}
