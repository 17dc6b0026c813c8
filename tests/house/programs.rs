//! Which program a test belongs to.

use std::fs;
use std::path::{Path, PathBuf};

fn files_below(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries
        .flat_map(|path| if path.is_dir() { files_below(&path) } else { vec![path] })
        .filter(|path| path.extension().is_some_and(|extension| extension == "rs"))
        .collect()
}

/// Whoever has a GPU runs the ignored tests of the program `gpu`: others would be forgotten.
#[test]
fn tests_that_are_ignored_stand_in_the_program_for_gpus() {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let marks = ["#[ignore", "each_backend"];
    let is_marked = |path: &PathBuf| {
        let text = fs::read_to_string(path).unwrap();
        marks.iter().any(|&mark| text.contains(mark))
    };
    let others = ["spec", "program", "house"].map(|program| files_below(&tests.join(program)));
    let found: Vec<PathBuf> = others
        .concat()
        .into_iter()
        // `.ci/release` runs the targets that fuzz.
        .filter(|path| !path.ends_with("house/programs.rs") && !path.ends_with("spec/fuzz.rs"))
        .filter(is_marked)
        .collect();
    assert!(found.is_empty(), "ignored tests outside of tests/gpu: {found:?}");
    assert!(files_below(&tests.join("gpu")).iter().any(is_marked), "the marks are out of date");
}
