//! The rows of a PLY file, one after another, however they are written.

use std::io::{self, BufRead};

use super::header::{Element, Encoding};
use crate::scalar::Scalar;

/// Longest list and longest line of text that is read: no polygon has a million corners.
const MAX_LIST: u64 = 1 << 20;

/// Reads the numbers of a file in their order.
#[derive(Debug)]
pub struct RowReader<'a, R> {
    input: &'a mut R,
    encoding: Encoding,
    /// What is left of the line of text, last word first.
    words: Vec<f64>,
}

/// Why there is no number.
#[derive(Debug)]
pub enum RowFault {
    /// The system refuses it.
    Unreadable(io::Error),
    /// What is wrong.
    Found(String),
}

impl From<io::Error> for RowFault {
    fn from(source: io::Error) -> Self {
        if source.kind() == io::ErrorKind::UnexpectedEof {
            return Self::Found("the file is truncated and ends here".to_owned());
        }
        Self::Unreadable(source)
    }
}

impl<'a, R: BufRead> RowReader<'a, R> {
    /// A reader of the rows after the header.
    pub fn new(input: &'a mut R, encoding: Encoding) -> Self {
        Self { input, encoding, words: Vec::new() }
    }

    /// Reads a row of `element` and shows `take` each value: its property, its place in the
    /// property's list, itself.
    pub fn read(
        &mut self,
        element: &Element,
        mut take: impl FnMut(usize, f64),
    ) -> Result<(), RowFault> {
        if self.encoding == Encoding::Ascii && !element.properties.is_empty() {
            self.read_line()?;
        }
        for (at, property) in element.properties.iter().enumerate() {
            let values = match property.count {
                None => 1,
                Some(count) => length_of(self.value(count)?)?,
            };
            for _ in 0..values {
                take(at, self.value(property.scalar)?);
            }
        }
        if self.words.is_empty() {
            return Ok(());
        }
        Err(RowFault::Found(format!("{} values too many in the line", self.words.len())))
    }

    /// The next line with something in it.
    fn read_line(&mut self) -> Result<(), RowFault> {
        let mut line = String::new();
        while line.trim().is_empty() {
            line.clear();
            // A line as long as that is none of text.
            let mut limited = io::Read::take(&mut *self.input, 32 * MAX_LIST);
            if limited.read_line(&mut line).map_err(not_text)? == 0 {
                return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
            }
        }
        self.words.clear();
        for word in line.split_ascii_whitespace().rev() {
            let value = word.parse().map_err(|_no_number| {
                let shown: String = word.chars().take(40).collect();
                RowFault::Found(format!("{shown:?} is not a number"))
            })?;
            self.words.push(value);
        }
        Ok(())
    }

    fn value(&mut self, scalar: Scalar) -> Result<f64, RowFault> {
        if self.encoding == Encoding::Ascii {
            let missing = || RowFault::Found("the line has too few values".to_owned());
            return self.words.pop().ok_or_else(missing);
        }
        let mut bytes = [0; 8];
        let bytes = &mut bytes[..scalar.bytes()];
        self.input.read_exact(bytes)?;
        if self.encoding == Encoding::Big {
            bytes.reverse();
        }
        Ok(scalar.value(bytes).unwrap_or(f64::NAN))
    }
}

/// Text that is none is a broken file, not a refusal of the system.
fn not_text(source: io::Error) -> RowFault {
    if source.kind() == io::ErrorKind::InvalidData {
        return RowFault::Found("the row is not text".to_owned());
    }
    source.into()
}

fn length_of(count: f64) -> Result<u64, RowFault> {
    if count.fract() == 0.0 && (0.0..=MAX_LIST as f64).contains(&count) {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "in range")]
        return Ok(count as u64);
    }
    Err(RowFault::Found(format!("a list of {count} values")))
}
