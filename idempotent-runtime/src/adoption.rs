//! Taking over what hand-written code has remembered.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::fmt::{self, Write as _};
use std::time::Duration;

use crate::catalog::{Handler, catalog};
use crate::database::{Column, ColumnKind, OldRow, OldTable, TableName};
use crate::key::{Encoded, Writer};
use crate::lent::{Lent, retried};
use crate::{ClaimStore, Database, Error, process};

/// Old rows that are read, and inserted, together.
const BATCH: u32 = 500;
/// Added to a time without a zone, which may be that of any zone.
const ANY_ZONE: Duration = Duration::from_hours(24);
/// What is past its expiry by so much a purge with the default options would delete.
const MARGIN: Duration = Duration::from_hours(1);

type Handlers = HashMap<&'static str, &'static Handler>;
type Split = Box<dyn Fn(&str) -> Option<Vec<String>> + Send + Sync>;

/// A table in which hand-written code has noted the messages that it has processed, and whose claims they become: see
/// [`ClaimStore::adopt`].
///
/// The table has a row for each message: an id (text, a whole number or a UUID), perhaps a consumer, perhaps a time.
/// All names are plain identifiers, written as the database stores them.
#[must_use = "nothing is adopted until it is passed to `ClaimStore::adopt`"]
pub struct Adoption {
    table: Cow<'static, str>,
    id: Cow<'static, str>,
    consumer: Option<Cow<'static, str>>,
    time: Option<Cow<'static, str>>,
    handler: Option<Cow<'static, str>>,
    renamed: Vec<(String, Option<String>)>,
    split: Option<Split>,
}

impl fmt::Debug for Adoption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { table, id, consumer, time, handler, renamed, split: _ } = self;
        f.debug_struct("Adoption")
            .field("table", table)
            .field("id", id)
            .field("consumer", consumer)
            .field("time", time)
            .field("handler", handler)
            .field("renamed", renamed)
            .finish_non_exhaustive()
    }
}

impl Adoption {
    /// Of this table, `name` or `schema.name`, with the ids in its column `id`. A view will do, where the ids have to be
    /// put together first.
    pub fn of_table(table: impl Into<Cow<'static, str>>) -> Self {
        Self {
            table: table.into(),
            id: Cow::Borrowed("id"),
            consumer: None,
            time: None,
            handler: None,
            renamed: Vec::new(),
            split: None,
        }
    }

    /// The column of the ids.
    pub fn id_column(mut self, column: impl Into<Cow<'static, str>>) -> Self {
        self.id = column.into();
        self
    }

    /// All rows become claims of the handler with this consumer name, which this program has to contain: its template
    /// decides how an id is stored, and its retention for how long. Adopt a table once for each handler that shared
    /// it.
    pub fn handler(mut self, consumer: impl Into<Cow<'static, str>>) -> Self {
        self.handler = Some(consumer.into());
        self
    }

    /// The column that says whose each row is: the name of a handler's consumer, unless it is
    /// [`renamed`](Adoption::renamed) or [`left_out`](Adoption::left_out).
    pub fn consumer_column(mut self, column: impl Into<Cow<'static, str>>) -> Self {
        self.consumer = Some(column.into());
        self
    }

    /// Rows of the old consumer become claims of the handler with the new consumer name.
    pub fn renamed(mut self, old: impl Into<String>, new: impl Into<String>) -> Self {
        self.renamed.push((old.into(), Some(new.into())));
        self
    }

    /// Rows of this old consumer are not adopted.
    pub fn left_out(mut self, old: impl Into<String>) -> Self {
        self.renamed.push((old.into(), None));
        self
    }

    /// The column of the time at which a message was processed, from which the handler's retention then counts. Without
    /// one, or where it is NULL, it counts from now, which is never too short.
    ///
    /// A time without a zone is taken for UTC, and a day is added, since it may be any zone's. On SQLite a whole number
    /// is seconds or milliseconds since 1970. Rows whose retention has been over for an hour are not adopted.
    pub fn time_column(mut self, column: impl Into<Cow<'static, str>>) -> Self {
        self.time = Some(column.into());
        self
    }

