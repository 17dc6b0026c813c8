//! `--host-limit`: kept, or refused before anything is trained.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::LazyLock;
use std::thread::sleep;
use std::time::Duration;

use rstest::rstest;
use serde_json::Value;

use crate::common::program::{
    Ended, TestFolder, Text as _, assert_no_litter, end, files_below, kill, log_lines,
    on_full_disk, program, started_once, text, training, words,
};
use crate::common::synthetic::enlarge;
use crate::synthetic_scenes::{fixture_of, with_model};

/// A scene whose photographs take most of what the program takes while they are decoded.
static SCENE: LazyLock<TestFolder> = LazyLock::new(|| {
    let write = |place: &TestFolder| {
        place.write_views(6, (96, 72), 200);
        enlarge(place, 10);
    };
    fixture_of("large_photographs", write, |_| ())
});

const FLAGS: [&str; 4] = ["--iterations=10", "-r=8", "--eval", "--eval-train=0"];

/// Flags of a run at full size, where the comparison with photographs takes most.
const FULL_SIZE: [&str; 4] = ["--iterations=4", "-r=1", "--eval", "--eval-train=2"];

/// The limit that an error proposes, MiB. The table above it adds up to that.
fn proposed(ended: &Ended) -> u64 {
    let (table, _) = ended.stderr.split_once("Give ").unwrap_or_else(|| panic!("{ended:#?}"));
    let limit = ended.proposed_limit();
    let row = |line: &str| Some(line.trim().split_once(" MiB  ")?.0.parse::<u64>().unwrap());
    let mut rows: Vec<u64> = table.lines().filter_map(row).collect();
    assert_eq!(rows.pop(), Some(limit), "{ended:#?}");
    assert_eq!(rows.iter().sum::<u64>(), limit, "{ended:#?}");
    assert!(table.contains(" 2 MiB  differences from run to run\n"), "{ended:#?}");
    limit
}

fn limited(limit: u64) -> String {
    format!("--host-limit={limit}MiB")
}

/// The most that a command had in RAM, MiB.
fn peak_of(arguments: &[&str]) -> u64 {
    let mut child = command(arguments).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let status = format!("/proc/{}/status", child.id());
    let mut most = 0;
    loop {
        let text = fs::read_to_string(&status).unwrap_or_default();
        if let Some(line) = text.lines().find_map(|line| line.strip_prefix("VmHWM:")) {
            let kib: u64 = line.trim().trim_end_matches(" kB").parse().unwrap();
            most = most.max(kib / 1024);
        }
        if let Some(status) = child.try_wait().unwrap() {
            assert!(status.success(), "{status}");
            return most;
        }
        sleep(Duration::from_millis(2));
    }
}

#[rstest]
#[case::small_views(&FLAGS, "the largest photograph and its copies", "smaller photographs")]
#[case::large_views(&FULL_SIZE, "the comparison with a photograph", "a smaller --resolution")]
fn a_limit_that_cannot_be_kept_is_refused_and_the_one_proposed_is_kept(
    #[case] flags: &[&str],
    #[case] most: &str,
    #[case] remedy: &str,
) {
    let place = TestFolder::beside(&SCENE);
    let parts = ["--host-limit 1MiB", "cannot be kept", "Gaussians and their moments"];
    let refused = end(place.train().args(flags).arg("--host-limit=1MiB")).refused(4, &parts);
    // Nothing comes before the refusal, and nothing else helps.
    let refused = refused.omits(&["warning", "or more, or "]);
    refused.stderr.to_lowercase().assert_holds(&[most]);
    assert!(!place.model().exists(), "nothing is begun");
    let limit = proposed(&refused);
    let nearly = limited(limit - 5);
    end(place.train().args(flags).arg(nearly)).refused(4, &["MiB or more, or ", remedy]);
    let (scene, model, limited) = (place.scene(), place.model(), limited(limit));
    let train = ["train", "--device=cpu", "-s", text(&scene), "-m", text(&model), &limited];
    let peak = peak_of(&[&train, flags].concat());
    assert!(10 * peak <= 11 * limit, "{peak} MiB of {limit}");
    assert!(model.join("summary.json").is_file());
    // It is refused where a model is measured, too, and the one that is proposed is kept.
    let eval = ["eval", "--device=cpu", "-m", text(&model)];
    let refused = place.run("eval", &["--host-limit=1MiB"]);
    let limit = proposed(&refused.refused(4, &["--host-limit 1MiB", "cannot be kept"]));
    let peak = peak_of(&[&eval[..], &[&self::limited(limit)]].concat());
    assert!(10 * peak <= 11 * limit, "{peak} MiB of {limit}");
}

