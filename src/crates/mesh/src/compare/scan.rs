//! A virtual scan: what rays of cameras meet first on either surface. What no camera can see costs
//! nothing.

use rayon::prelude::*;
use serde::Serialize;

use super::figures::{Figures, Measured, way};
use super::viewpoint::{Viewpoint, neighbours};
use crate::search::BoxTree;
use crate::vector::{add, scale};

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
pub(super) struct Limits<'a> {
    pub(super) rays: [usize; 2],
    pub(super) clamp: f64,
    pub(super) thresholds: &'a [f64],
}

/// What one ray met.
struct Met {
    mesh: Option<Measured>,
    truth: Option<Measured>,
    depth_error: Option<f64>,
}

/// Scans from each camera and from one between each and its neighbour; nothing without cameras.
pub(super) fn scan(
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
