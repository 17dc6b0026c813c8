//! `splat view`: a page of a model, served to those who have its address.

use std::fs::{self, OpenOptions};
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::LazyLock;
use std::thread::sleep;
use std::time::{Duration, Instant};

use rstest::rstest;
use serde_json::Value;
use splat::math::linalg::{length, sub};
use splat_formats::parse_spz;
use splat_mesh::file::read_glb;

use crate::common::program::{
    Answer, Ended, SIZE, TestFolder, VIEWS, assert_no_litter, end, ended, exchange, holds, kill,
    program, put, request, send, started_once, started_until, text, training, wait_until, words,
};
use crate::common::synthetic::with_moved_scene;
use crate::synthetic_scenes::{fixture, with_model};

/// A server of a model's page.
pub(super) struct Served {
    pub(super) child: Running,
    pub(super) port: u16,
    pub(super) token: String,
}

impl Served {
    fn of(place: &TestFolder, flags: &[&str]) -> Self {
        Self::of_model(&place.model(), flags)
    }

    pub(super) fn of_model(model: &Path, flags: &[&str]) -> Self {
        let mut command = program(&[]);
        command.args(["view", "--port=0", "--quiet", "-m"]).arg(model).args(flags);
        let mut child = command.stderr(Stdio::inherit()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("http://127.0.0.1:").unwrap();
        let (port, token) = address.split_once("/#t=").unwrap();
        Self { child: Running(child), port: port.parse().unwrap(), token: token.to_owned() }
    }

    fn get(&self, path: &str) -> Answer {
        request(self.port, "GET", path, &[&format!("Authorization: Bearer {}", self.token)])
    }

    /// The JSON of a path that has one.
    fn json(&self, path: &str) -> Value {
        let answer = self.get(path);
        assert_eq!(answer.status, 200, "{path}: {answer:?}");
        answer.json()
    }

    /// Posts a text for a run.
    fn post(&self, body: &str) -> Answer {
        let Self { port, token, .. } = self;
        let length = body.len();
        let request = format!(
            "POST /api/control HTTP/1.1\r\nHost: localhost:{port}\r\nAuthorization: Bearer {token}\r\n\
             Content-Length: {length}\r\nConnection: close\r\n\r\n{body}"
        );
        exchange(self.port, request.as_bytes())
    }

    /// Asks for the run until it is as wanted.
    fn run_until(&self, wanted: impl Fn(&Value) -> bool) -> Value {
        let mut run = Value::Null;
        wait_until("the run", || {
            sleep(Duration::from_millis(45));
            run = self.json("/api/run");
            wanted(&run)
        });
        run
    }
}

/// A program that ends with the test.
pub(super) struct Running(pub(super) Child);

impl Running {
    /// A run without an end, which has begun.
    fn training(place: &TestFolder, flags: &[&str]) -> Self {
        let mut command = training(place, &["--quiet", "--iterations=1000000"]);
        command.args(flags).stderr(Stdio::null());
        Self(started_once(command, "a log", || holds(&log_of(place), "{")))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

fn log_of(place: &TestFolder) -> PathBuf {
    place.model().join("run.jsonl")
}

#[test]
fn connections_without_the_token_keep_nobody_out() {
    let place = with_model(5, &[]);
    let served = Served::of(&place, &[]);
    // Silent ones are more than there are places for.
    let open: Vec<_> = (0..570)
        .map(|number| {
            let mut stream = TcpStream::connect(("127.0.0.1", served.port)).unwrap();
            let begun: &[u8] = if number < 500 { b"GET / HTTP/1.1\r\nHo" } else { b"" };
            stream.write_all(begun).unwrap();
            stream
        })
        .collect();
    for _ in 0..5 {
        let begun = Instant::now();
        assert_eq!(served.get("/api/run").status, 200);
        assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
    }
    drop(open);
}

#[test]
fn what_tells_a_run_of_its_page_goes_when_no_run_is_left() {
    let place = TestFolder::with_scene();
    let training = Running::training(&place, &[]);
    let served = Served::of(&place, &[]);
    served.run_until(|_| place.model().join("live/watch").exists());
    // Killed, the run removes nothing.
    drop(training);
    served.run_until(|_| !place.model().join("live").exists());
}

#[test]
fn a_page_is_told_all_of_a_trained_model() {
    let place = with_model(40, &["--eval", "--save-iterations=20"]);
    let mesh = place.model().join("mesh/iteration_40/tsdf.glb");
    put(&mesh, "glTF of a test");
    let served = Served::of(&place, &[]);

    let page = request(served.port, "GET", "/", &[]);
    assert_eq!(page.status, 200);
    assert!(page.header("content-type").unwrap().starts_with("text/html"), "{}", page.head);
    let policy = page.header("content-security-policy").unwrap();
    assert!(policy.contains("default-src 'none'"), "{policy}");
    assert!(policy.contains("frame-ancestors 'none'"), "{policy}");
    assert_eq!(page.header("x-content-type-options"), Some("nosniff"));
    let html = String::from_utf8(page.body).unwrap();
    assert!(html.contains("<!doctype html>") && !html.contains("{{"));
    assert!(!html.contains(&served.token) && !html.contains("view_000"));

    let scene = served.json("/api/scene");
    assert_eq!(scene["title"], "model");
    let cameras = scene["cameras"].as_array().unwrap();
    assert_eq!(cameras.len(), VIEWS);
    assert_eq!(cameras[0]["name"], "view_000.png");
    assert_eq!(cameras[0]["size_px"], serde_json::json!([SIZE.0, SIZE.1]));
    assert_eq!([&cameras[0]["split"], &cameras[1]["split"]], ["held_out", "training"]);
    assert_eq!(cameras[0]["psnr"], place.psnr("model", 40), "the one held-out view");
    assert!(cameras[1]["psnr"].is_null());
    assert_eq!((&scene["points"], &scene["sh_degree"]), (&200.into(), &3.into()));
    assert_eq!(scene["meshes"][0]["name"], "mesh/iteration_40/tsdf.glb");

    let run = served.json("/api/run");
    assert_eq!((&run["state"], &run["control"]), (&"finished".into(), &false.into()));
    let events = run["events"].as_array().unwrap();
    assert_eq!((&events[0]["event"], &run["reset"]), (&"started".into(), &false.into()));
    assert_eq!(run["next"], events.len());
    let again = served.json(&format!("/api/run?from={}", run["next"]));
    assert_eq!(again["events"], serde_json::json!([]));

    let splats = &run["splats"];
    assert_eq!((&splats["iteration"], &splats["live"]), (&40.into(), &false.into()));
    let spz = served.get(&format!("/api/splats/{}", splats["generation"]));
    let shown = parse_spz(&spz.body, None).unwrap().splats;
    let saved = splat_formats::read(&place.ply(40)).unwrap().splats;
    assert_eq!(shown.columns().means.len(), saved.columns().means.len());
    assert_eq!(served.get("/api/splats/999").status, 404);
    assert_eq!(served.get("/api/points").body.len(), 16 * 200);
    assert_eq!(served.get("/api/mesh/0").body, b"glTF of a test");
    assert_eq!(served.get("/api/mesh/1").status, 404);
}

#[test]
fn photographs_are_those_that_were_trained_on() {
    let place = TestFolder::with_scene();
    place.trained(1, &["--resolution=2"]);
    let served = Served::of(&place, &[]);
    let answer = served.get("/api/photo/3");
    assert_eq!(answer.header("content-type"), Some("image/jpeg"));
    let shown = image::load_from_memory(&answer.body).unwrap().to_rgb8();
    assert_eq!(shown.dimensions(), (SIZE.0 / 2, SIZE.1 / 2));
    let photograph = image::open(place.image(3)).unwrap().to_rgb8();
    let filter = image::imageops::FilterType::Triangle;
    let expected = image::imageops::resize(&photograph, SIZE.0 / 2, SIZE.1 / 2, filter);
    let differences = shown.as_raw().iter().zip(expected.as_raw());
    let mean = differences.map(|(a, b)| f64::from(a.abs_diff(*b))).sum::<f64>()
        / expected.as_raw().len() as f64;
    // JPEG at quality 95 and another filter: a few steps. Another photograph differs by tens.
    assert!(mean < 6.0, "{mean}");
    let small = served.get("/api/photo/3?width=10");
    assert_eq!(image::load_from_memory(&small.body).unwrap().to_rgb8().dimensions(), (10, 7));
    assert_eq!(served.get("/api/photo/99").status, 404);
    fs::write(place.image(4), "no picture").unwrap();
    let broken = served.get("/api/photo/4");
    assert_eq!(broken.status, 503);
    assert!(broken.json()["error"].as_str().unwrap().contains("view_004.png"), "{broken:?}");
}

#[test]
fn nobody_else_is_served_and_nothing_else() {
    let place = TestFolder::with_scene();
    place.trained(1, &[]);
    let served = Served::of(&place, &["--host=workstation.lan"]);
    let port = served.port;
    let right = format!("Authorization: Bearer {}", served.token);
    let paths = ["scene", "run", "splats/1", "points", "mesh/0", "photo/0", "control", "nothing"];
    for path in paths.map(|path| format!("/api/{path}")) {
        for wrong in ["X-None: 1", "Authorization: Bearer 0", "Authorization: Basic Og=="] {
            let answer = request(port, "GET", &path, &[wrong]);
            assert_eq!(answer.status, 401, "{path} {wrong}");
            assert!(answer.json()["error"].as_str().unwrap().contains("splat view"));
        }
    }
    for path in [
        "/../../etc/passwd",
        "/api/../config.toml",
        "/api/mesh/../../config.toml",
        "/api/mesh/..%2f..%2fconfig.toml",
        "/api/photo/%2e%2e",
        "/api/mesh/0%00",
        "/config.toml",
        "/run.jsonl",
    ] {
        let answer = request(port, "GET", path, &[&right]);
        assert!([400, 404].contains(&answer.status), "{path}: {answer:?}");
    }
    let as_host = |host: &str, more: &str| {
        let head = format!("GET /api/scene HTTP/1.1\r\nHost: {host}\r\n{right}\r\n{more}");
        exchange(port, format!("{head}Connection: close\r\n\r\n").as_bytes()).status
    };
    assert_eq!(as_host(&format!("workstation.lan:{port}"), ""), 200);
    assert_eq!(as_host("localhost:1", ""), 200, "a port that is forwarded");
    assert_eq!(as_host("other.lan", ""), 421);
    assert_eq!(as_host(&format!("evil.example:{port}"), ""), 421);
    assert_eq!(as_host(&format!("localhost:{port}"), "Origin: http://evil.example\r\n"), 403);
    let own = format!("Origin: http://localhost:{port}\r\n");
    assert_eq!(as_host(&format!("localhost:{port}"), &own), 200);
    for (method, path) in [("DELETE", "/api/mesh/0"), ("PUT", "/"), ("GET", "/api/control")] {
        assert_eq!(request(port, method, path, &[&right]).status, 405, "{method} {path}");
    }
    // Heads and bodies without end, and what is no HTTP.
    let long = format!("X-Long: {}", "a".repeat(1 << 20));
    assert!([400, 431].contains(&request(port, "GET", "/api/scene", &[&right, &long]).status));
    assert_eq!(served.post(&format!("{{\"action\":\"{}\"}}", "a".repeat(8000))).status, 413);
    assert_eq!(exchange(port, b"\0\xff\r\n\r\n").status, 400);
    assert_eq!(served.post("{\"action\": \"erase\"}").status, 400);
    // All is as before, also for two at once.
    std::thread::scope(|scope| {
        let requested = [0, 1].map(|_| scope.spawn(|| served.json("/api/scene")));
        let [first, second] = requested.map(|requested| requested.join().unwrap());
        assert_eq!(first, second);
    });
}

#[test]
fn a_run_is_followed_while_it_trains_and_when_it_is_killed() {
    let place = TestFolder::with_scene();
    let mut training = Running::training(&place, &[]);
    let log = log_of(&place);
    let served = Served::of(&place, &[]);
    let steps = |run: &Value| {
        let events = run["events"].as_array().unwrap();
        events.iter().filter(|event| event["event"] == "step").count()
    };
    let run = served.run_until(|run| steps(run) >= 3);
    assert_eq!((&run["state"], &run["control"]), (&"running".into(), &true.into()));
    let next = run["next"].as_u64().unwrap();
    served.run_until(|run| run["next"].as_u64().unwrap() > next);
    // The run hears that somebody looks.
    assert!(place.model().join("live/watch").exists());
    kill(&mut training.0);
    let run = served.run_until(|run| run["state"] == "ended");
    let message = run["message"].as_str().unwrap();
    assert!(message.contains("before its first checkpoint: start it again"), "{message}");
    let status = served.post("{\"action\": \"pause\"}").status;
    assert_eq!((&run["control"], status), (&false.into(), 409));
    // What a crash leaves in the log is passed over.
    OpenOptions::new().append(true).open(&log).unwrap().write_all(b"\n\xff\xfe\n{\"ev").unwrap();
    let run = served.run_until(|run| run["skipped_lines"].as_u64().unwrap() > 0);
    assert_eq!(run["state"], "ended");
    // A new run in the folder: what was shown is gone.
    fs::write(&log, "{\"event\":\"started\",\"iteration\":0}\n").unwrap();
    let from = format!("/api/run?from={}", run["next"]);
    wait_until("a reset", || served.json(&from)["reset"] == true);
    assert_eq!(served.json(&from)["events"].as_array().unwrap().len(), 1);
}

#[test]
fn a_run_shows_itself_and_follows_its_page() {
    let place = TestFolder::with_scene();
    let mut training = Running::training(&place, &["--live-every=1"]);
    let served = Served::of(&place, &[]);
    let run = served.run_until(|run| run["splats"]["live"] == true);
    let ask = |action: &str| {
        let answer = served.post(&format!("{{\"action\": \"{action}\"}}"));
        assert_eq!(answer.status, 202, "{answer:?}");
        answer.json()["id"].clone()
    };
    let generation = run["splats"]["generation"].as_u64().unwrap();
    // Newer ones come while somebody looks; the older are replaced.
    let newer = served.run_until(|run| run["splats"]["generation"].as_u64() > Some(generation));
    assert!(newer["splats"]["iteration"].as_u64() > run["splats"]["iteration"].as_u64());
    assert_eq!(served.get(&format!("/api/splats/{generation}")).status, 404);
    let id = ask("pause");
    let paused = served.run_until(|run| run["state"] == "paused");
    let events = paused["events"].as_array().unwrap();
    assert!(events.iter().any(|event| event["event"] == "control" && event["id"] == id));
    // While it waits, its Gaussians stay, and a shown file can be had. The last ones may still be on their way, and
    // replace those before.
    let shown = || {
        let generation = served.json("/api/run")["splats"]["generation"].clone();
        let spz = served.get(&format!("/api/splats/{generation}"));
        (spz.status == 200).then_some(spz)
    };
    let spz = shown().or_else(shown).unwrap();
    assert!(!parse_spz(&spz.body, None).unwrap().splats.is_empty());
    // Both are handled, one after the other.
    ask("checkpoint");
    ask("pause");
    let is_checkpoint = |event: &Value| event["event"] == "saved" && event["what"] == "checkpoint";
    let saved = served.run_until(|run| run["events"].as_array().unwrap().iter().any(is_checkpoint));
    assert_eq!(saved["state"], "paused");
    ask("resume");
    let next = served.run_until(|run| run["state"] == "running")["next"].as_u64();
    served.run_until(|run| run["next"].as_u64() > next);
    ask("stop");
    let run = served.run_until(|run| run["state"] == "interrupted");
    assert!(run["message"].as_str().unwrap().contains("--resume"), "{run}");
    assert_eq!(training.0.wait().unwrap().code(), Some(130));
}

#[test]
fn a_page_that_may_only_look_asks_nothing_of_a_run() {
    let place = with_model(1, &[]);
    let served = Served::of(&place, &["--read-only"]);
    assert_eq!(served.json("/api/scene")["read_only"], true);
    assert_eq!(served.post("{\"action\": \"stop\"}").status, 403);
    assert!(!place.model().join("live").exists(), "nobody trains, so nobody is told");
}

#[test]
fn a_model_without_its_scene_is_shown_without_photographs() {
    let place = TestFolder::with_scene();
    place.trained(1, &[]);
    let elsewhere = place.path("elsewhere");
    fs::rename(place.scene(), &elsewhere).unwrap();
    let served = Served::of(&place, &[]);
    let camera = served.json("/api/scene")["cameras"][0].clone();
    assert_eq!((&camera["name"], &camera["has_photo"]), (&"view_000".into(), &false.into()));
    let served = Served::of(&place, &["-s", text(&elsewhere)]);
    assert_eq!(served.json("/api/scene")["cameras"][0]["has_photo"], true);
    // Nor is there a configuration in models of other trainers.
    fs::remove_file(place.model().join("config.toml")).unwrap();
    let scene = Served::of(&place, &[]).json("/api/scene");
    assert_eq!(scene["cameras"].as_array().unwrap().len(), VIEWS);
}

#[test]
fn what_cannot_be_shown_is_refused_with_what_to_do() {
    let place = TestFolder::with_scene();
    let view = |flags: &[&str]| place.splat("view -m MODEL", flags);
    view(&[]).refused(3, &["model: there is no such folder"]);
    fs::create_dir(place.model()).unwrap();
    view(&[]).refused(3, &["model: holds no model and no run", "Train a model there first"]);
    fs::remove_dir(place.model()).unwrap();
    fs::write(place.model(), "").unwrap();
    view(&[]).refused(3, &["is a file, not a model folder"]);
    fs::remove_file(place.model()).unwrap();
    place.trained(1, &[]);
    view(&["-s", "/nonexistent"]).refused(3, &["/nonexistent"]);
    let parts = ["--listen 203.0.113.7", "address of this machine"];
    view(&["--listen=203.0.113.7"]).refused(2, &parts);
    view(&["--port=99999"]).refused(2, &["--port"]);
    for host in ["--host=http://ws", "--host=ws:7007", "--host="] {
        view(&[host]).refused(2, &["--host", "a name alone"]);
    }
}

#[test]
fn the_next_free_port_is_taken_and_said() {
    let place = with_model(1, &[]);
    let first = Served::of(&place, &[]);
    let port = format!("--port={}", first.port);
    let second = Served::of(&place, &[&port]);
    assert!(second.port > first.port);
    assert_eq!(second.json("/api/scene")["title"], "model");
}

/// All that the page shows in coordinates, and the rest of each camera.
struct ShownScene {
    cameras: Vec<[f64; 3]>,
    splats: Vec<[f64; 3]>,
    points: Vec<[f64; 3]>,
    mesh: Vec<[f64; 3]>,
    center: [f64; 3],
    others: Value,
}

fn shown_scene(place: &TestFolder, served: &Served) -> ShownScene {
    let mut scene = served.json("/api/scene");
    let position = |value: &Value| [0, 1, 2].map(|axis| value[axis].as_f64().unwrap());
    let center = position(&scene["center"]);
    let cameras = scene["cameras"].as_array_mut().unwrap();
    let positions = cameras.iter_mut().map(|camera| position(&camera["position"].take())).collect();
    let cameras_without_places = scene["cameras"].clone();
    let rows = |rows: &[[f32; 3]]| rows.iter().map(|row| row.map(f64::from)).collect::<Vec<_>>();
    let generation = served.json("/api/run")["splats"]["generation"].clone();
    let spz = served.get(&format!("/api/splats/{generation}")).body;
    let splats = parse_spz(&spz, None).unwrap().splats;
    let points = served.get("/api/points").body;
    let number = |bytes: &[u8]| f64::from(f32::from_le_bytes(*bytes.first_chunk().unwrap()));
    let point = |row: &[u8]| [0, 4, 8].map(|at| number(&row[at..]));
    let mesh = served.get("/api/mesh/0");
    let mesh = if mesh.status == 200 {
        let glb = place.path("shown.glb");
        fs::write(&glb, mesh.body).unwrap();
        rows(&read_glb(&glb).unwrap().mesh.vertices)
    } else {
        Vec::new()
    };
    ShownScene {
        cameras: positions,
        splats: rows(&splats.columns().means),
        points: points.chunks_exact(16).map(point).collect(),
        mesh,
        center,
        others: serde_json::json!([cameras_without_places, scene["up"], scene["points"]]),
    }
}

#[test]
fn the_page_shows_a_scene_anywhere_as_at_the_origin() {
    let shown = |offset| {
        let place = with_moved_scene(1.0, offset);
        place.trained(10, &["--eval"]);
        place.run("mesh", &["--mesh-resolution=24"]).done();
        shown_scene(&place, &Served::of(&place, &[]))
    };
    let here = shown([0.0; 3]);
    assert!(here.mesh.len() > 50 && here.splats.len() > 50 && here.points.len() > 50);
    for offset in [[1e4, -9e3, 1e3], [5e5, 4.5e6, 120.0], [5e6, -4e6, 3e6]] {
        let there = shown(offset);
        // The page is near the origin, where its 32-bit numbers are exact.
        assert!(length(there.center) < 100.0, "{:?}", there.center);
        let moved = sub(there.cameras[0], here.cameras[0]);
        // Steps of an SPZ, 2^-12, which the two round apart; of doubles at 5e6; and of a training that differs
        // in its last digits.
        for (kind, here, there, tolerance) in [
            ("cameras", &here.cameras, &there.cameras, 1e-7),
            ("points", &here.points, &there.points, 1e-5),
            ("splats", &here.splats, &there.splats, 2e-3),
        ] {
            assert_eq!(here.len(), there.len(), "{kind} at {offset:?}");
            for (here, there) in here.iter().zip(there) {
                let off = length(sub(sub(*there, *here), moved));
                assert!(off < tolerance, "{kind} at {offset:?}: {off}");
            }
        }
        for corner in [f64::min, f64::max] {
            let of = |mesh: &[[f64; 3]], axis: usize| {
                mesh.iter().map(|vertex| vertex[axis]).reduce(corner).unwrap()
            };
            for (axis, moved) in moved.into_iter().enumerate() {
                let off = of(&there.mesh, axis) - of(&here.mesh, axis) - moved;
                assert!(off.abs() < 0.1, "mesh at {offset:?}: {off}");
            }
        }
        assert!(is_near(&there.others, &here.others), "{} {}", there.others, here.others);
    }
}

/// True if all of two values is equal, numbers to 1e-4, since PSNR of two trainings differs in its last digits.
fn is_near(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => {
            (a.as_f64().unwrap() - b.as_f64().unwrap()).abs() < 1e-4
        }
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| is_near(a, b))
        }
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(key, a)| b.get(key).is_some_and(|b| is_near(a, b)))
        }
        _ => a == b,
    }
}

