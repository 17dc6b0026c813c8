//! SOG version 2 (`PlayCanvas`): a scene as images with one pixel per Gaussian.
//!
//! Values are stored in lossless WebP. Scales, colours and harmonics are codebook indices; the harmonics of a Gaussian
//! are a row of a palette.

mod palette;

use std::collections::BTreeMap;
use std::io::{self, Cursor};

use image_webp::{ColorType, DecodingError, WebPDecoder, WebPEncoder};
use palette::{Codebook, HarmonicMetric, MOST, SharedHarmonics};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use splat_mesh::narrow::{floor_usize, round_u8, round_u16, to_f32, to_f64s, to_u32};
use splat_mesh::place::{length, mul_transposed, sub};

use crate::error::{FormatFault, damaged};
use crate::folder::{PartSink, PartSource, check_name, parse_json};
use crate::geometry::{
    SmallestThree, UnitQuat, logit_of_byte, morton_order, normalised, sh_basis, sigmoid,
};
use crate::place::SceneCamera;
use crate::save::WorstErrors;
use crate::splats::{
    Antialiasing, CheckedSplats, MAX_SH_DEGREE, SplatColumns, Splats, sh_rest_count,
};

pub use palette::{CellLists, HeldRows, HostSearch, NearRow, RowSearch, SharedRows};

// `meta.json` of a SOG.

pub(crate) const META_NAME: &str = "meta.json";

const VERSION: u32 = 2;

/// Palette entries per line of the palette's image.
const ENTRIES_A_LINE: usize = 64;

/// Value of `model` for the 2D filter of Mip-Splatting.
const ANTIALIASED: &str = "antialiased";

/// Fields common to all versions. Version 1 has no number.
#[derive(Debug, Deserialize)]
struct SogVersion {
    #[serde(default = "first_version")]
    version: u32,
}

const fn first_version() -> u32 {
    1
}

#[derive(Debug, Deserialize, Serialize)]
struct SogMeta {
    version: u32,
    asset: Option<SogAsset>,
    count: u64,
    /// Rendering model, if not the default.
    #[serde(skip_serializing_if = "Option::is_none")]
    model: Option<String>,
    means: SogMeans,
    scales: SogCodes,
    quats: SogFiles,
    sh0: SogCodes,
    #[serde(rename = "shN", skip_serializing_if = "Option::is_none")]
    sh_rest: Option<SogPalette>,
}

#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct SogAsset {
    #[serde(default)]
    pub(crate) generator: String,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
struct SogMeans {
    mins: [f32; 3],
    maxs: [f32; 3],
    files: [String; 2],
}

#[derive(Clone, Debug, Deserialize, Serialize)]
struct SogCodes {
    codebook: Vec<f32>,
    files: [String; 1],
}

#[derive(Clone, Debug, Deserialize, Serialize)]
struct SogFiles {
    files: [String; 1],
}

#[derive(Debug, Deserialize, Serialize)]
struct SogPalette {
    count: u64,
    bands: u32,
    codebook: Vec<f32>,
    files: [String; 2],
}

// Parts of a SOG: images and their entries in `meta.json`.

/// Images that are not encoded yet.
#[derive(Clone, Default)]
struct Pictures(Vec<(String, Vec<[u8; 4]>, PictureSize)>);

impl Pictures {
    fn put(&mut self, name: &str, pixels: Vec<[u8; 4]>, size: PictureSize) -> String {
        self.0.push((name.to_owned(), pixels, size));
        name.to_owned()
    }
}

/// Parts with positions, scales and rotations.
struct GeometryParts {
    pictures: Pictures,
    means: SogMeans,
    scales: SogCodes,
    quats: SogFiles,
}

impl GeometryParts {
    /// Encodes the geometry of Gaussians in file order.
    fn of(columns: &SplatColumns) -> Self {
        let size = PictureSize::of_count(columns.len());
        let mut pictures = Pictures::default();
        let axis = |i: usize| SqueezedRange::of(columns.means.iter().map(|mean| mean[i]));
        let ranges = [axis(0), axis(1), axis(2)];
        let steps = |byte: usize| -> Vec<[u8; 4]> {
            let pixel = |mean: &[f32; 3]| {
                let [x, y, z] = [0, 1, 2].map(|i| ranges[i].pack(mean[i]).to_le_bytes()[byte]);
                [x, y, z, 255]
            };
            columns.means.par_iter().map(pixel).collect()
        };
        let files = [("means_l.webp", steps(0)), ("means_u.webp", steps(1))];
        let means = SogMeans {
            mins: ranges.map(|range| range.low),
            maxs: ranges.map(|range| range.high),
            files: files.map(|(name, pixels)| pictures.put(name, pixels, size)),
        };
        let rotations = columns.rotations.par_iter().map(|&quat| pack_rotation(quat)).collect();
        let quats = SogFiles { files: [pictures.put("quats.webp", rotations, size)] };
        let codebook = Codebook::of(columns.log_scales.as_flattened().iter().copied());
        let pixels = columns.log_scales.par_iter().map(|scale| {
            let [x, y, z] = scale.map(|scale| codebook.nearest(scale));
            [x, y, z, 255]
        });
        let files = [pictures.put("scales.webp", pixels.collect(), size)];
        Self { pictures, means, scales: SogCodes { codebook: codebook.entries, files }, quats }
    }

