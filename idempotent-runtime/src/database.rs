//! What a database has to provide. One file each holds its SQL and its error numbers; the flow that uses
//! them is in `process.rs`, written once.

use std::future::Future;
use std::time::Duration;

use sqlx::{Pool, Transaction};
use sqlx_core::transaction::TransactionManager as _;

use crate::Error;
use crate::outcome::Identity;

mod adoption;
#[cfg(feature = "mysql")]
mod mysql;
mod nested;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "sqlite")]
mod sqlite;
mod table;
mod upkeep;

pub(crate) use adoption::{Adopting, Column, ColumnKind, OldRow, OldTable};
pub(crate) use table::{Statements, TableName};
pub(crate) use upkeep::{Batch, Deleted, Upkeep};

/// The databases this library works with: `Postgres`, `MySql` (MariaDB too) and `Sqlite`, each behind the feature of its name.
///
/// Name it to write code over any of them: `async fn f<DB: idempotent_runtime::Database>(pool: &sqlx::Pool<DB>)`.
pub trait Database: sqlx::Database + Operations + Upkeep + Adopting {}

/// Sealed, and free to change: this is not part of the public interface.
#[expect(private_interfaces, reason = "sealed: only the databases of this crate implement it")]
#[doc(hidden)]
pub trait Operations: sqlx::Database {
    /// What proves at the end that the transaction is still the claim's own.
    type Watch: Send;

    /// The claim's SQL for the default table.
    fn default_statements() -> &'static Statements;

    /// The claim's SQL for a table of another name.
    fn statements(table: &TableName) -> Statements;

    /// Begins a transaction on a connection outside one, and claims the message in it. A connection that is not
    /// `reclaimable` stays the caller's as it is if the future is dropped: no setting may be left on it.
    fn begin<'c>(
        connection: &'c mut Self::Connection,
        claim: Option<NewClaim<'_>>,
        reclaimable: bool,
    ) -> impl Future<Output = Result<Begun<'c, Self>, sqlx::Error>> + Send;

    /// Begins a savepoint in the caller's transaction, and claims the message behind it. If the future is dropped, this
    /// is undone, and nothing of the caller's. [`sqlx::Error::BeginFailed`] where the caller's transaction is gone.
    fn join<'c>(
        connection: &'c mut Self::Connection,
        claim: Option<NewClaim<'_>>,
    ) -> impl Future<Output = Result<Begun<'c, Self>, sqlx::Error>> + Send;

    /// Inserts the claim; `false` if it was there. Waits for a rival that has inserted it and not yet committed.
    fn claim(
        connection: &mut Self::Connection,
        claim: NewClaim<'_>,
    ) -> impl Future<Output = Result<bool, sqlx::Error>> + Send;

    /// Commits what [`begin`](Operations::begin) began, or releases what [`join`](Operations::join) began, if the
    /// transaction is still the claim's own.
    fn commit(
        transaction: Transaction<'_, Self>,
        watch: Self::Watch,
        claim: Option<NewClaim<'_>>,
    ) -> impl Future<Output = Result<(), Failed>> + Send;

    /// Rolls back what [`begin`](Operations::begin) or [`join`](Operations::join) began.
    fn rollback(
        transaction: Transaction<'_, Self>,
        watch: Self::Watch,
        claim: Option<NewClaim<'_>>,
    ) -> impl Future<Output = Result<(), Failed>> + Send;

    /// Commits a transaction of the application's own, if it is alive.
    fn commit_own(transaction: Transaction<'_, Self>) -> impl Future<Output = Result<(), Failed>> + Send;

    /// Whether a connection must be [restored](Operations::restore) before others use it.
    fn is_tainted(connection: &Self::Connection, progress: Progress) -> bool;

    /// Whether a connection that a dropped future has left in the middle of a request can still be used.
    const SURVIVES_CANCELLATION: bool;

    /// Whether a pool's connection that the caller holds is closed for the same reasons.
    const CLOSES_LEASED: bool;

    /// Whether a transaction ends with an empty one that sqlx has yet to close. A pool pings what comes back to it; a
    /// connection that the caller keeps would stay in it.
    const ENDS_IN_AN_EMPTY_TRANSACTION: bool;

    /// Brings a connection back to what it was before [`begin`](Operations::begin).
    fn restore(
        connection: &mut Self::Connection,
        progress: Progress,
    ) -> impl Future<Output = Result<(), sqlx::Error>> + Send;

    /// Creates or updates the claim table.
    fn migrate(pool: &Pool<Self>, table: &TableName) -> impl Future<Output = Result<(), Error>> + Send;

    /// When the claim expires, in Unix milliseconds, if it is there.
    fn find(
        pool: &Pool<Self>,
        statements: &Statements,
        identity: [&str; 3],
    ) -> impl Future<Output = Result<Option<i64>, sqlx::Error>> + Send;

    /// Deletes the claim; `false` if it was not there.
    fn forget(
        pool: &Pool<Self>,
        statements: &Statements,
        identity: [&str; 3],
    ) -> impl Future<Output = Result<bool, sqlx::Error>> + Send;
}

