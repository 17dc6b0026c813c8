//! The text of the kernels, to see which functions there are and what they call.

use std::fs;
use std::path::Path;

/// Device functions and kernels of a file of `kernels/`, with their text.
pub(super) fn functions_of(file: &str) -> Vec<(String, String)> {
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("kernels").join(file));
    let text = text.unwrap();
    let mut functions = Vec::new();
    for (start, line) in text.match_indices('\n').map(|(end, _)| (end + 1, &text[end + 1..])) {
        let line = line.lines().next().unwrap_or("");
        let is_kernel = line.starts_with(' ')
            && line.contains("(const __grid_constant__")
            && !line.ends_with('\\');
        if !is_kernel && !line.starts_with("__device__ inline") {
            continue;
        }
        let name = line.split('(').next().unwrap().rsplit(' ').next().unwrap();
        let body = &text[start..];
        let end = if line.ends_with('}') { line.len() } else { body.find("\n}").unwrap() };
        functions.push((name.to_owned(), body[..end].to_owned()));
    }
    functions.extend(kernels_of_macros(&text));
    functions
}

/// Kernels that a macro makes, whose first argument is the name: `BLEND_BWD(blend_bwd, ..)`.
fn kernels_of_macros(text: &str) -> Vec<(String, String)> {
    let mut kernels = Vec::new();
    for (start, define) in text.match_indices("#define ") {
        let body = &text[start + define.len()..];
        let Some((name, _)) = body.split_once("(NAME,") else { continue };
        let lines = body.lines().scan(true, |goes_on, line| {
            let is_part = std::mem::replace(goes_on, line.ends_with('\\'));
            is_part.then_some(line)
        });
        let body = lines.collect::<Vec<_>>().join("\n");
        let rows = text.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix('('));
        let kernel = |row: &str| row.split(',').next().unwrap().to_owned();
        kernels.extend(rows.map(|row| (kernel(row), body.clone())));
    }
    kernels
}

/// Whether a text calls a function: names the whole of it before a parenthesis or the arguments of a
/// template.
pub(super) fn calls(text: &str, function: &str) -> bool {
    text.match_indices(function).any(|(at, _)| {
        let before = text[..at].chars().next_back();
        before.is_none_or(|before| !before.is_alphanumeric() && before != '_')
            && text[at + function.len()..].starts_with(['(', '<'])
    })
}
