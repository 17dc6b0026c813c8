//! Colours after a camera's colour correction, beside the pixels of a view.

use super::placement::with_gap;
use super::slot::{Count, Lifetime, Source, Taken as _};
use crate::abi::{
    AFFINE_WIDTH, COLOR_SHARES, FIT_SUMS, GRID_BWD_BLOCK, GRID_LUMA, GRID_SHARES, GRID_X, GRID_Y,
};

slots! {
    ColorCount {
        COMPENSATED: f32 = "compensated image", Pixels, ColorCount::Pixels, 3,
            "the drawn view as its camera changed the colours";
        COLOR_SUMS: f32 = "sums of colours", Pixels, ColorCount::Sums, 1,
            "gradients of a colour table, in parts";
        COLOR_MAP: f32 = "map of colours", Pixels, ColorCount::Map, 1,
            "gradients of a colour table";
    }
}

/// Correction of the colours that are compared with a photograph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColorUse {
    /// Affine map fitted to the photograph.
    Fit,
    /// Learned affine map of a view.
    Exposure,
    /// Learned bilateral grid of a view.
    Grid,
}

#[derive(Clone, Copy, Debug)]
struct ColorSizes {
    pixels: u64,
    colors: ColorUse,
}

#[derive(Clone, Copy, Debug)]
enum ColorCount {
    Pixels,
    Sums,
    Map,
}

impl Count for ColorCount {
    type Sizes = ColorSizes;

    const LIFETIME: Lifetime = Lifetime::View;

    fn of(self, ColorSizes { pixels, colors }: &Self::Sizes) -> u64 {
        match (self, colors) {
            (Self::Pixels, _) => *pixels,
            // Sums in double precision.
            (Self::Sums, ColorUse::Fit) => {
                with_gap(u64::from(COLOR_SHARES * FIT_SUMS) * 8) / size_of::<f32>() as u64
            }
            (Self::Sums, ColorUse::Exposure) => (COLOR_SHARES * AFFINE_WIDTH).into(),
            (Self::Sums, ColorUse::Grid) => {
                ((GRID_X - 1) * (GRID_Y - 1) * GRID_SHARES * GRID_BWD_BLOCK).into()
            }
            (Self::Map, ColorUse::Fit | ColorUse::Exposure) => AFFINE_WIDTH.into(),
            (Self::Map, ColorUse::Grid) => (GRID_X * GRID_Y * GRID_LUMA * AFFINE_WIDTH).into(),
        }
    }
}

/// Buffers of corrected colours, which are compared with a photograph.
pub struct ColorSlots<A: Source> {
    /// [height, width, 3]
    pub image: A::Block<f32>,
    /// Partial sums of thread blocks.
    pub sums: A::Block<f32>,
    /// Gradient of a table, or the fitted map.
    pub map: A::Block<f32>,
}

impl<A: Source> ColorSlots<A> {
    /// Reserves the buffers for corrected colours of `pixels` pixels.
    pub fn reserve(source: &A, pixels: u64, colors: ColorUse) -> Result<Self, A::Error> {
        let sizes = ColorSizes { pixels, colors };
        Ok(Self {
            image: source.take(&COMPENSATED, &sizes)?,
            sums: source.take(&COLOR_SUMS, &sizes)?,
            map: source.take(&COLOR_MAP, &sizes)?,
        })
    }

    /// Returns the bytes of all buffers.
    pub fn bytes(&self) -> u64 {
        self.image.bytes() + self.sums.bytes() + self.map.bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_and_maps_have_the_length_of_the_correction() {
        let lens = |colors| {
            let sizes = ColorSizes { pixels: 10, colors };
            [COMPENSATED.len(&sizes), COLOR_SUMS.len(&sizes), COLOR_MAP.len(&sizes)]
        };
        assert_eq!(lens(ColorUse::Fit), [30, 2 * 256 * 22, 12]);
        assert_eq!(lens(ColorUse::Exposure), [30, 256 * 12, 12]);
        assert_eq!(lens(ColorUse::Grid), [30, 15 * 15 * 4 * 384, 24_576]);
    }
}
