//! MySQL and MariaDB: a savepoint as the proof that the transaction is still the claim's own.
//!
//! One request begins, sets the savepoint and claims; one checks, commits and restores. COMMIT, ROLLBACK, DDL and a lost
//! deadlock all end the savepoint, so releasing it fails with 1305 and the rest of the request is not executed.
//! `autocommit = 0` keeps what the body writes after a lost deadlock or an implicit commit from staying: without it,
//! each statement would commit itself. The claim is a plain INSERT whose error 1062 is the duplicate: with
//! `CLIENT_FOUND_ROWS`, which sqlx sets, ON DUPLICATE KEY UPDATE reports one row for both, and INSERT IGNORE
//! hides other errors. Round trips that the handler waits for: begin and claim, the body's, end; a duplicate: one.
//!
//! Measured against unverified lines by hand, and against other ways to verify: `cargo bench -p tests --bench verification`.
//!
//! Sources: <https://dev.mysql.com/doc/refman/8.4/en/savepoint.html>, <https://dev.mysql.com/doc/refman/8.4/en/implicit-commit.html>,
//! <https://mariadb.com/kb/en/savepoint/>.

mod text;
mod watch;

use std::fmt::Write as _;
use std::future::poll_fn;
use std::mem;
use std::pin::pin;
use std::sync::LazyLock;
use std::task::Poll;

use sqlx::mysql::{MySqlConnection, MySqlDatabaseError, MySqlTransactionManager};
use sqlx::{AssertSqlSafe, Connection as _, Executor as _, MySql, MySqlTransaction, Pool, Row as _, SqlSafeStr as _};
use sqlx_core::transaction::TransactionManager as _;

use text::{advance, isolated, write_statements, writes_at_once};
pub(super) use text::{ascii, moment, waiting};
use watch::Watch;

use super::nested::Nested;
use super::{
    Admission, Begun, Failed, Failure, Occurred, Operations, Progress, Recalled, Statements, TableName, Texts, Verdict,
    lookups, unwind,
};
use crate::batch;
use crate::replay::StoredValue;
use crate::store::Settings;
use crate::{Database, Error, migrate};

/// In UTC whatever the session's time zone is. [`write_statements`] appends the values, and [`insert`] puts [`waiting`] in front.
const CLAIM: &str = "INTO {table} (consumer, sender, `key`, fingerprint, expires_at) VALUES (";

/// [`advance`] puts the values where `?` stands. Where the entity is as far, EXP fails with 1690, whatever the SQL mode: one row is
/// reported for a new entity as for one that stays as it is, since sqlx sets `CLIENT_FOUND_ROWS`. EXP depends
/// on the row, so that nobody evaluates it in advance.
const ADVANCE: &str = "\
INTO {positions} (consumer, sender, entity, number, updated_at) VALUES (?)
ON DUPLICATE KEY UPDATE updated_at = VALUES(updated_at),
                        number = IF(number < VALUES(number), VALUES(number), EXP(710 + 0 * number))";

const TEXTS: Texts = Texts {
    quote: '`',
    claim: CLAIM,
    // The caller's snapshot may be older than the claim, and a locking read sees what is there.
    recall: "SELECT fingerprint, value FROM {table} WHERE consumer = ? AND sender = ? AND `key` = ? LOCK IN SHARE MODE",
    store: "UPDATE {table} SET value = ? WHERE consumer = ? AND sender = ? AND `key` = ?",
    advance: ADVANCE,
    position: "SELECT number FROM {positions} WHERE consumer = ? AND sender = ? AND entity = ?",
    find: "\
SELECT CAST(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', expires_at) DIV 1000 AS SIGNED) FROM {table}
WHERE consumer = ? AND sender = ? AND `key` = ?",
    forget: "DELETE FROM {table} WHERE consumer = ? AND sender = ? AND `key` = ?",
};

