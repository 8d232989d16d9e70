//! SQLite has no function for a digest: rows are read as text, and digested here.

use sha2::{Digest as _, Sha256};
use sqlx::{AssertSqlSafe, Executor as _, Sqlite, SqliteConnection};

use super::{Inspect, REFUSED, Table, quoted};
use crate::database::Statements;
use crate::testing::state::Contents;

const TABLES: &str =
    "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY 1";
const COLUMNS: &str = "SELECT name FROM pragma_table_xinfo(?1) WHERE hidden <> 1 ORDER BY cid";
/// So many rows are read together.
const PAGE: usize = 1_000;

const WRITES: [&str; 3] = ["INSERT", "UPDATE", "DELETE"];

#[expect(private_interfaces, reason = "sealed: see the trait")]
impl Inspect for Sqlite {
    async fn tables(connection: &mut SqliteConnection) -> Result<Vec<Table>, sqlx::Error> {
        let tables: Vec<String> = sqlx::query_scalar(TABLES).fetch_all(connection).await?;
        Ok(tables.into_iter().map(|name| Table { schema: None, name }).collect())
    }

    async fn contents(connection: &mut SqliteConnection, table: &Table) -> Result<Contents, sqlx::Error> {
        let columns: Vec<String> = sqlx::query_scalar(COLUMNS).bind(&table.name).fetch_all(&mut *connection).await?;
        // `quote` alone would end at a NUL, and `hex` alone would round.
        let values: Vec<String> = columns
            .iter()
            .map(|column| quoted(column, '"'))
            .map(|c| {
                format!(
                    "typeof({c}) || ':' || CASE typeof({c}) WHEN 'real' THEN quote({c}) ELSE coalesce(hex({c}), '') END"
                )
            })
            .collect();
        // One statement, hence one moment; a page's rows are joined, so that few of them cross to this thread.
        let contents = format!(
            "SELECT count(*), group_concat(value, ';') FROM (
    SELECT row_number() OVER () / {PAGE} AS page, {} AS value FROM {}
) GROUP BY page",
            values.join(" || ',' || "),
            table.quoted('"')
        );
        let pages: Vec<(i64, String)> = sqlx::query_as(AssertSqlSafe(contents)).fetch_all(connection).await?;
        let (mut rows, mut digest) = (0, 0_u64);
        for (count, page) in pages {
            rows += count;
            for row in page.split(';') {
                let half = Sha256::digest(row).iter().take(8).fold(0, |half, byte| half << 8 | u64::from(*byte));
                digest = digest.wrapping_add(half);
            }
        }
        Ok(Contents { rows, digest: digest.to_string() })
    }

    async fn refuse(connection: &mut SqliteConnection, table: &Table) -> Result<(), sqlx::Error> {
        for write in WRITES {
            // Without IF NOT EXISTS a connection that has not heard of the last drop says that the trigger is there; with it, it
            // looks again.
            let refuse = format!(
                "CREATE TRIGGER IF NOT EXISTS {} BEFORE {write} ON {} BEGIN SELECT RAISE(ABORT, '{REFUSED}'); END",
                trigger(write),
                table.quoted('"')
            );
            connection.execute(sqlx::raw_sql(AssertSqlSafe(refuse))).await?;
        }
        Ok(())
    }

    async fn allow(connection: &mut SqliteConnection, _table: &Table) -> Result<(), sqlx::Error> {
        for write in WRITES {
            let allow = format!("DROP TRIGGER IF EXISTS {}", trigger(write));
            connection.execute(sqlx::raw_sql(AssertSqlSafe(allow))).await?;
        }
        Ok(())
    }

    async fn claims(
        connection: &mut SqliteConnection,
        statements: &Statements,
    ) -> Result<Vec<[String; 3]>, sqlx::Error> {
        let claims = format!("SELECT consumer, sender, key FROM {}", statements.table.quoted('"'));
        let claims: Vec<(String, String, String)> = sqlx::query_as(AssertSqlSafe(claims)).fetch_all(connection).await?;
        Ok(claims.into_iter().map(<[String; 3]>::from).collect())
    }

    async fn age(connection: &mut SqliteConnection, statements: &Statements) -> Result<(), sqlx::Error> {
        let age = format!("UPDATE {} SET expires_at = 0", statements.table.quoted('"'));
        sqlx::query(AssertSqlSafe(age)).execute(connection).await.map(drop)
    }
}

fn trigger(write: &str) -> String {
    format!("idempotent_testing_refuses_{}", write.to_lowercase())
}
