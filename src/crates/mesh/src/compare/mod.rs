//! How far a mesh is from the true surface.
//!
//! Distances are exact, from samples of one surface to the triangles of the other: vertices would
//! reward fine tessellation, and samples against samples have a floor of half their spacing.

mod align;
mod figures;
mod viewpoint;

#[cfg(test)]
mod tests;

use figures::{Measured, measure, way};
use rayon::prelude::*;
use serde::Serialize;
use viewpoint::Sight;
use viewpoint::neighbours;

use crate::mesh::MeshError;
use crate::mesh::{Mesh, Vec3};
use crate::narrow::to_u32;
use crate::place::{Bounds, area, corners};
use crate::random::RandomStream;
use crate::report::MeshReport;
use crate::search::BoxTree;
use crate::vector::{add, scale};

pub use align::Similarity;
pub use figures::{Distances, Figures, Score};
pub use viewpoint::{FaceCrossings, Viewpoint, self_crossings};

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
        let there = viewpoint::seen_samples(&sight, &theirs);
        let found = completeness.iter().zip(there).filter(|(_, seen)| *seen).map(|(m, _)| *m);
        Figures::of(&seen, &found.collect::<Vec<_>>(), clamp, &thresholds)
    });
    let limits = Limits { rays: options.scan_rays, clamp, thresholds: &thresholds };
    let scan = scan(tree, &truth_tree, cameras, &limits);
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

// Places spread evenly over a surface.

/// A place on a surface.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SurfaceSample {
    /// The place.
    pub place: Vec3,
    /// The face that it lies on.
    pub face: u32,
}

/// Samples of a checked mesh, uniform by area: systematic over the sums of its faces' areas, so that
/// each face has its share but for one sample, and uniform within a face. Computed as they are asked
/// for.
pub struct SurfaceSamples<'a> {
    mesh: &'a Mesh,
    /// Area of all faces up to each one.
    sums: Vec<f64>,
    count: usize,
    stream: RandomStream,
}

impl<'a> SurfaceSamples<'a> {
    /// As many samples as `count_of` answers to the whole area.
    pub fn new(mesh: &'a Mesh, count_of: impl FnOnce(f64) -> usize, key: u64) -> Self {
        let areas = mesh.faces.iter().map(|&face| area(corners(mesh, face)));
        let sums: Vec<f64> = areas
            .scan(0.0, |sum, area| {
                *sum += area;
                Some(*sum)
            })
            .collect();
        let total = sums.last().copied().unwrap_or(0.0);
        let count = if total > 0.0 { count_of(total) } else { 0 };
        Self { mesh, sums, count, stream: RandomStream::of_seed(key) }
    }

    /// Area of a checked mesh, square world units.
    pub fn area(mesh: &Mesh) -> f64 {
        mesh.faces.iter().map(|&face| area(corners(mesh, face))).sum()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.count
    }

    /// True if there are none: the surface has no area.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Sample `index`: x = (1 - √u) a + √u (1 - v) b + √u v c of its face (Osada et al. 2002,
    /// equation 1).
    pub fn get(&self, index: usize) -> SurfaceSample {
        let total = self.sums.last().copied().unwrap_or(0.0);
        let at = (index as f64 + 0.5) / self.count.max(1) as f64 * total;
        let face =
            self.sums.partition_point(|&sum| sum <= at).min(self.sums.len().saturating_sub(1));
        let u = self.stream.uniform(2 * index as u64).sqrt();
        let v = self.stream.uniform(2 * index as u64 + 1);
        let [a, b, c] = corners(self.mesh, self.mesh.faces[face]);
        let place = add(scale(a, 1.0 - u), add(scale(b, u * (1.0 - v)), scale(c, u * v)));
        SurfaceSample { place, face: to_u32(face) }
    }
}

// A virtual scan: what rays of cameras meet first on either surface. What no camera can see costs
// nothing.

/// What the scan found.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ScanFigures {
    /// Cameras, those between neighbours among them.
    pub views: usize,
    /// Rays that meet both surfaces.
    pub both: usize,
    /// Rays that meet the mesh alone.
    pub mesh_only: usize,
    /// Rays that meet the truth alone.
    pub truth_only: usize,
    /// Distances from what is met.
    pub figures: Figures,
    /// Median of |z - z'| / z' over the rays that meet both, z' of the truth.
    pub median_depth_error: f64,
}

/// How many rays a camera has along both sides of its image, and what distances are held against.
struct Limits<'a> {
    rays: [usize; 2],
    clamp: f64,
    thresholds: &'a [f64],
}

