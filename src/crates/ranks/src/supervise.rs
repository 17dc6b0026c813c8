//! Starts the ranks of one host, and ends them together.
//!
//! The supervisor has no share in the work: it starts the processes, holds the coordinator, waits
//! for all of them, and says how the run ended. No rank outlives it.

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

/// The ranks of one host: one program in several processes.
#[derive(Clone, Debug)]
pub struct Supervised {
    /// The program.
    pub program: PathBuf,
    /// Its arguments, the same for all ranks.
    pub args: Vec<OsString>,
    /// Variables that are added to the environment of all ranks. Those that tell a rank its place cannot be set.
    pub env: Vec<(OsString, OsString)>,
    /// Number of ranks, at least 2: one alone would look for no supervisor.
    pub world: u32,
    /// Time for the others to end by themselves when one is gone; then they are killed.
    pub grace: Duration,
}

/// An error at the start of the ranks. Ranks that were started are ended.
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

/// Time for all ranks to join. They meet before they read the scene: only a busy host or a slow network takes long.
pub const JOIN_TIME: Duration = Duration::from_secs(120);

/// Interval at which the processes are polled.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// End of the ranks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// All did their work.
    Done,
    /// One ended with a code of its own: 1 to 4, or 130. It has said why.
    Ended {
        /// The code of the first one.
        code: u8,
    },
    /// One died: by a signal, in silence, or with another code.
    Died(LostRank),
}

/// Starts the ranks and waits until all have ended.
///
/// They find their number and the coordinator by [`detect`](crate::launch::detect). When `stop` becomes true all are
/// asked to stop. When one is gone the others have [`Supervised::grace`] to end, then they are killed. Rank 0 has this
/// process's input and outputs. Of the others only the standard error is shown, from when all have joined; what they
/// wrote before is shown unless rank 0 ended with an error, which is then the same for all. `[rank 2] ` is put before
/// each line, but not before one that begins with `{`: that is JSON, for a program.
///
/// Blocks, and must be called by a thread that lives until it returns: the ranks die with it.
pub fn supervise(ranks: &Supervised, stop: &AtomicBool) -> Result<Verdict, SuperviseError> {
    let system = |what| move |source| SuperviseError::System { what, source };
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(system("listening"))?;
    let address = listener.local_addr().map_err(system("reading an address"))?.to_string();
    let token = Token::fresh().map_err(system("taking random numbers"))?;
    let options = CoordinatorOptions::of_supervisor(ranks.world, token.clone(), JOIN_TIME);
    let coordinator =
        Coordinator::start(listener, options).map_err(system("starting the coordinator"))?;
    let (mut children, lines) = Children::start(ranks, &address, &token)?;
    let mut watch = Watch { coordinator, exits: Vec::new(), trouble: None };
    let mut is_stopping = false;
    let mut was_released = false;
    while !children.is_empty() {
        if !is_stopping && stop.load(Ordering::Acquire) {
            watch.coordinator.stop();
            is_stopping = true;
        }
        watch.poll(&mut children, ranks.grace);
        if !was_released && watch.coordinator.status().has_met {
            lines.iter().for_each(Lines::release);
            was_released = true;
        }
        thread::sleep(POLL_INTERVAL);
    }
    let status = watch.coordinator.settled();
    for (rank, of_rank) in (1..).zip(&lines) {
        if status.has_met || shows_held(rank, &status, &watch.exits) {
            of_rank.release();
        } else {
            of_rank.forget();
        }
    }
    wait_for_last(&lines);
    Ok(verdict(status.lost, &watch.exits))
}

/// State of the supervisor.
struct Watch {
    coordinator: Coordinator,
    /// In the order in which they were seen.
    exits: Vec<Exit>,
    /// When a rank was first seen to be gone.
    trouble: Option<Instant>,
}

impl Watch {
    fn poll(&mut self, children: &mut Children, grace: Duration) {
        let status = self.coordinator.status();
        for exit in children.reap() {
            self.coordinator.reaped(exit.rank, exit.pid, exit.cause.clone());
            // After the meeting the coordinator knows better: a rank that left in order may end
            // with any code, while others still write.
            let is_good = exit.cause == Cause::Exited { code: 0 };
            if !is_good && !status.has_met {
                self.trouble.get_or_insert_with(Instant::now);
            }
            self.exits.push(exit);
        }
        if let Some(lost) = status.lost {
            self.trouble.get_or_insert_with(Instant::now);
            // A rank that fails may still write; of one that is silent nothing more is to be hoped.
            if matches!(lost.cause, Cause::Silent { .. }) {
                lost.rank.into_iter().for_each(|rank| children.kill(rank));
            }
        }
        if self.trouble.is_some_and(|since| since.elapsed() >= grace) {
            children.kill_all();
        }
    }
}

