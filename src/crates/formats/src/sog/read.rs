//! SOG, read.

use super::meta::{
    ANTIALIASED, ENTRIES_A_LINE, META_NAME, SogMeta, SogPalette, SogVersion, VERSION,
};
use super::picture::decode;
use super::values::{SqueezedRange, unpack_rotation};
use crate::fault::FormatFault;
use crate::folder::{PartSource, check_name};
use crate::json::parse_json;
use crate::opacity::logit_of_byte;
use crate::splats::{
    Antialiasing, CheckedSplats, MAX_SH_DEGREE, SplatColumns, Splats, sh_rest_count,
};

/// Scenes of so many Gaussians are read however small their pictures are.
const ALWAYS_READ: u64 = 1 << 18;

/// Bytes of `meta.json`, which has three codebooks.
const MOST_META_BYTES: u64 = 1 << 20;

/// Rows of the largest palette.
const MOST_ENTRIES: u64 = 1 << 16;

/// Reads a SOG of version 2 from its parts.
///
/// A file that announces more than 262,144 Gaussians and more than it has bytes is refused.
pub fn read_sog(parts: &mut dyn PartSource) -> Result<CheckedSplats, FormatFault> {
    let meta = parts.get(META_NAME, MOST_META_BYTES)?;
    check_version(&meta)?;
    let meta: SogMeta = parse_json(META_NAME, &meta)?;
    let most = parts.total_bytes().max(ALWAYS_READ);
    let count = match usize::try_from(meta.count) {
        Ok(count) if meta.count <= most => count,
        _ => {
            return Err(FormatFault::damaged(format!(
                "announces {} Gaussians in {} bytes",
                meta.count,
                parts.total_bytes()
            )));
        }
    };
    let mut picture = |name: &str, count: usize| {
        check_name(name)?;
        let most_bytes = parts.total_bytes();
        decode(name, &parts.get(name, most_bytes)?, count)
    };
    let [low, high] = &meta.means.files;
    let (low, high) = (picture(low, count)?, picture(high, count)?);
    let quats = picture(&meta.quats.files[0], count)?;
    let scales = picture(&meta.scales.files[0], count)?;
    let colors = picture(&meta.sh0.files[0], count)?;
    let mut harmonics = None;
    if let Some(palette) = &meta.sh_rest {
        check_palette(palette)?;
        let entries = usize::try_from(palette.count).unwrap_or(usize::MAX);
        let lines = entries.div_ceil(ENTRIES_A_LINE);
        let pixels = lines * ENTRIES_A_LINE * sh_rest_count(palette.bands);
        let [centroids, labels] = &palette.files;
        let centroids = picture(centroids, pixels)?;
        harmonics = Some(PaletteRows { palette, centroids, labels: picture(labels, count)? });
    }

    let scale_codes = Codes::of("scales", &meta.scales.codebook)?;
    let color_codes = Codes::of("sh0", &meta.sh0.codebook)?;
    let sh_degree = meta.sh_rest.as_ref().map_or(0, |palette| palette.bands);
    let mut columns = SplatColumns::with_capacity(sh_degree, count);
    if meta.model.as_deref() == Some(ANTIALIASED) {
        columns.antialiasing = Antialiasing::On;
    }
    let ranges: [SqueezedRange; 3] = std::array::from_fn(|i| SqueezedRange {
        low: meta.means.mins[i],
        high: meta.means.maxs[i],
    });
    for (low, high) in low.iter().zip(&high) {
        let axis = |i: usize| ranges[i].unpack(u16::from_le_bytes([low[i], high[i]]));
        columns.means.push([axis(0), axis(1), axis(2)]);
    }
    // A rotation that is none leaves zeros, and so drops its row.
    columns.rotations.extend(quats.iter().map(|&quat| unpack_rotation(quat).unwrap_or_default()));
    columns.log_scales.extend(scales.iter().map(|pixel| scale_codes.triple(pixel)));
    columns.sh_dc.extend(colors.iter().map(|pixel| color_codes.triple(pixel)));
    columns.opacity_logits.extend(colors.iter().map(|pixel| logit_of_byte(pixel[3])));
    if let Some(harmonics) = harmonics {
        harmonics.unpack(&mut columns)?;
    }
    Ok(Splats::from_columns(columns)?)
}

/// Files of version 1 have other keys, which would be what is complained of.
fn check_version(meta: &[u8]) -> Result<(), FormatFault> {
    match parse_json::<SogVersion>(META_NAME, meta)?.version {
        VERSION => Ok(()),
        found => Err(FormatFault::Unsupported(format!(
            "is of version {found} of SOG; {VERSION} is read: export it again with a newer program"
        ))),
    }
}

fn check_palette(palette: &SogPalette) -> Result<(), FormatFault> {
    if !(1..=MAX_SH_DEGREE).contains(&palette.bands) {
        return Err(FormatFault::damaged(format!(
            "has harmonics of {} bands; 1 to {MAX_SH_DEGREE} are expected",
            palette.bands
        )));
    }
    if palette.count > MOST_ENTRIES {
        return Err(FormatFault::damaged(format!(
            "has a palette of {} rows; {MOST_ENTRIES} at most are expected",
            palette.count
        )));
    }
    Ok(())
}

/// A codebook of 256 numbers.
struct Codes<'a> {
    entries: &'a [f32; 256],
}

impl<'a> Codes<'a> {
    fn of(name: &str, codebook: &'a [f32]) -> Result<Self, FormatFault> {
        let entries = codebook.try_into().map_err(|_other_length| {
            FormatFault::damaged(format!(
                "has a codebook of {} {name}; 256 are expected",
                codebook.len()
            ))
        })?;
        Ok(Self { entries })
    }

    fn triple(&self, [r, g, b, _]: &[u8; 4]) -> [f32; 3] {
        [*r, *g, *b].map(|code| self.entries[usize::from(code)])
    }
}

/// The palette's picture and who uses which row.
struct PaletteRows<'a> {
    palette: &'a SogPalette,
    centroids: Vec<[u8; 4]>,
    labels: Vec<[u8; 4]>,
}

impl PaletteRows<'_> {
    fn unpack(&self, columns: &mut SplatColumns) -> Result<(), FormatFault> {
        let codes = Codes::of("shN", &self.palette.codebook)?;
        let width = sh_rest_count(self.palette.bands);
        for label in &self.labels {
            let entry = usize::from(u16::from_le_bytes([label[0], label[1]]));
            let row = self.centroids.get(entry * width..).and_then(|rest| rest.get(..width));
            let Some(row) = row.filter(|_| (entry as u64) < self.palette.count) else {
                return Err(FormatFault::damaged(format!(
                    "names row {entry} of a palette of {}",
                    self.palette.count
                )));
            };
            columns.sh_rest.extend(row.iter().map(|pixel| codes.triple(pixel)));
        }
        Ok(())
    }
}