#[test]
fn a_model_grows_as_far_as_the_limit_allows() {
    let place = TestFolder::with_scene();
    let flags = words::<7>(
        "--iterations=60 --densify-from-iter=1 --densify-until-iter=60 --densification-interval=4 \
         --densify-grad-threshold=0 --sh-degree=0 --eval-train=0",
    );
    let limit = proposed(&end(place.train().args(flags).arg("--host-limit=1MiB")));
    let ended = end(place.train().args(flags).arg(limited(limit + 2))).done();
    let (_, rest) = ended.stderr.split_once("--host-limit leaves memory for ").unwrap();
    let most: u64 = rest.split(' ').next().unwrap().parse().unwrap();
    let grown = place.json("model/summary.json")["gaussians"].as_u64().unwrap();
    assert!(200 < grown && grown <= most, "{grown} of {most}");
    ended.says(&["Gaussians: density control adds none beyond that"]);
}

#[test]
fn a_plan_says_whether_the_limit_is_kept() {
    let place = TestFolder::beside(&SCENE);
    let plan = |flags: &[&str]| place.splat("plan --gaussians=20000 -s SCENE", flags);
    let cpu = ["--device=cpu", "-r=1"];
    let parts = ["RAM of the processor, which trains", "MiB at most: fits --host-limit 60%"];
    plan(&cpu).done().prints(&parts);
    let refused = plan(&[&cpu[..], &["--host-limit=50MiB"]].concat()).ends(4);
    let refused = refused.prints(&["does not fit --host-limit 50MiB"]);
    let limit = limited(proposed(&refused) + 6);
    let report = plan(&[&cpu[..], &[&limit, "--json"]].concat()).done().json();
    assert_eq!(report["host_limit"]["fits"], true);
    assert_eq!(report["host_limit"]["on_processor"], true);
    // A guess of how far it grows is no demand: as in training, it grows as far as there is memory.
    let grows = |flags: &[&str]| place.splat("plan --device=cpu -r=8 -s SCENE", flags);
    let start = proposed(&grows(&["--host-limit=1MiB"]));
    grows(&[&limited(start)]).done().prints(&[&format!("fits --host-limit {start}MiB")]);
    // Beside a GPU the model is no part of it.
    assert!(!plan(&[]).done().stdout.contains("--host-limit"));
    plan(&["--host-limit=4GiB"]).done().prints(&["RAM beside a GPU: "]);
    let refused = plan(&["--host-limit=2MiB"]);
    refused.ends(4).says(&["--host-limit 2MiB", "cannot be kept", "Gaussians at the start"]);
}

#[test]
fn photographs_that_are_to_be_kept_give_way_to_the_limit() {
    let place = TestFolder::beside(&SCENE);
    let flags = ["--iterations=1", "-r=1", "--eval-train=0"];
    let limit = limited(proposed(&end(place.train().args(flags).arg("--host-limit=1MiB"))));
    let trained = |model: &str, more: &[&str]| {
        let ended = end(place.train_into(model).args(flags).args(more)).done();
        (ended, place.ply_bytes(model, 1))
    };
    let (_, plain) = trained("plain", &[]);
    let (ended, limited) = trained("limited", &["--high-dram", &limit]);
    ended.says(&["warning", "--high-dram", "6 decoded images", "GiB", "on demand", "2GiB"]);
    assert!(plain == limited, "the limit changes no result");
}

// Files that threads write while a run trains on: when they come, what is in them, and what a kill leaves.

/// A scene whose model takes a disk longer than an iteration takes: 17 MB as a PLY, 50 as a checkpoint. It
/// is read in two chunks. A run of it is in `unbroken`.
static MANY_POINTS: LazyLock<TestFolder> = LazyLock::new(|| {
    fixture_of(
        "many_points",
        |place| place.write_views(6, (48, 36), 70_000),
        |place| {
            end(place.train_into("unbroken").args(BACKGROUND_FILES_FLAGS)).done();
        },
    )
});

/// Flags that write files after some iterations, and both kinds just before an iteration with a line in the log.
const BACKGROUND_FILES_FLAGS: [&str; 14] = words(
    "--eval --test-iterations=-1 --densify-until-iter=0 --checkpoint-iterations 2 4 9 \
     --save-iterations 3 7 9 --seed=3 --checkpoint-minutes=0 --iterations=12",
);

