//! What stands in each scene. Up is -y; what stands on something reaches into it, so that no two
//! surfaces only touch.

use splat_mesh::place::Bounds;

use super::form::{Form, Placed};
use super::texture::Texture;
use super::{FieldScene, Hollow, PaintedSolid};
use crate::math::linalg::Vec3;
use crate::synth::scenery::linear;

const RED: [u32; 2] = [0xb8_4a_3e, 0xf2_d4_a4];
const BLUE: [u32; 2] = [0x2f_62_a8, 0xcf_e0_ea];
const GREEN: [u32; 2] = [0x3c_86_52, 0xe4_e2_a8];
const VIOLET: [u32; 2] = [0x78_4a_92, 0xe8_c8_d8];
const ORANGE: [u32; 2] = [0xd8_84_2c, 0x4a_5a_6a];
const TEAL: [u32; 2] = [0x1f_8a_8a, 0xf3_e6_cc];
const STONE: [u32; 2] = [0xc8_c0_b0, 0x80_74_68];
const WOOD: [u32; 2] = [0x9a_68_40, 0xd8_b0_7c];
const PLASTER: [u32; 2] = [0xe8_e4_d8, 0xb0_a8_b8];

/// Sides of the room: 6 m long, 2.7 m high, 4 m wide.
pub(in crate::synth) const ROOM_HALF: Vec3<f64> = [3.0, 1.35, 2.0];

fn part(form: Form, centre: Vec3<f64>, colors: [u32; 2]) -> PaintedSolid {
    PaintedSolid { placed: Placed::new(form, centre), colors: colors.map(linear) }
}

impl PaintedSolid {
    fn turned(self, axis: Vec3<f64>, angle_deg: f64) -> Self {
        Self { placed: self.placed.turned(axis, angle_deg), ..self }
    }
}

impl FieldScene {
    /// A ball of radius 1.
    pub(in crate::synth) fn sphere(seed: u64) -> Self {
        Self {
            parts: vec![part(Form::Ball { radius: 1.0 }, [0.0; 3], TEAL)],
            hollow: None,
            texture: Texture::new(seed, 0.5),
            bounds: Bounds { low: [-1.0; 3], high: [1.0; 3] },
        }
    }

    /// A torus of radii 1 and 0.4 around the vertical.
    pub(in crate::synth) fn torus(seed: u64) -> Self {
        Self {
            parts: vec![part(Form::Ring { radius: 1.0, thickness: 0.4 }, [0.0; 3], RED)],
            hollow: None,
            texture: Texture::new(seed, 0.5),
            bounds: Bounds { low: [-1.4, -0.4, -1.4], high: [1.4, 0.4, 1.4] },
        }
    }

    /// Six solids on a plate, as in DTU's scans.
    pub(in crate::synth) fn dtu(seed: u64) -> Self {
        const UP: Vec3<f64> = [0.0, -1.0, 0.0];
        let plate = Form::Block { half: [1.0, 0.04, 1.0] };
        let parts = vec![
            part(plate, [0.0, 0.04, 0.0], STONE),
            part(Form::Ball { radius: 0.3 }, [-0.5, -0.28, 0.35], RED),
            part(Form::Block { half: [0.24, 0.36, 0.2] }, [0.5, -0.34, -0.4], BLUE)
                .turned(UP, 28.0),
            part(Form::Cylinder { radius: 0.2, half_height: 0.26 }, [-0.45, -0.24, -0.4], GREEN),
            part(Form::Ring { radius: 0.22, thickness: 0.09 }, [0.62, -0.07, 0.45], VIOLET),
            part(Form::Cone { radii: [0.04, 0.24], half_height: 0.3 }, [0.0, -0.28, 0.02], ORANGE),
            part(Form::Capsule { radius: 0.1, half_height: 0.22 }, [-0.05, -0.08, 0.74], TEAL)
                .turned([0.0, 0.0, 1.0], 90.0),
        ];
        Self {
            parts,
            hollow: None,
            texture: Texture::new(seed, 0.3),
            bounds: Bounds { low: [-1.0, -0.7, -1.0], high: [1.0, 0.08, 1.0] },
        }
    }

    /// A room with a table, a pillar and a recess, seen from inside; in metres.
    pub(in crate::synth) fn room(seed: u64) -> Self {
        let [_, half_height, _] = ROOM_HALF;
        let room = Placed::new(Form::Block { half: ROOM_HALF }, [0.0, -half_height, 0.0]);
        // It reaches into the room, so that nothing is left between both.
        let recess = Placed::new(Form::Block { half: [0.5, 0.7, 0.8] }, [3.0, -1.3, -0.4]);
        let mut parts = vec![
            part(Form::Cylinder { radius: 0.22, half_height: 1.5 }, [-1.2, -1.35, 0.6], ORANGE),
            // The table's top is 2 cm thick.
            part(Form::Block { half: [0.7, 0.01, 0.4] }, [0.9, -0.74, 0.5], WOOD),
            part(Form::Ball { radius: 0.14 }, [0.6, -0.88, 0.45], RED),
            part(Form::Cylinder { radius: 0.1, half_height: 0.12 }, [1.2, -0.86, 0.6], BLUE),
            part(Form::Block { half: [0.35, 0.3, 0.3] }, [-0.4, -0.28, -1.2], GREEN)
                .turned([0.0, -1.0, 0.0], 20.0),
        ];
        for [x, z] in [[-0.62, -0.32], [-0.62, 0.32], [0.62, -0.32], [0.62, 0.32]] {
            let leg = Form::Block { half: [0.035, 0.38, 0.035] };
            parts.push(part(leg, [0.9 + x, -0.365, 0.5 + z], WOOD));
        }
        let colors = [STONE, PLASTER, TEAL].map(|colors| colors.map(linear));
        Self {
            parts,
            hollow: Some(Hollow { free: vec![room, recess], colors }),
            texture: Texture::new(seed, 0.7),
            bounds: Bounds { low: [-3.0, -2.0 * half_height, -2.0], high: [3.5, 0.0, 2.0] },
        }
    }
}
