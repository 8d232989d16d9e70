//! SQLite: each statement is a transaction of its own, and there is one writer, so batches are small.

use std::time::Duration;

use sqlx::{AssertSqlSafe, Sqlite, SqliteConnection};

use super::{Batch, Deleted, Upkeep};
use crate::database::Statements;

/// In Unix milliseconds, and the same during one statement.
const NOW: &str = "CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)";

#[expect(private_interfaces, reason = "sealed: see the trait")]
impl Upkeep for Sqlite {
    const PURGE_BATCH: u32 = 50;

    async fn purge(
        connection: &mut SqliteConnection,
        statements: &Statements,
        batch: Batch,
    ) -> Result<Deleted, sqlx::Error> {
        let table = statements.table.quoted('"');
        // Deleted entries are gone from the index at once, so every batch begins at its start.
        let Batch { margin, size, from: _ } = batch;
        let delete = format!(
            "DELETE FROM {table} WHERE (consumer, sender, key) IN (
    SELECT consumer, sender, key FROM {table} WHERE expires_at < {NOW} - ?1 ORDER BY expires_at LIMIT ?2
)"
        );
        // Safe: a `TableName` holds nothing but plain identifiers.
        let delete = sqlx::query(AssertSqlSafe(delete)).bind(millis(margin)).bind(size).execute(connection);
        let claims = delete.await?.rows_affected();
        Ok(Deleted { claims, next: (claims == u64::from(size)).then_some(0) })
    }

    async fn oldest(connection: &mut SqliteConnection, statements: &Statements) -> Result<Option<i64>, sqlx::Error> {
        let table = statements.table.quoted('"');
        let oldest = format!("SELECT min(expires_at) FROM {table}");
        sqlx::query_scalar(AssertSqlSafe(oldest)).fetch_one(connection).await
    }

    async fn lease(
        connection: &mut SqliteConnection,
        statements: &Statements,
        holder: &str,
        time: Duration,
    ) -> Result<bool, sqlx::Error> {
        let janitor = statements.table.janitor_quoted('"');
        let lease = format!(
            "INSERT INTO {janitor} AS held (id, holder, expires_at) VALUES (1, ?1, {NOW} + ?2)
ON CONFLICT (id) DO UPDATE SET holder = excluded.holder, expires_at = excluded.expires_at
WHERE held.holder = excluded.holder OR held.expires_at < {NOW}"
        );
        let lease = sqlx::query(AssertSqlSafe(lease)).bind(holder).bind(millis(time)).execute(connection);
        Ok(lease.await?.rows_affected() > 0)
    }

    async fn release(
        connection: &mut SqliteConnection,
        statements: &Statements,
        holder: &str,
    ) -> Result<(), sqlx::Error> {
        let janitor = statements.table.janitor_quoted('"');
        let release = format!("UPDATE {janitor} SET expires_at = 0 WHERE id = 1 AND holder = ?1");
        sqlx::query(AssertSqlSafe(release)).bind(holder).execute(connection).await.map(drop)
    }
}

/// At most a hundred years, which the options see to.
fn millis(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX / 2)
}
