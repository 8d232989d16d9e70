//! The table of handlers, as a text holds it.

use std::collections::BTreeMap;

use super::writes_it;

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

const COLUMNS: [&str; 8] = ["consumer", "key", "sender", "sequence of", "retention", "horizon", "options", "function"];

/// Where git has not merged. `=======` alone may also underline a heading.
const CONFLICT_MARKERS: [&str; 3] = ["<<<<<<<", "|||||||", ">>>>>>>"];

/// The rows of the table in a text.
///
/// # Errors
///
/// What is wrong with the text, as the end of a sentence that starts with its file.
pub(super) fn read(markdown: &str) -> Result<Vec<Row>, String> {
    let markdown = markdown.strip_prefix('\u{feff}').unwrap_or(markdown); // of some editors on Windows
    if let Some(line) = markdown.lines().find(|line| is_conflict_marker(line)) {
        return Err(format!("holds both sides of a merge (`{}`): take one of them. {}", line.trim_end(), anew()));
    }
    let is_header = |line: &str| is_row(line) && cells(line) == COLUMNS;
    match markdown.lines().filter(|line| is_header(line)).count() {
        1 => {}
        0 => {
            return Err(format!(
                "holds no table of handlers, as `catalog().to_markdown()` makes it. {}",
                writes_it("one")
            ));
        }
        _ => return Err(format!("holds several tables of handlers: keep one. {}", anew())),
    }
    let mut rows: Vec<Row> = Vec::new();
    // The line after the header separates it.
    for line in markdown.lines().skip_while(|line| !is_header(line)).skip(2).take_while(|line| is_row(line)) {
        let Ok([consumer, key, sender, entity, retention, horizon, options, function]) =
            <[String; 8]>::try_from(cells(line))
        else {
            return Err(format!("holds a line that is none of eight columns: {line}\n{}", anew()));
        };
        if rows.iter().any(|row| row.consumer == consumer) {
            return Err(format!(
                "holds two lines for the consumer `{consumer}`: keep the one that is in force. {}",
                anew()
            ));
        }
        let options = options.split(", ").filter(|option| !option.is_empty());
        let options = options.map(|option| option.split_once(" = ").unwrap_or((option, "")));
        let options = options.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        rows.push(Row { consumer, key, sender, entity, retention, horizon, options, function });
    }
    Ok(rows)
}

fn anew() -> String {
    writes_it("it anew")
}

fn is_conflict_marker(line: &str) -> bool {
    CONFLICT_MARKERS.iter().any(|marker| {
        line.strip_prefix(marker).is_some_and(|rest| rest.is_empty() || rest.starts_with(char::is_whitespace))
    })
}

fn is_row(line: &str) -> bool {
    line.trim_start().starts_with('|')
}

/// The cells between bars, without the marks of code and without what pads them; `\|` is a bar inside a cell.
fn cells(line: &str) -> Vec<String> {
    let line = line.trim();
    let mut cells = vec![String::new()];
    let mut characters = line.strip_prefix('|').unwrap_or(line).chars().peekable();
    while let Some(character) = characters.next() {
        let last = cells.len() - 1;
        match character {
            '\\' if characters.peek() == Some(&'|') => cells[last].extend(characters.next()),
            '|' => cells.push(String::new()),
            other => cells[last].push(other),
        }
    }
    if cells.last().is_some_and(String::is_empty) {
        cells.pop(); // after the last bar, which may be left out
    }
    let code = |cell: String| {
        let cell = cell.trim();
        let of = |mark: &str| cell.strip_prefix(mark).and_then(|cell| cell.strip_suffix(mark)).map(str::trim);
        of("``").or_else(|| of("`")).unwrap_or(cell).to_owned()
    };
    cells.into_iter().map(code).collect()
}
