//! Scratch of drawing a view, and of an iteration.

use serde::Serialize;

use super::appearance::ColorTables;
use super::coarse::{self, Maps};
use super::library::{self, Key};
use super::stack::{Stack, Taken};
use crate::abi::{
    BLEND_BLOCK, BLEND_CHUNK, BLEND_PARTS, FEATURES_WIDTH, RECORD_WIDTH, SHORT_KEYS_MAX, TILE,
    TileRange, TileRect,
};

/// Bands that a view's lists come in where they do not fit at once. There may be as many as there
/// are rows of tiles, but more take more time.
const BANDS: u64 = 4;

/// Room for so many splats there always is.
const SPLATS_MIN: u64 = 1024;

/// Room for splats is taken in twentieths more than a view had.
const HEADROOM: u64 = 20;

const WORD: u64 = 4;

/// A view of a model, as far as memory is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct ViewSize {
    /// Width and height, px.
    pub px: [u32; 2],
    /// Gaussians that it sees: splats.
    pub visible: u64,
    /// Pairs of a splat and a tile that it reaches.
    pub instances: u64,
}

impl ViewSize {
    /// Its pixels.
    pub fn pixels(&self) -> u64 {
        self.px.map(u64::from).iter().product()
    }

    /// Its tiles.
    pub fn tiles(&self) -> u64 {
        self.px.map(|side| u64::from(side.div_ceil(TILE))).iter().product()
    }
}

/// What a view is drawn for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pass {
    /// The backward pass follows.
    Train {
        /// Whether inverse depths stand beside the colours.
        inverse_depths: bool,
        /// In the coarse stage, what is drawn of surfaces; behind the backward pass these are asked for
        /// more.
        coarse: Option<Maps>,
    },
    /// A picture, and how many Gaussians each pixel is blended of; an evaluation takes no more.
    Picture,
}

/// How the lists of a view's tiles are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lists {
    /// All at once.
    Whole,
    /// Band by band, in [`BANDS`] that are alike.
    Bands,
}

/// A view is drawn of so many Gaussians, with other colours beside them where there are tables of
/// these, and all of it goes again.
pub(super) fn draw(
    stack: &mut Stack,
    gaussians: u64,
    view: &ViewSize,
    (pass, lists): (Pass, Lists),
    colors: Option<&ColorTables>,
) {
    let ViewSize { visible, instances, .. } = *view;
    let records = records(gaussians, visible);
    let mut splats = vec![
        stack.take("splat of each Gaussian", gaussians * WORD),
        stack.take("gradients of splats", records),
        stack.take("splats", records),
    ];
    let (inverse_depths, maps) = match pass {
        Pass::Picture => (false, None),
        Pass::Train { inverse_depths, coarse } => (inverse_depths, coarse),
    };
    let a_word_each = view.pixels() * WORD;
    let has_surface = maps.is_some_and(Maps::are_drawn);
    if has_surface {
        let bytes = visible.max(1) * u64::from(FEATURES_WIDTH) * WORD;
        let labels = ["features of splats", "gradients of features"];
        splats.extend(labels.map(|label| stack.take(label, bytes)));
    }
    if visible > 0 {
        stack.pass("sort", library::sort(visible, Key::Bits32, u32::BITS).0);
        stack.pass("sort", library::sum(visible).0);
    }
    let mut held = vec![stack.take("image", 3 * a_word_each)];
    if pass == Pass::Picture {
        held.push(stack.take("pixels", a_word_each));
    }
    let of_surface = u64::from(FEATURES_WIDTH) * a_word_each;
    held.extend(inverse_depths.then(|| stack.take("inverse depths", a_word_each)));
    held.extend(has_surface.then(|| stack.take("surface maps", of_surface)));
    if pass != Pass::Picture {
        held.push(stack.take("gradient of the image", 3 * a_word_each));
    }
    held.extend(inverse_depths.then(|| stack.take("gradient of inverse depths", a_word_each)));
    held.extend(has_surface.then(|| stack.take("gradient of surface maps", of_surface)));
    held.extend(colors.into_iter().flat_map(|colors| colors.take(stack, view, pass)));
    // Samples are compared with the depths before the backward pass, which lists bands anew, and behind
    // it.
    let is_sampled = maps == Some(Maps::Sampled) && visible > 0;
    if is_sampled && lists == Lists::Bands {
        splats.extend(coarse::show_depths(stack, gaussians, view));
    }
    let tiles = view.tiles();
    let (counted, instances) = match lists {
        Lists::Whole => (0, instances),
        Lists::Bands => {
            held.push(stack.take("slots front to back", visible * WORD));
            held.push(stack.take("tiles of splats", visible * size_of::<TileRect>() as u64));
            stack.pass("instances of rows", u64::from(view.px[1].div_ceil(TILE)) * 2 * WORD);
            (visible, instances.div_ceil(BANDS))
        }
    };
    held.push(stack.take("tiles", tiles * size_of::<TileRange>() as u64));
    held.push(list(stack, (instances, tiles), counted));
    // The states of a surface hold those of inverse depths.
    let beside = match pass {
        Pass::Picture => None,
        Pass::Train { .. } if has_surface => Some(u64::from(FEATURES_WIDTH)),
        Pass::Train { inverse_depths, .. } => Some(u64::from(inverse_depths)),
    };
    held.extend(beside.into_iter().flat_map(|beside| keep(stack, (instances, tiles), beside)));
    if is_sampled && lists == Lists::Whole {
        splats.extend(coarse::show_depths(stack, gaussians, view));
    }
    for block in held {
        stack.give_back(block);
    }
    // Behind the backward pass.
    if let Some(maps) = maps {
        if !has_surface && visible > 0 {
            // What surfaces ask takes their place.
            splats.pop().into_iter().for_each(|records| stack.give_back(records));
        }
        coarse::regularise(stack, (gaussians, visible), maps);
    }
    for block in splats {
        stack.give_back(block);
    }
}