#[test]
fn the_page_of_a_tiny_scene_far_away_shows_what_it_shows_of_others() {
    let shapes = [(1.0, [0.0; 3]), (1e-4, [500.0, 4500.0, 0.1])].map(|(factor, offset)| {
        let place = with_moved_scene(factor, offset);
        place.trained(1, &[]);
        let page = shown_scene(&place, &Served::of(&place, &[]));
        // Without the scene, the cameras are those of the model folder.
        fs::rename(place.scene(), place.path("elsewhere")).unwrap();
        let without = shown_scene(&place, &Served::of(&place, &[])).cameras[0];
        let [a, b] = [page.cameras[0], page.cameras[1]];
        let unit = length(sub(a, b));
        assert!(length(sub(a, without)) < 1e-6 * unit, "{a:?} {without:?}");
        let middle = |rows: &[[f64; 3]]| {
            [0, 1, 2].map(|axis| rows.iter().map(|row| row[axis]).sum::<f64>() / rows.len() as f64)
        };
        [&page.splats, &page.points].map(|rows| length(sub(middle(rows), a)) / unit)
    });
    let [here, there] = shapes;
    for (here, there) in here.into_iter().zip(there) {
        assert!((here / there - 1.0).abs() < 1e-3, "{here} {there}");
    }
}