const MIGRATIONS: &[migrate::Step] = &[
    migrate::Step {
        version: 1,
        name: "processed_messages",
        sql: include_str!("../../migrations/mysql/0001_processed_messages.sql"),
    },
    migrate::Step {
        version: 2,
        name: "fingerprint_and_value",
        sql: include_str!("../../migrations/mysql/0002_fingerprint_and_value.sql"),
    },
    migrate::Step { version: 3, name: "positions", sql: include_str!("../../migrations/mysql/0003_positions.sql") },
    migrate::Step { version: 4, name: "expires_at", sql: include_str!("../../migrations/mysql/0004_expires_at.sql") },
    migrate::Step { version: 5, name: "janitor", sql: include_str!("../../migrations/mysql/0005_janitor.sql") },
    migrate::Step { version: 6, name: "batch", sql: include_str!("../../migrations/mysql/0006_batch.sql") },
];

/// A dropped savepoint: COMMIT, ROLLBACK, an implicit commit or a deadlock has ended the transaction.
const ER_SP_DOES_NOT_EXIST: u16 = 1305;
const ER_DUP_ENTRY: u16 = 1062;
/// Of [`ADVANCE`]: the entity is as far.
pub(super) const ER_DATA_OUT_OF_RANGE: u16 = 1690;

/// Room for begin and claim, so that the text is written into one buffer.
const REQUEST: usize = 1024;

/// The ends of a transaction of the handler's own: where autocommit is on, and where it was switched off.
const COMMIT: [&str; 2] =
    ["RELEASE SAVEPOINT idempotent_claim; COMMIT", "RELEASE SAVEPOINT idempotent_claim; COMMIT; SET autocommit = 1"];
const ROLLBACK: [&str; 2] = [
    "RELEASE SAVEPOINT idempotent_claim; ROLLBACK",
    "RELEASE SAVEPOINT idempotent_claim; ROLLBACK; SET autocommit = 1",
];

impl Database for MySql {}

#[expect(private_interfaces, reason = "sealed: see the trait")]
impl Operations for MySql {
    type Watch = Watch;

    /// sqlx 0.9.0 loses its place in the protocol if a statement is dropped while it is being prepared.
    const SURVIVES_CANCELLATION: bool = false;
    const CLOSES_LEASED: bool = true;
    const ENDS_IN_AN_EMPTY_TRANSACTION: bool = false;

