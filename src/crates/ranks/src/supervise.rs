//! The supervisor starts the ranks of one host and ends them together.
//!
//! The supervisor only starts the processes, runs the coordinator, waits for all processes and returns the outcome. No
//! rank outlives the supervisor.

use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, Read, Write, stderr};
use std::net::{Ipv4Addr, TcpListener};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::coordinator::{Coordinator, CoordinatorOptions, Status};
use crate::message::{Cause, LostRank};
use crate::token::Token;
use crate::{locked, spawn};

/// Ranks of one host: one program in several processes.
#[derive(Clone, Debug)]
pub struct Supervised {
    /// Program of all ranks.
    pub program: PathBuf,
    /// Arguments of all ranks.
    pub args: Vec<OsString>,
    /// Additional environment variables of all ranks. The variables of [`launch`](crate::launch) are overwritten.
    pub env: Vec<(OsString, OsString)>,
    /// Number of ranks, at least 2, because a single rank ignores the supervisor.
    pub world: u32,
    /// Time after a loss for the other ranks to end by themselves, before they are killed.
    pub grace: Duration,
}

/// Error at the start of the ranks. Started ranks are killed.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum SuperviseError {
    #[error("cannot start {program} as rank {rank}: {source}. Check the program's permissions", program = program.display())]
    Start { program: PathBuf, rank: u32, source: io::Error },
    /// The system refused something else.
    #[error(
        "cannot supervise ranks, since {what} failed: {source}. End other programs, or raise the limits (ulimit -a)"
    )]
    System { what: &'static str, source: io::Error },
}

/// Timeout of the registration. Ranks join before they read the scene, so only a busy host or a slow network takes
/// long.
pub const JOIN_TIME: Duration = Duration::from_secs(120);

/// Interval at which the processes are polled.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Outcome of the ranks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// All have finished.
    Done,
    /// A rank ended with a code of this program, 1 to 4 or 130, and has printed the reason.
    Ended {
        /// Exit code of the first such rank.
        code: u8,
    },
    /// A rank was lost by a signal, a timeout or another code.
    Died(LostRank),
}

/// Starts the ranks and waits until all have ended.
///
/// Ranks read their number and the coordinator by [`detect`](crate::launch::detect). When `stop` becomes true, all are
/// requested to stop. After a loss the others have [`Supervised::grace`] to end before they are killed. Rank 0 inherits
/// input and outputs of this process. The standard error of the others is held until all have joined, and then printed.
/// If the registration fails, it is dropped if rank 0 has printed the same error. Each line is preceded by `[rank 2] `,
/// except for JSON, which begins with `{`.
///
/// Blocks. The ranks end with the thread that calls it.
pub fn supervise(ranks: &Supervised, stop: &AtomicBool) -> Result<Verdict, SuperviseError> {
    let system = |what| move |source| SuperviseError::System { what, source };
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(system("listening"))?;
    let address = listener.local_addr().map_err(system("reading an address"))?.to_string();
    let token = Token::fresh().map_err(system("taking random numbers"))?;
    let options = CoordinatorOptions::of_supervisor(ranks.world, token.clone(), JOIN_TIME);
    let coordinator =
        Coordinator::start(listener, options).map_err(system("starting the coordinator"))?;
    let (mut children, lines) = Children::start(ranks, &address, &token)?;
    let mut watch = Watch { coordinator, exits: Vec::new(), failed_since: None };
    let mut is_stopping = false;
    let mut was_released = false;
    while !children.0.is_empty() {
        if !is_stopping && stop.load(Ordering::Acquire) {
            watch.coordinator.stop();
            is_stopping = true;
        }
        watch.poll(&mut children, ranks.grace);
        if !was_released && watch.coordinator.status().is_complete {
            lines.iter().for_each(RankOutput::release);
            was_released = true;
        }
        thread::sleep(POLL_INTERVAL);
    }
    let status = watch.coordinator.settled();
    for (rank, of_rank) in (1..).zip(&lines) {
        if status.is_complete || shows_held(rank, &status, &watch.exits) {
            of_rank.release();
        } else {
            of_rank.drop_lines();
        }
    }
    wait_for_output(&lines);
    Ok(verdict(status.lost, &watch.exits))
}

