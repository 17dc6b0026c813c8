//! A comparison as tables, plain or in Markdown.

use serde_json::Value;

use super::comparison::{ComparedFigure, Comparison, Verdict, percent};
use super::figures::Figure;

/// What tables look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Style {
    /// Columns of spaces.
    Plain,
    /// Those of GitHub.
    Markdown,
}

/// Stands where a run has no such figure.
const ABSENT: &str = "-";

/// Longest cell in characters. Longer ones end with the number of their values or characters.
const MOST_LETTERS: usize = 60;

/// Shares of a per cent below this are shown as none.
const SHOWN_PERCENT: f64 = 0.005;

/// The comparison as people read it.
pub(super) fn of(comparison: &Comparison<'_>, style: Style) -> String {
    let mut text = figures(comparison).render(style);
    text.push_str("\n\n↑ higher is better, ↓ lower is better");
    if comparison.lost_quality().is_some() {
        text.push_str(", ! worse by more than the tolerance");
    }
    if !comparison.differences.is_empty() {
        text.push_str("\n\n");
        text.push_str(&differences(comparison).render(style));
    }
    let notes: Vec<String> = comparison
        .runs
        .iter()
        .flat_map(|run| run.notes.iter().map(move |note| format!("{}: {note}", run.path)))
        .collect();
    if !notes.is_empty() {
        let bullet = if style == Style::Markdown { "- " } else { "" };
        text.push('\n');
        notes.iter().for_each(|note| text.push_str(&format!("\n{bullet}{note}")));
    }
    if comparison.within_tolerance == Some(true) {
        text.push_str(&format!(
            "\n\nquality: no run is worse than {} by more than {}",
            comparison.baseline, comparison.tolerance
        ));
    }
    text
}

/// A row for each figure that any run has, a column for each run, and for its changes.
fn figures(comparison: &Comparison<'_>) -> TextTable {
    let mut order: Vec<&Figure> = Vec::new();
    for run in &comparison.runs {
        let mut after = 0;
        for ComparedFigure { figure, .. } in &run.figures {
            match order.iter().position(|it| it.key == figure.key) {
                Some(place) => after = place + 1,
                // Where the run has it, between those that others have, too.
                None => {
                    order.insert(after, figure);
                    after += 1;
                }
            }
        }
    }
    let mut head = vec![String::new()];
    for (place, run) in comparison.runs.iter().enumerate() {
        head.push(run.path.to_owned());
        if place > 0 {
            head.push("change".to_owned());
        }
    }
    let row = |figure: &&Figure| {
        let mut cells = vec![format!("{}{}", figure.title, figure.better.arrow())];
        for (place, run) in comparison.runs.iter().enumerate() {
            let found = run.figures.iter().find(|compared| compared.figure.key == figure.key);
            cells.push(found.map_or(ABSENT.to_owned(), |it| figure.unit.text(it.value)));
            if place > 0 {
                cells.push(found.map_or(ABSENT.to_owned(), change));
            }
        }
        cells
    };
    let rows = order.iter().map(row).collect();
    TextTable { head, rows }
}

fn change(compared: &ComparedFigure) -> String {
    let Some(change) = compared.change_percent else { return ABSENT.to_owned() };
    let is_lost = compared.verdict == Some(Verdict::OutsideTolerance);
    let text = match change {
        _ if !change.is_finite() => ABSENT.to_owned(),
        _ if change.abs() < SHOWN_PERCENT && !is_lost => "0.00%".to_owned(),
        _ => percent(change),
    };
    if is_lost { text + " !" } else { text }
}

/// What the runs were not alike in.
fn differences(comparison: &Comparison<'_>) -> TextTable {
    let mut head = vec!["differences".to_owned()];
    head.extend(comparison.runs.iter().map(|run| run.path.to_owned()));
    let row = |(key, values): (&String, &Vec<Value>)| {
        let mut cells = vec![key.clone()];
        cells.extend(values.iter().map(cell));
        cells
    };
    TextTable { head, rows: comparison.differences.iter().map(row).collect() }
}