// A run and the page that shows it: what is asked of the run, and what it shows.

/// Iterations of a run: some seconds, in which a page is looked for several times.
const LAST: u32 = 1500;

/// Density control, harmonics, a reset of the opacities and both filters.
const EVENTFUL: [&str; 13] = words(
    "--iterations=1500 --sh-degree-interval=70 --densify-from-iter=40 --densify-until-iter=1200 \
     --densification-interval=30 --densify-grad-threshold=0.00005 --opacity-reset-interval=400 \
     --position-lr-max-steps=1500 --max-points=900 --save-iterations=-1 --test-iterations=-1 \
     --antialiasing --filter-3d",
);

/// A run that nobody looks at.
static UNWATCHED: LazyLock<TestFolder> = LazyLock::new(|| {
    fixture("unwatched", |place| {
        end(place.train().args(EVENTFUL)).done();
    })
});

/// A run with somebody who looks at it.
struct WatchedRun {
    place: TestFolder,
    child: Child,
}

impl WatchedRun {
    fn start(flags: &[&str]) -> Self {
        let place = TestFolder::beside(&UNWATCHED);
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
        let log = self.place.read("model/run.jsonl");
        let lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        lines.filter(|line| line["event"] == name).collect()
    }

    /// Waits for something, while the run goes on.
    fn until<T>(&mut self, what: &str, find: impl Fn(&Self) -> Option<T>) -> T {
        let mut found = None;
        wait_until(what, || {
            found = find(self);
            let has_ended = found.is_none() && self.child.try_wait().unwrap().is_some();
            assert!(!has_ended, "the run ended before {what}");
            found.is_some()
        });
        found.unwrap()
    }