/// State of the supervisor.
struct Watch {
    coordinator: Coordinator,
    /// Ended processes, in order.
    exits: Vec<Exit>,
    /// Time at which the first loss was noticed.
    failed_since: Option<Instant>,
}

impl Watch {
    fn poll(&mut self, children: &mut Children, grace: Duration) {
        let status = self.coordinator.status();
        for exit in children.reap() {
            self.coordinator.reaped(exit.rank, exit.pid, exit.cause.clone());
            // A registered rank that has left in order may end with any code, while others still write. The coordinator
            // tells such ranks from lost ones.
            let is_good = exit.cause == Cause::Exited { code: 0 };
            if !is_good && !status.is_complete {
                self.failed_since.get_or_insert_with(Instant::now);
            }
            self.exits.push(exit);
        }
        if let Some(lost) = status.lost {
            self.failed_since.get_or_insert_with(Instant::now);
            // A failed rank may still write. A silent rank is killed.
            if matches!(lost.cause, Cause::Silent { .. }) {
                children.kill(|rank| lost.rank == Some(rank));
            }
        }
        if self.failed_since.is_some_and(|since| since.elapsed() >= grace) {
            children.kill(|_| true);
        }
    }
}

/// True if the output of a rank before a failed registration is shown.
fn shows_held(rank: u32, status: &Status, exits: &[Exit]) -> bool {
    let has_own_error = exits.iter().any(|exit| {
        let is_error = matches!(exit.cause, Cause::Exited { code } if code != 0);
        exit.rank == 0 && is_error && !status.rank_0_was_notified
    });
    // The other ranks only print that this rank is lost or missing.
    let is_cause = match &status.lost {
        Some(lost) => lost.rank == Some(rank),
        None => status.has_joined.get(rank as usize) != Some(&true),
    };
    !has_own_error && is_cause
}

/// Returns the outcome. `exits`: ended processes, in order.
fn verdict(lost: Option<LostRank>, exits: &[Exit]) -> Verdict {
    let is_good = |exit: &&Exit| exit.cause == Cause::Exited { code: 0 };
    if exits.iter().all(|exit| is_good(&exit)) {
        return Verdict::Done;
    }
    let own_code = |cause: &Cause| match *cause {
        Cause::Exited { code } => u8::try_from(code).ok().filter(|code| is_own(*code)),
        Cause::Failed { code, .. } => Some(code).filter(|code| is_own(*code)),
        Cause::Killed { .. } | Cause::Closed | Cause::Silent { .. } => None,
    };
    let first = exits.iter().find(|exit| !is_good(exit)).map(|exit| LostRank {
        rank: Some(exit.rank),
        host: None,
        pid: exit.pid,
        cause: exit.cause.clone(),
        progress: None,
    });
    match lost.or(first) {
        Some(lost) => match own_code(&lost.cause) {
            Some(code) => Verdict::Ended { code },
            None => Verdict::Died(lost),
        },
        None => Verdict::Done,
    }
}

/// True for the exit codes of this program: bad input, short memory, a stop.
fn is_own(code: u8) -> bool {
    matches!(code, 1..=4 | 130)
}

// The processes of the ranks.

/// Running process of a rank.
struct Running {
    rank: u32,
    process: Child,
}

/// Ended process of a rank.
#[derive(Clone, Debug)]
struct Exit {
    rank: u32,
    pid: u32,
    cause: Cause,
}

/// Running processes of the ranks. Dropping kills them and waits for their ends.
struct Children(Vec<Running>);