/// Returns a value as one line of at most [`MOST_LETTERS`] characters.
fn cell(value: &Value) -> String {
    let (text, count) = match value {
        Value::Null => return ABSENT.to_owned(),
        Value::String(text) => (text.clone(), None),
        Value::Array(values) => (value.to_string(), Some(values.len())),
        other => (other.to_string(), None),
    };
    let letters = text.chars().count();
    if letters <= MOST_LETTERS {
        return text;
    }
    let size = match count {
        Some(values) => format!("... ({values} values)"),
        None => format!("... ({letters} characters)"),
    };
    text.chars().take(MOST_LETTERS - size.len()).collect::<String>() + &size
}

/// Cells with a head above them. The first column is left-aligned, the others are right-aligned.
struct TextTable {
    head: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl TextTable {
    fn render(&self, style: Style) -> String {
        match style {
            Style::Plain => self.plain(),
            Style::Markdown => self.markdown(),
        }
    }

    fn plain(&self) -> String {
        let lines = || [&self.head].into_iter().chain(&self.rows);
        let width =
            |column: usize| lines().map(|line| line[column].chars().count()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..self.head.len()).map(width).collect();
        let line = |cells: &Vec<String>| {
            let mut text = String::new();
            for (place, (cell, &width)) in cells.iter().zip(&widths).enumerate() {
                // The width of a format string is limited to 65,535; a path may be longer.
                let space = " ".repeat(width - cell.chars().count());
                if place == 0 {
                    text.extend([cell, space.as_str()]);
                } else {
                    text.extend(["  ", space.as_str(), cell]);
                }
            }
            text.trim_end().to_owned()
        };
        lines().map(line).collect::<Vec<_>>().join("\n")
    }

    fn markdown(&self) -> String {
        let line = |cells: &Vec<String>| {
            let cells: Vec<String> = cells.iter().map(|cell| cell.replace('|', "\\|")).collect();
            format!("| {} |", cells.join(" | "))
        };
        let rule = ["---"].into_iter().chain(self.head.iter().skip(1).map(|_| "---:"));
        let rule = format!("| {} |", rule.collect::<Vec<_>>().join(" | "));
        let mut lines = vec![line(&self.head), rule];
        lines.extend(self.rows.iter().map(line));
        lines.join("\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_cells_are_shortened() {
        let names: Vec<_> = (0..650).map(|number| format!("images/{number:0100}.png")).collect();
        let shown = cell(&Value::from(names));
        assert!(
            shown.starts_with("[\"images/000") && shown.ends_with("... (650 values)"),
            "{shown}"
        );
        let text = cell(&Value::from("é".repeat(70_000)));
        assert!(text.ends_with("é... (70000 characters)"), "{text}");
        for shown in [shown, text] {
            assert_eq!(shown.chars().count(), MOST_LETTERS);
        }
        assert_eq!(cell(&Value::from("x".repeat(MOST_LETTERS))), "x".repeat(MOST_LETTERS));
    }

    #[test]
    fn a_column_may_be_wider_than_a_format_string_allows() {
        let wide = "x".repeat(70_000);
        let head = vec![wide.clone(), wide.clone()];
        let table = TextTable { head, rows: vec![vec!["a".to_owned(), "b".to_owned()]] };
        let lines = table.render(Style::Plain);
        assert!(lines.lines().all(|line| line.len() == 2 * wide.len() + 2));
    }

    #[test]
    fn columns_stand_below_each_other() {
        let cells = |line: [&str; 2]| line.map(str::to_owned).to_vec();
        let rows = vec![cells(["PSNR ↑", "25.1"]), cells(["a|b", "7"])];
        let table = TextTable { head: cells(["", "runs"]), rows };
        assert_eq!(table.render(Style::Plain), "        runs\nPSNR ↑  25.1\na|b        7");
        assert_eq!(
            table.render(Style::Markdown),
            "|  | runs |\n| --- | ---: |\n| PSNR ↑ | 25.1 |\n| a\\|b | 7 |"
        );
    }
}
