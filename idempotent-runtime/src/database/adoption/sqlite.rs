//! SQLite, where every row has types of its own.

use sqlx::{AssertSqlSafe, Row as _, Sqlite, SqliteConnection};

use super::{Adopting, Column, ColumnKind, OldRow, OldTable};
use crate::database::{Statements, TableName};

const COLUMNS: &str = "SELECT name, type FROM pragma_table_info(?1, coalesce(?2, 'main'))";

const INSERT: &str = "\
INSERT INTO {table} (consumer, sender, key, expires_at)
SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]'), json_extract(value, '$[2]'),
    CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER) + json_extract(value, '$[3]')
FROM json_each(?1) WHERE true
ON CONFLICT (consumer, sender, key) DO NOTHING";

#[expect(private_interfaces, reason = "sealed: see the trait")]
impl Adopting for Sqlite {
    async fn columns(connection: &mut SqliteConnection, table: &TableName) -> Result<Vec<Column>, sqlx::Error> {
        let (schema, name) = table.parts();
        let rows = sqlx::query(COLUMNS).bind(name).bind(schema).persistent(false).fetch_all(connection).await?;
        rows.into_iter()
            .map(|row| Ok(Column { name: row.try_get(0)?, kind: ColumnKind::Dynamic, sql_type: row.try_get(1)? }))
            .collect()
    }

    async fn read(
        connection: &mut SqliteConnection,
        old: &OldTable,
        from: Option<&OldRow>,
        limit: u32,
    ) -> Result<Vec<OldRow>, sqlx::Error> {
        let OldTable { table, id, consumer, processed_at } = old;
        let table = table.quoted('"');
        let quoted = |column: &Column| format!("\"{}\"", column.name);
        // Text as SQLite's own functions write it; a whole number of seconds or of milliseconds since 1970, told
        // apart by its size. Anything else is no time, and counts from now.
        let age = processed_at.as_ref().map_or_else(
            || "NULL".to_owned(),
            |column| {
                let time = quoted(column);
                let now = "CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)";
                format!(
                    "CASE typeof({time})
                     WHEN 'text' THEN {now} - CAST((julianday({time}) - 2440587.5) * 86400000 AS INTEGER)
                     WHEN 'integer' THEN CASE
                         WHEN {time} BETWEEN 1000000000 AND 9999999999 THEN {now} - {time} * 1000
                         WHEN {time} BETWEEN 1000000000000 AND 9999999999999 THEN {now} - {time} END
                     END"
                )
            },
        );
        let id = quoted(id);
        let (order, consumer, from_place) = match consumer.as_ref().map(quoted) {
            Some(consumer) => {
                (format!("{consumer}, {id}"), consumer.clone(), format!("AND ({consumer}, {id}) >= (?2, ?1)"))
            }
            None => (id.clone(), "NULL".to_owned(), format!("AND {id} >= ?1")),
        };
        let from_place = if from.is_some() { from_place } else { String::new() };
        let not_null = order.replace(", ", " IS NOT NULL AND ") + " IS NOT NULL";
        let read = format!(
            "SELECT typeof({id}), CAST({id} AS BLOB), {consumer}, {age} FROM {table} \
             WHERE {not_null} {from_place} ORDER BY {order} LIMIT {limit}"
        );
        // Safe: made of plain identifiers and numbers.
        let mut query = sqlx::query(AssertSqlSafe(read)).persistent(false);
        if let Some(from) = from {
            // As what it is: a text would come after every number, and before all bytes.
            query = match from.kind {
                ColumnKind::Number => query.bind(from.id.parse::<i64>().unwrap_or(i64::MAX)),
                ColumnKind::Bytes => query.bind(from.id.as_bytes()),
                _ => query.bind(&from.id),
            };
            if let Some(consumer) = &from.consumer {
                query = query.bind(consumer);
            }
        }
        let rows = query.fetch_all(connection).await?;
        rows.into_iter()
            .map(|row| {
                let kind = match row.try_get::<&str, _>(0)? {
                    "text" => ColumnKind::Text,
                    "integer" => ColumnKind::Number,
                    "blob" => ColumnKind::Bytes,
                    other => return Err(sqlx::Error::Decode(format!("an id of type {other}").into())),
                };
                // An error, unless the consumer is text: as another type it could not be compared on the next page.
                let id = super::text(row.try_get(1)?)?;
                Ok(OldRow { id, consumer: row.try_get(2)?, age: row.try_get(3)?, kind })
            })
            .collect()
    }

    async fn nameless(connection: &mut SqliteConnection, old: &OldTable) -> Result<i64, sqlx::Error> {
        // Safe: made of plain identifiers.
        let count = sqlx::query_scalar(AssertSqlSafe(old.count_of_nameless('"')));
        count.persistent(false).fetch_one(connection).await
    }

    async fn insert(
        connection: &mut SqliteConnection,
        statements: &Statements,
        claims: &str,
    ) -> Result<u64, sqlx::Error> {
        let insert = INSERT.replace("{table}", &statements.table.quoted('"'));
        // Safe: a `TableName` holds nothing but plain identifiers.
        Ok(sqlx::query(AssertSqlSafe(insert)).bind(claims).execute(connection).await?.rows_affected())
    }
}
