//! The shape of the source: imports point up the list in lib.rs, no files import one another in a
//! circle, rooms of a backend use only those below them, the stages are where the map says.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The folders of the crates' sources, relative to the root.
const SOURCES: [&str; 5] = [
    "src",
    "src/crates/formats/src",
    "src/crates/mesh/src",
    "src/crates/nccl/src",
    "src/crates/ranks/src",
];

fn source() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src")
}

/// All Rust files below a folder with their text, by path relative to the folder.
fn files_below(root: &Path) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    let mut open = vec![root.to_owned()];
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                // Another package is no part of this one.
                if !path.join("Cargo.toml").exists() {
                    open.push(path);
                }
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = fs::read_to_string(&path).unwrap();
                found.push((path.strip_prefix(root).unwrap().to_owned(), text));
            }
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

/// The modules that paths from the root of the crate lead into.
fn used_modules(file: &File) -> BTreeSet<String> {
    let paths = file.imports.iter().map(|import| import.path.clone()).chain(paths(&file.body));
    let from_root = paths.filter(|path| path[0] == "crate");
    from_root.map(|path| path.get(1).cloned().unwrap_or_default()).collect()
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
    let sources = files_below(&source());
    for (relative, text) in &sources {
        for line in climbs(relative, text) {
            wrong.push(format!("{}: write `crate::`: {line}", relative.display()));
        }
    }
    // Tests may use modules below: those of plans run the stages of a GPU.
    for file in product_files(sources) {
        let (path, Some(own)) = (file.relative.display(), file.module.first()) else { continue };
        let own_rank = rank(own);
        assert!(own_rank.is_some(), "{path}: `pub mod {own};` is not in lib.rs");
        for used in used_modules(&file) {
            if rank(&used).is_none() || rank(&used) > own_rank {
                wrong.push(format!("{path}: {own} uses {used}"));
            }
        }
    }
    assert!(wrong.is_empty(), "not above it in lib.rs:\n{}", wrong.join("\n"));
}

/// Files beside those of the stages, each with the stage that it is a part of. A file that serves
/// several stages has that of the first of them.
const PARTS: [(&str, &str); 7] = [
    ("src/backend/cpu/stage/blend_triangles.rs", "blend"),
    ("src/backend/cpu/stage/gradients.rs", "adam"),
    ("src/backend/cuda/stage/bands.rs", "bin"),
    ("kernels/adam_views.cu", "adam"),
    ("kernels/blend_surfels.cu", "blend"),
    ("kernels/blend_triangles.cu", "blend"),
    ("kernels/triangles.cu", "project"),
];

/// Files beside the stages that are of none.
const OTHERS: [(&str, &str); 4] = [
    ("src/backend/cuda/stage/probe.rs", "for the tests of the headers"),
    ("kernels/probe.cu", "for the tests of the headers"),
    ("kernels/cub.cu", "sorts and sums of several stages"),
    (
        "kernels/model.cu",
        "rows of the model on their way to the host, to compact storage and to the cache",
    ),
];