const CHECKPOINTS: [u64; 3] = [2, 4, 9];

const PLYS: [u32; 4] = [3, 7, 9, 12];

/// True if this is the beginning or the end of writing a file of an iteration.
fn is(event: &Value, name: &str, what: &str, iteration: u64) -> bool {
    event["event"] == name && event["what"] == what && event["iteration"] == iteration
}

/// Events from the beginning to the end of writing a file.
fn during<'a>(events: &'a [Value], what: &str, iteration: u64) -> &'a [Value] {
    let at = |name| events.iter().position(|it| is(it, name, what, iteration)).unwrap();
    let (begin, end) = (at("saving"), at("saved"));
    assert!(begin < end, "{what} of {iteration}: {begin}, {end}");
    &events[begin + 1..end]
}

/// The model in a checkpoint: all but the header, where the options stand.
fn tensors(path: &Path) -> Vec<u8> {
    let file = fs::read(path).unwrap();
    let header = u64::from_le_bytes(file[..8].try_into().unwrap());
    file[8 + usize::try_from(header).unwrap()..].to_vec()
}

fn assert_same_ply(place: &TestFolder, model: &str, iteration: u32) {
    let [unbroken, found] =
        [MANY_POINTS.ply_bytes("unbroken", iteration), place.ply_bytes(model, iteration)];
    assert!(unbroken == found, "PLY of {iteration}");
}

fn assert_same_checkpoint(place: &TestFolder, model: &str, iteration: u32) {
    let [unbroken, found] =
        [MANY_POINTS.checkpoint_of("unbroken", iteration), place.checkpoint_of(model, iteration)];
    assert!(tensors(&unbroken) == tensors(&found), "checkpoint of {iteration}");
}

#[test]
fn training_continues_while_files_are_written_and_they_hold_the_same() {
    let place = TestFolder::beside(&MANY_POINTS);
    let unbroken = MANY_POINTS.path("unbroken");
    assert_no_litter(&unbroken);
    let log = log_lines(&unbroken);
    // The next iteration was done before the file was there.
    for what in ["checkpoint", "point_cloud"] {
        let is_step = |event: &Value| event["event"] == "step" && event["iteration"] == 10;
        assert!(during(&log, what, 9).iter().any(is_step), "training waited for the {what}");
    }
    // One file of a kind at a time: what a kind begins, it ends first.
    for what in ["checkpoint", "point_cloud"] {
        let names: Vec<&str> = log
            .iter()
            .filter(|event| event["what"] == what)
            .map(|event| event["event"].as_str().unwrap())
            .collect();
        assert!(names.chunks(2).all(|pair| pair == ["saving", "saved"]), "{what}: {names:?}");
    }

    // Without memory for a copy, training waits for the files.
    let refused = end(place.train().args(BACKGROUND_FILES_FLAGS).arg("--host-limit=1MiB"));
    let limit = limited(proposed(&refused.refused(4, &["Give "])));
    end(place.train_into("limited").args(BACKGROUND_FILES_FLAGS).arg(limit)).done();
    let waited = log_lines(&place.path("limited"));
    for iteration in CHECKPOINTS {
        assert!(during(&waited, "checkpoint", iteration).is_empty(), "{iteration}");
    }
    for iteration in PLYS {
        assert_same_ply(&place, "limited", iteration);
    }
    for iteration in [2, 4, 9, 12] {
        assert_same_checkpoint(&place, "limited", iteration);
    }

    let finished = log.last().unwrap();
    let seconds = |name: &str| finished[&format!("{name}_seconds")].as_f64().unwrap();
    let parts = ["training", "start", "evaluation", "saving", "waiting"].map(seconds);
    assert!(parts.iter().all(|&part| part >= 0.0) && parts[0] > 0.0, "{parts:?}");
    assert!(parts.iter().sum::<f64>() <= seconds("wall"), "{parts:?}");
}

#[test]
fn a_run_killed_while_a_checkpoint_is_written_ends_in_the_same_bytes() {
    let place = TestFolder::beside(&MANY_POINTS);
    let log = place.model().join("run.jsonl");
    for patience in [0, 30] {
        fs::remove_dir_all(place.model()).ok();
        // A line may be half written.
        let has_begun = || {
            let log = fs::read_to_string(&log).unwrap_or_default();
            let events = log.lines().filter_map(|line| serde_json::from_str(line).ok());
            events.into_iter().any(|event| is(&event, "saving", "checkpoint", 4))
        };
        let run = training(&place, &BACKGROUND_FILES_FLAGS);
        let mut child = started_once(run, "a checkpoint", has_begun);
        sleep(Duration::from_millis(patience));
        kill(&mut child);
        // It is there whole, or not at all.
        if place.checkpoint(4).exists() {
            assert_same_checkpoint(&place, "model", 4);
        }
        place.resume(&BACKGROUND_FILES_FLAGS).done();
        assert_no_litter(&place.model());
        // Files from before the checkpoint are there too.
        for iteration in PLYS {
            assert_same_ply(&place, "model", iteration);
        }
        assert_same_checkpoint(&place, "model", 12);
    }
}