    /// Returns all parts, including the colours, opacities and shared harmonics.
    fn with_colors(
        &self,
        columns: &SplatColumns,
        shared: Option<&SharedHarmonics>,
    ) -> io::Result<BTreeMap<String, Vec<u8>>> {
        let size = PictureSize::of_count(columns.len());
        let mut pictures = self.pictures.clone();
        let codebook = Codebook::of(columns.sh_dc.as_flattened().iter().copied());
        let colors = columns.sh_dc.par_iter().zip(&columns.opacity_logits);
        let pixels = colors.map(|(color, &logit)| {
            let [r, g, b] = color.map(|c| codebook.nearest(c));
            [r, g, b, round_u8(255.0 * sigmoid(logit))]
        });
        let files = [pictures.put("sh0.webp", pixels.collect(), size)];
        let sh0 = SogCodes { codebook: codebook.entries, files };
        let sh_rest = shared.map(|shared| {
            let codes = shared.codes.iter().map(|&[r, g, b]| [r, g, b, 255]);
            let labels = shared.labels.labels.iter().map(|label| {
                let [low, high, ..] = label.to_le_bytes();
                [low, high, 0, 255]
            });
            SogPalette {
                count: shared.labels.entries as u64,
                bands: columns.sh_degree,
                codebook: shared.codebook.entries.clone(),
                files: [
                    pictures.put("shN_centroids.webp", codes.collect(), shared.size()),
                    pictures.put("shN_labels.webp", labels.collect(), size),
                ],
            }
        });
        let meta = SogMeta {
            version: VERSION,
            asset: Some(SogAsset { generator: "splat".to_owned() }),
            count: columns.len() as u64,
            model: (columns.antialiasing == Antialiasing::On).then(|| ANTIALIASED.to_owned()),
            means: self.means.clone(),
            scales: self.scales.clone(),
            quats: self.quats.clone(),
            sh0,
            sh_rest,
        };
        let pictures = pictures.0.into_par_iter();
        let mut parts: BTreeMap<_, _> = pictures
            .map(|(name, pixels, size)| Ok((name, encode(pixels, size)?)))
            .collect::<io::Result<_>>()?;
        parts.insert(META_NAME.to_owned(), serde_json::to_vec(&meta).map_err(io::Error::other)?);
        Ok(parts)
    }
}

// Images of values: lossless WebP, four bytes per pixel.

/// Largest side of a WebP.
const MAX_SIDE: u32 = 16_383;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PictureSize {
    width: u32,
    height: u32,
}

impl PictureSize {
    /// Returns a nearly square size, in multiples of four, with a pixel for each of `count`.
    fn of_count(count: usize) -> Self {
        let width = 4 * floor_usize(((count as f64).sqrt() / 4.0).ceil()).max(1);
        let height = 4 * count.div_ceil(4 * width).max(1);
        Self { width: to_u32(width), height: to_u32(height) }
    }

    /// True if a WebP can have this size.
    const fn fits(self) -> bool {
        self.width <= MAX_SIDE && self.height <= MAX_SIDE
    }

    const fn pixels(self) -> usize {
        self.width as usize * self.height as usize
    }
}

/// Encodes an image and pads missing pixels with 0.
fn encode(mut pixels: Vec<[u8; 4]>, size: PictureSize) -> io::Result<Vec<u8>> {
    pixels.resize(size.pixels(), [0; 4]);
    let mut bytes = Vec::new();
    WebPEncoder::new(&mut bytes)
        .encode(pixels.as_flattened(), size.width, size.height, ColorType::Rgba8)
        .map_err(io::Error::other)?;
    Ok(bytes)
}

/// Decodes the first `count` pixels of an image, which must not be much larger.
fn decode(name: &str, bytes: &[u8], count: usize) -> Result<Vec<[u8; 4]>, FormatFault> {
    let fault = |error: &DecodingError| FormatFault::damaged(format!("its part {name}: {error}"));
    let mut decoder = WebPDecoder::new(Cursor::new(bytes)).map_err(|error| fault(&error))?;
    let (width, height) = decoder.dimensions();
    let found = width as usize * height as usize;
    // Other writers pad to blocks, by at most the longest side times four.
    if found < count || found > count + 4 * MAX_SIDE as usize {
        return damaged(format!(
            "its part {name} has {width} x {height} pixels for {count} values"
        ));
    }
    if decoder.is_lossy() || decoder.is_animated() {
        return damaged(format!("its part {name} is no lossless picture"));
    }
    let mut pixels = vec![[0, 0, 0, 255]; found];
    if decoder.has_alpha() {
        decoder.read_image(pixels.as_flattened_mut()).map_err(|error| fault(&error))?;
    } else {
        let mut colors = vec![0; 3 * found];
        decoder.read_image(&mut colors).map_err(|error| fault(&error))?;
        for (pixel, color) in pixels.iter_mut().zip(colors.as_chunks::<3>().0) {
            pixel[..3].copy_from_slice(color);
        }
    }
    pixels.truncate(count);
    Ok(pixels)
}

/// Alpha value of rotations whose largest component is w; those of x, y and z follow.
const FIRST_LARGEST: u8 = 252;

/// Maps a coordinate to signed log space, in which positions are quantised.
fn squeezed(x: f32) -> f64 {
    f64::from(x).abs().ln_1p().copysign(x.into())
}

fn spread(x: f64) -> f32 {
    to_f32(x.abs().exp_m1().copysign(x))
}

/// Range of one coordinate in log space.
#[derive(Clone, Copy, Debug, PartialEq)]
struct SqueezedRange {
    low: f32,
    high: f32,
}

