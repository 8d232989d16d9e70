//! SQLite: BEGIN IMMEDIATE, and commit and rollback hooks as the proof that the transaction is the claim's own.
//!
//! The proof: while a handler runs, the commit hook vetoes every commit on its connection (a COMMIT that the body
//! sends, or the autocommit of what it writes after its transaction was lost) and the rollback hook counts what was
//! rolled back as a whole, automatic rollbacks included. So nothing but the handler's own end can commit.
//! Sources: <https://sqlite.org/c3ref/commit_hook.html>, <https://sqlite.org/lang_transaction.html> (automatic rollbacks).
//!
//! Measured in memory against unverified lines by hand (`cargo bench -p tests --bench verification`, on the machine it was
//! written on): hooks 1.20, a savepoint that has to be there at the end 1.35, and the savepoint vetoes nothing.

mod hooks;

use std::sync::LazyLock;
use std::time::Duration;

use sqlx::sqlite::{SqliteConnection, SqliteError, SqliteTransactionManager};
use sqlx::{AssertSqlSafe, Connection as _, Executor as _, Pool, Sqlite, SqliteTransaction};
use sqlx_core::transaction::TransactionManager as _;

use hooks::{Hooks, Watch};

use super::nested::Nested;
use super::{
    Admission, Begun, Failed, Failure, NewClaim, Occurred, Operations, Progress, Recalled, Statements, TableName,
    Texts, Verdict, lookups, unwind,
};
use crate::batch;
use crate::replay::StoredValue;
use crate::sequence::Position;
use crate::store::Settings;
use crate::{Database, Error, migrate};

/// Takes the write lock at once. A deferred transaction that reads first would be refused the lock later
/// with an error that no waiting can cure (`SQLITE_BUSY_SNAPSHOT`).
const BEGIN: &str = "BEGIN IMMEDIATE";

/// Parameters: identity, fingerprint, and either how long the claim lives or when it expires, in milliseconds. `julianday`
/// works on every version, in UTC, with milliseconds; its value is the same during one statement. The conflict target makes
/// the statement fail if the unique key is gone.
const CLAIM: &str = "\
INSERT INTO {table} (consumer, sender, key, fingerprint, expires_at)
VALUES (?1, ?2, ?3, ?4, coalesce(?6, CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER) + ?5))
ON CONFLICT (consumer, sender, key) DO NOTHING";

/// Parameters: when the claim expires and when the message occurred. Asked with the write lock held, so no purge runs
/// between claim and answer (G10).
const LOOK: &str = "\
SELECT ?1 <= now, ?2 > now + 86400000 FROM (SELECT CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER) AS now)";

/// Changes no row where the entity is as far.
const ADVANCE: &str = "\
INSERT INTO {positions} AS stored (consumer, sender, entity, number, updated_at)
VALUES (?1, ?2, ?3, ?4, CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER))
ON CONFLICT (consumer, sender, entity) DO UPDATE SET number = excluded.number, updated_at = excluded.updated_at
WHERE stored.number < excluded.number";

const TEXTS: Texts = Texts {
    quote: '"',
    claim: CLAIM,
    recall: "SELECT fingerprint, value FROM {table} WHERE consumer = ?1 AND sender = ?2 AND key = ?3",
    store: "UPDATE {table} SET value = ?4 WHERE consumer = ?1 AND sender = ?2 AND key = ?3",
    advance: ADVANCE,
    position: "SELECT number FROM {positions} WHERE consumer = ?1 AND sender = ?2 AND entity = ?3",
    find: "SELECT expires_at FROM {table} WHERE consumer = ?1 AND sender = ?2 AND key = ?3",
    forget: "DELETE FROM {table} WHERE consumer = ?1 AND sender = ?2 AND key = ?3",
};

const MIGRATIONS: &[migrate::Step] = &[
    migrate::Step {
        version: 1,
        name: "processed_messages",
        sql: include_str!("../../migrations/sqlite/0001_processed_messages.sql"),
    },
    migrate::Step {
        version: 2,
        name: "fingerprint_and_value",
        sql: include_str!("../../migrations/sqlite/0002_fingerprint_and_value.sql"),
    },
    migrate::Step { version: 3, name: "positions", sql: include_str!("../../migrations/sqlite/0003_positions.sql") },
    migrate::Step { version: 4, name: "expires_at", sql: include_str!("../../migrations/sqlite/0004_expires_at.sql") },
    migrate::Step { version: 5, name: "janitor", sql: include_str!("../../migrations/sqlite/0005_janitor.sql") },
];

impl Database for Sqlite {}

#[expect(private_interfaces, reason = "sealed: see the trait")]
impl Operations for Sqlite {
    type Watch = Watch;

    /// sqlx's worker thread finishes the request, and undoes a BEGIN whose future is gone.
    const SURVIVES_CANCELLATION: bool = true;
    /// A database in memory would go with its connection, and a handler's begin repairs what is left.
    const CLOSES_LEASED: bool = false;
    const ENDS_IN_AN_EMPTY_TRANSACTION: bool = false;

