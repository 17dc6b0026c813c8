//! SOG with levels of detail: a tree of boxes, and for each level and box a run of Gaussians in one of
//! several SOG folders (`PlayCanvas`, version 1 of the streamed format).

mod coarsen;
mod eigen;
mod merge;
mod meta;
mod read;
mod tree;
mod write;

pub use read::read_streamed;
pub use write::{StreamedOptions, write_streamed};

pub(crate) use meta::LOD_META_NAME;

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use rstest::rstest;

    use super::*;
    use crate::known_splats::random_splats;
    use crate::sog::SogTools;

    fn parts(options: &StreamedOptions, count: usize) -> BTreeMap<String, Vec<u8>> {
        let mut parts = BTreeMap::new();
        write_streamed(&random_splats(count, 1, 1), options, &SogTools::default(), &mut parts)
            .unwrap();
        parts
    }

    fn small() -> StreamedOptions {
        StreamedOptions { chunk_splats: 1500, levels: 3, ..StreamedOptions::default() }
    }

    #[test]
    fn the_finest_level_is_the_scene() {
        let splats = random_splats(4000, 1, 1);
        let mut parts = BTreeMap::new();
        let worst = write_streamed(&splats, &small(), &SogTools::default(), &mut parts).unwrap();
        assert!(worst.position < 1e-3 && worst.rotation_degrees < 1.2, "{worst:?}");
        let read = read_streamed(&mut parts).unwrap().splats;
        assert_eq!(read.len(), 4000);
        let sum = |splats: &crate::Splats| -> f64 {
            splats.columns().means.iter().map(|mean| f64::from(mean[0])).sum()
        };
        assert!((sum(&read) - sum(&splats)).abs() < 0.5, "{} {}", sum(&read), sum(&splats));
    }

    #[test]
    fn runs_fill_their_files_and_boxes_hold_them() {
        let mut parts = parts(&small(), 4000);
        let meta: serde_json::Value = serde_json::from_slice(&parts[LOD_META_NAME]).unwrap();
        assert_eq!((&meta["version"], &meta["lodLevels"]), (&1.into(), &3.into()));
        assert_eq!(meta["counts"], serde_json::json!([4000, 2000, 1000]));
        assert_eq!(meta["count"], 7000);
        let names: Vec<&str> = meta["filenames"]
            .as_array()
            .unwrap()
            .iter()
            .map(|name| name.as_str().unwrap())
            .collect();
        assert!(names.contains(&"0_0/meta.json") && names.contains(&"2_0/meta.json"));
        let mut ends = vec![0; names.len()];
        let mut open = vec![&meta["tree"]];
        let mut leaves = 0;
        // Leaves in the order of the tree: each run begins where the one before it ends.
        while let Some(node) = open.pop() {
            if let Some(children) = node["children"].as_array() {
                assert_eq!(children.len(), 2);
                open.extend(children.iter().rev());
                continue;
            }
            leaves += 1;
            for run in node["lods"].as_object().unwrap().values() {
                let [file, offset, count] =
                    ["file", "offset", "count"].map(|key| run[key].as_u64().unwrap());
                let end = &mut ends[usize::try_from(file).unwrap()];
                assert_eq!(*end, offset);
                *end += count;
            }
        }
        assert!(leaves >= 4, "{leaves}");
        for (name, end) in names.iter().zip(ends) {
            let meta: serde_json::Value = serde_json::from_slice(&parts[*name]).unwrap();
            assert_eq!(meta["count"].as_u64().unwrap(), end, "{name}");
        }
        assert!(read_streamed(&mut parts).is_ok());
    }

    #[test]
    fn a_wide_scene_is_split_but_not_into_crumbs() {
        let options = StreamedOptions { extent: 5.0, levels: 1, ..StreamedOptions::default() };
        let parts = parts(&options, 5000);
        let meta = String::from_utf8(parts[LOD_META_NAME].clone()).unwrap();
        // 20 units wide, 1,024 at least in a node that is split.
        assert_eq!(meta.matches("\"lods\"").count(), 8, "{meta}");
    }

    #[rstest]
    #[case(r#""version":1"#, r#""version":7"#, "version 7")]
    #[case("0_0/meta.json", "../0_0/meta.json", "no name")]
    #[case(r#""file":0"#, r#""file":99"#, "file 99")]
    #[case(r#""offset":0"#, r#""offset":4000000000"#, "rows")]
    #[case(r#""counts":[4000"#, r#""counts":[4001"#, "4001")]
    fn broken_trees_are_named(#[case] from: &str, #[case] to: &str, #[case] said: &str) {
        let mut parts = parts(&small(), 4000);
        let meta = String::from_utf8(parts[LOD_META_NAME].clone()).unwrap();
        assert!(meta.contains(from), "{meta}");
        parts.insert(LOD_META_NAME.to_owned(), meta.replacen(from, to, 1).into_bytes());
        let message = read_streamed(&mut parts).unwrap_err().to_string();
        assert!(message.contains(said), "{message}");
    }
}
