//! Creates the claim table, and brings an older one up to date.

use std::borrow::Cow;

use sqlx::migrate::{Migrate, Migration, MigrationType, Migrator};
use sqlx::{AssertSqlSafe, Pool, SqlSafeStr as _};

use crate::database::{Column, TableName};
use crate::{Database, Error};

/// Creates the tables `processed_messages` and `processed_messages_positions`, or brings them up to date.
///
/// Run it at start-up or deployment; any number of instances may do so at the same moment. What was applied is
/// recorded in `processed_messages_migrations`: the application's own `_sqlx_migrations` is not touched. A newer
/// table than this version knows is accepted, so that versions can run side by side during a deployment.
///
/// For a table of another name use [`ClaimStore::migrate`](crate::ClaimStore::migrate).
///
/// # Errors
///
/// [`Error::Configuration`] where the name is that of a table which this library did not make,
/// [`Error::Migrate`] where a migration fails or was changed since it was applied, [`Error::Database`] otherwise.
pub async fn migrate<DB: Database>(pool: &Pool<DB>) -> Result<(), Error> {
    DB::migrate(pool, &TableName::default()).await
}

/// One step, with `{table}` where the table's name goes, and so on: see [`TableName::fill`].
#[derive(Debug)]
pub(crate) struct Step {
    pub(crate) version: i64,
    pub(crate) name: &'static str,
    pub(crate) sql: &'static str,
}

/// Refuses a name that another table has, before anything is created: MySQL and MariaDB would keep the record of a step
/// that has failed, and refuse the next run for it.
pub(crate) async fn refuse_other<DB: Database>(
    connection: &mut DB::Connection,
    table: &TableName,
) -> Result<(), Error> {
    let columns = DB::columns(connection, table).await?;
    // The first version's columns: a table of an older version is ours too.
    if columns.is_empty() || Column::are_in(&columns, &["consumer", "sender", "key", "expires_at"]) {
        return Ok(());
    }
    Err(Error::Configuration(format!(
        "there is a table `{table}` that this library did not make: choose another name with \
         `ClaimStore::builder(pool).table(\"…\")`, and to take over what is in this one, see `guide::adoption`"
    )))
}

/// Applies the steps that are missing. The caller holds a lock that keeps other instances out.
pub(crate) async fn run<C: Migrate>(
    connection: &mut C,
    table: &TableName,
    quote: char,
    steps: &'static [Step],
) -> Result<(), Error> {
    let migrations = steps.iter().map(|step| {
        // Safe: a `TableName` holds nothing but plain identifiers.
        let sql = AssertSqlSafe(table.fill(step.sql, quote)).into_sql_str();
        Migration::new(step.version, Cow::Borrowed(step.name), MigrationType::Simple, sql, false)
    });
    let mut migrator = Migrator::with_migrations(migrations.collect());
    migrator.dangerous_set_table_name(table.migrations_quoted(quote));
    migrator.set_ignore_missing(true);
    migrator.set_locking(false);
    migrator.run_direct(None, connection, false).await.map_err(|error| Error::Migrate(Box::new(error)))
}
