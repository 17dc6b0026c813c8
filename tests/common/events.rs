//! What TensorBoard's events files hold.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use prost::Message as _;
use splat::telemetry::tensorboard::record::{EventRecord, masked_checksum};

/// Records of an events file; their checksums must be right.
pub fn records(path: &Path) -> Vec<EventRecord> {
    let bytes = fs::read(path).unwrap();
    let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    let mut records = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let length = usize::try_from(u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap()));
        let length = length.unwrap();
        assert_eq!(word(at + 8), masked_checksum(&bytes[at..at + 8]));
        let data = &bytes[at + 12..at + 12 + length];
        assert_eq!(word(at + 12 + length), masked_checksum(data));
        records.push(EventRecord::decode(data).unwrap());
        at += 16 + length;
    }
    records
}

pub fn events_files(folder: &Path) -> Vec<PathBuf> {
    let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> =
        files.filter(|path| path.to_string_lossy().contains("events.out.tfevents.")).collect();
    files.sort();
    files
}

/// Steps at which each tag stands in the file.
pub fn steps_of_tags(path: &Path) -> BTreeMap<String, Vec<i64>> {
    let mut steps: BTreeMap<String, Vec<i64>> = BTreeMap::new();
    for record in records(path) {
        for value in record.summary.iter().flat_map(|summary| &summary.values) {
            steps.entry(value.tag.clone()).or_default().push(record.step);
        }
    }
    steps
}

/// Values of each tag by step.
pub fn values_of_tags(path: &Path) -> BTreeMap<String, Vec<(i64, f32)>> {
    let mut values: BTreeMap<String, Vec<(i64, f32)>> = BTreeMap::new();
    for record in records(path) {
        for value in record.summary.iter().flat_map(|summary| &summary.values) {
            let tag = values.entry(value.tag.clone()).or_default();
            tag.push((record.step, value.simple_value.unwrap_or_default()));
        }
    }
    values
}