/// Each file of a stage is in the table of lib.rs, or is named above, and each stage of the table has its files.
#[test]
fn files_of_stages_are_those_of_the_table() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let stages = stage_files(&fs::read_to_string(source().join("lib.rs")).unwrap());
    assert!(
        !stages.is_empty(),
        "lib.rs's head should hold the stage grid: rows like `//! | blend | `blend.rs` | ... |`"
    );
    let is_stage = |name: &str| stages.contains(&format!("{name}.rs"));
    for (path, stage) in PARTS {
        assert!(root.join(path).is_file() && is_stage(stage), "there is no {path} of {stage}");
    }
    for (path, purpose) in OTHERS {
        assert!(root.join(path).is_file(), "there is no {path} {purpose}");
    }
    let named: Vec<_> = PARTS.iter().chain(&OTHERS).map(|(path, _)| Path::new(path)).collect();
    let folders =
        [("src/backend/cpu/stage", "rs"), ("src/backend/cuda/stage", "rs"), ("kernels", "cu")];
    for (folder, extension) in folders {
        for stage in &stages {
            let file = root.join(folder).join(Path::new(stage).with_extension(extension));
            assert!(file.is_file(), "{} is in the grid only", file.display());
        }
        for entry in fs::read_dir(root.join(folder)).unwrap() {
            let path = entry.unwrap().path();
            let relative = path.strip_prefix(root).unwrap();
            let name = relative.file_stem().unwrap().to_str().unwrap();
            if relative.extension().is_none_or(|found| found != extension) || name == "mod" {
                continue;
            }
            let is_named = named.contains(&relative);
            assert!(
                is_named != is_stage(name),
                "{} should be in lib.rs's table of stages, or in PARTS or OTHERS, and only there",
                relative.display()
            );
        }
    }
}

#[test]
fn the_scanner_sees_what_it_should() {
    let text = "use crate::a::{b, c};\nuse crate::{d, e::{f, g}, h as i,\n    j};\n\
                // use crate::k;\nlet x = crate::l::m(); $crate::n; my_crate::o; pub(crate) use p;";
    let file = &product_files(vec![(PathBuf::from("x.rs"), text.to_owned())])[0];
    assert_eq!(Vec::from_iter(used_modules(file)), ["a", "d", "e", "h", "j", "l"]);
    assert_eq!(modules("pub mod a;\n\n/// x\npub mod b;\nmod c;"), ["a", "b"]);
    let grid = "//! | blend | `math/blend.rs` | `blend.rs` |\n//! see `other.rs`";
    assert_eq!(stage_files(grid), ["blend.rs"]);
    let inner = "use super::x;\nuse super::super::y;\nmod tests {\n    use super::super::z;\n}";
    assert_eq!(climbs(Path::new("a/b.rs"), inner), ["use super::super::y;"]);
    assert_eq!(climbs(Path::new("a/mod.rs"), "use super::x;"), ["use super::x;"]);
}

/// A file of the product and what it imports.
struct File {
    relative: PathBuf,
    /// Path of its module below the crate.
    module: Vec<String>,
    /// Its code without comments, tests and imports.
    body: String,
    imports: Vec<Import>,
}

/// One leaf of a `use` tree.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Import {
    path: Vec<String>,
    name: String,
    is_public: bool,
}

/// The code without comments and without items under `#[cfg(test)]`, and the names of the modules
/// among these items that have files of their own.
fn product(text: &str) -> (String, Vec<String>) {
    let code = code(text);
    let mut kept = String::new();
    let mut test_modules = Vec::new();
    let mut lines = code.lines();
    while let Some(line) = lines.next() {
        if line.trim() != "#[cfg(test)]" {
            kept.push_str(line);
            kept.push('\n');
            continue;
        }
        let indent = &line[..line.len() - line.trim_start().len()];
        let mut item = lines.find(|line| !line.trim_start().starts_with("#["));
        if let Some((_, name)) = item.and_then(|item| item.strip_suffix(';')?.split_once("mod ")) {
            test_modules.push(name.to_owned());
        }
        while item.is_some_and(|item| !item.ends_with(';') && item != format!("{indent}}}")) {
            item = lines.next().filter(|_| item.is_some());
            if item.is_some_and(|item| item.starts_with(&format!("{indent} "))) {
                item = item.map(|item| item.trim_end_matches(';'));
            }
        }
    }
    (kept, test_modules)
}

