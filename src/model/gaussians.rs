//! Gaussians on the host, one column per parameter: the form that is loaded, saved and exchanged
//! between devices.

/// Gaussians as a structure of arrays, raw parameters as they are optimised.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Gaussians {
    /// Highest degree of the spherical harmonics, 0 to 3.
    pub sh_degree: u32,
    /// Centres in the world, [n, 3].
    pub means: Vec<f32>,
    /// Natural logarithms of the scales, world units, [n, 3].
    pub log_scales: Vec<f32>,
    /// Rotations (w, x, y, z), of any length but zero, [n, 4].
    pub quats: Vec<f32>,
    /// Opacities before the sigmoid, [n].
    pub opacity_logits: Vec<f32>,
    /// SH coefficients of degree 0, [n, 3]; colour is 0.5 + 0.28209479 `sh_dc`.
    pub sh_dc: Vec<f32>,
    /// SH coefficients of degrees 1 and up, [n, k, 3] with k = (degree + 1)² - 1.
    pub sh_rest: Vec<f32>,
}

/// SH coefficients per colour channel above degree 0: (degree + 1)² - 1.
pub const fn sh_rest_count(sh_degree: u32) -> usize {
    ((sh_degree + 1) * (sh_degree + 1) - 1) as usize
}

impl Gaussians {
    /// Number of Gaussians.
    pub fn len(&self) -> usize {
        self.opacity_logits.len()
    }

    /// No Gaussians at all.
    pub fn is_empty(&self) -> bool {
        self.opacity_logits.is_empty()
    }
}
