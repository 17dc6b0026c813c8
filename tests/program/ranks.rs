//! Several processes that train one model: the same bytes as one process, and an end with a word when one of
//! them is gone.

use std::collections::BTreeSet;
use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::LazyLock;
use std::thread::sleep;
use std::time::{Duration, Instant};

use rstest::rstest;
use serde_json::Value;

use crate::bad_input::overwrite;
use crate::common::program::{
    Ended, TestFolder, Text as _, assert_no_litter, cut, end, ended, holds, kill, splat, text,
    training, wait_until, words,
};
use crate::synthetic_scenes::fixture;

/// Images of a run.
const IMAGES: u32 = 400;

/// Density control, resets and evaluations within them, in steps of three views.
const EVENTFUL: [&str; 14] = words(
    "--batch-views=3 --sh-degree-interval=70 --densify-from-iter=40 --densify-until-iter=350 \
     --densification-interval=30 --densify-grad-threshold=0.00005 --opacity-reset-interval=150 \
     --max-points=1500 --random-background --seed=3 --save-iterations=-1 \
     --checkpoint-iterations=200 --eval --iterations=400",
);

/// The first step of three after image 200, where a checkpoint is asked for.
const CHECKPOINT: u32 = 201;

/// Time in which processes have to end when one of them is gone.
const END_TIME: Duration = Duration::from_secs(10);

/// A run of one process in `unbroken`.
static ONE: LazyLock<TestFolder> = LazyLock::new(|| {
    fixture("ranks_of_one", |place| {
        place.trained_into("unbroken", IMAGES, &EVENTFUL);
    })
});

fn ranked(place: &TestFolder, model: &str, ranks: &str, flags: &[&str]) -> Ended {
    end(place.train_into(model).args(["--ranks", ranks]).args(flags))
}

/// The model is that of one process.
fn assert_same_as_one(place: &TestFolder) {
    assert!(ONE.ply_bytes("unbroken", IMAGES) == place.ply_bytes("model", IMAGES));
}

/// The figures of the last evaluation of the held-out views.
fn last_evaluation(place: &TestFolder, model: &str) -> Value {
    let mut last = place.events(model, "evaluated").pop().unwrap();
    if let Some(event) = last.as_object_mut() {
        event.retain(|key, _| !key.contains("seconds") && !key.contains("time") && key != "ms");
    }
    last
}

#[rstest]
#[case::two("2")]
#[case::three("3")]
#[case::more_than_views("5")]
fn ranks_end_in_the_bytes_of_one_process(#[case] ranks: &str) {
    let place = TestFolder::beside(&ONE);
    let ended = ranked(&place, "model", ranks, &EVENTFUL).done();
    let ended = ended.says(&[&format!("{ranks} ranks")]);
    assert_eq!(ended.stderr.matches("Training complete").count(), 1, "{ended:#?}");
    assert_same_as_one(&place);
    assert_eq!(last_evaluation(&ONE, "unbroken"), last_evaluation(&place, "model"));
    assert_no_litter(&place.model());
}

#[rstest]
#[case::mcmc(&["--strategy=mcmc", "--max-points=600"])]
#[case::gof(&["--strategy=gof"])]
#[case::budget(&["--strategy=budget", "--max-points=600"])]
#[case::filters(&["--antialiasing", "--filter-3d"])]
#[case::surfels(&[
    "--primitive=surfels",
    "--opacity-reset-interval=350",
    "--lambda-normal=0.05",
    "--lambda-dist=100",
    "--lambda-normal-from=0",
    "--lambda-dist-from=0",
])]
#[case::a_view_a_step(&["--batch-views=1"])]
#[case::views_that_are_no_multiple_of_ranks(&["--batch-views=4"])]
#[case::smaller_views_at_first(&["--resolution-schedule=linear"])]
#[case::target(&["--target-gaussians=150", "--densify-until-iter=100"])]
#[case::passes(&["--max-passes=12"])]
#[case::sizes(&["--position-lr-by-size=0.5"])]
fn what_trains_in_one_process_trains_in_three(#[case] flags: &[&str]) {
    let place = TestFolder::beside(&ONE);
    let flags = [&EVENTFUL[..], &["--iterations=130"], flags].concat();
    for ranks in ["1", "3"] {
        ranked(&place, ranks, ranks, &flags).done();
    }
    place.assert_same(["1", "3"], 130);
}

