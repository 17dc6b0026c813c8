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

use geometry::measured;
use program::{Place, end};
use splat::synth::{SynthOptions, write_scene};

/// Iterations of the photometric stage, and of the coarse one behind it.
const STAGES: [u32; 2] = [7000, 8000];

/// Rays of a measurement.
const RAYS: usize = 20_000;

/// The scene: as large as a model of tens of thousands of Gaussians wants.
const SCENE: SynthOptions =
    SynthOptions { seed: 0, views: 64, width: 320, height: 240, points: 10_000 };

/// Both stages with these terms in one command: the model before the coarse stage and after it. The
/// distance of its points from the true surfaces falls to a third, the angles of its axes to half, and
/// it costs less than 1 dB.
fn surfaces_are_found_with(terms: &str) {
    let place = Place::empty();
    write_scene(&place.scene(), &SCENE).unwrap();
    let both = [STAGES[0], STAGES[0] + STAGES[1]];
    let texts = both.map(|at| at.to_string());
    let mut command = place.train_into(terms);
    // Widened splats that keep their opacity have outlines most of a pixel too far out, and draw all
    // surfaces in by as much: no terms make up for that.
    command.args(["--device", "cuda", "--eval", "--antialiasing", "--regularize", terms]);
    command.args(["--iterations", &texts[0], "--sugar-iterations", &STAGES[1].to_string()]);
    command.arg("--save-iterations").args(&texts).arg("--test-iterations").args(&texts);
    end(command.timeout(Duration::from_secs(600))).done();
    let [before, after] =
        both.map(|at| measured((&place.path(terms), at), (&place.scene(), SCENE.seed), RAYS));
    println!("{before}\n{after}");
    after.assert_better_than(&before, (3.0, 2.0, 1.0));
}

#[test]
#[ignore = "needs a CUDA device"]
fn gaussians_come_to_lie_on_the_true_surfaces_by_their_density() {
    surfaces_are_found_with("density");
}

#[test]
#[ignore = "needs a CUDA device"]
fn gaussians_come_to_lie_on_the_true_surfaces_by_their_distance_field() {
    surfaces_are_found_with("sdf");
}

#[test]
#[ignore = "needs a CUDA device"]
fn gaussians_come_to_lie_on_the_true_surfaces_by_drawn_depths_and_normals() {
    surfaces_are_found_with("dn-consistency");
}
