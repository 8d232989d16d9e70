//! PostgreSQL: the transaction's id as the proof that it is still the claim's own.
//!
//! The claim returns `txid_current()`. The end sends, in one request, a check of that id, COMMIT, and an empty
//! transaction for sqlx to close without waiting: sqlx sees neither the state of a transaction nor whether COMMIT was
//! answered by ROLLBACK. The check fails in an aborted transaction, in another one, and outside one; then the rest of
//! the request is not executed. An id is never reused, and nested handlers share it, which a setting of the
//! transaction's own would not survive. Round trips that the handler waits for: BEGIN, claim, the body's, end.
//!
//! Measured on loopback against unverified lines by hand (`cargo bench -p tests --bench verification`, on the machine it was
//! written on): this 1.16 with four round trips; a savepoint set with BEGIN and released at the end 1.08 with four, but
//! two transaction ids a message; the check in a request of its own 1.25 with five.
//!
//! Sources: <https://www.postgresql.org/docs/current/functions-info.html#FUNCTIONS-PG-SNAPSHOT>,
//! <https://www.postgresql.org/docs/current/protocol-flow.html#PROTOCOL-FLOW-MULTI-STATEMENT>.

use std::future::poll_fn;
use std::mem;
use std::sync::LazyLock;

use sqlx::postgres::{PgConnection, PgDatabaseError, PgTransactionManager};
use sqlx::{AssertSqlSafe, Connection as _, Either, Executor as _, PgTransaction, Pool, Postgres};
use sqlx_core::transaction::TransactionManager as _;

use super::nested::Nested;
use super::{Begun, Failed, Failure, NewClaim, Operations, Progress, Statements, TableName, unwind};
use crate::{Database, Error, migrate};

/// `clock_timestamp()` is the wall clock, `now()` would be the transaction's start. A duplicate returns no row and leaves
/// neither a dead row nor an error in the log. The conflict target makes the statement fail if the unique key is gone.
const CLAIM: &str = "\
INSERT INTO {table} (consumer, sender, key, expires_at)
VALUES ($1, $2, $3, clock_timestamp() + $4 * interval '1 millisecond')
ON CONFLICT (consumer, sender, key) DO NOTHING
RETURNING txid_current()";

const FIND: &str = "\
SELECT (extract(epoch FROM expires_at) * 1000)::bigint FROM {table} WHERE consumer = $1 AND sender = $2 AND key = $3";

const FORGET: &str = "DELETE FROM {table} WHERE consumer = $1 AND sender = $2 AND key = $3";

const MIGRATIONS: &[migrate::Step] = &[
    migrate::Step {
        version: 1,
        name: "processed_messages",
        sql: include_str!("../../migrations/postgres/0001_processed_messages.sql"),
    },
    migrate::Step {
        version: 2,
        name: "expires_at",
        sql: include_str!("../../migrations/postgres/0002_expires_at.sql"),
    },
    migrate::Step { version: 3, name: "janitor", sql: include_str!("../../migrations/postgres/0003_janitor.sql") },
];

/// Any number that no other application's advisory lock is likely to be.
const MIGRATION_LOCK: i64 = 0x6964_656d_706f_7465;

impl Database for Postgres {}

#[expect(private_interfaces, reason = "sealed: see the trait")]
impl Operations for Postgres {
    type Watch = Watch;

    const SURVIVES_CANCELLATION: bool = true;
    const CLOSES_LEASED: bool = true;
    const ENDS_IN_AN_EMPTY_TRANSACTION: bool = true;

