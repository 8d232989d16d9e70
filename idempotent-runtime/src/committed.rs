//! The catalogue, compared with the file that was committed.

use std::fmt::{self, Write as _};
use std::path::Path;
use std::{env, fs};

use crate::Catalog;

/// The variable that makes [`Catalog::compare_with_file`] write the file instead.
const VARIABLE: &str = "IDEMPOTENT_CATALOG";
const OVERWRITE: &str = "overwrite";

impl Catalog {
    /// For a test: compares the program's handlers with a committed [table](Catalog::to_markdown), and says of each
    /// difference whether it changes the identity of messages, and what that means for those in flight.
    ///
    /// Relative paths begin at the package, where cargo runs tests. To accept what has changed, and to write the file in
    /// the first place: `IDEMPOTENT_CATALOG=overwrite cargo test`.
    ///
    /// ```no_run
    /// # /*
    /// #[test]
    /// # */
    /// fn no_identity_changes_unseen() {
    ///     idempotent_runtime::catalog().compare_with_file("catalog.md").unwrap();
    /// }
    /// ```
    ///
    /// A test sees the handlers that are linked into it: make it one of the package that has them all.
    ///
    /// # Errors
    ///
    /// [`CatalogChanged`], whose `Debug` text is made for reading.
    pub fn compare_with_file(&self, path: impl AsRef<Path>) -> Result<(), CatalogChanged> {
        let path = path.as_ref();
        let overwrite = env::var_os(VARIABLE).is_some_and(|value| value == OVERWRITE);
        let outcome = if overwrite {
            fs::write(path, self.to_markdown()).map_err(|error| format!("cannot be written: {error}"))
        } else {
            match fs::read_to_string(path) {
                Ok(committed) => return self.compare(&committed).map_err(|changed| changed.of(path)),
                Err(error) => Err(format!("cannot be read: {error}. {VARIABLE}={OVERWRITE} writes it")),
            }
        };
        outcome.map_err(|problem| CatalogChanged { changes: Vec::new(), problem: Some(problem) }.of(path))
    }

    /// Compares the program's handlers with the text of such a table. What stands around the table is ignored.
    ///
    /// Handlers are matched by consumer. The column of functions is not compared, since a handler that moves to another
    /// module keeps its identity; it only serves to tell a renamed handler from a new one.
    ///
    /// # Errors
    ///
    /// [`CatalogChanged`] with every difference.
    pub fn compare(&self, committed: &str) -> Result<(), CatalogChanged> {
        let (old, new) = match (read(committed), read(&self.to_markdown())) {
            (Ok(old), Ok(new)) => (old, new),
            (Err(problem), _) | (_, Err(problem)) => {
                return Err(CatalogChanged { changes: Vec::new(), problem: Some(problem) });
            }
        };
        let changes = differences(&old, &new);
        if changes.is_empty() { Ok(()) } else { Err(CatalogChanged { changes, problem: None }) }
    }
}

/// The handlers differ from those that were committed. See [`Catalog::compare_with_file`].
#[derive(Clone)]
pub struct CatalogChanged {
    changes: Vec<CatalogChange>,
    problem: Option<String>,
}

impl CatalogChanged {
    /// Every difference, by consumer; empty where the file cannot be read.
    #[must_use]
    pub fn changes(&self) -> &[CatalogChange] {
        &self.changes
    }

    fn of(mut self, path: &Path) -> Self {
        self.problem = Some(match self.problem {
            Some(problem) => format!("{} {problem}", path.display()),
            None => format!("differs from {}", path.display()),
        });
        self
    }
}

impl fmt::Display for CatalogChanged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the catalogue of handlers {}", self.problem.as_deref().unwrap_or("differs from the committed one"))?;
        for change in &self.changes {
            write!(f, "\n\n{change}")?;
        }
        if !self.changes.is_empty() {
            write!(f, "\n\nIf this is meant: {VARIABLE}={OVERWRITE} cargo test")?;
        }
        Ok(())
    }
}

