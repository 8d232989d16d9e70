//! What a database has to provide for taking over the claims that hand-written code has stored.

use std::future::Future;

use super::{Statements, TableName};

#[cfg(feature = "mysql")]
mod mysql;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "sqlite")]
mod sqlite;

/// Sealed, and free to change: this is not part of the public interface.
#[expect(private_interfaces, reason = "sealed: only the databases of this crate implement it")]
#[doc(hidden)]
pub trait Adopting: sqlx::Database {
    /// The columns of the old table; none if there is no such table.
    fn columns(
        connection: &mut Self::Connection,
        table: &TableName,
    ) -> impl Future<Output = Result<Vec<Column>, sqlx::Error>> + Send;

    /// The old rows from a place on, in the order of consumer and id, at most so many. Rows without one of the two are
    /// passed over: nothing equals NULL, so no duplicate was ever recognised by them.
    fn read(
        connection: &mut Self::Connection,
        old: &OldTable,
        from: Option<&OldRow>,
        limit: u32,
    ) -> impl Future<Output = Result<Vec<OldRow>, sqlx::Error>> + Send;

    /// How many rows [`read`](Self::read) passes over.
    fn nameless(
        connection: &mut Self::Connection,
        old: &OldTable,
    ) -> impl Future<Output = Result<i64, sqlx::Error>> + Send;

    /// Inserts claims that are not there yet, and says how many. `claims` is a JSON array of arrays: consumer,
    /// sender, key, milliseconds until the expiry.
    fn insert(
        connection: &mut Self::Connection,
        statements: &Statements,
        claims: &str,
    ) -> impl Future<Output = Result<u64, sqlx::Error>> + Send;
}

/// The table that hand-written code has filled. Its names are plain identifiers.
#[derive(Clone, Debug)]
pub(crate) struct OldTable {
    pub(crate) table: TableName,
    pub(crate) id: Column,
    pub(crate) consumer: Option<Column>,
    pub(crate) processed_at: Option<Column>,
}

/// A column of the old table.
#[derive(Clone, Debug)]
pub struct Column {
    pub(crate) name: String,
    pub(crate) kind: ColumnKind,
    /// As the database calls it.
    pub(crate) sql_type: String,
}

/// What a column can be good for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ColumnKind {
    /// Characters.
    Text,
    /// Bytes, which have to be UTF-8.
    Bytes,
    /// A whole number.
    Number,
    /// A UUID.
    Uuid,
    /// A moment.
    Moment,
    /// A date and a time of day that say nothing of their zone.
    LocalTime,
    /// Each row has a type of its own.
    Dynamic,
    /// Nothing.
    #[cfg(any(feature = "postgres", feature = "mysql"))]
    Other,
}

/// A row of the old table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OldRow {
    pub(crate) consumer: Option<String>,
    pub(crate) id: String,
    /// How long ago it was processed, in milliseconds. A time without a zone is taken for UTC.
    pub(crate) age: Option<i64>,
    /// Of a dynamic id: whether it is a number or bytes.
    pub(crate) kind: ColumnKind,
}

/// Bytes that are no text: the claim's key would not be the one that the handler makes.
#[cfg(any(feature = "mysql", feature = "sqlite"))]
fn text(bytes: Vec<u8>) -> Result<String, sqlx::Error> {
    String::from_utf8(bytes).map_err(|error| {
        let what =
            format!("the old table has an id that is no UTF-8 text: adopt a view that makes one of it ({error})");
        sqlx::Error::Decode(what.into())
    })
}

impl Column {
    /// Whether a table with these columns has all of those names.
    pub(crate) fn are_in(columns: &[Self], names: &[&str]) -> bool {
        names.iter().all(|name| columns.iter().any(|column| column.name == *name))
    }
}

impl OldTable {
    /// Counts the rows that have no id, or no consumer.
    fn count_of_nameless(&self, quote: char) -> String {
        let is_null = |column: &Column| format!("{quote}{}{quote} IS NULL", column.name);
        let names: Vec<_> = self.consumer.iter().chain([&self.id]).map(is_null).collect();
        format!("SELECT count(*) FROM {} WHERE {}", self.table.quoted(quote), names.join(" OR "))
    }
}

impl OldRow {
    /// What tells it from other rows.
    pub(crate) fn name(&self) -> (Option<&str>, &str) {
        (self.consumer.as_deref(), &self.id)
    }
}