impl SqueezedRange {
    /// Returns the stored range, which contains all values.
    fn of(values: impl Iterator<Item = f32>) -> Self {
        let empty = [f64::INFINITY, f64::NEG_INFINITY];
        let [low, high] =
            values.map(squeezed).fold(empty, |[low, high], x| [low.min(x), high.max(x)]);
        if low > high {
            return Self { low: 0.0, high: 0.0 };
        }
        Self { low: to_f32(low), high: to_f32(high) }
    }

    /// Quantises to 65,536 steps.
    fn pack(&self, x: f32) -> u16 {
        let (low, high) = (f64::from(self.low), f64::from(self.high));
        let share = if high > low { (squeezed(x) - low) / (high - low) } else { 0.0 };
        round_u16(65_535.0 * share)
    }

    fn unpack(&self, step: u16) -> f32 {
        let (low, high) = (f64::from(self.low), f64::from(self.high));
        spread(low + (high - low) * f64::from(step) / 65_535.0)
    }
}

/// Packs the three smaller components of a rotation and the index of the largest.
fn pack_rotation(rotation: UnitQuat) -> [u8; 4] {
    let SmallestThree { largest, others } = SmallestThree::of(rotation);
    let [a, b, c] =
        others.map(|part| round_u8(255.0 * (part * std::f64::consts::FRAC_1_SQRT_2 + 0.5)));
    [a, b, c, FIRST_LARGEST + [0, 1, 2, 3][largest]]
}

/// Unpacks a rotation; `None` if alpha is not a valid index.
fn unpack_rotation([a, b, c, alpha]: [u8; 4]) -> Option<UnitQuat> {
    let largest = usize::from(alpha.checked_sub(FIRST_LARGEST)?);
    let others = [a, b, c].map(|byte| (f64::from(byte) / 255.0 - 0.5) * std::f64::consts::SQRT_2);
    normalised(SmallestThree { largest, others }.quat(), 0.0)
}

// Reading SOG.

/// Number of Gaussians that is always plausible, even for small images.
const ALWAYS_READ: u64 = 1 << 18;

/// Largest `meta.json` in bytes; it has three codebooks.
const MAX_META_BYTES: u64 = 1 << 20;

/// Largest number of palette rows.
const MAX_ENTRIES: u64 = 1 << 16;

/// Reads a SOG of version 2 from its parts.
///
/// Fails if a file announces more than 262,144 Gaussians and more than it has bytes.
pub fn read_sog(parts: &mut dyn PartSource) -> Result<CheckedSplats, FormatFault> {
    let meta = parts.get(META_NAME, MAX_META_BYTES)?;
    // Version 1 has other keys and would fail with an unclear error.
    let SogVersion { version } = parse_json(META_NAME, &meta)?;
    if version != VERSION {
        return Err(FormatFault::Unsupported(format!(
            "is of version {version} of SOG; {VERSION} is read: export it again with a newer program"
        )));
    }
    let meta: SogMeta = parse_json(META_NAME, &meta)?;
    let most = parts.total_bytes().max(ALWAYS_READ);
    let count = match usize::try_from(meta.count) {
        Ok(count) if meta.count <= most => count,
        _ => {
            return damaged(format!(
                "announces {} Gaussians in {} bytes",
                meta.count,
                parts.total_bytes()
            ));
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
    let sh_degree = meta.sh_rest.as_ref().map_or(0, |palette| palette.bands);
    if let Some(palette) = &meta.sh_rest {
        check_palette(palette)?;
        let entries = usize::try_from(palette.count).unwrap_or(usize::MAX);
        let lines = entries.div_ceil(ENTRIES_A_LINE);
        let pixels = lines * ENTRIES_A_LINE * sh_rest_count(palette.bands);
        let [centroids, labels] = &palette.files;
        harmonics = Some((palette, picture(centroids, pixels)?, picture(labels, count)?));
    }

    let scale_codes = codes("scales", &meta.scales.codebook)?;
    let color_codes = codes("sh0", &meta.sh0.codebook)?;
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
    // An invalid rotation becomes zero, so its row is dropped.
    columns.rotations.extend(quats.iter().map(|&quat| unpack_rotation(quat).unwrap_or_default()));
    columns.log_scales.extend(scales.iter().map(|pixel| triple(scale_codes, pixel)));
    columns.sh_dc.extend(colors.iter().map(|pixel| triple(color_codes, pixel)));
    columns.opacity_logits.extend(colors.iter().map(|pixel| logit_of_byte(pixel[3])));
    if let Some((palette, centroids, labels)) = harmonics {
        let codes = codes("shN", &palette.codebook)?;
        let width = sh_rest_count(palette.bands);
        for [low, high, ..] in labels {
            let entry = usize::from(u16::from_le_bytes([low, high]));
            let row = centroids.get(entry * width..).and_then(|rest| rest.get(..width));
            let Some(row) = row.filter(|_| (entry as u64) < palette.count) else {
                return damaged(format!("names row {entry} of a palette of {}", palette.count));
            };
            columns.sh_rest.extend(row.iter().map(|pixel| triple(codes, pixel)));
        }
    }
    Ok(Splats::from_columns(columns)?)
}

fn check_palette(palette: &SogPalette) -> Result<(), FormatFault> {
    if !(1..=MAX_SH_DEGREE).contains(&palette.bands) {
        return damaged(format!(
            "has harmonics of {} bands; 1 to {MAX_SH_DEGREE} are expected",
            palette.bands
        ));
    }
    if palette.count > MAX_ENTRIES {
        return damaged(format!(
            "has a palette of {} rows; {MAX_ENTRIES} at most are expected",
            palette.count
        ));
    }
    Ok(())
}

/// Checks that a codebook has 256 numbers.
fn codes<'a>(name: &str, codebook: &'a [f32]) -> Result<&'a [f32; 256], FormatFault> {
    codebook.try_into().map_err(|_other_length| {
        let count = codebook.len();
        FormatFault::damaged(format!("has a codebook of {count} {name}; 256 are expected"))
    })
}