impl fmt::Debug for CatalogChanged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for CatalogChanged {}

/// One difference between a committed catalogue and the program.
#[derive(Clone, Debug)]
pub struct CatalogChange {
    consumer: String,
    what: String,
    identities: Identities,
    meaning: String,
}

/// Whether a change makes other messages of those that were processed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Identities {
    /// They stay.
    Stay,
    /// They change.
    Change,
    /// They stay if the new names give the same values.
    Depend,
}

impl CatalogChange {
    /// The consumer: of a renamed one the new name.
    #[must_use]
    pub fn consumer(&self) -> &str {
        &self.consumer
    }

    /// Whether processed messages are still recognised.
    #[must_use]
    pub const fn identities(&self) -> Identities {
        self.identities
    }
}

impl fmt::Display for CatalogChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { consumer, what, identities, meaning } = self;
        let identities = match identities {
            Identities::Stay => "identities stay",
            Identities::Change => "IDENTITIES CHANGE",
            Identities::Depend => "identities stay only if the values stay",
        };
        write!(f, "`{consumer}`: {what}\n  {identities}: {meaning}")
    }
}

/// A line of the table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Row {
    consumer: String,
    key: String,
    sender: String,
    entity: String,
    retention: String,
    horizon: String,
    function: String,
}