/// Bytes of room for the records of so many splats.
fn records(gaussians: u64, visible: u64) -> u64 {
    let room = (visible + visible / HEADROOM).clamp(SPLATS_MIN, gaussians.max(SPLATS_MIN));
    room * u64::from(RECORD_WIDTH) * WORD
}

/// What so many views, which were drawn before in a batch, hold until its step.
pub(super) fn settled(
    stack: &mut Stack,
    views: u32,
    (gaussians, view): (u64, &ViewSize),
    maps: Option<Maps>,
) -> Vec<Taken> {
    let records = records(gaussians, view.visible);
    let mut held = Vec::new();
    for number in 0..views {
        held.push(stack.take("splat of each Gaussian", gaussians * WORD));
        held.push(stack.take("gradients of splats", records));
        if maps.is_some_and(Maps::are_drawn) {
            // The place of the splats stays empty.
            let splats = stack.take("splats", records);
            let bytes = view.visible.max(1) * u64::from(FEATURES_WIDTH) * WORD;
            let labels = ["features of splats", "gradients of features"];
            held.extend(labels.map(|label| stack.take(label, bytes)));
            stack.give_back(splats);
        }
        if number == 0 && maps.is_some() && view.visible > 0 {
            held.push(coarse::surface_gradients(stack, gaussians));
        }
    }
    held
}

/// The lists of the tiles are made, with the instances of so many splats counted anew; what is left
/// holds the instances.
fn list(stack: &mut Stack, (instances, tiles): (u64, u64), counted: u64) -> Taken {
    let first = stack.take("instances", instances * WORD);
    let second = stack.take("instances while sorting", instances * WORD);
    let mut passing = Vec::new();
    if counted > 0 {
        let labels = ["instances of splats", "first instances"];
        passing.extend(labels.map(|label| stack.take(label, counted * WORD)));
        stack.pass("sort", library::sum(counted).0);
    }
    let key = if tiles <= u64::from(SHORT_KEYS_MAX) { Key::Bits16 } else { Key::Bits32 };
    passing.extend([(); 2].map(|()| stack.take("keys of instances", instances * key.bytes())));
    // The number behind the last tile marks empty places.
    let bits = u64::BITS - tiles.leading_zeros();
    if instances > 0 {
        stack.pass("sort", library::sort(instances, key, bits).0);
    }
    for block in passing {
        stack.give_back(block);
    }
    let (kept, gone) = if library::ends_in_second(instances, key, bits) {
        (second, first)
    } else {
        (first, second)
    };
    stack.give_back(gone);
    kept
}

/// What the forward pass keeps for the backward pass, with so many words of each pixel beside its
/// colours'.
fn keep(stack: &mut Stack, (instances, tiles): (u64, u64), beside: u64) -> [Taken; 6] {
    let parts = u64::from(BLEND_PARTS);
    let chunks = instances / u64::from(BLEND_CHUNK);
    let states = (chunks + 1) * u64::from(BLEND_BLOCK);
    let hits = (instances / u64::from(u32::BITS) + tiles + 1) * parts;
    [
        ("parts of tiles", tiles * parts),
        ("states of pixels", 4 * states),
        ("states of pixels", beside * states),
        ("hits", hits),
        ("chunks", (chunks + tiles) * 2),
        ("chunks", 1),
    ]
    .map(|(label, words)| stack.take(label, words * WORD))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reach(view: &ViewSize, pass: Pass) -> u64 {
        reach_of(view, (pass, Lists::Whole))
    }

    fn reach_of(view: &ViewSize, how: (Pass, Lists)) -> u64 {
        let mut stack = Stack::default();
        draw(&mut stack, 1_000_000, view, how, None);
        stack.reach().0
    }

    const TRAIN: Pass = Pass::Train { inverse_depths: false, coarse: None };

    const VIEW: ViewSize = ViewSize { px: [800, 533], visible: 400_000, instances: 1_000_000 };

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
        assert!(reach(&VIEW, Pass::Picture) < reach(&VIEW, TRAIN));
    }

    #[test]
    fn bands_take_less_of_instances_and_more_of_splats() {
        let of =
            |instances, lists| reach_of(&ViewSize { instances, ..VIEW }, (TRAIN, lists)) as f64;
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
            let mut stack = Stack::default();
            let view = ViewSize { px, ..VIEW };
            draw(&mut stack, 1000, &view, (Pass::Picture, Lists::Whole), None);
            let row = stack.peaks().iter().find(|row| row.label == "keys of instances").copied();
            row.map_or(0, |row| row.bytes.0)
        };
        assert_eq!(keys([800, 533]), 2 * 2 * 1_000_000);
        assert_eq!(keys([4096, 4112]), 2 * 4 * 1_000_000);
    }
}