    fn default_settings() -> &'static Settings {
        static DEFAULT: LazyLock<Settings> = LazyLock::new(Settings::of::<MySql>);
        &DEFAULT
    }

    fn statements(table: &TableName) -> Statements {
        TEXTS.over(table)
    }

    async fn begin<'c>(
        connection: &'c mut MySqlConnection,
        admission: Admission<'_>,
        reclaimable: bool,
    ) -> Result<Begun<'c, MySql>, sqlx::Error> {
        if !reclaimable {
            // Two requests, so that a drop during the first leaves no claim behind, and after it sqlx queues ROLLBACK.
            let request = format!("{}START TRANSACTION; SAVEPOINT idempotent_claim", isolated(admission.isolation));
            let transaction = connection.begin_with(AssertSqlSafe(request)).await?;
            return admitted(transaction, admission, false).await;
        }
        let mut request = String::with_capacity(REQUEST);
        request.push_str("SET autocommit = 0; ");
        if admission.isolation.is_some() || !writes_at_once(admission) {
            let _ = write!(request, "{}START TRANSACTION; ", isolated(admission.isolation));
        } // else the insert begins it
        request.push_str("SAVEPOINT idempotent_claim");
        write_statements(&mut request, admission);
        match connection.begin_with(AssertSqlSafe(request)).await {
            Ok(mut transaction) => Ok(match judge(&mut transaction, admission).await? {
                Verdict::New(outcomes) => Ok((transaction, Watch { depth: 1, autocommit_off: true }, outcomes)),
                refused => {
                    // Not queued: `restore` would then wait for its reply, and be dropped before it has sent anything.
                    transaction.rollback().await?;
                    Err(refused)
                }
            }),
            Err(error) => refused(error).map(Err),
        }
    }

    async fn join<'c>(
        connection: &'c mut MySqlConnection,
        admission: Admission<'_>,
    ) -> Result<Begun<'c, MySql>, sqlx::Error> {
        // The request is on its way, its reply will be drained, and sqlx has not counted it: forgotten, it is a
        // savepoint that nobody uses.
        admitted(Nested::begin(connection, |begin| mem::forget(begin)).await?, admission, false).await
    }

    async fn admit(connection: &mut MySqlConnection, admission: Admission<'_>) -> Result<Verdict, sqlx::Error> {
        let mut statements = String::with_capacity(REQUEST);
        write_statements(&mut statements, admission);
        if !statements.is_empty()
            && let Err(error) = connection.execute(AssertSqlSafe(statements)).await
        {
            return refused(error);
        }
        judge(connection, admission).await
    }

    async fn commit(
        mut transaction: MySqlTransaction<'_>,
        watch: Watch,
        admission: Admission<'_>,
        value: Option<&StoredValue>,
    ) -> Result<(), Failed> {
        unwind::<Self>(&mut transaction, watch.depth).await.map_err(Failed::AtEnd)?;
        if let (Some(claim), Some(value)) = (admission.claim, value) {
            let stored = watch.store(&mut transaction, admission.statements, claim.identity, value).await;
            match stored {
                Ok(()) => {}
                Err(error) if number(&error) == Some(ER_SP_DOES_NOT_EXIST) => {
                    return Err(watch.give_up(transaction, admission).await);
                }
                Err(error) => return Err(Failed::AtEnd(error)),
            }
        }
        let request = match watch.savepoint() {
            None => watch.end(COMMIT),
            // A fresh savepoint of the name, so that the rollback to it that sqlx queues undoes nothing.
            Some(savepoint) => {
                AssertSqlSafe(format!("RELEASE SAVEPOINT {savepoint}; SAVEPOINT {savepoint}")).into_sql_str()
            }
        };
        match transaction.execute(request).await {
            Ok(_) => Ok(()), // dropping the transaction queues a rollback of nothing
            Err(error) if number(&error) == Some(ER_SP_DOES_NOT_EXIST) => {
                Err(watch.give_up(transaction, admission).await)
            }
            Err(error) => Err(Failed::AtEnd(error)),
        }
    }

    async fn rollback(
        mut transaction: MySqlTransaction<'_>,
        watch: Watch,
        admission: Admission<'_>,
    ) -> Result<(), Failed> {
        unwind::<Self>(&mut transaction, watch.depth).await.map_err(Failed::AtEnd)?;
        let request = match watch.savepoint() {
            None => watch.end(ROLLBACK),
            Some(savepoint) => AssertSqlSafe(format!("ROLLBACK TO SAVEPOINT {savepoint}")).into_sql_str(),
        };
        match transaction.execute(request).await {
            Ok(_) => Ok(()),
            Err(error) if number(&error) == Some(ER_SP_DOES_NOT_EXIST) => {
                Err(watch.give_up(transaction, admission).await)
            }
            Err(error) => Err(Failed::AtEnd(error)),
        }
    }

    async fn commit_own(mut transaction: MySqlTransaction<'_>) -> Result<(), Failed> {
        match MySqlTransactionManager::get_transaction_depth(&transaction) {
            0 => return Err(Failed::Lost { kept: false }),
            1 => {}
            _ => return transaction.commit().await.map_err(Failed::AtEnd),
        }
        // sqlx's nested begin looks at the transaction flag of the server's reply, which it shows nobody.
        match transaction.begin().await {
            Ok(savepoint) => drop(savepoint),
            Err(sqlx::Error::BeginFailed) => return Err(Failed::Lost { kept: false }),
            Err(error) => return Err(Failed::AtEnd(error)),
        }
        transaction.commit().await.map_err(Failed::AtEnd)
    }

    fn is_tainted(_connection: &MySqlConnection, progress: Progress) -> bool {
        !matches!(progress, Progress::Clean | Progress::Closed)
    }

    async fn restore(connection: &mut MySqlConnection, progress: Progress) -> Result<(), sqlx::Error> {
        let mut request = pin!(connection.execute("ROLLBACK; SET autocommit = 1"));
        if progress == Progress::Refused {
            // Sent, and its reply left for whoever uses the connection next: a duplicate waits for one reply, not two.
            poll_fn(|context| match request.as_mut().poll(context) {
                Poll::Ready(result) => Poll::Ready(result.map(drop)),
                Poll::Pending => Poll::Ready(Ok(())),
            })
            .await
        } else {
            request.await.map(drop)
        }
    }

    async fn migrate(pool: &Pool<MySql>, table: &TableName) -> Result<(), Error> {
        // DDL commits by itself here, so a lock of the session keeps other instances out. On a connection of its own: if
        // this future is dropped, the connection goes, and the lock with it.
        let mut connection = pool.acquire().await?.detach();
        let lock = sqlx::query_scalar::<_, Option<i64>>("SELECT GET_LOCK(LEFT(?, 64), 60)")
            .bind(format!("idempotent_{table}"));
        if lock.fetch_one(&mut connection).await? != Some(1) {
            let waited =
                std::io::Error::new(std::io::ErrorKind::TimedOut, "another instance has been migrating for a minute");
            return Err(Error::Database(sqlx::Error::Io(waited)));
        }
        migrate::refuse_other::<MySql>(&mut connection, table).await?;
        migrate::run(&mut connection, table, '`', MIGRATIONS).await?;
        Ok(connection.close().await?)
    }

    lookups!(MySql);
}

