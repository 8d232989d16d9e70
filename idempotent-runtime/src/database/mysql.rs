//! MySQL and MariaDB: a savepoint as the proof that the transaction is still the claim's own.
//!
//! One request begins, sets the savepoint and claims; one checks, commits and restores. COMMIT, ROLLBACK, DDL and a lost
//! deadlock all end the savepoint, so releasing it fails with 1305 and the rest of the request is not executed.
//! `autocommit = 0` keeps what the body writes after a lost deadlock or an implicit commit from staying: without it,
//! each statement would commit itself. The claim is a plain INSERT whose error 1062 is the duplicate: with
//! `CLIENT_FOUND_ROWS`, which sqlx sets, ON DUPLICATE KEY UPDATE reports one row for both, and INSERT IGNORE
//! hides other errors. Round trips that the handler waits for: begin and claim, the body's, end; a duplicate: one.
//!
//! Measured on loopback against unverified lines by hand (`cargo bench -p tests --bench verification`, on the machine it was
//! written on): this 1.14 with three round trips; the claim prepared and in a request of its own 1.36 with four; RELEASE
//! in a request of its own 1.06 with four, but that leaves autocommit on.
//!
//! Sources: <https://dev.mysql.com/doc/refman/8.4/en/savepoint.html>, <https://dev.mysql.com/doc/refman/8.4/en/implicit-commit.html>,
//! <https://mariadb.com/kb/en/savepoint/>.

use std::fmt::Write as _;
use std::future::poll_fn;
use std::mem;
use std::pin::pin;
use std::sync::LazyLock;
use std::task::Poll;

use sqlx::mysql::{MySqlConnection, MySqlDatabaseError, MySqlTransactionManager};
use sqlx::{AssertSqlSafe, Connection as _, Executor as _, MySql, MySqlTransaction, Pool};
use sqlx_core::transaction::TransactionManager as _;

use super::nested::Nested;
use super::{Begun, Failed, Failure, NewClaim, Operations, Progress, Statements, TableName, unwind};
use crate::{Database, Error, migrate};

/// In UTC whatever the session's time zone is. Values are appended by [`insert`].
const CLAIM: &str = "INSERT INTO {table} (consumer, sender, `key`, expires_at) VALUES (";

const FIND: &str = "\
SELECT CAST(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', expires_at) DIV 1000 AS SIGNED) FROM {table}
WHERE consumer = ? AND sender = ? AND `key` = ?";

const FORGET: &str = "DELETE FROM {table} WHERE consumer = ? AND sender = ? AND `key` = ?";

const MIGRATIONS: &[migrate::Step] = &[
    migrate::Step {
        version: 1,
        name: "processed_messages",
        sql: include_str!("../../migrations/mysql/0001_processed_messages.sql"),
    },
    migrate::Step { version: 2, name: "expires_at", sql: include_str!("../../migrations/mysql/0002_expires_at.sql") },
    migrate::Step { version: 3, name: "janitor", sql: include_str!("../../migrations/mysql/0003_janitor.sql") },
];

/// A dropped savepoint: COMMIT, ROLLBACK, an implicit commit or a deadlock has ended the transaction.
const ER_SP_DOES_NOT_EXIST: u16 = 1305;
const ER_DUP_ENTRY: u16 = 1062;

impl Database for MySql {}

#[expect(private_interfaces, reason = "sealed: see the trait")]
impl Operations for MySql {
    type Watch = Watch;

    /// sqlx 0.9.0 loses its place in the protocol if a statement is dropped while it is being prepared.
    const SURVIVES_CANCELLATION: bool = false;
    const CLOSES_LEASED: bool = true;
    const ENDS_IN_AN_EMPTY_TRANSACTION: bool = false;

