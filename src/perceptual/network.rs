//! The layers of the two networks that LPIPS uses.

use std::ops::Range;

use serde::Serialize;

use self::LpipsNet::{Alex, Vgg};
use crate::memory::Bytes;

/// Number of layers whose features are compared.
pub const COMPARED: usize = 5;

/// Network of the features.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum LpipsNet {
    /// The 13 convolutions of VGG16 (Simonyan and Zisserman 2015).
    Vgg,
    /// The five convolutions of `AlexNet` (Krizhevsky 2014).
    Alex,
}

/// Operation of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LayerKind {
    /// Convolution, bias, and max(x, 0).
    Convolution {
        /// Name of its tensors without `.weight` and `.bias`.
        name: &'static str,
        /// Input channels.
        inputs: u32,
        /// Output channels; a multiple of 64.
        outputs: u32,
    },
    /// Maximum of the window.
    MaxPool,
}

/// Square window of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LayerWindow {
    /// Side, px.
    pub side: u32,
    /// Step between positions, px.
    pub stride: u32,
    /// Zeros at each border of the image, px.
    pub padding: u32,
}

/// A layer of a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layer {
    /// Operation of the layer.
    pub kind: LayerKind,
    /// Window of the layer.
    pub window: LayerWindow,
    /// True if the output is compared.
    pub compared: bool,
}

const fn convolution(name: &'static str, channels: [u32; 2], window: LayerWindow) -> Layer {
    let [inputs, outputs] = channels;
    Layer { kind: LayerKind::Convolution { name, inputs, outputs }, window, compared: false }
}

const fn pool(side: u32) -> Layer {
    let window = LayerWindow { side, stride: 2, padding: 0 };
    Layer { kind: LayerKind::MaxPool, window, compared: false }
}

const fn compared(layer: Layer) -> Layer {
    Layer { compared: true, ..layer }
}

const THREE: LayerWindow = LayerWindow { side: 3, stride: 1, padding: 1 };

const VGG: [Layer; 17] = [
    convolution("net.slice1.0", [3, 64], THREE),
    compared(convolution("net.slice1.2", [64, 64], THREE)),
    pool(2),
    convolution("net.slice2.5", [64, 128], THREE),
    compared(convolution("net.slice2.7", [128, 128], THREE)),
    pool(2),
    convolution("net.slice3.10", [128, 256], THREE),
    convolution("net.slice3.12", [256, 256], THREE),
    compared(convolution("net.slice3.14", [256, 256], THREE)),
    pool(2),
    convolution("net.slice4.17", [256, 512], THREE),
    convolution("net.slice4.19", [512, 512], THREE),
    compared(convolution("net.slice4.21", [512, 512], THREE)),
    pool(2),
    convolution("net.slice5.24", [512, 512], THREE),
    convolution("net.slice5.26", [512, 512], THREE),
    compared(convolution("net.slice5.28", [512, 512], THREE)),
];

const ALEX: [Layer; 7] = [
    compared(convolution("net.slice1.0", [3, 64], LayerWindow { side: 11, stride: 4, padding: 2 })),
    pool(3),
    compared(convolution(
        "net.slice2.3",
        [64, 192],
        LayerWindow { side: 5, stride: 1, padding: 2 },
    )),
    pool(3),
    compared(convolution("net.slice3.6", [192, 384], THREE)),
    compared(convolution("net.slice4.8", [384, 256], THREE)),
    compared(convolution("net.slice5.10", [256, 256], THREE)),
];

impl LpipsNet {
    /// Both networks.
    pub const ALL: [Self; 2] = [Vgg, Alex];

    /// Returns the name in the `lpips` package.
    pub fn name(self) -> &'static str {
        match self {
            Vgg => "vgg",
            Alex => "alex",
        }
    }

    /// Returns the layers in order of evaluation.
    pub fn layers(self) -> &'static [Layer] {
        match self {
            Vgg => &VGG,
            Alex => &ALEX,
        }
    }

    /// Returns the smallest side of an image that has features after every layer, px.
    pub fn side_min(self) -> u32 {
        match self {
            Vgg => 16,
            Alex => 31,
        }
    }

    /// Returns the output channels of each compared layer.
    pub fn channels(self) -> impl Iterator<Item = u32> {
        self.layers().iter().filter(|layer| layer.compared).filter_map(|layer| match layer.kind {
            LayerKind::Convolution { outputs, .. } => Some(outputs),
            LayerKind::MaxPool => None,
        })
    }
}

