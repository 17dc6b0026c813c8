//! Scenes and other inputs that are no part of this package.

use std::env;
use std::io::{Write as _, stderr};
use std::path::PathBuf;
use std::thread;

/// Names the folder that holds `fox/` and `bonsai/`.
const SCENES: &str = "SPLAT_TEST_SCENES";

/// Returns the folder of photographed scenes, as [`outside`] does.
pub fn real_scenes() -> Option<PathBuf> {
    outside(SCENES)
}

/// Returns the folder that a variable of the environment names, or says that the test is skipped.
pub fn outside(variable: &str) -> Option<PathBuf> {
    let folder = env::var_os(variable).map(PathBuf::from);
    if folder.is_none() {
        // The test harness hides what a test that passes prints, but not this. The thread of a test has
        // its name.
        let thread = thread::current();
        let test = thread.name().unwrap_or_default();
        let line = format!("skipped {test}: {variable} is not set\n");
        stderr().write_all(line.as_bytes()).unwrap();
    }
    folder
}
