//! What TensorBoard's events files hold.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use protobuf::Message as _;
use tensorboard_proto::event::Event as Record;

/// Records of an events file; their checksums must be right.
pub fn records(path: &Path) -> Vec<Record> {
    use tensorboard_rs::masked_crc32c::masked_crc32c;
    let bytes = fs::read(path).unwrap();
    let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    let mut records = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let length = usize::try_from(u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap()));
        let length = length.unwrap();
        assert_eq!(word(at + 8), masked_crc32c(&bytes[at..at + 8]));
        let data = &bytes[at + 12..at + 12 + length];
        assert_eq!(word(at + 12 + length), masked_crc32c(data));
        records.push(Record::parse_from_bytes(data).unwrap());
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

/// The lines of the log in a model folder.
pub fn log_lines(folder: &Path) -> Vec<serde_json::Value> {
    let log = fs::read_to_string(folder.join("run.jsonl")).unwrap();
    log.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Steps at which each tag stands in the file.
pub fn steps_of_tags(path: &Path) -> BTreeMap<String, Vec<i64>> {
    let mut steps: BTreeMap<String, Vec<i64>> = BTreeMap::new();
    for record in records(path) {
        for value in record.get_summary().get_value() {
            steps.entry(value.get_tag().to_owned()).or_default().push(record.get_step());
        }
    }
    steps
}

/// Values of each tag by step.
pub fn values_of_tags(path: &Path) -> BTreeMap<String, Vec<(i64, f32)>> {
    let mut values: BTreeMap<String, Vec<(i64, f32)>> = BTreeMap::new();
    for record in records(path) {
        for value in record.get_summary().get_value() {
            let tag = values.entry(value.get_tag().to_owned()).or_default();
            tag.push((record.get_step(), value.get_simple_value()));
        }
    }
    values
}