    fn default_statements() -> &'static Statements {
        static DEFAULT: LazyLock<Statements> = LazyLock::new(|| MySql::statements(&TableName::default()));
        &DEFAULT
    }

    fn statements(table: &TableName) -> Statements {
        Statements::new(table, '`', CLAIM, FIND, FORGET)
    }

    async fn begin<'c>(
        connection: &'c mut MySqlConnection,
        claim: Option<NewClaim<'_>>,
        reclaimable: bool,
    ) -> Result<Begun<'c, MySql>, sqlx::Error> {
        if !reclaimable {
            // Two requests, so that a drop during the first leaves no claim behind, and after it sqlx queues ROLLBACK.
            let transaction = connection.begin_with("START TRANSACTION; SAVEPOINT idempotent_claim").await?;
            return claimed(transaction, claim, false).await;
        }
        let mut request = String::from("SET autocommit = 0; START TRANSACTION; SAVEPOINT idempotent_claim");
        if let Some(claim) = claim {
            request.push_str("; ");
            insert(&mut request, claim);
        }
        match connection.begin_with(AssertSqlSafe(request)).await {
            Ok(transaction) => Ok(Some((transaction, Watch { depth: 1, autocommit_off: true }))),
            Err(error) if number(&error) == Some(ER_DUP_ENTRY) => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn join<'c>(
        connection: &'c mut MySqlConnection,
        claim: Option<NewClaim<'_>>,
    ) -> Result<Begun<'c, MySql>, sqlx::Error> {
        // The request is on its way, its reply will be drained, and sqlx has not counted it: forgotten, it is a
        // savepoint that nobody uses.
        claimed(Nested::begin(connection, |begin| mem::forget(begin)).await?, claim, false).await
    }

    async fn claim(connection: &mut MySqlConnection, claim: NewClaim<'_>) -> Result<bool, sqlx::Error> {
        let mut request = String::new();
        insert(&mut request, claim);
        match connection.execute(AssertSqlSafe(request)).await {
            Ok(_) => Ok(true),
            Err(error) if number(&error) == Some(ER_DUP_ENTRY) => Ok(false),
            Err(error) => Err(error),
        }
    }

    async fn commit(
        mut transaction: MySqlTransaction<'_>,
        watch: Watch,
        claim: Option<NewClaim<'_>>,
    ) -> Result<(), Failed> {
        unwind::<Self>(&mut transaction, watch.depth).await.map_err(Failed::AtEnd)?;
        let request = match watch.savepoint() {
            None => watch.end("RELEASE SAVEPOINT idempotent_claim; COMMIT"),
            // A fresh savepoint of the name, so that the rollback to it that sqlx queues undoes nothing.
            Some(savepoint) => format!("RELEASE SAVEPOINT {savepoint}; SAVEPOINT {savepoint}"),
        };
        match transaction.execute(AssertSqlSafe(request)).await {
            Ok(_) => Ok(()), // dropping the transaction queues a rollback of nothing
            Err(error) if number(&error) == Some(ER_SP_DOES_NOT_EXIST) => Err(watch.give_up(transaction, claim).await),
            Err(error) => Err(Failed::AtEnd(error)),
        }
    }

    async fn rollback(
        mut transaction: MySqlTransaction<'_>,
        watch: Watch,
        claim: Option<NewClaim<'_>>,
    ) -> Result<(), Failed> {
        unwind::<Self>(&mut transaction, watch.depth).await.map_err(Failed::AtEnd)?;
        let request = match watch.savepoint() {
            None => watch.end("RELEASE SAVEPOINT idempotent_claim; ROLLBACK"),
            Some(savepoint) => format!("ROLLBACK TO SAVEPOINT {savepoint}"),
        };
        match transaction.execute(AssertSqlSafe(request)).await {
            Ok(_) => Ok(()),
            Err(error) if number(&error) == Some(ER_SP_DOES_NOT_EXIST) => Err(watch.give_up(transaction, claim).await),
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
        if progress == Progress::Duplicate {
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
        migrate::run(&mut connection, table, '`', MIGRATIONS).await?;
        Ok(connection.close().await?)
    }

    async fn find(
        pool: &Pool<MySql>,
        statements: &Statements,
        [consumer, sender, key]: [&str; 3],
    ) -> Result<Option<i64>, sqlx::Error> {
        sqlx::query_scalar(statements.find.clone()).bind(consumer).bind(sender).bind(key).fetch_optional(pool).await
    }

    async fn forget(
        pool: &Pool<MySql>,
        statements: &Statements,
        [consumer, sender, key]: [&str; 3],
    ) -> Result<bool, sqlx::Error> {
        let forget = sqlx::query(statements.forget.clone()).bind(consumer).bind(sender).bind(key);
        Ok(forget.execute(pool).await?.rows_affected() > 0)
    }
}

/// Claims in a transaction that has begun.
async fn claimed<'c>(
    mut transaction: MySqlTransaction<'c>,
    claim: Option<NewClaim<'_>>,
    autocommit_off: bool,
) -> Result<Begun<'c, MySql>, sqlx::Error> {
    let depth = MySqlTransactionManager::get_transaction_depth(&transaction);
    Ok(match claim {
        // Dropping the transaction queues its rollback.
        Some(claim) if !MySql::claim(&mut transaction, claim).await? => None,
        _ => Some((transaction, Watch { depth, autocommit_off })),
    })
}

