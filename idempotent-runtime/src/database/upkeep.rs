//! What a database has to provide for deleting old claims. Every operation is a transaction of its own in one
//! request, so that a future dropped in flight leaves nothing open.

use std::future::Future;
use std::time::Duration;

use super::Statements;

#[cfg(feature = "mysql")]
mod mysql;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "sqlite")]
mod sqlite;

/// Sealed, and free to change: this is not part of the public interface.
#[expect(private_interfaces, reason = "sealed: only the databases of this crate implement it")]
#[doc(hidden)]
pub trait Upkeep: sqlx::Database {
    /// Claims deleted together, unless the options say otherwise.
    const PURGE_BATCH: u32;

    /// Deletes up to `batch.size` claims whose expiry plus margin is past by the database's clock, oldest first. What
    /// another transaction has locked is passed over, not waited for, so that nobody can deadlock with it.
    fn purge(
        connection: &mut Self::Connection,
        statements: &Statements,
        batch: Batch,
    ) -> impl Future<Output = Result<Deleted, sqlx::Error>> + Send;

    /// The earliest expiry of all claims, in Unix milliseconds.
    fn oldest(
        connection: &mut Self::Connection,
        statements: &Statements,
    ) -> impl Future<Output = Result<Option<i64>, sqlx::Error>> + Send;

    /// Makes `holder`, hexadecimal digits, the active janitor for so long from now, unless another one is.
    fn lease(
        connection: &mut Self::Connection,
        statements: &Statements,
        holder: &str,
        time: Duration,
    ) -> impl Future<Output = Result<bool, sqlx::Error>> + Send;

    /// Ends the lease of `holder`, if it has it.
    fn release(
        connection: &mut Self::Connection,
        statements: &Statements,
        holder: &str,
    ) -> impl Future<Output = Result<(), sqlx::Error>> + Send;
}

/// One batch of a purge.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Batch {
    pub(crate) margin: Duration,
    pub(crate) size: u32,
    /// Where the batch before has come to, as an expiry in Unix milliseconds. Until they are vacuumed, entries of
    /// deleted claims stay in the index, and a batch that began at its start would read all of them again.
    #[cfg_attr(
        not(any(feature = "postgres", feature = "mysql")),
        expect(dead_code, reason = "SQLite has no such entries")
    )]
    pub(crate) from: Option<i64>,
}

/// What a batch has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deleted {
    pub(crate) claims: u64,
    /// Where the next batch begins; `None` if there was nothing left for one.
    pub(crate) next: Option<i64>,
}
