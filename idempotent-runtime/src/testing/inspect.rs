//! What a database has to provide for the kit.

use std::future::Future;

use super::state::Contents;
use crate::database::Statements;

#[cfg(feature = "mysql")]
mod mysql;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "sqlite")]
mod sqlite;

/// A table as the database names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// `None`: where a table without a schema is found.
    pub(super) schema: Option<String>,
    pub(super) name: String,
}

impl Table {
    /// The table of the same name with something appended.
    pub(super) fn beside(&self, suffix: &str) -> Self {
        Self { schema: self.schema.clone(), name: format!("{}{suffix}", self.name) }
    }

    /// As it is shown.
    pub(super) fn shown(&self) -> String {
        match &self.schema {
            Some(schema) if schema != "public" => format!("{schema}.{}", self.name),
            _ => self.name.clone(),
        }
    }

    /// In SQL. The name may be any text.
    pub(super) fn quoted(&self, quote: char) -> String {
        match &self.schema {
            Some(schema) => format!("{}.{}", quoted(schema, quote), quoted(&self.name, quote)),
            None => quoted(&self.name, quote),
        }
    }
}

pub(super) fn quoted(name: &str, quote: char) -> String {
    let doubled = name.replace(quote, &format!("{quote}{quote}"));
    format!("{quote}{doubled}{quote}")
}

/// What is said by a table that refuses to be written to.
pub(super) const REFUSED: &str = "the testing kit of idempotent-runtime lets no write to this table succeed";

/// Sealed, and free to change: this is not part of the public interface.
#[expect(private_interfaces, reason = "sealed: only the databases of this crate implement it")]
#[doc(hidden)]
pub trait Inspect: sqlx::Database {
    /// Every table that is not the database's own.
    fn tables(connection: &mut Self::Connection) -> impl Future<Output = Result<Vec<Table>, sqlx::Error>>;

    /// What is in a table.
    fn contents(
        connection: &mut Self::Connection,
        table: &Table,
    ) -> impl Future<Output = Result<Contents, sqlx::Error>> + Send;

    /// Makes every insert, update and delete on the table fail, until it is [allowed](Inspect::allow) again.
    fn refuse(connection: &mut Self::Connection, table: &Table) -> impl Future<Output = Result<(), sqlx::Error>>;

    /// Undoes [`refuse`](Inspect::refuse).
    fn allow(connection: &mut Self::Connection, table: &Table) -> impl Future<Output = Result<(), sqlx::Error>>;

    /// Consumer, sender and key of every claim.
    fn claims(
        connection: &mut Self::Connection,
        statements: &Statements,
    ) -> impl Future<Output = Result<Vec<[String; 3]>, sqlx::Error>>;

    /// Moves the expiry of every claim into the past.
    fn age(connection: &mut Self::Connection, statements: &Statements)
    -> impl Future<Output = Result<(), sqlx::Error>>;
}
