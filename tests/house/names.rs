//! The names of the source: each name of a type has one meaning, names of functions are not sentences.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::layers::{File, SOURCES, files_below, identifier, product_files, sources_of};

/// Letters of the longest name that a function may have.
const LETTERS: usize = 70;

/// The types that a text defines: structs, enums, traits, unions and aliases. An indented alias
/// belongs to a trait, where one name is meant to stand in every implementation.
fn types(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for line in text.lines() {
        let item = line.trim_start();
        let item = match item.strip_prefix("pub(").and_then(|rest| rest.split_once(") ")) {
            Some((_, item)) => item,
            None => item.strip_prefix("pub ").unwrap_or(item),
        };
        let item = item.strip_prefix("unsafe ").unwrap_or(item);
        let Some((kind, rest)) = item.split_once(' ') else { continue };
        let is_type = match kind {
            "struct" | "enum" | "trait" | "union" => true,
            "type" => !line.starts_with(' '),
            _ => false,
        };
        let name = identifier(rest);
        if is_type && name.starts_with(char::is_uppercase) {
            found.push(name);
        }
    }
    found
}

/// Whether these files are one of the CPU's backend and one of CUDA's: twins, of which each is on
/// its device what the other is on the other.
fn are_twins(files: &[&Path]) -> bool {
    let [cpu, cuda] = files else { return false };
    cpu.starts_with("backend/cpu") && cuda.starts_with("backend/cuda")
}

/// Each name of a type that stands more than once, with the files that define it.
fn repeated(files: &[File]) -> Vec<String> {
    let mut places: BTreeMap<String, Vec<&Path>> = BTreeMap::new();
    for file in files {
        for name in types(&file.body) {
            places.entry(name).or_default().push(&file.relative);
        }
    }
    let repeated = places.into_iter().filter(|(_, files)| files.len() > 1 && !are_twins(files));
    repeated
        .map(|(name, files)| {
            let files: Vec<_> = files.iter().map(|file| file.display().to_string()).collect();
            format!("{name}: {}", files.join(", "))
        })
        .collect()
}

/// The names of functions with more letters than these.
fn long_names(text: &str, letters: usize) -> Vec<String> {
    let names =
        text.match_indices("fn ").map(|(at, keyword)| identifier(&text[at + keyword.len()..]));
    names.filter(|name| name.chars().count() > letters).collect()
}

#[test]
fn no_type_name_stands_twice() {
    let mut repeated_names = Vec::new();
    for folder in SOURCES {
        let files = product_files(sources_of(folder));
        let count: usize = files.iter().map(|file| types(&file.body).len()).sum();
        assert!(2 * count > files.len(), "{count} types are seen in {} files", files.len());
        repeated_names.extend(repeated(&files));
    }
    let repeated = repeated_names;
    assert!(
        repeated.is_empty(),
        "a name for each type, but for twins of `backend/cpu` and `backend/cuda`:\n{}",
        repeated.join("\n")
    );
}

#[test]
fn no_function_has_a_long_name() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut long = Vec::new();
    for folder in SOURCES.into_iter().chain(["tests"]) {
        for (relative, text) in files_below(&root.join(folder)) {
            let path = Path::new(folder).join(relative);
            let names = long_names(&text, LETTERS);
            long.extend(names.into_iter().map(|name| format!("{}: {name}", path.display())));
        }
    }
    assert!(long.is_empty(), "above {LETTERS} letters:\n{}", long.join("\n"));
}

#[test]
fn types_are_found_where_they_are_defined() {
    let text = "pub struct A<T>(T);\n    pub(in crate::x) enum B {}\npub unsafe trait C {\n    type D;\n}\n\
                type E = F;\nfn g() -> H { i }\nlet kind = \"struct of J\";\nunion K {}";
    assert_eq!(types(text), ["A", "B", "C", "E", "K"]);
    assert_eq!(long_names("pub fn four() {}\nfn three() {}\nf: fn (), x: Fn", 4), ["three"]);
}

#[test]
fn a_name_stands_twice_but_in_tests_imports_and_twins() {
    let file = |path: &str, text: &str| (PathBuf::from(path), text.to_owned());
    let found = |sources: &[(&str, &str)]| {
        let sources = sources.iter().map(|(path, text)| file(path, text));
        repeated(&product_files(sources.collect()))
    };
    let [a, b] = ["a.rs", "b.rs"];
    assert_eq!(found(&[(a, "pub struct X;"), (b, "enum X {}")]), ["X: a.rs, b.rs"]);
    assert_eq!(found(&[(a, "struct X;\nfn f() {\n    struct X;\n}")]), ["X: a.rs, a.rs"]);
    let once = ["pub use crate::a::X;", "#[cfg(test)]\nmod tests {\n    struct X;\n}"];
    for other in once {
        assert_eq!(found(&[(a, "pub struct X;"), (b, other)]), Vec::<String>::new());
    }
    let tests =
        [(a, "struct X;\n#[cfg(test)]\nmod t;"), ("a/t.rs", "mod u;"), ("a/t/u.rs", "struct X;")];
    assert_eq!(found(&tests), Vec::<String>::new());
    let [cpu, cuda] = ["backend/cpu/a.rs", "backend/cuda/b/c.rs"].map(|path| (path, "struct X;"));
    assert_eq!(found(&[cpu, cuda]), Vec::<String>::new());
    assert_eq!(found(&[cpu, cuda, (b, "struct X;")]).len(), 1);
    assert_eq!(found(&[cpu, ("backend/cpu/b.rs", "struct X;")]).len(), 1);
}
