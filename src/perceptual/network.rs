//! The layers of the two networks that LPIPS uses.

use serde::Serialize;

use self::LpipsNet::{Alex, Vgg};

/// Layers whose features are compared.
pub const COMPARED: usize = 5;

/// Which network the features come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum LpipsNet {
    /// The 13 convolutions of VGG16 (Simonyan and Zisserman 2015).
    Vgg,
    /// The five convolutions of `AlexNet` (Krizhevsky 2014).
    Alex,
}

/// What a layer does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LayerKind {
    /// Convolution, bias, and max(x, 0).
    Convolution {
        /// What its tensors are called, less `.weight` and `.bias`.
        name: &'static str,
        /// Channels before.
        inputs: u32,
        /// Channels of the output; a multiple of 64.
        outputs: u32,
    },
    /// The largest value of the window.
    MaxPool,
}

/// The square that a layer moves over the image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LayerWindow {
    /// Its side, px.
    pub side: u32,
    /// How far it moves, px.
    pub stride: u32,
    /// Zeros at each border of the image, px.
    pub padding: u32,
}

/// One layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layer {
    /// What it does.
    pub kind: LayerKind,
    /// What it sees.
    pub window: LayerWindow,
    /// Whether its output is compared.
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

/// A window of 3x3 that leaves the size as it is.
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
    /// Both.
    pub const ALL: [Self; 2] = [Vgg, Alex];

    /// As the `lpips` package calls it.
    pub fn name(self) -> &'static str {
        match self {
            Vgg => "vgg",
            Alex => "alex",
        }
    }

    /// The layers, from the image on.
    pub fn layers(self) -> &'static [Layer] {
        match self {
            Vgg => &VGG,
            Alex => &ALEX,
        }
    }

    /// Smallest side of an image that has features after every layer, px.
    pub fn side_min(self) -> u32 {
        match self {
            Vgg => 16,
            Alex => 31,
        }
    }

    /// Channels of the output of each compared layer.
    pub fn channels(self) -> impl Iterator<Item = u32> {
        self.layers().iter().filter(|layer| layer.compared).filter_map(|layer| match layer.kind {
            LayerKind::Convolution { outputs, .. } => Some(outputs),
            LayerKind::MaxPool => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_layer_takes_the_channels_that_the_one_before_gives() {
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
}
