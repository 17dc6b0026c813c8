//! No function of the program takes a tuple: what belongs together has a type with named fields, and
//! what does not is two parameters.

use std::path::Path;

use super::layers::{SOURCES, code, identifier, sources_of};

/// Whether a file holds nothing but tests.
fn is_of_tests(relative: &Path) -> bool {
    let stem = |part: &Path| part.file_stem().unwrap().to_str().unwrap().ends_with("tests");
    relative.components().any(|part| stem(Path::new(part.as_os_str())))
}

/// The text before the tests at the end of a file.
fn product(text: &str) -> &str {
    text.split("\n#[cfg(test)]\nmod tests {").next().unwrap()
}

/// The parts of a text between commas that no bracket encloses, up to the bracket that closes it.
fn parts(text: &str) -> Vec<&str> {
    let (mut depth, mut first, mut before, mut found) = (0, 0, ' ', Vec::new());
    for (at, letter) in text.char_indices() {
        match letter {
            '(' | '[' | '{' | '<' => depth += 1,
            ')' | ']' | '}' if depth == 0 => {
                found.push(&text[first..at]);
                break;
            }
            ')' | ']' | '}' => depth -= 1,
            '>' if before != '-' && before != '=' => depth -= 1,
            ',' if depth == 0 => {
                found.push(&text[first..at]);
                first = at + 1;
            }
            _ => {}
        }
        before = letter;
    }
    found.retain(|part| !part.trim().is_empty());
    found
}

/// The parameters of the function whose text goes on so after its name.
fn parameters(text: &str) -> Vec<&str> {
    let mut depth = 0;
    let mut before = ' ';
    for (at, letter) in text.char_indices() {
        match letter {
            '<' => depth += 1,
            '>' if before != '-' => depth -= 1,
            '(' if depth == 0 => return parts(&text[at + 1..]),
            _ => {}
        }
        before = letter;
    }
    Vec::new()
}

/// Whether a parameter is a tuple, or borrows one.
fn is_tuple(parameter: &str) -> bool {
    // A pattern ends before the first colon that no bracket encloses.
    let mut depth = 0;
    let colon = parameter.char_indices().find(|&(_, letter)| {
        depth += i32::from("([{".contains(letter)) - i32::from(")]}".contains(letter));
        letter == ':' && depth == 0
    });
    let Some((colon, _)) = colon else { return false };
    let mut kind = parameter[colon + 1..].trim();
    while let Some(borrowed) = kind.strip_prefix('&') {
        kind = borrowed.trim_start();
        if kind.starts_with('\'') {
            kind = kind.split_once(' ').map_or("", |(_, rest)| rest);
        }
        kind = kind.strip_prefix("mut ").unwrap_or(kind);
    }
    kind.strip_prefix('(').is_some_and(|inner| parts(inner).len() > 1)
}

/// The functions of a text that take tuples.
fn with_tuples(text: &str) -> Vec<String> {
    let code = code(text);
    let mut found = Vec::new();
    for (at, word) in code.match_indices("fn ") {
        let follows =
            code[..at].ends_with(|letter: char| letter.is_alphanumeric() || letter == '_');
        let rest = &code[at + word.len()..];
        let name = identifier(rest);
        if follows || name.is_empty() {
            continue;
        }
        if parameters(&rest[name.len()..]).iter().any(|parameter| is_tuple(parameter)) {
            found.push(name);
        }
    }
    found
}

#[test]
fn no_parameter_is_a_tuple() {
    let mut wrong = Vec::new();
    for (relative, text) in SOURCES.into_iter().flat_map(sources_of) {
        if is_of_tests(&relative) {
            continue;
        }
        for name in with_tuples(product(&text)) {
            wrong.push(format!("{}: {name}", relative.display()));
        }
    }
    let advice = "name the parts in a struct, or take two parameters";
    assert!(wrong.is_empty(), "{advice}:\n{}", wrong.join("\n"));
}

#[test]
fn tuples_are_found_wherever_they_stand() {
    let text = "
        fn plain(a: u32, [b, c]: [u32; 2], d: impl Fn(u32, u32) -> (u32, u32)) -> (u32, u32) {}
        fn listed(pairs: &[(&str, f64)], Pair { x, y }: Pair, unit: ()) {}
        fn pattern((a, b): (u32, u32)) {}
        fn borrowed<'a, T: Fn(u32) -> u32>(&self, both: &'a mut (T, T)) {}
        fn last(
            a: HashMap<u32, u32>, // (u32, u32)
            (near, far): (&Block<f32>, Option<&mut [u32]>),
        ) {}
    ";
    assert_eq!(with_tuples(text), ["pattern", "borrowed", "last"]);
}