/// Admits in a transaction that has begun.
async fn admitted<'c>(
    mut transaction: MySqlTransaction<'c>,
    admission: Admission<'_>,
    autocommit_off: bool,
) -> Result<Begun<'c, MySql>, sqlx::Error> {
    let depth = MySqlTransactionManager::get_transaction_depth(&transaction);
    Ok(match MySql::admit(&mut transaction, admission).await? {
        Verdict::New(outcomes) => Ok((transaction, Watch { depth, autocommit_off }, outcomes)),
        refused => Err(refused), // dropping the transaction queues its rollback
    })
}

/// What an error of the statements that claim and advance says about the message.
fn refused(error: sqlx::Error) -> Result<Verdict, sqlx::Error> {
    match number(&error) {
        Some(ER_DUP_ENTRY) => Ok(Verdict::Duplicate),
        Some(ER_DATA_OUT_OF_RANGE) => Ok(Verdict::Stale),
        _ => Err(error),
    }
}

/// Judges the message's age, where that is asked, and then its place. In a request after the claim's insert, so that a purge which
/// has deleted an older claim is over (G10): `UTC_TIMESTAMP` is the start of its statement.
async fn judge(connection: &mut MySqlConnection, admission: Admission<'_>) -> Result<Verdict, sqlx::Error> {
    if let Some(messages) = admission.batch {
        return Ok(batch::admit::<MySql>(connection, admission, messages).await?.0);
    }
    let Some(Occurred { at, expires }) = admission.occurred else { return Ok(Verdict::New(Vec::new())) };
    let look =
        format!("SELECT {} <= UTC_TIMESTAMP(6), {} > UTC_TIMESTAMP(6) + INTERVAL 1 DAY", moment(expires), moment(at));
    let row = sqlx::raw_sql(AssertSqlSafe(look)).fetch_one(&mut *connection).await?;
    match (row.try_get(0)?, row.try_get(1)?) {
        (Some(false), Some(false)) => {}
        (Some(false), _) => return Ok(Verdict::Ahead(0)),
        _ => return Ok(Verdict::Expired(0)),
    }
    if let Some(position) = admission.position {
        let mut statement = String::with_capacity(REQUEST);
        advance(&mut statement, admission, position);
        if let Err(error) = connection.execute(AssertSqlSafe(statement)).await {
            return refused(error);
        }
    }
    Ok(Verdict::New(Vec::new()))
}

pub(super) fn number(error: &sqlx::Error) -> Option<u16> {
    Some(error.as_database_error()?.try_downcast_ref::<MySqlDatabaseError>()?.number())
}

/// <https://dev.mysql.com/doc/mysql-errors/8.4/en/server-error-reference.html>, <https://mariadb.com/kb/en/mariadb-error-code-reference/>
pub(super) fn failure(error: &MySqlDatabaseError) -> Failure {
    match error.number() {
        1205 => Failure::LockTimeout,
        // no such table, column, database, index
        1146 | 1054 | 1049 | 1176 => Failure::Schema,
        // deadlock, changed since it was read (snapshot isolation), rolled back by a cluster's certification
        1213 | 1020 | 3101 => Failure::Conflict,
        // a time-out of the statement, read-only (a replica after a failover), too many connections of this user
        3024 | 1969 | 1290 | 1836 | 1792 | 1203 | 1226 => Failure::Transient,
        _ => match error.code().and_then(|code| code.get(..2)) {
            Some("08" | "70") => Failure::Unknown, // the connection, or the query, was ended
            Some("22" | "23") => Failure::Data,
            _ => Failure::Other,
        },
    }
}
