//! The supervisor with ranks in processes.
//!
//! This program is also the program of the ranks and, in some tests, of the supervisor. The tests `a_rank` and
//! `a_supervisor` do nothing unless an environment variable names a case.
#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, clippy::panic, reason = "an error fails the test")]

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use splat_ranks::join::{Joined, join};
use splat_ranks::launch::detect;
use splat_ranks::link::{Cause, LostRank};
use splat_ranks::supervise::{SuperviseError, Supervised, Verdict, supervise};

/// Variable with the behaviour of the ranks, such as `kill 1`: rank 1 kills itself.
const CASE: &str = "SPLAT_RANKS_TEST_CASE";
/// Variable with the folder in which ranks write their process numbers and messages.
const FOLDER: &str = "SPLAT_RANKS_TEST_FOLDER";

/// Variable that the supervisor adds.
const ADDED: &str = "SPLAT_RANKS_TEST_ADDED";

/// Longer than any step of a test on a busy machine.
const LONG: Duration = Duration::from_secs(60);

/// Image that a rank reports before it fails.
const IMAGE: u64 = 7;

#[test]
fn a_rank() {
    let (Ok(case), Ok(folder)) = (std::env::var(CASE), std::env::var(FOLDER)) else { return };
    let launch = detect(&|name| std::env::var(name).ok()).unwrap().unwrap();
    fs::write(Path::new(&folder).join(launch.rank.to_string()), std::process::id().to_string())
        .unwrap();
    let (action, whose) = case.split_once(' ').unwrap_or((&case, ""));
    let is_meant = whose.is_empty() || whose.parse() == Ok(launch.rank);
    if action == "early" && is_meant {
        eprintln!("bad options");
        exit(2);
    }
    if action == "env" {
        let local = launch.local_world.unwrap_or_default();
        let added = std::env::var(ADDED).unwrap();
        fs::write(
            Path::new(&folder).join(format!("env-{}", launch.rank)),
            format!("{local} {added}"),
        )
        .unwrap();
    }
    let joined = join(&launch, &[], LONG).unwrap_or_else(|error| {
        eprintln!("{error}");
        exit(5);
    });
    eprintln!("joined");
    work(&joined, if is_meant { action } else { "wait" }, Path::new(&folder));
    joined.link.leave();
}

fn work(joined: &Joined, action: &str, folder: &Path) {
    let link = &joined.link;
    let stop = Arc::new(AtomicBool::new(false));
    let requested = stop.clone();
    let is_stubborn = action == "stubborn" && joined.rank != 1;
    let end = folder.join(format!("end-{}", joined.rank));
    let on_end = move |lost: LostRank| {
        if !is_stubborn {
            fs::write(end, lost.to_string()).unwrap();
            exit(5);
        }
    };
    link.watch(move || requested.store(true, Ordering::Release), on_end).unwrap();
    fs::write(folder.join(format!("watches-{}", joined.rank)), "").unwrap();
    link.progress(IMAGE);
    match action {
        "done" | "env" => return,
        "fail" => {
            link.fail(3, "no such photograph");
            exit(3);
        }
        "exit" => exit(7),
        "ask" => link.request_stop(),
        _ => {}
    }
    if action == "stop" || is_stubborn {
        // Ctrl-C of a terminal, which ranks ignore.
        signal(libc::SIGINT);
    }
    // The coordinator must receive the image first.
    thread::sleep(Duration::from_millis(1200));
    match action {
        "kill" | "stubborn" if !is_stubborn => signal(libc::SIGKILL),
        "freeze" => signal(libc::SIGSTOP),
        _ => {}
    }
    let end = Instant::now() + LONG;
    while Instant::now() < end {
        if stop.load(Ordering::Acquire) {
            link.leave();
            exit(130);
        }
        thread::sleep(Duration::from_millis(5));
    }
    exit(99);
}

fn signal(number: i32) {
    // SAFETY: a system call without memory.
    unsafe { libc::raise(number) };
}

#[expect(clippy::exit, reason = "a rank's exit code is what is tested")]
fn exit(code: i32) -> ! {
    std::process::exit(code)
}

