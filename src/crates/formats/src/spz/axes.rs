//! The axes of an SPZ, and the way between them and those of the scene.

use crate::place::{PlacementError, ScenePlacement};
use crate::splats::Splats;

/// Directions of x, y and z by their letters, numbered from 1 in a file: left or right, up or down, front or
/// back. In the second half, y and z have changed places (nianticlabs/spz, `CoordinateSystem`).
const NAMES: [&str; 16] = [
    "ldb", "rdb", "lub", "rub", "ldf", "rdf", "luf", "ruf", "lfd", "rfd", "lfu", "rfu", "lbd",
    "rbd", "lbu", "rbu",
];

/// The axes of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpzAxes {
    /// Index of the name.
    index: usize,
}

/// Right, up, back: the axes of a file that names no others.
impl Default for SpzAxes {
    fn default() -> Self {
        Self { index: 3 }
    }
}

impl SpzAxes {
    /// Right, down, front: the axes of the scene, of COLMAP and of PLY.
    pub const SCENE: Self = Self { index: 5 };

    /// Names of all axes.
    pub const fn names() -> &'static [&'static str] {
        &NAMES
    }

    /// The axes of a name, in small letters.
    pub fn of_name(name: &str) -> Option<Self> {
        NAMES.iter().position(|it| *it == name).map(|index| Self { index })
    }

    /// The name.
    pub fn name(self) -> &'static str {
        NAMES[self.index]
    }

    /// The axes of a number in a file.
    pub(super) fn of_number(number: u32) -> Option<Self> {
        let index = usize::try_from(number).ok()?.checked_sub(1)?;
        (index < NAMES.len()).then_some(Self { index })
    }

    /// The number in a file.
    pub(super) fn number(self) -> u32 {
        splat_mesh::narrow::to_u32(self.index) + 1
    }

    /// True if y points up in the file.
    pub fn is_y_up(self) -> bool {
        self.name().as_bytes()[1] == b'u'
    }

    /// Signs of x, y and z between the scene's axes and these, before the quarter turn.
    fn signs(self) -> [f32; 3] {
        let sign = |is_positive: bool| if is_positive { 1.0 } else { -1.0 };
        let letters = self.name().as_bytes();
        // The scene points down and to the front.
        [
            sign(letters[0] == b'r'),
            sign(!matches!(letters[1], b'u' | b'f')),
            sign(!matches!(letters[2], b'u' | b'b')),
        ]
    }

    /// A quarter turn about x if y and z have changed places.
    fn quarter_turn(self) -> Option<ScenePlacement> {
        let half = std::f64::consts::FRAC_1_SQRT_2;
        let is_turned = self.index >= NAMES.len() / 2;
        let rotation = [half, half, 0.0, 0.0];
        is_turned.then(|| ScenePlacement { rotation, ..ScenePlacement::default() })
    }

    /// Takes Gaussians from the scene's axes to these.
    pub(super) fn leave_scene(self, splats: &mut Splats) -> Result<(), PlacementError> {
        splats.mirror(self.signs());
        if let Some(turn) = self.quarter_turn() {
            splats.place(&turn)?;
        }
        Ok(())
    }

    /// Takes Gaussians from these axes to the scene's.
    pub(super) fn enter_scene(self, splats: &mut Splats) -> Result<(), PlacementError> {
        if let Some(turn) = self.quarter_turn() {
            splats.place(&turn.inverse()?)?;
        }
        splats.mirror(self.signs());
        Ok(())
    }
}