/// The claim of one message, and where it goes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewClaim<'a> {
    pub(crate) statements: &'a Statements,
    pub(crate) identity: &'a Identity,
    pub(crate) retention: Duration,
}

/// A transaction with its new claim, or nothing where the claim was there.
pub(crate) type Begun<'c, DB> = Option<(Transaction<'c, DB>, <DB as Operations>::Watch)>;

/// How far a transaction on a connection outside one has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Nothing was sent, or everything was closed in an orderly way.
    Clean,
    /// Beginning and claiming.
    Beginning,
    /// The claim was there, and a setting of the session may have to be put back.
    Duplicate,
    /// The body has its transaction.
    Open,
    /// Closed; what sqlx has queued to close its own side may not be sent yet.
    Closed,
}

/// Why a transaction did not end as it should.
#[derive(Debug)]
pub enum Failed {
    /// It was no longer the claim's own; `kept` says that its claim was committed and stays.
    Lost { kept: bool },
    /// The statement that ends it failed.
    AtEnd(sqlx::Error),
}

/// Rolls back what sqlx counts above `depth`, such as a nested transaction that the body has forgotten.
async fn unwind<DB: sqlx::Database>(connection: &mut DB::Connection, depth: usize) -> Result<(), sqlx::Error> {
    while DB::TransactionManager::get_transaction_depth(connection) > depth {
        DB::TransactionManager::rollback(connection).await?;
    }
    Ok(())
}

/// What an error of the database means, by SQLSTATE or number, never by its text (G11).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// Transactions were in each other's way: the same again may succeed at once.
    Conflict,
    /// A time-out, an overload, a lost connection: the same again may succeed later.
    Transient,
    /// Reported at COMMIT, this leaves open whether it happened.
    Unknown,
    /// A rival held a lock for longer than the claim waits.
    LockTimeout,
    /// The data is at fault: the same again fails again.
    Data,
    /// A table, a column or a unique key is missing. Of a claim's statement: the table is not migrated.
    Schema,
    /// Anything else.
    Other,
}

/// What `error` means where it is reported before COMMIT.
pub(crate) fn failure(error: &sqlx::Error) -> Failure {
    match failure_at_commit(error) {
        // The connection is gone and took the transaction with it.
        Failure::Unknown | Failure::LockTimeout | Failure::Conflict => Failure::Transient,
        failure => failure,
    }
}

/// What `error` means where COMMIT reports it.
pub(crate) fn failure_at_commit(error: &sqlx::Error) -> Failure {
    match error {
        sqlx::Error::Database(error) => database_failure(&**error),
        sqlx::Error::Io(_) | sqlx::Error::Tls(_) | sqlx::Error::Protocol(_) | sqlx::Error::WorkerCrashed => {
            Failure::Unknown
        }
        sqlx::Error::BeginFailed => Failure::Conflict,
        sqlx::Error::PoolTimedOut | sqlx::Error::PoolClosed => Failure::Transient,
        sqlx::Error::RowNotFound
        | sqlx::Error::Encode(_)
        | sqlx::Error::Decode(_)
        | sqlx::Error::ColumnDecode { .. } => Failure::Data,
        _ => Failure::Other,
    }
}

fn database_failure(error: &dyn sqlx::error::DatabaseError) -> Failure {
    #[cfg(feature = "postgres")]
    if let Some(error) = error.try_downcast_ref() {
        return postgres::failure(error);
    }
    #[cfg(feature = "mysql")]
    if let Some(error) = error.try_downcast_ref() {
        return mysql::failure(error);
    }
    #[cfg(feature = "sqlite")]
    if let Some(error) = error.try_downcast_ref::<sqlx::sqlite::SqliteError>() {
        return sqlite::failure(error);
    }
    let _ = error;
    Failure::Other
}