impl Children {
    /// Starts all ranks. Returns their processes and the outputs of ranks 1 and up. `coordinator`: its address.
    fn start(
        ranks: &Supervised,
        coordinator: &str,
        token: &Token,
    ) -> Result<(Self, Vec<RankOutput>), SuperviseError> {
        let mut children = Self(Vec::new());
        let mut lines = Vec::new();
        for rank in 0..ranks.world {
            let mut command = Command::new(&ranks.program);
            command
                .args(&ranks.args)
                .envs(ranks.env.iter().map(|(name, value)| (name, value)))
                .env("SPLAT_RANK", rank.to_string())
                .env("SPLAT_WORLD", ranks.world.to_string())
                .env("SPLAT_LOCAL_WORLD", ranks.world.to_string())
                .env("SPLAT_COORDINATOR", coordinator)
                .env("SPLAT_TOKEN", token.to_hex());
            if rank > 0 {
                command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
            }
            die_with_parent(&mut command);
            let mut process = command.spawn().map_err(|source| SuperviseError::Start {
                program: ranks.program.clone(),
                rank,
                source,
            })?;
            let errors = process.stderr.take();
            // From here on an error kills the process.
            children.0.push(Running { rank, process });
            if let Some(errors) = errors {
                let of_rank = RankOutput::read(rank, errors);
                let what = "starting a thread";
                lines.push(of_rank.map_err(|source| SuperviseError::System { what, source })?);
            }
        }
        Ok((children, lines))
    }

    /// Returns the processes that have ended since the last call.
    fn reap(&mut self) -> Vec<Exit> {
        let mut ended = Vec::new();
        self.0.retain_mut(|running| {
            // After an error the process is no child of this process any more.
            let cause = match running.process.try_wait() {
                Ok(None) => return true,
                Ok(Some(status)) => cause_of(status),
                Err(_) => Cause::Closed,
            };
            ended.push(Exit { rank: running.rank, pid: running.process.id(), cause });
            false
        });
        ended
    }

    /// Kills the selected ranks.
    fn kill(&mut self, is_selected: impl Fn(u32) -> bool) {
        for running in self.0.iter_mut().filter(|running| is_selected(running.rank)) {
            // It fails if the process has ended.
            drop(running.process.kill());
        }
    }
}

impl Drop for Children {
    fn drop(&mut self) {
        self.kill(|_| true);
        for running in &mut self.0 {
            drop(running.process.wait());
        }
    }
}

fn cause_of(status: ExitStatus) -> Cause {
    #[cfg(unix)]
    if let Some(signal) = std::os::unix::process::ExitStatusExt::signal(&status) {
        return Cause::Killed { signal };
    }
    status.code().map_or(Cause::Closed, |code| Cause::Exited { code })
}

/// Makes the child ignore Ctrl-C, which a terminal sends to all processes, because the supervisor requests the stop. On
/// Linux the child is killed when the starting thread ends.
#[cfg(unix)]
fn die_with_parent(command: &mut Command) {
    use std::os::unix::process::CommandExt;

    #[cfg(target_os = "linux")]
    let parent = std::process::id();
    let prepare = move || {
        #[cfg(target_os = "linux")]
        die_with(parent)?;
        // SAFETY: a system call without memory; the handler is one of the system's own.
        let found = unsafe { libc::signal(libc::SIGINT, libc::SIG_IGN) };
        if found == libc::SIG_ERR { Err(io::Error::last_os_error()) } else { Ok(()) }
    };
    // SAFETY: between fork and exec it makes system calls only, and takes neither memory nor locks.
    unsafe { command.pre_exec(prepare) };
}

#[cfg(target_os = "linux")]
fn die_with(parent: u32) -> io::Result<()> {
    // SAFETY: a system call without memory.
    if unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // The parent may have ended before the call above.
    if std::os::unix::process::parent_id() != parent {
        return Err(io::ErrorKind::NotConnected.into());
    }
    Ok(())
}

#[cfg(not(unix))]
fn die_with_parent(_: &mut Command) {}

