//! A run and the page that shows it: what is asked of the run, and what it shows.

use std::fs;
use std::path::PathBuf;
use std::process::Child;
use std::sync::LazyLock;
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::common::background::{send, started_until, training};
use crate::common::program::{Ended, TestFolder, assert_no_litter, end, splat, text};
use crate::fixtures::fixture;
use rstest::rstest;
use serde_json::Value;
use splat_formats::parse_spz;

/// Iterations of a run: some seconds, in which a page is looked for several times.
const LAST: u32 = 1500;

/// Density control, harmonics, a reset of the opacities and both filters.
const EVENTFUL: [&str; 13] = [
    "--iterations=1500",
    "--sh-degree-interval=70",
    "--densify-from-iter=40",
    "--densify-until-iter=1200",
    "--densification-interval=30",
    "--densify-grad-threshold=0.00005",
    "--opacity-reset-interval=400",
    "--position-lr-max-steps=1500",
    "--max-points=900",
    "--save-iterations=-1",
    "--test-iterations=-1",
    "--antialiasing",
    "--filter-3d",
];

/// A run that nobody looks at.
static UNWATCHED: LazyLock<TestFolder> = LazyLock::new(|| {
    fixture("unwatched", |place| {
        end(place.train().args(EVENTFUL)).done();
    })
});

/// Long enough for a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// A run with somebody who looks at it.
struct WatchedRun {
    place: TestFolder,
    child: Child,
}

impl WatchedRun {
    fn start(flags: &[&str]) -> Self {
        Self::begin(TestFolder::beside(&UNWATCHED), flags)
    }

    fn begin(place: TestFolder, flags: &[&str]) -> Self {
        let flags = [&EVENTFUL[..], flags].concat();
        let child = started_until(training(&place, &flags), &place.model().join("run.jsonl"));
        let mut run = Self { place, child };
        // Before that a folder of before is removed.
        run.until("the first iteration", |run| run.events("step").into_iter().next());
        fs::create_dir_all(run.live("")).unwrap();
        run
    }

    fn live(&self, name: &str) -> PathBuf {
        self.place.model().join("live").join(name)
    }

    /// The events of this name so far.
    fn events(&self, name: &str) -> Vec<Value> {
        let log = fs::read_to_string(self.place.model().join("run.jsonl")).unwrap();
        let lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        lines.filter(|line| line["event"] == name).collect()
    }

    /// Waits for something, while the run goes on.
    fn until<T>(&mut self, what: &str, found: impl Fn(&Self) -> Option<T>) -> T {
        let started = Instant::now();
        loop {
            if let Some(found) = found(self) {
                return found;
            }
            assert!(started.elapsed() < PATIENCE, "{what} never came");
            let ended = self.child.try_wait().unwrap();
            assert!(ended.is_none(), "the run ended before {what}: {ended:?}");
            sleep(Duration::from_millis(5));
        }
    }

    fn watch(&self) {
        fs::write(self.live("watch"), "").unwrap();
    }