    fn default_statements() -> &'static Statements {
        static DEFAULT: LazyLock<Statements> = LazyLock::new(|| Postgres::statements(&TableName::default()));
        &DEFAULT
    }

    fn statements(table: &TableName) -> Statements {
        Statements::new(table, '"', CLAIM, FIND, FORGET)
    }

    async fn begin<'c>(
        connection: &'c mut PgConnection,
        claim: Option<NewClaim<'_>>,
        _reclaimable: bool,
    ) -> Result<Begun<'c, Postgres>, sqlx::Error> {
        claimed(connection.begin().await?, claim).await
    }

    async fn join<'c>(
        connection: &'c mut PgConnection,
        claim: Option<NewClaim<'_>>,
    ) -> Result<Begun<'c, Postgres>, sqlx::Error> {
        // The request is on its way, its reply will be drained, and sqlx has not counted it: forgotten, it is a
        // savepoint that nobody uses.
        claimed(Nested::begin(connection, |begin| mem::forget(begin)).await?, claim).await
    }

    async fn claim(connection: &mut PgConnection, claim: NewClaim<'_>) -> Result<bool, sqlx::Error> {
        Ok(insert(connection, claim).await?.is_some())
    }

    async fn commit(
        mut transaction: PgTransaction<'_>,
        watch: Watch,
        _claim: Option<NewClaim<'_>>,
    ) -> Result<(), Failed> {
        unwind::<Self>(&mut transaction, watch.depth).await.map_err(Failed::AtEnd)?;
        let check = watch.check();
        let request = match watch.savepoint() {
            None => format!("{check}; COMMIT; BEGIN"),
            // A fresh savepoint of the name, so that the rollback to it that sqlx queues undoes nothing.
            Some(savepoint) => format!("{check}; RELEASE SAVEPOINT {savepoint}; SAVEPOINT {savepoint}"),
        };
        match checked(&mut transaction, request).await {
            Ok(()) => Ok(()), // dropping the transaction queues sqlx's own end of what is left, an empty one
            Err((Passed(false), error @ sqlx::Error::Database(_))) => Err(watch.give_up(transaction, error).await),
            Err((_, error)) => Err(Failed::AtEnd(error)),
        }
    }

    async fn rollback(
        mut transaction: PgTransaction<'_>,
        watch: Watch,
        _claim: Option<NewClaim<'_>>,
    ) -> Result<(), Failed> {
        unwind::<Self>(&mut transaction, watch.depth).await.map_err(Failed::AtEnd)?;
        match checked(&mut transaction, watch.check()).await {
            Err((_, error @ sqlx::Error::Database(_))) if !is_aborted(&error) => {
                Err(watch.give_up(transaction, error).await)
            }
            _ => transaction.rollback().await.map_err(Failed::AtEnd),
        }
    }

    async fn commit_own(mut transaction: PgTransaction<'_>) -> Result<(), Failed> {
        match PgTransactionManager::get_transaction_depth(&transaction) {
            0 => return Err(Failed::Lost { kept: false }),
            1 => {}
            _ => return end_savepoint(transaction).await,
        }
        // SAVEPOINT fails in an aborted transaction, and outside one.
        match checked(&mut transaction, "SAVEPOINT idempotent_commit; SELECT 1; COMMIT; BEGIN".to_owned()).await {
            Ok(()) => Ok(()),
            Err((Passed(false), sqlx::Error::Database(_))) => Err(Failed::Lost { kept: false }),
            Err((_, error)) => Err(Failed::AtEnd(error)),
        }
    }

    fn is_tainted(connection: &PgConnection, progress: Progress) -> bool {
        // Once it is begun, sqlx queues the rollback itself, unless the body has forgotten a nested transaction.
        progress == Progress::Beginning || (progress != Progress::Clean && connection.is_in_transaction())
    }

    async fn restore(connection: &mut PgConnection, _progress: Progress) -> Result<(), sqlx::Error> {
        unwind::<Self>(connection, 0).await?;
        // Outside a transaction each statement begins its own. Asking first avoids ROLLBACK's warning in the log.
        let idle = sqlx::raw_sql("SELECT now() = statement_timestamp()").fetch_one(&mut *connection).await;
        match idle.and_then(|row| sqlx::Row::try_get(&row, 0)) {
            Ok(true) => Ok(()),
            Ok(false) | Err(sqlx::Error::Database(_)) => connection.execute("ROLLBACK").await.map(drop),
            Err(error) => Err(error),
        }
    }

    async fn migrate(pool: &Pool<Postgres>, table: &TableName) -> Result<(), Error> {
        let mut transaction = pool.begin().await?;
        // Held until the transaction ends, so it also works behind a pooler that shares connections.
        sqlx::query("SELECT pg_advisory_xact_lock($1)").bind(MIGRATION_LOCK).execute(&mut *transaction).await?;
        migrate::run(&mut *transaction, table, '"', MIGRATIONS).await?;
        Ok(transaction.commit().await?)
    }

    async fn find(
        pool: &Pool<Postgres>,
        statements: &Statements,
        [consumer, sender, key]: [&str; 3],
    ) -> Result<Option<i64>, sqlx::Error> {
        sqlx::query_scalar(statements.find.clone()).bind(consumer).bind(sender).bind(key).fetch_optional(pool).await
    }

    async fn forget(
        pool: &Pool<Postgres>,
        statements: &Statements,
        [consumer, sender, key]: [&str; 3],
    ) -> Result<bool, sqlx::Error> {
        let forget = sqlx::query(statements.forget.clone()).bind(consumer).bind(sender).bind(key);
        Ok(forget.execute(pool).await?.rows_affected() > 0)
    }
}

/// The transaction's id, if the claim is new.
async fn insert(connection: &mut PgConnection, claim: NewClaim<'_>) -> Result<Option<i64>, sqlx::Error> {
    let NewClaim { statements, identity, retention } = claim;
    sqlx::query_scalar(statements.claim.clone())
        .bind(&*identity.consumer)
        .bind(&*identity.sender)
        .bind(&*identity.key)
        .bind(retention.as_secs_f64() * 1000.0)
        .fetch_optional(connection)
        .await
}

