//! SPZ, the packed format of Niantic: versions 1 to 4 read, 3 and 4 written.
//!
//! After Niantic's description of the format (github.com/nianticlabs/spz, July 2026). Positions are
//! fixed-point, all else is bytes; versions 1 to 3 are one gzip stream, version 4 has a zstd frame for
//! each kind of value.

mod axes;
mod container;
mod header;
mod read;
mod rows;
mod write;

pub use axes::SpzAxes;
pub use read::parse_spz;
pub use rows::SPZ_LOG_SCALES;
pub use write::{SpzOptions, SpzOptionsError, SpzVersion, encode_spz, pack_spz};

pub(crate) use header::{GZIP_MAGIC, SPZ_MAGIC};
pub(crate) use rows::LEAST_SPZ_LOG_SCALE;

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::known_splats::{hard_splats, random_splats};
    use crate::splats::{Antialiasing, SplatColumns, Splats};
    use crate::worst::WorstErrors;

    fn v4() -> SpzOptions {
        SpzOptions { version: SpzVersion::V4, ..SpzOptions::default() }
    }

    fn read(bytes: &[u8]) -> Splats {
        parse_spz(bytes, None).unwrap().splats
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
    fn scales_beyond_the_range_are_counted_and_no_error() {
        let mut columns = random_splats(4, 0, 1).into_columns();
        columns.log_scales = vec![
            [-1.0, 0.0, f32::NEG_INFINITY],
            [-14.0, -10.0, 7.0],
            [5.9, -10.03, 5.96],
            [0.0; 3],
        ];
        let splats = Splats::from_columns(columns).unwrap().splats;
        let worst = encode_spz(&splats, &v4()).unwrap().worst;
        assert_eq!(worst.clipped_scales, 3, "e^-inf, e^-14 and e^7");
        assert!(worst.log_scale <= 0.5 / 16.0 + 1e-6, "{worst:?}");
    }

    #[test]
    fn the_mode_is_kept() {
        let mut splats = random_splats(10, 3, 3);
        splats.columns_mut().antialiasing = Antialiasing::On;
        let back = read(&encode_spz(&splats, &v4()).unwrap().bytes);
        assert_eq!(back.columns().antialiasing, Antialiasing::On);
    }

    /// The position (1, 2, 3), the rotation (0.1, 0.2, 0.3, 0.927) and the first channel of the harmonics
    /// -23/32 to -9/32, given in these axes, as @adobe/spz 0.2.3 stores them: in right, up, back.
    type InAxes = (&'static str, [f32; 3], [f32; 4], [i8; 15]);
    const IN_RUB: [InAxes; 16] = [
        (
            "ldb",
            [-1., -2., 3.],
            [-0.1, -0.2, 0.3, 0.927],
            [23, -22, 21, -20, 19, -18, 17, -16, 15, -14, 13, -12, 11, -10, 9],
        ),
        (
            "rdb",
            [1., -2., 3.],
            [-0.1, 0.2, -0.3, 0.927],
            [23, -22, -21, 20, 19, -18, -17, -16, 15, 14, 13, -12, -11, -10, -9],
        ),
        (
            "lub",
            [-1., 2., 3.],
            [0.1, -0.2, -0.3, 0.927],
            [-23, -22, 21, 20, -19, -18, 17, -16, -15, 14, -13, -12, 11, -10, 9],
        ),
        (
            "rub",
            [1., 2., 3.],
            [0.1, 0.2, 0.3, 0.927],
            [-23, -22, -21, -20, -19, -18, -17, -16, -15, -14, -13, -12, -11, -10, -9],
        ),
        (
            "ldf",
            [-1., -2., -3.],
            [0.1, 0.2, 0.3, 0.927],
            [23, 22, 21, -20, -19, -18, -17, -16, 15, 14, 13, 12, 11, 10, 9],
        ),
        (
            "rdf",
            [1., -2., -3.],
            [0.1, -0.2, -0.3, 0.927],
            [23, 22, -21, 20, -19, -18, 17, -16, 15, -14, 13, 12, -11, 10, -9],
        ),
        (
            "luf",
            [-1., 2., -3.],
            [-0.1, 0.2, -0.3, 0.927],
            [-23, 22, 21, 20, 19, -18, -17, -16, -15, -14, -13, 12, 11, 10, 9],
        ),
        (
            "ruf",
            [1., 2., -3.],
            [-0.1, -0.2, 0.3, 0.927],
            [-23, 22, -21, -20, 19, -18, 17, -16, -15, 14, -13, 12, -11, 10, -9],
        ),
        (
            "lfd",
            [-1., 3., 2.],
            [0.726, -0.071, -0.354, -0.585],
            [22, 23, 21, -17, -19, 23, -20, 8, -3, 14, -15, -20, -11, -1, -8],
        ),
        (
            "rfd",
            [1., 3., 2.],
            [0.726, 0.071, 0.354, -0.585],
            [22, 23, -21, 17, -19, 23, 20, 8, -3, -14, -15, -20, 12, -1, 9],
        ),
        (
            "lfu",
            [-1., 3., -2.],
            [-0.585, -0.354, -0.071, 0.726],
            [22, -23, 21, -17, 19, 23, 20, 8, -3, -14, -15, 20, -11, 1, -8],
        ),
        (
            "rfu",
            [1., 3., -2.],
            [-0.585, 0.354, 0.071, 0.726],
            [22, -23, -21, 17, 19, 23, -20, 8, -3, 14, -15, 20, 12, 1, 9],
        ),
        (
            "lbd",
            [-1., -3., 2.],
            [-0.585, 0.354, 0.071, 0.726],
            [-22, 23, 21, 17, 19, 23, -20, 8, 3, -14, 15, -20, -11, -1, -8],
        ),
        (
            "rbd",
            [1., -3., 2.],
            [-0.585, -0.354, -0.071, 0.726],
            [-22, 23, -21, -17, 19, 23, 20, 8, 3, 14, 15, -20, 12, -1, 9],
        ),
        (
            "lbu",
            [-1., -3., -2.],
            [0.726, 0.071, 0.354, -0.585],
            [-22, -23, 21, 17, -19, 23, 20, 8, 3, 14, 15, 20, -11, 1, -8],
        ),
        (
            "rbu",
            [1., -3., -2.],
            [0.726, -0.071, -0.354, -0.585],
            [-22, -23, -21, -17, -19, 23, -20, 8, 3, -14, 15, 20, 12, 1, 9],
        ),
    ];

    fn one_splat(mean: [f32; 3], [x, y, z, w]: [f32; 4], rest: &[i8; 15]) -> Splats {
        let columns = SplatColumns {
            sh_degree: 3,
            means: vec![mean],
            log_scales: vec![[-1.0, -2.0, -3.0]],
            rotations: vec![[w, x, y, z]],
            opacity_logits: vec![0.0],
            sh_dc: vec![[0.0; 3]],
            sh_rest: rest.iter().map(|&value| [f32::from(value) / 32.0; 3]).collect(),
            ..SplatColumns::default()
        };
        Splats::from_columns(columns).unwrap().splats
    }

    /// Entries of R S², where R is turned about its own axes by half a turn at will.
    fn shape(splats: &Splats) -> [[f64; 3]; 3] {
        let columns = splats.columns();
        let rows = crate::quaternion::matrix(columns.rotations[0].map(f64::from));
        let variances = columns.log_scales[0].map(|log| (2.0 * f64::from(log)).exp());
        std::array::from_fn(|i| {
            std::array::from_fn(|j| (0..3).map(|k| rows[i][k] * variances[k] * rows[j][k]).sum())
        })
    }

    #[test]
    fn all_axes_are_those_of_the_format_s_library() {
        let given: [i8; 15] = IN_RUB[3].3;
        for version in [SpzVersion::V3, SpzVersion::V4] {
            for (name, mean, rotation, rest) in &IN_RUB {
                let axes = SpzAxes::of_name(name).unwrap();
                assert_eq!(axes.name(), *name);
                let expected = one_splat(*mean, *rotation, rest);
                // The same bytes, read with their axes and with the format's.
                let mut scene = one_splat([1.0, 2.0, 3.0], [0.1, 0.2, 0.3, 0.927], &given);
                axes.enter_scene(&mut scene).unwrap();
                let options = SpzOptions { version, ..SpzOptions::default() };
                let in_rub = encode_spz(&scene, &options).unwrap().bytes;
                let raw = parse_spz(&in_rub, Some(SpzAxes::SCENE)).unwrap().splats;
                assert_eq!(raw.columns().means, expected.columns().means, "{name}");
                for (found, expected) in
                    shape(&raw).as_flattened().iter().zip(shape(&expected).as_flattened())
                {
                    assert!((found - expected).abs() < 1e-3, "{name}: {found} {expected}");
                }
                let pairs = raw.columns().sh_rest.iter().zip(&expected.columns().sh_rest);
                for (found, expected) in pairs {
                    // The library turns coefficients that are rounded to 1/128, and rounds them again.
                    assert!(
                        (found[0] - expected[0]).abs() < 0.02,
                        "{name}: {found:?} {expected:?}"
                    );
                }
                // A file in these axes names them, and a file without a name is read if they are given.
                let own = encode_spz(&scene, &SpzOptions { axes, version, ..options }).unwrap();
                let back = read(&own.bytes);
                assert!(own.worst.position < 1e-5 && own.worst.rotation_degrees < 0.28, "{name}");
                assert!(
                    (back.columns().sh_rest[4][0] - scene.columns().sh_rest[4][0]).abs() < 0.02
                );
                assert_eq!(parse_spz(&own.bytes, Some(axes)).unwrap().splats, back, "{name}");
                let raw = parse_spz(&own.bytes, Some(SpzAxes::SCENE)).unwrap().splats;
                assert_eq!(raw.columns().means, [[1.0, 2.0, 3.0]], "{name}");
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
            let file = container::gzip(&raw, container::Effort::Usual).unwrap();
            let splats = parse_spz(&file, Some(SpzAxes::SCENE)).unwrap().splats;
            assert_eq!(read(&file).columns().means, [[1.5, 2.0, -0.25]]);
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
        parse_spz(&bytes, None).unwrap_err().to_string()
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
        let message = parse_spz(&container::gzip(&raw, container::Effort::Usual).unwrap(), None)
            .unwrap_err()
            .to_string();
        assert!(message.contains("4294967295"), "{message}");
    }

    #[rstest]
    #[case(0xADBE_0003, 6, Ok(1.0))]
    #[case(0xADBE_0003, 4, Ok(-1.0))]
    #[case(0xADBE_0003, 0, Ok(-1.0))]
    #[case(0xADBE_0003, 17, Err("axes number 17"))]
    #[case(0xADBE_0002, 6, Err("0xadbe0002 is skipped"))]
    fn records_are_read(
        #[case] kind: u32,
        #[case] value: u32,
        #[case] expected: Result<f32, &str>,
        #[values(SpzVersion::V3, SpzVersion::V4)] version: SpzVersion,
    ) {
        let splats = crate::known_splats::splats_at(&[[1.0, 1.0, 1.0]]);
        let options = SpzOptions { axes: SpzAxes::SCENE, version, ..SpzOptions::default() };
        let mut bytes = encode_spz(&splats, &options).unwrap().bytes;
        let record: Vec<u8> = [kind, 4, value].into_iter().flat_map(u32::to_le_bytes).collect();
        if version == SpzVersion::V4 {
            bytes[32..44].copy_from_slice(&record);
        } else {
            let mut raw = Vec::new();
            std::io::Read::read_to_end(&mut flate2::read::GzDecoder::new(&*bytes), &mut raw)
                .unwrap();
            let start = raw.len() - record.len();
            raw[start..].copy_from_slice(&record);
            bytes = container::gzip(&raw, container::Effort::Usual).unwrap();
        }
        match (parse_spz(&bytes, None), expected) {
            (Ok(read), Ok(y)) => assert_eq!(read.splats.columns().means, [[1.0, y, y]]),
            (Ok(read), Err(note)) => assert!(read.notes[0].contains(note), "{:?}", read.notes),
            (Err(fault), Err(said)) => assert!(fault.to_string().contains(said), "{fault}"),
            (Err(fault), Ok(_)) => panic!("{fault}"),
        }
        // Axes that are given replace those of the file.
        assert_eq!(
            parse_spz(&bytes, Some(SpzAxes::SCENE)).unwrap().splats.columns().means,
            [[1.0; 3]]
        );
    }
}