/// What one ray met.
struct Met {
    mesh: Option<Measured>,
    truth: Option<Measured>,
    depth_error: Option<f64>,
}

/// Scans from each camera and from one between each and its neighbour; nothing without cameras.
fn scan(
    mesh: &BoxTree<'_>,
    truth: &BoxTree<'_>,
    cameras: &[Viewpoint],
    limits: &Limits<'_>,
) -> Option<ScanFigures> {
    if cameras.is_empty() {
        return None;
    }
    let between = neighbours(cameras);
    let between = between.iter().map(|&[a, b]| cameras[a].half_way_to(&cameras[b]));
    let views: Vec<Viewpoint> = cameras.iter().copied().chain(between).collect();
    let (mut accuracy, mut completeness, mut depth_errors) = (Vec::new(), Vec::new(), Vec::new());
    let [mut mesh_only, mut truth_only] = [0; 2];
    for view in &views {
        let met: Vec<Met> = (0..limits.rays[0] * limits.rays[1])
            .into_par_iter()
            .map(|ray| meet([mesh, truth], view, ray, limits))
            .collect();
        for met in met {
            mesh_only += usize::from(met.mesh.is_some() && met.truth.is_none());
            truth_only += usize::from(met.truth.is_some() && met.mesh.is_none());
            accuracy.extend(met.mesh);
            completeness.extend(met.truth);
            depth_errors.extend(met.depth_error);
        }
    }
    let figures = Figures::of(&accuracy, &completeness, limits.clamp, limits.thresholds);
    let both = depth_errors.len();
    depth_errors.par_sort_unstable_by(f64::total_cmp);
    let median_depth_error = depth_errors.get(both / 2).copied().unwrap_or(0.0);
    let views = views.len();
    Some(ScanFigures { views, both, mesh_only, truth_only, figures, median_depth_error })
}

fn meet(
    [mesh, truth]: [&BoxTree<'_>; 2],
    view: &Viewpoint,
    ray: usize,
    &Limits { rays, clamp, .. }: &Limits<'_>,
) -> Met {
    let at = [ray % rays[0], ray / rays[0]];
    let px = std::array::from_fn(|axis| {
        (at[axis] as f64 + 0.5) / rays[axis] as f64 * view.size_px[axis]
    });
    let (origin, direction) = (view.centre_world(), view.ray(px));
    let first = |tree: &BoxTree<'_>| tree.first_hit(origin, direction, [0.0, f64::INFINITY]);
    let (ours, theirs) = (first(mesh), first(truth));
    let place = |depth: f64| add(origin, scale(direction, depth));
    Met {
        mesh: ours.map(|hit| way(place(hit.at), mesh.normal(hit.face), truth, clamp).0),
        truth: theirs.map(|hit| way(place(hit.at), truth.normal(hit.face), mesh, clamp).0),
        depth_error: ours.zip(theirs).map(|(ours, theirs)| (ours.at - theirs.at).abs() / theirs.at),
    }
}

#[cfg(test)]
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small numbers")]
mod samples_tests {
    use super::*;
    use crate::known_meshes::{cube, mesh_of};

    #[test]
    fn faces_get_samples_by_their_area_and_all_of_it() {
        // Areas 1/2 and 2, and one without.
        let mesh = mesh_of(
            &[[0.0; 3], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [2.0, 0.0, 0.0], [0.0, 2.0, 0.0]],
            &[[0, 1, 2], [0, 0, 1], [0, 3, 4]],
        );
        let samples = SurfaceSamples::new(&mesh, |area| (area * 4000.0) as usize, 1);
        assert_eq!(samples.len(), 10_000);
        let all: Vec<SurfaceSample> = (0..10_000).map(|i| samples.get(i)).collect();
        let of = |face: u32| all.iter().filter(move |sample| sample.face == face);
        assert_eq!([of(0).count(), of(1).count(), of(2).count()], [2000, 0, 8000]);
        // The centroid: (2/3, 2/3), to four standard errors of .47/√8000.
        for axis in 0..2 {
            let mean = of(2).map(|sample| sample.place[axis]).sum::<f64>() / 8000.0;
            assert!((mean - 2.0 / 3.0).abs() < 0.021, "{mean}");
        }
        assert!(all.iter().all(|s| s.place[0] + s.place[1] <= 2.0 && s.place[2] == 0.0));
        let none = mesh_of(&cube().vertices, &[[0, 0, 1]]);
        assert!(SurfaceSamples::new(&none, |_| 5, 0).is_empty());
    }
}