/// The rows of the table in a text.
fn read(markdown: &str) -> Result<Vec<Row>, String> {
    let mut rows = Vec::new();
    let mut lines = markdown.lines().skip_while(|line| !line.starts_with("| consumer |"));
    if lines.next().is_none() {
        return Err("holds no table of handlers, as `catalog().to_markdown()` makes it".to_owned());
    }
    for line in lines.skip(1).take_while(|line| line.starts_with('|')) {
        let cells = cells(line);
        let Ok([consumer, key, sender, entity, retention, horizon, function]) = <[String; 7]>::try_from(cells) else {
            return Err(format!("holds a line that is none of seven columns: {line}"));
        };
        rows.push(Row { consumer, key, sender, entity, retention, horizon, function });
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

fn differences(old: &[Row], new: &[Row]) -> Vec<CatalogChange> {
    let of = |rows: &[Row], consumer: &str| rows.iter().find(|row| row.consumer == consumer).cloned();
    let mut gone: Vec<&Row> = old.iter().filter(|row| of(new, &row.consumer).is_none()).collect();
    let mut changes = Vec::new();
    for row in new {
        match of(old, &row.consumer) {
            Some(before) => changed(&before, row, &mut changes),
            None => match gone.iter().position(|before| is_renamed(before, row)) {
                Some(position) => changes.push(renamed(gone.remove(position), row)),
                None => changes.push(change(
                    row,
                    "new".to_owned(),
                    Identities::Stay,
                    "those of other handlers. It processes whatever it is given, messages too that others have processed, and \
                     what a queue still holds from before".to_owned(),
                )),
            },
        }
    }
    for row in gone {
        changes.push(change(
            row,
            "gone".to_owned(),
            Identities::Stay,
            "those of other handlers. Messages in flight for it find nobody; its claims stay until they are purged, so that it \
             would recognise its messages if it came back by then".to_owned(),
        ));
    }
    changes
}

fn change(row: &Row, what: String, identities: Identities, meaning: String) -> CatalogChange {
    CatalogChange { consumer: row.consumer.clone(), what, identities, meaning }
}

/// The same function under another consumer name, or a function that has only changed its own name.
fn is_renamed(before: &Row, after: &Row) -> bool {
    let same = (&before.key, &before.sender, &before.entity) == (&after.key, &after.sender, &after.entity);
    let last = |row: &Row| row.function.rsplit("::").next().map(str::to_owned);
    before.function == after.function || (same && (last(before) == last(after) || module(before) == module(after)))
}

fn module(row: &Row) -> Option<&str> {
    row.function.rsplit_once("::").map(|(module, _)| module)
}

fn renamed(before: &Row, after: &Row) -> CatalogChange {
    let mut what = format!("renamed, was `{}`", before.consumer);
    let mut others = Vec::new();
    changed(before, after, &mut others);
    for other in &others {
        let _ = write!(what, "; {}", other.what);
    }
    let meaning = format!(
        "every message that is redelivered from now on is taken for new, and positions of `sequence` begin anew. Keep the \
         name with `consumer = \"{}\"`",
        before.consumer
    );
    change(after, what, Identities::Change, meaning)
}

/// What has changed about a handler that has kept its name.
fn changed(before: &Row, after: &Row, changes: &mut Vec<CatalogChange>) {
    let mut add = |what: String, identities, meaning: &str| {
        changes.push(change(after, what, identities, meaning.to_owned()));
    };
    for (name, old, new) in [("key", &before.key, &after.key), ("sender", &before.sender, &after.sender)] {
        if old == new {
            continue;
        }
        let what = format!("{name} {} instead of {}", shown(new), shown(old));
        if old.is_empty() && name == "key" {
            add(
                what,
                Identities::Stay,
                "so far only positions told what was applied, and they still do; claims begin now",
            );
        } else if new.is_empty() && name == "key" {
            add(what, Identities::Change, "claims are no longer asked: only the position tells what was applied");
        } else if literals(old) == literals(new) && literals(new).len() > 1 {
            add(
                what,
                Identities::Depend,
                "the text around the parts is the same. If a part has another value now, every message that is redelivered \
                 is taken for new",
            );
        } else {
            add(
                what,
                Identities::Change,
                "every message that is redelivered from now on is taken for new. Deploy it when no redelivery is due any \
                 more, or give the handler another consumer name and let the old one finish its queue",
            );
        }
    }
    if before.entity != after.entity {
        let what = format!("sequence of {} instead of {}", shown(&after.entity), shown(&before.entity));
        let meaning = match (before.entity.as_str(), after.entity.as_str()) {
            ("", _) => "positions begin now: the next message of each entity is applied, whatever its number",
            (_, "") => {
                "old numbers are not stale any more: an older message that arrives late is applied over a newer one"
            }
            _ => {
                "positions begin anew: the next message of each entity is applied, also one that is older than what was"
            }
        };
        let identities = if before.entity.is_empty() { Identities::Stay } else { Identities::Change };
        add(what, identities, meaning);
    }
    if before.retention != after.retention && !after.key.is_empty() && !before.key.is_empty() {
        let what = format!("retention {} instead of {}", after.retention, before.retention);
        let shorter = seconds(&after.retention) < seconds(&before.retention);
        let meaning = if shorter {
            "claims that are there keep their expiry; of messages processed from now on, what is redelivered later than that \
             runs again (with `occurred_at`: is refused), dead letters that are replayed by hand among it"
        } else {
            "claims that are there keep their earlier expiry; the table grows until the first new ones expire"
        };
        add(what, Identities::Stay, meaning);
    }
    if before.horizon != after.horizon {
        let what = format!("horizon {} instead of {}", shown(&after.horizon), shown(&before.horizon));
        add(what, Identities::Stay, "it is only compared with the retention");
    }
}

fn shown(text: &str) -> String {
    if text.is_empty() { "none".to_owned() } else { format!("`{text}`") }
}

/// The text around a template's placeholders.
fn literals(template: &str) -> Vec<&str> {
    template
        .split('{')
        .enumerate()
        .map(|(i, part)| if i == 0 { part } else { part.split_once('}').map_or(part, |p| p.1) })
        .collect()
}

/// Of a duration as the table writes it.
fn seconds(text: &str) -> Option<u64> {
    let (number, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let unit = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3_600,
        "d" => 86_400,
        "w" => 604_800,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(unit)
}
