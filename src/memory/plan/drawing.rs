//! An iteration, replayed: what drawing a view and its backward pass take and give back, in the order
//! in which the GPU's backend does.

use std::convert::Infallible;

use super::seen::ViewSize;
use crate::abi::TILE;
use crate::layout::{
    Canvas, ColorScratch, Features, Half, Library, ListSizes, NearRows, Order, PixelGradients,
    Projected, ROW_INSTANCES, Replay, SURFACE_GRADIENTS, Samples, Source as _, Splats, SurfaceRows,
    ViewSizes, Wants, replay_list, splat_capacity,
};
use crate::memory::Bytes;

/// What the coarse stage has drawn of surfaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Maps {
    /// Nothing.
    Undrawn,
    /// Depths and normals, which are compared before the backward pass.
    Compared,
    /// The same, of which samples are compared with the depths before it and after it.
    Sampled,
}

impl Maps {
    /// Whether there are any.
    pub fn are_drawn(self) -> bool {
        self != Self::Undrawn
    }
}

/// How the lists of a view's tiles are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lists {
    /// All at once.
    Whole,
    /// Band by band, in [`crate::layout::BANDS`] that are alike.
    Bands,
}

/// A view that is drawn, with what follows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Drawing<'a> {
    /// Gaussians of the model.
    pub(super) gaussians: u64,
    pub(super) view: &'a ViewSize,
    pub(super) wants: Wants,
    pub(super) lists: Lists,
    /// In the coarse stage, whose terms at samples follow the backward pass, what is drawn of surfaces.
    pub(super) coarse: Option<Maps>,
}

impl Drawing<'_> {
    /// Bytes of scratch.
    pub(super) fn scratch(&self, library: &Library) -> Bytes {
        let source = Replay::with(*library);
        self.replay(&source);
        Bytes(source.reach())
    }

    /// Takes and gives back all of it.
    pub(super) fn replay(&self, source: &Replay) {
        let Ok(()) = self.play(source);
    }

    fn sizes(&self) -> ViewSizes {
        let &ViewSize { visible, .. } = self.view;
        ViewSizes {
            gaussians: self.gaussians,
            visible,
            capacity: splat_capacity(visible, self.gaussians),
            pixels: self.view.pixels(),
        }
    }

    fn play(&self, source: &Replay) -> Result<(), Infallible> {
        let (wants, sizes) = (&self.wants, &self.sizes());
        let visible = sizes.visible;
        let Projected { splat_from_gaussian, splats: Splats { gradients, records } } =
            Projected::reserve(source, sizes)?;
        let mut features = None;
        if wants.maps {
            features = Some(Features::reserve(source, sizes, wants)?);
        }
        source.sort32(visible, u32::BITS);
        source.sum32(visible);
        let canvas = Canvas::reserve(source, sizes, wants)?;
        let mut gradients_of_pixels = None;
        if wants.backward {
            gradients_of_pixels = Some(PixelGradients::reserve(source, sizes, wants)?);
        }
        let mut colors = None;
        if let Some(kind) = wants.colors {
            colors = Some(ColorScratch::reserve(source, sizes, kind)?);
        }
        let samples = match self.lists {
            Lists::Whole => self.play_whole(source, sizes)?,
            Lists::Bands => self.play_bands(source, sizes)?,
        };
        drop((canvas, gradients_of_pixels, colors));
        if let Some(maps) = self.coarse {
            // Without features, which lie further on, the splats are folded into their gradients, and
            // what surface terms take lies in their place.
            let records = (visible == 0 || features.is_some()).then_some(records);
            play_sample_terms(source, sizes, maps)?;
            drop(records);
        }
        drop((splat_from_gaussian, gradients, features, samples));
        Ok(())
    }

    /// Lists at once, which stay until the backward pass.
    fn play_whole(
        &self,
        source: &Replay,
        sizes: &ViewSizes,
    ) -> Result<Option<Samples<Replay>>, Infallible> {
        let lists = ListSizes::whole(self.tiles(), self.view.instances);
        let listed = replay_list(source, &lists, &self.wants, Half::Sorted)?;
        let samples = self.play_samples(source, sizes)?;
        drop(listed);
        Ok(samples)
    }

    /// Lists band by band, in the forward pass and anew in the backward pass, which needs the states.
    fn play_bands(
        &self,
        source: &Replay,
        sizes: &ViewSizes,
    ) -> Result<Option<Samples<Replay>>, Infallible> {
        let band = ListSizes::band(self.tiles(), self.view.instances, sizes.visible);
        let order = Order::reserve(source, &band)?;
        drop(source.take(&ROW_INSTANCES, &band)?);
        let forward = Wants { backward: false, ..self.wants };
        let each = |wants: &Wants| {
            (0..crate::layout::BANDS)
                .try_for_each(|_| replay_list(source, &band, wants, Half::Sorted).map(drop))
        };
        each(&forward)?;
        let samples = self.play_samples(source, sizes)?;
        if self.wants.backward {
            each(&self.wants)?;
        }
        drop(order);
        Ok(samples)
    }

    /// The depths that the view shows are made, and samples compared with them; the depths stay.
    fn play_samples(
        &self,
        source: &Replay,
        sizes: &ViewSizes,
    ) -> Result<Option<Samples<Replay>>, Infallible> {
        if self.coarse != Some(Maps::Sampled) {
            return Ok(None);
        }
        let samples = Samples::reserve(source, sizes)?;
        if sizes.visible > 0 {
            play_near_rows(source, sizes)?;
        }
        Ok(Some(samples))
    }

    fn tiles(&self) -> [u32; 2] {
        self.view.px.map(|side| side.div_ceil(TILE))
    }
}

