//! What a database has to provide for batches: the statements of one message for many at once. Rows come sorted and
//! distinct, and are locked in that order.

use std::future::Future;

use super::Admission;
use crate::batch::Row;

#[cfg(feature = "mysql")]
mod mysql;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "sqlite")]
mod sqlite;

/// Sealed, and free to change: this is not part of the public interface.
#[expect(private_interfaces, reason = "sealed: only the databases of this crate implement it")]
#[doc(hidden)]
pub trait Bulk: sqlx::Database {
    /// Inserts claims, each with its expiry in Unix microseconds or after the retention.
    fn claim_all(
        connection: &mut Self::Connection,
        admission: Admission<'_>,
        consumer: &str,
        claims: &[(Row<'_>, Option<i64>)],
    ) -> impl Future<Output = Result<Claimed, sqlx::Error>> + Send;

    /// The wall clock, in Unix microseconds.
    fn now(connection: &mut Self::Connection) -> impl Future<Output = Result<i64, sqlx::Error>> + Send;

    /// Locks how far each entity has come.
    fn positions(
        connection: &mut Self::Connection,
        admission: Admission<'_>,
        consumer: &str,
        entities: &[Row<'_>],
    ) -> impl Future<Output = Result<Vec<Option<i64>>, sqlx::Error>> + Send;

    /// Moves entities forward; `false` if one is as far.
    fn advance_all(
        connection: &mut Self::Connection,
        admission: Admission<'_>,
        consumer: &str,
        entities: &[(Row<'_>, i64)],
    ) -> impl Future<Output = Result<bool, sqlx::Error>> + Send;

    /// Deletes claims of this transaction.
    fn forget_all(
        connection: &mut Self::Connection,
        admission: Admission<'_>,
        consumer: &str,
        claims: &[Row<'_>],
    ) -> impl Future<Output = Result<(), sqlx::Error>> + Send;
}

/// The claims that were not there.
#[derive(Debug, Default)]
pub struct Claimed {
    pub(crate) indexes: Vec<usize>,
    /// The transaction that has inserted them, on PostgreSQL.
    pub(crate) transaction: Option<i64>,
}

/// The indexes of the rows that are found, which come in any order.
fn indexes<'a>(rows: impl Iterator<Item = Row<'a>>, found: impl Iterator<Item = (String, String)>) -> Vec<usize> {
    let found: std::collections::HashSet<(String, String)> = found.collect();
    let is_found = |row: &Row<'_>| found.contains(&(row.sender.to_owned(), row.name.to_owned()));
    rows.enumerate().filter(|(_, row)| is_found(row)).map(|(index, _)| index).collect()
}

/// For each row its number, if it is found.
fn numbers(rows: &[Row<'_>], found: Vec<(String, String, i64)>) -> Vec<Option<i64>> {
    let found: std::collections::HashMap<(String, String), i64> =
        found.into_iter().map(|(sender, name, number)| ((sender, name), number)).collect();
    rows.iter().map(|row| found.get(&(row.sender.to_owned(), row.name.to_owned())).copied()).collect()
}
