//! A ball of flat Gaussians, whose surface is known.

use std::path::Path;

use super::synthetic::write_synthetic;
use splat::math::Real;
use splat::model::Gaussians;
use splat::synth::{SynthOptions, SynthScene};

/// Radius of the ball, world units.
pub const RADIUS: f64 = 1.0;

/// A scene of the ball in 16 views of this size, px.
pub fn write_ball_scene(folder: &Path, width: u32, height: u32) {
    let options = SynthOptions {
        scene: SynthScene::Sphere,
        views: 16,
        width,
        height,
        points: 200,
        ..SynthOptions::default()
    };
    write_synthetic(folder, &options);
}

/// Flat, opaque Gaussians all over the ball, red on one side and blue on the other: on the Fibonacci
/// spiral, each with the plane of the ball as its own.
pub fn ball() -> Gaussians {
    let count = 3000;
    let mut model = Gaussians::zeros(0, count);
    for row in 0..count {
        let z = 1.0 - (2.0 * row as f64 + 1.0) / count as f64;
        let turn = row as f64 * std::f64::consts::PI * (3.0 - 5.0_f64.sqrt());
        let across = (1.0 - z * z).sqrt();
        let out = [across * turn.cos(), across * turn.sin(), z];
        for axis in 0..3 {
            model.means[3 * row + axis] = (RADIUS * out[axis]).to_f32();
            model.log_scales[3 * row + axis] = [0.04_f32, 0.04, 0.002][axis].ln();
        }
        // Turns z onto `out`.
        let quat = [1.0 + out[2], -out[1], out[0], 0.0];
        let colour = if out[0] > 0.0 { [1.7, -1.7, -1.7] } else { [-1.7, -1.7, 1.7] };
        for (part, value) in quat.into_iter().enumerate() {
            model.quats[4 * row + part] = value.to_f32();
        }
        model.sh_dc[3 * row..3 * row + 3].copy_from_slice(&colour);
        model.opacity_logits[row] = 3.0;
    }
    model
}