fn triple(codes: &[f32; 256], [r, g, b, _]: &[u8; 4]) -> [f32; 3] {
    [*r, *g, *b].map(|code| codes[usize::from(code)])
}

// Writing SOG.

/// Options of a SOG.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SogOptions {
    /// Seed of the palette. Equal seeds and Gaussians make equal bytes.
    pub seed: u64,
    /// Training cameras, which determine the weight of each Gaussian and its viewing directions. Without cameras, the
    /// weight is opacity times the two larger scales, and all directions are equal.
    pub cameras: Vec<SceneCamera>,
}

/// Tools for writing a SOG.
#[derive(Clone, Copy)]
pub struct SogTools<'a> {
    /// Search backend for the palette.
    pub search: &'a dyn RowSearch,
    /// Viewpoints of the Gaussians, in their order, if better known than from the cameras of the options.
    pub seen: Option<&'a SeenFrom>,
    /// Fits the colours after Gaussians were grouped by shared harmonics.
    pub fit: Option<&'a dyn ColorFit>,
}

/// Fits the colours of Gaussians to photographs.
pub trait ColorFit: Sync {
    /// Returns the stored Gaussians with better colours, harmonics and opacities; other columns are ignored. `stored`
    /// is in file order. Gaussians that share harmonics must keep sharing them. Returns `None` on failure, and then
    /// nothing is written.
    fn fit(&self, stored: Splats, alike: &SharedRows) -> Option<Splats>;
}

impl Default for SogTools<'_> {
    /// CPU search only.
    fn default() -> Self {
        Self { search: &HostSearch, seen: None, fit: None }
    }
}

impl SogTools<'_> {
    /// Returns the viewpoints of these rows, whose columns are given.
    pub(crate) fn seen_of(
        &self,
        rows: &[u32],
        columns: &SplatColumns,
        options: &SogOptions,
    ) -> SeenFrom {
        match self.seen {
            Some(seen) => seen.rows(rows),
            None => SeenFrom::of_cameras(columns, &options.cameras),
        }
    }
}