/// Cuts a list at its commas, but not inside braces.
fn items(list: &str) -> Vec<&str> {
    let (mut depth, mut start, mut found) = (0, 0, Vec::new());
    for (at, letter) in list.char_indices() {
        match letter {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                found.push(&list[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    found.push(&list[start..]);
    found.into_iter().map(str::trim).filter(|item| !item.is_empty()).collect()
}

/// Adds the leaves of a `use` tree such as `a::{self, b as c, d::{e, f}}`.
fn leaves(tree: &str, above: &[String], is_public: bool, found: &mut Vec<Import>) {
    let (path, list) = match tree.split_once('{') {
        Some((path, list)) => (path, list.trim_end().strip_suffix('}')),
        None => (tree, None),
    };
    let (path, alias) = path.split_once(" as ").map_or((path, None), |(a, b)| (a, Some(b.trim())));
    let mut full = above.to_vec();
    full.extend(path.split("::").map(str::trim).filter(|part| !part.is_empty()).map(str::to_owned));
    if let Some(list) = list {
        for item in items(list) {
            leaves(item, &full, is_public, found);
        }
        return;
    }
    let is_whole = full.last().is_some_and(|last| last == "*");
    if full.len() > 1 && (is_whole || full.last().is_some_and(|last| last == "self")) {
        full.pop();
    }
    let last = if is_whole { "*" } else { full.last().map_or("", String::as_str) };
    let name = alias.unwrap_or(last).to_owned();
    found.push(Import { path: full, name, is_public });
}

/// The imports of a file and the rest of its code.
fn imports(code: &str) -> (Vec<Import>, String) {
    let (mut found, mut body) = (Vec::new(), String::new());
    let mut lines = code.lines();
    while let Some(line) = lines.next() {
        let start = line.trim_start();
        let (visibility, tree) = match start.split_once("use ") {
            Some((visibility, tree)) if visibility.is_empty() || visibility.starts_with("pub") => {
                (visibility.trim_end(), tree)
            }
            _ => ("no import", ""),
        };
        if !visibility.is_empty() && visibility != "pub" && !visibility.ends_with(')') {
            body.push_str(line);
            body.push('\n');
            continue;
        }
        let mut tree = tree.to_owned();
        while !tree.ends_with(';') {
            tree.push_str(lines.next().expect("a `use` ends with a semicolon"));
        }
        leaves(tree.trim_end_matches(';'), &[], !visibility.is_empty(), &mut found);
    }
    (found, body)
}

/// Paths like `a::b::C` in code, of at least two parts; not those of a macro's `$crate` or of a
/// visibility.
fn paths(body: &str) -> Vec<Vec<String>> {
    let is_word = |letter: char| letter.is_alphanumeric() || letter == '_';
    let mut found = Vec::new();
    let mut rest = body;
    let mut before = ' ';
    while let Some(start) = rest.find(is_word) {
        if let Some(last) = rest[..start].chars().last() {
            before = last;
        }
        let text = &rest[start..];
        let mut end = text.find(|letter| !is_word(letter)).unwrap_or(text.len());
        let mut path = vec![text[..end].to_owned()];
        while let Some(next) =
            text[end..].strip_prefix("::").filter(|next| next.starts_with(is_word))
        {
            let part = identifier(next);
            end += 2 + part.len();
            path.push(part);
        }
        let names_a_scope = body[..body.len() - text.len()].ends_with("pub(in ");
        if path.len() > 1 && !matches!(before, '$' | ':') && !names_a_scope {
            found.push(path);
        }
        before = text[..end].chars().last().unwrap_or(' ');
        rest = &text[end..];
    }
    found
}

/// The path of the module that a file holds; none for the program itself.
fn module_of(relative: &Path) -> Option<Vec<String>> {
    let path = relative.with_extension("");
    let mut parts: Vec<_> = path.iter().map(|part| part.to_string_lossy().into_owned()).collect();
    if parts == ["main"] {
        return None;
    }
    if parts == ["lib"] || parts.last().is_some_and(|last| last == "mod") {
        parts.pop();
    }
    Some(parts)
}

/// The files of the product among these: without those of tests.
fn product_files(sources: Vec<(PathBuf, String)>) -> Vec<File> {
    let mut files = Vec::new();
    let mut of_tests = Vec::new();
    for (relative, text) in sources {
        let Some(module) = module_of(&relative) else { continue };
        let (code, test_modules) = product(&text);
        for name in test_modules {
            let mut path = module.clone();
            path.push(name);
            of_tests.push(path);
        }
        let (imports, body) = imports(&code);
        files.push(File { relative, module, body, imports });
    }
    files.retain(|file| !of_tests.iter().any(|test| file.module.starts_with(test)));
    files
}

fn file_of(files: &[File], module: &[String]) -> Option<usize> {
    files.iter().position(|file| file.module == module)
}

/// True for the module of a file, and for one that its parent declares with the files in it.
fn is_module(files: &[File], path: &[String]) -> bool {
    files.iter().any(|file| file.module.starts_with(path))
}

/// The module that holds what a path leads to when it stands in a file, through modules that only
/// pass it on; none for other crates. `hops` ends chains that lead nowhere.
fn module_with(
    files: &[File],
    from: &[String],
    path: &[String],
    hops: usize,
) -> Option<Vec<String>> {
    let (mut at, mut rest) = (from.to_vec(), path);
    match path.first()?.as_str() {
        "crate" => (at, rest) = (Vec::new(), &path[1..]),
        "self" => rest = &path[1..],
        "super" => {}
        head => {
            let child = [from, &[head.to_owned()]].concat();
            if !is_module(files, &child) {
                return None;
            }
        }
    }
    while let Some((part, behind)) = rest.split_first() {
        if part == "super" {
            at.pop();
            rest = behind;
            continue;
        }
        let child = [at.as_slice(), std::slice::from_ref(part)].concat();
        if is_module(files, &child) {
            (at, rest) = (child, behind);
            continue;
        }
        let holder = &files[file_of(files, &at)?];
        let passed_on = holder.imports.iter().find(|import| import.name == *part);
        match passed_on.filter(|_| hops > 0) {
            Some(import) => {
                at = module_with(files, &at, &import.path, hops - 1)?;
                // The name may be that of a module, whose contents follow.
                let names_module = at.last() == import.path.last();
                rest = if names_module { behind } else { &[] };
            }
            None => {
                at = passed_on_whole(files, &at, part).unwrap_or(at);
                break;
            }
        }
    }
    Some(at)
}

/// The module below this one that declares a name, where this one passes on all that it has.
fn passed_on_whole(files: &[File], at: &[String], name: &str) -> Option<Vec<String>> {
    let whole = files[file_of(files, at)?].imports.iter().filter(|import| import.name == "*");
    whole.filter_map(|import| module_with(files, at, &import.path, 0)).find(|module| {
        let file = file_of(files, module).map(|file| &files[file]);
        file.is_some_and(|file| {
            ["struct", "enum", "trait", "fn", "const", "type"]
                .iter()
                .any(|kind| file.body.contains(&format!("{kind} {name}")))
        })
    })
}

/// For each file the files that it imports from.
///
/// Counted are the leaves of all `use` trees and all paths in the code that begin with `crate`,
/// `self`, `super` or a module below the file's own. What a module passes on by a `use` of its own
/// counts as imported from the file that holds it. A `pub use` counts where the file uses the name
/// itself, else it only passes it on. Not counted are comments, what stands under `#[cfg(test)]`,
/// and `$crate` in macros.
fn arrows(files: &[File]) -> Vec<Vec<usize>> {
    let arrows_of = |(own, file): (usize, &File)| {
        let is_word = |letter: char| letter.is_alphanumeric() || letter == '_';
        let is_used = |name: &str| {
            file.body.match_indices(name).any(|(at, _)| {
                let (before, behind) = (&file.body[..at], &file.body[at + name.len()..]);
                !before.ends_with(is_word)
                    && !before.ends_with("::")
                    && !behind.starts_with(is_word)
            })
        };
        let imported = file.imports.iter();
        let imported = imported.filter(|import| !import.is_public || is_used(&import.name));
        let mut used: Vec<_> = imported
            .map(|import| import.path.clone())
            .chain(paths(&file.body))
            .filter_map(|path| module_with(files, &file.module, &path, 8))
            .filter_map(|module| file_of(files, &module))
            .filter(|&other| other != own)
            .collect();
        used.sort_unstable();
        used.dedup();
        used
    };
    files.iter().enumerate().map(arrows_of).collect()
}

/// Groups of files of which each imports, by way of others, each.
fn circles(arrows: &[Vec<usize>]) -> Vec<Vec<usize>> {
    let reached = |start: usize| {
        let mut seen = vec![false; arrows.len()];
        let mut open = arrows[start].clone();
        while let Some(file) = open.pop() {
            if !std::mem::replace(&mut seen[file], true) {
                open.extend(&arrows[file]);
            }
        }
        seen
    };
    let reached: Vec<_> = (0..arrows.len()).map(reached).collect();
    let mut found = Vec::new();
    for (first, from_first) in reached.iter().enumerate() {
        let circle: Vec<_> =
            (0..arrows.len()).filter(|&file| from_first[file] && reached[file][first]).collect();
        if circle.first() == Some(&first) {
            found.push(circle);
        }
    }
    found
}

/// Crates in which a file is a whole format or algorithm, and files of a folder use one another.
const WHOLE: [&str; 2] = ["src/crates/formats/src", "src/crates/mesh/src"];

#[test]
fn no_files_import_one_another_in_a_circle() {
    for folder in SOURCES.into_iter().filter(|folder| !WHOLE.contains(folder)) {
        let files = product_files(files_below(&Path::new(env!("CARGO_MANIFEST_DIR")).join(folder)));
        let arrows = arrows(&files);
        // A small crate has fewer imports between its files than files.
        let count = arrows.iter().map(Vec::len).sum::<usize>();
        assert!(2 * count > files.len(), "no imports are seen");
        let circles = circles(&arrows);
        let mut shown = String::new();
        for circle in &circles {
            shown += &format!("\na circle of {} files:\n", circle.len());
            for &file in circle {
                let inside = arrows[file].iter().filter(|other| circle.contains(other));
                let inside: Vec<_> = inside.map(|&other| files[other].relative.display()).collect();
                shown += &format!("  {} uses {inside:?}\n", files[file].relative.display());
            }
        }
        assert!(circles.is_empty(), "{folder}: {} circles of imports:{shown}", circles.len());
    }
}

/// Rooms and files of a backend from the lowest up; all others of its folder stand above them.
const FLOORS: [(&str, &[&str]); 2] = [
    (
        "backend/cuda",
        &["device", "memory", "primitive", "session", "model", "photos", "prelude", "stage"],
    ),
    ("backend/cpu", &["packed", "model", "primitive", "stage"]),
];

#[test]
fn rooms_of_a_backend_use_only_those_below_them() {
    let files = product_files(files_below(&source()));
    let arrows = arrows(&files);
    let mut wrong = Vec::new();
    for (folder, floors) in FLOORS {
        for floor in floors {
            let path = source().join(folder).join(floor);
            assert!(path.is_dir() || path.with_extension("rs").is_file(), "{}", path.display());
        }
        let floor = |file: &File| {
            let room = file.relative.strip_prefix(folder).ok()?.iter().next()?;
            let room = Path::new(room).with_extension("");
            Some(floors.iter().position(|&name| room == Path::new(name)).unwrap_or(floors.len()))
        };
        for (file, used) in files.iter().zip(&arrows) {
            for other in used.iter().map(|&other| &files[other]) {
                if floor(other).zip(floor(file)).is_some_and(|(other, own)| other > own) {
                    wrong.push(format!(
                        "{} uses {}",
                        file.relative.display(),
                        other.relative.display()
                    ));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "from below:\n{}", wrong.join("\n"));
}

#[test]
fn a_circle_is_seen_through_what_modules_pass_on() {
    let file = |path: &str, text: &str| (PathBuf::from(path), text.to_owned());
    let seen = |sources: &[(PathBuf, String)]| {
        let files = product_files(sources.to_vec());
        let names = |circle: Vec<usize>| {
            circle.into_iter().map(|file| files[file].relative.clone()).collect::<Vec<_>>()
        };
        circles(&arrows(&files)).into_iter().map(names).collect::<Vec<_>>()
    };
    let head = file("lib.rs", "pub mod a;\npub mod d;");
    let room =
        file("a/mod.rs", "mod b;\nmod c;\n\npub use b::{B, more::{self, M}};\npub use c::C;");
    let b = file(
        "a/b.rs",
        "pub struct B(super::C);\n#[cfg(test)]\nmod tests {\n    use crate::d::D;\n}",
    );
    let c = file("a/c.rs", "// use super::B;\npub struct C;");
    let d = file("d.rs", "use crate::{a::{B as Other, C}};\npub struct D(Other, C);");
    let tree = [head, room, b, c, d];
    assert_eq!(seen(&tree), Vec::<Vec<PathBuf>>::new());
    let replaced = |at: usize, text: &str| {
        let mut tree = tree.clone();
        tree[at].1 = text.to_owned();
        seen(&tree)
    };
    let of = |paths: &[&str]| vec![paths.iter().map(PathBuf::from).collect::<Vec<_>>()];
    let two = of(&["a/b.rs", "a/c.rs"]);
    assert_eq!(replaced(3, "use super::B;\npub struct C;"), two);
    assert_eq!(replaced(3, "use crate::{d, a::{\n    self, B,\n}};\npub struct C;").len(), 1);
    assert_eq!(replaced(3, "pub struct C;\nfn f() { super::b::f(); }"), two);
    assert_eq!(replaced(3, "use crate::d::D;\npub struct C;"), of(&["a/b.rs", "a/c.rs", "d.rs"]));
    let uses_child = "mod b;\nmod c;\npub use c::C;\npub struct Own;\nfn f() { b::f(); }";
    assert_eq!(replaced(1, uses_child), Vec::<Vec<PathBuf>>::new());
    let mut uses_parent = tree.clone();
    uses_parent[1].1 = uses_child.to_owned();
    uses_parent[2].1 = "use super::Own;".to_owned();
    assert_eq!(seen(&uses_parent), of(&["a/mod.rs", "a/b.rs"]));
    // A module without a file of its own.
    let mut declared = vec![file("lib.rs", "pub mod a {\n    mod b;\n    mod c;\n}\npub mod d;")];
    declared.extend([
        file("a/b.rs", "use crate::a::c::C;"),
        file("a/c.rs", "use super::b::B;"),
        tree[4].clone(),
    ]);
    assert_eq!(seen(&declared), of(&["a/b.rs", "a/c.rs"]));
}

/// Whoever has a GPU runs the ignored tests of the program `gpu`: others would be forgotten.
#[test]
fn tests_that_are_ignored_stand_in_the_program_for_gpus() {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let is_marked = |(_, text): &(PathBuf, String)| {
        ["#[ignore", "each_backend"].iter().any(|&mark| text.contains(mark))
    };
    let mut found =
        ["spec", "program", "house"].map(|name| files_below(&tests.join(name))).concat();
    // `.ci/release` runs the targets that fuzz.
    let others = [Path::new("layers.rs"), Path::new("fuzz.rs")];
    found.retain(|file| is_marked(file) && !others.contains(&file.0.as_path()));
    let found: Vec<_> = found.into_iter().map(|(path, _)| path).collect();
    assert!(found.is_empty(), "ignored tests outside of tests/gpu: {found:?}");
    assert!(files_below(&tests.join("gpu")).iter().any(is_marked), "the marks are out of date");
}