#[test]
fn a_supervisor() {
    let Ok(case) = std::env::var(CASE) else { return };
    let Ok(folder) = std::env::var(FOLDER) else { return };
    if std::env::var("SPLAT_RANK").is_ok() {
        return;
    }
    match supervise(&ranks(&case, Path::new(&folder), 3, LONG), &AtomicBool::new(false)).unwrap() {
        Verdict::Done => exit(0),
        Verdict::Ended { code } => exit(code.into()),
        Verdict::Died(lost) => {
            eprintln!("verdict: {lost}");
            exit(5);
        }
    }
}

fn ranks(case: &str, folder: &Path, world: u32, grace: Duration) -> Supervised {
    // Discard the output of the test harness.
    let script =
        format!(r#"{CASE}="$1" {FOLDER}="$2" exec "$0" a_rank --exact --nocapture >/dev/null"#);
    let program = std::env::current_exe().unwrap();
    let args: [OsString; 5] =
        ["-c".into(), script.into(), program.into(), case.into(), folder.into()];
    // The supervisor overwrites `SPLAT_WORLD`.
    let env = [(ADDED, "a b"), ("SPLAT_WORLD", "9")]
        .map(|(name, value)| (OsString::from(name), OsString::from(value)));
    Supervised { program: "/bin/sh".into(), args: args.into(), env: env.into(), world, grace }
}

/// Returns an empty folder for a case.
fn folder(case: &str) -> PathBuf {
    let name = format!("supervise-{}-{case}", std::process::id());
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::create_dir_all(&folder).unwrap();
    folder
}

/// Returns the process numbers of the ranks that have started.
fn pids(folder: &Path, world: u32) -> Vec<u32> {
    let read = |rank: u32| fs::read_to_string(folder.join(rank.to_string())).ok()?.parse().ok();
    (0..world).filter_map(read).collect()
}

/// Returns true if a process runs. A zombie does not.
fn is_alive(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
    state.is_some_and(|state| !matches!(state, 'Z' | 'X'))
}

fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let end = Instant::now() + LONG;
    while !is_so() {
        assert!(Instant::now() < end, "{what}");
        thread::sleep(Duration::from_millis(10));
    }
}

/// Returns the verdict about three ranks, none of which may be left.
fn verdict_with(case: &str, grace: Duration, stop: &AtomicBool) -> Verdict {
    let folder = folder(case);
    let verdict = supervise(&ranks(case, &folder, 3, grace), stop).unwrap();
    for pid in pids(&folder, 3) {
        assert!(!is_alive(pid), "{case}: {pid}");
    }
    fs::remove_dir_all(folder).unwrap();
    verdict
}

fn verdict(case: &str) -> Verdict {
    verdict_with(case, LONG, &AtomicBool::new(false))
}

fn lost(case: &str) -> LostRank {
    match verdict(case) {
        Verdict::Died(lost) => lost,
        other => panic!("{case}: {other:?}"),
    }
}

/// Runs the supervisor as a program.
fn program(case: &str, folder: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["a_supervisor", "--exact", "--nocapture"]);
    command.env(CASE, case).env(FOLDER, folder).stdin(Stdio::null()).stdout(Stdio::null());
    command
}

/// Returns exit code and sorted lines of the standard error of a supervisor.
fn shown(case: &str) -> (i32, Vec<String>) {
    let folder = folder(case);
    let Output { status, stderr, .. } = program(case, &folder).output().unwrap();
    fs::remove_dir_all(folder).unwrap();
    let mut lines: Vec<_> = String::from_utf8(stderr).unwrap().lines().map(str::to_owned).collect();
    lines.sort();
    (status.code().unwrap(), lines)
}

#[test]
fn ranks_that_do_their_work_are_done() {
    assert_eq!(verdict("done"), Verdict::Done);
    let (code, lines) = shown("done");
    assert_eq!(
        (code, lines),
        (0, vec!["[rank 1] joined".into(), "[rank 2] joined".into(), "joined".into()])
    );
}

#[test]
fn a_killed_rank_is_named_with_its_signal_and_image() {
    for rank in 0..3 {
        let found = lost(&format!("kill {rank}"));
        assert_eq!(found.rank, Some(rank));
        assert_eq!(found.cause, Cause::Killed { signal: 9 });
        let text =
            format!("rank {rank} (pid {}) was killed by signal 9 at image {IMAGE}", found.pid);
        assert_eq!(found.to_string(), text);
    }
}

