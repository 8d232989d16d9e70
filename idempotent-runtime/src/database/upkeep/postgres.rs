//! PostgreSQL. Several statements in one simple request are one transaction, without a BEGIN that could be left open.

use std::time::Duration;

use sqlx::{AssertSqlSafe, PgConnection, Postgres, Row as _};

use super::{Batch, Deleted, Upkeep};
use crate::database::Statements;

/// Without it a session's default isolation could make a batch fail on what another purger has deleted meanwhile.
const READ_COMMITTED: &str = "SET TRANSACTION ISOLATION LEVEL READ COMMITTED";

#[expect(private_interfaces, reason = "sealed: see the trait")]
impl Upkeep for Postgres {
    const PURGE_BATCH: u32 = 500;

    async fn purge(
        connection: &mut PgConnection,
        statements: &Statements,
        batch: Batch,
    ) -> Result<Deleted, sqlx::Error> {
        let table = statements.table.quoted('"');
        let Batch { margin, size, from } = batch;
        // The moment of the request, so not later than the wall clock of any claim that follows.
        let cutoff = format!("statement_timestamp() - {} * interval '1 millisecond'", margin.as_millis());
        let from = match from {
            Some(from) => format!("expires_at >= to_timestamp(0) + {from} * interval '1 millisecond' AND "),
            None => String::new(),
        };
        // Row by physical place: by key it took five times as long, and reads the key's index all over. The condition
        // stands twice, so that the same place in another partition of a partitioned table is no live claim.
        let request = format!(
            "{READ_COMMITTED};
WITH gone AS (
    DELETE FROM {table} WHERE expires_at < {cutoff} AND ctid = ANY (ARRAY(
        SELECT ctid FROM {table} WHERE {from}expires_at < {cutoff}
        ORDER BY expires_at LIMIT {size} FOR UPDATE SKIP LOCKED
    )) RETURNING expires_at
)
SELECT count(*), floor(extract(epoch FROM max(expires_at)) * 1000)::bigint FROM gone"
        );
        let row = only_row(connection, request).await?;
        let claims = row.try_get::<i64, _>(0)?.unsigned_abs();
        // Fewer than asked for: there are no more, or another transaction has them.
        let next = if claims < u64::from(size) { None } else { row.try_get(1)? };
        Ok(Deleted { claims, next })
    }

    async fn oldest(connection: &mut PgConnection, statements: &Statements) -> Result<Option<i64>, sqlx::Error> {
        let table = statements.table.quoted('"');
        let request = format!("SELECT floor(extract(epoch FROM min(expires_at)) * 1000)::bigint FROM {table}");
        only_row(connection, request).await?.try_get(0)
    }

    async fn lease(
        connection: &mut PgConnection,
        statements: &Statements,
        holder: &str,
        time: Duration,
    ) -> Result<bool, sqlx::Error> {
        let janitor = statements.table.janitor_quoted('"');
        let request = format!(
            "{READ_COMMITTED};
WITH lease AS (
    INSERT INTO {janitor} AS held (id, holder, expires_at)
    VALUES (1, '{holder}', clock_timestamp() + {} * interval '1 millisecond')
    ON CONFLICT (id) DO UPDATE SET holder = excluded.holder, expires_at = excluded.expires_at
    WHERE held.holder = excluded.holder OR held.expires_at < clock_timestamp()
    RETURNING 1
)
SELECT count(*) FROM lease",
            time.as_millis()
        );
        Ok(only_row(connection, request).await?.try_get::<i64, _>(0)? > 0)
    }

    async fn release(connection: &mut PgConnection, statements: &Statements, holder: &str) -> Result<(), sqlx::Error> {
        let janitor = statements.table.janitor_quoted('"');
        let request = format!(
            "{READ_COMMITTED}; UPDATE {janitor} SET expires_at = '-infinity' WHERE id = 1 AND holder = '{holder}'"
        );
        sqlx::raw_sql(AssertSqlSafe(request)).execute(connection).await.map(drop)
    }
}

/// Reads a request to its end, which is its commit, and returns the row that it had.
async fn only_row(connection: &mut PgConnection, request: String) -> Result<sqlx::postgres::PgRow, sqlx::Error> {
    // Safe: made of constants, numbers, a holder's digits, and a `TableName`, which holds nothing but plain
    // identifiers.
    let rows = sqlx::raw_sql(AssertSqlSafe(request)).fetch_all(connection).await?;
    rows.into_iter().next().ok_or(sqlx::Error::RowNotFound)
}