#[test]
fn a_disk_that_fills_up_under_a_checkpoint_ends_the_run() {
    let place = TestFolder::beside(&MANY_POINTS);
    // The PLY of an iteration fits, and no checkpoint does.
    let flags = ["--iterations=100000", "--save-iterations=1", "--checkpoint-iterations=2"];
    place
        .train_on_full_disk(20_000, &flags)
        .refused(1, &["chkpnt_2.safetensors: cannot be written", "no room for a checkpoint"]);
    assert!(place.ply(1).exists() && !place.checkpoint(2).exists());
    assert_no_litter(&place.model());
}

// Results that cannot be printed, and folders that cannot be written.

/// Runs a command whose standard output is a full disk.
fn on_full_stdout(command: &mut Command) -> Ended {
    let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    command.stdout(full).output().unwrap().into()
}

fn command(args: &[&str]) -> Command {
    let mut command = program(&[]);
    command.args(args);
    command
}

#[test]
fn results_that_do_not_reach_stdout_end_with_1() {
    let place = with_model(2, &["--eval"]);
    let expected = ["results cannot be written to the standard output", "No space left"];
    let model = place.model();
    fs::remove_file(model.join("results.json")).unwrap();
    on_full_stdout(command(&["eval", "--json", "--device=cpu", "-m"]).arg(&model))
        .refused(1, &expected);
    assert!(model.join("results.json").is_file(), "what was measured is kept all the same");
    on_full_stdout(command(&["eval", "--device=cpu", "-m"]).arg(&model)).refused(1, &expected);
    on_full_stdout(command(&["render", "--device=cpu", "-m"]).arg(&model)).refused(1, &expected);
    for split in ["train", "test"] {
        assert!(model.join(split).join("ours_2/renders/00000.png").is_file(), "{split}");
    }
    for json in [&["plan", "-s"][..], &["plan", "--json", "-s"]] {
        on_full_stdout(command(json).arg(place.scene())).refused(1, &expected);
    }
    on_full_stdout(command(&["synth", "--views=1", "-o"]).arg(place.path("other")))
        .refused(1, &expected);
    on_full_stdout(&mut command(&["doctor"])).refused(1, &expected);
    on_full_stdout(command(&["profile"]).arg(&model)).refused(1, &expected);
    on_full_stdout(command(&["compare"]).arg(&model)).refused(1, &expected);
    for args in [&["--version"][..], &["--help"], &["help", "train"], &["completions", "man"]] {
        on_full_stdout(&mut command(args)).refused(1, &expected);
    }
}

#[test]
fn a_folder_that_takes_no_tables_is_said_before_anything_is_measured() {
    let place = with_model(2, &["--eval"]);
    let before = files_below(&place.model());
    let eval = |flags: &[&str]| {
        let mut command = on_full_disk(0);
        end(command.args(["eval", "--device=cpu", "-m"]).arg(place.model()).args(flags))
    };
    eval(&[]).refused(1, &[text(&place.model()), "permissions"]).omits(&["results.json"]);
    // A table in the way shows only later; what was measured is printed all the same.
    let expected = ["warning", "the tables are left as they were", "metrics.csv"];
    let report = eval(&["--json"]).done().says(&expected).json();
    assert!(report["mean"]["psnr"].is_number(), "{report}");
    assert!(files_below(&place.model()) == before);
}

#[rstest]
#[case::results("results.json")]
#[case::views("per_view.json")]
fn json_is_printed_and_done_whatever_stands_in_the_way_of_a_table(#[case] name: &str) {
    let place = with_model(2, &["--eval"]);
    fs::remove_file(place.model().join(name)).unwrap();
    fs::create_dir_all(place.model().join(name).join("occupied")).unwrap();
    place.run("eval", &["--json"]).done().says(&["warning", name]).prints(&["psnr"]);
    place.run("eval", &[]).ends(1).prints(&["PSNR"]);
}
