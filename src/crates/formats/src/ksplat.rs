//! Reader of `.ksplat` of `GaussianSplats3D` (Kellogg), levels 0 to 2.
//!
//! The file has a header of 4096 bytes, a header of 1024 bytes per section, and the sections. A section has buckets and
//! rows. Positions of levels 1 and 2 are relative to bucket centres. Rows have position, scale, rotation, colour and
//! harmonics: floats in level 0, halves in level 1, halves and bytes for harmonics in level 2.

use crate::error::{FormatFault, damaged};
use crate::splats::{CheckedSplats, MAX_SH_DEGREE, SplatColumns, Splats, sh_rest_count};
use splat_mesh::file::ByteCursor;
use splat_mesh::narrow::{half, to_f32};

const HEADER_BYTES: usize = 4096;
const SECTION_HEADER_BYTES: usize = 1024;

/// Default number of steps from the centre of a bucket to its side.
const STEPS: u32 = 32_767;

/// Default range of the harmonics of level 2.
const MAX_HARMONIC: f32 = 1.5;

struct KsplatHeader {
    sections: usize,
    count: u32,
    /// Bytes of a number, and of a coefficient above degree 0.
    number_bytes: usize,
    harmonic_bytes: usize,
    harmonics: [f32; 2],
}

struct Section {
    rows: usize,
    /// Capacity of the section in rows.
    room: usize,
    bucket_rows: usize,
    buckets: usize,
    block: f32,
    bucket_bytes: usize,
    steps: u32,
    full_buckets: usize,
    partial_buckets: usize,
    sh_degree: u32,
}

/// Reads a complete file.
pub fn parse_ksplat(bytes: &[u8]) -> Result<CheckedSplats, FormatFault> {
    let header = KsplatHeader::read(bytes)?;
    let mut cursor = ByteCursor::new(bytes);
    cursor.take("its header", HEADER_BYTES)?;
    let table =
        cursor.take("its sections", header.sections.saturating_mul(SECTION_HEADER_BYTES))?;
    let sections = table.chunks_exact(SECTION_HEADER_BYTES).map(Section::read);
    let sections = sections.collect::<Result<Vec<_>, _>>()?;
    let degrees = sections.iter().filter(|it| it.rows > 0).map(|it| it.sh_degree);
    let mut columns = SplatColumns::with_capacity(degrees.max().unwrap_or(0), 0);
    for section in &sections {
        section.take_rows(&header, &mut cursor, &mut columns)?;
    }
    if columns.len() as u64 != u64::from(header.count) {
        return damaged(format!("announces {} Gaussians and has {}", header.count, columns.len()));
    }
    Ok(Splats::from_columns(columns)?)
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    let found = bytes.get(at..).and_then(|rest| rest.first_chunk());
    found.map_or(0, |found| u16::from_le_bytes(*found))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let found = bytes.get(at..).and_then(|rest| rest.first_chunk());
    found.map_or(0, |found| u32::from_le_bytes(*found))
}

/// Reads a number of four or two bytes.
fn number_at(bytes: &[u8], at: usize, width: usize) -> f32 {
    if width == 4 { f32::from_bits(u32_at(bytes, at)) } else { half(u16_at(bytes, at)) }
}

impl KsplatHeader {
    fn read(bytes: &[u8]) -> Result<Self, FormatFault> {
        let header = ByteCursor::new(bytes).take("its header", HEADER_BYTES)?;
        let (major, minor, level) = (header[0], header[1], u16_at(header, 20));
        if major != 0 || minor == 0 || level > 2 {
            return Err(FormatFault::Unsupported(format!(
                "is of version {major}.{minor} and level {level} of .ksplat; 0.1 and levels 0 to 2 are read. \
                 Convert it: npx @playcanvas/splat-transform in.ksplat out.ply"
            )));
        }
        let or = |value: f32, usual: f32| if value == 0.0 { usual } else { value };
        Ok(Self {
            sections: u32_at(header, 4) as usize,
            count: u32_at(header, 16),
            number_bytes: if level == 0 { 4 } else { 2 },
            harmonic_bytes: [4, 2, 1][usize::from(level)],
            harmonics: [
                or(number_at(header, 36, 4), -MAX_HARMONIC),
                or(number_at(header, 40, 4), MAX_HARMONIC),
            ],
        })
    }

    /// Decodes a coefficient above degree 0.
    fn harmonic(&self, row: &[u8], at: usize) -> f32 {
        if self.harmonic_bytes > 1 {
            return number_at(row, at, self.harmonic_bytes);
        }
        let share = f64::from(row.get(at).copied().unwrap_or(0)) / 255.0;
        let [low, high] = self.harmonics.map(f64::from);
        to_f32(low + share * (high - low))
    }
}

