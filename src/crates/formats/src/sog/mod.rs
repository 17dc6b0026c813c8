//! SOG, version 2: a scene as pictures, one pixel a Gaussian (`PlayCanvas`).
//!
//! Values lie in lossless WebP pictures; scales, colours and harmonics as indices of codebooks, the
//! harmonics of a Gaussian as the number of a row of a palette.

mod codebook;
mod lloyd;
mod meta;
mod metric;
mod palette;
mod parts;
mod picture;
mod read;
mod rows;
mod search;
mod seen;
mod shared;
mod values;
mod write;

pub use read::read_sog;
pub use search::{CellLists, HeldRows, HostSearch, NearRow, RowSearch};
pub use seen::{Looks, SeenFrom};
pub use shared::SharedRows;
pub use write::{ColorFit, SogError, SogOptions, SogTools, write_sog};

pub(crate) use meta::META_NAME;
pub(crate) use write::write_in_order;

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::io::Cursor;

    use rstest::rstest;

    use super::*;
    use crate::folder::{PartSource, ZipSink, ZipSource};
    use crate::known_splats::{hard_splats, random_splats};
    use crate::splats::{Antialiasing, Splats};
    use crate::worst::WorstErrors;

    fn parts(splats: &Splats) -> (BTreeMap<String, Vec<u8>>, WorstErrors) {
        let mut parts = BTreeMap::new();
        let worst =
            write_sog(splats, &SogOptions::default(), &SogTools::default(), &mut parts).unwrap();
        (parts, worst)
    }

    #[rstest]
    fn values_are_within_their_steps(
        #[values(0, 1, 2, 3)] sh_degree: u32,
        #[values(0, 1, 255, 1025)] count: usize,
    ) {
        let (mut parts, worst) = parts(&random_splats(count, sh_degree, 1));
        let read = read_sog(&mut parts).unwrap();
        assert_eq!((read.splats.len(), read.dropped), (count, 0));
        assert!(count == 0 || read.splats.sh_degree() == sh_degree);
        // Places: 2 ln 11 in 65,535 steps, half of one, which is 11 times that far out.
        assert!(worst.position < 0.5 * 2.0 * 11.0_f64.ln() / 65_535.0 * 11.0 * 1.01, "{worst:?}");
        // Numbers that are spread evenly: 256 entries, so half of 5/256, 3.4 x C0/256; Lloyd may
        // leave some cells twice as wide.
        assert!(worst.log_scale < 5.0 / 256.0, "{worst:?}");
        assert!(worst.color < 3.4 * 0.2821 / 256.0, "{worst:?}");
        assert!(worst.opacity < 0.51 / 255.0, "{worst:?}");
        assert!(worst.rotation_degrees < 1.2, "{worst:?}");
        // As many entries as rows, but for the last, so all but the codebook is exact.
        assert!(count > 1024 || worst.sh < 0.8 / 256.0, "{worst:?}");
    }

    #[test]
    fn extreme_values_are_kept() {
        let (_, worst) = parts(&hard_splats(300, 1));
        assert!(worst.position < 1e-6 && worst.log_scale < 1e-5, "{worst:?}");
    }

    #[test]
    fn a_zip_holds_the_parts_with_the_meta_data_last() {
        let mut splats = random_splats(300, 1, 2);
        splats.columns_mut().antialiasing = Antialiasing::On;
        let mut zip = ZipSink::new(Cursor::new(Vec::new()));
        write_sog(&splats, &SogOptions::default(), &SogTools::default(), &mut zip).unwrap();
        let bytes = zip.finish().unwrap().into_inner();
        let mut zip = ZipSource::new(Cursor::new(&bytes), bytes.len() as u64).unwrap();
        let read = read_sog(&mut zip).unwrap().splats;
        assert_eq!(read.columns().antialiasing, Antialiasing::On);
        let (mut parts, _) = parts(&splats);
        assert!(read == read_sog(&mut parts).unwrap().splats);
        let meta = String::from_utf8(zip.get("meta.json", 1 << 20).unwrap()).unwrap();
        assert!(meta.contains(r#""version":2"#) && meta.contains(r#""model":"antialiased""#));
        let place = |name: &[u8]| bytes.windows(name.len()).position(|part| part == name).unwrap();
        assert!(place(b"meta.json") > place(b"shN_labels.webp"));
    }

    #[test]
    fn equal_gaussians_make_equal_bytes_for_any_number_of_threads() {
        let splats = random_splats(2500, 2, 3);
        let made = |threads: usize| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| parts(&splats).0)
        };
        assert!(made(1) == made(2));
    }

    #[rstest]
    #[case(r#""version":2"#, r#""version":1"#, "version 1 of SOG")]
    #[case(r#""count":300"#, r#""count":4294967295"#, "4294967295 Gaussians")]
    #[case(r#""count":300"#, r#""count":900"#, "for 900 values")]
    #[case("quats.webp", "../quats.webp", "no name of a file in it")]
    #[case("quats.webp", "quatt.webp", "not there")]
    #[case(r#""bands":1"#, r#""bands":4"#, "4 bands")]
    #[case(r#""count":300,"bands""#, r#""count":3,"bands""#, "of a palette of 3")]
    #[case(r#""mins":["#, r#""mins":["a","#, "meta.json")]
    fn broken_meta_data_is_named(#[case] from: &str, #[case] to: &str, #[case] said: &str) {
        let (mut parts, _) = parts(&random_splats(300, 1, 4));
        let meta = String::from_utf8(parts["meta.json"].clone()).unwrap();
        assert!(meta.contains(from), "{meta}");
        parts.insert("meta.json".to_owned(), meta.replacen(from, to, 1).into_bytes());
        let message = read_sog(&mut parts).unwrap_err().to_string();
        assert!(message.contains(said), "{message}");
    }
}