/// True if the lines of a rank before a meeting that failed are shown.
fn shows_held(rank: u32, status: &Status, exits: &[Exit]) -> bool {
    let has_own_error = exits.iter().any(|exit| {
        let is_error = matches!(exit.cause, Cause::Exited { code } if code != 0);
        exit.rank == 0 && is_error && !status.first_was_told
    });
    // What the others write is that this one is gone, or missing.
    let is_cause = match &status.lost {
        Some(lost) => lost.rank == Some(rank),
        None => status.has_joined.get(rank as usize) != Some(&true),
    };
    !has_own_error && is_cause
}

/// `exits` in the order in which they were seen.
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

/// True if a code stands for an expected end: bad input, refused memory, a stop.
fn is_own(code: u8) -> bool {
    matches!(code, 1..=4 | 130)
}

// The processes of the ranks.

/// A rank's process that has not ended.
struct Running {
    rank: u32,
    process: Child,
}

/// A rank's process that has ended.
#[derive(Clone, Debug)]
struct Exit {
    rank: u32,
    pid: u32,
    cause: Cause,
}

/// The ranks' processes. Dropped, it kills those that run and waits for them.
struct Children(Vec<Running>);

impl Children {
    /// Starts all ranks; the coordinator listens at this address. Also the lines of ranks 1 and up.
    ///
    /// They die with the thread that called this.
    fn start(
        ranks: &Supervised,
        coordinator: &str,
        token: &Token,
    ) -> Result<(Self, Vec<Lines>), SuperviseError> {
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
            // From here on it is killed if anything fails.
            children.0.push(Running { rank, process });
            if let Some(errors) = errors {
                let of_rank = Lines::of(rank, errors);
                let what = "starting a thread";
                lines.push(of_rank.map_err(|source| SuperviseError::System { what, source })?);
            }
        }
        Ok((children, lines))
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The processes that have ended since the last call, by rank.
    fn reap(&mut self) -> Vec<Exit> {
        let mut ended = Vec::new();
        self.0.retain_mut(|running| {
            // An error says that it is no child of ours any more: nothing more will be known of it.
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

    fn kill(&mut self, rank: u32) {
        for running in self.0.iter_mut().filter(|running| running.rank == rank) {
            // It fails where it has ended by itself.
            drop(running.process.kill());
        }
    }

    fn kill_all(&mut self) {
        for running in &mut self.0 {
            drop(running.process.kill());
        }
    }
}

impl Drop for Children {
    fn drop(&mut self) {
        self.kill_all();
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

/// The child ignores Ctrl-C, which a terminal sends to all processes: the supervisor tells it to
/// stop. On Linux it is killed when the thread that starts it ends.
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

// Standard errors of the ranks other than 0.

/// Longest line that is kept whole, in bytes.
const LONGEST: u64 = 16 << 10;

/// Bytes held back of one rank; what is more is dropped.
const MOST_HELD: usize = 1 << 20;

/// Time for the last lines after the last rank ended. Only a process that a rank left behind takes longer.
const LAST_TIME: Duration = Duration::from_secs(1);

/// Treatment of a line.
enum Gate {
    /// Lines are held back, behind these.
    Held(Vec<u8>),
    Passes,
    Dropped,
}

/// The lines of one rank.
struct Lines {
    gate: Arc<Mutex<Gate>>,
    thread: JoinHandle<()>,
}

impl Lines {
    /// Reads a rank's lines in a thread, and holds them back at first.
    fn of(rank: u32, from: impl Read + Send + 'static) -> io::Result<Self> {
        let gate = Arc::new(Mutex::new(Gate::Held(Vec::new())));
        let shared = gate.clone();
        let mut from = BufReader::new(from);
        let read = move || {
            let mut line = Vec::new();
            loop {
                line.clear();
                match from.by_ref().take(LONGEST).read_until(b'\n', &mut line) {
                    Ok(0) | Err(_) => break,
                    Ok(_) => pass(&shared, &in_front(rank, &line)),
                }
            }
        };
        let thread = spawn("splat-ranks-lines", read)?;
        Ok(Self { gate, thread })
    }

    /// Prints what was held back, and from now on every line when it comes.
    fn release(&self) {
        let mut gate = locked(&self.gate);
        if let Gate::Held(lines) = std::mem::replace(&mut *gate, Gate::Passes) {
            print(&lines);
        }
    }

    /// Forgets what was held back, and all that comes.
    fn forget(&self) {
        let mut gate = locked(&self.gate);
        if matches!(*gate, Gate::Held(_)) {
            *gate = Gate::Dropped;
        }
    }
}

/// Waits for the last lines of all ranks, which have ended.
fn wait_for_last(lines: &[Lines]) {
    let deadline = Instant::now() + LAST_TIME;
    while !lines.iter().all(|lines| lines.thread.is_finished()) && Instant::now() < deadline {
        thread::sleep(Duration::from_millis(2));
    }
}

fn pass(gate: &Mutex<Gate>, line: &[u8]) {
    match &mut *locked(gate) {
        Gate::Held(lines) if lines.len() + line.len() <= MOST_HELD => lines.extend_from_slice(line),
        Gate::Held(_) | Gate::Dropped => {}
        Gate::Passes => print(line),
    }
}

/// A line with its rank in front, and its end, which the last one of a process may lack. JSON is
/// read by programs, which know nothing of the rank in front of it.
fn in_front(rank: u32, line: &[u8]) -> Vec<u8> {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    let name = if line.starts_with(b"{") { String::new() } else { format!("[rank {rank}] ") };
    [name.as_bytes(), line, b"\n"].concat()
}

/// In one piece, so that the lines of several ranks do not mix.
fn print(lines: &[u8]) {
    // There is nowhere to tell that the standard error is closed.
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

    fn gone(rank: u32, cause: Cause) -> LostRank {
        LostRank { rank: Some(rank), host: None, pid: 10 + rank, cause, progress: None }
    }

    #[test]
    fn the_verdict_is_that_of_the_first_rank_to_end() {
        let killed = Cause::Killed { signal: 9 };
        let failed = |code| Cause::Failed { code, message: String::new() };
        assert_eq!(verdict(None, &coded(&[0, 0])), Verdict::Done);
        assert_eq!(verdict(None, &coded(&[0, 130, 130])), Verdict::Ended { code: 130 });
        assert_eq!(verdict(None, &coded(&[2, 3])), Verdict::Ended { code: 2 });
        let five = Cause::Exited { code: 5 };
        assert_eq!(verdict(None, &coded(&[0, 5])), Verdict::Died(gone(1, five)));
        let exits = [exit(1, killed.clone()), exit(0, Cause::Exited { code: 2 })];
        assert_eq!(verdict(None, &exits), Verdict::Died(gone(1, killed.clone())));
        for (cause, found) in [
            (failed(3), Verdict::Ended { code: 3 }),
            (Cause::Exited { code: 4 }, Verdict::Ended { code: 4 }),
            (failed(5), Verdict::Died(gone(2, failed(5)))),
            (Cause::Closed, Verdict::Died(gone(2, Cause::Closed))),
        ] {
            assert_eq!(verdict(Some(gone(2, cause)), &coded(&[5, 5, 5])), found);
        }
    }

    #[test]
    fn lines_before_the_meeting_are_shown_where_they_tell_something() {
        let shown = |status: &Status, codes: &[i32]| {
            [1, 2].map(|rank| shows_held(rank, status, &coded(codes)))
        };
        let of = |has_joined: [bool; 3], lost, first_was_told| Status {
            has_joined: has_joined.to_vec(),
            lost,
            first_was_told,
            ..Status::default()
        };
        let first = gone(1, Cause::Exited { code: 2 });
        let nobody = [false; 3];
        assert_eq!(shown(&of(nobody, Some(first.clone()), false), &[2, 2, 2]), [false, false]);
        let others = [true, false, true];
        assert_eq!(shown(&of(others, Some(first), true), &[5, 2, 5]), [true, false]);
        assert_eq!(shown(&of([true; 3], None, false), &[2, 2, 2]), [false, false], "refused");
        assert_eq!(shown(&of([true, true, false], None, true), &[5, 5, 0]), [false, true]);
    }

    fn held(lines: &Lines) -> Vec<u8> {
        wait_for_last(std::slice::from_ref(lines));
        match &*lines.gate.lock().unwrap() {
            Gate::Held(lines) => lines.clone(),
            Gate::Passes | Gate::Dropped => panic!("not held"),
        }
    }

    #[test]
    fn lines_are_held_back_whole_with_their_rank() {
        let lines = Lines::of(2, &b"one\n\ntw\xff\nlast"[..]).unwrap();
        assert_eq!(held(&lines), b"[rank 2] one\n[rank 2] \n[rank 2] tw\xff\n[rank 2] last\n");
        lines.forget();
        assert!(matches!(*lines.gate.lock().unwrap(), Gate::Dropped));
        lines.release();
        assert!(matches!(*lines.gate.lock().unwrap(), Gate::Passes));
        lines.forget();
        assert!(matches!(*lines.gate.lock().unwrap(), Gate::Passes), "the meeting was held");
    }

    #[test]
    fn a_line_of_json_stays_as_it_is() {
        let lines = Lines::of(2, &b"{\"a\": 1}\n {}\n{"[..]).unwrap();
        assert_eq!(held(&lines), b"{\"a\": 1}\n[rank 2]  {}\n{\n");
    }

    #[test]
    fn endless_lines_are_cut_and_not_all_is_held() {
        let letters = io::repeat(b'x').take(3 << 20);
        let held = held(&Lines::of(1, letters).unwrap());
        assert!(held.len() <= MOST_HELD && held.len() > MOST_HELD - 20_000, "{}", held.len());
        assert!(held.split(|byte| *byte == b'\n').all(|line| line.len() < 17 << 10));
    }
}
