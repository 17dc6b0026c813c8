//! SPZ, the packed format of Niantic: versions 1 to 4 read, 3 and 4 written.
//!
//! After Niantic's description of the format (github.com/nianticlabs/spz, July 2026). Positions are
//! fixed-point, all else is bytes; versions 1 to 3 are one gzip stream, version 4 has a zstd frame for
//! each kind of value.

mod container;
mod header;
mod read;
mod rows;
mod write;

pub use read::parse_spz;
pub use write::{SpzAxes, SpzOptions, SpzOptionsError, SpzVersion, encode_spz, pack_spz};

pub(crate) use header::{GZIP_MAGIC, SPZ_MAGIC};
pub(crate) use rows::LEAST_SPZ_LOG_SCALE;

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::known_splats::{hard_splats, random_splats};
    use crate::splats::{Antialiasing, Splats};
    use crate::worst::WorstErrors;

    fn v4() -> SpzOptions {
        SpzOptions { version: SpzVersion::V4, ..SpzOptions::default() }
    }

    fn read(bytes: &[u8]) -> Splats {
        parse_spz(bytes).unwrap().splats
    }

    #[rstest]
    fn values_are_within_their_steps(
        #[values(0, 1, 2, 3)] sh_degree: u32,
        #[values(0, 1, 255, 1025)] count: usize,
        #[values(SpzVersion::V3, SpzVersion::V4)] version: SpzVersion,
    ) {
        let splats = random_splats(count, sh_degree, 1);
        let options = SpzOptions { version, ..SpzOptions::default() };
        let file = encode_spz(&splats, &options).unwrap();
        let back = read(&file.bytes);
        assert_eq!((back.len(), back.sh_degree()), (count, sh_degree));
        let worst = file.worst;
        assert_eq!(worst, WorstErrors::between(&splats, &back));
        // 10 units leave 16 bits for the fraction; e^-10 to e^6 in steps of 1/16; bytes.
        assert!(worst.position <= 0.5 / 65_536.0 + 1e-6, "{worst:?}");
        assert!(worst.log_scale <= 0.5 / 16.0 + 1e-6, "{worst:?}");
        assert!(worst.opacity < 0.51 / 255.0, "{worst:?}");
        assert!(worst.color < 0.5 / 255.0 / 0.15 * 0.2821 + 1e-6, "{worst:?}");
        assert!(worst.sh <= 0.5 / 128.0 + 1e-6, "{worst:?}");
        // Three parts, each half of 1/(511 √2) off, and the largest up to three times as much:
        // 2 √12 x 0.5 / 722 rad.
        assert!(worst.rotation_degrees < 0.28, "{worst:?}");
    }

    #[test]
    fn extreme_values_are_kept_or_cut_at_the_ends() {
        let splats = hard_splats(300, 1);
        for options in [SpzOptions::default(), v4()] {
            let file = encode_spz(&splats, &options).unwrap();
            assert_eq!(file.worst.position, 0.0);
            assert!(file.worst.log_scale <= 0.5 / 16.0 + 1e-6);
            assert!(file.worst.opacity < 1.0 / 255.0);
        }
    }

    #[test]
    fn places_far_away_get_fewer_bits_for_the_fraction() {
        for (extent, bits) in [(100.0, 16), (200.0, 15), (2000.0, 12), (500_000.0, 4)] {
            let splats = crate::known_splats::splats_at(&[[extent, 0.0, -0.3]]);
            let file = encode_spz(&splats, &v4()).unwrap();
            assert_eq!(file.bytes[13], bits, "{extent}");
            assert!(file.worst.position <= 0.5 / f64::from(1 << bits));
        }
        let beyond = crate::known_splats::splats_at(&[[600_000.0, 0.0, 0.0]]);
        assert!(encode_spz(&beyond, &v4()).unwrap().worst.position > 70_000.0);
    }

    #[test]
    fn harmonics_are_rounded_once_to_the_steps_of_their_bits() {
        let splats = random_splats(200, 3, 2);
        for (bits, expected) in [([8, 8], 1.0), ([7, 6], 4.0), ([5, 4], 16.0)] {
            let options = SpzOptions { sh_bits: bits, ..SpzOptions::default() };
            let file = encode_spz(&splats, &options).unwrap();
            let worst = file.worst.sh * 128.0;
            assert!(worst <= 0.5 * expected + 1e-4 && worst > 0.4 * expected, "{bits:?} {worst}");
            let rest = read(&file.bytes).columns().rest(0).to_vec();
            let step = |degree_bits: u8| f32::from(2_u8.pow(u32::from(8 - degree_bits)));
            assert_eq!((rest[0][0] * 128.0) % step(bits[0]), 0.0);
            assert_eq!((rest[14][2] * 128.0) % step(bits[1]), 0.0);
        }
        let error = encode_spz(&splats, &SpzOptions { sh_bits: [9, 8], ..v4() }).unwrap_err();
        assert!(error.to_string().contains("9"), "{error}");
    }

    #[test]
    fn the_mode_is_kept_and_axes_turn_as_they_are_listed() {
        let mut splats = random_splats(10, 3, 3);
        splats.columns_mut().antialiasing = Antialiasing::On;
        let plain = read(&encode_spz(&splats, &v4()).unwrap().bytes);
        assert_eq!(plain.columns().antialiasing, Antialiasing::On);
        let turned = SpzOptions { axes: SpzAxes::RightUpBack, ..v4() };
        let turned = read(&encode_spz(&splats, &turned).unwrap().bytes);
        let (a, b) = (plain.columns(), turned.columns());
        for row in 0..10 {
            let ([x, y, z], [p, q, r]) = (a.means[row], b.means[row]);
            assert_eq!([p, q, r], [x, -y, -z]);
            // A coefficient of -1/2 step rounds away from zero on either side: one step apart.
            let (a, b) = (a.rest(row), b.rest(row));
            for (k, sign) in [(0, -1.0), (1, -1.0), (2, 1.0), (9, 1.0), (14, 1.0), (13, -1.0)] {
                assert!((b[k][1] - sign * a[k][1]).abs() <= 1.01 / 128.0, "{k}");
            }
        }
    }

    #[test]
    fn old_versions_are_read() {
        // Version 1: half floats; 1.5, -2, 0.25. Version 2: fixed-point with 12 bits.
        let halves: [u16; 3] = [0x3e00, 0xc000, 0x3400];
        let fixed = [6144_i32, -8192, 1024];
        for version in [1_u32, 2] {
            let mut raw = b"NGSP".to_vec();
            raw.extend(version.to_le_bytes());
            raw.extend(1_u32.to_le_bytes());
            raw.extend([0, 12, 0, 0]);
            match version {
                1 => raw.extend(halves.iter().flat_map(|half| half.to_le_bytes())),
                _ => raw.extend(fixed.iter().flat_map(|x| x.to_le_bytes()[..3].to_vec())),
            }
            raw.extend([128, 128, 128, 128, 160, 160, 160, 255, 128, 128]);
            let splats = read(&container::gzip(&raw, container::Effort::Usual).unwrap());
            let columns = splats.columns();
            assert_eq!(columns.means, [[1.5, -2.0, 0.25]]);
            assert_eq!(columns.log_scales, [[0.0; 3]]);
            assert!(columns.rotations[0][1] > 0.999, "{:?}", columns.rotations);
        }
    }

    /// A file with its first byte after the magic that holds `from` changed, as version 4 has it.
    fn with_byte(at: usize, value: u8) -> String {
        let mut bytes = encode_spz(&random_splats(20, 1, 4), &v4()).unwrap().bytes;
        bytes[at] = value;
        parse_spz(&bytes).unwrap_err().to_string()
    }

    #[rstest]
    #[case(4, 9, "version 9")]
    #[case(8, 255, "a stream of 180 bytes where 2295")]
    #[case(12, 7, "degree")]
    #[case(15, 9, "streams")]
    #[case(16, 1, "table")]
    #[case(40, 255, "stream")]
    fn broken_headers_are_named(#[case] at: usize, #[case] value: u8, #[case] said: &str) {
        let message = with_byte(at, value);
        assert!(message.contains(said), "{message}");
    }

    #[test]
    fn announced_counts_are_checked_before_room_is_taken() {
        let mut raw = b"NGSP".to_vec();
        raw.extend([3_u32, u32::MAX].iter().flat_map(|word| word.to_le_bytes()));
        raw.extend([3, 12, 0, 0]);
        let message = parse_spz(&container::gzip(&raw, container::Effort::Usual).unwrap())
            .unwrap_err()
            .to_string();
        assert!(message.contains("4294967295"), "{message}");
    }

    #[test]
    fn extensions_are_passed_over_and_axes_named() {
        let file = encode_spz(&random_splats(20, 0, 5), &v4()).unwrap();
        let mut record = 0xADBE_0003_u32.to_le_bytes().to_vec();
        record.extend(4_u32.to_le_bytes());
        record.extend([1, 0, 0, 0]);
        let mut bytes = file.bytes[..32].to_vec();
        bytes[14] |= 2;
        bytes[16] = 32 + 12;
        bytes.extend(record);
        bytes.extend(&file.bytes[32..]);
        let read = parse_spz(&bytes).unwrap();
        assert_eq!(read.splats, parse_spz(&file.bytes).unwrap().splats);
        assert!(read.notes[0].contains("axes"), "{:?}", read.notes);
    }
}