    /// Makes the texts of the placeholders from an old id: those of `key`, then those of `sender`, in the order of the
    /// templates. Needed unless they have one placeholder together, which the id then is. `None` ends the adoption
    /// with an error.
    ///
    /// ```
    /// # use idempotent_runtime::Adoption;
    /// // key = "{order.id}:{order.version}"; by hand it was `format!("{}-v{}", order.id, order.version)`
    /// let adoption = Adoption::of_table("processed_orders").handler("shop.ship").split(|id| {
    ///     let (order, version) = id.rsplit_once("-v")?;
    ///     Some(vec![order.to_owned(), version.to_owned()])
    /// });
    /// ```
    pub fn split(mut self, split: impl Fn(&str) -> Option<Vec<String>> + Send + Sync + 'static) -> Self {
        self.split = Some(Box::new(split));
        self
    }

    /// The handler whose claims the rows of an old consumer become; `None` if they are left out.
    fn handler_of(&self, old: Option<&str>, handlers: &Handlers) -> Result<Option<&'static Handler>, Error> {
        let consumer = match (old, &self.handler) {
            (_, Some(handler)) => Some(&**handler),
            (Some(old), None) => match self.renamed.iter().find(|(name, _)| name == old) {
                Some((_, new)) => new.as_deref(),
                None => Some(old),
            },
            (None, None) => return Err(refused("say whose claims the rows become: `handler` or `consumer_column`")),
        };
        let Some(consumer) = consumer else { return Ok(None) };
        let handler = handlers.get(consumer).ok_or_else(|| {
            refused(&format!(
                "no handler of this program has the consumer name `{consumer}`: give the right name (`handler`, `renamed`), \
                 or leave the rows out (`left_out`)"
            ))
        })?;
        handler.check()?;
        Ok(Some(*handler))
    }

    /// Sender and key as the handler's macro stores them; `None` for an id that it takes for missing.
    fn identify(&self, handler: &'static Handler, id: &str) -> Result<Option<(String, String)>, Error> {
        let (key, sender) = (&handler.spec().key, &handler.spec().sender);
        let wanted = key.placeholders() + sender.placeholders();
        let parts = match &self.split {
            None => vec![id.to_owned()],
            Some(split) => split(id).ok_or_else(|| refused(&format!("`split` makes nothing of the id {id:?}")))?,
        };
        if parts.len() != wanted {
            return Err(refused(&format!(
                "the templates of `{}` have {wanted} placeholders, and the id {id:?} has become {} texts: see `split`",
                handler.consumer(),
                parts.len()
            )));
        }
        let (of_key, of_sender) = parts.split_at(key.placeholders());
        let fill = |writer: Writer, parts: &[String]| {
            let encoded = parts.iter().fold(writer, |writer, part| writer.part("id", part)).finish();
            match encoded {
                Encoded::Stored(form) => Some(form.into_owned()),
                Encoded::Missing(_) | Encoded::None => None,
            }
        };
        let sender = fill(Writer::sender(handler), of_sender);
        Ok(sender.zip(fill(Writer::key(handler), of_key)))
    }
}

fn refused(what: &str) -> Error {
    Error::Configuration(what.to_owned())
}

/// What an adoption has done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Adopted {
    /// Rows of the old table.
    pub read: u64,
    /// Rows that have become claims now.
    pub copied: u64,
    /// Rows that had a claim already.
    pub present: u64,
    /// Rows whose retention is over.
    pub expired: u64,
    /// Rows with an empty or blank id, which no handler takes for one.
    pub blank: u64,
    /// Rows of a consumer that is left out.
    pub left_out: u64,
}

