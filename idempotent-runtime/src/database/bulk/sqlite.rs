//! SQLite: one parameter that holds all rows as JSON, taken apart by `json_each`.

use std::fmt::Write as _;

use sqlx::{Sqlite, SqliteConnection};

use super::super::Admission;
use super::{Bulk, Claimed, indexes, numbers};
use crate::batch::Row;

const CLAIM_ALL: &str = "\
INSERT INTO {table} (consumer, sender, key, expires_at)
SELECT ?1, json_extract(value, '$[0]'), json_extract(value, '$[1]'),
       coalesce(json_extract(value, '$[2]'), CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER) + ?3)
FROM json_each(?2) WHERE true
ON CONFLICT (consumer, sender, key) DO NOTHING
RETURNING sender, key";

const POSITIONS: &str = "\
SELECT sender, entity, number FROM {positions}
WHERE consumer = ?1
  AND (sender, entity) IN (SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]') FROM json_each(?2))";

const ADVANCE_ALL: &str = "\
INSERT INTO {positions} AS stored (consumer, sender, entity, number, updated_at)
SELECT ?1, json_extract(value, '$[0]'), json_extract(value, '$[1]'), json_extract(value, '$[2]'),
       CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)
FROM json_each(?2) WHERE true
ON CONFLICT (consumer, sender, entity) DO UPDATE SET number = excluded.number, updated_at = excluded.updated_at
WHERE stored.number < excluded.number";

const FORGET_ALL: &str = "\
DELETE FROM {table}
WHERE consumer = ?1
  AND (sender, key) IN (SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]') FROM json_each(?2))";

#[expect(private_interfaces, reason = "sealed: see the trait")]
impl Bulk for Sqlite {
    async fn claim_all(
        connection: &mut SqliteConnection,
        admission: Admission<'_>,
        consumer: &str,
        claims: &[(Row<'_>, Option<i64>)],
    ) -> Result<Claimed, sqlx::Error> {
        let rows = json(claims.iter().map(|(row, expires)| (row, expires.map(|micros| micros / 1000))));
        let insert = sqlx::query_as::<_, (String, String)>(admission.statements.fill(CLAIM_ALL));
        let lives = i64::try_from(admission.retention.as_millis()).unwrap_or(i64::MAX / 2); // at most a hundred years
        let claimed = insert.bind(consumer).bind(rows).bind(lives).fetch_all(connection).await?;
        let indexes = indexes(claims.iter().map(|(row, _)| *row), claimed.into_iter());
        Ok(Claimed { indexes, transaction: None })
    }

    async fn now(connection: &mut SqliteConnection) -> Result<i64, sqlx::Error> {
        let now = "SELECT CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER) * 1000";
        sqlx::query_scalar(now).fetch_one(connection).await
    }

    async fn positions(
        connection: &mut SqliteConnection,
        admission: Admission<'_>,
        consumer: &str,
        entities: &[Row<'_>],
    ) -> Result<Vec<Option<i64>>, sqlx::Error> {
        let rows = json(entities.iter().map(|row| (row, None)));
        let read = sqlx::query_as(admission.statements.fill(POSITIONS)).bind(consumer).bind(rows);
        Ok(numbers(entities, read.fetch_all(connection).await?))
    }

    async fn advance_all(
        connection: &mut SqliteConnection,
        admission: Admission<'_>,
        consumer: &str,
        entities: &[(Row<'_>, i64)],
    ) -> Result<bool, sqlx::Error> {
        let rows = json(entities.iter().map(|(row, number)| (row, Some(*number))));
        let advance = sqlx::query(admission.statements.fill(ADVANCE_ALL)).bind(consumer).bind(rows);
        let advanced = advance.execute(connection).await?.rows_affected();
        Ok(usize::try_from(advanced) == Ok(entities.len()))
    }

    async fn forget_all(
        connection: &mut SqliteConnection,
        admission: Admission<'_>,
        consumer: &str,
        claims: &[Row<'_>],
    ) -> Result<(), sqlx::Error> {
        let rows = json(claims.iter().map(|row| (row, None)));
        sqlx::query(admission.statements.fill(FORGET_ALL)).bind(consumer).bind(rows).execute(connection).await.map(drop)
    }
}

/// `[["sender","key",1],…]`. Stored forms are printable ASCII, of which JSON escapes two characters.
fn json<'a>(rows: impl Iterator<Item = (&'a Row<'a>, Option<i64>)>) -> String {
    fn text(json: &mut String, text: &str) {
        json.push('"');
        for char in text.chars() {
            if matches!(char, '"' | '\\') {
                json.push('\\');
            }
            json.push(char);
        }
        json.push('"');
    }
    let mut json = String::from("[");
    for (index, (row, number)) in rows.enumerate() {
        json.push_str(if index == 0 { "[" } else { ",[" });
        text(&mut json, row.sender);
        json.push(',');
        text(&mut json, row.name);
        let _ = match number {
            Some(number) => write!(json, ",{number}]"),
            None => write!(json, ",null]"),
        };
    }
    json.push(']');
    json
}
