//! PostgreSQL.

use sqlx::{AssertSqlSafe, PgConnection, Postgres, Row as _};

use super::{Adopting, Column, ColumnKind, OldRow, OldTable};
use crate::database::{Statements, TableName};

const COLUMNS: &str = "\
SELECT attname::text, format_type(atttypid, atttypmod), typname::text, typcategory::text
FROM pg_attribute JOIN pg_type ON pg_type.oid = atttypid
WHERE attrelid = to_regclass($1) AND attnum > 0 AND NOT attisdropped";

/// Sorted by whoever calls, so that two adoptions at once do not deadlock.
const INSERT: &str = "\
INSERT INTO {table} (consumer, sender, key, expires_at)
SELECT claim->>0, claim->>1, claim->>2, clock_timestamp() + (claim->>3)::bigint * interval '1 millisecond'
FROM json_array_elements($1::json) AS claim
ON CONFLICT (consumer, sender, key) DO NOTHING";

#[expect(private_interfaces, reason = "sealed: see the trait")]
impl Adopting for Postgres {
    async fn columns(connection: &mut PgConnection, table: &TableName) -> Result<Vec<Column>, sqlx::Error> {
        let rows = sqlx::query(COLUMNS).bind(table.quoted('"')).persistent(false).fetch_all(connection).await?;
        rows.into_iter()
            .map(|row| {
                let [name, sql_type, base, category] = [0, 1, 2, 3].map(|index| row.try_get::<String, _>(index));
                let kind = match (base?.as_str(), category?.as_str()) {
                    (_, "S" | "E") => ColumnKind::Text,
                    ("int2" | "int4" | "int8" | "numeric", _) => ColumnKind::Number,
                    ("uuid", _) => ColumnKind::Uuid,
                    ("timestamptz", _) => ColumnKind::Moment,
                    ("timestamp" | "date", _) => ColumnKind::LocalTime,
                    _ => ColumnKind::Other,
                };
                Ok(Column { name: name?, kind, sql_type: sql_type? })
            })
            .collect()
    }

    async fn read(
        connection: &mut PgConnection,
        old: &OldTable,
        from: Option<&OldRow>,
        limit: u32,
    ) -> Result<Vec<OldRow>, sqlx::Error> {
        let OldTable { table, id, consumer, processed_at } = old;
        let table = table.quoted('"');
        // With the table's name, since ORDER BY takes a bare one for the text that is selected.
        let quoted = |column: &Column| format!("old.\"{}\"", column.name);
        let mut order: Vec<_> = consumer.iter().map(quoted).collect();
        order.push(quoted(id));
        let mut place: Vec<_> = consumer.iter().map(|column| format!("$2::text::{}", column.sql_type)).collect();
        place.push(format!("$1::text::{}", id.sql_type));
        let (order, place) = (order.join(", "), place.join(", "));
        let not_null = order.replace(", ", " IS NOT NULL AND ") + " IS NOT NULL";
        let age = processed_at.as_ref().map_or_else(
            || "NULL::bigint".to_owned(),
            |column| {
                let time = quoted(column);
                let now = match column.kind {
                    ColumnKind::Moment => "statement_timestamp()",
                    _ => "(statement_timestamp() AT TIME ZONE 'UTC')",
                };
                format!("CASE WHEN isfinite({time}) THEN (extract(epoch FROM {now} - {time}) * 1000)::bigint END")
            },
        );
        let (id, consumer) = (quoted(id), consumer.as_ref().map_or_else(|| "NULL".to_owned(), quoted));
        let from_place = if from.is_some() { format!("AND ({order}) >= ({place})") } else { String::new() };
        let read = format!(
            "SELECT {id}::text, {consumer}::text, {age} FROM {table} AS old \
             WHERE {not_null} {from_place} ORDER BY {order} LIMIT {limit}"
        );
        // Safe: made of plain identifiers, types as the server names them, and numbers.
        let mut query = sqlx::query(AssertSqlSafe(read)).persistent(false);
        if let Some(from) = from {
            query = query.bind(&from.id);
            if let Some(consumer) = &from.consumer {
                query = query.bind(consumer);
            }
        }
        let rows = query.fetch_all(connection).await?;
        rows.into_iter()
            .map(|row| {
                Ok(OldRow {
                    id: row.try_get(0)?,
                    consumer: row.try_get(1)?,
                    age: row.try_get(2)?,
                    kind: ColumnKind::Text,
                })
            })
            .collect()
    }

    async fn nameless(connection: &mut PgConnection, old: &OldTable) -> Result<i64, sqlx::Error> {
        // Safe: made of plain identifiers.
        let count = sqlx::query_scalar(AssertSqlSafe(old.count_of_nameless('"')));
        count.persistent(false).fetch_one(connection).await
    }

    async fn insert(connection: &mut PgConnection, statements: &Statements, claims: &str) -> Result<u64, sqlx::Error> {
        let insert = INSERT.replace("{table}", &statements.table.quoted('"'));
        // Safe: a `TableName` holds nothing but plain identifiers.
        Ok(sqlx::query(AssertSqlSafe(insert)).bind(claims).execute(connection).await?.rows_affected())
    }
}
