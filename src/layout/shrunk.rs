//! Downsampled photograph beside the pixels of its view.

use super::request::ViewRequest;
use super::slot::{Source, Taken as _};
use super::view::{ViewCount, ViewSizes};
use crate::math::Divisor;

slots! {
    ViewCount {
        SMALL_COLORS: u8 = "smaller photograph", Pixels, ViewCount::Pixels, 3,
            "the photograph of a view that is drawn smaller";
        SMALL_MASK: u8 = "smaller photograph", Pixels, ViewCount::Pixels, 1,
            "the photograph of a view that is drawn smaller";
        SMALL_DEPTHS: u16 = "smaller photograph", Pixels, ViewCount::Pixels, 1,
            "the photograph of a view that is drawn smaller";
        SMALL_NORMALS: i8 = "smaller photograph", Pixels, ViewCount::Pixels, 3,
            "the photograph of a view that is drawn smaller";
    }
}

/// Buffers of a downsampled photograph.
pub struct ShrunkSlots<A: Source> {
    /// [height, width, 3]
    pub colors: A::Block<u8>,
    /// [height, width]. Reserved without a mask too: masks are known only with the photograph.
    pub mask: A::Block<u8>,
    /// Inverse depths, if they are compared; [height, width].
    pub depths: Option<A::Block<u16>>,
    /// Normals, which may be compared with the normals of inverse depths; [height, width, 3].
    pub normals: Option<A::Block<i8>>,
}

impl<A: Source> ShrunkSlots<A> {
    /// Reserves the buffers for the view's size; `None` if the photograph has that size.
    pub fn reserve(
        source: &A,
        sizes: &ViewSizes,
        wants: &ViewRequest,
    ) -> Result<Option<Self>, A::Error> {
        if wants.divisor == Divisor::One {
            return Ok(None);
        }
        Ok(Some(Self {
            colors: source.take(&SMALL_COLORS, sizes)?,
            mask: source.take(&SMALL_MASK, sizes)?,
            depths: source.take_if(wants.inverse_depths, &SMALL_DEPTHS, sizes)?,
            normals: source.take_if(wants.inverse_depths, &SMALL_NORMALS, sizes)?,
        }))
    }

    /// Returns the bytes of all buffers.
    pub fn bytes(&self) -> u64 {
        self.colors.bytes() + self.mask.bytes() + self.depths.bytes() + self.normals.bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::{Records, Replay};

    #[test]
    fn a_smaller_photograph_takes_four_bytes_a_pixel_and_five_for_its_maps() {
        let sizes = ViewSizes {
            gaussians: 1,
            visible: 1,
            capacity: 1024,
            records: Records::Ellipses,
            pixels: 1000,
        };
        let bytes = |divisor, inverse_depths| {
            let wants = ViewRequest { divisor, inverse_depths, ..ViewRequest::default() };
            let Ok(room) = ShrunkSlots::reserve(&Replay::default(), &sizes, &wants);
            room.map_or(0, |room| room.bytes())
        };
        let (one, two) = (Divisor::One, Divisor::Two);
        assert_eq!([bytes(one, true), bytes(two, false), bytes(two, true)], [0, 4000, 9000]);
    }
}
