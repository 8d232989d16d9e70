//! MySQL and MariaDB, which need SKIP LOCKED: MySQL 8.0, MariaDB 10.6.
//!
//! Under READ COMMITTED a purge locks the rows that it deletes and no gap between them, so no claim of a new message
//! waits for it. Under REPEATABLE READ every claim would that expires before the first one that is left. The setting
//! holds for the next transaction and leaves nothing on the session.

use std::future::poll_fn;
use std::time::Duration;

use sqlx::mysql::{MySqlConnection, MySqlRow};
use sqlx::{AssertSqlSafe, Either, MySql, Row as _};

use super::{Batch, Deleted, Upkeep};
use crate::database::Statements;

/// In UTC, whatever the session's time zone is.
const NOW: &str = "UTC_TIMESTAMP(6)";
const EPOCH: &str = "'1970-01-01'";
const BEGIN: &str = "SET TRANSACTION ISOLATION LEVEL READ COMMITTED; START TRANSACTION";

#[expect(private_interfaces, reason = "sealed: see the trait")]
impl Upkeep for MySql {
    const PURGE_BATCH: u32 = 100;

    async fn purge(
        connection: &mut MySqlConnection,
        statements: &Statements,
        batch: Batch,
    ) -> Result<Deleted, sqlx::Error> {
        let table = statements.table.quoted('`');
        let Batch { margin, size, from } = batch;
        let mut range = format!("expires_at < {NOW} - INTERVAL {} MICROSECOND", margin.as_micros());
        if let Some(from) = from {
            range.insert_str(0, &format!("expires_at >= {EPOCH} + INTERVAL {from} * 1000 MICROSECOND AND "));
        }
        // Where the batch ends, as far as it is known before it is locked; the next one begins there. Then the rows,
        // locked where they are found, and each deleted by its key, whatever the optimizer thinks of a table without
        // statistics.
        let request = format!(
            "{BEGIN};
SELECT TIMESTAMPDIFF(MICROSECOND, {EPOCH}, expires_at) DIV 1000 FROM {table} FORCE INDEX (expires_at)
WHERE {range} ORDER BY expires_at LIMIT {}, 1;
DELETE claim FROM (
    SELECT consumer, sender, `key` FROM {table} FORCE INDEX (expires_at)
    WHERE {range} ORDER BY expires_at LIMIT {size} FOR UPDATE SKIP LOCKED
) AS gone STRAIGHT_JOIN {table} AS claim FORCE INDEX (PRIMARY)
    ON claim.consumer = gone.consumer AND claim.sender = gone.sender AND claim.`key` = gone.`key`;
COMMIT",
            size - 1
        );
        let (claims, row) = run(connection, request).await?;
        // Fewer than asked for: there are no more, or other transactions have them.
        let row = row.filter(|_| claims == u64::from(size));
        Ok(Deleted { claims, next: row.map(|row| row.try_get(0)).transpose()? })
    }

    async fn oldest(connection: &mut MySqlConnection, statements: &Statements) -> Result<Option<i64>, sqlx::Error> {
        let table = statements.table.quoted('`');
        let request =
            format!("SELECT TIMESTAMPDIFF(MICROSECOND, {EPOCH}, MIN(expires_at)) DIV 1000 FROM {table}; COMMIT");
        match run(connection, request).await? {
            (_, Some(row)) => row.try_get(0),
            (_, None) => Ok(None),
        }
    }

    async fn lease(
        connection: &mut MySqlConnection,
        statements: &Statements,
        holder: &str,
        time: Duration,
    ) -> Result<bool, sqlx::Error> {
        let janitor = statements.table.janitor_quoted('`');
        let request = format!(
            "{BEGIN};
INSERT INTO {janitor} (id, holder, expires_at) VALUES (1, '', {EPOCH}) ON DUPLICATE KEY UPDATE id = 1;
UPDATE {janitor} SET holder = '{holder}', expires_at = {NOW} + INTERVAL {} MICROSECOND
WHERE id = 1 AND (holder = '{holder}' OR expires_at < {NOW});
SELECT CAST(holder = '{holder}' AS SIGNED) FROM {janitor} WHERE id = 1;
COMMIT",
            time.as_micros()
        );
        let (_, row) = run(connection, request).await?;
        Ok(row.map(|row| row.try_get::<i64, _>(0)).transpose()? == Some(1))
    }

    async fn release(
        connection: &mut MySqlConnection,
        statements: &Statements,
        holder: &str,
    ) -> Result<(), sqlx::Error> {
        let janitor = statements.table.janitor_quoted('`');
        let request =
            format!("{BEGIN}; UPDATE {janitor} SET expires_at = {EPOCH} WHERE id = 1 AND holder = '{holder}'; COMMIT");
        run(connection, request).await.map(drop)
    }
}

/// Runs a request of several statements to its end: the rows that it changed, and the first one that it returned.
async fn run(connection: &mut MySqlConnection, request: String) -> Result<(u64, Option<MySqlRow>), sqlx::Error> {
    let (mut changed, mut first) = (0, None);
    // Safe: made of constants, numbers, a holder's digits, and a `TableName`, which holds nothing but plain
    // identifiers.
    let mut results = sqlx::raw_sql(AssertSqlSafe(request)).fetch_many(connection);
    while let Some(result) = poll_fn(|context| results.as_mut().poll_next(context)).await {
        match result? {
            Either::Left(result) => changed += result.rows_affected(),
            Either::Right(row) => first = first.or(Some(row)),
        }
    }
    Ok((changed, first))
}
