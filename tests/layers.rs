//! The shape of the source: imports point up the list in lib.rs, files stay small, the stages are
//! where the map says.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that cannot go on should say so and stop"
)]

use std::fs;
use std::path::{Path, PathBuf};

/// No file is longer; most are under 400.
const LINES: usize = 600;

fn source() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src")
}

/// All Rust files below a folder with their text, by path relative to `src`.
fn files_below(folder: &Path) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files_below(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path).unwrap();
            found.push((path.strip_prefix(source()).unwrap().to_owned(), text));
        }
    }
    found.sort();
    found
}

/// The modules in the order of their lines in lib.rs.
fn modules(lib: &str) -> Vec<String> {
    lib.lines()
        .filter_map(|line| line.trim().strip_prefix("pub mod ")?.strip_suffix(';'))
        .map(str::to_owned)
        .collect()
}

/// Names of files like `blend.rs` in the table rows of lib.rs's head.
fn stage_files(lib: &str) -> Vec<String> {
    lib.lines()
        .filter(|line| line.starts_with("//! |"))
        .flat_map(|line| line.split('`'))
        .filter(|name| name.ends_with(".rs") && !name.contains('/'))
        .map(str::to_owned)
        .collect()
}

/// The code without its comments; strings stay.
fn code(text: &str) -> String {
    text.lines().map(|line| line.split("//").next().unwrap_or("")).collect::<Vec<_>>().join("\n")
}

/// The identifier that a text starts with.
fn identifier(text: &str) -> String {
    text.trim_start()
        .chars()
        .take_while(|&letter| letter.is_alphanumeric() || letter == '_')
        .collect()
}

/// The modules that `crate::x` and `crate::{x, y::z}` name.
fn used_modules(text: &str) -> Vec<String> {
    let code = code(text);
    let mut used = Vec::new();
    for (at, path) in code.match_indices("crate::") {
        if code[..at].ends_with(['$', '_']) || code[..at].ends_with(char::is_alphanumeric) {
            continue;
        }
        let rest = &code[at + path.len()..];
        let Some(list) = rest.strip_prefix('{') else {
            used.push(identifier(rest));
            continue;
        };
        let mut depth = 0;
        let mut starts_item = true;
        for (at, letter) in list.char_indices() {
            match letter {
                '}' if depth == 0 => break,
                '{' => depth += 1,
                '}' => depth -= 1,
                ',' => starts_item |= depth == 0,
                letter if letter.is_whitespace() => {}
                _ if starts_item && depth == 0 => {
                    used.push(identifier(&list[at..]));
                    starts_item = false;
                }
                _ => {}
            }
        }
    }
    used
}

/// Lines that climb by `super::` to the root of the crate, from where every module is in reach.
fn climbs(relative: &Path, text: &str) -> Vec<String> {
    let is_folder = relative.file_stem().is_some_and(|stem| stem == "mod");
    let mut depth = relative.components().count() - usize::from(is_folder);
    let mut found = Vec::new();
    for line in code(text).lines() {
        depth += usize::from(line.starts_with("mod tests {"));
        if line.contains(&"super::".repeat(depth)) {
            found.push(line.trim().to_owned());
        }
    }
    found
}

#[test]
fn modules_use_only_those_above_them() {
    let modules = modules(&fs::read_to_string(source().join("lib.rs")).unwrap());
    let rank = |name: &str| modules.iter().position(|module| module == name);
    let mut wrong = Vec::new();
    for (relative, text) in files_below(&source()) {
        let first = Path::new(relative.components().next().unwrap().as_os_str());
        let own = first.file_stem().unwrap().to_str().unwrap();
        if own == "lib" || own == "main" {
            continue;
        }
        let own_rank = rank(own);
        assert!(own_rank.is_some(), "{}: `pub mod {own};` is not in lib.rs", relative.display());
        for used in used_modules(&text) {
            if rank(&used).is_none() || rank(&used) > own_rank {
                wrong.push(format!("{}: {own} uses {used}", relative.display()));
            }
        }
        for line in climbs(&relative, &text) {
            wrong.push(format!("{}: write `crate::`: {line}", relative.display()));
        }
    }
    assert!(wrong.is_empty(), "not above it in lib.rs:\n{}", wrong.join("\n"));
}

#[test]
fn no_file_is_long() {
    let long: Vec<_> = files_below(&source())
        .into_iter()
        .map(|(relative, text)| (relative, text.lines().count()))
        .filter(|(_, lines)| *lines > LINES)
        .collect();
    assert!(long.is_empty(), "above {LINES} lines: {long:?}");
}

#[test]
fn every_stage_has_its_file() {
    let backends = source().join("backend");
    let kernels = Path::new(env!("CARGO_MANIFEST_DIR")).join("kernels");
    let stages = stage_files(&fs::read_to_string(source().join("lib.rs")).unwrap());
    assert!(
        !stages.is_empty(),
        "lib.rs's head should hold the stage grid: rows like `//! | blend | `blend.rs` | ... |`"
    );
    for stage in stages {
        let kernel = Path::new(&stage).with_extension("cu");
        let files = [
            backends.join("cpu/stage").join(&stage),
            backends.join("cuda/stage").join(&stage),
            kernels.join(kernel),
        ];
        for file in files {
            assert!(file.is_file(), "{} is in the grid only", file.display());
        }
    }
}

#[test]
fn the_scanner_sees_what_it_should() {
    let text = "use crate::a::{b, c};\nuse crate::{d, e::{f, g}, h as i,\n    j};\n\
                // use crate::k;\nlet x = crate::l::m(); $crate::n; my_crate::o; pub(crate) use p;";
    assert_eq!(used_modules(text), ["a", "d", "e", "h", "j", "l"]);
    assert_eq!(modules("pub mod a;\n\n/// x\npub mod b;\nmod c;"), ["a", "b"]);
    let grid = "//! | blend | `math/blend.rs` | `blend.rs` |\n//! see `other.rs`";
    assert_eq!(stage_files(grid), ["blend.rs"]);
    let inner = "use super::x;\nuse super::super::y;\nmod tests {\n    use super::super::z;\n}";
    assert_eq!(climbs(Path::new("a/b.rs"), inner), ["use super::super::y;"]);
    assert_eq!(climbs(Path::new("a/mod.rs"), "use super::x;"), ["use super::x;"]);
}
