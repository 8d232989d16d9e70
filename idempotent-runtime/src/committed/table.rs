//! The table of handlers, as a text holds it.

use std::collections::BTreeMap;

use super::{OVERWRITE, VARIABLE};

/// A line of the table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) consumer: String,
    pub(super) key: String,
    pub(super) sender: String,
    pub(super) entity: String,
    pub(super) retention: String,
    pub(super) horizon: String,
    /// As in the attribute, by their names.
    pub(super) options: BTreeMap<String, String>,
    pub(super) function: String,
}

/// The rows of the table in a text.
pub(super) fn read(markdown: &str) -> Result<Vec<Row>, String> {
    let mut rows = Vec::new();
    let mut lines = markdown.lines().skip_while(|line| !line.starts_with("| consumer |"));
    if lines.next().is_none() {
        return Err("holds no table of handlers, as `catalog().to_markdown()` makes it".to_owned());
    }
    for line in lines.skip(1).take_while(|line| line.starts_with('|')) {
        let cells = cells(line);
        let Ok([consumer, key, sender, entity, retention, horizon, options, function]) = <[String; 8]>::try_from(cells)
        else {
            return Err(format!(
                "holds a line that is none of eight columns ({VARIABLE}={OVERWRITE} writes it anew): {line}"
            ));
        };
        let options = options.split(", ").filter(|option| !option.is_empty());
        let options = options.map(|option| option.split_once(" = ").unwrap_or((option, "")));
        let options = options.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        rows.push(Row { consumer, key, sender, entity, retention, horizon, options, function });
    }
    Ok(rows)
}

/// The cells between bars, without the marks of code; `\|` is a bar inside a cell.
fn cells(line: &str) -> Vec<String> {
    let mut cells = vec![String::new()];
    let mut characters = line.trim().trim_start_matches('|').chars().peekable();
    while let Some(character) = characters.next() {
        let last = cells.len() - 1;
        match character {
            '\\' if characters.peek() == Some(&'|') => cells[last].extend(characters.next()),
            '|' => cells.push(String::new()),
            other => cells[last].push(other),
        }
    }
    cells.pop(); // after the last bar
    let code = |cell: String| {
        let cell = cell.trim();
        let of = |mark: &str| cell.strip_prefix(mark).and_then(|cell| cell.strip_suffix(mark)).map(str::trim);
        of("``").or_else(|| of("`")).unwrap_or(cell).to_owned()
    };
    cells.into_iter().map(code).collect()
}
