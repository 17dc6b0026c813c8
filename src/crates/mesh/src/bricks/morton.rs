//! Places along the Z-curve (Morton 1966): 21 bits an axis, x in the lowest.
//!
//! Shifting a key right by three bits gives the key of the cell twice as large that holds it, so that
//! one sort serves every level.

/// Bits of an axis.
pub const AXIS_BITS: u32 = 21;

/// The key of a cell; each coordinate is below 2^21.
#[inline]
pub const fn key(cell: [u32; 3]) -> u64 {
    spread(cell[0]) | spread(cell[1]) << 1 | spread(cell[2]) << 2
}

/// The cell of a key.
#[inline]
pub const fn cell(key: u64) -> [u32; 3] {
    [gather(key), gather(key >> 1), gather(key >> 2)]
}

/// 21 bits with two zeros before each.
const fn spread(x: u32) -> u64 {
    let mut bits = (x & 0x1f_ffff) as u64;
    bits = (bits | bits << 32) & 0x001f_0000_0000_ffff;
    bits = (bits | bits << 16) & 0x001f_0000_ff00_00ff;
    bits = (bits | bits << 8) & 0x100f_00f0_0f00_f00f;
    bits = (bits | bits << 4) & 0x10c3_0c30_c30c_30c3;
    (bits | bits << 2) & 0x1249_2492_4924_9249
}

/// Every third bit, joined.
const fn gather(key: u64) -> u32 {
    let mut bits = key & 0x1249_2492_4924_9249;
    bits = (bits | bits >> 2) & 0x10c3_0c30_c30c_30c3;
    bits = (bits | bits >> 4) & 0x100f_00f0_0f00_f00f;
    bits = (bits | bits >> 8) & 0x001f_0000_ff00_00ff;
    bits = (bits | bits >> 16) & 0x001f_0000_0000_ffff;
    ((bits | bits >> 32) & 0x1f_ffff) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_bits_of_the_axes_take_turns() {
        for bit in 0..AXIS_BITS {
            assert_eq!(key([1 << bit, 0, 0]), 1 << (3 * bit));
        }
    }

    proptest! {
        #[test]
        fn a_key_gives_back_its_cell(x in 0_u32..1 << 21, y in 0_u32..1 << 21, z in 0_u32..1 << 21) {
            prop_assert_eq!(cell(key([x, y, z])), [x, y, z]);
            prop_assert_eq!(key([x, y, z]) >> 3, key([x / 2, y / 2, z / 2]));
        }
    }
}