// Sizes of an image's features in strips.
//
// Each row of the output of every compared layer belongs to one strip. A strip also computes the rows that its own
// rows depend on, so that strips give the result of the whole image: only the borders of the image are padded with
// zeros.

/// A strip of an image.
#[derive(Clone, Copy, Debug)]
pub struct StripPlace {
    /// Index from the top, from 0.
    pub index: u32,
    /// Number of strips of the image.
    pub count: u32,
}

/// Sizes of an image and of its features after each layer.
#[derive(Clone, Debug)]
pub struct LayerSizes {
    net: LpipsNet,
    /// Channels, width and height of the image and after each layer.
    sizes: Vec<[u32; 3]>,
}

impl LayerSizes {
    /// Creates the sizes for an image of this width and height, px; `None` if it is smaller than
    /// [`LpipsNet::side_min`].
    pub fn new(net: LpipsNet, [width, height]: [u32; 2]) -> Option<Self> {
        if width.min(height) < net.side_min() {
            return None;
        }
        let mut sizes = vec![[3, width, height]];
        let mut size = [3, width, height];
        for layer in net.layers() {
            let LayerWindow { side, stride, padding } = layer.window;
            let after = |length: u32| Some((length + 2 * padding).checked_sub(side)? / stride + 1);
            let channels = match layer.kind {
                LayerKind::Convolution { outputs, .. } => outputs,
                LayerKind::MaxPool => size[0],
            };
            size = [channels, after(size[1])?, after(size[2])?];
            sizes.push(size);
        }
        Some(Self { net, sizes })
    }

    /// Returns channels, width and height after this number of layers.
    pub fn size(&self, layers: usize) -> [u32; 3] {
        self.sizes[layers]
    }

    /// Returns the maximum number of strips: each has rows after every layer.
    pub fn most(&self) -> u32 {
        self.sizes.last().map_or(1, |size| size[2])
    }

    /// Returns the rows after this number of layers that belong to a strip.
    pub fn own(&self, layers: usize, strip: StripPlace) -> Range<u32> {
        let StripPlace { index, count } = strip;
        let rows = u64::from(self.sizes[layers][2]);
        let edge = |index: u32| {
            u32::try_from(rows * u64::from(index) / u64::from(count.max(1))).unwrap_or(u32::MAX)
        };
        edge(index)..edge(index + 1)
    }

    /// Returns the rows that are computed for a strip, of the image and after each layer.
    pub fn rows(&self, strip: StripPlace) -> Vec<Range<u32>> {
        let layers = self.net.layers();
        let mut rows = vec![0..0; layers.len() + 1];
        for (at, layer) in layers.iter().enumerate().rev() {
            if layer.compared {
                rows[at + 1] = hull(&rows[at + 1], &self.own(at + 1, strip));
            }
            let Range { start, end } = rows[at + 1];
            if start < end {
                let LayerWindow { side, stride, padding } = layer.window;
                let first = (start * stride).saturating_sub(padding);
                let last = ((end - 1) * stride + side).saturating_sub(padding);
                rows[at] = first..last.min(self.sizes[at][2]);
            }
        }
        rows
    }

    /// Returns the values of one image that two alternating feature buffers hold. The image is in the first buffer.
    pub fn turns(&self, count: u32) -> [u64; 2] {
        let mut turns = [0, 0];
        for index in 0..count {
            for (at, rows) in self.rows(StripPlace { index, count }).into_iter().enumerate() {
                let [channels, width, _] = self.sizes[at].map(u64::from);
                let values = channels * width * u64::from(rows.end - rows.start);
                turns[at % 2] = values.max(turns[at % 2]);
            }
        }
        turns
    }

    /// Returns the bytes of both images' features with this number of strips.
    pub fn bytes(&self, count: u32) -> Bytes {
        let [first, second] = self.turns(count);
        Bytes(2 * (first + second) * size_of::<f32>() as u64)
    }

    /// Returns the smallest number of strips with features of at most `bytes` bytes; `None` if the thinnest strips
    /// take more.
    pub fn strips_within(&self, bytes: Bytes) -> Option<u32> {
        let most = self.most();
        let mut count = 1;
        loop {
            if self.bytes(count) <= bytes {
                return Some(count);
            }
            if count >= most {
                return None;
            }
            count = (count + 1 + count / 8).min(most);
        }
    }