// Standard error of the ranks other than 0.

/// Longest undivided line, in bytes.
const LONGEST: u64 = 16 << 10;

/// Largest number of bytes that are held of one rank. Further bytes are dropped.
const MOST_HELD: usize = 1 << 20;

/// Timeout for the last lines after the end of all ranks. Only a leftover process of a rank takes longer.
const OUTPUT_TIME: Duration = Duration::from_secs(1);

/// Handling of the lines of a rank.
enum OutputMode {
    /// Lines are appended to these.
    Held(Vec<u8>),
    Shown,
    Dropped,
}

/// Standard error of one rank.
struct RankOutput {
    mode: Arc<Mutex<OutputMode>>,
    thread: JoinHandle<()>,
}

impl RankOutput {
    /// Starts a thread that reads and holds the lines of a rank.
    fn read(rank: u32, from: impl Read + Send + 'static) -> io::Result<Self> {
        let mode = Arc::new(Mutex::new(OutputMode::Held(Vec::new())));
        let shared = mode.clone();
        let mut from = BufReader::new(from);
        let read = move || {
            let mut line = Vec::new();
            loop {
                line.clear();
                match from.by_ref().take(LONGEST).read_until(b'\n', &mut line) {
                    Ok(0) | Err(_) => break,
                    Ok(_) => pass(&shared, &prefixed(rank, &line)),
                }
            }
        };
        let thread = spawn("splat-ranks-lines", read)?;
        Ok(Self { mode, thread })
    }

    /// Prints the held lines and all following ones.
    fn release(&self) {
        let mut mode = locked(&self.mode);
        if let OutputMode::Held(lines) = std::mem::replace(&mut *mode, OutputMode::Shown) {
            print(&lines);
        }
    }

    /// Drops the held lines and all following ones.
    fn drop_lines(&self) {
        let mut mode = locked(&self.mode);
        if matches!(*mode, OutputMode::Held(_)) {
            *mode = OutputMode::Dropped;
        }
    }
}

/// Waits for the last lines of all ranks after their ends.
fn wait_for_output(lines: &[RankOutput]) {
    let deadline = Instant::now() + OUTPUT_TIME;
    while !lines.iter().all(|lines| lines.thread.is_finished()) && Instant::now() < deadline {
        thread::sleep(Duration::from_millis(2));
    }
}

fn pass(mode: &Mutex<OutputMode>, line: &[u8]) {
    match &mut *locked(mode) {
        OutputMode::Held(lines) if lines.len() + line.len() <= MOST_HELD => {
            lines.extend_from_slice(line)
        }
        OutputMode::Held(_) | OutputMode::Dropped => {}
        OutputMode::Shown => print(line),
    }
}

/// Puts the rank before a line and ends the line. JSON gets no rank, because programs read it.
fn prefixed(rank: u32, line: &[u8]) -> Vec<u8> {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    let name = if line.starts_with(b"{") { String::new() } else { format!("[rank {rank}] ") };
    [name.as_bytes(), line, b"\n"].concat()
}