/// Error of Gaussians that a SOG cannot hold.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages name the fields")]
pub enum SogError {
    #[error("SOG cannot hold {0} Gaussians in its pictures: crop the scene or write it streamed")]
    Count(usize),
    #[error("SOG cannot be written: {0}. Check the free space and the permissions of the folder")]
    Write(#[from] io::Error),
    #[error("the colours cannot be fitted to photographs. Export without --refit")]
    NotFitted,
    #[error("the SOG cannot be read back: it {0}")]
    ReadBack(#[from] FormatFault),
}

/// Writes the parts of a SOG, `meta.json` last, and returns the errors of the parts.
///
/// Colours of degree 0 compensate the palette's error, averaged over the viewing directions of each Gaussian. Errors
/// of colours are relative to the compensated colours.
pub fn write_sog(
    splats: &Splats,
    options: &SogOptions,
    tools: &SogTools<'_>,
    sink: &mut dyn PartSink,
) -> Result<WorstErrors, SogError> {
    let order = morton_order(&splats.columns().means);
    let sorted = splats.rows(&order);
    let seen = tools.seen_of(&order, sorted.columns(), options);
    write_in_order(sorted, &seen, options.seed, tools, sink)
}

/// Writes a SOG of Gaussians that are in file order.
pub(crate) fn write_in_order(
    mut sorted: Splats,
    seen: &SeenFrom,
    seed: u64,
    tools: &SogTools<'_>,
    sink: &mut dyn PartSink,
) -> Result<WorstErrors, SogError> {
    if !PictureSize::of_count(sorted.len()).fits() {
        return Err(SogError::Count(sorted.len()));
    }
    let geometry = GeometryParts::of(sorted.columns());
    let mut shared = None;
    if sorted.sh_degree() > 0 && !sorted.is_empty() {
        let found = SharedHarmonics::of(sorted.columns(), seen, seed, tools.search);
        shared = Some(found.compensate(&mut sorted, seen));
    }
    let mut parts = geometry.with_colors(sorted.columns(), shared.as_ref())?;
    let mut stored = read_sog(&mut parts)?.splats;
    if let (Some(fit), Some(found)) = (tools.fit, shared) {
        let fitted = fit.fit(stored, &found.alike(seen)).ok_or(SogError::NotFitted)?;
        sorted = fitted.with_geometry_of(&sorted);
        let found = SharedHarmonics::of_labels(sorted.columns(), seen, found.labels);
        let shared = found.compensate(&mut sorted, seen);
        parts = geometry.with_colors(sorted.columns(), Some(&shared))?;
        stored = read_sog(&mut parts)?.splats;
    }
    let meta = parts.remove(META_NAME);
    for (name, bytes) in &parts {
        sink.put(name, bytes)?;
    }
    sink.put(META_NAME, &meta.unwrap_or_default())?;
    Ok(WorstErrors::between(&sorted, &stored))
}

// Viewpoints of Gaussians, which determine the visible effect of errors in harmonics.

/// Limits of the number of cameras, since nearby cameras give similar results. For many Gaussians, `MAX_CAMERA_PAIRS`
/// limits the number of pairs of a Gaussian and a camera.
const MAX_CAMERAS: usize = 256;

const MIN_CAMERAS: usize = 48;

const MAX_CAMERA_PAIRS: usize = 50_000_000;

/// Largest number of Gaussians whose directions are used for the covariance.
const MAX_COMPARED: usize = 50_000;

/// Minimum relative variance of the harmonics. Rounding of the means contributes about 1e-7.
const MIN_SPREAD: f64 = 1e-5;

/// Number of rows that are summed in order, so that sums do not depend on the thread count.
const ROWS_AT_A_TIME: usize = 4096;

/// Weight of each Gaussian and its viewing directions.
#[derive(Clone, Debug, PartialEq)]
pub struct SeenFrom {
    /// Weight of each Gaussian, at least 0, in any unit: covered pixels or area.
    weights: Vec<f32>,
    /// Weighted mean of the harmonics over the viewing directions of each Gaussian: the mean effect of its harmonics on
    /// its colour. Zeros if all directions are equal.
    mean_harmonics: Vec<[f32; MOST]>,
    /// Mean effect of changed harmonics on the rest of the colour.
    metric: HarmonicMetric,
}

impl SeenFrom {
    /// Assumes all directions, and weights of opacity times the two larger scales.
    pub fn everywhere(columns: &SplatColumns) -> Self {
        Self {
            weights: areas(columns),
            mean_harmonics: vec![[0.0; MOST]; columns.len()],
            metric: HarmonicMetric::even(sh_rest_count(columns.sh_degree)),
        }
    }

    /// Weights Gaussians by opacity times pixels in the cameras that have them in view; like [`Self::everywhere`]
    /// without cameras. Ignores occlusion.
    pub fn of_cameras(columns: &SplatColumns, cameras: &[SceneCamera]) -> Self {
        if cameras.is_empty() {
            return Self::everywhere(columns);
        }
        let areas = areas(columns);
        let mut observations = Observations::at(columns);
        let most = (MAX_CAMERA_PAIRS / columns.len().max(1)).clamp(MIN_CAMERAS, MAX_CAMERAS);
        for camera in cameras.iter().step_by(cameras.len().div_ceil(most)) {
            let rows = columns.means.par_iter().zip(&areas).with_min_len(ROWS_AT_A_TIME);
            let weights: Vec<f32> =
                rows.map(|(&mean, &area)| pixels_in(camera, mean, area)).collect();
            observations.add(camera.position, &weights);
        }
        observations.seen()
    }

    /// Returns the weight of each Gaussian, at least 0, in the unit of its source.
    pub fn weights(&self) -> &[f32] {
        &self.weights
    }

    /// Replaces zero weights by `share` times the weights of another estimate, since cameras in between may see these
    /// Gaussians.
    pub fn fill_from(&mut self, other: &Self, share: f32) {
        let rows = self.weights.iter_mut().zip(&mut self.mean_harmonics);
        let of_other = other.weights.iter().zip(&other.mean_harmonics);
        for ((weight, means), (other_weight, other_means)) in rows.zip(of_other) {
            if *weight <= 0.0 {
                (*weight, *means) = (share * other_weight, *other_means);
            }
        }
    }

    /// Returns the viewpoints of these rows; rows out of range have no weight.
    pub(crate) fn rows(&self, rows: &[u32]) -> Self {
        let weight = |&row: &u32| self.weights.get(row as usize).copied().unwrap_or_default();
        let means = |&row: &u32| self.mean_harmonics.get(row as usize).copied().unwrap_or_default();
        Self {
            weights: rows.iter().map(weight).collect(),
            mean_harmonics: rows.iter().map(means).collect(),
            metric: self.metric.clone(),
        }
    }
}

/// Weighted sums over the views of Gaussians.
#[derive(Clone, Debug)]
pub struct Observations<'a> {
    columns: &'a SplatColumns,
    weights: Vec<f32>,
    harmonics: Vec<[f32; MOST]>,
    spread: Spread,
}

impl<'a> Observations<'a> {
    /// Starts without views.
    pub fn at(columns: &'a SplatColumns) -> Self {
        let count = columns.len();
        Self {
            columns,
            weights: vec![0.0; count],
            harmonics: vec![[0.0; MOST]; count],
            spread: Spread::default(),
        }
    }

    /// Adds a view from a position, in scene units. `weights` are the blend weights of the Gaussians, summed over
    /// pixels; missing ones count as 0.
    pub fn add(&mut self, position: [f64; 3], weights: &[f32]) {
        let step = self.compared_step();
        let Self { columns, weights: sums, harmonics: means, spread } = self;
        let parts: Vec<Spread> = columns
            .means
            .par_chunks(ROWS_AT_A_TIME)
            .zip(weights.par_chunks(ROWS_AT_A_TIME))
            .zip(sums.par_chunks_mut(ROWS_AT_A_TIME))
            .zip(means.par_chunks_mut(ROWS_AT_A_TIME))
            .map(|(((places, weights), sums), means)| {
                let mut spread = Spread::default();
                for (row, (&place, &weight)) in places.iter().zip(weights).enumerate() {
                    let Some(direction) = direction(position, place).filter(|_| weight > 0.0)
                    else {
                        continue;
                    };
                    let [_, rest @ ..] = sh_basis(direction);
                    sums[row] += weight;
                    for (sum, harmonic) in means[row].iter_mut().zip(rest) {
                        *sum += weight * to_f32(harmonic);
                    }
                    if row.is_multiple_of(step) {
                        spread.weight += f64::from(weight);
                        spread.add_products(weight.into(), &rest);
                    }
                }
                spread
            })
            .collect();
        parts.iter().for_each(|part| spread.join(part));
    }

