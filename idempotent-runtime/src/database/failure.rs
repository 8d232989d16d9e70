//! What an error of a database means.

#[cfg(feature = "mysql")]
use super::mysql;
#[cfg(feature = "postgres")]
use super::postgres;
#[cfg(feature = "sqlite")]
use super::sqlite;

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
