//! What can be seen of a database and of the outside world at one moment.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::recorder::Counts;

/// The rows of a table, and a digest of them that does not depend on their order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contents {
    pub(super) rows: i64,
    pub(super) digest: String,
}

/// By the name that is shown.
pub(super) type Tables = BTreeMap<String, Contents>;

#[derive(Clone, Debug)]
pub(super) struct State {
    pub(super) tables: Tables,
    /// The claims and the positions of every store.
    pub(super) marks: Vec<Contents>,
    pub(super) sent: Counts,
}

impl State {
    /// What has changed since `before`, line by line; `None` if nothing.
    pub(super) fn changes_since(&self, before: &Self) -> Option<String> {
        let mut changes = String::new();
        for table in before.tables.keys().filter(|table| !self.tables.contains_key(*table)) {
            let _ = write!(changes, "\n  table `{table}` is gone");
        }
        for (table, after) in &self.tables {
            let _ = match before.tables.get(table) {
                Some(before) if before == after => Ok(()),
                Some(before) if before.rows == after.rows => {
                    write!(changes, "\n  table `{table}`: {} as before, with other values", rows(after.rows))
                }
                Some(before) => write!(changes, "\n  table `{table}`: {}, {} before", rows(after.rows), before.rows),
                None => write!(changes, "\n  table `{table}` is new"),
            };
        }
        if self.sent.plain > before.sent.plain {
            let _ = write!(changes, "\n  the recorder: {} sent", self.sent.plain - before.sent.plain);
        }
        (!changes.is_empty()).then_some(changes)
    }

    /// The tables that have changed since `before`.
    pub(super) fn changed_tables<'s>(&'s self, before: &'s Self) -> impl Iterator<Item = &'s String> {
        self.tables.iter().filter(|(table, after)| before.tables.get(*table) != Some(after)).map(|(table, _)| table)
    }
}

/// What one delivery of a message of this kind does.
#[derive(Debug)]
pub(super) struct Effect {
    pub(super) tables: Vec<String>,
    rows: BTreeMap<String, i64>,
    arrived: usize,
}

impl Effect {
    pub(super) fn between(before: &State, after: &State) -> Self {
        Self {
            tables: after.changed_tables(before).cloned().collect(),
            rows: gained(before, after),
            arrived: after.sent.arrived - before.sent.arrived,
        }
    }

    pub(super) const fn sends(&self) -> bool {
        self.arrived > 0
    }

    pub(super) fn is_nothing(&self) -> bool {
        self.tables.is_empty() && self.arrived == 0
    }

    /// Where more than this has happened, line by line; `None` if nowhere.
    pub(super) fn exceeded(&self, before: &State, after: &State) -> Option<String> {
        let mut more = String::new();
        for (table, gained) in gained(before, after) {
            let once = self.rows.get(&table).copied().unwrap_or_default();
            if gained.unsigned_abs() > once.unsigned_abs() {
                let _ = write!(more, "\n  table `{table}`: {gained:+} rows, where one delivery makes {once:+}");
            }
        }
        let arrived = after.sent.arrived - before.sent.arrived;
        if arrived > self.arrived {
            let _ = write!(more, "\n  the recorder: {arrived} sent, where one delivery sends {}", self.arrived);
        }
        (!more.is_empty()).then_some(more)
    }
}

fn gained(before: &State, after: &State) -> BTreeMap<String, i64> {
    let of = |state: &State, table: &String| state.tables.get(table).map_or(0, |contents| contents.rows);
    after.tables.keys().map(|table| (table.clone(), of(after, table) - of(before, table))).collect()
}

fn rows(count: i64) -> String {
    if count == 1 { "1 row".to_owned() } else { format!("{count} rows") }
}