    /// Returns the viewpoints from all views.
    pub fn seen(self) -> SeenFrom {
        let step = self.compared_step();
        let count = sh_rest_count(self.columns.sh_degree);
        let Self { weights, harmonics: mut means, mut spread, .. } = self;
        let seen_trace = spread.trace();
        for (row, (means, &weight)) in means.iter_mut().zip(&weights).enumerate() {
            *means = means.map(|sum| if weight > 0.0 { sum / weight } else { 0.0 });
            if (row % ROWS_AT_A_TIME).is_multiple_of(step) {
                spread.add_products(-f64::from(weight), &means.map(f64::from));
            }
        }
        SeenFrom { weights, mean_harmonics: means, metric: spread.metric(count, seen_trace) }
    }

    fn compared_step(&self) -> usize {
        self.columns.len().div_ceil(MAX_COMPARED).max(1)
    }
}

/// Returns opacity times the two larger scales.
fn areas(columns: &SplatColumns) -> Vec<f32> {
    let area = |row: usize| {
        let scales = columns.log_scales[row].map(f64::from);
        let least = scales.into_iter().fold(f64::INFINITY, f64::min);
        let area = scales.iter().sum::<f64>() - least;
        to_f32((area.exp() * sigmoid(columns.opacity_logits[row])).min(f64::from(f32::MAX)))
    };
    (0..columns.len()).into_par_iter().map(area).collect()
}

/// Returns the unit vector between two points; `None` if equal.
fn direction(from: [f64; 3], to: [f32; 3]) -> Option<[f64; 3]> {
    let apart = sub(to_f64s(to), from);
    let distance = length(apart);
    (distance > 0.0).then(|| apart.map(|x| x / distance))
}

/// Returns the opacity times the number of pixels that a facing area covers in a camera; 0 if its centre is outside the
/// image.
fn pixels_in(camera: &SceneCamera, mean: [f32; 3], area: f32) -> f32 {
    let cam = mul_transposed(&camera.rotation, sub(to_f64s(mean), camera.position));
    let depth = cam[2];
    let is_inside = |axis: usize| {
        let at_px = camera.focal_px[axis] * cam[axis] / depth + camera.principal_px[axis];
        (0.0..=f64::from(camera.size_px[axis])).contains(&at_px)
    };
    if depth <= 0.0 || !is_inside(0) || !is_inside(1) {
        return 0.0;
    }
    let pixels = f64::from(camera.size_px[0]) * f64::from(camera.size_px[1]);
    let covered = f64::from(area) * camera.focal_px[0] * camera.focal_px[1] / (depth * depth);
    to_f32(covered.min(pixels))
}

/// Covariance of the harmonics over the viewing directions of a Gaussian, summed over Gaussians.
#[derive(Clone, Debug, Default)]
struct Spread {
    weight: f64,
    products: [[f64; MOST]; MOST],
}

impl Spread {
    fn add_products(&mut self, weight: f64, harmonics: &[f64; MOST]) {
        for (sums, a) in self.products.iter_mut().zip(harmonics) {
            for (sum, b) in sums.iter_mut().zip(harmonics) {
                *sum += weight * a * b;
            }
        }
    }

    fn join(&mut self, other: &Self) {
        self.weight += other.weight;
        let of_other = other.products.as_flattened();
        for (sum, other) in self.products.as_flattened_mut().iter_mut().zip(of_other) {
            *sum += other;
        }
    }

    fn trace(&self) -> f64 {
        (0..MOST).map(|i| self.products[i][i]).sum()
    }