    fn watch(&self) {
        fs::write(self.live("watch"), "").unwrap();
    }

    /// Asks for something as the page does.
    fn send_request(&self, id: &str, action: &str) {
        let new = self.place.path("control.new");
        fs::write(&new, format!(r#"{{"id": "{id}", "action": "{action}"}}"#)).unwrap();
        fs::rename(new, self.live("control_1.json")).unwrap();
    }

    /// Asks for something, waits until it is done, and returns the iteration.
    fn finish_request(&mut self, id: &str, action: &str) -> u32 {
        self.send_request(id, action);
        let event = self
            .until(action, |run| run.events("control").into_iter().find(|event| event["id"] == id));
        assert_eq!(event["action"], action);
        u32::try_from(event["iteration"].as_u64().unwrap()).unwrap()
    }

    fn end(self) -> (TestFolder, Ended) {
        (self.place, ended(self.child))
    }
}

fn ply(place: &TestFolder) -> Vec<u8> {
    place.ply_bytes("model", LAST)
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
    let iteration = run.finish_request("1", "pause");
    run.watch();
    let shown = run.live(&format!("splats_{iteration}.spz"));
    run.until("what is shown", |_| shown.exists().then_some(()));
    let copy = run.place.path("shown.spz");
    fs::copy(&shown, &copy).unwrap();
    run.watch();
    run.finish_request("2", "resume");
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
        // The page has the axes of the model.
        let axes: &[&str] = if to.ends_with(".spz") { &["--spz-axes=rdf"] } else { &[] };
        place.splat("export", &[&[from, "-o", to], axes].concat()).done();
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
    // A broken request is removed with a warning.
    fs::write(run.live("control_1.json"), "{\"id\": 7").unwrap();
    let warning = run.until("a warning", |run| run.events("warning").pop());
    let message = warning["message"].as_str().unwrap();
    assert!(message.contains("control_1.json: cannot be understood"), "{message}");
    assert!(!run.live("control_1.json").exists());
    run.watch();
    let iteration = run.finish_request("a", "pause");
    // The file is removed after the request is handled.
    assert!(!run.live("control_1.json").exists());
    let steps = run.events("step").len();
    sleep(Duration::from_millis(1500));
    assert_eq!(run.events("step").len(), steps);
    assert!(!run.live(&format!("splats_{iteration}.spz")).exists(), "--live-every 0 shows nothing");
    // A checkpoint is written while it waits.
    assert_eq!(run.finish_request("b", "checkpoint"), iteration);
    let checkpoint = run.place.checkpoint(iteration);
    run.until("the checkpoint", |_| checkpoint.exists().then_some(()));
    assert_eq!(run.finish_request("c", "resume"), iteration);
    run.until("an iteration", |run| (run.events("step").len() > steps).then_some(()));
    // Another while it trains.
    let later = run.finish_request("d", "checkpoint");
    assert!(later > iteration);
    let (place, ended) = run.end();
    let expected = format!("[ITER {later}] Checkpoint asked for from the page");
    ended.done().says(&[&expected, "warning: ", "The request is dropped"]);
    assert_unchanged(&place);
    assert!(place.checkpoint(later).exists());
    let finished = &place.events("model", "finished")[0];
    let seconds = |key: &str| finished[key].as_f64().unwrap();
    assert!(seconds("paused_seconds") >= 1.4, "{finished}");
    let rest = seconds("wall_seconds") - seconds("paused_seconds");
    assert!(seconds("training_seconds") <= rest, "{finished}");

    // A run continues from the checkpoint of the pause as if nothing had been asked.
    place.train_from(&checkpoint, "resumed", &[]).done();
    assert!(place.ply_bytes("resumed", LAST) == ply(&UNWATCHED));
}

#[rstest]
#[case::while_it_trains(false)]
#[case::in_a_pause(true)]
fn stop_is_what_ctrl_c_is(#[case] is_paused: bool) {
    let mut run = WatchedRun::start(&[]);
    if is_paused {
        run.finish_request("0", "pause");
    }
    let iteration = run.finish_request("1", "stop");
    let (place, ended) = run.end();
    let model = place.model();
    ended.refused(130, &["--resume", text(&model), "Stopping from the page"]);
    assert!(place.checkpoint(iteration).exists() && !place.ply(LAST).exists());
    assert!(!model.join("live").exists());
    place.resume(&[]).done();
    assert_unchanged(&place);
}

#[test]
fn a_signal_ends_a_pause() {
    let mut run = WatchedRun::start(&[]);
    let iteration = run.finish_request("1", "pause");
    send("INT", &run.child);
    let (place, ended) = run.end();
    ended.refused(130, &["--resume"]);
    assert!(place.checkpoint(iteration).exists());
    assert!(!place.model().join("live").exists());
}

#[test]
fn requests_are_ignored_if_they_are_not_accepted() {
    let mut run = WatchedRun::start(&["--live-control=false"]);
    run.send_request("1", "stop");
    run.watch();
    // The folder has been looked at when this is there.
    run.until("what is shown", |run| {
        let mut files = fs::read_dir(run.live("")).unwrap().map(|it| it.unwrap().path());
        files.find(|file| file.extension().is_some_and(|kind| kind == "spz"))
    });
    assert!(run.live("control_1.json").exists());
    let (place, ended) = run.end();
    ended.done();
    assert!(place.events("model", "control").is_empty());
    assert_unchanged(&place);
}

#[test]
fn what_a_killed_run_leaves_is_no_request_to_the_next() {
    let mut run = WatchedRun::start(&["--checkpoint-minutes=0.0000001"]);
    run.watch();
    run.finish_request("1", "pause");
    run.send_request("2", "stop");
    run.child.kill().unwrap();
    let (place, _) = run.end();
    fs::write(place.model().join("live/splats_7.spz"), "old").unwrap();
    fs::write(place.model().join("live/control_1.json"), r#"{"id": "2", "action": "stop"}"#)
        .unwrap();
    place.resume(&["--checkpoint-minutes=0"]).done();
    assert_unchanged(&place);
}
