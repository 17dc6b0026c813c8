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
        let is_kernel = line.starts_with(' ') && line.contains("(const __grid_constant__");
        if !is_kernel && !line.starts_with("__device__ inline") {
            continue;
        }
        let name = line.split('(').next().unwrap().rsplit(' ').next().unwrap();
        let body = &text[start..];
        let end = if line.ends_with('}') { line.len() } else { body.find("\n}").unwrap() };
        functions.push((name.to_owned(), body[..end].to_owned()));
    }
    functions
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
