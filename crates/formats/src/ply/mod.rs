//! PLY of Gaussians: the layout of 3D Gaussian splatting (Kerbl and others, 2023), and the packed
//! one of `PlayCanvas`.

mod header;
mod packed;
mod packed_read;
mod packed_write;
mod read;
mod rows;
mod write;

use std::io::BufRead;

pub use packed_write::write_packed_ply;
pub use write::write_ply;

use crate::fault::FormatFault;
use crate::splats::CheckedSplats;
use header::PlyHead;

/// Which of the two layouts a PLY has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlyKind {
    /// A row of floats a Gaussian.
    Plain,
    /// Chunks of 256 Gaussians of 16 bytes.
    Packed,
}

/// Gaussians of a PLY, and the layout that they were in.
#[derive(Debug)]
pub struct PlySplats {
    /// The Gaussians.
    pub checked: CheckedSplats,
    /// The layout.
    pub kind: PlyKind,
}

/// Reads Gaussians of either layout from a file of so many bytes.
///
/// The rows of the plain one are streamed: memory beyond the result stays at about a megabyte.
pub fn parse_ply(input: &mut impl BufRead, file_bytes: u64) -> Result<PlySplats, FormatFault> {
    let head = PlyHead::read(input)?;
    if head.element("chunk").is_some() {
        let checked = packed_read::read_packed(&head, input, file_bytes)?;
        return Ok(PlySplats { checked, kind: PlyKind::Packed });
    }
    let checked = read::read_rows(&head, input, file_bytes)?;
    Ok(PlySplats { checked, kind: PlyKind::Plain })
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::known_splats::{hard_splats, random_splats, random_surfels};
    use crate::splats::{Antialiasing, Splats};
    use crate::worst::WorstErrors;

    fn plain(splats: &Splats) -> Vec<u8> {
        let mut bytes = Vec::new();
        write_ply(splats, &mut bytes).unwrap();
        bytes
    }

    fn parsed(bytes: &[u8]) -> Result<PlySplats, FormatFault> {
        parse_ply(&mut &*bytes, bytes.len() as u64)
    }

    #[rstest]
    fn what_was_written_is_read_again(
        #[values(0, 1, 2, 3)] sh_degree: u32,
        #[values(0, 1, 257, 5000)] count: usize,
    ) {
        let mut splats = random_splats(count, sh_degree, 1);
        for antialiasing in [Antialiasing::Off, Antialiasing::On] {
            splats.columns_mut().antialiasing = antialiasing;
            let read = parsed(&plain(&splats)).unwrap();
            assert_eq!((read.kind, read.checked.dropped), (PlyKind::Plain, 0));
            assert!(read.checked.splats == splats);
        }
    }

    #[test]
    fn the_header_has_the_count_in_line_three_and_62_columns() {
        let bytes = plain(&random_splats(3, 3, 1));
        let text = String::from_utf8_lossy(&bytes);
        let lines: Vec<&str> = text.lines().take(66).collect();
        assert_eq!(lines[..3], ["ply", "format binary_little_endian 1.0", "element vertex 3"]);
        let expected = [
            (3, "x"),
            (6, "nx"),
            (9, "f_dc_0"),
            (12, "f_rest_0"),
            (56, "f_rest_44"),
            (57, "opacity"),
        ];
        for (line, name) in expected.into_iter().chain([(58, "scale_0"), (64, "rot_3")]) {
            assert_eq!(lines[line], format!("property float {name}"));
        }
        assert_eq!(lines[65], "end_header");
    }

    #[test]
    fn surfels_have_two_scales_and_say_what_they_are() {
        let surfels = random_surfels(300, 1, 7);
        let bytes = plain(&surfels);
        let text = String::from_utf8_lossy(&bytes);
        assert!(text.contains("element vertex 300\ncomment SplatRenderMode: 2dgs\nproperty"));
        assert!(text.contains("scale_1\nproperty float rot_0\n") && !text.contains("scale_2"));
        let end = text.find("end_header\n").unwrap() + "end_header\n".len();
        assert_eq!(bytes.len() - end, 300 * 4 * (9 + 9 + 1 + 2 + 4));
        assert!(parsed(&bytes).unwrap().checked.splats == surfels);
    }

    #[test]
    fn harmonics_are_channel_major_in_the_file() {
        let splats = random_splats(1, 1, 2);
        let bytes = plain(&splats);
        let row = bytes[bytes.len() - 26 * 4..].chunks_exact(4);
        let row: Vec<f32> =
            row.map(|value| f32::from_le_bytes(*value.first_chunk().unwrap())).collect();
        let rest = splats.columns().rest(0);
        let channel = |c: usize| [rest[0][c], rest[1][c], rest[2][c]];
        assert_eq!(row[9..18], [channel(0), channel(1), channel(2)].concat());
        assert_eq!(row[3..6], [0.0; 3], "normals are zero");
    }

    #[rstest]
    #[case("SplatRenderMode: mip", true)]
    #[case("splatrendermode: MIP\ncomment by hand", true)]
    #[case("SplatRenderMode: mip\ncomment SplatRenderMode: default", false)]
    #[case("antialiased 1", true)]
    #[case("antialiased 0", false)]
    fn the_mode_is_read_as_several_programs_write_it(#[case] comment: &str, #[case] is_on: bool) {
        let bytes = plain(&random_splats(1, 0, 1));
        let end = bytes.windows(10).position(|window| window == b"end_header").unwrap();
        let comment = format!("comment {comment}\n");
        let read = parsed(&[&bytes[..end], comment.as_bytes(), &bytes[end..]].concat()).unwrap();
        let found = read.checked.splats.columns().antialiasing;
        assert_eq!(found == Antialiasing::On, is_on);
    }

    /// Doubles, another order, columns of other programs, an element before, and a 3D filter.
    fn foreign_file() -> Vec<u8> {
        let mut bytes = b"ply\r\nformat binary_little_endian 1.0\r\ncomment by hand\r\n".to_vec();
        bytes.extend(b"element camera 2\r\nproperty int id\r\nelement vertex 1\r\n");
        let names = ["rot_3", "rot_2", "rot_1", "rot_0", "opacity", "scale_2", "scale_1"];
        let more = ["scale_0", "f_dc_2", "f_dc_1", "f_dc_0", "z", "y"];
        for name in names.iter().chain(&more) {
            bytes.extend(format!("property float {name}\r\n").bytes());
        }
        bytes.extend(b"property uchar label\r\nproperty double x\r\nend_header\r\n");
        bytes.extend([9_u8; 8]);
        for value in 1..=13_u8 {
            bytes.extend(f32::from(value).to_le_bytes());
        }
        bytes.push(200);
        bytes.extend(14.0_f64.to_le_bytes());
        bytes
    }

    #[test]
    fn columns_are_found_by_name_and_strangers_are_ignored() {
        let splats = parsed(&foreign_file()).unwrap().checked.splats;
        let columns = splats.columns();
        assert_eq!((columns.sh_degree, columns.means[0]), (0, [14.0, 13.0, 12.0]));
        assert_eq!((columns.sh_dc[0], columns.log_scales[0]), ([11.0, 10.0, 9.0], [8.0, 7.0, 6.0]));
        assert_eq!(columns.opacity_logits, [5.0]);
        let length = 30.0_f32.sqrt();
        for (found, expected) in columns.rotations[0].iter().zip([4.0, 3.0, 2.0, 1.0]) {
            assert!((found - expected / length).abs() < 1e-6);
        }
    }

    #[test]
    fn a_filter_of_mip_splatting_is_baked_in() {
        let splats = random_splats(1, 0, 3);
        let mut bytes = plain(&splats);
        let row = bytes.split_off(bytes.len() - 17 * 4);
        let header = String::from_utf8(bytes).unwrap();
        let header = header.replace("end_header", "property float filter_3D\nend_header");
        let bytes = [header.as_bytes(), &row, &0.5_f32.to_le_bytes()].concat();
        let read = parsed(&bytes).unwrap().checked.splats;
        let (before, after) = (splats.columns(), read.columns());
        let mut shrink = 1.0;
        for (before, after) in before.log_scales[0].iter().zip(after.log_scales[0]) {
            let (before, after) = (f64::from(*before).exp(), f64::from(after).exp());
            assert!((after - (before * before + 0.25).sqrt()).abs() < 1e-6);
            shrink *= before / after;
        }
        let share = crate::opacity::sigmoid(before.opacity_logits[0]) * shrink;
        assert!((crate::opacity::sigmoid(after.opacity_logits[0]) - share).abs() < 1e-6);
    }

    #[rstest]
    #[case("property float scale_1", "property float size_1", "no column `scale_1`")]
    #[case("property float f_rest_8\n", "", "8 f_rest columns")]
    #[case("property float f_rest_3", "property float f_rest_9", "no column `f_rest_3`")]
    #[case("property float x", "property uchar x", "`x` is of type uchar")]
    #[case("property float nx", "property float x", "`x` twice")]
    #[case("property float opacity", "property list uchar float opacity", "list of float")]
    #[case("property float nx", "property list float int nx", "line 7")]
    #[case("property float nx", "property list uchar nx", "line 7")]
    #[case("property float nx", "property quaternion nx", "line 7")]
    #[case("binary_little_endian", "binary_middle_endian", "`binary_middle_endian 1.0`")]
    #[case("binary_little_endian", "ascii", "no row of `vertex`")]
    #[case("property float f_dc_1", "property float green", "no column `f_dc_1`, which Gaussians need")]
    #[case("element vertex 2", "element vertex 3", "truncated")]
    #[case("element vertex 2", "element vertex 18446744073709551615", "truncated")]
    #[case("element vertex 2", "element vertex many", "line 3")]
    #[case("element vertex 2", "element face 2", "no `element vertex`")]
    #[case("ply", "PLY?", "not a PLY")]
    fn a_broken_header_is_named(#[case] from: &str, #[case] to: &str, #[case] said: &str) {
        let bytes = plain(&random_splats(2, 1, 1));
        let end = bytes.windows(10).position(|window| window == b"end_header").unwrap();
        let header = String::from_utf8_lossy(&bytes[..end]).replacen(from, to, 1);
        let message = parsed(&[header.as_bytes(), &bytes[end..]].concat()).unwrap_err().to_string();
        assert!(message.contains(said), "{message}");
    }

    fn packed(splats: &Splats) -> (Vec<u8>, WorstErrors) {
        let mut bytes = Vec::new();
        let worst = write_packed_ply(splats, &mut bytes).unwrap();
        (bytes, worst)
    }

    #[rstest]
    fn packed_rows_are_within_their_steps(
        #[values(0, 1, 2, 3)] sh_degree: u32,
        #[values(0, 1, 255, 256, 257, 1025)] count: usize,
    ) {
        let (bytes, worst) = packed(&random_splats(count, sh_degree, 4));
        let read = parsed(&bytes).unwrap();
        assert_eq!((read.kind, read.checked.splats.len()), (PlyKind::Packed, count));
        assert_eq!(read.checked.splats.sh_degree(), sh_degree);
        // Half a step of a chunk: at most 20 units by 10 bits, 5 by 10, 0.96 by 8; of an opacity
        // half of 1/255; of a coefficient half of 1/32. The parts of a rotation are half of √2/1023
        // off, and the angle at most twice the root of 3 + 9 of these squares (the largest part
        // takes up to three times the others').
        assert!(worst.position < 0.5 * 20.0 / 1023.0 + 1e-5, "{worst:?}");
        assert!(worst.log_scale < 0.5 * 5.0 / 1023.0 + 1e-5, "{worst:?}");
        assert!(worst.color < 0.5 * 0.96 / 255.0 + 1e-5, "{worst:?}");
        assert!(worst.opacity < 0.5 / 255.0 + 1e-5, "{worst:?}");
        assert!(worst.sh <= 1.0 / 64.0 + 1e-5, "{worst:?}");
        assert!(worst.rotation_degrees < 0.28, "{worst:?}");
    }

    #[test]
    fn packed_rows_of_one_place_and_of_extreme_sizes_are_kept() {
        let (bytes, worst) = packed(&hard_splats(300, 1));
        assert_eq!(parsed(&bytes).unwrap().checked.splats.len(), 300);
        assert_eq!(worst.position, 0.0);
        // 15.5 by 10 bits, half a step.
        assert!(worst.log_scale < 0.5 * 15.5 / 1023.0 + 1e-5, "{worst:?}");
        assert!(worst.opacity < 1.01 / 255.0, "{worst:?}");
    }

    #[test]
    fn a_packed_file_keeps_the_mode_and_names_its_blocks() {
        let mut splats = random_splats(300, 2, 5);
        splats.columns_mut().antialiasing = Antialiasing::On;
        let (bytes, _) = packed(&splats);
        let read = parsed(&bytes).unwrap().checked.splats;
        assert_eq!(read.columns().antialiasing, Antialiasing::On);
        let text = String::from_utf8_lossy(&bytes);
        for line in ["element chunk 2", "element vertex 300", "element sh 300"] {
            assert!(text.contains(line), "{line}");
        }
        let end = text.find("end_header\n").unwrap() + "end_header\n".len();
        assert_eq!(bytes.len() - end, 2 * 72 + 300 * 16 + 300 * 24);
    }

    #[rstest]
    #[case("element chunk 2", "element chunk 1", "1 chunks for 300")]
    #[case("element sh 300", "element sh 299", "299 rows of SH")]
    #[case("property uint packed_color", "property float packed_color", "packed_color")]
    #[case("element vertex 300", "element vertex 4294967295", "chunks for 4294967295")]
    fn a_broken_packed_header_is_named(#[case] from: &str, #[case] to: &str, #[case] said: &str) {
        let (bytes, _) = packed(&random_splats(300, 1, 6));
        let end = bytes.windows(10).position(|window| window == b"end_header").unwrap();
        let header = String::from_utf8_lossy(&bytes[..end]).replacen(from, to, 1);
        let message = parsed(&[header.as_bytes(), &bytes[end..]].concat()).unwrap_err().to_string();
        assert!(message.contains(said), "{message}");
    }
}
