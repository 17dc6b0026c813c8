//! Starts the ranks of one host, and ends them together.
//!
//! The supervisor has no share in the work: it starts the processes, holds the coordinator, waits
//! for all of them, and says how it ended. No rank outlives it.

mod children;
mod error;
mod lines;
mod supervised;

use std::net::{Ipv4Addr, TcpListener};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

pub use error::SuperviseError;
pub use supervised::Supervised;

use crate::coordinator::{Coordinator, CoordinatorOptions, SILENCE, Status};
use crate::departure::{Cause, Departure};
use crate::token::Token;

use children::{Children, Exit};
use lines::{Lines, wait_for_last};

/// Time for all ranks to join. They meet before they read the scene: only a busy host or a slow
/// network takes long.
pub const JOIN_TIME: Duration = Duration::from_secs(120);

/// Time between two looks at the processes.
const LOOK: Duration = Duration::from_millis(20);

/// How the ranks ended.
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
    Died(Departure),
}

/// Starts the ranks and waits until all have ended.
///
/// They find their number and the coordinator by [`detect`](crate::launch::detect). When `stop`
/// becomes true all are asked to stop. When one is gone the others have [`Supervised::grace`] to
/// end, then they are killed. Rank 0 has this process's input and outputs. Of the others only the
/// standard error is shown, from when all have joined; what they wrote before is shown unless rank
/// 0 ended with an error, which is then the same for all. `[rank 2] ` is put before each line, but
/// not before one that begins with `{`: that is JSON, for a program.
///
/// Blocks, and must be called by a thread that lives until it returns: the ranks die with it.
pub fn supervise(ranks: &Supervised, stop: &AtomicBool) -> Result<Verdict, SuperviseError> {
    let system = |what| move |source| SuperviseError::System { what, source };
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(system("listening"))?;
    let address = listener.local_addr().map_err(system("reading an address"))?.to_string();
    let token = Token::fresh().map_err(system("taking random numbers"))?;
    let options = CoordinatorOptions {
        world: ranks.world,
        run: String::new(),
        token: token.clone(),
        holder: None,
        patience: JOIN_TIME,
        silence: SILENCE,
    };
    let coordinator =
        Coordinator::start(listener, options).map_err(system("starting the coordinator"))?;
    let (mut children, lines) = Children::start(ranks, &address, &token)?;
    let mut watch = Watch { coordinator, exits: Vec::new(), trouble: None };
    let mut was_asked = false;
    let mut was_released = false;
    while !children.is_empty() {
        if !was_asked && stop.load(Ordering::Acquire) {
            watch.coordinator.stop();
            was_asked = true;
        }
        watch.look(&mut children, ranks.grace);
        if !was_released && watch.coordinator.status().has_met {
            lines.iter().for_each(Lines::release);
            was_released = true;
        }
        thread::sleep(LOOK);
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
    Ok(verdict(status.departure, &watch.exits))
}

/// What the supervisor sees.
struct Watch {
    coordinator: Coordinator,
    /// In the order in which they were seen.
    exits: Vec<Exit>,
    /// When a rank was first seen to be gone.
    trouble: Option<Instant>,
}

impl Watch {
    fn look(&mut self, children: &mut Children, grace: Duration) {
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
        if let Some(departure) = status.departure {
            self.trouble.get_or_insert_with(Instant::now);
            // A rank that fails may still write; of one that is silent nothing more is to be hoped.
            if matches!(departure.cause, Cause::Silent { .. }) {
                departure.rank.into_iter().for_each(|rank| children.kill(rank));
            }
        }
        if self.trouble.is_some_and(|since| since.elapsed() >= grace) {
            children.kill_all();
        }
    }
}

/// Whether what a rank wrote before a meeting that failed is shown.
fn shows_held(rank: u32, status: &Status, exits: &[Exit]) -> bool {
    let has_own_error = exits.iter().any(|exit| {
        let is_error = matches!(exit.cause, Cause::Exited { code } if code != 0);
        exit.rank == 0 && is_error && !status.lead_was_told
    });
    // What the others write is that this one is gone, or missing.
    let is_cause = match &status.departure {
        Some(departure) => departure.rank == Some(rank),
        None => status.has_joined.get(rank as usize) != Some(&true),
    };
    !has_own_error && is_cause
}

/// `exits` in the order in which they were seen.
fn verdict(departure: Option<Departure>, exits: &[Exit]) -> Verdict {
    let is_good = |exit: &&Exit| exit.cause == Cause::Exited { code: 0 };
    if exits.iter().all(|exit| is_good(&exit)) {
        return Verdict::Done;
    }
    let own_code = |cause: &Cause| match *cause {
        Cause::Exited { code } => u8::try_from(code).ok().filter(|code| is_own(*code)),
        Cause::Failed { code, .. } => Some(code).filter(|code| is_own(*code)),
        Cause::Killed { .. } | Cause::Closed | Cause::Silent { .. } => None,
    };
    let first = exits.iter().find(|exit| !is_good(exit)).map(|exit| Departure {
        rank: Some(exit.rank),
        host: None,
        pid: exit.pid,
        cause: exit.cause.clone(),
        progress: None,
    });
    match departure.or(first) {
        Some(departure) => match own_code(&departure.cause) {
            Some(code) => Verdict::Ended { code },
            None => Verdict::Died(departure),
        },
        None => Verdict::Done,
    }
}

/// Whether a code says that the rank knew what it did: bad input, refused memory, a stop.
fn is_own(code: u8) -> bool {
    matches!(code, 1..=4 | 130)
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

    fn gone(rank: u32, cause: Cause) -> Departure {
        Departure { rank: Some(rank), host: None, pid: 10 + rank, cause, progress: None }
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
        let of = |has_joined: [bool; 3], departure, lead_was_told| Status {
            has_joined: has_joined.to_vec(),
            departure,
            lead_was_told,
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
}
