//! From flat charts to an atlas on which none lies on itself.

use rayon::prelude::*;

use super::Atlas;
use super::AtlasError;
use super::AtlasOptions;
use super::boxes::FlatChart;
use super::charts::Surface;
use super::packing::Place;
use super::packing::{Packed, pack};
use super::raster::for_each_texel;
use crate::narrow::{floor_u32, to_f32, to_u32};

/// Rounds of parting charts that fold over themselves; after the first ones face by face.
const ROUNDS: usize = 40;
const ROUNDS_BY_PATCH: usize = 8;

/// Packs charts, and parts those of which two faces claim one texel until there is none.
pub(super) fn lay_out(
    surface: &Surface<'_>,
    mut charts: Vec<FlatChart>,
    options: &AtlasOptions,
) -> Result<Atlas, AtlasError> {
    for round in 0..ROUNDS {
        let sizes: Vec<[f64; 2]> = charts.iter().map(|chart| chart.size).collect();
        let packed = pack(&sizes, options.side_px, options.padding_px)
            .ok_or(AtlasError::TooSmall { charts: charts.len(), side_px: options.side_px })?;
        let count = charts.len();
        let by_patch = round < ROUNDS_BY_PATCH;
        let part = |(chart, &corner_px): (FlatChart, &[u32; 2])| {
            PackedChart { chart, corner_px, density: packed.density }.parted(surface, by_patch)
        };
        let parted: Vec<Vec<FlatChart>> =
            charts.into_par_iter().zip(&packed.corners).map(part).collect();
        charts = parted.into_iter().flatten().collect();
        if charts.len() == count {
            return Ok(placed(&charts, &packed, surface.mesh.faces.len(), options.side_px));
        }
    }
    Err(AtlasError::Overlap { charts: charts.len(), rounds: ROUNDS })
}

/// Where a place of a chart lies on the picture.
fn place_px(place: Place, corner_px: [u32; 2], density: f64) -> [f32; 2] {
    [0, 1].map(|axis| to_f32(f64::from(corner_px[axis]) + place[axis] * density))
}

/// A chart at its place on the picture.
struct PackedChart {
    chart: FlatChart,
    corner_px: [u32; 2],
    density: f64,
}

impl PackedChart {
    /// The chart without the faces that lie on a texel of an earlier one, and charts of those. The chart
    /// itself where there are none.
    fn parted(self, surface: &Surface<'_>, by_patch: bool) -> Vec<FlatChart> {
        let taken = self.taken();
        if taken.is_empty() {
            return vec![self.chart];
        }
        let chart = &self.chart;
        let left: Vec<u32> =
            chart.faces.iter().copied().filter(|f| taken.binary_search(f).is_err()).collect();
        // What is left may have come apart.
        let mut parts: Vec<FlatChart> =
            surface.patches(&left).into_iter().map(|faces| chart.part(faces)).collect();
        if by_patch {
            parts.extend(surface.patches(&taken).into_iter().map(|faces| chart.part(faces)));
        } else {
            parts.extend(taken.into_iter().map(|face| FlatChart::alone(surface.mesh, face)));
        }
        parts
    }

    /// The faces with a texel that an earlier one has, in ascending order.
    fn taken(&self) -> Vec<u32> {
        // As many as the packer keeps for it, and one more on each side for rounding.
        let texels = |axis: usize| floor_u32(self.chart.size[axis] * self.density) + 3;
        let [width, height] = [texels(0), texels(1)];
        let first = self.corner_px.map(|corner| corner.saturating_sub(1));
        let end = [first[0] + width, first[1] + height];
        let mut is_claimed = vec![false; width as usize * height as usize];
        let mut own = Vec::new();
        let mut taken = Vec::new();
        for (&face, &corners) in self.chart.faces.iter().zip(&self.chart.corners) {
            own.clear();
            let corners_px = corners.map(|place| {
                let place = self.chart.places[place as usize];
                place_px(place, self.corner_px, self.density).map(f64::from)
            });
            for_each_texel(corners_px, end, |x, y| {
                own.push((y - first[1]) as usize * width as usize + (x - first[0]) as usize);
            });
            if own.iter().any(|&texel| is_claimed[texel]) {
                taken.push(face);
            } else {
                own.iter().for_each(|&texel| is_claimed[texel] = true);
            }
        }
        taken
    }
}

fn placed(charts: &[FlatChart], packed: &Packed, faces: usize, side_px: u32) -> Atlas {
    let mut atlas = Atlas {
        width: side_px,
        height: packed.height.next_multiple_of(4),
        places_px: Vec::with_capacity(charts.iter().map(|chart| chart.places.len()).sum()),
        faces: vec![[0; 3]; faces],
        charts: to_u32(charts.len()),
    };
    for (chart, &corner) in charts.iter().zip(&packed.corners) {
        let first = to_u32(atlas.places_px.len());
        let places = chart.places.iter();
        atlas.places_px.extend(places.map(|&place| place_px(place, corner, packed.density)));
        for (&face, places) in chart.faces.iter().zip(&chart.corners) {
            atlas.faces[face as usize] = places.map(|place| first + place);
        }
    }
    atlas
}
