//! SOG, written.

use std::io;

use super::meta::META_NAME;
use super::parts::GeometryParts;
use super::picture::PictureSize;
use super::read::read_sog;
use super::search::{HostSearch, RowSearch};
use super::seen::SeenFrom;
use super::shared::{SharedHarmonics, SharedRows};
use crate::camera::SceneCamera;
use crate::fault::FormatFault;
use crate::folder::PartSink;
use crate::morton::morton_order;
use crate::splats::{SplatColumns, Splats};
use crate::worst::WorstErrors;

/// How a SOG is written.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SogOptions {
    /// Where the palette starts from: equal seeds and Gaussians make equal bytes.
    pub seed: u64,
    /// Cameras of the training, which say how much each Gaussian counts and from where it is seen; without
    /// any, each counts as its opacity times its two larger scales, and is seen from everywhere.
    pub cameras: Vec<SceneCamera>,
}

/// What helps to write a SOG.
#[derive(Clone, Copy)]
pub struct SogTools<'a> {
    /// Searches for the palette.
    pub search: &'a dyn RowSearch,
    /// From where the Gaussians, in their order, are seen, where that is known better than by the cameras
    /// of the options alone.
    pub seen: Option<&'a SeenFrom>,
    /// Fits the colours once it is known which Gaussians share their harmonics.
    pub fit: Option<&'a dyn ColorFit>,
}

/// Fits the colours of Gaussians to photographs.
pub trait ColorFit: Sync {
    /// The Gaussians as a file holds them, in its order, with colours, harmonics and opacities that fit
    /// better; those that share their harmonics still do. None where that cannot be done, and then nothing
    /// is written. Of other columns no notice is taken.
    fn fit(&self, stored: Splats, alike: &SharedRows) -> Option<Splats>;
}

impl Default for SogTools<'_> {
    /// Nothing but the processor.
    fn default() -> Self {
        Self { search: &HostSearch, seen: None, fit: None }
    }
}

impl SogTools<'_> {
    /// From where these rows of the Gaussians are seen, whose columns are given.
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

/// Gaussians that no SOG can hold.
#[derive(Debug, thiserror::Error)]
pub enum SogError {
    /// More pixels than a WebP has.
    #[error("SOG cannot hold {0} Gaussians in its pictures: crop the scene or write it streamed")]
    Count(usize),
    /// The parts cannot be packed or written.
    #[error("SOG cannot be written: {0}. Check the free space and the permissions of the folder")]
    Write(#[from] io::Error),
    /// The colours were to be fitted to photographs, and could not be.
    #[error("the colours cannot be fitted to photographs. Export without --refit")]
    NotFitted,
    /// What was written cannot be read.
    #[error("the SOG cannot be read back: it {0}")]
    ReadBack(#[from] FormatFault),
}

/// Writes the parts of a SOG, `meta.json` last, and returns how far from the argument they are.
///
/// The colours of degree 0 take over what the palette lacks of the harmonics in the mean of the directions
/// from which the cameras see a Gaussian, and are compared as they are then.
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

/// The same in the order in which Gaussians stand.
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