/// What surface terms say of the Gaussians that a view sees is added up.
fn play_sample_terms(source: &Replay, sizes: &ViewSizes, maps: Maps) -> Result<(), Infallible> {
    if sizes.visible == 0 {
        return Ok(());
    }
    let sums = source.take(&SURFACE_GRADIENTS, sizes)?;
    match maps {
        Maps::Sampled => play_near_rows(source, sizes)?,
        Maps::Undrawn | Maps::Compared => {
            let rows = SurfaceRows::reserve(source, sizes)?;
            source.sum32(lane_blocks(sizes));
            drop(rows);
        }
    }
    drop(sums);
    Ok(())
}

/// The Gaussians that are near the depths which a view shows are numbered.
fn play_near_rows(source: &Replay, sizes: &ViewSizes) -> Result<(), Infallible> {
    let rows = NearRows::reserve(source, sizes)?;
    source.sum32(lane_blocks(sizes));
    drop(rows);
    Ok(())
}

fn lane_blocks(sizes: &ViewSizes) -> u64 {
    sizes.gaussians.div_ceil(crate::layout::LANES.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRAIN: Wants =
        Wants { backward: true, blended: false, inverse_depths: false, maps: false, colors: None };
    const PICTURE: Wants = Wants { backward: false, blended: true, ..TRAIN };

    const VIEW: ViewSize = ViewSize { px: [800, 533], visible: 400_000, instances: 1_000_000 };

    fn drawing<'a>(view: &'a ViewSize, wants: Wants, lists: Lists) -> Drawing<'a> {
        Drawing { gaussians: 1_000_000, view, wants, lists, coarse: None }
    }

    fn reach_of(view: &ViewSize, wants: Wants, lists: Lists) -> u64 {
        drawing(view, wants, lists).scratch(&Library::default()).0
    }

    fn reach(view: &ViewSize, wants: Wants) -> u64 {
        reach_of(view, wants, Lists::Whole)
    }

    fn peak(source: &Replay, label: &str) -> u64 {
        source.peaks().iter().find(|row| row.label == label).map_or(0, |row| row.bytes)
    }

    #[test]
    fn training_takes_a_hundred_bytes_a_splat_and_twenty_an_instance() {
        let bytes = reach(&VIEW, TRAIN);
        let more = |view: ViewSize| reach(&view, TRAIN) - bytes;
        let splats = more(ViewSize { visible: 500_000, ..VIEW });
        assert!(splats.abs_diff(100_000 * 2 * 48 * 21 / 20) < 1000, "{splats}");
        let instances = more(ViewSize { instances: 2_000_000, ..VIEW });
        assert!(instances.abs_diff(1_000_000 * 84 / 4) < 100_000, "{instances}");
        let pixels = reach(&ViewSize { px: [1600, 1066], ..VIEW }, TRAIN) - bytes;
        let tiles = 4 * VIEW.tiles();
        assert!(pixels.abs_diff(3 * VIEW.pixels() * 24) < 200 * tiles, "{pixels}");
    }

    #[test]
    fn looking_takes_less_than_training() {
        assert!(reach(&VIEW, PICTURE) < reach(&VIEW, TRAIN));
    }

    #[test]
    fn bands_take_less_of_instances_and_more_of_splats() {
        let of = |instances, lists| reach_of(&ViewSize { instances, ..VIEW }, TRAIN, lists) as f64;
        let each = |lists| (of(9_000_000, lists) - of(5_000_000, lists)) / 4e6;
        let ratio = each(Lists::Bands) / each(Lists::Whole);
        assert!((ratio - 0.25).abs() < 0.01, "{ratio}");
        // Twelve bytes a splat stay, and eight come and go.
        let more = of(0, Lists::Bands) - of(0, Lists::Whole);
        assert!((4.8e6..8.1e6).contains(&more), "{more}");
    }

    #[test]
    fn many_tiles_take_longer_keys() {
        let keys = |px| {
            let source = Replay::default();
            drawing(&ViewSize { px, ..VIEW }, PICTURE, Lists::Whole).replay(&source);
            peak(&source, "keys of instances")
        };
        assert_eq!(keys([800, 533]), 2 * 2 * 1_000_000);
        assert_eq!(keys([4096, 4112]), 2 * 4 * 1_000_000);
    }

    #[test]
    fn surface_terms_take_a_row_a_gaussian_and_a_word_a_splat() {
        let sizes = |visible| ViewSizes {
            gaussians: 1_000_000,
            visible,
            capacity: splat_capacity(visible, 1_000_000),
            pixels: 1,
        };
        let of = |visible, maps| {
            let source = Replay::default();
            let Ok(()) = play_sample_terms(&source, &sizes(visible), maps);
            source
        };
        let compared = of(400_000, Maps::Compared);
        assert_eq!(peak(&compared, "surface gradients"), 48_000_000);
        assert_eq!(peak(&compared, "surface rows"), 1_600_000);
        assert_eq!(peak(&compared, "surface counts"), 2 * 31_250 * 4);
        let sampled = of(400_000, Maps::Sampled);
        assert_eq!(peak(&sampled, "surface counts"), (3 * 31_250 + 1) * 4);
        assert_eq!(of(0, Maps::Sampled).reach(), 0);
    }
}