async fn claimed<'c>(
    mut transaction: PgTransaction<'c>,
    claim: Option<NewClaim<'_>>,
) -> Result<Begun<'c, Postgres>, sqlx::Error> {
    let id = match claim {
        Some(claim) => insert(&mut transaction, claim).await?,
        None => Some(sqlx::query_scalar("SELECT txid_current()").fetch_one(&mut *transaction).await?),
    };
    // Without an id it is a duplicate: dropping the transaction queues its rollback.
    Ok(id.map(|id| {
        let depth = PgTransactionManager::get_transaction_depth(&transaction);
        (transaction, Watch { id, depth })
    }))
}

/// Releases a savepoint of the application's own.
async fn end_savepoint(transaction: PgTransaction<'_>) -> Result<(), Failed> {
    match transaction.commit().await {
        Err(error) if is_aborted(&error) => Err(Failed::Lost { kept: false }),
        ended => ended.map_err(Failed::AtEnd),
    }
}

/// Whether the first result of a request arrived before the request failed.
struct Passed(bool);

/// Sends several statements in one request, of which the first that returns a row is the check.
async fn checked(connection: &mut PgConnection, request: String) -> Result<(), (Passed, sqlx::Error)> {
    let mut passed = false;
    // Safe: made of constants, a number and savepoint names that end in one.
    let mut results = sqlx::raw_sql(AssertSqlSafe(request)).fetch_many(connection);
    while let Some(result) = poll_fn(|context| results.as_mut().poll_next(context)).await {
        match result {
            Ok(Either::Right(_)) => passed = true,
            Ok(Either::Left(_)) => {}
            Err(error) => return Err((Passed(passed), error)),
        }
    }
    Ok(())
}

/// What identifies the claim's transaction.
#[derive(Clone, Copy, Debug)]
pub struct Watch {
    id: i64,
    depth: usize,
}

/// The text that the server logs where a check has failed. A cast fails with it; `concat` keeps the planner from
/// evaluating the cast in advance.
const GONE: &str = "concat('idempotent: the transaction of the claim is gone')::int";

impl Watch {
    /// Fails unless the current transaction is the claim's. Outside one the id is NULL, which equals nothing.
    fn check(self) -> String {
        format!("SELECT CASE txid_current_if_assigned() WHEN {} THEN 1 ELSE {GONE} END", self.id)
    }

    /// sqlx's name for the savepoint of a joined transaction.
    fn savepoint(self) -> Option<String> {
        (self.depth > 1).then(|| format!("_sqlx_savepoint_{}", self.depth - 1))
    }

    /// Ends a transaction that did not pass the check.
    async fn give_up(self, mut transaction: PgTransaction<'_>, error: sqlx::Error) -> Failed {
        let end = async {
            if is_aborted(&error) {
                // A statement failed and its error was swallowed. Behind a savepoint, the caller's work is untouched.
                transaction.rollback().await?;
                return Ok(false);
            }
            // The body has ended the transaction. Whatever stands in its place goes.
            let status = format!("SELECT coalesce(txid_status({}) = 'committed', false)", self.id);
            let counted = PgTransactionManager::get_transaction_depth(&transaction);
            let request = if self.depth > 1 && counted >= self.depth {
                // The caller's transaction is gone too: what it does next must not commit without what it did before,
                // so it gets an aborted one.
                format!("ROLLBACK; BEGIN; {status}; SELECT {GONE}")
            } else {
                format!("ROLLBACK; {status}")
            };
            let mut kept = None;
            let mut results = sqlx::raw_sql(AssertSqlSafe(request)).fetch_many(&mut *transaction);
            while let Some(result) = poll_fn(|context| results.as_mut().poll_next(context)).await {
                match result {
                    Ok(Either::Right(row)) if kept.is_none() => kept = Some(sqlx::Row::try_get(&row, 0)?),
                    Ok(_) => {}
                    Err(_) if kept.is_some() => break,
                    Err(error) => return Err(error),
                }
            }
            Ok(kept.unwrap_or(true))
        };
        match end.await {
            Ok(kept) => Failed::Lost { kept },
            Err(error) => Failed::AtEnd(error),
        }
    }
}

/// SQLSTATE 25P02: the transaction is aborted, and was neither committed nor rolled back.
fn is_aborted(error: &sqlx::Error) -> bool {
    error.as_database_error().is_some_and(|error| error.code().as_deref() == Some("25P02"))
}

/// <https://www.postgresql.org/docs/current/errcodes-appendix.html>
pub(super) fn failure(error: &PgDatabaseError) -> Failure {
    match error.code() {
        "40003" | "57P01" | "57P02" | "57P03" => Failure::Unknown,
        "55P03" => Failure::LockTimeout,
        "40001" | "40P01" => Failure::Conflict, // serialization, deadlock
        // cancelled by a time-out, read-only (a standby after a failover), ended for idling or for its length
        "57014" | "25006" | "25P03" | "25P04" | "57P05" => Failure::Transient,
        "42P01" | "42703" | "42P10" | "3F000" => Failure::Schema,
        code => match code.get(..2) {
            Some("08") => Failure::Unknown,
            Some("53") => Failure::Transient, // insufficient resources
            Some("22" | "23") => Failure::Data,
            _ => Failure::Other,
        },
    }
}