    fn default_settings() -> &'static Settings {
        static DEFAULT: LazyLock<Settings> = LazyLock::new(Settings::of::<Sqlite>);
        &DEFAULT
    }

    fn statements(table: &TableName) -> Statements {
        TEXTS.over(table)
    }

    async fn begin<'c>(
        connection: &'c mut SqliteConnection,
        admission: Admission<'_>,
        _reclaimable: bool,
    ) -> Result<Begun<'c, Sqlite>, sqlx::Error> {
        if connection.is_in_transaction() {
            // A connection in a transaction is joined, so somebody has lost the one that this pool's connection had.
            Self::restore(connection, Progress::Open).await?;
        }
        let watch = Watch::set(connection).await?;
        watch.hooks.restore_busy_timeout(connection).await?;
        if let Some(wait) = admission.wait {
            watch.hooks.set_busy_timeout(connection, wait).await?;
        }
        match connection.begin_with(BEGIN).await {
            Ok(mut transaction) => {
                watch.hooks.restore_busy_timeout(&mut transaction).await?;
                watch.admit(transaction, admission).await
            }
            // Somebody has begun a transaction that sqlx does not count.
            Err(error) if is_plain_error(&error) => Err(sqlx::Error::BeginFailed),
            Err(error) => Err(error), // the session puts the timeout back
        }
    }

    async fn join<'c>(
        connection: &'c mut SqliteConnection,
        admission: Admission<'_>,
    ) -> Result<Begun<'c, Sqlite>, sqlx::Error> {
        // In a live transaction BEGIN fails. Where it succeeds, the one that sqlx counts was rolled back by SQLite.
        if connection.execute("BEGIN").await.is_ok() {
            connection.execute("ROLLBACK").await?;
            return Err(sqlx::Error::BeginFailed);
        }
        let watch = Watch::set(connection).await?;
        // sqlx's worker undoes a begin whose future is gone, and the dropped transaction value then queues a second
        // rollback, which hits the caller's transaction. Waiting for the worker, which needs no runtime, avoids both.
        let transaction = Nested::begin(connection, |begin| drop(pollster::block_on(begin))).await?;
        watch.admit(transaction, admission).await
    }

    async fn admit(connection: &mut SqliteConnection, admission: Admission<'_>) -> Result<Verdict, sqlx::Error> {
        let Admission { statements, claim, occurred, position, .. } = admission;
        if let Some(messages) = admission.batch {
            return Ok(batch::admit::<Sqlite>(connection, admission, messages).await?.0);
        }
        if let Some(NewClaim { identity, fingerprint }) = claim {
            let insert = sqlx::query(statements.claim.clone())
                .bind(&*identity.consumer)
                .bind(&*identity.sender)
                .bind(&*identity.key)
                .bind(fingerprint.map(<[u8; 32]>::as_slice))
                .bind(millis(admission.retention))
                .bind(occurred.map(|Occurred { expires, .. }| expires / 1000));
            if insert.execute(&mut *connection).await?.rows_affected() == 0 {
                return Ok(Verdict::Duplicate);
            }
        }
        if let Some(Occurred { at, expires }) = occurred {
            let look = sqlx::query_as::<_, (Option<bool>, Option<bool>)>(LOOK).bind(expires / 1000).bind(at / 1000);
            match look.fetch_one(&mut *connection).await? {
                (Some(false), Some(false)) => {}
                (Some(false), _) => return Ok(Verdict::Ahead(0)),
                _ => return Ok(Verdict::Expired(0)),
            }
        }
        if let Some(Position { consumer, sender, entity, number }) = position {
            let advance =
                sqlx::query(statements.advance.clone()).bind(consumer).bind(&**sender).bind(&**entity).bind(number);
            if advance.execute(&mut *connection).await?.rows_affected() == 0 {
                return Ok(Verdict::Stale);
            }
        }
        Ok(Verdict::New(Vec::new()))
    }

    async fn commit(
        mut transaction: SqliteTransaction<'_>,
        watch: Watch,
        admission: Admission<'_>,
        value: Option<&StoredValue>,
    ) -> Result<(), Failed> {
        if watch.is_lost() {
            return Err(watch.give_up(transaction).await);
        }
        if let (Some(NewClaim { identity, .. }), Some(StoredValue(value))) = (admission.claim, value) {
            let store = sqlx::query(admission.statements.store.clone())
                .bind(&*identity.consumer)
                .bind(&*identity.sender)
                .bind(&*identity.key)
                .bind(value);
            store.execute(&mut *transaction).await.map_err(Failed::AtEnd)?;
        }
        if watch.depth > 1 {
            // Releasing the savepoint of a nested transaction that the body has forgotten would pass for releasing ours.
            transaction.ping().await.map_err(Failed::AtEnd)?;
            unwind::<Self>(&mut transaction, watch.depth).await.map_err(Failed::AtEnd)?;
        }
        let commits = watch.allow_commit();
        transaction.commit().await.map_err(refused)?;
        // sqlx answers `Ok` without a COMMIT where its count of open transactions is off.
        if watch.has_committed(commits) { Ok(()) } else { Err(Failed::Lost { kept: false }) }
    }

    async fn rollback(
        transaction: SqliteTransaction<'_>,
        watch: Watch,
        _admission: Admission<'_>,
    ) -> Result<(), Failed> {
        if watch.is_lost() {
            return Err(watch.give_up(transaction).await);
        }
        transaction.rollback().await.map_err(Failed::AtEnd)
    }

    async fn commit_own(mut transaction: SqliteTransaction<'_>) -> Result<(), Failed> {
        let mut alive = transaction.execute("BEGIN").await.is_err();
        match SqliteTransactionManager::get_transaction_depth(&transaction) {
            0 => alive = false,
            1 => {}
            // Another transaction may stand in the lost one's place, without the savepoint that is to be released.
            depth => {
                let savepoint = format!("_sqlx_savepoint_{}", depth - 1);
                let renew = format!("RELEASE SAVEPOINT {savepoint}; SAVEPOINT {savepoint}");
                alive = alive && transaction.execute(AssertSqlSafe(renew)).await.is_ok();
            }
        }
        if !alive {
            let _ = rebuild(&mut transaction, "BEGIN").await;
            let _ = unwind::<Self>(&mut transaction, 0).await;
            return Err(Failed::Lost { kept: false });
        }
        transaction.commit().await.map_err(refused)
    }

    fn is_tainted(_connection: &SqliteConnection, progress: Progress) -> bool {
        // sqlx's ROLLBACK of a transaction that was lost fails, and leaves its count of open ones too high.
        matches!(progress, Progress::Beginning | Progress::Open)
    }

    async fn restore(connection: &mut SqliteConnection, _progress: Progress) -> Result<(), sqlx::Error> {
        Self::put_settings_back(connection).await?;
        rebuild(connection, "BEGIN").await?;
        unwind::<Self>(connection, 0).await
    }

    async fn put_settings_back(connection: &mut SqliteConnection) -> Result<(), sqlx::Error> {
        Hooks::of(connection).await?.restore_busy_timeout(connection).await
    }

    async fn migrate(pool: &Pool<Sqlite>, table: &TableName) -> Result<(), Error> {
        // The write lock keeps other instances out until all steps are committed together.
        let mut transaction = pool.begin_with(BEGIN).await?;
        migrate::refuse_other::<Sqlite>(&mut *transaction, table).await?;
        migrate::run(&mut *transaction, table, '"', MIGRATIONS).await?;
        Ok(transaction.commit().await?)
    }

    lookups!(Sqlite);
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX / 2) // at most a hundred years
}

