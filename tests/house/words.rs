//! The text that users read: how long it is, how sentences begin, which links and commands it holds.

use std::fs;
use std::path::{Path, PathBuf};

use assert_cmd::Command;
use splat::guide::GUIDES;

/// Words that no sentence begins with: they stand in the place of a noun or a verb.
const OPENINGS: [&str; 11] = [
    "What", "Whether", "Of", "The same", "Those", "That", "Where", "How many", "How much", "How",
    "So",
];

/// Most lines of a text.
const LIMITS: [(&str, usize); 2] = [("README.md", 250), ("benches/README.md", 250)];
const GUIDE_LINES: usize = 200;
const MESSAGE_LETTERS: usize = 200;
const SHORT_HELP_LINES: usize = 45;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The README, the figures and the guides, by path relative to the root.
fn texts() -> Vec<(PathBuf, String)> {
    let guides = GUIDES.map(|guide| format!("src/guide/{}.md", guide.topic));
    let files = LIMITS.map(|(file, _)| file.to_owned()).into_iter().chain(guides);
    files
        .map(|file| (PathBuf::from(&file), fs::read_to_string(root().join(&file)).unwrap()))
        .collect()
}

/// The lines of a text that are no code.
fn prose(text: &str) -> Vec<&str> {
    let mut is_code = false;
    text.lines()
        .filter(|line| {
            let is_fence = line.starts_with("```");
            is_code ^= is_fence;
            !is_fence && !is_code
        })
        .collect()
}

/// Beginnings of the sentences, headings, list items and cells of a line that follows `before`.
fn starts<'a>(line: &'a str, before: &str) -> Vec<&'a str> {
    let text = line.trim_start_matches([' ', '#', '-', '>', '|', '*']);
    let before = before.trim_end();
    let begins = before.is_empty() || before.ends_with(['.', ':', '|', '!', '?']) || text != line;
    let mut found = if begins { vec![text] } else { Vec::new() };
    for separator in [". ", ": ", "? ", "! ", "| "] {
        found.extend(text.match_indices(separator).map(|(at, _)| &text[at + separator.len()..]));
    }
    found.into_iter().map(|start| start.trim_start_matches(['*', '|', ' '])).collect()
}

/// The sentences of a text that begin with one of the words.
fn bad_openings(lines: &[&str]) -> Vec<String> {
    let begins_badly = |start: &str| {
        OPENINGS.iter().any(|opening| {
            let rest = start.strip_prefix(opening);
            rest.is_some_and(|rest| !rest.starts_with(|letter: char| letter.is_alphanumeric()))
        })
    };
    let mut before = "";
    let mut found = Vec::new();
    for &line in lines {
        found.extend(
            starts(line, before)
                .into_iter()
                .filter(|start| begins_badly(start))
                .map(|start| start.chars().take(60).collect()),
        );
        before = line;
    }
    found
}

/// The messages that users see, a line each.
fn messages() -> Vec<String> {
    let path = root().join("tests/snapshots/messages.snap");
    let snapshot = fs::read_to_string(path).unwrap();
    // The head of the file is insta's.
    let (_, text) = snapshot.trim_start_matches("---").split_once("\n---\n").unwrap();
    let lines: Vec<String> = text.lines().map(str::to_owned).collect();
    assert!(lines.len() > 300, "{} lines", lines.len());
    lines
}

/// A message without its path and the name before it: `PATH, line 3: text`.
fn without_path(message: &str) -> &str {
    let level = message.strip_prefix("warning: ").unwrap_or(message);
    match level.split_once(": ") {
        Some((path, text)) if path.contains(['/', '.']) => text,
        _ => level,
    }
}

fn splat(args: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_splat")).args(args).output().unwrap();
    assert!(output.status.success(), "splat {args:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// The commands that the program lists.
fn commands() -> Vec<String> {
    let help = splat(&["-h"]);
    let listed = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    listed
        .take_while(|line| !line.is_empty())
        .map(|line| line.split_whitespace().next().unwrap().to_owned())
        .collect()
}

#[test]
fn texts_are_short() {
    for (file, limit) in LIMITS {
        let lines = fs::read_to_string(root().join(file)).unwrap().lines().count();
        assert!(lines <= limit, "{file}: {lines} lines, at most {limit}");
    }
    for guide in GUIDES {
        let lines = guide.markdown.lines().count();
        assert!(lines <= GUIDE_LINES, "{}: {lines} lines, at most {GUIDE_LINES}", guide.topic);
    }
    let mut names = commands();
    assert!(names.len() > 15, "{names:?}");
    names.push(String::new());
    for name in names {
        let args: Vec<&str> = name.split_whitespace().chain(["-h"]).collect();
        let lines = splat(&args).lines().count();
        assert!(
            lines <= SHORT_HELP_LINES,
            "splat {args:?}: {lines} lines, at most {SHORT_HELP_LINES}"
        );
    }
}

#[test]
fn sentences_begin_with_their_subject_or_verb() {
    let mut wrong = Vec::new();
    for (file, text) in texts() {
        let found = bad_openings(&prose(&text));
        wrong.extend(found.into_iter().map(|start| format!("{}: {start}", file.display())));
    }
    for name in commands() {
        let help = splat(&[&name, "--help"]);
        // The help of an option begins below its flags.
        let below = |line: &str| if line.starts_with('-') { vec![""] } else { Vec::new() };
        let lines = help.lines().map(str::trim_start);
        let lines: Vec<&str> = lines.flat_map(|line| [vec![line], below(line)].concat()).collect();
        let found = bad_openings(&lines);
        wrong.extend(found.into_iter().map(|start| format!("splat {name} --help: {start}")));
    }
    assert!(wrong.is_empty(), "{} sentences:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn messages_are_short_and_begin_with_their_subject_or_verb() {
    let messages = messages();
    let long: Vec<&String> =
        messages.iter().filter(|line| line.chars().count() > MESSAGE_LETTERS).collect();
    assert!(long.is_empty(), "{} lines:\n{long:#?}", long.len());
    // Each line is a text of its own.
    let found: Vec<String> =
        messages.iter().flat_map(|line| bad_openings(&[without_path(line)])).collect();
    assert!(found.is_empty(), "{} sentences:\n{}", found.len(), found.join("\n"));
}

#[test]
fn links_lead_to_files_and_headings_that_exist() {
    let mut count = 0;
    for (file, text) in texts() {
        let folder = root().join(&file).parent().unwrap().to_owned();
        for (at, _) in text.match_indices("](") {
            let target = text[at + 2..].split(')').next().unwrap();
            if target.starts_with("http") {
                continue;
            }
            let path = target.split('#').next().unwrap();
            assert!(folder.join(path).is_file(), "{}: {target} is missing", file.display());
            count += 1;
        }
    }
    assert!(count > 40, "{count} links are seen");
}

#[test]
fn pictures_are_small() {
    let folder = root().join("src/guide/images");
    let sizes: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap())
        .map(|entry| (entry.file_name(), entry.metadata().unwrap().len()))
        .collect();
    assert!(sizes.len() >= 2, "{sizes:?}");
    assert!(sizes.iter().all(|(_, bytes)| *bytes < 200_000), "{sizes:?}");
}

#[test]
fn openings_are_seen_wherever_a_sentence_begins() {
    let text = "# What it is\nA line, and\nSo does this. Those do not.\n- Of all\n| a | The same |\n```\nHow\n```\nOffset";
    assert_eq!(bad_openings(&prose(text)), ["What it is", "Those do not.", "Of all", "The same |"]);
}