/// Appends the claim's statement. Values stand in it as hexadecimal digits, so no byte of a message is SQL text; in a
/// request of several statements there are no parameters.
fn insert(request: &mut String, claim: NewClaim<'_>) {
    let NewClaim { statements, identity, retention } = claim;
    request.push_str(statements.claim.as_str());
    for value in [&identity.consumer, &identity.sender, &identity.key] {
        request.push_str("_ascii X'");
        for byte in value.bytes() {
            let _ = write!(request, "{byte:02X}");
        }
        request.push_str("', ");
    }
    let _ = write!(request, "UTC_TIMESTAMP(6) + INTERVAL {} MICROSECOND)", retention.as_micros());
}

/// Where the savepoint of the claim stands.
#[derive(Clone, Copy, Debug)]
pub struct Watch {
    depth: usize,
    autocommit_off: bool,
}

impl Watch {
    /// The request that ends a transaction of the handler's own.
    fn end(self, request: &str) -> String {
        if self.autocommit_off { format!("{request}; SET autocommit = 1") } else { request.to_owned() }
    }

    /// sqlx's name for the savepoint of a joined transaction.
    fn savepoint(self) -> Option<String> {
        (self.depth > 1).then(|| format!("_sqlx_savepoint_{}", self.depth - 1))
    }

    /// Ends a transaction whose savepoint is gone.
    async fn give_up(self, mut transaction: MySqlTransaction<'_>, claim: Option<NewClaim<'_>>) -> Failed {
        let end = async {
            // What was written since is in a transaction of its own: autocommit is off.
            transaction.execute("ROLLBACK").await?;
            let kept = match claim {
                Some(NewClaim { statements, identity, .. }) => {
                    // Ours was committed early, or it is gone. A rival's is taken for ours: its message was processed.
                    let find = sqlx::query_scalar::<_, i64>(statements.find.clone())
                        .bind(&*identity.consumer)
                        .bind(&*identity.sender)
                        .bind(&*identity.key);
                    find.fetch_optional(&mut *transaction).await?.is_some()
                }
                None => false,
            };
            if self.depth == 1 {
                transaction.execute(AssertSqlSafe(self.end("ROLLBACK"))).await?;
            } else {
                // The caller's transaction is gone too: what it does next must not commit without what it did before.
                let _ = transaction.execute("KILL CONNECTION_ID()").await;
            }
            Ok(kept)
        };
        match end.await {
            Ok(kept) => Failed::Lost { kept },
            Err(error) => Failed::AtEnd(error),
        }
    }
}

fn number(error: &sqlx::Error) -> Option<u16> {
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
