//! Files that are cut, broken or made to harm: an error, no panic, and no more memory than 4 times the
//! file and 64 MB.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::Path;
use std::sync::LazyLock;

use proptest::prelude::*;
use splat_formats::{
    ReadSplats, SogTools, SplatFileError, StreamedOptions, read, read_streamed, write_streamed,
};

use crate::known::{file, formats, scene};
use crate::memory::peak_of;

const MOST_EXTRA_BYTES: usize = 64 << 20;

/// Reads bytes as a file of this name, and looks at the memory that takes.
fn read_bytes(path: &Path, bytes: &[u8]) -> Result<ReadSplats, SplatFileError> {
    fs::write(path, bytes).unwrap();
    let (peak, read) = peak_of(|| read(path));
    let most = 4 * bytes.len() + MOST_EXTRA_BYTES;
    assert!(peak <= most, "{peak} bytes for a file of {}: {}", bytes.len(), path.display());
    read
}

#[test]
fn a_file_that_is_cut_anywhere_is_an_error_that_names_it() {
    let folder = tempfile::tempdir().unwrap();
    for (name, format) in formats() {
        let whole = file(&scene(12, 1), &format);
        let path = folder.path().join(name);
        for length in 0..whole.len() {
            let found = read_bytes(&path, &whole[..length]);
            // Rows of a file without a header cannot tell, unless there are none.
            if name == "a.splat" && length > 0 && length % 32 == 0 {
                assert_eq!(found.unwrap().splats.len(), length / 32);
                continue;
            }
            let message = found.map(|read| read.splats.len()).unwrap_err().to_string();
            assert!(message.contains(name) && message.len() < 500, "{length}: {message}");
        }
        assert!(read_bytes(&path, &whole).is_ok());
    }
}

#[test]
fn counts_of_the_largest_number_take_no_memory() {
    let folder = tempfile::tempdir().unwrap();
    let most = u32::MAX.to_string();
    for (name, from) in [("a.ply", "vertex 40"), ("a.compressed.ply", "vertex 40")] {
        let format = formats().into_iter().find(|(known, _)| *known == name).unwrap().1;
        let bytes = file(&scene(40, 1), &format);
        let end = bytes.windows(10).position(|window| window == b"end_header").unwrap();
        let header =
            String::from_utf8_lossy(&bytes[..end]).replace(from, &format!("vertex {most}"));
        let broken = [header.as_bytes(), &bytes[end..]].concat();
        let message = read_bytes(&folder.path().join(name), &broken).unwrap_err().to_string();
        assert!(message.contains(&most) || message.contains("truncated"), "{message}");
    }
    // SPZ 4 has its count in bytes 8 to 11.
    let format = formats().pop().unwrap().1;
    let mut bytes = file(&scene(40, 1), &format);
    bytes[8..12].fill(255);
    let message = read_bytes(&folder.path().join("v4.spz"), &bytes).unwrap_err().to_string();
    assert!(message.contains(&most), "{message}");
}

#[test]
fn a_ksplat_that_is_cut_or_changed_is_an_error_or_read() {
    let folder = tempfile::tempdir().unwrap();
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/formats/golden");
    for level in 0..3 {
        let whole = fs::read(golden.join(format!("level{level}.ksplat"))).unwrap();
        let path = folder.path().join("a.ksplat");
        for length in (0..whole.len()).step_by(97) {
            let message = read_bytes(&path, &whole[..length]).unwrap_err().to_string();
            let fault = if length == 0 { "is empty" } else { "truncated" };
            assert!(message.contains("a.ksplat") && message.contains(fault), "{message}");
        }
        // Every byte of the headers that has a meaning.
        for at in (0..48).chain(4096..4140) {
            let mut bytes = whole.clone();
            for byte in [0, 1, 255] {
                bytes[at] = byte;
                read_bytes(&path, &bytes).ok();
            }
        }
    }
}

/// The parts of a SOG with levels of detail.
fn streamed_parts(count: usize) -> BTreeMap<String, Vec<u8>> {
    let mut parts = BTreeMap::new();
    let options = StreamedOptions { levels: 2, ..StreamedOptions::default() };
    write_streamed(&scene(count, 1), &options, &SogTools::default(), &mut parts).unwrap();
    parts
}