    /// Returns the metric of the covariance, or the even metric if directions hardly vary. From one direction,
    /// harmonics only change the colour as a whole.
    fn metric(&self, count: usize, seen_trace: f64) -> HarmonicMetric {
        if self.trace() <= MIN_SPREAD * seen_trace {
            return HarmonicMetric::even(count);
        }
        let total = self.weight.max(f64::MIN_POSITIVE);
        let mean = self.products.map(|row| row.map(|sum| sum / total));
        HarmonicMetric::of(&mean, count)
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use splat_mesh::random::RandomSequence;

    use super::*;
    use crate::folder::{ZipSink, ZipSource};
    use crate::splats::known_splats::{self, hard_splats, on_threads, random_splats};

    fn parts(splats: &Splats) -> (BTreeMap<String, Vec<u8>>, WorstErrors) {
        let mut parts = BTreeMap::new();
        let worst =
            write_sog(splats, &SogOptions::default(), &SogTools::default(), &mut parts).unwrap();
        (parts, worst)
    }

    #[rstest]
    fn values_are_within_their_steps(
        #[values(0, 1, 2, 3)] sh_degree: u32,
        #[values(0, 1, 255, 1025)] count: usize,
    ) {
        let (mut parts, worst) = parts(&random_splats(count, sh_degree, 1));
        let read = read_sog(&mut parts).unwrap();
        assert_eq!((read.splats.len(), read.dropped), (count, 0));
        assert!(count == 0 || read.splats.sh_degree() == sh_degree);
        // Positions: half of 2 ln 11 in 65,535 steps, times 11 at the far end.
        assert!(worst.position < 0.5 * 2.0 * 11.0_f64.ln() / 65_535.0 * 11.0 * 1.01, "{worst:?}");
        // Uniform numbers in 256 entries: half of 5/256 and of 3.4 x C0/256. Lloyd's method may double some cells.
        assert!(worst.log_scale < 5.0 / 256.0, "{worst:?}");
        assert!(worst.color < 3.4 * 0.2821 / 256.0, "{worst:?}");
        assert!(worst.opacity < 0.51 / 255.0, "{worst:?}");
        assert!(worst.rotation_degrees < 1.2, "{worst:?}");
        // Except for the last count there are as many entries as rows: only the codebook is inexact.
        assert!(count > 1024 || worst.sh < 0.8 / 256.0, "{worst:?}");
    }

    #[test]
    fn extreme_values_are_kept() {
        let (_, worst) = parts(&hard_splats(300, 1));
        assert!(worst.position < 1e-6 && worst.log_scale < 1e-5, "{worst:?}");
    }

    #[test]
    fn a_zip_holds_the_parts_with_the_meta_data_last() {
        let mut splats = random_splats(300, 1, 2);
        splats.columns_mut().antialiasing = Antialiasing::On;
        let mut zip = ZipSink::new(Cursor::new(Vec::new()));
        write_sog(&splats, &SogOptions::default(), &SogTools::default(), &mut zip).unwrap();
        let bytes = zip.finish().unwrap().into_inner();
        let mut zip = ZipSource::new(Cursor::new(&bytes), bytes.len() as u64).unwrap();
        let read = read_sog(&mut zip).unwrap().splats;
        assert_eq!(read.columns().antialiasing, Antialiasing::On);
        let (mut parts, _) = parts(&splats);
        assert!(read == read_sog(&mut parts).unwrap().splats);
        let meta = String::from_utf8(zip.get("meta.json", 1 << 20).unwrap()).unwrap();
        assert!(meta.contains(r#""version":2"#) && meta.contains(r#""model":"antialiased""#));
        let place = |name: &[u8]| bytes.windows(name.len()).position(|part| part == name).unwrap();
        assert!(place(b"meta.json") > place(b"shN_labels.webp"));
    }

    #[test]
    fn equal_gaussians_make_equal_bytes_for_any_number_of_threads() {
        let splats = random_splats(2500, 2, 3);
        let made = |threads| on_threads(threads, || parts(&splats).0);
        assert!(made(1) == made(2));
    }

    #[rstest]
    #[case(r#""version":2"#, r#""version":1"#, "version 1 of SOG")]
    #[case(r#""count":300"#, r#""count":4294967295"#, "4294967295 Gaussians")]
    #[case(r#""count":300"#, r#""count":900"#, "for 900 values")]
    #[case("quats.webp", "../quats.webp", "no name of a file in it")]
    #[case("quats.webp", "quatt.webp", "not there")]
    #[case(r#""bands":1"#, r#""bands":4"#, "4 bands")]
    #[case(r#""count":300,"bands""#, r#""count":3,"bands""#, "of a palette of 3")]
    #[case(r#""mins":["#, r#""mins":["a","#, "meta.json")]
    fn broken_meta_data_is_named(#[case] from: &str, #[case] to: &str, #[case] expected: &str) {
        let (mut parts, _) = parts(&random_splats(300, 1, 4));
        let meta = String::from_utf8(parts["meta.json"].clone()).unwrap();
        assert!(meta.contains(from), "{meta}");
        parts.insert("meta.json".to_owned(), meta.replacen(from, to, 1).into_bytes());
        let message = read_sog(&mut parts).unwrap_err().to_string();
        assert!(message.contains(expected), "{message}");
    }

    #[test]
    fn pictures_have_little_padding() {
        for count in [0, 1, 15, 16, 17, 300, 1025, 1_000_000, 9_000_001] {
            let size = PictureSize::of_count(count);
            assert!(size.pixels() >= count && size.fits(), "{count}: {size:?}");
            assert!(size.width.is_multiple_of(4) && size.height.is_multiple_of(4));
            assert!(size.pixels() - count <= 4 * size.width as usize + 16, "{count}: {size:?}");
        }
        assert!(!PictureSize::of_count(300_000_000).fits());
    }

    #[test]
    fn pixels_with_zero_alpha_are_kept() {
        let mut random = RandomSequence::of_seed(1);
        let size = PictureSize::of_count(777);
        let pixels: Vec<[u8; 4]> = (0..777)
            .map(|_| random.bits().to_le_bytes())
            .map(|[a, b, c, d, ..]| [a, b, c, if d < 90 { 0 } else { d }])
            .collect();
        let bytes = encode(pixels.clone(), size).unwrap();
        assert!(decode("a.webp", &bytes, 777).unwrap() == pixels);
        let error = decode("a.webp", &bytes, 900).unwrap_err().to_string();
        assert!(error.contains("a.webp has 28 x 28 pixels for 900"), "{error}");
        assert!(decode("a.webp", &bytes[..40], 777).is_err());
        // An image without alpha decodes with an alpha of 255.
        let opaque: Vec<[u8; 4]> = pixels.iter().map(|&[r, g, b, _]| [r, g, b, 255]).collect();
        let bytes = encode(opaque.clone(), size).unwrap();
        assert!(decode("a.webp", &bytes, 777).unwrap() == opaque);
    }

    #[test]
    fn positions_are_within_half_a_step() {
        let places = [-9.0_f32, -0.01, 0.0, 3.0, 250.0];
        let range = SqueezedRange::of(places.into_iter());
        assert!((range.high - 251.0_f32.ln()).abs() < 1e-6);
        for x in places {
            let back = range.unpack(range.pack(x));
            // Half a step in log space, scaled to the scene.
            let step = f64::from(range.high - range.low) / 65_535.0;
            let bound = (0.5 * step * (1.0 + f64::from(x).abs())) * 1.01 + 1e-5;
            assert!((f64::from(x) - f64::from(back)).abs() <= bound, "{x} {back}");
        }
        let one = SqueezedRange::of([2.5, 2.5].into_iter());
        assert!((one.unpack(one.pack(2.5)) - 2.5).abs() < 1e-6);
    }

    #[test]
    fn alpha_is_the_index_of_the_largest_component() {
        assert_eq!(pack_rotation([1.0, 0.0, 0.0, 0.0])[3], 252);
        assert_eq!(pack_rotation([0.0, 0.0, 0.0, -1.0])[3], 255);
        assert_eq!(unpack_rotation([128, 128, 128, 251]), None);
        let back = unpack_rotation(pack_rotation([0.5, 0.5, -0.5, 0.5])).unwrap();
        // Half of √2/255 for three components, and three times that for the fourth: 2 √12 x 0.0028 rad.
        assert!(crate::geometry::angle_degrees(back, [0.5, 0.5, -0.5, 0.5]) < 1.1);
    }

    /// Creates a camera at a position, looking along +z.
    fn camera(position: [f64; 3]) -> SceneCamera {
        let (focal_px, principal_px, size_px) = ([100.0; 2], [50.0; 2], [100; 2]);
        SceneCamera { position, focal_px, principal_px, size_px, ..known_splats::camera("") }
    }

    fn splats_before_it(place: [f32; 3]) -> SplatColumns {
        let mut splats = random_splats(1, 3, 1);
        let columns = splats.columns_mut();
        columns.means = vec![place];
        columns.log_scales = vec![[-3.0, -4.0, -9.0]];
        columns.opacity_logits = vec![0.0];
        columns.clone()
    }

    #[test]
    fn a_weight_is_opacity_times_pixels() {
        let seen = SeenFrom::of_cameras(&splats_before_it([0.0, 0.0, 4.0]), &[camera([0.0; 3])]);
        // Half of exp(-3) x exp(-4) squared units, at 25 px per unit.
        let expected = 0.5 * (-7.0_f32).exp() * 25.0 * 25.0;
        assert!((seen.weights[0] / expected - 1.0).abs() < 1e-6, "{:?}", seen.weights);
    }

    #[test]
    fn mean_harmonics_of_one_camera_are_those_of_its_direction() {
        let seen = SeenFrom::of_cameras(&splats_before_it([1.0, 0.0, 4.0]), &[camera([0.0; 3])]);
        let length = 17.0_f64.sqrt();
        let [_, rest @ ..] = sh_basis([1.0 / length, 0.0, 4.0 / length]);
        for (mean, expected) in seen.mean_harmonics[0].iter().zip(rest) {
            assert!((f64::from(*mean) - expected).abs() < 1e-6, "{mean} {expected}");
        }
    }

    #[test]
    fn gaussians_outside_all_pictures_have_no_weight() {
        for place in [[0.0, 0.0, -4.0], [9.0, 0.0, 4.0], [0.0, -9.0, 4.0]] {
            let seen = SeenFrom::of_cameras(&splats_before_it(place), &[camera([0.0; 3])]);
            assert_eq!((seen.weights[0], seen.mean_harmonics[0]), (0.0, [0.0; MOST]), "{place:?}");
        }
    }

    #[test]
    fn metric_follows_the_viewing_directions() {
        // With cameras to the left and right, harmonics odd in x vary and even ones do not.
        let columns = splats_before_it([0.0, 0.0, 4.0]);
        let seen =
            SeenFrom::of_cameras(&columns, &[camera([-1.0, 0.0, 0.0]), camera([1.0, 0.0, 0.0])]);
        let length_after = |harmonic: usize| {
            let mut row = [0.0; 3 * MOST];
            row[3 * harmonic] = 1.0;
            let mut to = [0.0; 3 * MOST];
            seen.metric.apply(&row, &mut to);
            to.iter().map(|x| x * x).sum::<f32>()
        };
        let (odd, even) = (length_after(2), length_after(1));
        assert!(odd > 50.0 * even, "{odd} {even}");
    }

    #[test]
    fn sums_do_not_depend_on_the_thread_count() {
        let splats = random_splats(9000, 2, 4);
        let cameras = [camera([0.0, 0.0, -9.0]), camera([1.0, 2.0, -8.0])];
        let made =
            |threads| on_threads(threads, || SeenFrom::of_cameras(splats.columns(), &cameras));
        assert!(made(1) == made(3));
    }

    #[test]
    fn one_direction_gives_the_even_metric() {
        let splats = random_splats(500, 3, 6);
        let mut observations = Observations::at(splats.columns());
        observations.add([0.0, 0.0, -40.0], &vec![2.5; 500]);
        assert_eq!(observations.seen().metric, HarmonicMetric::even(15));
    }

    #[test]
    fn fill_from_replaces_zero_weights() {
        let splats = random_splats(2, 1, 7);
        let mut observations = Observations::at(splats.columns());
        observations.add([0.0, 0.0, -40.0], &[3.0]);
        let mut seen = observations.seen();
        let mut other = Observations::at(splats.columns());
        other.add([0.0, 0.0, -40.0], &[8.0, 8.0]);
        let other = other.seen();
        seen.fill_from(&other, 0.25);
        assert_eq!(seen.weights, [3.0, 2.0]);
        assert_eq!(seen.mean_harmonics[1], other.mean_harmonics[1]);
    }
}
