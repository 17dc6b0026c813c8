//! Gaussians on the host, one column per parameter: the form that is loaded, saved and exchanged
//! between devices.

use super::{Group, Primitive};

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
    /// Opacities before the sigmoid, `[n]`.
    pub opacity_logits: Vec<f32>,
    /// SH coefficients of degree 0, [n, 3]; colour is 0.5 + 0.28209479 c.
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

    /// `count` Gaussians with every value zero.
    pub fn zeros(sh_degree: u32, count: usize) -> Self {
        Self {
            sh_degree,
            means: vec![0.0; count * 3],
            log_scales: vec![0.0; count * 3],
            quats: vec![0.0; count * 4],
            opacity_logits: vec![0.0; count],
            sh_dc: vec![0.0; count * 3],
            sh_rest: vec![0.0; count * sh_rest_count(sh_degree) * 3],
        }
    }
}

impl Primitive for Gaussians {
    fn groups(&self) -> Vec<Group<'_>> {
        vec![
            Group { name: "means", width: 3, values: &self.means },
            Group { name: "log_scales", width: 3, values: &self.log_scales },
            Group { name: "quats", width: 4, values: &self.quats },
            Group { name: "opacity_logits", width: 1, values: &self.opacity_logits },
            Group { name: "sh_dc", width: 3, values: &self.sh_dc },
            Group {
                name: "sh_rest",
                width: sh_rest_count(self.sh_degree) * 3,
                values: &self.sh_rest,
            },
        ]
    }

    fn groups_mut(&mut self) -> Vec<&mut Vec<f32>> {
        vec![
            &mut self.means,
            &mut self.log_scales,
            &mut self.quats,
            &mut self.opacity_logits,
            &mut self.sh_dc,
            &mut self.sh_rest,
        ]
    }
}
