//! MariaDB and MySQL make the digests themselves, of each value as bytes.

use sqlx::{AssertSqlSafe, Executor as _, MySql, MySqlConnection};

use super::{Inspect, REFUSED, Table, quoted};
use crate::database::Statements;
use crate::testing::state::Contents;

/// MySQL 8 gives names in a binary type.
const TABLES: &str = "SELECT CAST(table_name AS CHAR) FROM information_schema.tables
WHERE table_schema = database() AND table_type IN ('BASE TABLE', 'SYSTEM VERSIONED') ORDER BY 1";
const COLUMNS: &str = "SELECT CAST(column_name AS CHAR) FROM information_schema.columns
WHERE table_schema = coalesce(?, database()) AND table_name = ? ORDER BY ordinal_position";

const WRITES: [&str; 3] = ["INSERT", "UPDATE", "DELETE"];

#[expect(private_interfaces, reason = "sealed: see the trait")]
impl Inspect for MySql {
    async fn tables(connection: &mut MySqlConnection) -> Result<Vec<Table>, sqlx::Error> {
        let tables: Vec<String> = sqlx::query_scalar(TABLES).fetch_all(connection).await?;
        Ok(tables.into_iter().map(|name| Table { schema: None, name }).collect())
    }

    async fn contents(connection: &mut MySqlConnection, table: &Table) -> Result<Contents, sqlx::Error> {
        let columns = sqlx::query_scalar(COLUMNS).bind(table.schema.as_deref()).bind(&table.name);
        let columns: Vec<String> = columns.fetch_all(&mut *connection).await?;
        // A digest of each value first: all of them together may be longer than any value can be.
        let values: Vec<String> = columns
            .iter()
            .map(|column| format!("coalesce(md5(CAST({} AS BINARY)), '-')", quoted(column, '`')))
            .collect();
        let contents = format!(
            "SELECT count(*),
CAST(coalesce(sum(CAST(conv(left(md5(concat({})), 16), 16, 10) AS DECIMAL(20, 0))), 0) AS CHAR) FROM {}",
            values.join(", "),
            table.quoted('`')
        );
        let (rows, digest) = sqlx::query_as(AssertSqlSafe(contents)).fetch_one(connection).await?;
        Ok(Contents { rows, digest })
    }

    async fn refuse(connection: &mut MySqlConnection, table: &Table) -> Result<(), sqlx::Error> {
        for write in WRITES {
            let refuse = format!(
                "CREATE TRIGGER {} BEFORE {write} ON {} FOR EACH ROW
SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = '{REFUSED}'",
                trigger(table, write),
                table.quoted('`')
            );
            connection.execute(sqlx::raw_sql(AssertSqlSafe(refuse))).await?;
        }
        Ok(())
    }

    async fn allow(connection: &mut MySqlConnection, table: &Table) -> Result<(), sqlx::Error> {
        for write in WRITES {
            let allow = format!("DROP TRIGGER IF EXISTS {}", trigger(table, write));
            connection.execute(sqlx::raw_sql(AssertSqlSafe(allow))).await?;
        }
        Ok(())
    }

    async fn claims(
        connection: &mut MySqlConnection,
        statements: &Statements,
    ) -> Result<Vec<[String; 3]>, sqlx::Error> {
        let claims = format!(
            "SELECT CAST(consumer AS CHAR), CAST(sender AS CHAR), CAST(`key` AS CHAR) FROM {}",
            statements.table.quoted('`')
        );
        let claims: Vec<(String, String, String)> = sqlx::query_as(AssertSqlSafe(claims)).fetch_all(connection).await?;
        Ok(claims.into_iter().map(<[String; 3]>::from).collect())
    }

    async fn age(connection: &mut MySqlConnection, statements: &Statements) -> Result<(), sqlx::Error> {
        let age = format!("UPDATE {} SET expires_at = UTC_TIMESTAMP() - INTERVAL 1 YEAR", statements.table.quoted('`'));
        sqlx::query(AssertSqlSafe(age)).execute(connection).await.map(drop)
    }
}

fn trigger(table: &Table, write: &str) -> String {
    let name = format!("`idempotent_testing_refuses_{}`", write.to_lowercase());
    match &table.schema {
        Some(schema) => format!("{}.{name}", quoted(schema, '`')),
        None => name,
    }
}
