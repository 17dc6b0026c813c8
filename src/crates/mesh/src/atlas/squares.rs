//! Two faces a square, all of one size (the layout of `SuGaR`, Guédon and Lepetit 2024).

use super::error::AtlasError;
use super::places::Atlas;
use crate::narrow::to_u32;

/// Smallest square that leaves both faces a texel.
const LEAST_SIDE: u32 = 4;

/// Lays `faces` out in squares of `square_px`, those with one more or less index as a pair.
///
/// Face 2k has the lower right half of square k, face 2k + 1 the upper left one, both drawn in so far
/// that bilinear reading does not cross the diagonal. Other than there both run the same way round.
pub(super) fn squares(faces: usize, square_px: u32, side_px: u32) -> Result<Atlas, AtlasError> {
    if square_px < LEAST_SIDE {
        return Err(AtlasError::Square { found: square_px });
    }
    let pairs = faces.div_ceil(2);
    let along = to_u32(pairs).isqrt();
    let along = if (along as usize).pow(2) < pairs { along + 1 } else { along };
    let side = u64::from(along) * u64::from(square_px);
    let width = match u32::try_from(side) {
        Ok(side) if side <= side_px => side,
        _ => return Err(AtlasError::TooSmall { charts: pairs, side_px }),
    };
    let s = square_px as f32;
    let mut places_px = Vec::with_capacity(3 * faces);
    for face in 0..to_u32(faces) {
        let square = face / 2;
        let (x, y) = ((square / along * square_px) as f32, (square % along * square_px) as f32);
        places_px.extend(if face % 2 == 0 {
            [[x + s - 2.0, y + 1.0], [x + s - 2.0, y + s - 3.0], [x + 2.0, y + 1.0]]
        } else {
            [[x + 1.0, y + s - 1.0], [x + 1.0, y + 3.0], [x + s - 3.0, y + s - 1.0]]
        });
    }
    let faces = (0..to_u32(faces)).map(|f| [3 * f, 3 * f + 1, 3 * f + 2]).collect::<Vec<_>>();
    let charts = to_u32(faces.len());
    Ok(Atlas { width, height: width, places_px, faces, charts })
}
