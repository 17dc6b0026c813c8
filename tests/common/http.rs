//! Requests of a browser, byte by byte.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// Long enough for a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// An answer.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    /// Lines of its head, in lower case.
    pub head: String,
    pub body: Vec<u8>,
}

impl Answer {
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        let lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines.into_iter().find(|(key, _)| *key == name).map(|(_, value)| value)
    }
}

/// Sends these bytes to a port of this machine and reads to the end of the connection.
pub fn exchange(port: u16, request: &[u8]) -> Answer {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    // A server that has read enough may close before all is sent.
    stream.write_all(request).ok();
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).ok();
    let end = bytes.windows(4).position(|part| part == b"\r\n\r\n");
    let end = end.unwrap_or_else(|| panic!("no head: {}", String::from_utf8_lossy(&bytes)));
    let head = String::from_utf8(bytes[..end].to_vec()).unwrap().to_lowercase();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    Answer { status, head, body: bytes.split_off(end + 4) }
}

/// A request without a body, with these lines in its head.
pub fn request(port: u16, method: &str, path: &str, lines: &[&str]) -> Answer {
    let mut text = format!("{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n");
    for line in lines {
        text += &format!("{line}\r\n");
    }
    exchange(port, format!("{text}Connection: close\r\n\r\n").as_bytes())
}
