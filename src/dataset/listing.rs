//! Lists of names in messages.

/// Photographs that a warning or an error names.
const NAMED: usize = 3;

/// The first few of a list, and how many more there are.
pub(super) fn first_few(items: &[String]) -> String {
    let mut text = items.iter().take(NAMED).cloned().collect::<Vec<_>>().join(", ");
    if items.len() > NAMED {
        text += &format!(" and {} more", items.len() - NAMED);
    }
    text
}