#[test]
fn ranks_store_whether_the_model_is_compact_as_one_process_does() {
    let place = TestFolder::beside(&ONE);
    let stored = |ranks: &str, more: &[&str]| {
        let name = format!("{ranks}{}", more.len());
        let flags = ["--iterations=6", "--preset=fast", "--max-passes=0", "--min-passes=0"];
        ranked(&place, &name, ranks, &[&flags[..], more].concat()).done();
        let config = place.read(&format!("{name}/config.toml"));
        config.lines().find(|line| line.starts_with("optimize_memory")).unwrap().to_owned()
    };
    assert_eq!(["1", "2"].map(|ranks| stored(ranks, &[])), ["optimize_memory = \"auto\""; 2]);
    assert_eq!(stored("2", &["--optimize-memory"]), "optimize_memory = true");
}

#[rstest]
#[case::fewer("2")]
#[case::one("1")]
#[case::more("4")]
fn a_run_that_is_stopped_goes_on_in_other_ranks(#[case] ranks: &str) {
    let place = TestFolder::beside(&ONE);
    let until = [&EVENTFUL[..], &["--iterations=201"]].concat();
    ranked(&place, "model", "3", &until).done();
    ranked(&place, "model", ranks, &["--resume", "--iterations=400"]).done();
    assert_same_as_one(&place);
}

/// A run of three ranks in the background.
struct Background {
    supervisor: Child,
    log: std::path::PathBuf,
}

impl Background {
    fn start(place: &TestFolder, flags: &[&str]) -> Self {
        let log = place.path("stderr");
        let mut command = training(place, &[&["--ranks=3"], &EVENTFUL[..], flags].concat());
        command.stdout(Stdio::null()).stderr(fs::File::create(&log).unwrap());
        Self { supervisor: command.spawn().unwrap(), log }
    }

