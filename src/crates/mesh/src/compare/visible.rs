//! What cameras see of a surface.

use rayon::prelude::*;

use super::samples::SurfaceSamples;
use super::viewpoint::Viewpoint;
use crate::mesh::Vec3;
use crate::search::BoxTree;
use crate::vector::sub;

/// Where on the way to a camera, in shares of it, a surface hides a place: not at the place itself.
const HIDES: [f64; 2] = [1e-6, 1.0];

/// Cameras before a surface.
pub(super) struct Sight<'a> {
    tree: &'a BoxTree<'a>,
    cameras: &'a [Viewpoint],
    centres: Vec<Vec3>,
}

impl<'a> Sight<'a> {
    pub(super) fn new(tree: &'a BoxTree<'a>, cameras: &'a [Viewpoint]) -> Self {
        Self { tree, cameras, centres: cameras.iter().map(Viewpoint::centre_world).collect() }
    }

    /// Whether a camera has a place of the surface in its image with nothing before it.
    pub(super) fn sees(&self, place: Vec3) -> bool {
        self.cameras.iter().zip(&self.centres).any(|(camera, &centre)| {
            camera.frames(place) && !self.tree.is_hit(place, sub(centre, place), HIDES)
        })
    }
}

/// Which samples of its surface are seen.
pub(super) fn seen_samples(sight: &Sight<'_>, samples: &SurfaceSamples<'_>) -> Vec<bool> {
    (0..samples.len()).into_par_iter().map(|i| sight.sees(samples.get(i).place)).collect()
}
