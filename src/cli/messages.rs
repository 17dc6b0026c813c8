//! Each message that users see, for the reviewed snapshot `tests/snapshots/messages.snap`.
//!
//! After a change: `INSTA_UPDATE=always cargo test --lib messages`, then read the difference.

mod commands;
mod crates;
mod program;

use std::fmt::{Display, Write as _};
use std::io;

use super::{doctor, next, train};
use crate::telemetry::closing_blocks;

/// A heading and the messages below it.
type Section = (String, Vec<String>);

/// Most letters of an error message.
const MOST: usize = 200;

fn section(name: &str, messages: &[&dyn Display]) -> Section {
    (name.to_owned(), messages.iter().map(ToString::to_string).collect())
}

fn denied() -> io::Error {
    io::Error::from(io::ErrorKind::PermissionDenied)
}

/// All errors, by type.
fn errors() -> Vec<Section> {
    [commands::errors(), program::errors(), crates::errors()].concat()
}

/// Lines of a run and of `splat doctor`.
fn others() -> Vec<Section> {
    let mut sections = commands::parser_errors();
    sections.push(("First line of a run".to_owned(), train::run_lines()));
    let blocks = closing_blocks().into_iter();
    sections.extend(blocks.map(|(name, lines)| (format!("End of {name}"), lines)));
    let rows = next::tests::samples().into_iter();
    sections.extend(rows.map(|(name, lines)| (format!("Commands after a run {name}"), lines)));
    let machines = doctor::samples().into_iter();
    sections.extend(machines.map(|(name, lines)| (format!("Doctor: {name}"), lines)));
    sections
}

#[test]
fn messages_are_as_reviewed() {
    let mut text = String::new();
    for (name, messages) in errors().iter().chain(&others()) {
        writeln!(text, "\n## {name}\n").unwrap();
        messages.iter().for_each(|message| writeln!(text, "{message}").unwrap());
    }
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/snapshots");
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path(folder);
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.bind(|| insta::assert_snapshot!("messages", text));
}

#[test]
fn errors_of_commands_end_with_a_remedy() {
    let has_remedy = |message: &String| {
        let sentences = message.rsplit_once(". ").or_else(|| message.rsplit_once("? "));
        let names_values = ["; allowed: ", ": must be "].iter().any(|it| message.contains(it));
        sentences.is_some_and(|(_, last)| last.starts_with(char::is_uppercase)) || names_values
    };
    let errors = commands::errors().into_iter().flat_map(|(_, errors)| errors);
    let without: Vec<String> = errors.filter(|message| !has_remedy(message)).collect();
    assert!(without.is_empty(), "{without:#?}");
}

#[test]
fn errors_are_short_and_single_lines() {
    // The parser of TOML shows the place in the file. Below a run without memory stands a table.
    let has_lines = |message: &str| {
        ["not valid TOML", "Nothing more can be given up"].iter().any(|it| message.contains(it))
    };
    let is_long = |line: &str| line.chars().count() > MOST;
    let long: Vec<String> = errors()
        .into_iter()
        .flat_map(|(_, messages)| messages)
        .filter(|message| {
            message.lines().any(is_long) || (message.contains('\n') && !has_lines(message))
        })
        .collect();
    assert!(long.is_empty(), "{} messages:\n{}", long.len(), long.join("\n"));
}