impl Section {
    fn read(header: &[u8]) -> Result<Self, FormatFault> {
        let word = |at: usize| u32_at(header, at);
        let section = Self {
            rows: word(0) as usize,
            room: word(4) as usize,
            bucket_rows: word(8) as usize,
            buckets: word(12) as usize,
            block: f32::from_bits(word(16)),
            bucket_bytes: usize::from(u16_at(header, 20)),
            steps: word(24),
            full_buckets: word(32) as usize,
            partial_buckets: word(36) as usize,
            sh_degree: u16_at(header, 40).into(),
        };
        if section.rows > section.room || section.sh_degree > MAX_SH_DEGREE {
            return damaged(format!(
                "has a section of {} Gaussians of {} and SH degree {}",
                section.rows, section.room, section.sh_degree
            ));
        }
        Ok(section)
    }

    fn take_rows(
        &self,
        header: &KsplatHeader,
        cursor: &mut ByteCursor<'_>,
        to: &mut SplatColumns,
    ) -> Result<(), FormatFault> {
        let sizes = cursor.take("its buckets", self.partial_buckets.saturating_mul(4))?;
        let centers = cursor.take("its buckets", self.bucket_bytes.saturating_mul(self.buckets))?;
        let (number, coefficients) = (header.number_bytes, sh_rest_count(self.sh_degree));
        let row_bytes = 10 * number + 4 + 3 * coefficients * header.harmonic_bytes;
        let rows = cursor.take("its table of Gaussians", row_bytes.saturating_mul(self.room))?;
        let mut buckets = self.bucket_of_rows(sizes);
        for row in rows.chunks_exact(row_bytes).take(self.rows) {
            let bucket = buckets.next().unwrap_or(0);
            let numbers =
                |first: usize| move |i: usize| number_at(row, (first + i) * number, number);
            to.means.push(match number {
                4 => std::array::from_fn(numbers(0)),
                _ => self.position(row, centers, bucket)?,
            });
            let scales: [f32; 3] = std::array::from_fn(numbers(3));
            to.log_scales.push(scales.map(|scale| to_f32(f64::from(scale.max(0.0)).ln())));
            to.rotations.push(std::array::from_fn(numbers(6)));
            to.push_color_bytes(u32_at(row, 10 * number).to_le_bytes());
            let start = 10 * number + 4;
            for k in 0..sh_rest_count(to.sh_degree) {
                to.sh_rest.push(std::array::from_fn(|c| {
                    if k >= coefficients {
                        return 0.0;
                    }
                    // Channel by channel in each degree.
                    let degree = (1..=MAX_SH_DEGREE).find(|d| k < sh_rest_count(*d)).unwrap_or(1);
                    let (before, width) = (sh_rest_count(degree - 1), 2 * degree as usize + 1);
                    let index = 3 * before + c * width + (k - before);
                    header.harmonic(row, start + index * header.harmonic_bytes)
                }));
            }
        }
        Ok(())
    }

    /// Yields the bucket of each row: full buckets first, then those of the given sizes.
    fn bucket_of_rows<'a>(&'a self, sizes: &'a [u8]) -> impl Iterator<Item = usize> + 'a {
        let full = (0..self.full_buckets).map(|bucket| (bucket, self.bucket_rows));
        let partial = sizes.as_chunks::<4>().0.iter().enumerate();
        let partial =
            partial.map(|(i, size)| (self.full_buckets + i, u32::from_le_bytes(*size) as usize));
        full.chain(partial).flat_map(|(bucket, rows)| std::iter::repeat_n(bucket, rows))
    }

    /// Decodes a position relative to the centre of a bucket.
    fn position(&self, row: &[u8], centers: &[u8], bucket: usize) -> Result<[f32; 3], FormatFault> {
        let start = bucket.saturating_mul(self.bucket_bytes);
        let Some(center) = centers.get(start..).and_then(|rest| rest.get(..12)) else {
            return damaged(format!("has no bucket {bucket}"));
        };
        let steps = f64::from(if self.steps == 0 { STEPS } else { self.steps });
        let step = f64::from(self.block) / 2.0 / steps;
        Ok(std::array::from_fn(|i| {
            let offset = f64::from(u16_at(row, 2 * i)) - steps;
            to_f32(f64::from(number_at(center, 4 * i, 4)) + offset * step)
        }))
    }
}