// Result codes: https://sqlite.org/rescode.html
const SQLITE_ERROR: i32 = 1;
const SQLITE_BUSY: i32 = 5;
const SQLITE_LOCKED: i32 = 6;
const SQLITE_TOOBIG: i32 = 18;
const SQLITE_CONSTRAINT: i32 = 19;
const SQLITE_MISMATCH: i32 = 20;

pub(super) fn failure(error: &SqliteError) -> Failure {
    // The primary code is the low byte of the extended one that sqlx reports.
    let code = sqlx::error::DatabaseError::code(error).and_then(|code| code.parse::<i32>().ok());
    match code.map(|code| code & 0xFF) {
        // "No such table", "no such column" and "no such unique key" differ by text alone.
        Some(SQLITE_ERROR) => Failure::Schema,
        Some(SQLITE_BUSY | SQLITE_LOCKED) => Failure::Transient,
        Some(SQLITE_TOOBIG | SQLITE_CONSTRAINT | SQLITE_MISMATCH) => Failure::Data,
        _ => Failure::Other,
    }
}

/// Begins anew what sqlx still counts as open. After a rollback that SQLite or the body did, sqlx's own ROLLBACK would
/// fail and its count stay too high for ever.
async fn rebuild(connection: &mut SqliteConnection, begin: &'static str) -> Result<(), sqlx::Error> {
    let _ = connection.execute("ROLLBACK").await; // of what stands in the lost transaction's place; fails where nothing does
    // The worker has done what was queued, so its count is right.
    let depth = SqliteTransactionManager::get_transaction_depth(connection);
    if depth > 0 {
        connection.execute(begin).await?;
    }
    for level in 1..depth {
        connection.execute(AssertSqlSafe(format!("SAVEPOINT _sqlx_savepoint_{level}"))).await?;
    }
    Ok(())
}

/// `SQLITE_CONSTRAINT_COMMITHOOK`: the hook has refused what stands in a lost transaction's place.
fn refused(error: sqlx::Error) -> Failed {
    match error.as_database_error().and_then(sqlx::error::DatabaseError::code).as_deref() {
        Some("531") => Failed::Lost { kept: false },
        _ => Failed::AtEnd(error),
    }
}

/// `SQLITE_ERROR`: of BEGIN, that a transaction is open.
fn is_plain_error(error: &sqlx::Error) -> bool {
    let error = error.as_database_error().and_then(|error| error.try_downcast_ref::<SqliteError>());
    error.is_some_and(|error| failure(error) == Failure::Schema)
}
