//! A surface that was fitted to points, until what no points support is cut off.

use splat_mesh::poisson::{cut_off, trim};

use super::ExtractionError;
use super::extracted::{PoissonFigures, Surface};
use super::options::PoissonOptions;

/// A surface and the points that it was fitted to.
pub(super) struct FittedSurface {
    pub(super) surface: Surface,
    /// Points a cell around each vertex.
    pub(super) densities: Vec<f32>,
    /// Places of the points, world space.
    pub(super) points: Vec<[f32; 3]>,
    pub(super) figures: PoissonFigures,
}

impl FittedSurface {
    /// Cuts off the vertices in free space, and then what few points support, as the options say.
    pub(super) fn open(
        &mut self,
        is_free: &[bool],
        options: &PoissonOptions,
    ) -> Result<(), ExtractionError> {
        self.figures.in_free_space = cut_off(&mut self.surface.mesh, &mut self.densities, is_free)?;
        if self.figures.in_free_space > 0 {
            tracing::info!(
                "{} triangles cut off that closed the surface through free space",
                self.figures.in_free_space
            );
        }
        self.figures.trimmed = trim(&mut self.surface.mesh, &mut self.densities, options.trim())?;
        Ok(())
    }
}
