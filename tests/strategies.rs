//! Whole runs with each way of adding and removing Gaussians.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    missing_docs,
    reason = "a test that cannot go on should say so and stop"
)]

#[path = "common/program.rs"]
mod program;

use std::fs;

use program::{Place, end, text};
use serde_json::Value;

/// Rounds every 20 iterations from 40 to 120 of a run of 160, from Gaussians near death.
const MARKOV_CHAIN: [&str; 11] = [
    "--strategy=mcmc",
    "--densify-from-iter=30",
    "--densify-until-iter=130",
    "--densification-interval=20",
    "--max-points=233",
    "--init-opacity=0.006",
    "--position-lr-max-steps=160",
    "--sh-degree-interval=50",
    "--seed=3",
    "--save-iterations=-1",
    "--test-iterations=-1",
];

/// The events of one kind of a run.
fn events(place: &Place, model: &str, kind: &str) -> Vec<Value> {
    let log = fs::read_to_string(place.path(model).join("run.jsonl")).unwrap();
    let events = log.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    events.filter(|event| event["event"] == kind).collect()
}

fn sum(events: &[Value], field: &str) -> u64 {
    events.iter().map(|event| event[field].as_u64().unwrap()).sum()
}

#[test]
fn the_markov_chain_moves_and_adds_gaussians_up_to_its_cap_and_not_one_above() {
    let place = Place::with_scene();
    place.trained(160, &MARKOV_CHAIN);
    let rounds = events(&place, "model", "relocated");
    let at: Vec<u64> = rounds.iter().map(|event| event["iteration"].as_u64().unwrap()).collect();
    assert_eq!(at, [40, 60, 80, 100, 120]);
    // A twentieth of 200 each time, then what the cap leaves.
    let counts: Vec<u64> =
        rounds.iter().map(|event| event["gaussians"].as_u64().unwrap()).collect();
    assert_eq!(counts, [210, 220, 231, 233, 233]);
    assert_eq!((sum(&rounds, "born"), sum(&rounds, "refused")), (33, 0));
    assert!(sum(&rounds, "relocated") > 0, "nobody was dead: {rounds:#?}");
    for kind in ["densified", "opacity_reset"] {
        assert!(events(&place, "model", kind).is_empty(), "{kind}");
    }
    let config = fs::read_to_string(place.model().join("config.toml")).unwrap();
    // Of the preset, beneath what was typed.
    assert!(config.contains("scale_reg = 0.01\n") && config.contains("init_opacity = 0.006\n"));
}

#[test]
fn a_markov_chain_that_is_resumed_goes_on_as_if_it_had_not_stopped() {
    let place = Place::with_scene();
    let flags = [&MARKOV_CHAIN[..], &["--checkpoint-iterations", "50", "80"]].concat();
    place.trained_into("unbroken", 160, &flags);
    let unbroken = fs::read(place.ply_of("unbroken", 160)).unwrap();
    // Between two rounds, and where one is due.
    for iteration in [50, 80] {
        let name = format!("unbroken/checkpoints/chkpnt_{iteration}.safetensors");
        let (checkpoint, model) = (place.path(&name), format!("from_{iteration}"));
        end(place.train_into(&model).args(["--start-checkpoint", text(&checkpoint)])).done();
        assert!(fs::read(place.ply_of(&model, 160)).unwrap() == unbroken, "{iteration}");
    }
}

#[test]
fn absolute_gradients_and_the_criterion_of_gof_grow_a_model_too() {
    let place = Place::with_scene();
    let window = [
        "--densify-from-iter=30",
        "--densify-until-iter=130",
        "--densification-interval=30",
        "--densify-grad-threshold=0.0001",
    ];
    for (model, strategy) in
        [("absolute", &["--absgrad"][..]), ("gof", &["--strategy=gof"]), ("mip", &["--preset=mip"])]
    {
        place.trained_into(model, 140, &[&window[..], strategy].concat());
        let rounds = events(&place, model, "densified");
        assert_eq!(rounds.len(), 3, "{model}");
        assert!(sum(&rounds, "cloned") + sum(&rounds, "split") > 0, "{model}: {rounds:#?}");
    }
}
