//! Tests that look at their whole process, in which no other test may run meanwhile.

use std::env;
use std::process::Command;

/// Names the test that a process was started for.
const TEST: &str = "SPLAT_TEST_OF_THIS_PROCESS";

/// Whether this process runs `test` (its full name) and nothing else. If not, the test is run in a
/// process of its own, and fails if it fails there.
pub fn is_of(test: &str) -> bool {
    if env::var_os(TEST).is_some_and(|found| found == test) {
        return true;
    }
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(["--exact", test, "--include-ignored", "--nocapture"]).env(TEST, test);
    let output = command.output().unwrap();
    let [told, errors] =
        [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
    print!("{told}");
    assert!(output.status.success() && told.contains("1 passed"), "{told}\n{errors}");
    false
}
