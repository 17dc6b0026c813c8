//! Markdown for terminals and for `man`.

use termimad::MadSkin;

/// Columns of a manual page without its margins.
const MANUAL_WIDTH: usize = 72;

/// Replaces `[text](TOPIC.md)` by the text and the command that prints the guide.
pub(super) fn linked(markdown: &str) -> String {
    let mut text = String::with_capacity(markdown.len());
    let mut rest = markdown;
    while let Some((before, link)) = rest.split_once('[') {
        text.push_str(before);
        let parts = link.split_once("](").and_then(|(name, after)| {
            let (target, after) = after.split_once(".md)")?;
            let is_topic = target.chars().all(|letter| letter.is_ascii_lowercase());
            (is_topic && !name.contains('\n')).then_some((target, after))
        });
        match parts {
            Some((target, after)) => {
                text.push_str(&format!("`splat help {target}`"));
                rest = after;
            }
            None => {
                text.push('[');
                rest = link;
            }
        }
    }
    text + rest
}

/// Renders Markdown for a terminal.
pub(super) fn terminal(markdown: &str, width: usize, has_colors: bool) -> String {
    let skin = if has_colors { colored() } else { MadSkin::no_style() };
    skin.text(markdown, Some(width)).to_string()
}

/// Returns a skin with headings at the left margin.
fn colored() -> MadSkin {
    let mut skin = MadSkin::default();
    for header in &mut skin.headers {
        header.align = termimad::Alignment::Left;
    }
    skin
}

/// Renders Markdown as a page of section 7: each heading is a section of preformatted text.
pub(super) fn manual(topic: &str, markdown: &str) -> String {
    let mut page = format!(".TH splat\\-{topic} 7\n.SH NAME\n");
    let mut sections = markdown.split("\n## ");
    let first = sections.next().unwrap_or_default();
    let (title, intro) = first.split_once('\n').unwrap_or((first, ""));
    page.push_str(&format!("splat\\-{topic} \\- {}\n", escaped(title.trim_start_matches("# "))));
    push_section(&mut page, "DESCRIPTION", intro);
    for section in sections {
        let (heading, body) = section.split_once('\n').unwrap_or((section, ""));
        push_section(&mut page, heading, body);
    }
    page
}

fn push_section(page: &mut String, heading: &str, body: &str) {
    page.push_str(&format!(".SH \"{}\"\n.nf\n", escaped(&heading.replace('"', "'"))));
    for line in terminal(body.trim(), MANUAL_WIDTH, false).lines() {
        page.push_str(&escaped(line.trim_end()));
        page.push('\n');
    }
    page.push_str(".fi\n");
}

/// Escapes a line for roff.
fn escaped(line: &str) -> String {
    let line = line.replace('\\', "\\e").replace('-', "\\-");
    if line.starts_with(['.', '\'']) { format!("\\&{line}") } else { line }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_between_guides_become_commands_and_other_brackets_stay() {
        let text = "see [memory](memory.md), `[0, 1]`, [a](https://b.c) and [export](export.md).";
        assert_eq!(
            linked(text),
            "see `splat help memory`, `[0, 1]`, [a](https://b.c) and `splat help export`."
        );
    }

    #[test]
    fn roff_sees_no_command_in_a_line_of_text() {
        assert_eq!(escaped(".ply -m \\x"), "\\&.ply \\-m \\ex");
    }

    #[test]
    fn a_terminal_without_colours_gets_no_escape_sequence() {
        let text = "# Title\n\n| a | b |\n|---|---|\n| `c` | **d** |\n\n```sh\nsplat x\n```\n";
        assert!(!terminal(text, 80, false).contains('\u{1b}'));
        assert!(terminal(text, 80, true).contains('\u{1b}'));
    }
}
