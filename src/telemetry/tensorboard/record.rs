//! Messages and records of TensorBoard's events file: the fields that this program writes, with the numbers of
//! TensorFlow's `event.proto` and `summary.proto`.

use prost::Message;

/// A record: one message with the time at which it was written.
#[derive(Clone, PartialEq, Message)]
pub struct EventRecord {
    /// Seconds since the Unix epoch.
    #[prost(double, tag = "1")]
    pub wall_time: f64,
    /// Iteration.
    #[prost(int64, tag = "2")]
    pub step: i64,
    /// The first record's: the version of the format.
    #[prost(string, optional, tag = "3")]
    pub file_version: Option<String>,
    /// Values.
    #[prost(message, optional, tag = "5")]
    pub summary: Option<Summary>,
    /// A mark that a run starts.
    #[prost(message, optional, tag = "7")]
    pub session_log: Option<SessionLog>,
}

/// A mark in the life of a run.
#[derive(Clone, PartialEq, Message)]
pub struct SessionLog {
    /// [`SESSION_START`], at which readers drop what later steps had before.
    #[prost(int32, tag = "1")]
    pub status: i32,
}

/// The status of a run that starts.
pub const SESSION_START: i32 = 1;

/// Values of a step.
#[derive(Clone, PartialEq, Message)]
pub struct Summary {
    /// The values.
    #[prost(message, repeated, tag = "1")]
    pub values: Vec<TaggedValue>,
}

/// A named value, which is one of its kinds.
#[derive(Clone, PartialEq, Message)]
pub struct TaggedValue {
    /// Name, with folders.
    #[prost(string, tag = "1")]
    pub tag: String,
    /// A number.
    #[prost(float, optional, tag = "2")]
    pub simple_value: Option<f32>,
    /// A picture.
    #[prost(message, optional, tag = "4")]
    pub image: Option<EncodedPicture>,
    /// A histogram.
    #[prost(message, optional, tag = "5")]
    pub histogram: Option<Histogram>,
}

/// A picture.
#[derive(Clone, PartialEq, Message)]
pub struct EncodedPicture {
    /// px.
    #[prost(int32, tag = "1")]
    pub height: i32,
    /// px.
    #[prost(int32, tag = "2")]
    pub width: i32,
    /// Number of channels.
    #[prost(int32, tag = "3")]
    pub colorspace: i32,
    /// PNG.
    #[prost(bytes = "vec", tag = "4")]
    pub encoded: Vec<u8>,
}

/// Samples counted in buckets.
#[derive(Clone, PartialEq, Message)]
pub struct Histogram {
    /// Smallest sample.
    #[prost(double, tag = "1")]
    pub min: f64,
    /// Largest sample.
    #[prost(double, tag = "2")]
    pub max: f64,
    /// Number of samples.
    #[prost(double, tag = "3")]
    pub num: f64,
    /// Their sum.
    #[prost(double, tag = "4")]
    pub sum: f64,
    /// The sum of their squares.
    #[prost(double, tag = "5")]
    pub sum_squares: f64,
    /// Upper ends of the buckets, ascending. Each bucket holds its upper end.
    #[prost(double, repeated, tag = "6")]
    pub limits: Vec<f64>,
    /// Samples in each bucket.
    #[prost(double, repeated, tag = "7")]
    pub counts: Vec<f64>,
}

impl EventRecord {
    /// The bytes of the record in the file: length, its checksum, message, its checksum.
    pub fn framed(&self) -> Vec<u8> {
        let message = self.encode_to_vec();
        let length = (message.len() as u64).to_le_bytes();
        let [of_length, of_message] =
            [&length[..], &message].map(|bytes| masked_checksum(bytes).to_le_bytes());
        [&length[..], &of_length, &message, &of_message].concat()
    }
}

/// CRC-32C, turned and shifted, so that records may hold records.
pub fn masked_checksum(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes).rotate_right(15).wrapping_add(0xa282_ead8)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As TensorBoard's own writer has them.
    #[test]
    fn records_have_the_bytes_of_the_format() {
        let version = EventRecord {
            wall_time: 1.0,
            file_version: Some("brain.Event:2".to_owned()),
            ..EventRecord::default()
        };
        let message = b"\x09\0\0\0\0\0\0\xf0\x3f\x1a\x0dbrain.Event:2";
        assert_eq!(version.encode_to_vec(), message);
        let framed = version.framed();
        assert_eq!(framed[..8], 24_u64.to_le_bytes());
        // The checksum that every events file begins with.
        assert_eq!(framed[8..12], [0xa3, 0x7f, 0x4b, 0x22]);
        assert_eq!(&framed[12..36], message);

        let value =
            TaggedValue { tag: "a".to_owned(), simple_value: Some(0.0), ..TaggedValue::default() };
        let summary = Some(Summary { values: vec![value] });
        let scalar = EventRecord { step: 300, summary, ..EventRecord::default() };
        let expected = b"\x10\xac\x02\x2a\x0a\x0a\x08\x0a\x01a\x15\0\0\0\0";
        assert_eq!(scalar.encode_to_vec(), expected);

        let session_log = Some(SessionLog { status: SESSION_START });
        let start = EventRecord { step: 1, session_log, ..EventRecord::default() };
        assert_eq!(start.encode_to_vec(), b"\x10\x01\x3a\x02\x08\x01");

        let image = EncodedPicture { height: 2, width: 3, colorspace: 3, encoded: vec![9] };
        assert_eq!(image.encode_to_vec(), b"\x08\x02\x10\x03\x18\x03\x22\x01\x09");
        let histogram =
            Histogram { num: 1.0, limits: vec![1.0], counts: vec![1.0], ..Histogram::default() };
        let one = b"\0\0\0\0\0\0\xf0\x3f";
        let expected = [b"\x19", &one[..], b"\x32\x08", one, b"\x3a\x08", one].concat();
        assert_eq!(histogram.encode_to_vec(), expected);
    }
}