/// Prints lines in one piece, so that the lines of several ranks do not mix.
fn print(lines: &[u8]) {
    // Nothing can be reported if the standard error is closed.
    drop(stderr().write_all(lines));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exit(rank: u32, cause: Cause) -> Exit {
        Exit { rank, pid: 10 + rank, cause }
    }

    fn coded(codes: &[i32]) -> Vec<Exit> {
        (0..).zip(codes).map(|(rank, code)| exit(rank, Cause::Exited { code: *code })).collect()
    }

    fn lost_rank(rank: u32, cause: Cause) -> LostRank {
        LostRank { rank: Some(rank), host: None, pid: 10 + rank, cause, progress: None }
    }

    #[test]
    fn the_first_rank_that_ends_determines_the_verdict() {
        let killed = Cause::Killed { signal: 9 };
        let failed = |code| Cause::Failed { code, message: String::new() };
        assert_eq!(verdict(None, &coded(&[0, 0])), Verdict::Done);
        assert_eq!(verdict(None, &coded(&[0, 130, 130])), Verdict::Ended { code: 130 });
        assert_eq!(verdict(None, &coded(&[2, 3])), Verdict::Ended { code: 2 });
        let five = Cause::Exited { code: 5 };
        assert_eq!(verdict(None, &coded(&[0, 5])), Verdict::Died(lost_rank(1, five)));
        let exits = [exit(1, killed.clone()), exit(0, Cause::Exited { code: 2 })];
        assert_eq!(verdict(None, &exits), Verdict::Died(lost_rank(1, killed.clone())));
        for (cause, found) in [
            (failed(3), Verdict::Ended { code: 3 }),
            (Cause::Exited { code: 4 }, Verdict::Ended { code: 4 }),
            (failed(5), Verdict::Died(lost_rank(2, failed(5)))),
            (Cause::Closed, Verdict::Died(lost_rank(2, Cause::Closed))),
        ] {
            assert_eq!(verdict(Some(lost_rank(2, cause)), &coded(&[5, 5, 5])), found);
        }
    }

    #[test]
    fn lines_before_the_registration_are_shown_if_rank_0_does_not_print_them() {
        let shown = |status: &Status, codes: &[i32]| {
            [1, 2].map(|rank| shows_held(rank, status, &coded(codes)))
        };
        let of = |has_joined: [bool; 3], lost, rank_0_was_notified| Status {
            has_joined: has_joined.to_vec(),
            lost,
            rank_0_was_notified,
            ..Status::default()
        };
        let first = lost_rank(1, Cause::Exited { code: 2 });
        let nobody = [false; 3];
        assert_eq!(shown(&of(nobody, Some(first.clone()), false), &[2, 2, 2]), [false, false]);
        let others = [true, false, true];
        assert_eq!(shown(&of(others, Some(first), true), &[5, 2, 5]), [true, false]);
        assert_eq!(shown(&of([true; 3], None, false), &[2, 2, 2]), [false, false], "refused");
        assert_eq!(shown(&of([true, true, false], None, true), &[5, 5, 0]), [false, true]);
    }

    fn held(lines: &RankOutput) -> Vec<u8> {
        wait_for_output(std::slice::from_ref(lines));
        match &*lines.mode.lock().unwrap() {
            OutputMode::Held(lines) => lines.clone(),
            OutputMode::Shown | OutputMode::Dropped => panic!("not held"),
        }
    }

    #[test]
    fn lines_are_held_with_their_rank() {
        let lines = RankOutput::read(2, &b"one\n\ntw\xff\nlast"[..]).unwrap();
        assert_eq!(held(&lines), b"[rank 2] one\n[rank 2] \n[rank 2] tw\xff\n[rank 2] last\n");
        lines.drop_lines();
        assert!(matches!(*lines.mode.lock().unwrap(), OutputMode::Dropped));
        lines.release();
        assert!(matches!(*lines.mode.lock().unwrap(), OutputMode::Shown));
        lines.drop_lines();
        assert!(matches!(*lines.mode.lock().unwrap(), OutputMode::Shown), "shown lines stay shown");
    }

    #[test]
    fn a_line_of_json_is_unchanged() {
        let lines = RankOutput::read(2, &b"{\"a\": 1}\n {}\n{"[..]).unwrap();
        assert_eq!(held(&lines), b"{\"a\": 1}\n[rank 2]  {}\n{\n");
    }

    #[test]
    fn endless_lines_are_divided_and_limited() {
        let letters = io::repeat(b'x').take(3 << 20);
        let held = held(&RankOutput::read(1, letters).unwrap());
        assert!(held.len() <= MOST_HELD && held.len() > MOST_HELD - 20_000, "{}", held.len());
        assert!(held.split(|byte| *byte == b'\n').all(|line| line.len() < 17 << 10));
    }
}