    /// The processes that it has started, in their order.
    fn ranks(&self) -> Vec<u32> {
        let parent = self.supervisor.id();
        let stats = fs::read_dir("/proc").unwrap().filter_map(|entry| {
            let process: u32 = entry.ok()?.file_name().to_str()?.parse().ok()?;
            let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
            let after_name = stat.rsplit_once(") ")?.1;
            let of: u32 = after_name.split(' ').nth(1)?.parse().ok()?;
            (of == parent).then_some(process)
        });
        stats.collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// One whose first checkpoint is written.
    fn with_checkpoint(place: &TestFolder, flags: &[&str]) -> Self {
        let run = Self::start(place, flags);
        wait_until("a checkpoint", || place.checkpoint(CHECKPOINT).exists());
        run
    }

    /// One whose processes have all begun.
    fn with_ranks(place: &TestFolder) -> Self {
        let run = Self::start(place, &["--iterations=100000"]);
        wait_until("three ranks", || run.ranks().len() == 3);
        run
    }

    /// Ends in time with this code, and all ranks with it; returns what was said.
    fn ends_in_time(mut self, ranks: &[u32], code: Option<i32>) -> String {
        let begun = Instant::now();
        let output = || fs::read_to_string(&self.log).unwrap();
        let status = loop {
            if let Some(status) = self.supervisor.try_wait().unwrap() {
                break status;
            }
            assert!(begun.elapsed() < END_TIME, "still there: {}", output());
            sleep(Duration::from_millis(20));
        };
        // Those whose parent is gone may have to be reaped by another process.
        let state = |process: &u32| fs::read_to_string(format!("/proc/{process}/stat")).ok();
        let is_there = |process: &u32| state(process).is_some_and(|stat| !stat.contains(") Z"));
        while ranks.iter().any(is_there) {
            assert!(begun.elapsed() < END_TIME, "{ranks:?} are left: {}", output());
            sleep(Duration::from_millis(20));
        }
        assert_eq!(status.code(), code, "{}", output());
        output()
    }
}

fn signal(process: u32, signal: &str) {
    let status = Command::new("kill").args(["-s", signal, &process.to_string()]).status();
    assert!(status.unwrap().success());
}

#[rstest]
#[case::the_leader(0)]
#[case::another(2)]
fn a_rank_that_is_killed_ends_all_and_the_checkpoint_resumes(#[case] rank: usize) {
    let place = TestFolder::beside(&ONE);
    let run = Background::with_checkpoint(&place, &[]);
    let ranks = run.ranks();
    assert_eq!(ranks.len(), 3);
    signal(ranks[rank], "KILL");
    let output = run.ends_in_time(&ranks, Some(5));
    output.assert_holds(&[
        &format!("rank {rank} (pid {}", ranks[rank]),
        "signal 9",
        "--resume",
        "--ranks 3",
    ]);
    ranked(&place, "model", "2", &["--resume"]).done();
    assert_same_as_one(&place);
    assert_no_litter(&place.model());
}

#[test]
fn a_kill_at_any_moment_of_a_rank_or_the_supervisor_ends_all() {
    for number in 0..12_u8 {
        let place = TestFolder::beside(&ONE);
        let run = Background::with_ranks(&place);
        let ranks = run.ranks();
        // From the handshake to the middle of training, in no order.
        sleep(Duration::from_millis(u64::from(number) * 7 % 12 * 130));
        let victim = usize::from(number) % 4;
        signal(ranks.get(victim).copied().unwrap_or(run.supervisor.id()), "KILL");
        let output = run.ends_in_time(&ranks, (victim < 3).then_some(5));
        let named = format!("rank {victim} (pid");
        assert!(victim == 3 || output.contains(&named), "{number}: {output}");
        if number % 3 == 0 {
            // The folder can be used again.
            let again = [&EVENTFUL[..], &["--resume", "--iterations=240"]].concat();
            ranked(&place, "model", "2", &again).done();
            assert_no_litter(&place.model());
        }
    }
}

/// Whom a signal is sent to.
#[derive(Clone, Copy)]
enum Receiver {
    Supervisor,
    Rank(usize),
    /// All at once, as Ctrl-C in a terminal does.
    All,
}

#[rstest]
#[case::the_supervisor(Receiver::Supervisor, "INT")]
#[case::the_leader(Receiver::Rank(0), "TERM")]
#[case::another(Receiver::Rank(2), "TERM")]
#[case::all(Receiver::All, "INT")]
fn a_signal_stops_all_ranks_with_a_checkpoint(#[case] receiver: Receiver, #[case] name: &str) {
    let place = TestFolder::beside(&ONE);
    let run = Background::with_checkpoint(&place, &["--iterations=100000"]);
    let ranks = run.ranks();
    match receiver {
        Receiver::Supervisor => signal(run.supervisor.id(), name),
        Receiver::Rank(rank) => signal(ranks[rank], name),
        Receiver::All => {
            ranks.iter().chain([&run.supervisor.id()]).for_each(|&process| signal(process, name));
        }
    }
    let output = run.ends_in_time(&ranks, Some(130));
    assert_eq!(output.matches("stopping after this iteration").count(), 1, "{output}");
    output.assert_holds(&["the checkpoint is written", "--ranks 3"]);
    let checkpoints = fs::read_dir(place.model().join("checkpoints")).unwrap().count();
    assert_eq!(checkpoints, 2, "{output}");
}

#[test]
fn a_signal_that_comes_before_the_first_iteration_counts() {
    let place = TestFolder::beside(&ONE);
    let run = Background::with_ranks(&place);
    let ranks = run.ranks();
    signal(run.supervisor.id(), "TERM");
    run.ends_in_time(&ranks, Some(130));
}

#[test]
fn a_signal_ends_the_waiting_for_other_ranks() {
    let place = TestFolder::beside(&ONE);
    let port = free_port();
    let variables = by_hand(0, &format!("127.0.0.1:{port}"));
    let alone = launched(&place, &[], &variables).spawn().unwrap();
    wait_until("its port", || TcpStream::connect(("127.0.0.1", port)).is_ok());
    let signalled = Instant::now();
    signal(alone.id(), "INT");
    let stopped = ended(alone);
    assert!(signalled.elapsed() < END_TIME);
    stopped.ends(130).says(&["interrupted before all ranks"]);
}

#[test]
fn a_rank_that_stands_still_ends_all() {
    let place = TestFolder::beside(&ONE);
    let run = Background::with_checkpoint(&place, &["--iterations=100000"]);
    let ranks = run.ranks();
    signal(ranks[1], "STOP");
    let output = run.ends_in_time(&ranks, Some(5));
    output.assert_holds(&["rank 1 (pid", "was silent"]);
}

/// One of so many processes of a launcher that sets these variables, without its rank.
fn launched(place: &TestFolder, flags: &[&str], variables: &[(&str, String)]) -> Command {
    let short = ["--ranks=auto", "--iterations=60"];
    let mut command = training(place, &[&EVENTFUL[..], &short, flags].concat());
    command.env("XDG_STATE_HOME", place.path("state"));
    command.envs(variables.iter().map(|(name, value)| (name, value)));
    command
}

/// The variables of one of two ranks that are started by hand.
fn by_hand(rank: u32, at: &str) -> [(&'static str, String); 3] {
    [
        ("SPLAT_RANK", rank.to_string()),
        ("SPLAT_WORLD", "2".to_owned()),
        ("SPLAT_RENDEZVOUS", at.to_owned()),
    ]
}

/// The variables that torchrun sets for a rank.
fn by_torchrun(rank: u32, world: u32, port: u16) -> Vec<(&'static str, String)> {
    let port = port.into();
    let numbers =
        [("RANK", rank), ("LOCAL_RANK", rank), ("WORLD_SIZE", world), ("MASTER_PORT", port)];
    let numbers = numbers.map(|(name, number)| (name, number.to_string()));
    numbers.into_iter().chain([("MASTER_ADDR", "127.0.0.1".to_owned())]).collect()
}

/// A port that was free a moment ago.
fn free_port() -> u16 {
    TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port()
}

/// Runs two processes of a launcher to their ends, the second with something changed.
fn two(place: &TestFolder, flags: &[&str], change: impl Fn(&mut Command)) -> [Ended; 2] {
    let port = free_port();
    let of = |rank| launched(place, flags, &by_torchrun(rank, 2, port));
    let (first, mut second) = (of(0), of(1));
    change(&mut second);
    let ranks = [first, second].map(|mut rank| rank.spawn().unwrap());
    ranks.map(ended)
}

#[test]
fn processes_of_a_launcher_find_each_other() {
    let place = TestFolder::beside(&ONE);
    let [first, second] = two(&place, &[], |_| {}).map(Ended::done);
    assert!(first.stderr.contains("Training complete"), "{first:#?}");
    assert_eq!(second.stderr, "");
    let one = [&EVENTFUL[..], &["--iterations=60"]].concat();
    ranked(&place, "one", "1", &one).done();
    place.assert_same(["one", "model"], 60);
    // What is complete is left, and nobody waits.
    let [first, _] = two(&place, &["--resume", "--iterations=30"], |_| {}).map(Ended::done);
    assert!(!first.stderr.contains("Training complete"), "{first:#?}");
}

#[test]
fn the_death_of_a_launched_rank_is_an_event_of_the_others() {
    let place = TestFolder::beside(&ONE);
    let port = free_port();
    let flags = ["--progress=json", "--iterations=100000"];
    let [first, second] = [0, 1].map(|rank| launched(&place, &flags, &by_torchrun(rank, 2, port)));
    let [first, mut second] = [first, second].map(|mut rank| rank.spawn().unwrap());
    let log = place.model().join("run.jsonl");
    wait_until("an iteration", || holds(&log, "\"step\""));
    kill(&mut second);
    let stopped = ended(first).ends(5);
    let records = stopped.stderr.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let mut errors = records.filter(|record| record["level"] == "error");
    let output = errors.next_back().unwrap().to_string();
    let resume = format!("splat train --resume -m {} --ranks auto", text(&place.model()));
    output.assert_holds(&["rank 1", resume.as_str()]);
}

/// A message between a rank and the coordinator.
fn framed(message: &Value) -> Vec<u8> {
    let text = message.to_string();
    [&u32::try_from(text.len()).unwrap().to_le_bytes(), text.as_bytes()].concat()
}

#[test]
fn a_rank_without_a_token_trusts_no_stranger_at_rank_0s_port() {
    use std::io::{Read as _, Write as _};

    let place = TestFolder::beside(&ONE);
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let at = listener.local_addr().unwrap().to_string();
    let local = [("SPLAT_LOCAL_WORLD", "2".to_owned())];
    let variables = [&by_hand(1, &at)[..], &local].concat();
    let rank = launched(&place, &[], &variables).spawn().unwrap();
    let (mut stream, _) = listener.accept().unwrap();
    let challenge = serde_json::json!({ "Challenge": {
        "magic": "splat-ranks", "protocol": 4, "run": at, "nonce": "00".repeat(16)
    } });
    stream.write_all(&framed(&challenge)).unwrap();
    let mut length = [0; 4];
    stream.read_exact(&mut length).unwrap();
    stream.read_exact(&mut vec![0; u32::from_le_bytes(length) as usize]).unwrap();
    let gone = serde_json::json!({
        "rank": 0, "host": null, "pid": 1, "cause": "Closed", "progress": null
    });
    let welcome = serde_json::json!({ "Welcome": {
        "data": at, "salt": "00".repeat(16), "coordinator": gone
    } });
    stream.write_all(&framed(&welcome)).unwrap();
    ended(rank).refused(5, &["does not know the secret of this run", "SPLAT_TOKEN"]);

    // Nor does it meet anybody where no secret can be kept.
    let mut homeless = launched(&place, &[], &variables);
    homeless.env_remove("XDG_STATE_HOME").env_remove("HOME");
    ended(homeless.spawn().unwrap()).refused(2, &["has no secret", "SPLAT_TOKEN"]);
}

#[test]
fn processes_that_are_started_by_hand_need_the_same_secret() {
    let place = TestFolder::beside(&ONE);
    let port = free_port();
    let start = |rank: u32, token: &str| {
        let variables = by_hand(rank, &format!("127.0.0.1:{port}"));
        launched(&place, &[], &variables).env("SPLAT_TOKEN", token.repeat(32)).spawn().unwrap()
    };
    let [mut first, stranger] = [start(0, "a"), start(1, "b")];
    ended(stranger).refused(5, &["SPLAT_TOKEN"]);
    assert!(first.try_wait().unwrap().is_none(), "the meeting goes on");
    let second = start(1, "a");
    for rank in [first, second] {
        ended(rank).done();
    }
}

#[test]
fn ranks_of_other_options_are_refused_before_an_iteration() {
    let place = TestFolder::beside(&ONE);
    let with_seed = two(&place, &[], |second| {
        second.arg("--seed=4");
    });
    for rank in with_seed {
        rank.refused(2, &["command line", "--seed=4", "same options"]);
    }
    assert!(!place.model().join("run.jsonl").exists());
}

/// A process that sees another folder where the scene is, as on another host. Nothing where the system does not
/// let its users mount.
fn with_other_scene(other: &Path, rank: &Command, place: &TestFolder) -> Option<Command> {
    let mount = "mount --bind \"$OTHER\" \"$SCENE\"";
    let variables = [("OTHER", other.to_owned()), ("SCENE", place.scene())];
    let mut can = Command::new("unshare");
    can.args(["-Urm", "sh", "-c", mount]).envs(variables.clone());
    if !can.output().is_ok_and(|output| output.status.success()) {
        return None;
    }
    let mut command = Command::new("unshare");
    command.args(["-Urm", "sh", "-c", &format!("{mount} && exec \"$@\""), "sh"]);
    command.arg(rank.get_program()).args(rank.get_args()).envs(variables);
    command.envs(rank.get_envs().filter_map(|(name, value)| Some((name, value?))));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    Some(command)
}

#[test]
fn a_rank_with_another_scene_is_refused_before_an_iteration() {
    let (place, other) = (TestFolder::beside(&ONE), TestFolder::with_scene());
    // A digit of a place of the last point.
    overwrite(&other.points(), fs::read(other.points()).unwrap().len() - 60, &[1]);
    let port = free_port();
    let of = |rank| launched(&place, &[], &by_torchrun(rank, 2, port));
    let Some(second) = with_other_scene(&other.scene(), &of(1), &place) else {
        eprintln!("skipped: this system lets its users mount nothing");
        return;
    };
    let ranks = [of(0), second].map(|mut rank| rank.spawn().unwrap());
    let [first, _] = ranks.map(ended);
    first.refused(3, &["rank 1", "scene", "not that of rank 0"]);
    assert!(!place.model().join("run.jsonl").exists());
}

#[test]
fn an_error_of_rank_0_is_told_once_and_ends_the_others_at_once() {
    let place = TestFolder::beside(&ONE);
    let begun = Instant::now();
    let [first, second] = two(&place, &["--regularize=density"], |_| {});
    first.refused(2, &["--regularize", "--ranks"]);
    assert!(second.code != Some(0), "{second:#?}");
    // Far less than ranks wait for one that does not come.
    assert!(begun.elapsed() < Duration::from_secs(60));
}

#[test]
fn a_demonstration_trains_in_ranks() {
    let place = TestFolder::beside(&ONE);
    let line = "train --demo --device=cpu --ranks=2 --iterations=20 -m MODEL";
    place.splat(line, &[]).done().says(&["2 ranks"]);
    assert_eq!(place.config("model").optimize.batch_views, 2);
}

#[rstest]
#[case::triangles(&["--ranks=3", "--primitive", "triangles"], 2, &["triangles", "--ranks"])]
#[case::coarse(&["--ranks=3", "--regularize", "density"], 2, &["--regularize", "--ranks"])]
#[case::cleaning(&["--ranks=3", "--clean"], 2, &["--clean", "--ranks"])]
#[case::none(&["--ranks=0"], 2, &["--ranks"])]
#[case::more_gpus_than_there_are(&["--gpus=64"], 5, &["--gpus 64", "splat doctor"])]
#[case::no_number_of_gpus(&["--gpus=auto"], 2, &["--gpus", "all"])]
#[case::gpus_beside_ranks(&["--gpus=2", "--ranks=2"], 2, &["--gpus", "--ranks"])]
#[case::cleaning_on_gpus(&["--gpus=2", "--clean"], 2, &["--gpus", "--clean"])]
fn what_ranks_and_gpus_cannot_do_is_refused_once_and_by_name(
    #[case] flags: &[&str],
    #[case] code: i32,
    #[case] parts: &[&str],
) {
    let place = TestFolder::beside(&ONE);
    let ended = end(place.train().args(flags)).refused(code, parts);
    assert_eq!(ended.stderr.matches("error").count(), 1, "{ended:#?}");
    assert!(!place.model().exists());
}

#[test]
fn a_view_that_cannot_be_decoded_is_left_out_by_all_ranks() {
    let place = TestFolder::with_scene();
    // Their sizes are still told, and most of their pixels are missing. Whichever ranks meet them first, most
    // are not rank 0.
    for view in [1, 3, 5, 6] {
        cut(&place.image(view), 900);
    }
    let passes = [&EVENTFUL[..], &["--iterations=60"]].concat();
    let ended = ranked(&place, "model", "3", &passes).done();
    // Rank 0 tells it.
    let ended = ended.says(&["view_001.png", "view_003.png", "view_005.png", "view_006.png"]);
    let ended = ended.omits(&["[rank"]);
    assert_eq!(ended.stderr.matches("The view is left out").count(), 4, "{ended:#?}");
}

#[test]
fn a_program_without_others_says_that_it_trains_alone() {
    let place = TestFolder::beside(&ONE);
    let mut command = splat();
    command.args(["train", "--device=cpu", "--ranks=auto", "-s"]).arg(place.scene());
    command.args(["-m", text(&place.model()), "--iterations=3"]);
    for name in ["RANK", "WORLD_SIZE", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK"] {
        command.env_remove(name);
    }
    end(&mut command).done().says(&["this one trains alone"]);
}
