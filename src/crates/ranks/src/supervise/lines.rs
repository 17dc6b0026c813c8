//! Standard errors of the ranks other than 0.

use std::io::{BufRead, BufReader, Read, Write, stderr};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::{locked, spawn};

/// Longest line that is kept whole, in bytes.
const LONGEST: u64 = 16 << 10;

/// Bytes held back of one rank; what is more is dropped.
const MOST_HELD: usize = 1 << 20;

/// Time for the last lines after the last rank ended. Only a process that a rank left behind takes
/// longer.
const LAST_TIME: Duration = Duration::from_secs(1);

/// Treatment of a line.
enum Gate {
    /// Lines are held back, behind these.
    Held(Vec<u8>),
    Passes,
    Dropped,
}

/// The lines of one rank.
pub(super) struct Lines {
    gate: Arc<Mutex<Gate>>,
    thread: JoinHandle<()>,
}

impl Lines {
    /// Reads a rank's lines in a thread, and holds them back at first.
    pub(super) fn of(rank: u32, from: impl Read + Send + 'static) -> std::io::Result<Self> {
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
    pub(super) fn release(&self) {
        let mut gate = locked(&self.gate);
        if let Gate::Held(lines) = std::mem::replace(&mut *gate, Gate::Passes) {
            print(&lines);
        }
    }

    /// Forgets what was held back, and all that comes.
    pub(super) fn forget(&self) {
        let mut gate = locked(&self.gate);
        if matches!(*gate, Gate::Held(_)) {
            *gate = Gate::Dropped;
        }
    }
}

/// Waits for the last lines of all ranks, which have ended.
pub(super) fn wait_for_last(lines: &[Lines]) {
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
        let letters = std::io::repeat(b'x').take(3 << 20);
        let held = held(&Lines::of(1, letters).unwrap());
        assert!(held.len() <= MOST_HELD && held.len() > MOST_HELD - 20_000, "{}", held.len());
        assert!(held.split(|byte| *byte == b'\n').all(|line| line.len() < 17 << 10));
    }
}