    /// Returns the preferred memory: [`PLENTY`](super::PLENTY), or [`Self::efficient`] if that is more.
    pub fn wish(&self) -> Bytes {
        super::PLENTY.max(self.efficient()).min(self.bytes(1))
    }

    /// Returns the memory with which strips are about as high as their margins and take about twice the time of the
    /// whole image.
    pub fn efficient(&self) -> Bytes {
        Bytes(2 * self.bytes(self.most()).0).min(self.bytes(1))
    }
}

/// Returns the smallest range that contains both.
fn hull(a: &Range<u32>, b: &Range<u32>) -> Range<u32> {
    match (a.is_empty(), b.is_empty()) {
        (true, _) => b.clone(),
        (_, true) => a.clone(),
        _ => a.start.min(b.start)..a.end.max(b.end),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn channels_of_consecutive_layers_match() {
        for net in LpipsNet::ALL {
            let mut channels = 3;
            for layer in net.layers() {
                if let LayerKind::Convolution { inputs, outputs, .. } = layer.kind {
                    assert_eq!(inputs, channels, "{layer:?}");
                    assert_eq!(outputs % 64, 0, "{layer:?}");
                    channels = outputs;
                }
            }
            assert_eq!(net.channels().count(), COMPARED);
        }
    }

    #[test]
    fn the_smallest_image_has_one_pixel_after_the_last_layer() {
        for net in LpipsNet::ALL {
            let side = net.side_min();
            let sizes = LayerSizes::new(net, [side, side]).unwrap();
            assert_eq!(sizes.sizes.last().unwrap()[1..], [1, 1]);
            assert!(LayerSizes::new(net, [side, side - 1]).is_none());
            assert!(LayerSizes::new(net, [side - 1, side]).is_none());
        }
    }

    #[test]
    fn strips_own_every_row_once() {
        for net in LpipsNet::ALL {
            let sizes = LayerSizes::new(net, [50, 333]).unwrap();
            for count in 1..=sizes.most() {
                for layers in 1..=net.layers().len() {
                    let own = |index| sizes.own(layers, StripPlace { index, count });
                    assert_eq!((own(0).start, own(count - 1).end), (0, sizes.size(layers)[2]));
                    assert!((1..count).all(|index| own(index - 1).end == own(index).start));
                    assert!((0..count).all(|index| !own(index).is_empty()));
                }
            }
        }
    }

    #[test]
    fn a_strip_of_vgg_reaches_90_rows_beyond_its_own() {
        let sizes = LayerSizes::new(Vgg, [64, 1600]).unwrap();
        // Row 50 of 100 after four poolings: rows 800 to 815 of the image. Three convolutions at a sixteenth, an
        // eighth and a quarter of the size and two at half and full size extend them.
        let rows = |index, count| sizes.rows(StripPlace { index, count });
        let reached = rows(50, 100);
        let around = 3 * 16 + 3 * 8 + 3 * 4 + 2 * 2 + 2;
        assert_eq!(reached[0], 800 - around..816 + around);
        assert_eq!(reached[17], 50..51);
        // Clipped to the image.
        assert_eq!(rows(0, 100)[0], 0..16 + around);
        assert_eq!(rows(99, 100)[0].end, 1600);
        assert_eq!(rows(0, 1)[0], 0..1600);
    }

    #[test]
    fn more_strips_take_less_memory_down_to_their_margins() {
        let sizes = LayerSizes::new(Vgg, [1061, 1894]).unwrap();
        // 64 channels twice in single precision, of two images.
        let whole = 1061 * 1894 * 64 * 4 * 4;
        assert_eq!(sizes.bytes(1), Bytes(whole));
        assert_eq!(sizes.strips_within(Bytes(whole)), Some(1));
        let count = sizes.strips_within(Bytes(600 << 20)).unwrap();
        assert!((3..8).contains(&count), "{count}");
        assert!(sizes.bytes(count) <= Bytes(600 << 20));
        let least = sizes.bytes(sizes.most());
        assert!(least < Bytes(230 << 20), "{least:?}");
        assert_eq!(sizes.strips_within(Bytes(least.0 / 2)), None);
        assert!(sizes.strips_within(sizes.wish()).unwrap() < 10);
    }
}
