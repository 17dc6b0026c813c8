//! What SuGaR's coarse stage does on a GPU for models of scenes whose surfaces are known.
#![cfg(kernels)]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that cannot go on should say so and stop"
)]

#[path = "common/geometry.rs"]
mod geometry;
#[path = "common/program.rs"]
mod program;

use std::time::Duration;

use geometry::{Measurement, measured};
use program::{Place, end};
use splat::synth::{SynthOptions, write_scene};

/// Iterations of the photometric stage, and of the coarse one behind it.
const STAGES: [u32; 2] = [7000, 8000];

/// Rays of a measurement.
const RAYS: usize = 20_000;

/// The scene: as large as a model of tens of thousands of Gaussians wants.
const SCENE: SynthOptions =
    SynthOptions { seed: 0, views: 64, width: 320, height: 240, points: 10_000 };

/// Both stages with these terms in one command; the model before the coarse stage and after it.
fn stages(place: &Place, terms: &str) -> [Measurement; 2] {
    let [start, last] = [STAGES[0], STAGES[0] + STAGES[1]];
    let both = [start.to_string(), last.to_string()];
    let mut command = place.train_into(terms);
    command.args(["--device", "cuda", "--eval", "--regularize", terms]);
    command.args(["--iterations", &both[0], "--sugar-iterations", &STAGES[1].to_string()]);
    command.arg("--save-iterations").args(&both).arg("--test-iterations").args(&both);
    end(command.timeout(Duration::from_secs(600))).done();
    [start, last].map(|at| measured((&place.path(terms), at), (&place.scene(), SCENE.seed), RAYS))
}

#[test]
#[ignore = "needs a CUDA device"]
fn gaussians_come_to_lie_on_the_true_surfaces_with_every_choice_of_terms() {
    let place = Place::empty();
    write_scene(&place.scene(), &SCENE).unwrap();
    let rows = ["density", "sdf", "dn-consistency"].map(|terms| stages(&place, terms));
    for row in rows.iter().flatten() {
        println!("{row}");
    }
    for [before, after] in &rows {
        after.assert_better_than(before, (3.0, 2.0, 1.0));
    }
}
