//! `.splat`, the format of antimatter15's viewer: rows of 32 bytes without a header. Positions and scales are floats,
//! colours and rotations bytes; there are no harmonics above degree 0.

use std::io::{self, Write};

use splat_mesh::narrow::{round_u8, to_f32, to_u32};

use crate::error::{FormatFault, damaged};
use crate::geometry::{UnitQuat, sigmoid};
use crate::save::WorstErrors;
use crate::splats::{CheckedSplats, SplatColumns, Splats};

pub(crate) const ROW_BYTES: usize = 32;

/// Number of rows that are packed together: half a megabyte.
const ROWS_AT_ONCE: usize = 1 << 14;

/// Writes the rows by falling visibility, so that a viewer can show a partly loaded scene. Returns the errors of the
/// file.
pub fn write_splat(splats: &Splats, out: &mut dyn Write) -> io::Result<WorstErrors> {
    let mut worst = WorstErrors::default();
    for rows in largest_first(splats).chunks(ROWS_AT_ONCE) {
        let some = splats.rows(rows);
        let bytes: Vec<u8> = (0..some.len()).flat_map(|row| pack(some.columns(), row)).collect();
        let stored = unpack_rows(&bytes).map_err(io::Error::other)?;
        worst = worst.or(WorstErrors::between(&some, &stored.splats));
        out.write_all(&bytes)?;
    }
    Ok(worst)
}

/// Sorts by falling volume x opacity. The sort is stable.
fn largest_first(splats: &Splats) -> Vec<u32> {
    let columns = splats.columns();
    let weight = |row: usize| {
        let volume: f64 = columns.log_scales[row].iter().map(|&scale| f64::from(scale)).sum();
        volume + sigmoid(columns.opacity_logits[row]).ln()
    };
    let mut weighed: Vec<(f64, u32)> =
        (0..splats.len()).map(|row| (weight(row), to_u32(row))).collect();
    weighed.sort_by(|a, b| b.0.total_cmp(&a.0));
    weighed.into_iter().map(|(_, row)| row).collect()
}

fn pack(columns: &SplatColumns, row: usize) -> [u8; ROW_BYTES] {
    let mut bytes = [0; ROW_BYTES];
    let scales = columns.log_scales[row].map(|scale| to_f32(f64::from(scale).exp()));
    let floats = columns.means[row].into_iter().chain(scales);
    for (to, value) in bytes.as_chunks_mut::<4>().0.iter_mut().zip(floats) {
        *to = value.to_le_bytes();
    }
    bytes[24..28].copy_from_slice(&columns.color_bytes(row));
    for (to, &part) in bytes[28..].iter_mut().zip(&columns.rotations[row]) {
        *to = round_u8(128.0 * f64::from(part) + 128.0);
    }
    bytes
}

/// Reads a complete file.
pub fn parse_splat(bytes: &[u8]) -> Result<CheckedSplats, FormatFault> {
    if !bytes.len().is_multiple_of(ROW_BYTES) {
        return damaged(format!(
            "is truncated, or no .splat: its {} bytes are no rows of {ROW_BYTES}",
            bytes.len()
        ));
    }
    unpack_rows(bytes)
}

fn unpack_rows(bytes: &[u8]) -> Result<CheckedSplats, FormatFault> {
    let mut columns = SplatColumns::with_capacity(0, bytes.len() / ROW_BYTES);
    for row in bytes.as_chunks::<ROW_BYTES>().0 {
        let words = row.as_chunks::<4>().0;
        let float = |i: usize| f32::from_le_bytes(words[i]);
        let quat: UnitQuat = std::array::from_fn(|i| (f32::from(row[28 + i]) - 128.0) / 128.0);
        columns.means.push([float(0), float(1), float(2)]);
        // A negative scale becomes NaN, so the row is dropped.
        columns.log_scales.push([3, 4, 5].map(|i| to_f32(f64::from(float(i)).ln())));
        columns.push_color_bytes(words[6]);
        columns.rotations.push(quat);
    }
    Ok(Splats::from_columns(columns)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::splats::known_splats::{hard_splats, random_splats};

    fn written(splats: &Splats) -> (Vec<u8>, WorstErrors) {
        let mut bytes = Vec::new();
        let worst = write_splat(splats, &mut bytes).unwrap();
        (bytes, worst)
    }

    #[test]
    fn round_trip_error_is_within_the_quantisation_steps() {
        for count in [0, 1, 257, 20_000] {
            let splats = random_splats(count, 1, 1);
            let (bytes, worst) = written(&splats);
            assert_eq!(bytes.len(), 32 * count);
            let read = parse_splat(&bytes).unwrap();
            assert_eq!((read.splats.len(), read.dropped), (count, 0));
            assert_eq!(worst.position, 0.0);
            // Rounding of -6 in f32, through exp and ln.
            assert!(worst.log_scale < 2e-6, "{worst:?}");
            assert!(worst.opacity < 0.51 / 255.0 && worst.color < 0.51 / 255.0, "{worst:?}");
            // Four components with errors up to 1/256 (1/128 where 1 is clamped) make 2 x 2/256 rad.
            assert!(worst.rotation_degrees < 1.0, "{worst:?}");
            assert!(count == 0 || worst.sh > 0.2, "harmonics are lost: {worst:?}");
        }
    }

    #[test]
    fn rows_are_sorted_by_visibility() {
        let mut splats = random_splats(3, 0, 2);
        let columns = splats.columns_mut();
        columns.log_scales = vec![[-3.0; 3], [0.0; 3], [0.0; 3]];
        columns.opacity_logits = vec![5.0, -2.0, 2.0];
        let read = parse_splat(&written(&splats).0).unwrap().splats;
        let means = &splats.columns().means;
        assert_eq!(read.columns().means, [means[2], means[1], means[0]]);
    }

    #[test]
    fn scales_of_zero_or_less_are_accepted() {
        let (mut bytes, _) = written(&hard_splats(3, 0));
        bytes[12..16].copy_from_slice(&0.0_f32.to_le_bytes());
        bytes[32 + 12..32 + 16].copy_from_slice(&(-1.0_f32).to_le_bytes());
        bytes[64 + 28..].fill(128);
        let read = parse_splat(&bytes).unwrap();
        assert_eq!((read.splats.len(), read.dropped), (1, 2));
        assert!(parse_splat(&bytes[..33]).unwrap_err().to_string().contains("rows of 32"));
    }
}
