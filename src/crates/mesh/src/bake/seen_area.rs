//! How large views show the faces of a mesh, by which a texture's size is chosen.

use rayon::prelude::*;

use super::sight::Sighting;
use super::texels::corners_cam;
use super::view::ColorView;
use crate::camera::Camera;
use crate::mesh::Mesh;
use crate::place::centroid;

/// The largest area of each face in any view.
#[derive(Clone, Debug, PartialEq)]
pub struct SeenAreas {
    /// px².
    areas: Vec<f64>,
}

impl SeenAreas {
    /// Of a checked mesh that no view has seen yet.
    pub fn new(mesh: &Mesh) -> Self {
        Self { areas: vec![0.0; mesh.faces.len()] }
    }

    /// Adds a camera, which sees from the depth `near` on. A face counts where its middle is in sight.
    pub fn add(&mut self, mesh: &Mesh, camera: Camera, near: f64) {
        let view = ColorView { camera, near, colors: &[], counts: None };
        let sighting = Sighting::new(mesh, view);
        self.areas.par_iter_mut().enumerate().for_each(|(face, area)| {
            let corners = corners_cam(mesh, face, &camera);
            let is_before = corners.iter().all(|corner| corner[2] >= near);
            if is_before && sighting.shows(centroid(corners)) {
                let [a, b, c] = corners.map(|corner| camera.pixel(corner));
                let doubled = (b[0] - a[0]) * (c[1] - a[1]) - (b[1] - a[1]) * (c[0] - a[0]);
                *area = area.max(0.5 * doubled.abs());
            }
        });
    }

    /// The areas of the faces, px².
    pub fn areas_px2(&self) -> &[f64] {
        &self.areas
    }
}
