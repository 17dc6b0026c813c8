//! Reading from a connection that may be slow or silent.

use std::io::{self, Read};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// Reads until a point in time; then `TimedOut`.
pub(crate) struct Until<'a> {
    pub(crate) stream: &'a TcpStream,
    pub(crate) deadline: Instant,
}

impl Read for Until<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            let left = self.deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            self.stream.set_read_timeout(Some(left))?;
            match self.stream.read(into) {
                Err(error) if is_timeout(&error) => {}
                other => return other,
            }
        }
    }
}

/// Reads until nothing came for a number of beats on end; then `TimedOut`.
///
/// Beats are counted, not seconds: after this process was stopped, all of that time is one beat.
pub(crate) struct Beats<'a> {
    pub(crate) stream: &'a TcpStream,
    pub(crate) most: u32,
}

impl Read for Beats<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(Some(BEAT))?;
        for _ in 0..self.most {
            match self.stream.read(into) {
                Err(error) if is_timeout(&error) => {}
                other => return other,
            }
        }
        Err(io::ErrorKind::TimedOut.into())
    }
}

/// Time between two signs of life on a link, in both directions.
pub(crate) const BEAT: Duration = Duration::from_millis(500);

fn is_timeout(error: &io::Error) -> bool {
    // Systems differ in which of the two a read that timed out gives.
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}