#[test]
fn ranks_that_do_not_end_by_themselves_are_killed() {
    let start = Instant::now();
    let grace = Duration::from_millis(300);
    let found = verdict_with("stubborn", grace, &AtomicBool::new(false));
    assert!(matches!(found, Verdict::Died(LostRank { rank: Some(1), .. })), "{found:?}");
    assert!(start.elapsed() < LONG / 2);
}

#[test]
fn an_exit_code_of_the_program_is_the_verdict() {
    assert_eq!(verdict("fail 1"), Verdict::Ended { code: 3 });
    let found = lost("exit 2");
    assert_eq!((found.rank, found.cause), (Some(2), Cause::Exited { code: 7 }));
}

#[test]
fn a_stopped_rank_is_lost_by_a_timeout_and_all_end() {
    let found = lost("freeze 1");
    assert_eq!(found.rank, Some(1));
    assert!(matches!(found.cause, Cause::Silent { seconds: 3 }), "{found}");
}

#[test]
fn a_stop_reaches_all_ranks_and_ctrl_c_none() {
    let stop = Arc::new(AtomicBool::new(false));
    let later = stop.clone();
    let asking = thread::spawn(move || {
        thread::sleep(Duration::from_millis(300));
        later.store(true, Ordering::Release);
    });
    assert_eq!(verdict_with("stop", LONG, &stop), Verdict::Ended { code: 130 });
    asking.join().unwrap();
    assert_eq!(verdict("ask 2"), Verdict::Ended { code: 130 });
}

#[test]
fn the_ranks_end_with_their_supervisor() {
    let folder = folder("wait");
    let mut supervisor = program("wait", &folder).stderr(Stdio::null()).spawn().unwrap();
    wait_until("all have come", || pids(&folder, 3).len() == 3);
    supervisor.kill().unwrap();
    supervisor.wait().unwrap();
    let pids = pids(&folder, 3);
    wait_until("all are gone", || !pids.iter().any(|pid| is_alive(*pid)));
    fs::remove_dir_all(folder).unwrap();
}

/// Process that is killed even if the test fails.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

#[test]
fn the_ranks_end_when_their_supervisor_is_silent() {
    let folder = folder("pause");
    let supervisor = Killed(program("pause", &folder).stderr(Stdio::null()).spawn().unwrap());
    wait_until("all watch", || (0..3).all(|rank| folder.join(format!("watches-{rank}")).exists()));
    let pid = libc::pid_t::try_from(supervisor.0.id()).unwrap();
    // SAFETY: a system call without memory, for a process of ours that was not waited for.
    assert_eq!(unsafe { libc::kill(pid, libc::SIGSTOP) }, 0);
    let pids = pids(&folder, 3);
    wait_until("all are gone", || !pids.iter().any(|pid| is_alive(*pid)));
    for rank in 0..3 {
        let end = fs::read_to_string(folder.join(format!("end-{rank}"))).unwrap();
        assert_eq!(end, format!("the supervisor (pid {pid}) was silent for 6 s"));
    }
    drop(supervisor);
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn ranks_get_the_given_variables() {
    let folder = folder("env");
    let stop = AtomicBool::new(false);
    assert_eq!(supervise(&ranks("env", &folder, 2, LONG), &stop).unwrap(), Verdict::Done);
    for rank in 0..2 {
        assert_eq!(fs::read_to_string(folder.join(format!("env-{rank}"))).unwrap(), "2 a b");
    }
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn an_error_of_all_ranks_before_the_registration_is_shown_once() {
    assert_eq!(shown("early"), (2, vec!["bad options".to_owned()]));
}

#[test]
fn an_error_of_one_rank_before_the_registration_is_shown() {
    let (code, lines) = shown("early 1");
    assert_eq!(code, 2);
    let [own, leader] = &lines[..] else { panic!("{lines:?}") };
    assert_eq!(own, "[rank 1] bad options");
    assert!(leader.starts_with("before all ranks had joined, rank 1 (pid "), "{leader}");
}

#[test]
fn a_program_that_cannot_be_started_is_named() {
    let program: PathBuf = "/no/such/program".into();
    let (args, env) = (Vec::new(), Vec::new());
    let missing = Supervised { program: program.clone(), args, env, world: 2, grace: LONG };
    let error = supervise(&missing, &AtomicBool::new(false)).unwrap_err();
    let SuperviseError::Start { program: found, rank: 0, .. } = &error else { panic!("{error}") };
    assert_eq!(*found, program);
    assert!(error.to_string().contains("/no/such/program"), "{error}");
}
