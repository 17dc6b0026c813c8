//! How far a mesh is from the true surface.
//!
//! Distances are exact, from samples of one surface to the triangles of the other: vertices would
//! reward fine tessellation, and samples against samples have a floor of half their spacing.

mod align;
mod crossing;
mod figures;
mod samples;
mod scan;
mod viewpoint;
mod visible;

pub use align::Similarity;
pub use crossing::{FaceCrossings, self_crossings};
pub use figures::{Distances, Figures, Score};
pub use samples::{SurfaceSample, SurfaceSamples};
pub use scan::ScanFigures;
pub use viewpoint::Viewpoint;

use serde::Serialize;

use crate::check::MeshError;
use crate::mesh::Mesh;
use crate::place::Bounds;
use crate::report::MeshReport;
use crate::search::BoxTree;
use figures::{Measured, measure};
use scan::Limits;
use visible::Sight;

/// Shares of the truth's diagonal at which surfaces are said to agree.
const TAU_SHARES: [f64; 3] = [0.002, 0.005, 0.01];

/// Which of them samples and clamping go by.
const MAIN_TAU: usize = 1;

/// Distances beyond so many times the main threshold count as that.
const CLAMP_TAUS: f64 = 20.0;

/// What to compare by.
#[derive(Clone, Debug, PartialEq)]
pub struct CompareOptions {
    /// A further distance at which surfaces agree, world units; samples and clamping go by it.
    pub threshold: Option<f64>,
    /// Fewest and most samples of a surface.
    pub samples: [usize; 2],
    /// Rays of a camera along the width and the height of its image.
    pub scan_rays: [usize; 2],
    /// Whether the mesh is moved, turned and scaled to the truth first.
    pub alignment: Alignment,
    /// Of the samples.
    pub seed: u64,
}

impl Default for CompareOptions {
    fn default() -> Self {
        Self {
            threshold: None,
            samples: [100_000, 10_000_000],
            scan_rays: [300, 200],
            alignment: Alignment::Given,
            seed: 0,
        }
    }
}

/// Where the mesh stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Alignment {
    /// Where it says.
    Given,
    /// Where iterated closest points find the least distance.
    Icp,
}

/// All figures of a mesh against the truth.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// Of the truth's box, world units.
    pub diagonal: f64,
    /// Distances beyond this count as this, world units.
    pub clamp: f64,
    /// What moved the mesh onto the truth, if anything did.
    pub alignment: Option<Similarity>,
    /// What kind of surface the mesh is.
    pub report: MeshReport,
    /// Faces of the mesh that pass through others.
    pub crossings: FaceCrossings,
    /// Over both whole surfaces.
    pub uniform: Figures,
    /// Over what some camera sees of the truth; none without cameras.
    pub visible: Option<Figures>,
    /// Over what cameras see first of either; none without cameras.
    pub scan: Option<ScanFigures>,
}

/// Why there are no figures.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum CompareError {
    /// One of both is no mesh.
    #[error("the {which} is no mesh: {source}")]
    Mesh {
        /// `mesh` or `truth`.
        which: &'static str,
        /// What is wrong with it.
        #[source]
        source: MeshError,
    },
    /// One of both has no surface.
    #[error("the {which} has no area in its {faces} faces: name a file with a surface")]
    NoArea {
        /// `mesh` or `truth`.
        which: &'static str,
        /// Its faces.
        faces: usize,
    },
    /// The threshold is none.
    #[error("a threshold of {found}: give a distance above 0 in the scene's unit")]
    Threshold {
        /// What was given.
        found: f64,
    },
}

/// Compares a mesh with the truth, as `cameras` see them where there are any.
pub fn compare(
    mesh: &Mesh,
    truth: &Mesh,
    cameras: &[Viewpoint],
    options: &CompareOptions,
) -> Result<Comparison, CompareError> {
    if let Some(found) = options.threshold.filter(|&t| !(t.is_finite() && t > 0.0)) {
        return Err(CompareError::Threshold { found });
    }
    let truth_tree = tree_of("truth", truth)?;
    let report =
        MeshReport::of(mesh).map_err(|source| CompareError::Mesh { which: "mesh", source })?;
    let diagonal = Bounds::of_faces(truth).diagonal();
    let mut thresholds: Vec<f64> = TAU_SHARES.iter().map(|share| share * diagonal).collect();
    let tau = options.threshold.unwrap_or(thresholds[MAIN_TAU]);
    thresholds.extend(options.threshold);
    let clamp = CLAMP_TAUS * tau;

    let given = tree_of("mesh", mesh)?;
    let (alignment, moved) = match options.alignment {
        Alignment::Given => (None, None),
        Alignment::Icp => {
            let found = align::align(&given, &truth_tree, options.seed);
            (Some(found), Some(found.applied_to(mesh)))
        }
    };
    let moved_tree = moved.as_ref().map(|moved| tree_of("mesh", moved)).transpose()?;
    let tree = moved_tree.as_ref().unwrap_or(&given);

    let count = |area| count_of(area, tau, options.samples);
    let sight = Sight::new(&truth_tree, cameras);
    let ours = SurfaceSamples::new(tree.mesh(), count, options.seed);
    let theirs = SurfaceSamples::new(truth, count, options.seed ^ u64::MAX);
    let accuracy = measure(&ours, tree, &truth_tree, clamp, |nearest| sight.sees(nearest.place));
    let completeness = measure(&theirs, &truth_tree, tree, clamp, |_| false);
    let uniform = Figures::of(&accuracy, &completeness, clamp, &thresholds);
    let visible = (!cameras.is_empty()).then(|| {
        let seen: Vec<Measured> = accuracy.iter().copied().filter(|m| m.is_seen).collect();
        let there = visible::seen_samples(&sight, &theirs);
        let found = completeness.iter().zip(there).filter(|(_, seen)| *seen).map(|(m, _)| *m);
        Figures::of(&seen, &found.collect::<Vec<_>>(), clamp, &thresholds)
    });
    let limits = Limits { rays: options.scan_rays, clamp, thresholds: &thresholds };
    let scan = scan::scan(tree, &truth_tree, cameras, &limits);
    let crossings = self_crossings(tree);
    Ok(Comparison { diagonal, clamp, alignment, report, crossings, uniform, visible, scan })
}

fn tree_of<'a>(which: &'static str, mesh: &'a Mesh) -> Result<BoxTree<'a>, CompareError> {
    let tree = BoxTree::new(mesh).map_err(|source| CompareError::Mesh { which, source })?;
    if SurfaceSamples::area(mesh) > 0.0 {
        return Ok(tree);
    }
    Err(CompareError::NoArea { which, faces: mesh.faces.len() })
}

/// Samples of a surface: one a square of half the threshold, within bounds.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "`as` saturates")]
fn count_of(area: f64, tau: f64, [fewest, most]: [usize; 2]) -> usize {
    let squares = (area / (0.25 * tau * tau)) as usize;
    squares.min(most).max(fewest).max(1)
}

#[cfg(test)]
mod tests;
