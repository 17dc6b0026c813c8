//! How the border of a mesh is taken off.

use clap::Args;

/// How the border of a mesh is taken off.
#[derive(Args, Clone, Debug, PartialEq)]
#[command(next_help_heading = "Mesh")]
pub struct PostprocessOptions {
    /// Take off triangles at the border where there are few Gaussians
    #[arg(long)]
    pub postprocess_mesh: bool,

    /// Number of triangle rings that --postprocess-mesh checks
    #[arg(long, value_name = "N", requires = "postprocess_mesh", default_value_t = Self::default().postprocess_iterations)]
    pub postprocess_iterations: u32,

    /// Density in a triangle's middle above which it stays, 0 and more
    #[arg(long, value_name = "DENSITY", requires = "postprocess_mesh", default_value_t = Self::default().postprocess_density_threshold)]
    pub postprocess_density_threshold: f64,
}

impl Default for PostprocessOptions {
    fn default() -> Self {
        Self {
            postprocess_mesh: false,
            postprocess_iterations: 5,
            postprocess_density_threshold: 0.1,
        }
    }
}
