//! Reads the old table page by page, and makes claims of its rows.

use std::cmp::Reverse;
use std::collections::HashSet;
use std::fmt::Write as _;
use std::time::Duration;

use super::{Adopted, Adoption, Handlers, refused};
use crate::catalog::catalog;
use crate::database::{Column, ColumnKind, OldRow, OldTable, TableName};
use crate::lent::{Lent, retried};
use crate::{ClaimStore, Database, Error, observe, process};

/// Old rows that are read, and inserted, together.
const BATCH: u32 = 500;
/// Added to a time without a zone, which may be that of any zone.
const ANY_ZONE: Duration = Duration::from_hours(24);
/// What is past its expiry by so much a purge with the default options would delete.
const MARGIN: Duration = Duration::from_hours(1);

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
        observe::adopting(&adoption.table, &adopted);
        match (rows.iter().all(is_known), rows.len() < BATCH as usize) {
            (false, _) => page = rows,
            (true, true) => break,
            (true, false) => {
                let id = &old.id;
                return Err(refused(&format!("`{}` of type `{}` cannot be read page by page", id.name, id.sql_type)));
            }
        }
    }
    let nameless = retried(|| nameless(store, &old)).await?;
    adopted.read += nameless;
    adopted.blank += nameless;
    Ok(adopted)
}

/// Looks the old table up.
async fn old_table<DB: Database>(
    store: &ClaimStore<DB>,
    adoption: &Adoption,
    handlers: &Handlers,
) -> Result<OldTable, Error> {
    let table = TableName::parse(&adoption.table)
        .map_err(|error| refused(&format!("{error}; of a table with another name adopt a view")))?;
    if table == store.statements().table {
        return Err(refused(&format!(
            "`{table}` is the table of this store itself: where hand-written code has filled a table of that name, give the \
             store another one with `ClaimStore::builder(pool).table(\"…\")`, see `guide::adoption`"
        )));
    }
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
    if Column::are_in(&columns, &OF_CLAIMS) {
        return Err(refused(&format!(
            "`{table}` holds claims of this library, whose keys have their stored form already: name the table that \
             hand-written code has filled"
        )));
    }
    let find = |name: &str, what: &str, kinds: &[ColumnKind]| {
        let column = columns.iter().find(|column| column.name == name);
        let column = column.ok_or_else(|| refused(&format!("the table `{table}` has no column `{name}`")))?;
        if !plain(name) {
            return Err(refused(&format!(
                "the column `{name}` of `{table}` is no plain identifier: adopt a view in which it has another name"
            )));
        }
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

/// What tells a claim table from one that hand-written code has made.
const OF_CLAIMS: [&str; 6] = ["consumer", "sender", "key", "expires_at", "fingerprint", "value"];

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

async fn nameless<DB: Database>(store: &ClaimStore<DB>, old: &OldTable) -> Result<u64, sqlx::Error> {
    let mut lent = Lent::from(store.pool()).await?;
    let rows = DB::nameless(&mut lent.connection, old).await?;
    lent.give_back();
    Ok(u64::try_from(rows).unwrap_or_default()) // a count is not negative
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