    /// Asks for something as the page does.
    fn ask(&self, id: &str, action: &str) {
        let new = self.place.path("control.new");
        fs::write(&new, format!(r#"{{"id": "{id}", "action": "{action}"}}"#)).unwrap();
        fs::rename(new, self.live("control_1.json")).unwrap();
    }

    /// The same, and waits until it is done; after so many iterations.
    fn asked(&mut self, id: &str, action: &str) -> u32 {
        self.ask(id, action);
        let event = self
            .until(action, |run| run.events("control").into_iter().find(|event| event["id"] == id));
        assert_eq!(event["action"], action);
        u32::try_from(event["iteration"].as_u64().unwrap()).unwrap()
    }

    fn end(self) -> (TestFolder, Ended) {
        (self.place, Ended::from(self.child.wait_with_output().unwrap()))
    }
}

fn ply(place: &TestFolder) -> Vec<u8> {
    fs::read(place.ply(LAST)).unwrap()
}

/// The run came to the end that it has when nobody looks.
fn assert_unchanged(place: &TestFolder) {
    assert!(ply(place) == ply(&UNWATCHED));
    assert!(!place.model().join("live").exists());
    assert_no_litter(&place.model());
}

#[test]
fn what_is_shown_is_what_the_ply_of_that_iteration_is_exported_as() {
    // Often, so that a later file comes before a fast machine is done.
    let mut run = WatchedRun::start(&["--live-every=0.2"]);
    let iteration = run.asked("1", "pause");
    run.watch();
    let shown = run.live(&format!("splats_{iteration}.spz"));
    run.until("what is shown", |_| shown.exists().then_some(()));
    let copy = run.place.path("shown.spz");
    fs::copy(&shown, &copy).unwrap();
    run.watch();
    run.asked("2", "resume");
    // A later file takes its place.
    run.until("a later file", |run| {
        let mut files = fs::read_dir(run.live("")).unwrap().map(|it| it.unwrap().file_name());
        let later = files.find(|name| {
            let name = name.to_str().unwrap();
            name.ends_with(".spz") && *name != *shown.file_name().unwrap().to_str().unwrap()
        });
        later.filter(|_| !shown.exists())
    });
    let (place, ended) = run.end();
    ended.done().says(&[
        &format!("[ITER {iteration}] Paused from the page"),
        &format!("[ITER {iteration}] Resumed from the page"),
        " s, paused ",
    ]);
    assert_unchanged(&place);

    let shorter = format!("--iterations={iteration}");
    end(place.train_into("at").args(EVENTFUL).arg(shorter)).done();
    let exported = |from: &str, to: &str| {
        let mut command = splat();
        command.current_dir(place.path("")).args(["export", from, "-o", to]);
        if to.ends_with(".spz") {
            // The page has the axes of the model.
            command.args(["--spz-axes", "rdf"]);
        }
        end(&mut command).done();
        fs::read(place.path(to)).unwrap()
    };
    let saved = place.ply_of("at", iteration);
    // One is packed more quickly than the other.
    let held = |bytes: &[u8]| parse_spz(bytes, None).unwrap().splats;
    let expected = exported(text(&saved), "expected.spz");
    assert!(held(&fs::read(&copy).unwrap()) == held(&expected));
    // And it is a file that the program reads.
    assert!(exported("shown.spz", "shown.ply").len() > 1000);
}

#[test]
fn a_pause_lasts_until_the_run_is_told_to_go_on_and_is_no_training() {
    let mut run = WatchedRun::start(&["--live-every=0"]);
    run.watch();
    let iteration = run.asked("a", "pause");
    // The file is gone when it is obeyed.
    assert!(!run.live("control_1.json").exists());
    let steps = run.events("step").len();
    sleep(Duration::from_millis(1500));
    assert_eq!(run.events("step").len(), steps);
    assert!(!run.live(&format!("splats_{iteration}.spz")).exists(), "--live-every 0 shows nothing");
    // A checkpoint is written while it waits.
    assert_eq!(run.asked("b", "checkpoint"), iteration);
    let checkpoint = run.place.checkpoint(iteration);
    run.until("the checkpoint", |_| checkpoint.exists().then_some(()));
    assert_eq!(run.asked("c", "resume"), iteration);
    run.until("an iteration", |run| (run.events("step").len() > steps).then_some(()));
    // Another while it trains.
    let later = run.asked("d", "checkpoint");
    assert!(later > iteration);
    let events = run.place.model().join("run.jsonl");
    let (place, ended) = run.end();
    ended.done().says(&[&format!("[ITER {later}] Checkpoint asked for from the page")]);
    assert_unchanged(&place);
    assert!(place.checkpoint(later).exists());
    let log = fs::read_to_string(events).unwrap();
    let finished: Value = serde_json::from_str(log.lines().last().unwrap()).unwrap();
    let seconds = |key: &str| finished[key].as_f64().unwrap();
    assert!(seconds("paused_seconds") >= 1.4, "{finished}");
    let rest = seconds("wall_seconds") - seconds("paused_seconds");
    assert!(seconds("training_seconds") <= rest, "{finished}");

    // A run goes on from each as if nothing had been asked.
    for start in [iteration, later] {
        let checkpoint = place.checkpoint(start);
        let on = ["--start-checkpoint", text(&checkpoint)];
        end(place.train_into("resumed").args(on)).done();
        assert!(fs::read(place.ply_of("resumed", LAST)).unwrap() == ply(&UNWATCHED));
    }
}

#[rstest]
#[case::while_it_trains(false)]
#[case::in_a_pause(true)]
fn stop_is_what_ctrl_c_is(#[case] is_paused: bool) {
    let mut run = WatchedRun::start(&[]);
    if is_paused {
        run.asked("0", "pause");
    }
    let iteration = run.asked("1", "stop");
    let (place, ended) = run.end();
    let model = place.model();
    ended.refused(130, &["--resume", text(&model), "Stopping from the page"]);
    assert!(place.checkpoint(iteration).exists() && !place.ply(LAST).exists());
    assert!(!model.join("live").exists());
    end(place.train().arg("--resume")).done();
    assert_unchanged(&place);
}

#[test]
fn a_signal_ends_a_pause() {
    let mut run = WatchedRun::start(&[]);
    let iteration = run.asked("1", "pause");
    send("INT", &run.child);
    let (place, ended) = run.end();
    ended.refused(130, &["--resume"]);
    assert!(place.checkpoint(iteration).exists());
    assert!(!place.model().join("live").exists());
}

#[test]
fn requests_are_left_alone_where_they_are_not_obeyed() {
    let mut run = WatchedRun::start(&["--live-control=false"]);
    run.ask("1", "stop");
    run.watch();
    // The folder has been looked at when this is there.
    run.until("what is shown", |run| {
        let mut files = fs::read_dir(run.live("")).unwrap().map(|it| it.unwrap().path());
        files.find(|file| file.extension().is_some_and(|kind| kind == "spz"))
    });
    assert!(run.live("control_1.json").exists());
    let (place, ended) = run.end();
    ended.done();
    let log = fs::read_to_string(place.model().join("run.jsonl")).unwrap();
    assert!(!log.contains("\"control\""));
    assert_unchanged(&place);
}

#[test]
fn a_broken_request_is_removed_with_a_warning_and_training_goes_on() {
    let mut run = WatchedRun::start(&[]);
    fs::write(run.live("control_1.json"), "{\"id\": 7").unwrap();
    let warning = run.until("a warning", |run| run.events("warning").pop());
    let message = warning["message"].as_str().unwrap();
    assert!(message.contains("control_1.json: cannot be understood"), "{message}");
    assert!(!run.live("control_1.json").exists());
    let (place, ended) = run.end();
    ended.done().says(&["warning: ", "The request is dropped"]);
    assert_unchanged(&place);
}

#[test]
fn what_a_killed_run_leaves_is_no_request_to_the_next() {
    let mut run = WatchedRun::start(&["--checkpoint-minutes=0.0000001"]);
    run.watch();
    run.asked("1", "pause");
    run.ask("2", "stop");
    run.child.kill().unwrap();
    let (place, _) = run.end();
    fs::write(place.model().join("live/splats_7.spz"), "old").unwrap();
    fs::write(place.model().join("live/control_1.json"), r#"{"id": "2", "action": "stop"}"#)
        .unwrap();
    end(place.train().args(["--resume", "--checkpoint-minutes=0"])).done();
    assert_unchanged(&place);
}

#[rstest]
#[case("--live-every=-1", "0 to 86400")]
#[case("--live-every=nan", "0 to 86400")]
#[case("--live-control=perhaps", "--live-control")]
fn values_that_make_no_sense_are_refused(#[case] flag: &str, #[case] said: &str) {
    let place = TestFolder::beside(&UNWATCHED);
    end(place.train().arg(flag)).refused(2, &[flag.split('=').next().unwrap(), said]);
}