#[test]
fn a_part_that_is_cut_anywhere_is_an_error() {
    let whole = streamed_parts(12);
    let bytes: usize = whole.values().map(Vec::len).sum();
    let finest = |name: &&String| name.starts_with("0_0/") || name.starts_with("lod");
    for name in whole.keys().filter(finest) {
        let mut parts = whole.clone();
        // The last byte of a WebP may be one of padding.
        for length in 0..whole[name].len() - 1 {
            parts.insert(name.clone(), whole[name][..length].to_vec());
            let (peak, read) = peak_of(|| read_streamed(&mut parts));
            assert!(read.is_err(), "{name} of {length} bytes");
            assert!(peak <= 4 * bytes + MOST_EXTRA_BYTES, "{name} of {length} bytes: {peak}");
        }
    }
}

/// A gzip of 200 MB of zeros behind the header of an SPZ.
fn bomb() -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::new(9));
    let count = 200_000_000_u32 / 19;
    let header = [b"NGSP".as_slice(), &3_u32.to_le_bytes(), &count.to_le_bytes(), &[0, 12, 0, 0]];
    encoder.write_all(&header.concat()).unwrap();
    let zeros = vec![0; 1 << 20];
    for _ in 0..200 {
        encoder.write_all(&zeros).unwrap();
    }
    encoder.finish().unwrap()
}

#[test]
fn a_bomb_is_not_unpacked() {
    let folder = tempfile::tempdir().unwrap();
    let bytes = bomb();
    assert!(bytes.len() < 300_000);
    let message = read_bytes(&folder.path().join("a.spz"), &bytes).unwrap_err().to_string();
    assert!(message.contains("no scene"), "{message}");
    // One whose header tells of few, with the zeros behind them.
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::new(9));
    let header = [b"NGSP".as_slice(), &3_u32.to_le_bytes(), &1_u32.to_le_bytes(), &[0, 12, 0, 0]];
    encoder.write_all(&header.concat()).unwrap();
    (0..200).for_each(|_| encoder.write_all(&vec![0; 1 << 20]).unwrap());
    let read = read_bytes(&folder.path().join("b.spz"), &encoder.finish().unwrap()).unwrap();
    assert!(read.splats.len() <= 1);
}

proptest! {
    // A case reads seven files.
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn no_changed_bytes_make_a_reader_panic(
        places in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..12),
        inside in prop::collection::vec((0_usize..400, any::<u8>()), 0..4),
    ) {
        static FILES: LazyLock<Vec<(&str, Vec<u8>)>> = LazyLock::new(|| {
            let scene = scene(20, 1);
            formats().into_iter().map(|(name, format)| (name, file(&scene, &format))).collect()
        });
        let folder = tempfile::tempdir().unwrap();
        for (name, bytes) in FILES.iter() {
            let mut bytes = bytes.clone();
            for (place, byte) in &places {
                let at = place.index(bytes.len());
                bytes[at] = *byte;
            }
            // The heads of files are where harm is done.
            for (at, byte) in &inside {
                let at = at % bytes.len();
                bytes[at] = *byte;
            }
            let _either = read_bytes(&folder.path().join(name), &bytes);
        }
    }

    #[test]
    fn no_changed_bytes_of_a_part_make_a_reader_panic(
        part in any::<prop::sample::Index>(),
        places in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
    ) {
        static PARTS: LazyLock<BTreeMap<String, Vec<u8>>> = LazyLock::new(|| streamed_parts(20));
        let mut parts = PARTS.clone();
        let name = parts.keys().nth(part.index(parts.len())).unwrap().clone();
        let bytes = parts.get_mut(&name).unwrap();
        for (place, byte) in places {
            let at = place.index(bytes.len());
            bytes[at] = byte;
        }
        let (peak, _either) = peak_of(|| read_streamed(&mut parts));
        prop_assert!(peak <= MOST_EXTRA_BYTES + (1 << 20), "{name}: {peak}");
    }
}
