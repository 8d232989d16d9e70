//! MySQL and MariaDB, which need `JSON_TABLE`: MySQL 8.0, MariaDB 10.6.

use std::fmt::Write as _;

use sqlx::mysql::{MySqlConnection, MySqlRow};
use sqlx::{AssertSqlSafe, Executor as _, MySql, Row as _};

use super::{Adopting, Column, ColumnKind, OldRow, OldTable};
use crate::database::{Statements, TableName};

const COLUMNS: &str = "\
SELECT CAST(column_name AS CHAR), CAST(data_type AS CHAR) FROM information_schema.columns
WHERE table_schema = COALESCE(?, DATABASE()) AND table_name = ?";

/// A row that is there already is not part of the SELECT, and one that came since is left as it is; neither is INSERT
/// IGNORE, which would hide other errors. Under READ COMMITTED no gap is locked.
const INSERT: &str = "\
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
START TRANSACTION;
INSERT INTO {table} (consumer, sender, `key`, expires_at)
SELECT old.consumer, old.sender, old.`key`, UTC_TIMESTAMP(6) + INTERVAL old.remaining * 1000 MICROSECOND
FROM JSON_TABLE(CONVERT(X'{claims}' USING utf8mb4), '$[*]' COLUMNS (
    consumer VARCHAR(128) CHARACTER SET ascii COLLATE ascii_bin PATH '$[0]',
    sender VARCHAR(128) CHARACTER SET ascii COLLATE ascii_bin PATH '$[1]',
    `key` VARCHAR(255) CHARACTER SET ascii COLLATE ascii_bin PATH '$[2]',
    remaining BIGINT PATH '$[3]'
)) AS old
LEFT JOIN {table} AS claim
    ON claim.consumer = old.consumer AND claim.sender = old.sender AND claim.`key` = old.`key`
WHERE claim.consumer IS NULL
ON DUPLICATE KEY UPDATE consumer = VALUES(consumer);
COMMIT";

#[expect(private_interfaces, reason = "sealed: see the trait")]
impl Adopting for MySql {
    async fn columns(connection: &mut MySqlConnection, table: &TableName) -> Result<Vec<Column>, sqlx::Error> {
        let (schema, name) = table.parts();
        let rows = sqlx::query(COLUMNS).bind(schema).bind(name).persistent(false).fetch_all(connection).await?;
        rows.into_iter()
            .map(|row| {
                let sql_type = row.try_get::<String, _>(1)?.to_ascii_lowercase();
                let kind = match sql_type.as_str() {
                    "char" | "varchar" | "tinytext" | "text" | "mediumtext" | "longtext" => ColumnKind::Text,
                    "binary" | "varbinary" | "tinyblob" | "blob" | "mediumblob" | "longblob" => ColumnKind::Bytes,
                    "tinyint" | "smallint" | "mediumint" | "int" | "bigint" => ColumnKind::Number,
                    "uuid" => ColumnKind::Uuid,
                    "timestamp" => ColumnKind::Moment,
                    "datetime" | "date" => ColumnKind::LocalTime,
                    _ => ColumnKind::Other,
                };
                Ok(Column { name: row.try_get(0)?, kind, sql_type })
            })
            .collect()
    }

    async fn read(
        connection: &mut MySqlConnection,
        old: &OldTable,
        from: Option<&OldRow>,
        limit: u32,
    ) -> Result<Vec<OldRow>, sqlx::Error> {
        let OldTable { table, id, consumer, processed_at } = old;
        let table = table.quoted('`');
        let quoted = |column: &Column| format!("`{}`", column.name);
        let age = match processed_at {
            None => "NULL".to_owned(),
            // Of a TIMESTAMP this is what is stored, which no session's time zone changes.
            Some(column) if column.kind == ColumnKind::Moment => {
                format!("CAST((UNIX_TIMESTAMP(NOW(6)) - UNIX_TIMESTAMP({})) * 1000 AS SIGNED)", quoted(column))
            }
            Some(column) => format!("TIMESTAMPDIFF(MICROSECOND, {}, UTC_TIMESTAMP(6)) DIV 1000", quoted(column)),
        };
        let text = |column: &Column| match column.kind {
            ColumnKind::Bytes => quoted(column),
            _ => format!("CONVERT({} USING utf8mb4)", quoted(column)),
        };
        let id_text = text(id);
        let consumer_text = consumer.as_ref().map_or_else(|| "NULL".to_owned(), text);
        // A comparison of rows would not use the index.
        let from_place = match (from, consumer) {
            (None, _) => String::new(),
            (Some(_), None) => format!("AND {} >= {}", quoted(id), parameter(id)),
            (Some(_), Some(consumer)) => {
                let (c, c_place, i, i_place) = (quoted(consumer), parameter(consumer), quoted(id), parameter(id));
                format!("AND {c} >= {c_place} AND ({c} > {c_place} OR ({c} = {c_place} AND {i} >= {i_place}))")
            }
        };
        let order = match consumer {
            Some(consumer) => format!("{}, {}", quoted(consumer), quoted(id)),
            None => quoted(id),
        };
        let not_null = order.replace(", ", " IS NOT NULL AND ") + " IS NOT NULL";
        let read = format!(
            "SELECT {id_text}, {consumer_text}, {age} FROM {table} WHERE {not_null} {from_place} \
             ORDER BY {order} LIMIT {limit}"
        );
        // Safe: made of plain identifiers and numbers.
        let mut query = sqlx::query(AssertSqlSafe(read)).persistent(false);
        if let Some(from) = from {
            if let Some(consumer) = &from.consumer {
                query = query.bind(consumer).bind(consumer).bind(consumer);
            }
            query = query.bind(&from.id);
        }
        let rows = query.fetch_all(connection).await?;
        rows.iter()
            .map(|row| {
                let id = utf8(row, 0)?.ok_or_else(|| sqlx::Error::Decode("an id that is NULL as text".into()))?;
                Ok(OldRow { id, consumer: utf8(row, 1)?, age: row.try_get(2)?, kind: ColumnKind::Text })
            })
            .collect()
    }

    async fn nameless(connection: &mut MySqlConnection, old: &OldTable) -> Result<i64, sqlx::Error> {
        // Safe: made of plain identifiers.
        let count = sqlx::query_scalar(AssertSqlSafe(old.count_of_nameless('`')));
        count.persistent(false).fetch_one(connection).await
    }

    async fn insert(
        connection: &mut MySqlConnection,
        statements: &Statements,
        claims: &str,
    ) -> Result<u64, sqlx::Error> {
        let mut digits = String::with_capacity(claims.len() * 2);
        for byte in claims.bytes() {
            let _ = write!(digits, "{byte:02X}");
        }
        let insert = INSERT.replace("{table}", &statements.table.quoted('`')).replace("{claims}", &digits);
        // Safe: a `TableName` holds nothing but plain identifiers.
        Ok(connection.execute(AssertSqlSafe(insert)).await?.rows_affected())
    }
}

/// A place that is compared as the column itself is.
const fn parameter(column: &Column) -> &'static str {
    match column.kind {
        ColumnKind::Number => "CAST(? AS DECIMAL(20, 0))",
        ColumnKind::Bytes => "CAST(? AS BINARY)",
        _ => "?",
    }
}

/// Text, or bytes that are text.
fn utf8(row: &MySqlRow, index: usize) -> Result<Option<String>, sqlx::Error> {
    let bytes: Option<Vec<u8>> = row.try_get_unchecked(index)?;
    bytes.map(super::text).transpose()
}