/// A claim to be: consumer, sender, key, and milliseconds until it expires.
type NewClaim = (&'static str, String, String, i64);

pub(crate) async fn adopt<DB: Database>(store: &ClaimStore<DB>, adoption: &Adoption) -> Result<Adopted, Error> {
    let handlers: Handlers = catalog().into_iter().map(|handler| (handler.consumer(), handler)).collect();
    let old = old_table(store, adoption, &handlers).await?;
    let mut adopted = Adopted::default();
    let mut page: Vec<OldRow> = Vec::new();
    loop {
        let rows = retried(|| read(store, &old, page.last())).await?;
        // Each page begins at the last row of the one before: a collation may take other ids for that one's equals.
        let known: HashSet<_> = page.iter().map(OldRow::name).collect();
        let is_known = |row: &OldRow| known.contains(&row.name());
        let mut claims = Vec::with_capacity(rows.len());
        let mut wanted = 0;
        for row in &rows {
            let count = u64::from(!is_known(row));
            adopted.read += count;
            let Some(handler) = adoption.handler_of(row.consumer.as_deref(), &handlers)? else {
                adopted.left_out += count;
                continue;
            };
            let Some((sender, key)) = adoption.identify(handler, &row.id)? else {
                adopted.blank += count;
                continue;
            };
            match remaining(handler.retention(), row.age, old.processed_at.as_ref()) {
                Some(remaining) => {
                    wanted += count;
                    claims.push((handler.consumer(), sender, key, remaining));
                }
                None => adopted.expired += count,
            }
        }
        if !claims.is_empty() {
            let claims = to_json(claims);
            let copied = retried(|| insert(store, &claims)).await;
            let copied = copied.map_err(|error| process::table_error(error, store.statements()))?;
            adopted.copied += copied;
            adopted.present += wanted.saturating_sub(copied);
        }
        tracing::debug!(table = &*adoption.table, ?adopted, "adopting");
        match (rows.iter().all(is_known), rows.len() < BATCH as usize) {
            (false, _) => page = rows,
            (true, true) => return Ok(adopted),
            (true, false) => {
                let id = &old.id;
                return Err(refused(&format!("`{}` of type `{}` cannot be read page by page", id.name, id.sql_type)));
            }
        }
    }
}

/// Looks the old table up.
async fn old_table<DB: Database>(
    store: &ClaimStore<DB>,
    adoption: &Adoption,
    handlers: &Handlers,
) -> Result<OldTable, Error> {
    let table = TableName::parse(&adoption.table)?;
    if adoption.consumer.is_some() == adoption.handler.is_some() {
        return Err(refused("say whose claims the rows become, in one way: `handler` or `consumer_column`"));
    }
    if adoption.handler.is_some() {
        adoption.handler_of(None, handlers)?;
    }
    let columns = retried(|| columns(store, &table)).await?;
    if columns.is_empty() {
        return Err(refused(&format!("there is no table `{table}` to adopt")));
    }
    let find = |name: &str, what: &str, kinds: &[ColumnKind]| {
        let column = columns.iter().find(|column| column.name == name && plain(name));
        let column = column.ok_or_else(|| refused(&format!("the table `{table}` has no column `{name}`")))?;
        if column.kind == ColumnKind::Dynamic || kinds.contains(&column.kind) {
            Ok(column.clone())
        } else {
            Err(refused(&format!("`{}` is no type for {what}: `{table}`.`{name}`", column.sql_type)))
        }
    };
    let (text, time) = ([ColumnKind::Text, ColumnKind::Bytes], [ColumnKind::Moment, ColumnKind::LocalTime]);
    let ids = [ColumnKind::Text, ColumnKind::Bytes, ColumnKind::Number, ColumnKind::Uuid];
    Ok(OldTable {
        id: find(&adoption.id, "an id", &ids)?,
        consumer: adoption.consumer.as_deref().map(|name| find(name, "a consumer", &text)).transpose()?,
        processed_at: adoption.time.as_deref().map(|name| find(name, "a time", &time)).transpose()?,
        table,
    })
}

/// Whether it can stand between any database's quotes.
fn plain(name: &str) -> bool {
    TableName::parse(name).is_ok() && !name.contains('.')
}

async fn columns<DB: Database>(store: &ClaimStore<DB>, table: &TableName) -> Result<Vec<Column>, sqlx::Error> {
    let mut lent = Lent::from(store.pool()).await?;
    let columns = DB::columns(&mut lent.connection, table).await?;
    lent.give_back();
    Ok(columns)
}

async fn read<DB: Database>(
    store: &ClaimStore<DB>,
    old: &OldTable,
    after: Option<&OldRow>,
) -> Result<Vec<OldRow>, sqlx::Error> {
    let mut lent = Lent::from(store.pool()).await?;
    let rows = DB::read(&mut lent.connection, old, after, BATCH).await?;
    lent.give_back();
    Ok(rows)
}

async fn insert<DB: Database>(store: &ClaimStore<DB>, claims: &str) -> Result<u64, sqlx::Error> {
    let mut lent = Lent::from(store.pool()).await?;
    let inserted = DB::insert(&mut lent.connection, store.statements(), claims).await?;
    lent.give_back();
    Ok(inserted)
}

/// Milliseconds until the claim of a message expires that was processed so long ago; `None` if it would be purged.
fn remaining(retention: Duration, age: Option<i64>, column: Option<&Column>) -> Option<i64> {
    let slack = match (age, column) {
        (Some(_), Some(Column { kind: ColumnKind::Moment, .. })) | (None, _) => Duration::ZERO,
        _ => ANY_ZONE,
    };
    let millis = |duration: Duration| i64::try_from(duration.as_millis()).unwrap_or(i64::MAX / 4);
    // A time in the future is none.
    let remaining = millis(retention) + millis(slack) - age.unwrap_or(0).max(0);
    (remaining > -millis(MARGIN)).then_some(remaining)
}

/// In the order of their identities, so that adoptions at once do not wait for each other in a circle. Stored forms are
/// printable ASCII. Of one identity the claim that is kept longest.
fn to_json(mut claims: Vec<NewClaim>) -> String {
    claims.sort_by(|a, b| (a.0, &a.1, &a.2, Reverse(a.3)).cmp(&(b.0, &b.1, &b.2, Reverse(b.3))));
    claims.dedup_by(|a, b| (a.0, &a.1, &a.2) == (b.0, &b.1, &b.2));
    let mut json = String::from("[");
    for (index, (consumer, sender, key, remaining)) in claims.iter().enumerate() {
        json.push_str(if index == 0 { "[" } else { ",[" });
        for text in [consumer, sender.as_str(), key.as_str()] {
            let _ = write!(json, "\"{}\",", text.replace('\\', "\\\\").replace('"', "\\\""));
        }
        let _ = write!(json, "{remaining}]");
    }
    json.push(']');
    json
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_keeps_every_printable_character() {
        let printable: String = (' '..='~').collect();
        let json = to_json(vec![("c", String::new(), printable.clone(), -5), ("a", "s".to_owned(), "k".to_owned(), 7)]);
        let escaped = printable.replace('\\', "\\\\").replace('"', "\\\"");
        assert_eq!(json, format!("[[\"a\",\"s\",\"k\",7],[\"c\",\"\",\"{escaped}\",-5]]"));
    }

    #[test]
    fn of_several_rows_of_one_identity_the_one_that_is_kept_longest_counts() {
        let of = |remaining| ("c", String::new(), "k".to_owned(), remaining);
        assert_eq!(to_json(vec![of(5), of(9), of(-1)]), "[[\"c\",\"\",\"k\",9]]");
    }

    #[test]
    fn retention_counts_from_a_known_time_and_never_ends_too_early() {
        let column = |kind| Column { name: String::new(), kind, sql_type: String::new() };
        let hour = 3_600_000;
        let week = Duration::from_hours(7 * 24);
        let after = |age, kind| remaining(week, age, Some(&column(kind)));
        assert_eq!(remaining(week, None, None), Some(7 * 24 * hour));
        assert_eq!(after(None, ColumnKind::LocalTime), Some(7 * 24 * hour));
        assert_eq!(after(Some(24 * hour), ColumnKind::Moment), Some(6 * 24 * hour));
        assert_eq!(after(Some(24 * hour), ColumnKind::LocalTime), Some(7 * 24 * hour));
        assert_eq!(after(Some(24 * hour), ColumnKind::Dynamic), Some(7 * 24 * hour));
        assert_eq!(after(Some(-5 * hour), ColumnKind::Moment), Some(7 * 24 * hour), "in the future");
        assert_eq!(after(Some(7 * 24 * hour + hour / 2), ColumnKind::Moment), Some(-hour / 2), "within the margin");
        assert_eq!(after(Some(7 * 24 * hour + hour), ColumnKind::Moment), None);
        assert_eq!(after(Some(8 * 24 * hour), ColumnKind::LocalTime), Some(0));
        assert_eq!(after(Some(i64::MAX), ColumnKind::Moment), None);
    }
}
